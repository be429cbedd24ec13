"""Gradients of folds, and softmax, of short segments of ids in order, by one launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...algebra import monoid_of
from ...algebra.gradients import Gradient
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Op, Slot, Step, Target
from ...core.policy import constants, tuned
from ...core.sizes import greatest, least, plain
from .. import policy_of
from ..policy import FoldAndBroadcast, FoldAndBroadcastStaged, FoldAndBroadcastWide
from ..staged_tiling import held_bytes, held_rows, staged_runs_bytes, staged_runs_columns, staged_runs_rows
from ..tiling import half_reciprocal_of, vector_for
from .common import Rows, is_flat, kernel_spec, taken
from .order import Order

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


LONG = Slot("long", "i32", 4)  #: whether there is a segment for which one launch of all would take too long


def _rows_of(gradient: Gradient) -> tuple[str, ...]:
    """The operands whose rows a block has: those of the gradient, or of its fold if the gradient uses positions instead."""
    return gradient.over if gradient.uses_positions else gradient.rows


def _serves(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, order: Order, rows: Rows) -> bool:
    """Whether ids are in order, the fold is of rows that the gradient reads, or of none that it does, and what is read and stored is contiguous."""
    simple = not gradient.guarded and set(gradient.over) <= set(_rows_of(gradient))
    given = simple and descriptor.in_order(op) and order.step == 1 and is_flat(descriptor, gradient, layouts, 1)
    return given and all(rows.is_contiguous(k) for k in range(len(rows.steps)))


def fold_and_broadcast(
    op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, order: Order, output: str
) -> list[Step]:  # fmt: skip
    """The launch that looks for a long segment, which sets ``LONG``, and folds and stores rows at once where there is none; no launch where it does
    not serve, or where rows are few or segments long in the mean.
    """
    n, segments, columns = descriptor.num_inputs, descriptor.num_segments, descriptor.embedding_dim
    if n * descriptor.row_size < tuned(FoldAndBroadcast()).min_bytes:
        return []
    read = _rows_of(gradient)
    if not _serves(op, descriptor, layouts, gradient, order, Rows(descriptor, *[layouts[name] for name in [*read, output]])):
        return []
    operands = [*read, *[NULL] * (2 - len(read)), *gradient.segments, *[NULL] * (2 - len(gradient.segments))]
    arguments: dict[str, Any] = {
        **dict(zip(("x", "w", "g", "y"), operands, strict=True)), "ids": order.ids, "guard": LONG.name, "output": output, "rows": n,
        "columns": columns, "segments": segments, "correction": taken(descriptor, monoid_of(gradient.fold)),
    }  # fmt: skip
    several = (_held, _staged) if _in_place(descriptor, gradient) else (_staged, _held)
    ways = (_in_registers, *(several if columns > 1 else ()))
    made = next(filter(None, (way(descriptor, target, gradient, order, arguments) for way in ways)), None)
    return [Clear(LONG.name, fresh=True), _looking(made[0], n, made[1], target)] if made else []


def _looking(launch: Launch, rows: int, span: int, target: Target) -> Launch:
    """The launch with blocks before its own that look for an id of twice ``span`` rows, or fewer but more than ``span``."""
    blocks, threads, shared = launch.config
    lookers = least(ceil_div(rows, span * threads), target.multiprocessors * tuned(FoldAndBroadcast()).grid_lookers_per_multiprocessor)
    return replace(launch, config=(blocks + lookers, threads, shared), arguments={**launch.arguments, "lookers": lookers, "span": span})


def _in_place(descriptor: SegmentDescriptor, gradient: Gradient) -> bool:
    """Whether rows are replaced in shared memory: where sums are about a pivot that is chosen, of halves, and of rows that are no vectors."""
    itemsize = BY_NAME[descriptor.element].itemsize
    odd = vector_for(itemsize, plain(descriptor.embedding_dim)) == 1
    return monoid_of(gradient.fold).choose_pivot is not None and itemsize <= 4 and (odd or itemsize == 2)


def _short_rows(gradient: Gradient) -> float:
    """Rows of each segment in the mean up to which blocks that have all rows of a tile are faster for vectors, too."""
    plan = tuned(FoldAndBroadcastStaged())
    return plan.pivoted_vectors_rows if monoid_of(gradient.fold).any_pivot else plan.vectors_rows


def _in_registers(
    descriptor: SegmentDescriptor, target: Target, gradient: Gradient, order: Order, arguments: dict[str, Any]
) -> tuple[Launch, int] | None:  # fmt: skip
    """The launch of rows of few bytes that threads have in registers, and half the rows that an id may have; None for others.

    A fold about a pivot that is chosen is for single elements of up to 4 bytes: it walks its rows twice.
    """
    value, monoid, columns, n = BY_NAME[descriptor.element], monoid_of(gradient.fold), plain(descriptor.embedding_dim), descriptor.num_inputs
    plan = policy_of.fold_and_broadcast_short(target, value.name, columns)
    share = plan.items_per_thread
    pivoted = monoid.choose_pivot is not None
    fits = columns == 1 and value.itemsize <= 4 if pivoted else monoid.width == 1 and columns <= plan.max_columns
    fits = fits and columns * value.itemsize <= plan.max_row_bytes and share * min(columns * value.itemsize, BY_NAME[order.index].itemsize) % 16 == 0
    if not (order.packed and fits) or n > (plan.max_pivoted_rows if pivoted else plan.max_segment_rows) * descriptor.num_segments:
        return None
    own = plan.threads_per_block * share - 2 * plan.long_rows
    tile = own * greatest(1, least(n // (own * plan.grid_blocks_per_multiprocessor * target.multiprocessors), plan.max_tile_steps))
    spec = kernel_spec(
        "fold_and_broadcast_short", plan.threads_per_block, plan.min_blocks_per_multiprocessor, gradient=gradient.settled or gradient.name,
        value=value.name, index=order.index, columns=columns, share=share, **constants(plan),
    )  # fmt: skip
    del arguments["columns"], arguments["correction"]
    arguments |= {"tile": tile, "halo": plan.long_rows}
    return Launch(spec, (ceil_div(n, tile), plan.threads_per_block, 0), arguments), plan.long_rows // 2


def _held(descriptor: SegmentDescriptor, target: Target, gradient: Gradient, order: Order, arguments: dict[str, Any]) -> tuple[Launch, int] | None:
    """The launch of a block that holds segments of rows that are vectors and not narrow, and the rows of which an id may have twice as many.

    None where segments are too long in the mean, or the gradient reads no rows.
    """
    value, columns, in_place = BY_NAME[descriptor.element], plain(descriptor.embedding_dim), _in_place(descriptor, gradient)
    unit, given = vector_for(value.itemsize, columns), 0 if in_place else len(gradient.given)
    plan = policy_of.fold_and_broadcast(target, descriptor.element, monoid_of(gradient.fold), in_place, unit == 1)
    row_bytes, given_bytes = plain(descriptor.row_size) * len(gradient.rows), columns * given * BY_NAME[value.accumulator].itemsize
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not gradient.rows or row_bytes <= plan.narrow_row_bytes or (unit == 1 and (not in_place or n < plan.min_odd_segment_rows * segments)):
        return None
    # a lane has the number of heads of 32 rows, so that there are 1024 rows at most
    each = 2 if in_place and plan.threads_per_block <= 512 and plan.held_bytes >= row_bytes * plan.threads_per_block else 1
    tile, room, most = held_rows(plan, row_bytes, given_bytes, n, segments, each * plan.threads_per_block - 1)
    if not room:
        return None
    tile *= greatest(1, n // (tile * plan.grid_blocks_per_multiprocessor * target.multiprocessors))
    # of rows that are no vectors a lane has two columns, which are ``width`` apart
    vector = 2 if unit == 1 else min(unit, max(1, plan.vector_bytes // value.itemsize))
    spec = kernel_spec(
        "fold_and_broadcast_runs", plan.threads_per_block, plan.min_blocks_per_multiprocessor, gradient=gradient.name, value=value.name,
        index=order.index, vector=vector, unit=unit, in_place=in_place, rows_per_thread=each,
        **{"items_per_thread": plan.items_per_thread} | constants(plan),
    )  # fmt: skip
    width = ceil_div(columns, vector)
    arguments |= {
        "tile": tile, "room": room, "most": most, "width": width, "reciprocal": half_reciprocal_of(width),
        "row_reciprocal": half_reciprocal_of(columns),
    }  # fmt: skip
    config = ceil_div(n, tile), plan.threads_per_block, held_bytes(room, row_bytes, len(gradient.rows), most, given_bytes)
    return Launch(spec, config, arguments), max(room, plan.long_bytes // row_bytes)


def _staged(descriptor: SegmentDescriptor, target: Target, gradient: Gradient, order: Order, arguments: dict[str, Any]) -> tuple[Launch, int] | None:
    """The same of a block that has all rows of a tile; None where segments are long in the mean.

    Rows are narrow, or not too wide and no vectors, or of short segments, or such that their positions are stored.
    """
    value, n, segments, columns = BY_NAME[descriptor.element], descriptor.num_inputs, descriptor.num_segments, plain(descriptor.embedding_dim)
    operands = len(_rows_of(gradient))
    row_bytes, id_bytes = plain(descriptor.row_size) * operands, BY_NAME[order.index].itemsize
    any_row = gradient.uses_positions or vector_for(value.itemsize, columns) == 1 or n <= _short_rows(gradient) * segments
    wide = any_row and row_bytes > tuned(FoldAndBroadcastStaged()).odd_row_bytes
    plan = policy_of.fold_and_broadcast_staged(target, value.name, monoid_of(gradient.fold), wide)
    narrowest = plan.min_position_bytes if gradient.uses_positions else plan.min_row_bytes * operands
    if not order.packed or row_bytes < narrowest or n < plan.min_segment_rows * segments or n > plan.max_segment_rows * segments:
        return None
    if row_bytes > plan.max_row_bytes and (wide or not any_row):
        return None
    if isinstance(plan, FoldAndBroadcastWide) and n <= plan.short_segment_rows * segments:
        plan = replace(plan, long_rows=plan.long_rows // 2)
    tile, reach = staged_runs_rows(plan, row_bytes, id_bytes, value.itemsize)
    width, vector, apart = staged_runs_columns(plan, columns)
    if not tile or n * plan.min_lanes > segments * tile * width:
        return None
    spec = kernel_spec(
        "fold_and_broadcast_staged", plan.threads_per_block, plan.min_blocks_per_multiprocessor, gradient=gradient.name, value=value.name,
        index=order.index, vector=vector, apart=apart, **constants(plan),
    )  # fmt: skip
    arguments |= {"tile": tile, "reach": reach, "width": width, "reciprocal": half_reciprocal_of(width)}
    config = ceil_div(n, tile), plan.threads_per_block, staged_runs_bytes(tile, reach, row_bytes, id_bytes)
    return Launch(spec, config, arguments), plan.long_rows
