"""Gradients of reductions, scans and ops of segments whose operands are divided among processes.

Every rank has the same result, so every rank has the same gradient of it, and computes that of its own part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .. import distributed
from ..core.errors import Unsupported
from ..core.op import Op
from ..core.registry import OPS, function
from ..distributed import communicator
from ..distributed.axis import FUNCTIONS as AXIS
from ..distributed.axis import SCANS
from ..distributed.rows import FUNCTIONS as ROWS
from ..plans.signatures import bound, dressed
from .sharded_scans import gathered
from .sharded_scans import gradient as scanned


def _call(name: str, *given: Any, **options: Any) -> Any:
    return getattr(distributed, name)(*given, **options)


class _Axis:
    """A reduction whose gradient is wanted: its input and result, with reduced axes of extent 1, and the group."""

    def __init__(self, x: Any, y: Any, dy: Any, axis: Any, group: Any, correction: float) -> None:
        axes = tuple(range(x.dim())) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.axes = sorted(each % max(x.dim(), 1) for each in axes)
        shape = [1 if k in self.axes else extent for k, extent in enumerate(x.shape)]
        self.x, self.y, self.dy, self.group, self.correction = x, y.reshape(shape), dy.reshape(shape), group, correction

    def sum(self, each: Any) -> Any:
        """The sum over all ranks."""
        return _call("reduce_sum", each.contiguous(), tuple(self.axes), group=self.group)

    def local(self, name: str) -> Any:
        """The gradient by the op of one process, of which every element needs only its own input and the result."""
        return function(f"{name}_backward")(self.dy, self.x, self.y, axis=tuple(self.axes))

    def centred(self) -> tuple[Any, Any]:
        """x − mean in float32 at least, and the count less the correction."""
        wide = self.x.to(torch.promote_types(self.x.dtype, torch.float32))
        count = self.sum(torch.ones_like(wide))
        return wide - self.sum(wide) / count, (count - self.correction).clamp(min=0)


def _spread(b: _Axis, dy: Any) -> Any:
    return dy.expand(b.x.shape).to(b.x.dtype)


def _tied(b: _Axis) -> Any:
    tied = ((b.x == b.y) | (b.x.isnan() & b.y.isnan())).float()
    return (tied * (b.dy / b.sum(tied))).to(b.x.dtype)


def _var(b: _Axis) -> Any:
    centred, count = b.centred()
    return torch.where(count > 0, b.dy * 2 * centred / count, 0).to(b.x.dtype)


def _std(b: _Axis) -> Any:
    centred, count = b.centred()
    return torch.where((count > 0) & (b.y != 0), b.dy * centred / (count * b.y), 0).to(b.x.dtype)


#: reduction -> its gradient; ties of extremes get equal shares
_OF_AXES: dict[str, Callable[[_Axis], Any]] = {
    "reduce_sum": lambda b: _spread(b, b.dy),
    "reduce_mean": lambda b: _spread(b, b.dy / b.sum(torch.ones_like(b.x, dtype=torch.float32))),
    "reduce_max": _tied,
    "reduce_min": _tied,
    "reduce_norm2": lambda b: b.local("reduce_norm2"),
    "reduce_logsumexp": lambda b: b.local("reduce_logsumexp"),
    "reduce_var": _var,
    "reduce_std": _std,
}


def _of_segments(op: Op, x: Any, y: Any, dy: Any, options: dict[str, Any], ids: Any, segments: int) -> Any:
    """The gradient of an op of segments; results of which ranks have parts are gathered where it reads them."""
    back, given, sharded = OPS[op.backward or ""], {"input": x, "output": y, "d_output": dy, "segment_ids": ids}, options.get("result") == "sharded"
    by_segment = {operand.name for operand in back.operands if operand.axes[0] == "num_segments"}
    wholes = [_whole(given[each.name], segments, options["group"], sharded and each.name in by_segment) for each in back.operands[:-1]]
    chosen = {name: options[name] for name in ("group", *back.traits["keywords"]) if name in options}
    return _call(back.name, *[each.contiguous() for each in wholes], *([] if by_segment else [segments]), **chosen)


def _whole(part: Any, segments: int, group: Any, sharded: bool) -> Any:
    """The segments of all ranks from those of each."""
    if not sharded:
        return part
    comm = communicator("all_gather", group)
    most = -(-segments // comm.size)
    padded = part.new_zeros(most, *part.shape[1:])
    padded[: part.shape[0]] = part
    return gathered(comm, padded).reshape(comm.size * most, *part.shape[1:])[:segments]


class _Sharded(torch.autograd.Function):  # type: ignore[misc]
    """An op with the gradient that ``gradient(x, y, dy)`` computes."""

    @staticmethod
    def forward(ctx: Any, x: Any, run: Callable[[Any], Any], gradient: Callable[[Any, Any, Any], Any]) -> Any:
        ctx.gradient = gradient
        y = run(x.detach())
        ctx.save_for_backward(x, y)
        if not y.is_floating_point():
            ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, None, None]:
        with torch.no_grad():
            return ctx.gradient(*ctx.saved_tensors, dy), None, None


def _of_dtensors(run: Callable[..., Any], x: Any, ids: Any, segments: int, **options: Any) -> Any:
    """An op of segments whose rows are a ``DTensor`` placed ``Shard(0)``, as are the ids; a result of rows is, too, others as ``result`` says."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    for given in (x, ids):
        if type(given).__name__ != "DTensor" or tuple(given.placements) != (Shard(0),) or given.device_mesh != x.device_mesh:
            raise Unsupported(f"{run.__name__}: input and segment_ids are not both DTensors of one mesh that are placed Shard(0), which it wants")
    mesh = x.device_mesh
    made = run(x.to_local(grad_placements=[Shard(0)]), ids.to_local(), segments, **options | {"group": mesh})
    shape = torch.Size((segments if "result" in options else x.shape[0], *made.shape[1:]))
    stride = tuple(torch.empty(shape, device="meta").stride())
    placement = Replicate() if options.get("result") == "replicated" else Shard(0)
    return DTensor.from_local(made, mesh, [placement], run_check=False, shape=shape, stride=stride)


