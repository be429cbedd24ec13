"""The fold of rows partitioned by range of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Recipe, Slot, Sort, Step, Target
from ...core.policy import tuned
from .. import policy
from ..tiling import RANGE, RANGE_BITS, RANGE_TILE, RANGE_WORDS, SEARCHERS, THREADS, Tiling
from .common import Rows, check_slots, checks, ids_step, kernel_spec, packed, taken
from .fold import Fold, carry_arguments, carry_slots, join_carries, ragged
from .order import Order, key_slots, keys, number_rows, scratch_slot

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

#: the slots of what is known of each range, by the kernels' parameters
_SPLIT = {"begins": "range_begins", "parts": "range_parts", "split": "range_split", "owners": "part_owners"}


def _states_bytes(op: Op, descriptor: SegmentDescriptor) -> int:
    """Of a range's segments, in shared memory."""
    size = BY_NAME[BY_NAME[descriptor.element].accumulator].itemsize
    return descriptor.embedding_dim * descriptor.monoid(op).width * size * RANGE


def unfit(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why rows are not partitioned by range."""
    if descriptor.num_inputs >= 1 << 31:
        return "counts rows in 32 bits"
    fits = _states_bytes(op, descriptor) <= tuned(policy.FoldRanges()).max_state_bytes
    return None if fits else "is for narrow rows, of which the states of a range fit in shared memory"


def too_few(op: Op, descriptor: SegmentDescriptor) -> bool:
    """Whether there are too few rows, or they are too narrow or too wide, for what leaving bits out of the sort saves."""
    rows, segments, size, pays = descriptor.num_inputs, descriptor.num_segments, descriptor.row_size, tuned(policy.FoldRanges())
    if segments <= RANGE:
        return rows < pays.min_rows_one_range
    if rows < max(pays.min_rows, pays.min_rows_per_segment * segments) or size > pays.max_row_bytes or descriptor.monoid(op).heavy:
        return True
    return size < pays.min_row_bytes and (segments - 1).bit_length() > RANGE_BITS + pays.sort_pass_bits


def ranges(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Ids are sorted by range, their low bits left out, which takes fewer passes; blocks fold parts of ranges; carries join ranges of several parts.

    Of a single range nothing is sorted. Rows as narrow as places are sorted along with the ids.
    """
    n, columns, segments = descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments
    if not n * columns * segments:
        return ragged(op, descriptor, layouts, target)
    value, key, place, monoid = descriptor.element, descriptor.key_type, descriptor.place_type, descriptor.monoid(op)
    rows, count, single = Rows(descriptor, layouts["input"], layouts["output"]), ceil_div(segments, RANGE), segments <= RANGE
    moved = not single and descriptor.row_size in (2, 4, 8) and rows.side_by_side(0)
    dealt = tuned(policy.FoldRanges())
    blocks = max(count, target.multiprocessors * dealt.grid_blocks_per_multiprocessor)
    part = max(dealt.min_part_tiles, ceil_div(3 * n, 2 * blocks * RANGE_TILE)) * RANGE_TILE
    most = ceil_div(n, part) if single else count + n // part
    carries = (most * segments if most > 1 else 0) if single else 2 * (n // part) * RANGE  # most that parts of ranges leave that have several

    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots, carried = [*check_slots(descriptor)], NULL
    if single:
        order, split = Order("segment_ids", descriptor.index, ids_step(layouts), packed=False), dict.fromkeys(_SPLIT, NULL)
    else:
        order = Order("sorted_ids", key, 1, True) if moved else Order("sorted_ids", key, 1, True, "permutation", place)
        split, carried = _SPLIT, "carried"
        bits = (segments - 1).bit_length()
        made, room = _by_range(descriptor, layouts, target, moved, bits)
        bounding = {"ids": "sorted_ids", "begins": split["begins"], "rows": n, "ranges": count, "bits": RANGE_BITS, "top": bits}
        splitting = {**split, "carried": carried, "ranges": count, "segments": segments, "part": part}
        steps += [
            *made, Launch(kernel_spec("bound_ranges", key=key), Tiling.of_ids(SEARCHERS * (count + 1)).launch, bounding),
            Launch(kernel_spec("split_ranges"), Tiling.of_ids(count).launch, splitting),
        ]  # fmt: skip
        slots += [
            *room, Slot(split["begins"], "i32", count + 1), Slot(split["parts"], "i32", count + 1), Slot(split["split"], "i32", count),
            Slot(split["owners"], "i32", most), Slot(carried, "i32", 1),
        ]  # fmt: skip
    if carries:
        slots += carry_slots(carries, columns * monoid.width, BY_NAME[value].accumulator)
    source = ("moved", columns) if moved else ("input", rows.steps[0])
    steps.append(_fold(op, descriptor, rows, order, source, split, (count, part, most), carries > 0))
    if carries:
        fold = Fold(monoid, order, "input", "output", (layouts["input"], layouts["output"]), empty=descriptor.empty_value(op))
        steps.append(join_carries(descriptor, rows, fold, carries, target, blank=True, count=carried))
    return Recipe(tuple(steps), tuple(slots))


def _by_range(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, moved: bool, bits: int
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """Ids sorted by range, looking at their low ``bits`` bits, and along with them places or rows that are ``moved``: the steps and the slots.

    Ids outside lie wherever these bits put them, and the fold leaves them out. So ids that lie as the sort takes them are its keys.
    """
    n, place = descriptor.num_inputs, descriptor.place_type
    given = descriptor.index == descriptor.key_type and packed(layouts["segment_ids"])
    values, sorted_values, size = ("input", "moved", descriptor.row_size) if moved else ("places", "permutation", BY_NAME[place].itemsize)
    key_size = BY_NAME[descriptor.key_type].itemsize
    by_range = Sort("segment_ids" if given else "keys", "sorted_ids", values, sorted_values, key_size, size, n, bits, RANGE_BITS)
    room = [Slot("moved", descriptor.element, n * descriptor.embedding_dim)] if moved else [Slot("places", place, n), Slot("permutation", place, n)]
    room.append(scratch_slot(by_range, target))
    keys_slot, sorted_slot = key_slots(descriptor)
    if given:
        return [*([] if moved else [number_rows(descriptor)]), by_range], [sorted_slot, *room]
    return [keys(descriptor, layouts, "" if moved else place), by_range], [keys_slot, sorted_slot, *room]


def _fold(
    op: Op, descriptor: SegmentDescriptor, rows: Rows, order: Order, source: tuple[str, int], split: dict[str, str],
    extents: tuple[int, int, int], several: bool,
) -> Launch:  # fmt: skip
    """The launch of the fold. ``source`` is a name and the step of its rows; ``extents`` are ranges, rows of a part, and most parts."""
    value, monoid, columns = descriptor.element, descriptor.monoid(op), descriptor.embedding_dim
    state = BY_NAME[value].accumulator
    size = BY_NAME[state].itemsize
    shape = Tiling(descriptor.num_inputs, columns, rows.vector, 1, widest=tuned(policy.FoldRanges()).max_group_threads)
    spec = rows.spec(
        "fold_ranges", shape, policy.fold_ranges(size, shape.lanes).min_blocks_per_multiprocessor,
        monoid=monoid.name, value=value, index=order.index, placed=order.place != "", single=split["begins"] == NULL,
    )  # fmt: skip
    shared = 4 * RANGE_WORDS + _states_bytes(op, descriptor) + THREADS * rows.vector * monoid.width * size
    count, part, most = extents
    arguments = {
        "ids": order.ids, "places": order.permutation, "input": source[0], **split, "output": "output", **carry_arguments(several),
        "rows": descriptor.num_inputs, "columns": columns, "segments": descriptor.num_segments, "ranges": count, "part": part, "pieces": most,
        "empty": descriptor.empty_value(op), "correction": taken(descriptor, monoid), "ids_step": order.step,
        **rows.arguments(("input", "output")), "input_row": source[1],
    }  # fmt: skip
    return Launch(spec, (most, THREADS, shared), arguments)
