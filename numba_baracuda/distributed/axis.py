"""Reductions and scans along an axis whose elements are divided among ranks: states of each part, merged in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..algebra import monoid_of
from ..arrays import allocation, arrays, spans, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME, FLOATS
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Layout, Op, Recipe, contiguous
from ..core.options import flag
from ..core.registry import OPS
from ..plans import plan
from ..plans.signatures import NEEDED, bound, dressed, guarded, signature_of
from ..reduce.calls import DEFAULTS, FIELDS
from ..reduce.descriptor import ReduceDescriptor
from ..reduce.shards import States, leave, merge
from ..scan.descriptor import ScanDescriptor
from ..scan.recipes import scan_carried
from .agreement import Call, agree, telling
from .communicator import Communicator, Pending, communicator

Reduction = TypeVar("Reduction", bound=ReduceDescriptor)
#: the element type that kernels use for truth values
_BYTES = {"bool": "u8"}
REDUCTIONS = tuple(name for name, op in OPS.items() if op.family == "reduce" and not op.traits["backward"])
#: scan -> the reduction of the elements before a part
SCANS = {"cumsum": "reduce_sum", "cumprod": "reduce_prod", "cummax": "reduce_max", "cummin": "reduce_min", "logcumsumexp": "reduce_logsumexp"}


def layout_of(view: View) -> Layout:
    """The layout of a view."""
    return Layout(tuple(view.shape), tuple(view.strides), view.ptr & 15, view.element)


def read_part(op: str, comm: Communicator, given: Any, name: str = "x") -> View:
    """The view of an operand of the op; what is wrong with it, all ranks of the first call are told."""
    with telling(op, comm):
        return arrays.read(given, (f"distributed.{op}", name, ""))


def place(made: Any, monoid: str, element: str, before: int, width: int = 2) -> None:
    """Adds to the positions in states, or in results of this ``width``, as many elements as lie ``before``; to nothing where there are none."""
    if monoid_of(monoid).uses_positions and before:
        positions = allocation.as_element(made, f"i{8 * BY_NAME[element].itemsize}").reshape(-1, width)[:, -1]
        positions += before


def whole_of(op: Op, descriptor: Reduction, extents: Sequence[int]) -> Reduction:
    """The problem of as many elements as all ranks have, or 1 to look at the rest alone; raises for one that the op does not have."""
    if not descriptor.axes:
        raise InvalidProblem(f"{op.name}: axis is {descriptor.reduce_axis}, wants an axis, of which ranks have parts, or several")
    first = descriptor.axes[0]
    shape = tuple(sum(extents) if k == first else 1 if k in descriptor.axes else extent for k, extent in enumerate(descriptor.input_shape))
    whole = replace(descriptor, input_shape=shape)
    whole.check(op)
    reason = op.variants[0].refuses(op, whole)
    if reason:
        raise Unsupported(f"{op.name}: {reason}")
    return whole


def said(shape: Sequence[int], element: str, axes: tuple[int, ...], **options: Any) -> Call:
    """What ranks agree on: all but the extents of the reduced axes, whose product is their own."""
    kept = [extent for k, extent in enumerate(shape) if k not in axes]
    same = {"dtype of x": BY_NAME[element].numpy_name, "axis": list(axes), "other extents of x": kept, **options}
    return Call(same, math.prod(shape[k] for k in axes))


def gathered(
    name: str, comm: Communicator, x: Any, view: View, descriptor: ReduceDescriptor, states: States, stream: int, before: int = 0
) -> Pending:  # fmt: skip
    """The states of all ranks, [ranks, scalars]; ``before``: elements of a row that the ranks before this one have."""
    made = allocation.empty(view, (states.count,), states.element, stream)
    outputs = [arrays.view(made[: states.scalars], name, "states")]
    inputs = [arrays.read(x, (name, "x", ""))]
    if states.based and not descriptor.extent:
        made[states.scalars :] = 0
    elif states.based:
        first = x[tuple(slice(0, 1) if k in descriptor.axes else slice(None) for k in range(len(view.shape)))]
        inputs.append(arrays.view(first, name, "first"))
        outputs.append(arrays.view(made[states.scalars :], name, "origins"))

    def recipe() -> Recipe:
        return leave(states, descriptor, {each.name: layout_of(each) for each in inputs}, plan.target_of(view.device))

    plan.queue(name, recipe, [*inputs, *outputs], stream, len(inputs), key=(states, descriptor))
    if descriptor.extent:
        place(made, states.monoid, states.element, before)
    return comm.all_gather(made, stream)


def queue_first(op: Op, problem: Any, operands: list[View], stream: int) -> None:
    """Queues the op's first variant for this problem; the last of the operands is the result."""

    def recipe() -> Recipe:
        return op.variants[0].recipe(op, problem, {each.name: layout_of(each) for each in operands}, plan.target_of(operands[0].device))

    plan.queue(op.name, recipe, operands, stream, len(operands) - 1, key=problem)


