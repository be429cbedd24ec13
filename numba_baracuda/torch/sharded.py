"""Gradients of reductions, sums along an axis and reductions of segments whose operands are divided among processes.

Every rank has the same result, so every rank has the same gradient of it, and computes that of its own part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import distributed
from ..core.errors import Unsupported
from ..core.registry import function
from ..distributed import communicator
from ..distributed.axis import FUNCTIONS as AXIS
from ..distributed.rows import FUNCTIONS as ROWS


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


def _of_segments(name: str, x: Any, ids: Any, y: Any, dy: Any, group: Any) -> Any:
    """The gradient of a reduction of segments, of which every row needs only its own input, the result and the count of its segment."""
    if name.endswith(("_sum", "_mean")):
        if name.endswith("_mean"):
            ones = torch.ones(ids.shape, dtype=torch.float32, device=x.device)
            counts = _call("unsorted_segment_sum", ones, ids, dy.shape[0], group=group).clamp(min=1)
            dy = (dy / counts.reshape(-1, *[1] * (dy.dim() - 1))).to(dy.dtype)
        return function("unsorted_segment_sum_backward")(dy.contiguous(), ids)
    return function(f"{name}_backward")(dy.contiguous(), x, y, ids)


def _whole(part: Any, segments: int, group: Any, sharded: bool) -> Any:
    """The segments of all ranks from those of each."""
    if not sharded:
        return part
    comm = communicator("all_gather", group)
    most = -(-segments // comm.size)
    padded = part.new_zeros(most, *part.shape[1:])
    padded[: part.shape[0]] = part
    stream = torch.cuda.current_stream(part.device).cuda_stream if part.is_cuda else 0
    return comm.all_gather(padded, stream).wait().reshape(comm.size * most, *part.shape[1:])[:segments]


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


def _of_dtensors(run: Callable[..., Any], x: Any, ids: Any, segments: int, result: str = "replicated", **options: Any) -> Any:
    """A reduction of segments whose rows are a ``DTensor`` that is placed ``Shard(0)``, as are the ids; the result is placed as ``result`` says."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    for given in (x, ids):
        if type(given).__name__ != "DTensor" or tuple(given.placements) != (Shard(0),) or given.device_mesh != x.device_mesh:
            raise Unsupported(f"{run.__name__}: input and segment_ids are not both DTensors of one mesh that are placed Shard(0), which it wants")
    mesh = x.device_mesh
    made = run(x.to_local(grad_placements=[Shard(0)]), ids.to_local(), segments, group=mesh, result=result, **options)
    shape = torch.Size((segments, *made.shape[1:]))
    stride = tuple(torch.empty(shape, device="meta").stride())
    placement = Shard(0) if result == "sharded" else Replicate()
    return DTensor.from_local(made, mesh, [placement], run_check=False, shape=shape, stride=stride)


def _function(name: str) -> Callable[..., Any]:
    """The differentiable function of an op of :mod:`numba_baracuda.distributed`."""
    plain = getattr(distributed, name)

    def gradient(x: Any, y: Any, dy: Any, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        group = options["group"]
        if name in _OF_AXES:
            return _OF_AXES[name](_Axis(x, y, dy, given[0], group, options.get("correction", 1)))
        if name == "cumsum":
            return plain(dy.contiguous(), *given, **options | {"reverse": not options.get("reverse", False)})
        sharded, segments = options.get("result") == "sharded", given[1]
        return _of_segments(name, x, given[0], _whole(y, segments, group, sharded), _whole(dy, segments, group, sharded), group)

    def run(x: Any, *given: Any, **options: Any) -> Any:
        if name in ROWS and type(x).__name__ == "DTensor":
            return _of_dtensors(run, x, *given, **options)
        if not (torch.is_grad_enabled() and x.requires_grad):
            return plain(x, *given, **options)
        if name not in DIFFERENTIABLE:
            raise Unsupported(f"distributed.{name} has no gradient; wants a tensor that requires none, or one of {', '.join(DIFFERENTIABLE)}")
        return _Sharded.apply(x, lambda x: plain(x, *given, **options), lambda x, y, dy: gradient(x, y, dy, given, options))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{plain.__doc__}\nDifferentiable once.\n" if name in DIFFERENTIABLE else plain.__doc__
    return run


DIFFERENTIABLE = (*_OF_AXES, "cumsum", *(f"unsorted_segment_{stem}" for stem in ("sum", "mean", "logsumexp", "norm2")))
FUNCTIONS = {name: _function(name) for name in (*AXIS, *ROWS)}
