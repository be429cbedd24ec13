"""Folds over segments whose rows are divided among ranks: the launches that leave states."""

from __future__ import annotations

from ..algebra import monoid_of, state_of
from ..core.axes import c_strides
from ..core.dtypes import BY_NAME
from ..core.op import Layout, Op, Recipe, Target
from .descriptor import SegmentDescriptor
from .recipes.fold import SegmentFold, fold_steps
from .recipes.order import order_of


def leave(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The fold of this rank's rows to the operand ``states`` [segments, columns, scalars]; those of segments without rows stay as they are."""
    if not descriptor.num_inputs * descriptor.num_segments * descriptor.embedding_dim:
        return Recipe(())
    monoid, order = monoid_of(state_of(descriptor.monoid(op).name)), order_of(op, descriptor, layouts, target)
    shape = descriptor.num_segments, *layouts["input"].shape[1:]
    output = Layout(shape, c_strides(shape), element=monoid.kind or BY_NAME[descriptor.element].accumulator)
    steps, slots = fold_steps(descriptor, target, SegmentFold(monoid, order, "input", "states", (layouts["input"], output), fills=False))
    return Recipe((*order.steps, *steps), (*order.slots, *slots))