def merged(
    name: str, every: Any, y: Any, states: States, shape: tuple[int, ...], result: str, ranks: int, stream: int, counts: Any = None, **of: Any
) -> None:  # fmt: skip
    """Queues the merge of the states of all ranks, in their order, to y of this shape; ``of``: keywords of :func:`merge`."""
    inputs = [arrays.view(every, name, "gathered"), *([] if counts is None else [arrays.view(counts, name, "counts")])]

    def recipe() -> Recipe:
        return Recipe(tuple(merge(states, shape, contiguous(shape), result, ranks, **of)))

    key = states, shape, result, ranks, tuple(of.items())
    plan.queue(name, recipe, [*inputs, arrays.view(y, name, "y")], stream, len(inputs), key=key)


def _reduction(op: Op) -> Callable[..., Any]:
    """The function of a reduction."""
    monoid, keywords = op.traits["monoid"], {name: DEFAULTS[name] for name in op.traits["keywords"]}
    signature = signature_of({"x": NEEDED, "axis": NEEDED, "keepdims": True}, {"group": NEEDED} | keywords)

    def run(*given: Any, **named: Any) -> Any:
        (x, axis, keepdims), options = bound(op.name, signature, given, named)
        comm, correction = communicator(op.name, options.pop("group")), options.get("correction", 1)
        view = read_part(op.name, comm, x)

        def described() -> ReduceDescriptor:
            shape = tuple(view.shape)
            return ReduceDescriptor(op.kind, shape, axis, view.element, correction=correction, result=options.get("dtype") or "")

        def describe() -> Call:
            made, kept = described(), flag(op.name, "keepdims", keepdims)
            whole_of(op, made, (1,))
            return said(view.shape, view.element, made.axes, keepdims=kept, **{name: getattr(made, FIELDS.get(name, name)) for name in options})

        extents = agree(op.name, comm, (tuple(view.shape), view.element, repr((axis, keepdims, options))), describe)
        descriptor, handle = described(), streams.stream_handle(None, view, op.name)
        whole_of(op, descriptor, extents)
        value, rows = _BYTES.get(view.element, view.element), math.prod(descriptor.output_shape)
        states = States.of_rows(op.traits["narrow"].get(view.element, monoid), value, rows)
        every = gathered(op.name, comm, x, view, descriptor, states, handle, sum(extents[: comm.rank])).wait()
        result, shape = descriptor.result or view.element, descriptor.output_shape
        if not keepdims:
            shape = tuple(extent for k, extent in enumerate(view.shape) if k not in descriptor.axes)
        y = allocation.empty(view, shape, result, handle)
        base = next((rank for rank, extent in enumerate(extents) if extent), 0)
        of = {"count": sum(extents), "correction": correction, "base_rank": base}
        merged(op.name, every, y, states, shape, _BYTES.get(result, result), comm.size, handle, **of)
        return y

    made = dressed(run, op, signature, _REDUCE.format(formula=op.formula, name=op.name, more=_PLACED if monoid_of(monoid).uses_positions else ""))
    made.__module__ = __name__
    return made


