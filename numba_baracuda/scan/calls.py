"""The functional form of the family: arrays become views, views a descriptor, and its plan is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays import allocation, arrays, streams
from ..arrays.views import remember
from ..core.dtypes import BY_NAME, element
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Op
from ..core.options import flag, key_of
from ..plans import plan
from ..plans.preference import PlanPreference
from ..plans.signatures import CALL, NEEDED, function_of
from .descriptor import ScanBackwardDescriptor, ScanDescriptor

_OPTIONS = {"reverse": False, "exclusive": False, "initial": None, "deterministic": True}
_PLACED = {"return_indices": False, "index_dtype": "int64"}
_WIDENED = {"dtype": None}


def _plan_of(
    plans: dict[Any, plan.Plan], op: Op, made: Callable[..., ScanDescriptor], view: Any, axis: Any, options: dict[str, Any], chosen: Any
) -> plan.Plan:
    """The plan for arrays of this view's shape and dtype, of ``plans`` if it is there; ``chosen`` is a key of the options."""
    key = (view.shape, view.element, view.device, axis if type(axis) is int else key_of(axis), chosen)
    found = plans.get(key)
    if found is None:
        reverse, exclusive, initial, deterministic = (options.get(name, default) for name, default in _OPTIONS.items())
        index = _index(op, options) if "return_indices" in options else ""
        descriptor = made(op.kind, view.shape, axis, reverse, view.element, exclusive, initial, index, options.get("dtype"))
        preference = PlanPreference(deterministic=flag(op.name, "deterministic", deterministic))
        found = remember(plans, key, plan.select(descriptor, preference, device=view.device))
    return found


def _index(op: Op, options: dict[str, Any]) -> str:
    """The dtype of a second result, "" without one."""
    wanted = element(options["index_dtype"], op.name, "index_dtype").name
    if wanted not in op.indices:
        raise Unsupported(f"{op.name}: index is {wanted}, wants one of {', '.join(op.indices)} as index_dtype")
    return wanted if flag(op.name, "return_indices", options["return_indices"]) else ""


def forward_function(op: Op, describe: Callable[..., ScanDescriptor] = ScanDescriptor) -> Callable[..., Any]:
    """``f(x, axis=-1)`` of a scan; ``describe`` makes its descriptors."""
    x_place, y_place, indices_place = [(op.name, name, "") for name in ("x", "y", "indices")]
    plans: dict[Any, plan.Plan] = {}

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        x, axis = arguments
        view, given = arrays.read(x, x_place), options["out"]
        made = _plan_of(plans, op, describe, view, axis, options, chosen)
        index, stream = made.descriptor.index, streams.stream_handle(options["stream"], view, op.name)
        if given is None:
            out = tuple(allocation.empty(view, tuple(view.shape), each, stream) for each in filter(None, (made.descriptor.result, index)))
        else:
            out = tuple(given) if index and isinstance(given, tuple | list) else (given,)
        if len(out) != 1 + bool(index):
            raise InvalidProblem(f"{op.name}: out is {len(out)} array, wants a pair of values and indices")
        views = [arrays.read(each, place) for each, place in zip(out, (y_place, indices_place), strict=False)]
        made.execute([view, *views], stream, options["workspace"])
        return given if given is not None else out if index else out[0]

    options: dict[str, Any] = {name: _OPTIONS[name] for name in op.traits.get("keywords", _OPTIONS)}
    options |= (_PLACED if op.traits["placed"] else {}) | (_WIDENED if op.traits["widened"] else {})
    return function_of(op, call, {"x": NEEDED, "axis": -1}, options | CALL, _doc(op, _FORWARD))


def backward_function(op: Op) -> Callable[..., Any]:
    """``f(dy, x, y, axis=-1)`` of a gradient, with the operands that it wants."""
    places = [(op.name, operand.name, "") for operand in op.operands]
    plans: dict[Any, plan.Plan] = {}

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        *saved, axis = arguments
        views = [arrays.read(each, place) for each, place in zip(saved, places, strict=False)]
        first = views[0]
        made = _plan_of(plans, op, ScanBackwardDescriptor, first, axis, options, chosen)
        stream, out = streams.stream_handle(options["stream"], first, op.name), options["out"]
        if out is None:
            out = allocation.empty(first, tuple(first.shape), first.element, stream)
        made.execute([*views, arrays.read(out, places[-1])], stream, options["workspace"])
        return out

    return function_of(op, call, {operand.name: NEEDED for operand in op.operands[:-1]} | {"axis": -1}, _OPTIONS | CALL, _doc(op, _BACKWARD))


def _doc(op: Op, text: str) -> str:
    values, wants = (BY_NAME[name].numpy_name for name in op.elements), (operand.name for operand in op.operands if not operand.output)
    return text.format(formula=op.formula, values=", ".join(values), notes=op.traits["notes"], wants=", ".join(wants))


_REST = """Halves are kept in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. The order of every fold
is fixed by shape and strides; ``deterministic=False`` lets long rows and columns be joined in the order in which their parts are done. ``out=``
takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have and more than 8 axes.
"""
_FORWARD = """{formula}

over the elements up to the i-th along ``axis``, or with ``reverse=True`` from the i-th to the last; ``exclusive=True`` leaves the i-th out, and
``initial`` stands before the first. ``x`` [any shape]; the result has its shape. {notes}

""" + _REST  # fmt: skip
_BACKWARD = """{formula}

over the i whose result the element at j is part of: those from j on along ``axis``, or with ``reverse=True`` up to it. ``x`` is what the scan was
given, ``y`` its result and ``dy`` the result's gradient; ``axis``, ``reverse``, ``exclusive`` and ``initial`` are those of the scan. Wants {wants}
[any shape]; the result has their shape. {notes}

""" + _REST  # fmt: skip
