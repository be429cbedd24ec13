"""One long row that all blocks share: its fold, and its gradient in one launch with the fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algebra import monoid_of
from ..algebra.gradients import Gradient
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Recipe, Slot, Target
from ..core.policy import tuned
from ..core.spec import KernelSpec
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor
from .policy import Block, WholeRow
from .problem import Problem
from .tiling import THREADS


@dataclass(frozen=True)
class Shares:
    """How blocks share a row of ``extent`` elements at an address."""

    vector: int
    shares: int
    rounds: int
    head: int
    extent: int

    @classmethod
    def of(cls, extent: int, address: int, element: str, target: Target) -> Shares:
        policy, size = tuned(WholeRow()), BY_NAME[element].itemsize
        vector, shares = Block.vector_bytes // size, target.multiprocessors * policy.blocks_per_multiprocessor
        head = -address // size % vector
        rounds = ceil_div((extent - head) // vector, shares * policy.items_per_thread * THREADS)
        return cls(vector, shares, rounds, head, extent)

    def launch(self, kernel: str, constants: dict[str, Any], arguments: dict[str, Any]) -> Launch:
        policy = tuned(WholeRow())
        constants = {**constants, "vector": self.vector, "items": policy.items_per_thread, "groups": policy.groups}
        spec = KernelSpec(f"numba_baracuda.reduce.kernels:{kernel}", tuple(sorted(constants.items())), THREADS, policy.blocks_per_multiprocessor)
        sizes = {"shares": self.shares, "rounds": self.rounds, "extent": self.extent, "head": self.head}
        return Launch(spec, (self.shares, THREADS, policy.groups * policy.items_per_thread * THREADS * Block.vector_bytes), arguments | sizes)


def _is_long(problem: Problem, element: str, target: Target) -> bool:
    """Whether there is one row, contiguous and long, and enough shared memory."""
    policy, nbytes = tuned(WholeRow()), problem.extent * BY_NAME[element].itemsize
    contiguous = problem.rows == 1 and all(strides == (1,) for strides in problem.full_reduced)
    return contiguous and nbytes >= policy.min_bytes and target.capability[0] in policy.capabilities


def fold_of_row(
    descriptor: ReduceDescriptor, problem: Problem, x: Layout, target: Target, monoid: str, value: str, result: str
) -> Recipe | None:  # fmt: skip
    """The recipe of a fold; None where a row is no long one."""
    folded = monoid_of(monoid)
    if not folded.commutes or problem.extent * BY_NAME[value].itemsize > tuned(WholeRow()).max_fold_bytes or not _is_long(problem, value, target):
        return None
    shares, state = Shares.of(problem.extent, x.address, value, target), folded.kind or BY_NAME[value].accumulator
    arguments = {"x": "x", "arrivals": "arrivals", "y": "y", "partials": "partials", "corrected_count": descriptor.corrected_count(folded)}
    launch = shares.launch("fold_whole_row", {"monoid": monoid, "value": value, "result": result}, arguments)
    return Recipe((Clear("arrivals", restored=True), launch), (Slot("arrivals", "i32", 1), Slot("partials", state, shares.shares * folded.width)))


def gradient_of_row(
    descriptor: ReduceBackwardDescriptor, problem: Problem, gradient: Gradient, dx: Layout, x: Layout, target: Target
) -> Recipe | None:  # fmt: skip
    """The recipe of a gradient of the full operands dx and x, which are aligned alike; None where a row is no long one."""
    value = descriptor.element
    if not gradient.fold or not gradient.rows or gradient.guarded or gradient.uses_positions or dx.address != x.address:
        return None
    if not _is_long(problem, value, target):
        return None
    shares, monoid = Shares.of(descriptor.extent, x.address, value, target), monoid_of(gradient.fold)
    arguments = {
        "x": "x", "dy": "dy", "y": "y" if len(gradient.segments) > 1 else NULL, "dx": "dx", "counters": "counters", "before": "before",
        "partials": "partials", "corrected_count": descriptor.corrected_count(monoid), "inverse_extent": 1 / descriptor.extent,
    }  # fmt: skip
    constants = {"gradient": gradient.name, "monoid": gradient.fold, "value": value}
    launch, state = shares.launch("fold_and_broadcast_whole_row", constants, arguments), monoid.kind or BY_NAME[value].accumulator
    slots = Slot("counters", "i32", 4), Slot("before", "i32", shares.shares), Slot("partials", state, shares.shares * monoid.width)
    return Recipe((Clear("counters", restored=True), launch), slots)
