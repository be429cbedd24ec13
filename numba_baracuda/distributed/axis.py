"""Reductions and scans along an axis whose elements are divided among ranks: states of each part, merged in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..arrays import allocation, arrays, spans, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME, FLOATS
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Layout, Op, Recipe, contiguous
from ..core.options import flag
from ..core.registry import OPS
from ..plans import plan
from ..plans.signatures import guarded
from ..reduce.descriptor import ReduceDescriptor
from ..reduce.shards import States, leave, merge
from ..scan.descriptor import ScanDescriptor
from ..scan.recipes import scan_carried
from .agreement import Call, agree
from .communicator import Communicator, Pending, communicator

#: the element type that kernels use for truth values
_BYTES = {"bool": "u8"}
#: reductions whose states are merged; those of argmax and argmin hold positions in a part
_STEMS = ("sum", "mean", "max", "min", "prod", "norm2", "logsumexp", "var", "std", "any", "all", "count_nonzero")
REDUCTIONS = tuple(f"reduce_{each}" for each in _STEMS)
#: scan -> the reduction of the elements before a part
SCANS = {"cumsum": "reduce_sum", "cumprod": "reduce_prod", "cummax": "reduce_max", "cummin": "reduce_min", "logcumsumexp": "reduce_logsumexp"}


def layout_of(view: View) -> Layout:
    """The layout of a view."""
    return Layout(tuple(view.shape), tuple(view.strides), view.ptr & 15, view.element)


def _described(op: Op, view: View, axis: Any, correction: float) -> ReduceDescriptor:
    descriptor = ReduceDescriptor(op.kind, tuple(view.shape), axis, view.element, correction=correction)
    descriptor.check(op)
    return descriptor


def _said(name: str, view: View, axes: tuple[int, ...], **options: Any) -> Call:
    """What ranks agree on: all but the extents of the reduced axes, whose product is their own."""
    kept = [extent for k, extent in enumerate(view.shape) if k not in axes]
    same = {"dtype": BY_NAME[view.element].numpy_name, "axes": list(axes), "other extents": kept, **options}
    return Call(same, math.prod(view.shape[k] for k in axes))


def _gathered(name: str, comm: Communicator, x: Any, view: View, descriptor: ReduceDescriptor, states: States, stream: int) -> Pending:
    """The states of all ranks, [ranks, scalars]."""
    made = allocation.empty(view, (states.count,), states.element, stream)
    outputs = [arrays.view(made[: states.scalars], name, "states")]
    inputs = [arrays.read(x, (name, "x", ""))]
    if states.based and not descriptor.extent:
        made[states.scalars :] = 0
    elif states.based:
        first = x[tuple(slice(0, 1) if k in descriptor.axes else slice(None) for k in range(len(view.shape)))]
        inputs.append(arrays.view(first, name, "first"))
        outputs.append(arrays.view(made[states.scalars :], name, "origins"))
    layouts = {each.name: layout_of(each) for each in inputs}
    plan.queue(name, leave(states, descriptor, layouts, plan.target_of(view.device)), [*inputs, *outputs], stream, len(inputs))
    return comm.all_gather(made, stream)


def _reduction(op: Op) -> Callable[..., Any]:
    """The function of a reduction."""
    monoid, corrected = op.traits["monoid"], "correction" in op.traits["keywords"]

    def run(x: Any, axis: Any, keepdims: bool = True, *, group: Any, **options: Any) -> Any:
        correction = options.pop("correction", 1)
        if options or (correction != 1 and not corrected):
            raise InvalidProblem(f"{op.name}: got unknown options {', '.join(options) or 'correction'}")
        view, comm = arrays.read(x, (op.name, "x", "")), communicator(op.name, group)

        def describe() -> Call:
            flag(op.name, "keepdims", keepdims)
            return _said(op.name, view, _described(op, view, axis, correction).axes, correction=correction)

        extents = agree(op.name, comm, (tuple(view.shape), view.element, repr((axis, correction))), describe)
        descriptor, handle = _described(op, view, axis, correction), streams.stream_handle(None, view, op.name)
        value, rows = _BYTES.get(view.element, view.element), math.prod(descriptor.output_shape)
        states = States.of_rows(op.traits["narrow"].get(view.element, monoid), value, rows)
        gathered = _gathered(op.name, comm, x, view, descriptor, states, handle).wait()
        result, shape = descriptor.result or view.element, descriptor.output_shape
        if not keepdims:
            shape = tuple(extent for k, extent in enumerate(view.shape) if k not in descriptor.axes)
        y = allocation.empty(view, shape, result, handle)
        base = next((rank for rank, extent in enumerate(extents) if extent), 0)
        of = {"count": sum(extents), "correction": correction, "base_rank": base}
        steps = merge(states, shape, contiguous(shape), _BYTES.get(result, result), comm.size, **of)
        plan.queue(op.name, Recipe(tuple(steps)), [arrays.view(gathered, op.name, "gathered"), arrays.view(y, op.name, "y")], handle)
        return y

    run.__name__ = run.__qualname__ = op.name
    run.__doc__ = _REDUCE.format(formula=op.formula, name=op.name, more=", ``correction`` as there" if corrected else "")
    return guarded(run)


def _scan(op: Op) -> Callable[..., Any]:
    """The function of a scan."""
    fold = OPS[SCANS[op.name]]

    def run(x: Any, axis: int = -1, *, group: Any, reverse: bool = False, exclusive: bool = False) -> Any:
        view, comm = arrays.read(x, (op.name, "x", "")), communicator(op.name, group)

        def describe() -> Call:
            if view.element not in FLOATS:
                raise Unsupported(f"{op.name}: x is {BY_NAME[view.element].numpy_name}, wants one of {', '.join(FLOATS)}")
            if not spans.is_contiguous(view):
                raise Unsupported(f"{op.name}: x has strides {list(view.strides)}, wants contiguous memory; make a contiguous copy")
            described = ScanDescriptor(op.kind, tuple(view.shape), axis, reverse, view.element, exclusive)
            described.check(op)
            return _said(op.name, view, (described.scan_axis,), reverse=described.reverse, exclusive=described.exclusive)

        agree(op.name, comm, (tuple(view.shape), view.element, repr((axis, reverse, exclusive))), describe)
        scanned = ScanDescriptor(op.kind, tuple(view.shape), axis, reverse, view.element, exclusive)
        descriptor, handle = _described(fold, view, scanned.scan_axis, 1), streams.stream_handle(None, view, op.name)
        states = States.of_rows(fold.traits["monoid"], view.element, math.prod(descriptor.output_shape))
        gathered = _gathered(op.name, comm, x, view, descriptor, states, handle).wait()
        before = gathered[comm.rank + 1 :] if scanned.reverse else gathered[: comm.rank]
        initials = allocation.empty(view, (states.rows,), scanned.accumulator, handle)
        y = allocation.empty(view, tuple(view.shape), view.element, handle)
        steps = merge(states, (states.rows,), contiguous((states.rows,)), scanned.accumulator, len(before))
        plan.queue(op.name, Recipe(tuple(steps)), [arrays.view(before, op.name, "gathered"), arrays.view(initials, op.name, "y")], handle)
        inputs, output = [arrays.read(x, (op.name, "x", "")), arrays.view(initials, op.name, "initials")], arrays.view(y, op.name, "y")
        layouts = {"x": layout_of(view), "y": layout_of(output)}
        plan.queue(op.name, scan_carried(op, scanned, layouts, plan.target_of(view.device)), [*inputs, output], handle, 2)
        return y

    run.__name__ = run.__qualname__ = op.name
    run.__doc__ = _SCAN.format(formula=op.formula, name=op.name)
    return guarded(run)


_REDUCE = """{formula}

over the elements of all ranks of ``group`` along ``axis``: :func:`numba_baracuda.{name}` of the ranks' ``x``, one behind the other along a reduced
axis. Ranks may have any numbers of elements, and none; the other extents are the same. Every rank gets the result{more}. States of rows, in the
accumulator's type, are gathered and merged in the order of ranks, so that every rank has the same bits in every run.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, axes or other extents.
"""
_SCAN = """{formula}

over the elements of all ranks of ``group`` along ``axis``: :func:`numba_baracuda.{name}` of the ranks' ``x``, contiguous floats, one after another. A
rank gets its own part of the result. The fold of each part is gathered; that of the parts before, in the accumulator's type, is where the local
scan begins. ``reverse`` and ``exclusive`` are as there.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, axis, other extents or options.
"""
FUNCTIONS = {name: _reduction(OPS[name]) for name in REDUCTIONS} | {name: _scan(OPS[name]) for name in SCANS}
