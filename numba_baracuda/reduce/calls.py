"""The functional form of the family: arrays become views, views a descriptor, and its plan is run."""

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

_calls: dict[Any, Any] = plan.memo()
_FIELDS = {"dtype": "result"}  #: keywords that descriptors call otherwise
_DEFAULTS = {"correction": 1, "ties": "all", "dtype": None}


def _with_ones(view: View, axes: tuple[int, ...]) -> View:
    """A view in which reduced axes are of extent 1."""
    shape, strides = list(view.shape), list(view.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 1)
    form = Form.of(tuple(shape), tuple(strides), view.element, view.device, view.kind, view.readonly)
    return view.seen_as(form)


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def forward_function(op: Op) -> Callable[..., Any]:
    """``f(x, axis, keepdims=True)`` of a reduction."""
    x_place, y_place = [(op.name, operand.name, "") for operand in op.operands]
    defaults = {name: _DEFAULTS[name] for name in op.traits["keywords"]}
    usual = key_of(*defaults.values())
    signature = signature_of({"x": NEEDED, "axis": NEEDED, "keepdims": True}, defaults | CALL)
    calls: dict[Any, tuple[plan.Plan, Bound]] = plan.memo()

    def planned(view: View, axis: Any, named: dict[str, Any], chosen: Any) -> plan.Plan:
        key = (op.name, view.form, chosen)
        made = _calls.get(key)
        if made is None:
            settings = {_FIELDS.get(name, name): setting for name, setting in named.items()}
            made = plan.select(ReduceDescriptor(op.kind, view.shape, axis, view.element, **settings), device=view.device)
            remember(_calls, key, made)
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
                signature.bind(x, axis, **settings)  # raises what names the first that is unknown
        chosen = (axis if type(axis) is int else key_of(axis), chosen)
        view = arrays.read(x, x_place)
        if out is None:
            made = planned(view, axis, named, chosen)
            wanted = made.descriptor.output_shape if keepdims else _without(view.shape, made.descriptor.axes)
            stream = streams.stream_handle(stream, view, op.name)
            out = allocation.empty(view, wanted, made.descriptor.result or view.element, stream)
        y = arrays.read(out, y_place)
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
    """``f(dy, x, y, axis=…)`` of a gradient; ``input_shape`` stands in for an x that is not wanted."""
    names = [operand.name for operand in op.operands[:-1]]
    places = {name: (op.name, name, "") for name in ("dy", "x", "y", "dx")}

    def shape_of(x: View | None, given: Any) -> tuple[int, ...]:
        """The shape of what was reduced: that of x, or what stands in for it."""
        wanted = None if given is None else shape(op.name, "input_shape", given)
        if x is None and wanted is None:
            missing, wants = ("x", ", ".join(names)) if "x" in names else ("input_shape", "the shape of the reduced array, or x")
            raise InvalidProblem(f"{op.name}: {missing} is missing, wants {wants}")
        if x is not None and wanted not in (None, tuple(x.shape)):
            raise InvalidProblem(f"{op.name}: input_shape is {list(wanted or ())}, wants {list(x.shape)}, which is that of x")
        return tuple(x.shape) if x is not None else wanted or ()

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        given = dict(zip(("dy", "x", "y"), arguments, strict=True))
        views = {name: arrays.read(given[name], places[name]) for name in names if name == "dy" or given[name] is not None}
        first, x = views["dy"], views.get("x")
        whole = shape_of(x if x or given["x"] is None else arrays.read(given["x"], places["x"]), options["input_shape"])
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
            missing = made.missing(views if out is None else views | {"dx": arrays.read(out, places["dx"])}, "dx")
            raise InvalidProblem(f"{op.name}: {missing} is missing, wants {', '.join(names)}")
        if out is None:
            out = allocation.empty(first, whole, first.element, handle)
        made.execute([*views.values(), arrays.read(out, places["dx"])], handle, options["workspace"])
        return out

    keywords = {"axis": NEEDED, "input_shape": None} | {name: _DEFAULTS[name] for name in op.traits["keywords"]}
    return function_of(op, call, {"dy": NEEDED, "x": None, "y": None}, keywords | CALL, _doc(op, _BACKWARD))


def _doc(op: Op, text: str) -> str:
    values = (BY_NAME[name].numpy_name for name in op.elements)
    return text.format(formula=op.formula, values=", ".join(values), notes=op.traits["notes"])


_REST = """Halves are kept in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. The order of every fold
is fixed by shape and strides. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have and more than 8 axes.
"""
_FORWARD = """{formula}

over the n elements along ``axis``: a number, several, or None for all axes. ``x`` [any shape]; the result has 1 for every reduced axis, or with
``keepdims=False`` lacks them. {notes}
""" + _REST  # fmt: skip
_BACKWARD = """{formula}

with ``x`` [any shape] as the reduction was given it, ``y`` its result and ``dy`` the result's gradient, both with reduced axes of extent 1 or without
them. ``axis`` is that of the reduction; where x is not wanted ``input_shape`` may stand in for it. {notes}
""" + _REST  # fmt: skip
