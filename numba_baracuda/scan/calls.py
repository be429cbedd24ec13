"""The functional form of the family: arrays become views, views a descriptor, and its plan is run."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from .. import allocation, arrays, plan, streams
from ..dtypes import BY_NAME, element
from ..errors import InvalidProblem
from ..op import Op
from ..plan import PlanPreference
from ..views import remember
from .descriptor import ScanBackwardDescriptor, ScanDescriptor

_calls: dict[Any, plan.Plan] = {}
_OPTIONS = {"reverse": False, "exclusive": False, "initial": None, "deterministic": True}
_PLACED = {"return_indices": False, "index_dtype": "int64"}
_CALL = {"out": None, "stream": None, "workspace": None}


def _plan_of(op: Op, made: Any, view: Any, axis: Any, options: dict[str, Any], index: str = "") -> plan.Plan:
    """The plan for arrays of this view's shape and dtype."""
    reverse, exclusive, initial, deterministic = (options[name] for name in _OPTIONS)
    key = (op.name, view.shape, view.element, view.device, axis, reverse, exclusive, initial, deterministic, index)
    found = None
    with contextlib.suppress(TypeError):  # what has no hash is no option either, as the descriptor says
        found = _calls.get(key)
    if found is None:
        descriptor = made(op.kind, view.shape, axis, reverse, view.element, exclusive, initial, index)
        preference = PlanPreference(deterministic=deterministic)
        found = remember(_calls, key, plan.select(descriptor, preference, device=view.device))
    return found


def forward_function(op: Op) -> Callable[..., Any]:
    """``f(x, axis=-1)`` of a scan."""
    x_place, y_place, indices_place = [(op.name, name, "") for name in ("x", "y", "indices")]

    def call(x: Any, axis: Any, options: dict[str, Any]) -> Any:
        view, given = arrays.read(x, x_place), options["out"]
        index = element(options["index_dtype"]).name if options.get("return_indices") else ""
        made = _plan_of(op, ScanDescriptor, view, axis, options, index)
        stream = streams.stream_handle(options["stream"], view)
        if given is None:
            out = tuple(allocation.empty(view, tuple(view.shape), each, stream) for each in filter(None, (view.element, index)))
        else:
            out = tuple(given) if index and isinstance(given, tuple | list) else (given,)
        if len(out) != 1 + bool(index):
            raise InvalidProblem(f"{op.name}: out is {len(out)} array, wants a pair of values and indices")
        views = [arrays.read(each, place) for each, place in zip(out, (y_place, indices_place), strict=False)]
        made.execute([view, *views], stream, options["workspace"])
        return given if given is not None else out if index else out[0]

    return _function(op, call, ("x",), _OPTIONS | (_PLACED if op.traits["placed"] else {}))


def backward_function(op: Op) -> Callable[..., Any]:
    """``f(dy, x, y, axis=-1)`` of a gradient, with the operands that it wants."""
    names = tuple(operand.name for operand in op.operands[:-1])
    places = [(op.name, operand.name, "") for operand in op.operands]

    def call(*given: Any) -> Any:
        *saved, axis, options = given
        views = [arrays.read(each, place) for each, place in zip(saved, places, strict=False)]
        first = views[0]
        made = _plan_of(op, ScanBackwardDescriptor, first, axis, options)
        stream, out = streams.stream_handle(options["stream"], first), options["out"]
        if out is None:
            out = allocation.empty(first, tuple(first.shape), first.element, stream)
        made.execute([*views, arrays.read(out, places[-1])], stream, options["workspace"])
        return out

    return _function(op, call, names, _OPTIONS)


def _function(op: Op, call: Callable[..., Any], names: tuple[str, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """A function with a signature of its own: operands and the axis by position, then the keywords."""
    plain, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    keywords = options | _CALL
    parameters = [inspect.Parameter(name, plain) for name in names] + [inspect.Parameter("axis", plain, default=-1)]
    parameters += [inspect.Parameter(name, named, default=default) for name, default in keywords.items()]
    signature, known, operands = inspect.Signature(parameters), keywords.keys(), len(names)

    def run(*given: Any, **more: Any) -> Any:
        if len(given) == operands and more.keys() <= known:
            given += (-1,)
        if len(given) != operands + 1 or not more.keys() <= known:
            bound = signature.bind(*given, **more)
            bound.apply_defaults()
            given, more = bound.args, bound.kwargs
        return call(*given, {**keywords, **more})

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = op.name
    run.__module__ = "numba_baracuda.scan"
    run.__doc__ = (_BACKWARD if op.traits["backward"] else _FORWARD).format(
        formula=op.formula, values=", ".join(BY_NAME[name].numpy_name for name in op.elements), notes=op.traits["notes"], wants=", ".join(names)
    )
    return run


_REST = """Halves are kept in float32 and rounded once. Any operand may be a strided view of up to 8 axes. Values: {values}. The order of every fold
is fixed by shape and strides; ``deterministic=False`` lets long rows be joined in the order in which their parts are done. ``out=`` takes the result,
``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

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