def _scan(op: Op) -> Callable[..., Any]:
    """The function of a scan."""
    fold = OPS[SCANS[op.name]]

    def run(x: Any, axis: int = -1, *, group: Any, reverse: bool = False, exclusive: bool = False) -> Any:
        comm = communicator(op.name, group)
        view = read_part(op.name, comm, x)

        def describe() -> Call:
            if view.element not in FLOATS:
                raise Unsupported(f"{op.name}: x is {BY_NAME[view.element].numpy_name}, wants one of {', '.join(FLOATS)}")
            if not spans.is_contiguous(view):
                raise Unsupported(f"{op.name}: x has strides {list(view.strides)}, wants contiguous memory; make a contiguous copy")
            described = ScanDescriptor(op.kind, tuple(view.shape), axis, reverse, view.element, exclusive)
            described.check(op)
            return said(view.shape, view.element, (described.scan_axis,), reverse=described.reverse, exclusive=described.exclusive)

        agree(op.name, comm, (tuple(view.shape), view.element, spans.is_contiguous(view), repr((axis, reverse, exclusive))), describe)
        scanned = ScanDescriptor(op.kind, tuple(view.shape), axis, reverse, view.element, exclusive)
        descriptor = ReduceDescriptor(fold.kind, tuple(view.shape), scanned.scan_axis, view.element)
        handle = streams.stream_handle(None, view, op.name)
        states = States.of_rows(fold.traits["monoid"], view.element, math.prod(descriptor.output_shape))
        every = gathered(op.name, comm, x, view, descriptor, states, handle).wait()
        before = every[comm.rank + 1 :] if scanned.reverse else every[: comm.rank]
        initials = allocation.empty(view, (states.rows,), scanned.accumulator, handle)
        y = allocation.empty(view, tuple(view.shape), view.element, handle)
        merged(op.name, before, initials, states, (states.rows,), scanned.accumulator, len(before), handle)
        inputs, output = [arrays.read(x, (op.name, "x", "")), arrays.view(initials, op.name, "initials")], arrays.view(y, op.name, "y")

        def recipe() -> Recipe:
            return scan_carried(op, scanned, {"x": layout_of(view), "y": layout_of(output)}, plan.target_of(view.device))

        plan.queue(op.name, recipe, [*inputs, output], handle, 2, key=scanned)
        return y

    run.__name__ = run.__qualname__ = op.name
    run.__doc__ = _SCAN.format(formula=op.formula, name=op.name)
    return guarded(run)


_REDUCE = """{formula}

over the elements of all ranks of ``group`` along ``axis``: :func:`numba_baracuda.{name}` of the ranks' ``x``, one behind the other along a reduced
axis. Ranks may have any numbers of elements, and none; the other extents are the same. Every rank gets the result; options, ties, NaN and what no
elements give are as there.{more} States of rows, in the accumulator's type, are gathered and merged in the order of ranks, so that every rank has the
same bits in every run.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, axis, other extents or options.
"""
_PLACED = " Indices count along all ranks, whose parts follow one another along the first of the reduced axes."
_SCAN = """{formula}

over the elements of all ranks of ``group`` along ``axis``: :func:`numba_baracuda.{name}` of the ranks' ``x``, contiguous floats, one after another. A
rank gets its own part of the result. The fold of each part is gathered; that of the parts before, in the accumulator's type, is where the local
scan begins. ``reverse`` and ``exclusive`` are as there.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, axis, other extents or options.
"""
FUNCTIONS = {name: _reduction(OPS[name]) for name in REDUCTIONS} | {name: _scan(OPS[name]) for name in SCANS}
