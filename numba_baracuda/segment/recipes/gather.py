"""Gradients of sums and means: every row takes its segment's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...algebra.gradients import GRADIENTS
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target, fresh_first
from ...core.policy import constants, tuned
from ..flat_tiling import flat_height, flat_lanes, flat_tile
from ..policy import BroadcastFlat, GatherFlat, GatherMeans, GatherRows, GatherRuns
from ..tiling import MEANS_LENGTHS, means_launch
from .broadcast import flat_broadcast
from .common import Rows, check_slots, checks, elements, is_flat, kernel_spec, only_checks, over_rows, scratch
from .counts import count
from .order import Order, as_given, order_of, order_to_gather
from .scatter import finish

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


LENGTHS = Slot("lengths", "i64", 2 * MEANS_LENGTHS)  #: of long runs, with their ids


def gather(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Each row gets its segment's gradient, divided by the segment's count where the op is a mean.

    A launch before the gather divides once for each segment; where ids are in order, the gather does, once for each run; where there are more
    segments than rows, once for each row. Where rows are single elements and runs short, one launch counts, divides and copies.
    """
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not n * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    source, count_type = layouts["d_output"], ""
    order = order_of(op, descriptor, layouts, target) if descriptor.indexed else as_given(descriptor, layouts)
    order = order_to_gather(descriptor, layouts, target, order, BY_NAME[descriptor.element].itemsize)
    along = order.row_index != "" or descriptor.in_order(op)
    rows = Rows(descriptor, source, layouts["d_input"])
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots, name, counts = [*check_slots(descriptor)], "d_output", NULL
    if op.traits["monoid"] == "mean" and segments and along and "counts" not in layouts and _are_single(descriptor, rows, order):
        return fresh_first([*steps, Clear(LENGTHS.name, fresh=True), _means(descriptor, rows, order)], [*slots, LENGTHS])
    if op.traits["monoid"] == "mean" and segments:
        counted, more, room = count(op, descriptor, layouts, target)
        steps += more
        slots += room
        quotient = scratch(descriptor, source)
        divided = Rows(descriptor, quotient, layouts["d_input"])
        late = _is_flat(descriptor, rows, order, along) and _divides_late(descriptor, rows, order, along)
        if late or segments > n or (not _is_flat(descriptor, divided, order, along) and _in_runs(descriptor, order, along)):
            count_type, counts = descriptor.count_type, counted
        else:
            name, rows = "quotient", divided
            slots.append(Slot(name, descriptor.element, segments * descriptor.embedding_dim))
            steps.append(finish(op, descriptor, Rows(descriptor, source, quotient), ("d_output", descriptor.element), name, "", counted))
    steps.append(_copy(descriptor, rows, order, along, count_type, {"source": name, "ids": order.ids, "counts": counts, "output": "d_input"}, target))
    return fresh_first(steps, slots)


def _are_single(descriptor: SegmentDescriptor, rows: Rows, order: Order) -> bool:
    """Whether rows are single elements that are contiguous, as are their ids, and segments short."""
    short = descriptor.num_inputs <= tuned(GatherMeans()).max_segment_rows * descriptor.num_segments
    return short and rows.columns == 1 and not order.row_index and order.packed and rows.is_contiguous(1)


def _means(descriptor: SegmentDescriptor, rows: Rows, order: Order) -> Launch:
    """The launch that counts and divides as it copies single elements, whose ids are in order."""
    means, n = tuned(GatherMeans()), descriptor.num_inputs
    threads, index, count_type = means.threads_per_block, order.index, descriptor.count_type
    arguments = {
        "source": "d_output", "ids": order.ids, "output": "d_input", "lengths": LENGTHS.name, "rows": n, "segments": descriptor.num_segments,
        "source_row": rows.steps[0],
    }  # fmt: skip
    spec = kernel_spec("gather_means", threads, value=descriptor.element, index=index, count=count_type, **constants(means))
    return Launch(spec, means_launch(n, threads, means.items_per_thread), arguments)


