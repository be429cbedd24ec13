"""Gradients of folds that round, choose or multiply, and softmax: a fold first, if one is wanted, then its results go back to the rows."""

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
from .fold import Fold, fold_steps, narrow_share
from .order import Order, as_given, order_of

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def rule_of(op: Op, descriptor: SegmentDescriptor) -> Gradient:
    """The gradient of an op under the descriptor's rule of ties."""
    name = op.traits["gradient"]
    return GRADIENTS[f"{descriptor.ties}_{name}" if name in ("max", "min") else name]


def too_many(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why positions cannot be told apart: they are kept as numbers of the accumulator's type."""
    most = BY_NAME[descriptor.element].places
    if rule_of(op, descriptor).places and descriptor.num_inputs >= most:
        return f"tells fewer than {most} rows apart, and there are {descriptor.num_inputs}"
    return None


def spread(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The fold that a gradient wants, over ids in order, and its results back to the rows."""
    output, rule = op.operands[-1].name, rule_of(op, descriptor)
    n, columns, segments, value = descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments, descriptor.element
    if not n * columns:
        return only_checks(op, descriptor, layouts)
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots = [*check_slots(descriptor)]
    order, kept, placed = _walk(op, descriptor, layouts, target, rule), NULL, False
    steps += order.steps
    slots += order.slots
    if rule.fold and segments:
        state, monoid = BY_NAME[value].accumulator, monoid_of(rule.fold)
        first, *others = rule.over
        place, guard = scratch(descriptor, layouts[first]), NULL
        if rule.guarded:
            guard = "guard"
            slots.append(Slot(guard, "i32", 4))
            steps += [Clear(guard), _find_special(descriptor, layouts["output"])]
        kept = "kept"
        slots.append(Slot(kept, state, segments * columns * monoid.results))
        other = (others[0], layouts[others[0]]) if others else None
        fold = Fold(monoid, order, first, kept, (layouts[first], place), other, state, guard)
        placed = _places(descriptor, layouts, rule, fold)
        if placed:
            steps.append(Clear(kept, 0xFF))
            fold = replace(fold, cleared=output)
        more, room = fold_steps(descriptor, target, fold)
        steps += more
        slots += room
    if rule.guarded and not descriptor.in_order(op) and descriptor.row_size < wide_row():
        order = as_given(descriptor, layouts)  # what the fold left is hardly ever looked at
    steps.append(_place(descriptor, layouts, kept, output) if placed else _back(descriptor, layouts, target, rule, order, kept, output))
    return Recipe(tuple(steps), tuple(slots))


def wide_row() -> int:
    """Bytes of a row that are worth a walk in the order of a permutation."""
    return tuned(policy.GatherRows()).indexed_row_bytes


def _walk(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, rule: Gradient) -> Order:
    """The order in which rows are walked: that of the fold, or, without one, as they lie, unless an index leads along segments of wide rows."""
    if rule.fold or descriptor.in_order(op) or (descriptor.indexed and descriptor.row_size >= wide_row()):
        return order_of(op, descriptor, layouts, target)
    return as_given(descriptor, layouts)


def _places(descriptor: SegmentDescriptor, layouts: dict[str, Layout], rule: Gradient, fold: Fold) -> bool:
    """Whether the few rows that get something are written one by one, over zeros that the fold leaves on its way: ids are not read again."""
    few = descriptor.embedding_dim == 1 and descriptor.num_inputs >= tuned(policy.SpreadRows()).min_rows_per_segment * descriptor.num_segments
    return rule.places and few and narrow_share(descriptor, fold) > 0 and Rows(descriptor, layouts["d_input"]).side_by_side(0)


def _place(descriptor: SegmentDescriptor, layouts: dict[str, Layout], kept: str, output: str) -> Launch:
    value, segments = descriptor.element, descriptor.num_segments
    spec, source_row = kernel_spec("place_elements", value=value), layouts["d_output"].strides[0]
    arguments = {
        "source": "d_output", "kept": kept, "output": output, "rows": descriptor.num_inputs, "segments": segments, "source_row": source_row,
    }  # fmt: skip
    return Launch(spec, Tiling.of_ids(segments).launch, arguments)


def _find_special(descriptor: SegmentDescriptor, layout: Layout) -> Launch:
    arguments, plan = {"input": "output", "guard": "guard"}, tuned(policy.FindSpecial())
    return over_rows(
        "find_special", Rows(descriptor, layout), ("input",), descriptor.num_segments, plan.items_per_thread, arguments,
        value=descriptor.element, **constants(plan),
    )  # fmt: skip


def _back(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, rule: Gradient, order: Order, kept: str, output: str) -> Launch:
    names = [*rule.rows, *rule.segments, output]
    rows = Rows(descriptor, *[layouts[name] for name in names])
    last = len(names) - 1
    at = [0 if rule.rows else last, 1 if len(rule.rows) > 1 else last, last, last, last]
    for k in range(len(rule.segments)):
        at[2 + k] = len(rule.rows) + k
    given = [names[k] if k != last else NULL for k in at[:4]]
    value, read = descriptor.element, ("x", "w", "g", "y")
    arguments: dict[str, Any] = {
        **dict(zip(read, given, strict=True)), "ids": order.ids, "permutation": order.permutation, "kept": kept, "output": output,
        "segments": descriptor.num_segments,
    }  # fmt: skip
    common: dict[str, Any] = {"gradient": rule.name, "value": value, "index": order.index}
    beside = all(rows.side_by_side(k) for k in (*range(len(rule.rows)), last))
    if rows.columns == 1 and order.packed and not order.place and beside:
        arguments |= {"rows": descriptor.num_inputs, "g_row": rows.steps[at[2]], "y_row": rows.steps[at[3]]}
        return elements("spread_elements", descriptor.num_inputs, arguments, **common)
    rows.steps, rows.strides = [rows.steps[k] for k in at], [rows.strides[k] for k in at]
    arguments["ids_step"] = order.step
    plan = policy.spread_rows(target, BY_NAME[value].itemsize, rows.dims, rule.operands, rule.divides)
    return over_rows(
        "spread_rows", rows, (*read, "output"), descriptor.num_inputs, plan.items_per_thread, arguments, plan, target.multiprocessors,
        place=order.place, at_once=plan.items_per_thread, **common,
    )  # fmt: skip
