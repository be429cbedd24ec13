"""Gradients of sums and means: every row takes its segment's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...axes import ceil_div
from ...dtypes import BY_NAME
from ...op import NULL, Launch, Layout, Op, Recipe, Slot, Step, Target
from ..tiling import COPIES, FLAT_COLUMNS, SHORT_RUN, THREADS, elements_launch, flat_tile
from .common import Rows, check_slots, checks, count, ids_step, kernel_spec, only_checks, over_rows, packed, scratch
from .order import Order, order_of
from .scatter import finish
from .spread import WIDE

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def gather(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Each row takes its segment's gradient, divided by the segment's count where the op is a mean.

    Of ids in order the counts are measured by the way, unless runs are long or columns odd. Else they are counted first, and gradients divided
    beforehand if there are fewer segments, except wide rows along an index, whose counts are at hand.
    """
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not n * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    order, source = _order(op, descriptor, layouts), layouts["d_output"]
    rows = Rows(descriptor, source, layouts["d_input"])
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots, name, held = [*check_slots(descriptor)], "d_output", ""
    measured = False
    if op.traits["monoid"] == "mean" and segments:
        kernel, held = _kernel(descriptor, rows, order), descriptor.count_type
        measured = descriptor.in_order(op) and not descriptor.indexed and kernel != "gather_flat" and n <= SHORT_RUN * segments
        if not measured:
            more, room = count(op, descriptor, layouts)
            steps += more
            slots += room
            along = kernel == "gather_rows" and (order.ids == "sorted_ids" or descriptor.row_size >= WIDE)
            if segments <= n and not along:
                name, held, quotient = "quotient", "", scratch(descriptor, source)
                slots.append(Slot(name, descriptor.element, segments * descriptor.embedding_dim))
                steps.append(finish(op, descriptor, Rows(descriptor, source, quotient), ("d_output", descriptor.element), name, "", True))
                rows = Rows(descriptor, quotient, layouts["d_input"])
    pointers = (name, order.ids, order.permutation, "counts" if held and not measured else NULL, "d_input")
    steps.append(_copy(descriptor, rows, order, held, measured, pointers))
    return Recipe(tuple(steps), tuple(slots))


def _order(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> Order:
    """As the rows lie, or along the segments of wide rows where an index leads there."""
    if descriptor.indexed == "sorted" or (descriptor.indexed and descriptor.row_size >= WIDE):
        return order_of(op, descriptor, layouts)
    return Order("segment_ids", descriptor.index, ids_step(layouts), packed(layouts["segment_ids"]))


def _kernel(descriptor: SegmentDescriptor, rows: Rows, order: Order) -> str:
    """The gather that fits the layouts."""
    flat = not order.place and rows.vector < BY_NAME[descriptor.element].vector and rows.columns <= FLAT_COLUMNS
    if flat and rows.strides[0] == (1,) and rows.side_by_side(1):
        return "gather_elements" if rows.columns == 1 and order.packed else "gather_flat"
    return "gather_rows"


def _copy(descriptor: SegmentDescriptor, rows: Rows, order: Order, held: str, measured: bool, pointers: tuple[str, ...]) -> Launch:
    """The launch of the gather; ``held`` is the type of counts, if any are wanted."""
    value, index, kernel = BY_NAME[descriptor.element], BY_NAME[order.index], _kernel(descriptor, rows, order)
    n, segments, columns = descriptor.num_inputs, descriptor.num_segments, rows.columns
    constants: dict[str, Any] = {"value": value.name, "index": index.name, "count": held}
    types = f"*{value.name} *{index.name} *{held or 'i32'} *{value.name}"
    straight = (*pointers[:2], *pointers[3:])
    if kernel == "gather_elements":
        spec = kernel_spec(kernel, f"{types} i64 i64 i64", measured=measured, **constants)
        return Launch(spec, elements_launch(n, max(value.vector, index.vector)), straight, (n, segments, rows.steps[0]))
    if kernel == "gather_flat":
        tile = flat_tile(columns, value.vector)
        spec = kernel_spec(kernel, f"{types} i64 i64 i64 i64 i64 i64 i64", short=columns < value.vector, **constants)
        scalars = (n, columns, segments, tile, (1 << 32) // columns + 1, order.step, rows.steps[0])
        return Launch(spec, (ceil_div(n, tile), THREADS, 0), straight, scalars)
    types = f"*{value.name} *{index.name} *{order.place or 'i64'} *{held or 'i32'} *{value.name}"
    signature = f"{types} i64 i64 i64 i64 i64 i64 i64 {rows.tuples} {rows.tuples} {rows.tuples}"
    constants |= {"measured": measured, "place": order.place}
    return over_rows(kernel, rows, n, COPIES, signature, pointers, (segments, order.step), **constants)
