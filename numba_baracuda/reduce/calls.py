"""The functions that users call: they say which problem the arrays pose, and :mod:`..plans.calls` runs its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..arrays import arrays, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from ..core.op import Op
from ..core.options import flag, key_of, shape
from ..plans import plan
from ..plans.calls import Calls, Problem, Results
from ..plans.preference import PlanPreference
from ..plans.signatures import CALL, NEEDED, bound, dressed, function_of, signature_of
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor

FIELDS = {"dtype": "result"}  #: keyword -> field of the descriptor
#: defaults of the keywords that only some ops have
DEFAULTS = {"correction": 1, "ties": "all", "dtype": None}
_PREFERENCE = PlanPreference()


def with_ones(view: View, axes: tuple[int, ...]) -> View:
    """The view with the reduced axes as axes of extent 1."""
    shape, strides = list(view.shape), list(view.strides)
    for axis in axes:
        shape.insert(axis, 1)
        strides.insert(axis, 1)
    return view.seen_as(tuple(shape), tuple(strides))


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of the axes that are kept."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def forward_function(op: Op, made: Callable[..., ReduceDescriptor] = ReduceDescriptor) -> Callable[..., Any]:
    """``f(x, axis, keepdims=True)`` of a reduction; ``made`` makes its descriptors."""
    defaults = {name: DEFAULTS[name] for name in op.traits["keywords"]}
    signature = signature_of({"x": NEEDED, "axis": NEEDED, "keepdims": True}, defaults | CALL)

    def describe(views: list[View], sizes: tuple[int, ...], context: tuple[Any, bool, dict[str, Any]]) -> Problem:
        axis, _, named = context
        settings = {FIELDS.get(name, name): setting for name, setting in named.items()}
        return made(op.kind, views[0].shape, axis, views[0].element, **settings), _PREFERENCE

    def results(descriptor: ReduceDescriptor, views: list[View], context: tuple[Any, bool, dict[str, Any]]) -> Results:
        shape = descriptor.output_shape if context[1] else _without(views[0].shape, descriptor.axes)
        return ((shape, descriptor.result or views[0].element),)

    def operands(descriptor: ReduceDescriptor, views: list[View], context: tuple[Any, bool, dict[str, Any]]) -> list[View]:
        x, y = views
        if context[1]:
            return views
        wanted = _without(x.shape, descriptor.axes)
        if tuple(y.shape) != wanted:
            raise InvalidProblem(f"{op.name}: out has shape {list(y.shape)}, wants {list(wanted)} with keepdims=False")
        return [x, with_ones(y, descriptor.axes)]

    calls = Calls(op, ["x"], ["y"], describe, results, operands)

    def run(*given: Any, keepdims: Any = NEEDED, out: Any = None, stream: Any = None, workspace: Any = None, **settings: Any) -> Any:
        named, chosen = defaults, ()  # a short key, as it is hashed at each call
        if len(given) == 1 and "axis" in settings:
            given += (settings.pop("axis"),)
        elif len(given) == 3 and keepdims is NEEDED:
            given, keepdims = given[:-1], given[-1]
        if len(given) != 2 or (settings and not settings.keys() <= defaults.keys()):
            told = settings if keepdims is NEEDED else settings | {"keepdims": keepdims}
            (x, axis, keepdims), told = bound(op.name, signature, given, told)
            settings = {name: told[name] for name in defaults}
        else:
            x, axis = given
        if keepdims is not True and keepdims is not False:
            keepdims = keepdims is NEEDED or flag(op.name, "keepdims", keepdims)
        if settings:
            named = defaults | settings
            chosen = key_of(*named.values())
        key = axis if type(axis) is int else key_of(axis), keepdims, chosen
        return calls((x,), (), key, (axis, keepdims, named), None if out is None else (out,), stream, workspace)[0]

    return dressed(run, op, signature, _doc(op, _FORWARD))


def shape_of(op: Op, x: View | None, given: Any) -> tuple[int, ...]:
    """The shape of the array that was reduced, for its gradient: that of x, or ``input_shape``."""
    wanted = None if given is None else shape(op.name, "input_shape", given)
    if x is None and wanted is None:
        names = [operand.name for operand in op.operands[:-1]]
        missing, wants = ("x", ", ".join(names)) if "x" in names else ("input_shape", "the shape of the reduced array, or x")
        raise InvalidProblem(f"{op.name}: {missing} is missing, wants {wants}")
    if x is not None and wanted not in (None, tuple(x.shape)):
        raise InvalidProblem(f"{op.name}: input_shape is {list(wanted or ())}, wants {list(x.shape)}, which is that of x")
    return tuple(x.shape) if x is not None else wanted or ()


def backward_function(op: Op) -> Callable[..., Any]:
    """``f(dy, x, y, axis=…)`` of a gradient. Where x is not used, ``input_shape`` may be given instead."""
    names = [operand.name for operand in op.operands[:-1]]
    labels = {name: (op.name, name, "") for name in ("dy", "x", "y", "dx")}

    def describe(views: list[View], sizes: tuple[int, ...], options: dict[str, Any]) -> Problem:
        settings = {name: options[name] for name in op.traits["keywords"]}
        return ReduceBackwardDescriptor(op.kind, sizes, options["axis"], views[0].element, **settings), _PREFERENCE

    def results(descriptor: ReduceBackwardDescriptor, views: list[View], options: dict[str, Any]) -> Results:
        return ((descriptor.input_shape, views[0].element),)

    def operands(descriptor: ReduceBackwardDescriptor, views: list[View], options: dict[str, Any]) -> list[View]:
        axes, left = descriptor.axes, len(descriptor.input_shape) - len(descriptor.axes)
        return [with_ones(view, axes) if view.name in ("dy", "y") and len(view.shape) == left else view for view in views]

    calls = Calls(op, names, ["dx"], describe, results, operands)

    def refuse(views: list[View], whole: tuple[int, ...], options: dict[str, Any], out: Any, stream: Any) -> NoReturn:
        """Raises the error of a call that lacks operands."""
        descriptor, _ = describe(views, whole, options)
        made = plan.select(descriptor, device=views[0].device)
        streams.stream_handle(stream, views[0], op.name)
        given = views if out is None else [*views, arrays.read(out, labels["dx"])]
        missing = made.missing({view.name: view for view in operands(descriptor, given, options)}, "dx")
        raise InvalidProblem(f"{op.name}: {missing} is missing, wants {', '.join(names)}")

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any, out: Any, stream: Any, workspace: Any) -> Any:
        given = dict(zip(("dy", "x", "y"), arguments, strict=True))
        views = {name: arrays.read(given[name], labels[name]) for name in names if name == "dy" or given[name] is not None}
        x = views.get("x")
        whole = shape_of(op, x if x or given["x"] is None else arrays.read(given["x"], labels["x"]), options["input_shape"])
        inputs = list(views.values())
        if len(inputs) < len(names):
            refuse(inputs, whole, options, out, stream)
        return calls(tuple(inputs), whole, chosen, options, None if out is None else (out,), stream, workspace)[0]

    keywords = {"axis": NEEDED, "input_shape": None} | {name: DEFAULTS[name] for name in op.traits["keywords"]}
    return function_of(op, call, {"dy": NEEDED, "x": None, "y": None}, keywords, _doc(op, _BACKWARD))


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
extent 1 or without them. Where x is not used, ``input_shape`` may be given instead. {notes}
""" + _REST  # fmt: skip
