"""The functional form of the family: arrays become views, views a descriptor, and its plan is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import allocation, arrays, plan, streams
from ..dtypes import BY_NAME
from ..op import Op
from ..views import remember
from .descriptor import ScanDescriptor

_calls: dict[Any, Any] = {}


def forward_function(op: Op) -> Callable[..., Any]:
    """``f(x, axis=-1)`` of a scan."""
    x_place, y_place = [(op.name, operand.name, "") for operand in op.operands]

    def run(
        x: Any,
        axis: int = -1,
        *,
        reverse: bool = False,
        exclusive: bool = False,
        initial: float | None = None,
        out: Any = None,
        stream: Any = None,
        workspace: Any = None,
    ) -> Any:
        view = arrays.read(x, x_place)
        key = (op.name, view.form, axis, reverse, exclusive, initial)
        made = _calls.get(key)
        if made is None:
            descriptor = ScanDescriptor(op.kind, view.shape, axis, reverse, view.element, exclusive, initial)
            made = remember(_calls, key, plan.select(descriptor, device=view.device))
        if out is None:
            stream = streams.stream_handle(stream, view)
            out = allocation.empty(view, tuple(view.shape), view.element, stream)
        made.execute([view, arrays.read(out, y_place)], stream, workspace)
        return out

    run.__name__ = run.__qualname__ = op.name
    run.__module__ = "numba_baracuda.scan"
    run.__doc__ = _FORWARD.format(formula=op.formula, values=", ".join(BY_NAME[name].numpy_name for name in op.elements), notes=op.traits["notes"])
    return run


_FORWARD = """{formula}

over the elements along ``axis`` up to the i-th, in the order of the axis or with ``reverse=True`` from its end; ``exclusive=True`` leaves the i-th
out, ``initial`` stands before the first. ``x`` [any shape]; the result has its shape. {notes}

Halves are kept in float32 and rounded once. Operands may be strided views of up to 8 axes. Values: {values}. The order of every fold is fixed by
shape and strides. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes; calls never wait.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have and more than 8 axes.
"""
