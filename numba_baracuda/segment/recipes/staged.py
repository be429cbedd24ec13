"""Softmax and gradients alike that read rows once, as long as a block holds the rows of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...algebra import monoid_of
from ...algebra.gradients import Gradient
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Slot, Step, Target
from ...core.policy import constants, tuned
from ...core.sizes import plain
from .. import policy
from ..staging import Stage, stage_of
from ..tiling import lanes_for, vector_for
from .common import Rows, kernel_spec
from .fold import SegmentFold, carry_arguments, carry_slots, combine_carries

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def stage_for(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, output: str) -> Stage | None:
    """The rows that a block keeps, or None where the gradient takes more than rows and a fold of theirs, or where rows are strided or too wide."""
    if not gradient.fold or not descriptor.num_segments:
        return None
    monoid = monoid_of(gradient.fold)
    if gradient.segments or gradient.guarded or monoid.uses_positions or monoid.counts or monoid.corrected:
        return None
    names = [*gradient.rows, output]
    rows = Rows(descriptor, *[layouts[name] for name in names])
    if not all(rows.is_contiguous(k) for k in range(len(names))):
        return None
    return stage_of(target, len(gradient.rows) * plain(descriptor.row_size), descriptor.num_inputs, descriptor.num_segments)


def staged_steps(
    descriptor: SegmentDescriptor, target: Target, gradient: Gradient, stage: Stage, fold: SegmentFold, output: str
) -> tuple[list[Step], list[Slot]]:
    """The launch that takes segments which a block holds; for longer ones, those that combine its carries and take their rows."""
    value, columns, n = descriptor.element, plain(descriptor.embedding_dim), descriptor.num_inputs
    element, plan, monoid, order = BY_NAME[value], stage.policy, fold.monoid, fold.order
    rows = Rows(descriptor, *fold.layouts)
    piece = vector_for(element.itemsize, columns) if order.row_index else element.vector
    vector = 2 if columns % 2 == 0 and element.itemsize < 8 else 1
    lanes = lanes_for(ceil_div(columns, vector), plan.threads_per_block, 128)
    tiles, state = ceil_div(n, stage.tile), element.accumulator
    x, w = (*gradient.rows, NULL)[:2]
    common: dict[str, Any] = {"gradient": gradient.name, "value": value, "row_index": order.row_index, "piece": piece}
    given: dict[str, Any] = {
        "x": x, "w": w, "permutation": order.permutation, "output": output, "guard": "guard",
        "carry_ids": "carry_ids", "carry_counts": "carry_counts",
        "rows": n, "columns": columns, "segments": descriptor.num_segments, "tile": stage.tile,
    }  # fmt: skip
    threads = {"threads_per_block": plan.threads_per_block}
    spec = kernel_spec(
        "broadcast_staged", plan.threads_per_block, plan.min_blocks_per_multiprocessor, index=order.index, vector=vector, lanes=lanes,
        **common, **constants(plan) | threads,
    )  # fmt: skip
    arguments = {
        **given, **carry_arguments(True), "ids": order.ids, "reach": stage.reach, "chunks": ceil_div(columns, lanes * vector),
        "stage": stage.rows * columns, "ids_step": order.step,
    }  # fmt: skip
    after = tuned(policy.BroadcastLongRuns())
    long_spec = kernel_spec("broadcast_long_runs", after.threads_per_block, **common, **constants(after))
    shared = columns * monoid.results * BY_NAME[state].itemsize
    blocks = min(2 * tiles, after.grid_blocks_per_multiprocessor * target.multiprocessors)
    return [
        Clear("guard"),
        Launch(spec, (tiles, plan.threads_per_block, stage.shared_bytes), arguments),
        combine_carries(descriptor, rows, fold, 2 * tiles, target, count="guard", most=blocks),
        Launch(long_spec, (blocks, after.threads_per_block, shared), {**given, "folded": fold.output}),
    ], [Slot("guard", "i32", 4), *carry_slots(2 * tiles, columns * monoid.width, state)]
