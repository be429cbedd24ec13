"""Gradients of reductions along an axis whose elements are divided among ranks: what a gradient folds is merged, then broadcast to each part."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..arrays import allocation, arrays, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from ..core.op import Op
from ..core.registry import OPS
from ..plans.binding import check
from ..plans.signatures import NEEDED, bound, dressed, signature_of
from ..reduce.calls import DEFAULTS, shape_of, with_ones
from ..reduce.descriptor import ReduceBackwardDescriptor
from ..reduce.recipes import gradient_of
from ..reduce.shards import States
from .agreement import Call, agree
from .axis import REDUCTIONS, gathered, merged, place, queue_first, read_part, said, whole_of
from .communicator import Communicator, communicator


def _described(op: Op, views: dict[str, View], axis: Any, input_shape: Any, options: dict[str, Any]) -> tuple[ReduceBackwardDescriptor, list[View]]:
    """The problem of this rank's part, and its operands, reduced axes with extent 1; raises where operands are missing or contradict each other."""
    operands, part = op.operands[:-1], shape_of(op, views.get("x"), input_shape)
    names = [operand.name for operand in operands]
    for name in names:
        if name not in views:
            raise InvalidProblem(f"{op.name}: {name} is missing, wants {', '.join(names)}")
    problem = ReduceBackwardDescriptor(op.kind, part, axis, views["dy"].element, **options)
    given, kept = [views[name] for name in names], len(part) - len(problem.axes)
    given = [with_ones(view, problem.axes) if view.name != "x" and len(view.shape) == kept else view for view in given]
    check(replace(op, operands=operands, checked_first=()), problem, given)
    arrays.check_one_device(op.name, given)
    return problem, given


def _folded(op: Op, comm: Communicator, x: Any, view: View, problem: ReduceBackwardDescriptor, extents: list[int], stream: int) -> Any:
    """The results of a fold of each row of all ranks, as this rank's part reads them: positions are its own, and so is the origin of means."""
    gradient, rows, before = gradient_of(op, problem), math.prod(problem.output_shape), sum(extents[: comm.rank])
    states, element = States.of_rows(gradient.fold, problem.element, rows), BY_NAME[problem.element].accumulator
    every = gathered(op.name, comm, x, view, problem, states, stream, before).wait()
    made, of = allocation.empty(view, (rows, gradient.results), element, stream), {"count": sum(extents), "correction": problem.correction}
    merged(op.name, every, made, states, problem.output_shape, element, comm.size, stream, **of, base_rank=comm.rank)
    place(made, gradient.fold, element, -before, 1)
    return made


def _function(op: Op) -> Callable[..., Any]:
    """The function of the gradient of a reduction."""
    keywords = {"axis": NEEDED, "group": NEEDED, "input_shape": None} | {name: DEFAULTS[name] for name in op.traits["keywords"]}
    signature = signature_of({"dy": NEEDED, "x": None, "y": None}, keywords)

    def run(*given: Any, **named: Any) -> Any:
        given, options = bound(op.name, signature, given, named)
        axis, group, input_shape = (options.pop(name) for name in ("axis", "group", "input_shape"))
        comm = communicator(op.name, group)
        views = {name: read_part(op.name, comm, each, name) for name, each in zip(("dy", "x", "y"), given, strict=True) if each is not None}

        def describe() -> Call:
            made, _ = _described(op, views, axis, input_shape, options)
            whole_of(op, made, (1,))
            return said(made.input_shape, made.element, made.axes, **{name: getattr(made, name) for name in options})

        forms = tuple((view.name, tuple(view.shape), view.element, view.device) for view in views.values())
        extents = agree(op.name, comm, (forms, repr((axis, input_shape, options))), describe)
        problem, inputs = _described(op, views, axis, input_shape, options)
        whole, stream = whole_of(op, problem, extents), streams.stream_handle(None, inputs[0], op.name)
        dx = allocation.empty(inputs[0], problem.input_shape, problem.element, stream)
        if gradient_of(op, problem).fold:
            folded = _folded(op, comm, given[1], views["x"], problem, extents, stream)
            inputs.append(arrays.view(folded, op.name, "folded"))
        if 0 not in problem.input_shape:
            queue_first(op, whole, [*inputs, arrays.view(dx, op.name, "dx")], stream)
        return dx

    made = dressed(run, op, signature, _DOC.format(formula=op.formula, name=op.name))
    made.__module__ = __name__
    return made


_DOC = """{formula}

of the elements of all ranks of ``group`` along ``axis``: :func:`numba_baracuda.{name}` of the ranks' ``x``, one behind the other along the first of
the reduced axes. ``x`` […] is this rank's part, which may have any extent along the reduced axes, and 0; ``y``, the result, and ``dy``, its gradient,
are the same on all ranks, with reduced axes of extent 1 or without them. A rank gets the gradient of its part, of the shape of ``x``, or
``input_shape`` where x is not used. Options, ties, NaN and infinities are as there. What the gradient folds, if it does, is gathered in the
accumulator's type and merged in the order of ranks, so that every run gives the same bits.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, axis, other extents or options, or where operands of one are missing or
contradict each other.
"""
FUNCTIONS = {OPS[name].backward or "": _function(OPS[OPS[name].backward or ""]) for name in REDUCTIONS if OPS[name].backward}
