"""Gradients of sums and means: every row takes its segment's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtypes import BY_NAME
from ...op import NULL, Launch, Layout, Op, Recipe, Slot, Step, Target
from ..tiling import COPIES, FLAT_COLUMNS, THREADS, ceil_div, elements_launch, flat_tile
from .common import Rows, check_slots, checks, count, ids_step, kernel_spec, only_checks, over_rows, packed

if TYPE_CHECKING:
    from ..family import SegmentDescriptor


def gather(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Each row takes its segment's gradient, divided by the segment's count where the op is a mean."""
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not n * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    rows = Rows(descriptor, layouts["d_output"], layouts["d_input"])
    held = descriptor.count_type if op.traits["counts"] else ""
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots = list(check_slots(descriptor))
    counted = held and segments
    if counted:
        slots.append(Slot("counts", held, segments))
        steps += count(descriptor, layouts)
    steps.append(_copy(descriptor, layouts, rows, held, ("d_output", "segment_ids", "counts" if counted else NULL, "d_input")))
    return Recipe(tuple(steps), tuple(slots))


def _copy(descriptor: SegmentDescriptor, layouts: dict[str, Layout], rows: Rows, held: str, pointers: tuple[str, ...]) -> Launch:
    """The launch of the gather that fits the layouts."""
    value, index = BY_NAME[descriptor.element], BY_NAME[descriptor.index]
    n, segments, columns = descriptor.num_inputs, descriptor.num_segments, rows.columns
    constants: dict[str, Any] = {"value": value.name, "index": index.name, "count": held}
    types = f"*{value.name} *{index.name} *{held or 'i32'} *{value.name}"
    flat = rows.vector < value.vector and columns <= FLAT_COLUMNS and rows.strides[0] == (1,) and rows.side_by_side(1)
    if flat and columns == 1 and packed(layouts["segment_ids"]):
        spec = kernel_spec("gather_elements", f"{types} i64 i64 i64", **constants)
        return Launch(spec, elements_launch(n, max(value.vector, index.vector)), pointers, (n, segments, rows.steps[0]))
    if flat:
        tile = flat_tile(columns, value.vector)
        spec = kernel_spec("gather_flat", f"{types} i64 i64 i64 i64 i64 i64 i64", short=columns < value.vector, **constants)
        scalars = (n, columns, segments, tile, (1 << 32) // columns + 1, ids_step(layouts), rows.steps[0])
        return Launch(spec, (ceil_div(n, tile), THREADS, 0), pointers, scalars)
    signature = f"{types} i64 i64 i64 i64 i64 i64 i64 {rows.tuples} {rows.tuples} {rows.tuples}"
    return over_rows("gather_rows", rows, n, COPIES, signature, pointers, (segments, ids_step(layouts)), **constants)
