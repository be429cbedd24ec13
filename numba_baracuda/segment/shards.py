"""Folds over segments whose rows are divided among ranks: what ranks merge, and the launches that leave states of it."""

from __future__ import annotations

from typing import NamedTuple

from ..algebra import monoid_of, state_of
from ..core.axes import c_strides
from ..core.dtypes import BY_NAME
from ..core.op import Layout, Op, Recipe, Target
from .descriptor import SegmentDescriptor
from .recipes.broadcast import gradient_of
from .recipes.fold import SegmentFold, fold_steps
from .recipes.order import order_of


class Fold(NamedTuple):
    """A fold whose states ranks merge: the name of its monoid, or "" where nothing is folded, and the operands that it folds."""

    monoid: str
    over: tuple[str, ...]
    counted: bool  #: whether its results need the counts of segments
    to_rows: bool  #: whether its results are broadcast to the rows, or are those of the op

    @classmethod
    def of(cls, op: Op, descriptor: SegmentDescriptor) -> Fold:
        """The fold of an op, or of the gradient that it computes."""
        if op.operands[-1].axes[0] == "num_segments":
            return cls(descriptor.monoid(op).name, (op.operands[0].name,), descriptor.counted(op), False)
        gradient = gradient_of(op, descriptor)
        return cls(gradient.fold, gradient.over, gradient.shares or bool(gradient.fold and monoid_of(gradient.fold).counts), True)


def leave(op: Op, descriptor: SegmentDescriptor, fold: Fold, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The fold of this rank's rows to the operand ``states`` [segments, columns, scalars]; those of segments without rows stay as they are."""
    if not descriptor.num_inputs * descriptor.num_segments * descriptor.embedding_dim:
        return Recipe(())
    monoid, order, (first, *others) = monoid_of(state_of(fold.monoid)), order_of(op, descriptor, layouts, target), fold.over
    shape = descriptor.num_segments, *layouts[first].shape[1:]
    output = Layout(shape, c_strides(shape), element=monoid.kind or BY_NAME[descriptor.element].accumulator)
    other = (others[0], layouts[others[0]]) if others else None
    positions = monoid.uses_positions and order.row_index != ""
    made = SegmentFold(monoid, order, first, "states", (layouts[first], output), other, fills=False, input_positions=positions)
    steps, slots = fold_steps(descriptor, target, made)
    return Recipe((*order.steps, *steps), (*order.slots, *slots))
