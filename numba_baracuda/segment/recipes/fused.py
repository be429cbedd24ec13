"""Gradients of folds, and softmax, of short segments of ids in order, by one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...algebra import monoid_of
from ...algebra.gradients import Gradient
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Op, Slot, Step, Target
from ...core.policy import constants, tuned
from ...core.sizes import plain
from .. import policy_of
from ..policy import FoldAndBroadcast, FoldNarrow
from ..staged_tiling import staged_runs_bytes, staged_runs_columns, staged_runs_rows
from ..tiling import Tiling, half_reciprocal_of
from .common import Rows, is_flat, kernel_spec, taken
from .order import Order

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


LONG = Slot("long", "i32", 4)  #: whether there is a segment for which one launch of all would take too long


def _serves(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, order: Order, rows: Rows) -> bool:
    """Whether ids are in order, the fold is of rows that the gradient reads anyway, and what is read and stored is contiguous."""
    simple = not gradient.guarded and not gradient.uses_positions and set(gradient.over) <= set(gradient.rows)
    given = simple and descriptor.in_order(op) and order.step == 1 and is_flat(descriptor, gradient, layouts)
    return given and all(rows.is_contiguous(k) for k in range(len(rows.steps)))


def fold_and_broadcast(
    op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, order: Order, output: str
) -> list[Step]:  # fmt: skip
    """The launches that look for a long segment, which sets ``LONG``, and fold and store rows at once where there is none; no launches where these do
    not serve, or where rows are few or segments long in the mean.
    """
    plan, n, segments, columns = tuned(FoldAndBroadcast()), descriptor.num_inputs, descriptor.num_segments, descriptor.embedding_dim
    if n > plan.max_segment_rows * segments or n * descriptor.row_size < plan.min_bytes:
        return []
    read = Rows(descriptor, *[layouts[name] for name in [*gradient.rows, output]])
    if not _serves(op, descriptor, layouts, gradient, order, read):
        return []
    rows = Rows(descriptor, *[layouts[name] for name in [*gradient.rows, *gradient.segments, output]])
    spread = rows.spread(range(plan.columns_apart, 1, -1))
    rows, apart = spread or rows, spread is not None
    operands = [*gradient.rows, *[NULL] * (2 - len(gradient.rows)), *gradient.segments, *[NULL] * (2 - len(gradient.segments))]
    arguments: dict[str, Any] = {
        **dict(zip(("x", "w", "g", "y"), operands, strict=True)), "ids": order.ids, "guard": LONG.name, "output": output, "rows": n,
        "columns": columns, "segments": segments, "correction": taken(descriptor, monoid_of(gradient.fold)),
    }  # fmt: skip
    if rows.vector == 1 or columns < (plan.min_columns_apart if apart else plan.min_columns):
        return _staged(descriptor, target, gradient, order, arguments)
    if not apart:
        rows.vector = min(rows.vector, max(1, plan.vector_bytes // BY_NAME[descriptor.element].itemsize))
    shape = Tiling(n, columns, rows.vector, plan.tile_rows, plan.threads_per_block, plan.max_group_threads)
    blocks = max(1, plan.grid_blocks_per_multiprocessor * target.multiprocessors // shape.chunks)
    tile = max(1, min(plan.tile_rows, ceil_div(n, blocks * shape.groups)))
    spec = kernel_spec(
        "fold_and_broadcast_runs", plan.threads_per_block, gradient=gradient.name, value=descriptor.element, index=order.index, vector=rows.vector,
        lanes=shape.lanes, apart=apart, **constants(plan),
    )  # fmt: skip
    arguments |= {"tile": tile, "chunks": shape.chunks}
    launch = Launch(spec, (ceil_div(n, tile * shape.groups) * shape.chunks, plan.threads_per_block, 0), arguments)
    return [*_look(descriptor, order, plan.long_rows), launch]


def _look(descriptor: SegmentDescriptor, order: Order, span: int) -> list[Step]:
    """Sets ``LONG`` where an id has twice ``span`` rows, or fewer but more than ``span``."""
    n = descriptor.num_inputs
    arguments = {"ids": order.ids, "guard": LONG.name, "rows": n, "span": span, "ids_step": order.step}
    look = Launch(kernel_spec("find_long_run", index=order.index), Tiling.of_ids(ceil_div(n, span)).launch, arguments)
    return [Clear(LONG.name), look]


def _staged(descriptor: SegmentDescriptor, target: Target, gradient: Gradient, order: Order, arguments: dict[str, Any]) -> list[Step]:
    """The same launches for rows that are too narrow for groups, by way of shared memory; none for rows of which a lane has several at a time."""
    plan, value = policy_of.fold_and_broadcast_staged(target, descriptor.element, monoid_of(gradient.fold)), BY_NAME[descriptor.element]
    n = descriptor.num_inputs
    row_bytes, id_bytes, columns = plain(descriptor.row_size) * len(gradient.rows), BY_NAME[order.index].itemsize, plain(descriptor.embedding_dim)
    few = n < plan.min_segment_rows * descriptor.num_segments
    if few or not order.packed or descriptor.row_size <= tuned(FoldNarrow()).max_row_bytes or row_bytes > plan.max_row_bytes:
        return []
    tile, reach = staged_runs_rows(plan, row_bytes, id_bytes, value.itemsize)
    width, vector, apart = staged_runs_columns(plan, columns)
    spec = kernel_spec(
        "fold_and_broadcast_staged", plan.threads_per_block, plan.min_blocks_per_multiprocessor, gradient=gradient.name, value=value.name,
        index=order.index, vector=vector, apart=apart, **constants(plan),
    )  # fmt: skip
    arguments |= {"tile": tile, "reach": reach, "width": width, "reciprocal": half_reciprocal_of(width)}
    launch = Launch(spec, (ceil_div(n, tile), plan.threads_per_block, staged_runs_bytes(tile, reach, row_bytes, id_bytes)), arguments)
    return [*_look(descriptor, order, plan.long_rows), launch]