def _function(name: str) -> Callable[..., Any]:
    """The differentiable function of an op of :mod:`numba_baracuda.distributed`."""
    plain, op = getattr(distributed, name), OPS[name]
    signature = inspect.signature(plain)

    def gradient(x: Any, y: Any, dy: Any, given: list[Any], options: dict[str, Any]) -> Any:
        if name in _OF_AXES:
            return _OF_AXES[name](_Axis(x, y, dy, given[0], options["group"], options.get("correction", 1)))
        return scanned(name, x, dy, *given, **options) if name in SCANS else _of_segments(op, x, y, dy, options, *given)

    def run(*given: Any, **options: Any) -> Any:
        sharded = name in ROWS and type(given[0] if given else options.get("input")).__name__ == "DTensor"
        (x, *others), options = bound(name, signature, given, {"group": None} | options if sharded else options)
        if sharded:
            return _of_dtensors(run, x, *others, **options)
        if not (torch.is_grad_enabled() and x.requires_grad and op.backward):
            return plain(x.detach(), *others, **options)
        if name not in DIFFERENTIABLE:
            raise Unsupported(f"distributed.{name} has no gradient; wants a tensor that requires none, or one of {', '.join(DIFFERENTIABLE)}")
        return _Sharded.apply(x, lambda x: plain(x, *others, **options), lambda x, y, dy: gradient(x, y, dy, others, options))

    doc = f"{plain.__doc__}\nDifferentiable once.\n" if name in DIFFERENTIABLE else plain.__doc__
    made = dressed(run, op, signature, doc)
    made.__module__ = __name__
    return made


_FORWARD = [name for name in ROWS if not OPS[name].traits["backward"]]
DIFFERENTIABLE = (*_OF_AXES, *SCANS, *(name for name in _FORWARD if OPS[name].backward))
FUNCTIONS = {name: _function(name) for name in (*AXIS, *_FORWARD)}
