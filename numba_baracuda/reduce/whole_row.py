"""The gradient of one long row in one launch, whose blocks hold elements on the chip from the fold to the gradient."""

from __future__ import annotations

from typing import Any

from ..algebra import monoid_of
from ..algebra.gradients import Gradient
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Recipe, Slot, Target
from ..core.policy import tuned
from ..core.spec import KernelSpec
from .descriptor import ReduceBackwardDescriptor
from .policy import Block, FoldAndBroadcastWholeRow
from .problem import Problem
from .tiling import THREADS


def serves(gradient: Gradient, problem: Problem, dx: Layout, x: Layout, element: str, target: Target) -> bool:
    """Whether the gradient of ``problem``, of the full operands dx and x, goes in one launch: of one long row, aligned alike."""
    policy, size = tuned(FoldAndBroadcastWholeRow()), BY_NAME[element].itemsize
    if not gradient.fold or not gradient.rows or gradient.guarded or gradient.uses_positions or target.capability[0] not in policy.capabilities:
        return False
    contiguous = problem.rows == 1 and problem.full_reduced[0] == (1,) and problem.full_reduced[1] == (1,)
    return contiguous and dx.address == x.address and problem.extent * size >= policy.min_bytes


def launches(descriptor: ReduceBackwardDescriptor, gradient: Gradient, x: Layout, target: Target) -> Recipe:
    """The recipe."""
    policy, value, monoid = tuned(FoldAndBroadcastWholeRow()), descriptor.element, monoid_of(gradient.fold)
    size, state = BY_NAME[value].itemsize, monoid.kind or BY_NAME[value].accumulator
    vector, shares, items = Block.vector_bytes // size, target.multiprocessors * policy.blocks_per_multiprocessor, policy.items_per_thread
    head = -x.address // size % vector
    vectors = (descriptor.extent - head) // vector
    constants: dict[str, Any] = {"vector": vector, "items": items, "groups": policy.groups}
    spec = KernelSpec(
        "numba_baracuda.reduce.kernels:fold_and_broadcast_whole_row",
        tuple(sorted({"gradient": gradient.name, "monoid": gradient.fold, "value": value, **constants}.items())),
        THREADS,
        policy.blocks_per_multiprocessor,
    )
    arguments = {
        "x": "x", "dy": "dy", "y": "y" if len(gradient.segments) > 1 else NULL, "dx": "dx", "counters": "counters", "before": "before",
        "partials": "partials", "shares": shares, "rounds": ceil_div(vectors, shares * items * THREADS), "extent": descriptor.extent, "head": head,
        "corrected_count": descriptor.corrected_count(monoid), "inverse_extent": 1 / descriptor.extent,
    }  # fmt: skip
    launch = Launch(spec, (shares, THREADS, policy.groups * items * THREADS * Block.vector_bytes), arguments)
    slots = Slot("counters", "i32", 4), Slot("before", "i32", shares), Slot("partials", state, shares * monoid.width)
    return Recipe((Clear("counters", restored=True), launch), slots)
