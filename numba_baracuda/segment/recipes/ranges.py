"""The fold of rows that are partitioned by range of ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Recipe, Slot, Sort, Step, Target
from ...core.policy import tuned
from .. import policy, policy_of
from ..pairing import unpairable
from ..tiling import RANGE, RANGE_BITS, RANGE_TILE, RANGE_WORDS, SEARCHERS, THREADS, Tiling
from .carries import carry_arguments, carry_slots, combine_carries
from .common import Rows, check_slots, checks, ids_step, kernel_spec, packed, taken
from .fold import ragged
from .order import Order, key_slots, keys, number_rows, scratch_slot
from .segment_fold import SegmentFold

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

#: the slots that describe ranges and their splits, by the kernels' parameters
_RANGE_SPLITS = {"begins": "range_begins", "split_offsets": "split_offsets", "carry_offsets": "carry_offsets", "range_of_split": "range_of_split"}


def _states_bytes(op: Op, descriptor: SegmentDescriptor) -> int:
    """Bytes of shared memory for the states of a range's segments."""
    size = BY_NAME[BY_NAME[descriptor.element].accumulator].itemsize
    return descriptor.embedding_dim * descriptor.monoid(op).width * size * RANGE


def unfit(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why rows are not partitioned by range."""
    if descriptor.num_inputs >= 1 << 31:
        return "counts rows in 32 bits"
    fits = _states_bytes(op, descriptor) <= tuned(policy.FoldRanges()).max_state_bytes
    return None if fits else "is for narrow rows, of which the states of a range fit in shared memory"


def ranges(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A sort of ids by range, which leaves their low bits out and so takes fewer passes; the fold of each split; the carries of ranges of several
    splits.

    A single range is not sorted. Rows as narrow as row indices are sorted along with the ids.
    """
    n, columns, segments = descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments
    if not n * columns * segments:
        return ragged(op, descriptor, layouts, target)
    value, key, row_index = descriptor.element, descriptor.key_type, descriptor.row_index_type
    fold = SegmentFold.of(op, descriptor, layouts, Order("segment_ids", descriptor.index, ids_step(layouts), packed=False))
    rows, count, single = Rows(descriptor, *fold.layouts), ceil_div(segments, RANGE), segments <= RANGE
    pairs = not single and unpairable(op, descriptor) is None and rows.is_contiguous(0)
    plan = tuned(policy.FoldRanges())
    blocks = max(count, target.multiprocessors * plan.grid_blocks_per_multiprocessor)
    split_rows = max(plan.min_part_tiles, ceil_div(3 * n, 2 * blocks * RANGE_TILE)) * RANGE_TILE
    most = ceil_div(n, split_rows) if single else count + n // split_rows
    carries = (most * segments if most > 1 else 0) if single else 2 * (n // split_rows) * RANGE  # at most, of ranges of several splits

    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots, carry_count = [*check_slots(descriptor)], NULL
    if single:
        order, range_splits = fold.order, dict.fromkeys(_RANGE_SPLITS, NULL)
    else:
        order = Order("sorted_ids", key, 1, True) if pairs else Order("sorted_ids", key, 1, True, "permutation", row_index)
        range_splits, carry_count = _RANGE_SPLITS, "carry_count"
        bits = (segments - 1).bit_length()
        made, room = _by_range(descriptor, layouts, target, pairs, bits)
        bounding = {"ids": "sorted_ids", "begins": range_splits["begins"], "rows": n, "ranges": count, "bits": RANGE_BITS, "top": bits}
        splitting = {**range_splits, "carry_count": carry_count, "ranges": count, "segments": segments, "split_rows": split_rows}
        steps += [
            *made, Launch(kernel_spec("bound_ranges", key=key), Tiling.of_ids(SEARCHERS * (count + 1)).launch, bounding),
            Launch(kernel_spec("split_ranges"), Tiling.of_ids(count).launch, splitting),
        ]  # fmt: skip
        slots += [
            *room, Slot(range_splits["begins"], "i32", count + 1), Slot(range_splits["split_offsets"], "i32", count + 1),
            Slot(range_splits["carry_offsets"], "i32", count), Slot(range_splits["range_of_split"], "i32", most), Slot(carry_count, "i32", 1),
        ]  # fmt: skip
    if carries:
        slots += carry_slots(carries, columns * fold.monoid.width, BY_NAME[value].accumulator)
    source = ("sorted_rows", columns) if pairs else ("input", rows.steps[0])
    steps.append(_fold(op, descriptor, rows, replace(fold, order=order), source, range_splits, (count, split_rows, most), carries > 0))
    if carries:
        steps.append(combine_carries(descriptor, rows, fold, carries, target, blank=True, count=carry_count))
    return Recipe(tuple(steps), tuple(slots))


def _by_range(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, pairs: bool, bits: int
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The steps that sort ids by range, by their low ``bits`` bits, with row indices, or rows where these are ``pairs``; and their slots.

    Ids out of range lie wherever these bits put them, and the fold drops them. So ids that the sort can take as they are need no keys of their own.
    """
    n, row_index = descriptor.num_inputs, descriptor.row_index_type
    given = descriptor.index == descriptor.key_type and packed(layouts["segment_ids"])
    values, sorted_values, size = (
        ("input", "sorted_rows", descriptor.row_size) if pairs else ("row_indices", "permutation", BY_NAME[row_index].itemsize)
    )
    key_size = BY_NAME[descriptor.key_type].itemsize
    by_range = Sort("segment_ids" if given else "keys", "sorted_ids", values, sorted_values, key_size, size, n, bits, RANGE_BITS)
    room = (
        [Slot("sorted_rows", descriptor.element, n * descriptor.embedding_dim)]
        if pairs
        else [Slot("row_indices", row_index, n), Slot("permutation", row_index, n)]
    )
    room.append(scratch_slot(by_range, target))
    keys_slot, sorted_slot = key_slots(descriptor)
    if given:
        return [*([] if pairs else [number_rows(descriptor)]), by_range], [sorted_slot, *room]
    return [keys(descriptor, layouts, "" if pairs else row_index), by_range], [keys_slot, sorted_slot, *room]


def _fold(
    op: Op, descriptor: SegmentDescriptor, rows: Rows, fold: SegmentFold, source: tuple[str, int], range_splits: dict[str, str],
    extents: tuple[int, int, int], several: bool,
) -> Launch:  # fmt: skip
    """The launch of the fold. ``source``: a name, and elements from one row to the next; ``extents``: ranges, rows of a split, and most splits."""
    value, order, monoid, columns = descriptor.element, fold.order, fold.monoid, descriptor.embedding_dim
    state = BY_NAME[value].accumulator
    size = BY_NAME[state].itemsize
    shape = Tiling(descriptor.num_inputs, columns, rows.vector, 1, widest=tuned(policy.FoldRanges()).max_group_threads)
    spec = rows.spec(
        "fold_ranges", shape, policy_of.fold_ranges(value, rows.vector, shape.lanes, monoid).min_blocks_per_multiprocessor,
        monoid=monoid.name, value=value, result=fold.result, index=order.index, permuted=order.row_index != "", single=range_splits["begins"] == NULL,
    )  # fmt: skip
    shared = 4 * RANGE_WORDS + _states_bytes(op, descriptor) + THREADS * rows.vector * monoid.width * size
    count, split_rows, most = extents
    arguments = {
        "ids": order.ids, "permutation": order.permutation, "input": source[0], **range_splits, "output": "output", **carry_arguments(several),
        "rows": descriptor.num_inputs, "columns": columns, "segments": descriptor.num_segments, "ranges": count, "split_rows": split_rows,
        "splits": most, "empty": fold.empty, "correction": taken(descriptor, monoid), "ids_step": order.step,
        **rows.arguments(("input", "output")), "input_row": source[1],
    }  # fmt: skip
    return Launch(spec, (most, THREADS, shared), arguments)
