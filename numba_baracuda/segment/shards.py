"""Folds over segments whose rows are divided among ranks: what ranks merge, and the launches that leave states of it and join them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..algebra import monoid_of, state_of
from ..arrays.views import View
from ..core.axes import c_strides, ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Launch, Layout, Op, Recipe, Target, fresh_first
from ..core.spec import KernelSpec
from .descriptor import SegmentDescriptor
from .recipes.broadcast import gradient_of
from .recipes.fold import fold_steps
from .recipes.order import order_of
from .recipes.segment_fold import SegmentFold
from .tiling import THREADS


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
    return fresh_first((*order.steps, *steps), (*order.slots, *slots))


def _launch(kernel: str, threads: int, constants: dict[str, Any], arguments: dict[str, Any]) -> Recipe:
    """A single launch, with a thread for each item."""
    spec = KernelSpec(f"numba_baracuda.segment.kernels:{kernel}", tuple(sorted(constants.items())), THREADS, 0)
    return Recipe((Launch(spec, (ceil_div(threads, THREADS), THREADS, 0), arguments),))


def take(descriptor: SegmentDescriptor, ids: View, state: str, width: int, counted: bool) -> Recipe:
    """What ``take_seams`` sends of the operands ``states`` and ``counts``, ``width`` scalars of each segment, to ``entries`` and ``sent``."""
    arguments = {
        "ids": "segment_ids", "counts": "counts" if counted else NULL, "states": "states" if width else NULL, "entries": "entries", "sent": "sent",
        "rows": descriptor.num_inputs, "segments": descriptor.num_segments, "ids_step": ids.strides[0], "width": width,
    }  # fmt: skip
    return _launch("take_seams", 2 * max(width, 1), {"index": ids.element, "state": state, "counted": counted}, arguments)


def merge(descriptor: SegmentDescriptor, monoid: str, width: int, counted: bool, rank: int, ranks: int, nbytes: int, itemsize: int) -> Recipe:
    """The launch that merges what ``ranks`` ranks have sent, ``nbytes`` each, to the operands ``states`` and ``counts``, and fills ``owned``."""
    columns = width and descriptor.embedding_dim
    arguments = {
        "entries": "entries", "gathered": "gathered", "owned": "owned", "states": "states" if width else NULL,
        "counts": "counts" if counted else NULL,
        "segments": descriptor.num_segments, "columns": columns, "ranks": ranks, "rank": rank, "entries_step": nbytes // 8,
        "states_step": nbytes // itemsize,
    }  # fmt: skip
    return _launch("merge_seams", 2 * max(columns, 1), {"monoid": monoid, "value": descriptor.element, "counted": counted}, arguments)


def clear(output: View) -> Recipe:
    """The launch that clears the segments of the operand ``output`` [segments, …] that ``owned`` does not have."""
    segments, columns = output.shape[0], math.prod(output.shape[1:])
    arguments = {"owned": "owned", "output": output.name, "segments": segments, "columns": columns}
    return _launch("clear_others", segments * columns, {"result": output.element}, arguments)
