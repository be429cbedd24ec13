"""The fold into few segments, in shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import Launch, Layout, Op, Recipe, Target
from ...core.policy import constants, tuned
from ..policy import FoldBins
from ..tiling import Tiling
from .carries import carry_arguments, carry_slots, combine_carries
from .common import Rows, check_slots, checks, ids_step, only_checks
from .order import Order
from .segment_fold import SegmentFold

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def _shared_bytes(op: Op, descriptor: SegmentDescriptor, vector: int, lanes: int) -> int:
    scalar = BY_NAME[descriptor.monoid(op).kind or BY_NAME[descriptor.element].accumulator].itemsize
    threads = tuned(FoldBins()).threads_per_block
    counts = 4 * (threads // lanes) if descriptor.counted(op) else 0
    return ceil_div(descriptor.num_segments * (threads * vector * descriptor.monoid(op).width * scalar + counts), 16) * 16


def many(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why the states of all segments are not in shared memory."""
    if descriptor.num_inputs >= 1 << 31:
        return "counts rows in 32 bits"
    fits = _shared_bytes(op, descriptor, 1, min(32, max(descriptor.embedding_dim, 1))) <= tuned(FoldBins()).shared_bytes_per_block
    return None if fits else "is for fewer segments, whose states fit in shared memory"


def bins(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch leaves a carry for every segment and row block; another combines the carries of each segment, in order."""
    value, index, n, columns, segments = (
        descriptor.element, descriptor.index, descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments,
    )  # fmt: skip
    if not columns * segments:
        return only_checks(op, descriptor, layouts)
    fold = SegmentFold.of(op, descriptor, layouts, Order("segment_ids", index, ids_step(layouts), packed=False))
    rows, monoid, policy = Rows(descriptor, *fold.layouts), fold.monoid, tuned(FoldBins())
    shape = Tiling(n, columns, rows.vector, 1, policy.threads_per_block)
    while rows.vector > 1 and _shared_bytes(op, descriptor, rows.vector, shape.lanes) > policy.shared_bytes_per_block:
        rows.vector //= 2
        shape = replace(shape, vector=rows.vector)
    step = shape.groups * policy.items_per_thread
    wanted = max(1, ceil_div(target.multiprocessors * policy.grid_blocks_per_multiprocessor, shape.chunks))
    tile = min(max(1, ceil_div(ceil_div(n, wanted), step)) * step, policy.max_tile_rows)
    row_blocks, counted = max(1, ceil_div(n, tile)), descriptor.counted(op)
    spec = rows.spec("fold_bins", shape, 0, monoid=monoid.name, value=value, index=index, counted=counted, **constants(policy))
    arguments = {
        "input": "input", "ids": "segment_ids", **carry_arguments(True), "rows": n, "columns": columns, "segments": segments, "tile": tile,
        "row_blocks": row_blocks, "chunks": shape.chunks, "ids_step": ids_step(layouts),
        "input_row": rows.steps[0], "shape": rows.shape, "input_strides": rows.strides[0],
    }  # fmt: skip
    shared = _shared_bytes(op, descriptor, rows.vector, shape.lanes)
    fill = Launch(spec, (row_blocks * shape.chunks, policy.threads_per_block, shared), arguments)
    combine = combine_carries(descriptor, rows, fold, segments * row_blocks, target, counted)
    slots = (*check_slots(descriptor), *carry_slots(segments * row_blocks, columns * monoid.width, monoid.kind or BY_NAME[value].accumulator))
    return Recipe((*checks(op, descriptor, layouts), fill, combine), slots)
