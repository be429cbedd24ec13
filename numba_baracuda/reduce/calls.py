"""The functions that users call: they make views of arrays, a descriptor of views, and run its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays import allocation, arrays, streams
from ..arrays.views import Form, View, remember
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from ..core.op import Op
from ..core.options import axes as reduced_axes
from ..core.options import flag, key_of, shape
from ..plans import plan
from ..plans.binding import Bound
from ..plans.signatures import CALL, NEEDED, dressed, function_of, guarded, signature_of
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor

_calls: dict[Any, plan.Plan] = plan.memo()
_FIELDS = {"dtype": "result"}  #: fields of the descriptor by keyword, where the names differ
_DEFAULTS = {"correction": 1, "ties": "all", "dtype": None}


def _with_ones(view: View, axes: tuple[int, ...]) -> View:
    """The view with the reduced axes, of extent 1, put in again."""
    shape, strides = list(view.shape), list(view.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 1)
    form = Form.of(tuple(shape), tuple(strides), view.element, view.device, view.kind, view.readonly)
    return view.seen_as(form)


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of the axes that are kept."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def forward_function(op: Op, describe: Callable[..., ReduceDescriptor] = ReduceDescriptor) -> Callable[..., Any]:
    """``f(x, axis, keepdims=True)`` of a reduction; ``describe`` makes its descriptors."""
    x_label, y_label = [(op.name, operand.name, "") for operand in op.operands]
    defaults = {name: _DEFAULTS[name] for name in op.traits["keywords"]}
    usual = key_of(*defaults.values())
    signature = signature_of({"x": NEEDED, "axis": NEEDED, "keepdims": True}, defaults | CALL)
    plans: dict[Any, plan.Plan] = plan.memo()
    calls: dict[Any, tuple[plan.Plan, Bound]] = plan.memo()

    def planned(view: View, axis: Any, named: dict[str, Any], chosen: Any) -> plan.Plan:
        key = (view.form, chosen)
        made = plans.get(key)
        if made is None:
            settings = {_FIELDS.get(name, name): setting for name, setting in named.items()}
            made = remember(plans, key, plan.select(describe(op.kind, view.shape, axis, view.element, **settings), device=view.device))
        return made

    def bound(view: View, y: View, axis: Any, keepdims: bool, named: dict[str, Any], chosen: Any) -> tuple[plan.Plan, Bound]:
        made = planned(view, axis, named, chosen)
        if not keepdims:
            wanted = _without(view.shape, made.descriptor.axes)
            if tuple(y.shape) != wanted:
                raise InvalidProblem(f"{op.name}: out has shape {list(y.shape)}, wants {list(wanted)} with keepdims=False")
            y = _with_ones(y, made.descriptor.axes)
        return made, made.bind([view, y])

    def run(x: Any, axis: Any, keepdims: bool = True, *, out: Any = None, stream: Any = None, workspace: Any = None, **settings: Any) -> Any:
        named, chosen = defaults, usual
        if keepdims is not True and keepdims is not False:
            keepdims = flag(op.name, "keepdims", keepdims)
        if settings:
            named = defaults | settings
            chosen = key_of(*named.values())
            if len(named) > len(defaults):
                signature.bind(x, axis, **settings)  # raises the error that names the first unknown keyword
        chosen = (axis if type(axis) is int else key_of(axis), chosen)
        view = arrays.read(x, x_label)
        if out is None:
            made = planned(view, axis, named, chosen)
            wanted = made.descriptor.output_shape if keepdims else _without(view.shape, made.descriptor.axes)
            stream = streams.stream_handle(stream, view, op.name)
            out = allocation.empty(view, wanted, made.descriptor.result or view.element, stream)
        y = arrays.read(out, y_label)
        pointers = [view.ptr, y.ptr]
        key = (view.form, y.form, pointers[0] & 15, pointers[1] & 15, keepdims, chosen)
        found = calls.get(key)
        if found is None:
            found = remember(calls, key, bound(view, y, axis, keepdims, named, chosen))
        found[1].check_aliasing(pointers)
        found[0].queue(found[1], [view, y], pointers, stream, workspace)
        return out

    return guarded(dressed(run, op, signature, _doc(op, _FORWARD)))


def backward_function(op: Op) -> Callable[..., Any]:
    """``f(dy, x, y, axis=…)`` of a gradient. Where x is not used, ``input_shape`` may be given in its place."""
    names = [operand.name for operand in op.operands[:-1]]
    labels = {name: (op.name, name, "") for name in ("dy", "x", "y", "dx")}

    def shape_of(x: View | None, given: Any) -> tuple[int, ...]:
        """The shape of the array that was reduced: that of x, or ``input_shape``."""
        wanted = None if given is None else shape(op.name, "input_shape", given)
        if x is None and wanted is None:
            missing, wants = ("x", ", ".join(names)) if "x" in names else ("input_shape", "the shape of the reduced array, or x")
            raise InvalidProblem(f"{op.name}: {missing} is missing, wants {wants}")
        if x is not None and wanted not in (None, tuple(x.shape)):
            raise InvalidProblem(f"{op.name}: input_shape is {list(wanted or ())}, wants {list(x.shape)}, which is that of x")
        return tuple(x.shape) if x is not None else wanted or ()

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        given = dict(zip(("dy", "x", "y"), arguments, strict=True))
        views = {name: arrays.read(given[name], labels[name]) for name in names if name == "dy" or given[name] is not None}
        first, x = views["dy"], views.get("x")
        whole = shape_of(x if x or given["x"] is None else arrays.read(given["x"], labels["x"]), options["input_shape"])
        axes = reduced_axes(op.name, options["axis"], len(whole))
        views = {name: _with_ones(view, axes) if name != "x" and len(view.shape) == len(whole) - len(axes) else view for name, view in views.items()}

        key = (op.name, whole, first.element, first.device, chosen)
        made = _calls.get(key)
        if made is None:
            settings = {name: options[name] for name in op.traits["keywords"]}
            descriptor = ReduceBackwardDescriptor(op.kind, whole, axes, first.element, **settings)
            made = remember(_calls, key, plan.select(descriptor, device=first.device))
        handle, out = streams.stream_handle(options["stream"], first, op.name), options["out"]
        if len(views) < len(names):
            missing = made.missing(views if out is None else views | {"dx": arrays.read(out, labels["dx"])}, "dx")
            raise InvalidProblem(f"{op.name}: {missing} is missing, wants {', '.join(names)}")
        if out is None:
            out = allocation.empty(first, whole, first.element, handle)
        made.execute([*views.values(), arrays.read(out, labels["dx"])], handle, options["workspace"])
        return out

    keywords = {"axis": NEEDED, "input_shape": None} | {name: _DEFAULTS[name] for name in op.traits["keywords"]}
    return function_of(op, call, {"dy": NEEDED, "x": None, "y": None}, keywords | CALL, _doc(op, _BACKWARD))


def _doc(op: Op, text: str) -> str:
    values = (BY_NAME[name].numpy_name for name in op.elements)
    return text.format(formula=op.formula, values=", ".join(values), notes=op.traits["notes"])


_REST = """Half types are accumulated in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. The shapes and
strides fix the order of every fold. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes. Calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, and ``Unsupported`` for dtypes that the op does not have and for more than 8 axes.
"""
_FORWARD = """{formula}

over the n elements along ``axis``: one axis, several, or None for all. ``x`` [any shape]; the result has extent 1 for every reduced axis, or, with
``keepdims=False``, lacks these axes. {notes}
""" + _REST  # fmt: skip
_BACKWARD = """{formula}

with ``x`` [any shape] the array that was reduced along ``axis``, ``y`` the result and ``dy`` the gradient of the result, both with reduced axes of
extent 1 or without them. Where x is not used, ``input_shape`` may be given in its place. {notes}
""" + _REST  # fmt: skip
