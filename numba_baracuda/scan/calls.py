"""The functions that users call: they say which problem the arrays pose, and :mod:`..plans.calls` runs its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.views import View
from ..core.dtypes import BY_NAME, element
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.options import flag, key_of
from ..plans.calls import Calls, Problem, Results
from ..plans.preference import PlanPreference
from ..plans.signatures import NEEDED, function_of
from .descriptor import ScanBackwardDescriptor, ScanDescriptor

_OPTIONS = {"reverse": False, "exclusive": False, "initial": None, "deterministic": True}
_INDEXED = {"return_indices": False, "index_dtype": "int64"}
_WIDENED = {"dtype": None}


def _index(op: Op, options: dict[str, Any]) -> str:
    """The dtype of indices, "" without them."""
    wanted = element(options["index_dtype"], op.name, "index_dtype").name
    if wanted not in op.indices:
        raise Unsupported(f"{op.name}: index is {wanted}, wants one of {', '.join(op.indices)} as index_dtype")
    return wanted if flag(op.name, "return_indices", options["return_indices"]) else ""


def _calls(op: Op, made: Any, outputs: list[str]) -> Calls:
    """The calls of an op, with descriptors by ``made``."""

    def describe(views: list[View], sizes: tuple[int, ...], context: tuple[Any, dict[str, Any]]) -> Problem:
        axis, options = context
        reverse, exclusive, initial, deterministic = (options.get(name, default) for name, default in _OPTIONS.items())
        index = _index(op, options) if "return_indices" in options else ""
        descriptor = made(op.kind, views[0].shape, axis, reverse, views[0].element, exclusive, initial, index, options.get("dtype"))
        return descriptor, PlanPreference(deterministic=flag(op.name, "deterministic", deterministic))

    def results(descriptor: ScanDescriptor, views: list[View], context: Any) -> Results:
        return tuple((tuple(views[0].shape), each) for each in (descriptor.result, descriptor.index) if each)

    return Calls(op, [operand.name for operand in op.operands if not operand.output], outputs, describe, results)


def forward_function(op: Op, made: Callable[..., ScanDescriptor] = ScanDescriptor) -> Callable[..., Any]:
    """The function ``f(x, axis=-1)`` of a scan; ``made`` makes its descriptors."""
    calls, indexed = _calls(op, made, ["y", "indices"]), op.traits["has_indices"]

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any, out: Any, stream: Any, workspace: Any) -> Any:
        x, axis = arguments
        both = indexed and isinstance(options["return_indices"], bool | np.bool_) and bool(options["return_indices"])  # the descriptor refuses others
        outs = None if out is None else tuple(out) if both and isinstance(out, tuple | list) else (out,)
        key = axis if type(axis) is int else key_of(axis), chosen
        found = calls((x,), (), key, (axis, options), outs, stream, workspace)
        return out if out is not None else found if both else found[0]

    options: dict[str, Any] = {name: _OPTIONS[name] for name in op.traits.get("keywords", _OPTIONS)}
    options |= (_INDEXED if op.traits["has_indices"] else {}) | (_WIDENED if op.traits["widened"] else {})
    return function_of(op, call, {"x": NEEDED, "axis": -1}, options, _doc(op, _FORWARD))


def backward_function(op: Op) -> Callable[..., Any]:
    """``f(dy, x, y, axis=-1)`` of a gradient, with the operands that the op has."""
    calls = _calls(op, ScanBackwardDescriptor, [op.operands[-1].name])

    def call(arguments: tuple[Any, ...], options: dict[str, Any], chosen: Any, out: Any, stream: Any, workspace: Any) -> Any:
        *saved, axis = arguments
        key = axis if type(axis) is int else key_of(axis), chosen
        return calls(tuple(saved), (), key, (axis, options), None if out is None else (out,), stream, workspace)[0]

    return function_of(op, call, {operand.name: NEEDED for operand in op.operands[:-1]} | {"axis": -1}, _OPTIONS, _doc(op, _BACKWARD))


def _doc(op: Op, text: str) -> str:
    values, wants = (BY_NAME[name].numpy_name for name in op.elements), (operand.name for operand in op.operands if not operand.output)
    return text.format(formula=op.formula, values=", ".join(values), notes=op.traits["notes"], wants=", ".join(wants))


_REST = """Halves are accumulated in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. Shapes and strides
fix the order of every fold; with ``deterministic=False``, blocks that share a long row or column combine the aggregates of tiles in the order in
which they are ready. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have and for more than 8 axes.
"""
_FORWARD = """{formula}

over the elements j ≤ i along ``axis``, with ``reverse=True`` over j ≥ i. ``exclusive=True`` leaves element i out, and ``initial`` is the value
before the first element. ``x`` [any shape]; the result has its shape. {notes}

""" + _REST  # fmt: skip
_BACKWARD = """{formula}

over the results i that element j is part of: i ≥ j along ``axis``, with ``reverse=True`` i ≤ j. ``x`` is the input of the scan, ``y`` its result and
``dy`` the gradient of that; ``axis``, ``reverse``, ``exclusive`` and ``initial`` are those of the scan. Wants {wants} [any shape]; the result has
their shape. {notes}

""" + _REST  # fmt: skip
