"""The functions that users call: they turn arrays into views and a descriptor, and run its plan."""

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
_INDEXED = {"return_indices": False, "index_dtype": "int64"}
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
    """The dtype of indices, "" without them."""
    wanted = element(options["index_dtype"], op.name, "index_dtype").name
    if wanted not in op.indices:
        raise Unsupported(f"{op.name}: index is {wanted}, wants one of {', '.join(op.indices)} as index_dtype")
    return wanted if flag(op.name, "return_indices", options["return_indices"]) else ""


def forward_function(op: Op, describe: Callable[..., ScanDescriptor] = ScanDescriptor) -> Callable[..., Any]:
    """The function ``f(x, axis=-1)`` of a scan; ``describe`` makes its descriptors."""
    x_name, y_name, indices_name = [(op.name, name, "") for name in ("x", "y", "indices")]
    plans: dict[Any, plan.Plan] = plan.memo()

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        x, axis = arguments
        view, given = arrays.read(x, x_name), options["out"]
        made = _plan_of(plans, op, describe, view, axis, options, chosen)
        index, stream = made.descriptor.index, streams.stream_handle(options["stream"], view, op.name)
        if given is None:
            out = tuple(allocation.empty(view, tuple(view.shape), each, stream) for each in filter(None, (made.descriptor.result, index)))
        else:
            out = tuple(given) if index and isinstance(given, tuple | list) else (given,)
        if len(out) != 1 + bool(index):
            raise InvalidProblem(f"{op.name}: out is {len(out)} array, wants a pair of values and indices")
        views = [arrays.read(each, name) for each, name in zip(out, (y_name, indices_name), strict=False)]
        made.execute([view, *views], stream, options["workspace"])
        return given if given is not None else out if index else out[0]

    options: dict[str, Any] = {name: _OPTIONS[name] for name in op.traits.get("keywords", _OPTIONS)}
    options |= (_INDEXED if op.traits["has_indices"] else {}) | (_WIDENED if op.traits["widened"] else {})
    return function_of(op, call, {"x": NEEDED, "axis": -1}, options | CALL, _doc(op, _FORWARD))


def backward_function(op: Op) -> Callable[..., Any]:
    """The function ``f(dy, x, y, axis=-1)`` of a gradient; it takes the operands that the gradient wants."""
    names = [(op.name, operand.name, "") for operand in op.operands]
    plans: dict[Any, plan.Plan] = plan.memo()

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any) -> Any:
        *saved, axis = arguments
        views = [arrays.read(each, name) for each, name in zip(saved, names, strict=False)]
        first = views[0]
        made = _plan_of(plans, op, ScanBackwardDescriptor, first, axis, options, chosen)
        stream, out = streams.stream_handle(options["stream"], first, op.name), options["out"]
        if out is None:
            out = allocation.empty(first, tuple(first.shape), first.element, stream)
        made.execute([*views, arrays.read(out, names[-1])], stream, options["workspace"])
        return out

    return function_of(op, call, {operand.name: NEEDED for operand in op.operands[:-1]} | {"axis": -1}, _OPTIONS | CALL, _doc(op, _BACKWARD))


def _doc(op: Op, text: str) -> str:
    values, wants = (BY_NAME[name].numpy_name for name in op.elements), (operand.name for operand in op.operands if not operand.output)
    return text.format(formula=op.formula, values=", ".join(values), notes=op.traits["notes"], wants=", ".join(wants))


_REST = """Halves are accumulated in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. Shapes and strides
fix the order of every fold; with ``deterministic=False``, blocks that share a long row or column combine their tiles in the order in which these
are done. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have and for more than 8 axes.
"""
_FORWARD = """{formula}

over the elements j ≤ i along ``axis``, with ``reverse=True`` over j ≥ i. ``exclusive=True`` leaves element i out, and ``initial`` stands before the
first element. ``x`` [any shape]; the result has its shape. {notes}

""" + _REST  # fmt: skip
_BACKWARD = """{formula}

over the results i that element j is part of: i ≥ j along ``axis``, with ``reverse=True`` i ≤ j. ``x`` is the input of the scan, ``y`` its result and
``dy`` the gradient of that; ``axis``, ``reverse``, ``exclusive`` and ``initial`` are those of the scan. Wants {wants} [any shape]; the result has
their shape. {notes}

""" + _REST  # fmt: skip
