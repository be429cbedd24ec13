"""Gradients of folds that round, choose or multiply, and softmax: a fold, if the gradient needs one, whose results are then broadcast to the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS, Gradient
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target
from ...core.policy import constants, tuned
from .. import policy
from ..tiling import Tiling
from .common import Rows, check_slots, checks, elements, kernel_spec, only_checks, over_rows, scratch
from .fold import SegmentFold, fold_steps, narrow_share
from .order import Order, as_given, order_of
from .staged import stage_for, staged_steps

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def gradient_of(op: Op, descriptor: SegmentDescriptor) -> Gradient:
    """The gradient of an op under the descriptor's rule of ties, or the one for results that are rounded to a half type."""
    name = op.traits["gradient"]
    if BY_NAME[descriptor.element].itemsize == 2 and f"rounded_{name}" in GRADIENTS:
        return GRADIENTS[f"rounded_{name}"]
    return GRADIENTS[f"{descriptor.ties}_{name}" if name in ("max", "min") else name]


def too_many(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why the fold cannot tell positions apart, which are numbers of the accumulator's type."""
    most = BY_NAME[descriptor.element].distinct_positions
    if gradient_of(op, descriptor).uses_positions and descriptor.num_inputs >= most:
        return f"tells fewer than {most} rows apart, and there are {descriptor.num_inputs}"
    return None


def broadcast(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The fold that a gradient needs, over ids in order; then a launch that broadcasts its results to the rows."""
    output, gradient = op.operands[-1].name, gradient_of(op, descriptor)
    n, columns, segments, value = descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments, descriptor.element
    if not n * columns:
        return only_checks(op, descriptor, layouts)
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots = [*check_slots(descriptor)]
    order, folded, scatters = _walk(op, descriptor, layouts, target, gradient), NULL, False
    steps += order.steps
    slots += order.slots
    if gradient.fold and segments:
        state, monoid = BY_NAME[value].accumulator, monoid_of(gradient.fold)
        first, *others = gradient.over
        state_layout, guard = replace(scratch(descriptor, layouts[first]), element=state), NULL
        if gradient.guarded:
            guard = "guard"
            slots.append(Slot(guard, "i32", 4))
            steps += [Clear(guard), _find_special(descriptor, layouts["output"])]
        folded = "folded"
        slots.append(Slot(folded, state, segments * columns * monoid.results))
        other = (others[0], layouts[others[0]]) if others else None
        fold = SegmentFold(monoid, order, first, folded, (layouts[first], state_layout), other, guard, fills=False)
        stage = stage_for(descriptor, layouts, target, gradient, order, output)
        if stage:
            more, room = staged_steps(descriptor, target, gradient, stage, fold, output)
            return Recipe((*steps, *more), (*slots, *room))
        scatters = _scatters(descriptor, layouts, gradient, fold)
        if scatters:
            steps.append(Clear(folded, 0xFF))
            fold = replace(fold, cleared=output)
        more, room = fold_steps(descriptor, target, fold)
        steps += more
        slots += room
    if gradient.guarded and not descriptor.in_order(op) and descriptor.row_size < wide_row():
        order = as_given(descriptor, layouts)  # what the fold left is hardly ever looked at
    steps.append(
        _scatter_to_winners(descriptor, layouts, folded, output)
        if scatters
        else _broadcast(descriptor, layouts, target, gradient, order, folded, output)
    )
    return Recipe(tuple(steps), tuple(slots))


def wide_row() -> int:
    """The size in bytes from which on a row is worth a walk in the order of a permutation."""
    return tuned(policy.GatherRows()).indexed_row_bytes


def _walk(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient) -> Order:
    """The order in which the last launch walks the rows: that of the fold, or, without a fold, as they lie, unless an index orders wide rows."""
    if gradient.fold or descriptor.in_order(op) or (descriptor.indexed and descriptor.row_size >= wide_row()):
        return order_of(op, descriptor, layouts, target)
    return as_given(descriptor, layouts)


def _scatters(descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, fold: SegmentFold) -> bool:
    """Whether the gradient is stored only at the few rows that get one, over zeros that the fold stores, so that ids are not read again."""
    few = descriptor.embedding_dim == 1 and descriptor.num_inputs >= tuned(policy.BroadcastToRows()).min_rows_per_segment * descriptor.num_segments
    return gradient.uses_positions and few and narrow_share(descriptor, fold) > 0 and Rows(descriptor, layouts["d_input"]).is_contiguous(0)


def _scatter_to_winners(descriptor: SegmentDescriptor, layouts: dict[str, Layout], folded: str, output: str) -> Launch:
    value, segments = descriptor.element, descriptor.num_segments
    spec, source_row = kernel_spec("scatter_to_winners", value=value), layouts["d_output"].strides[0]
    arguments = {
        "source": "d_output", "folded": folded, "output": output, "rows": descriptor.num_inputs, "segments": segments, "source_row": source_row,
    }  # fmt: skip
    return Launch(spec, Tiling.of_ids(segments).launch, arguments)


def _find_special(descriptor: SegmentDescriptor, layout: Layout) -> Launch:
    arguments, plan = {"input": "output", "guard": "guard"}, tuned(policy.FindSpecial())
    return over_rows(
        "find_special", Rows(descriptor, layout), ("input",), descriptor.num_segments, plan.items_per_thread, arguments,
        value=descriptor.element, **constants(plan),
    )  # fmt: skip


def _broadcast(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, order: Order, folded: str, output: str
) -> Launch:
    names = [*gradient.rows, *gradient.segments, output]
    rows = Rows(descriptor, *[layouts[name] for name in names])
    last = len(names) - 1
    at = [0 if gradient.rows else last, 1 if len(gradient.rows) > 1 else last, last, last, last]
    for k in range(len(gradient.segments)):
        at[2 + k] = len(gradient.rows) + k
    given = [names[k] if k != last else NULL for k in at[:4]]
    value, read = descriptor.element, ("x", "w", "g", "y")
    arguments: dict[str, Any] = {
        **dict(zip(read, given, strict=True)), "ids": order.ids, "permutation": order.permutation, "folded": folded, "output": output,
        "segments": descriptor.num_segments,
    }  # fmt: skip
    common: dict[str, Any] = {"gradient": gradient.name, "value": value, "index": order.index}
    contiguous = all(rows.is_contiguous(k) for k in (*range(len(gradient.rows)), last))
    if rows.columns == 1 and order.packed and not order.row_index and contiguous:
        arguments |= {"rows": descriptor.num_inputs, "g_row": rows.steps[at[2]], "y_row": rows.steps[at[3]]}
        return elements("broadcast_to_elements", descriptor.num_inputs, arguments, **common)
    rows.steps, rows.strides = [rows.steps[k] for k in at], [rows.strides[k] for k in at]
    arguments["ids_step"] = order.step
    plan = policy.broadcast_to_rows(target, BY_NAME[value].itemsize, rows.dims, gradient.operands, gradient.divides)
    return over_rows(
        "broadcast_to_rows", rows, (*read, "output"), descriptor.num_inputs, plan.items_per_thread, arguments, plan, target.multiprocessors,
        row_index=order.row_index, at_once=plan.items_per_thread, **common,
    )  # fmt: skip
