"""Ids in order: as they are given, by an index, or by a sort."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Slot, Sort, Step, Target
from ...core.sizes import apply
from ..tiling import Tiling
from .common import ids_step, kernel_spec, packed

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


@dataclass(frozen=True)
class Order:
    """Ids in order, how their rows are found, and the steps that make both."""

    ids: str
    index: str  #: type of the ids
    step: int  #: elements from one to the next
    packed: bool
    permutation: str = NULL  #: row r in order is row permutation[r] of the input
    place: str = ""  #: type of the permutation, if there is one
    steps: tuple[Step, ...] = ()
    slots: tuple[Slot, ...] = ()


def order_of(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """The ids of a problem in order, sorted if nothing better is at hand."""
    key, place = descriptor.key_type, descriptor.place_type
    if descriptor.indexed == "sorted":
        return Order("sorted_ids", key, 1, packed(layouts["sorted_ids"]))
    if descriptor.indexed == "permuted":
        aligned = packed(layouts["sorted_ids"]) and packed(layouts["permutation"])
        return Order("sorted_ids", key, 1, aligned, "permutation", place)
    if not descriptor.bounded:
        return _by_first_row(op, descriptor, layouts, target)
    return as_given(descriptor, layouts) if descriptor.in_order(op) else _sorted(descriptor, layouts, target)


def _sorted(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """The ids and the places of their rows, put in order by a sort."""
    rows, key, place = descriptor.num_inputs, descriptor.key_type, descriptor.place_type
    slots, steps = [*key_slots(descriptor), Slot("places", place, rows), Slot("permutation", place, rows)], list[Step]()
    if rows:
        by_id = sort(descriptor, "places", BY_NAME[place].itemsize, "permutation")
        slots.append(scratch_slot(by_id, target))
        steps += [keys(descriptor, layouts, place), by_id]
    return Order("sorted_ids", key, 1, True, "permutation", place, tuple(steps), tuple(slots))


def _by_first_row(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """Segments numbered by the first of their rows in order, where nobody knows how many ids there may be: fewer than rows."""
    order = as_given(descriptor, layouts) if descriptor.in_order(op) else _sorted(descriptor, layouts, target)
    rows, place = descriptor.num_inputs, descriptor.place_type
    spec = kernel_spec("first_rows", index=order.index, place=place)
    arguments = {"ids": order.ids, "firsts": "first_rows", "rows": rows, "limit": descriptor.limit, "ids_step": order.step}
    launch = Launch(spec, Tiling.of_ids(rows).launch, arguments)
    return replace(
        order, ids="first_rows", index=place, step=1, packed=True, steps=(*order.steps, launch), slots=(*order.slots, Slot("first_rows", place, rows))
    )


def as_given(descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> Order:
    """The ids as they are given."""
    return Order("segment_ids", descriptor.index, ids_step(layouts), packed(layouts["segment_ids"]))


def keys(descriptor: SegmentDescriptor, layouts: dict[str, Layout], place: str, ordered: bool = False, to: str = "keys") -> Launch:
    """Ids as keys of a sort, in ``to``, and unless ``place`` is "" the rows' places, ``places``; ``ordered`` ids stay so."""
    index, key = descriptor.index, descriptor.key_type
    widest = max(BY_NAME[each].itemsize for each in (index, key, place or key))
    vector = 16 // widest if packed(layouts["segment_ids"]) else 1
    spec = kernel_spec("sort_keys", index=index, key=key, place=place, ordered=ordered, vector=vector)
    arguments = {
        "ids": "segment_ids", "keys": to, "places": "places" if place else NULL, "rows": descriptor.num_inputs, "segments": descriptor.limit,
        "ids_step": ids_step(layouts),
    }  # fmt: skip
    return Launch(spec, Tiling.of_ids(ceil_div(descriptor.num_inputs, vector)).launch, arguments)


def number_rows(descriptor: SegmentDescriptor) -> Launch:
    """Makes ``places``: every row's own."""
    place, rows = descriptor.place_type, descriptor.num_inputs
    spec = kernel_spec("number_rows", place=place, vector=BY_NAME[place].vector)
    return Launch(spec, Tiling.of_ids(ceil_div(rows, BY_NAME[place].vector)).launch, {"places": "places", "rows": rows})


def key_slots(descriptor: SegmentDescriptor) -> tuple[Slot, Slot]:
    return Slot("keys", descriptor.key_type, descriptor.num_inputs), Slot("sorted_ids", descriptor.key_type, descriptor.num_inputs)


def sort(descriptor: SegmentDescriptor, values: str, value_size: int, sorted_values: str) -> Sort:
    """Sorts ``keys`` into ``sorted_ids``, and the values along with them.

    Keys need only the bits of the limit of ids, which is the greatest.
    """
    key_size, bits = BY_NAME[descriptor.key_type].itemsize, max(1, descriptor.limit.bit_length())
    return Sort("keys", "sorted_ids", values, sorted_values, key_size, value_size, descriptor.num_inputs, bits)


def scratch_slot(step: Sort, target: Target) -> Slot:
    """What a sort works in: the bytes that the library asks for on the target's device, or one where none is, since no library sorts there.

    The first question about a size of keys and values builds their sort, or reads it from disk.
    """
    if target.ordinal < 0:
        return Slot(step.scratch, "u8", 1)
    from ...runtime import radix

    return Slot(step.scratch, "u8", apply(radix.sorter_of(step, target.ordinal).workspace, step.count, step.bits, step.first_bit))
