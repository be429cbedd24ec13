"""Ids in order: as they are given, by an index, or by a sort."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Slot, Sort, Step, Target
from ...core.policy import tuned
from ...core.sizes import apply
from ..policy import PermutedRows
from ..tiling import Tiling
from .common import ids_step, kernel_spec, packed

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


@dataclass(frozen=True)
class Order:
    """Ids in order, the permutation that orders the rows, and the steps that make both."""

    ids: str
    index: str  #: type of the ids
    step: int  #: elements from one to the next
    packed: bool
    permutation: str = NULL  #: row r in order is row permutation[r] of the input
    row_index: str = ""  #: type of the permutation, if there is one
    steps: tuple[Step, ...] = ()
    slots: tuple[Slot, ...] = ()


def order_of(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """The ids of a problem in order. They are sorted where they are not in order and no index brings them."""
    key, row_index = descriptor.key_type, descriptor.row_index_type
    if descriptor.indexed == "sorted":
        return Order("sorted_ids", key, 1, packed(layouts["sorted_ids"]))
    if descriptor.indexed == "permuted":
        aligned = packed(layouts["sorted_ids"]) and packed(layouts["permutation"])
        return Order("sorted_ids", key, 1, aligned, "permutation", row_index)
    if not descriptor.bounded:
        return _by_first_row(op, descriptor, layouts, target)
    return as_given(descriptor, layouts) if descriptor.in_order(op) else _sorted(descriptor, layouts, target)


def _sorted(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """Ids and the indices of their rows, sorted by id."""
    rows, key, row_index = descriptor.num_inputs, descriptor.key_type, descriptor.row_index_type
    slots, steps = [*key_slots(descriptor), Slot("row_indices", row_index, rows), Slot("permutation", row_index, rows)], list[Step]()
    if rows:
        by_id = sort(descriptor, "row_indices", BY_NAME[row_index].itemsize, "permutation")
        slots.append(scratch_slot(by_id, target))
        steps += [keys(descriptor, layouts, row_index), by_id]
    return Order("sorted_ids", key, 1, True, "permutation", row_index, tuple(steps), tuple(slots))


def _by_first_row(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Order:
    """Ids in order, each replaced by the first row that has it, where the number of segments is not known: so there are fewer than rows."""
    order = as_given(descriptor, layouts) if descriptor.in_order(op) else _sorted(descriptor, layouts, target)
    rows, row_index = descriptor.num_inputs, descriptor.row_index_type
    spec = kernel_spec("first_rows", index=order.index, row_index=row_index)
    arguments = {"ids": order.ids, "firsts": "first_rows", "rows": rows, "limit": descriptor.limit, "ids_step": order.step}
    launch = Launch(spec, Tiling.of_ids(rows).launch, arguments)
    return replace(
        order,
        ids="first_rows",
        index=row_index,
        step=1,
        packed=True,
        steps=(*order.steps, launch),
        slots=(*order.slots, Slot("first_rows", row_index, rows)),
    )


def order_to_gather(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, order: Order, column_bytes: int) -> Order:
    """The order for a launch that gathers ``column_bytes`` of a segment for each element: ``order`` where that pays, or the ids as they are given.

    In order, rows are read and written at random, and those of segments once. As given, it is the other way round: cheap from the level 2 cache, or
    where rows are not whole lines of memory.
    """
    if order.permutation == NULL or not descriptor.bounded:
        return order
    policy = tuned(PermutedRows())
    cached = descriptor.num_segments * descriptor.embedding_dim * column_bytes <= int(policy.cache_share * target.l2_bytes)
    return as_given(descriptor, layouts) if cached or descriptor.row_size % policy.line_bytes else order


def as_given(descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> Order:
    """The ids as they are given."""
    return Order("segment_ids", descriptor.index, ids_step(layouts), packed(layouts["segment_ids"]))


def keys(descriptor: SegmentDescriptor, layouts: dict[str, Layout], row_index: str, ordered: bool = False, to: str = "keys") -> Launch:
    """Makes the keys of a sort, in ``to``, and, unless ``row_index`` is "", the indices of their rows; ``ordered`` ids stay in order."""
    index, key = descriptor.index, descriptor.key_type
    widest = max(BY_NAME[each].itemsize for each in (index, key, row_index or key))
    vector = 16 // widest if packed(layouts["segment_ids"]) else 1
    spec = kernel_spec("sort_keys", index=index, key=key, row_index=row_index, ordered=ordered, vector=vector)
    arguments = {
        "ids": "segment_ids", "keys": to, "row_indices": "row_indices" if row_index else NULL, "rows": descriptor.num_inputs,
        "segments": descriptor.limit, "ids_step": ids_step(layouts),
    }  # fmt: skip
    return Launch(spec, Tiling.of_ids(ceil_div(descriptor.num_inputs, vector)).launch, arguments)


def number_rows(descriptor: SegmentDescriptor) -> Launch:
    """Makes ``row_indices`` [rows]: the index of each row."""
    row_index, rows = descriptor.row_index_type, descriptor.num_inputs
    spec = kernel_spec("number_rows", row_index=row_index, vector=BY_NAME[row_index].vector)
    return Launch(spec, Tiling.of_ids(ceil_div(rows, BY_NAME[row_index].vector)).launch, {"row_indices": "row_indices", "rows": rows})


def key_slots(descriptor: SegmentDescriptor) -> tuple[Slot, Slot]:
    return Slot("keys", descriptor.key_type, descriptor.num_inputs), Slot("sorted_ids", descriptor.key_type, descriptor.num_inputs)


def sort(descriptor: SegmentDescriptor, values: str, value_size: int, sorted_values: str) -> Sort:
    """Sorts ``keys`` into ``sorted_ids``, and the values along with them, by the bits that the limit of ids has."""
    key_size, bits = BY_NAME[descriptor.key_type].itemsize, max(1, descriptor.limit.bit_length())
    return Sort("keys", "sorted_ids", values, sorted_values, key_size, value_size, descriptor.num_inputs, bits)


def scratch_slot(step: Sort, target: Target) -> Slot:
    """The scratch of a sort: the bytes that the library asks for on the target's device; 1 where there is no device, as nothing sorts there.

    The first question about a size of keys and values builds their sort, or reads it from disk. It comes when the recipe's kernels are compiled, and
    the sort is built beside them.
    """
    if target.ordinal < 0:
        return Slot(step.scratch, "u8", 1)

    def nbytes() -> int:
        from ...runtime import radix

        asked: int = apply(radix.sorter_of(step, target.ordinal).workspace, step.count, step.bits, step.first_bit)
        return asked

    return Slot(step.scratch, "u8", nbytes)