def _is_flat(descriptor: SegmentDescriptor, rows: Rows, order: Order, along: bool) -> bool:
    """Whether blocks store the output in pieces of 16 bytes: its rows are contiguous, and no multiple of 16 bytes."""
    flat = tuned(GatherFlat())
    narrow = rows.vector < BY_NAME[descriptor.element].vector and rows.columns <= flat.max_columns
    narrow = narrow and (along or rows.columns == 1 or descriptor.row_size >= flat.min_random_bytes)
    return not order.row_index and narrow and rows.strides[0] == (1,) and rows.is_contiguous(1)


def _copies_flat(descriptor: SegmentDescriptor, rows: Rows, order: Order, along: bool) -> bool:
    """Whether rows that are flat are copied by the flat broadcast: ids are in order, and segments' rows contiguous, too."""
    return along and order.step == 1 and rows.is_contiguous(0) and is_flat(descriptor, GRADIENTS["sum"], {})


def _divides_late(descriptor: SegmentDescriptor, rows: Rows, order: Order, along: bool) -> bool:
    """Whether the flat broadcast divides rows that are flat as it copies them, as where segments are short in the mean."""
    flat, halves = tuned(BroadcastFlat()), BY_NAME[descriptor.element].itemsize == 2
    short = descriptor.num_inputs <= (flat.max_divided_halves_rows if halves else flat.max_divided_rows) * descriptor.num_segments
    return descriptor.count_type == "i32" and short and _copies_flat(descriptor, rows, order, along)


def _in_runs(descriptor: SegmentDescriptor, order: Order, along: bool) -> bool:
    """Whether a lane takes neighbouring rows: ids are in order, and rows are permuted or wide, so that stores of a warp leave no sector half full."""
    return order.row_index != "" or (along and descriptor.row_size >= tuned(GatherRuns()).min_row_bytes)


def _copy(
    descriptor: SegmentDescriptor, rows: Rows, order: Order, along: bool, count_type: str, pointers: dict[str, str], target: Target
) -> Launch:  # fmt: skip
    """The launch of the gather that suits the layouts; ``along`` says whether ids are in order."""
    value, index = BY_NAME[descriptor.element], BY_NAME[order.index]
    n, segments, columns = descriptor.num_inputs, descriptor.num_segments, rows.columns
    common: dict[str, Any] = {"value": value.name, "index": index.name, "count": count_type, "differences": pointers["counts"] == "offsets"}
    if _is_flat(descriptor, rows, order, along):
        if columns == 1 and order.packed:
            scalars = {"rows": n, "segments": segments, "source_row": rows.steps[0]}
            return elements("gather_elements", n, {**pointers, **scalars}, **common)
        if count_type in ("", "i32") and _copies_flat(descriptor, rows, order, along):
            given = {"ids": order.ids, "g": pointers["source"], "output": pointers["output"], "segments": segments, "counts": pointers["counts"]}
            given |= dict.fromkeys(("x", "w", "y", "folded", "guard"), NULL)
            sums = {"gradient": "sum", "paired": False, "guarded": False, "ordered": True, **common}
            return flat_broadcast(descriptor, target, GRADIENTS["sum"], rows, given, sums)
        flat, (lanes, lane_vectors) = tuned(GatherFlat()), flat_lanes(columns, rows.vector)
        together = flat_height(value.name, rows.vector, lane_vectors) * flat.threads_per_block // lanes
        tile = flat_tile(flat, n, columns, value.name, index.name, target.multiprocessors, together)
        cut, config = lanes * lane_vectors * rows.vector < columns, {"vector": rows.vector, "lanes": lanes, "lane_vectors": lane_vectors}
        spec = kernel_spec("gather_flat", flat.threads_per_block, cut=cut, **config, **common, **constants(flat))
        scalars = {"rows": n, "columns": columns, "segments": segments, "tile": tile, "ids_step": order.step, "source_row": rows.steps[0]}
        return Launch(spec, (ceil_div(n, tile), flat.threads_per_block, tile * columns * value.itemsize), {**pointers, **scalars})
    names, arguments = ("source", "output"), {**pointers, "segments": segments, "ids_step": order.step}
    if not _in_runs(descriptor, order, along):
        plan = tuned(GatherRows())
        return over_rows("gather_rows", rows, names, n, plan.items_per_thread, arguments, **common, **constants(plan))
    arguments["permutation"], runs = order.permutation, tuned(GatherRuns())
    return over_rows("gather_runs", rows, names, n, runs.items_per_thread, arguments, row_index=order.row_index, **common, **constants(runs))
