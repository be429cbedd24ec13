"""The ragged fold: tiles of rows, then the runs that cross them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtypes import BY_NAME
from ...op import NULL, Launch, Layout, Op, Recipe, Slot, Sort, Step, Target
from ..tiling import Tiling, share_for, vector_for
from .common import Rows, check_slots, checks, ids_step, kernel_spec, only_checks, packed

if TYPE_CHECKING:
    from ..family import SegmentDescriptor


def _tiles_blocks(descriptor: SegmentDescriptor, rows: Rows, finishes: bool, permuted: bool, target: Target) -> int:
    """Resident blocks that the registers leave room for without a spill; what is known of sm_90 is scaled down for the other architectures."""
    if rows.dims > 1:
        return 4
    wide = descriptor.element == "f64"
    if rows.vector * BY_NAME[descriptor.element].itemsize == 16:
        return 4 if finishes or (wide and permuted) else 5
    return 8 - wide - finishes - 2 * permuted - (target.capability[0] != 9)


def _narrow_blocks(descriptor: SegmentDescriptor, finishes: bool, target: Target) -> int:
    """The same for narrow rows."""
    size = descriptor.embedding_dim * BY_NAME[descriptor.element].itemsize
    return 8 - (size > 8) - (size > 12) - (finishes and size > 4) - (descriptor.index == "i64") - (target.capability[0] != 9)


def _fold(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, permuted: bool) -> Recipe:
    if not descriptor.embedding_dim * descriptor.num_segments:
        return only_checks(op, descriptor, layouts)
    rows = Rows(descriptor, layouts["input"], layouts["output"])
    value, n, columns, segments = descriptor.element, descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments
    state, monoid, ids = BY_NAME[value].accumulator, op.traits["monoid"], layouts["segment_ids"]
    narrow = not permuted and packed(ids) and rows.side_by_side(0) and rows.strides[1] == (1,)
    share = share_for(columns * BY_NAME[value].itemsize) if narrow else 0
    tiling = Tiling.of_narrow(n, share, target.multiprocessors) if share else Tiling.of(n, columns, rows.vector, target.multiprocessors)
    carries = ("carry_ids", "carry_counts", "carry_states") if tiling.row_blocks > 1 else (NULL,) * 3
    if share:
        fold = _narrow(op, descriptor, target, rows, tiling, share, carries)
    else:
        fold = _tiles(op, descriptor, layouts, target, rows, tiling, permuted, carries)
    steps: list[Step] = [*checks(op, descriptor, layouts), *([Sort("segment_ids")] if permuted else []), fold]
    slots = list(check_slots(descriptor))
    if tiling.row_blocks > 1:
        entries = tiling.entries
        joins = Tiling.of_carries(entries, columns, rows.vector)
        slots += [
            Slot("carry_ids", "i64", entries),
            Slot("carry_counts", "i64", entries),
            Slot("carry_states", state, entries * columns * monoid.width),
        ]
        steps.append(
            Launch(
                rows.spec(
                    "fold_carries", f"*i64 *i64 *{state} *{value} i64 i64 i64 i64 i64 {rows.tuples} {rows.tuples}", joins, 1,
                    monoid=monoid.name, value=value,
                ),
                joins.launch,
                (*carries, "output"),
                (entries, columns, segments, joins.chunks, rows.steps[1], rows.shape, rows.strides[1]),
            )
        )  # fmt: skip
    return Recipe(tuple(steps), tuple(slots))


def _tiles(
    op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, rows: Rows, tiling: Tiling, permuted: bool,
    carries: tuple[str, ...],
) -> Launch:  # fmt: skip
    """Lanes share out the columns."""
    value, index, monoid = descriptor.element, descriptor.index, op.traits["monoid"]
    state = BY_NAME[value].accumulator
    signature = (
        f"*{value} *{index} *i64 *{value} *i64 *i64 *{state} i64 i64 i64 i64 i64 i64 {state} i64 i64 i64 {rows.tuples} {rows.tuples} {rows.tuples}"
    )
    spec = rows.spec(
        "fold_tiles", signature, tiling, _tiles_blocks(descriptor, rows, monoid.finishes, permuted, target),
        monoid=monoid.name, value=value, index=index, packed=permuted or packed(layouts["segment_ids"]), permuted=permuted,
    )  # fmt: skip
    pointers = ("input", "sorted_ids" if permuted else "segment_ids", "permutation" if permuted else NULL, "output", *carries)
    extents = (descriptor.num_inputs, rows.columns, descriptor.num_segments, tiling.tile, tiling.row_blocks, tiling.chunks)
    steps = (1 if permuted else ids_step(layouts), *rows.steps, rows.shape, *rows.strides)
    return Launch(spec, tiling.fold_launch(descriptor.num_segments), pointers, (*extents, descriptor.empty_value(op), *steps))


def _narrow(op: Op, descriptor: SegmentDescriptor, target: Target, rows: Rows, tiling: Tiling, share: int, carries: tuple[str, ...]) -> Launch:
    """Lanes share out the rows."""
    value, index, monoid = descriptor.element, descriptor.index, op.traits["monoid"]
    state = BY_NAME[value].accumulator
    access = vector_for(BY_NAME[value].itemsize, rows.columns, (rows.addresses[1], (rows.steps[1], 1)))
    signature = f"*{value} *{index} *{value} *i64 *i64 *{state} i64 i64 i64 i64 {state} i64"
    spec = kernel_spec(
        "fold_narrow", signature, tiling.threads, _narrow_blocks(descriptor, monoid.finishes, target),
        monoid=monoid.name, value=value, index=index, columns=rows.columns, share=share, access=access,
    )  # fmt: skip
    extents = (descriptor.num_inputs, descriptor.num_segments, tiling.tile, tiling.row_blocks)
    pointers = ("input", "segment_ids", "output", *carries)
    return Launch(spec, tiling.fold_launch(descriptor.num_segments), pointers, (*extents, descriptor.empty_value(op), rows.steps[1]))


def fold_sorted(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The ragged fold over ids in order."""
    return _fold(op, descriptor, layouts, target, permuted=False)


def fold_permuted(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Sorts the ids, then the ragged fold through the permutation."""
    return _fold(op, descriptor, layouts, target, permuted=True)
