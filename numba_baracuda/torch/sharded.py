"""Differentiable reductions, scans and ops of segments whose operands are divided among processes.

Every rank has the same result, so every rank has the same gradient of it, and computes that of its own part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .. import distributed
from ..core.errors import Unsupported
from ..core.registry import OPS
from ..distributed.axis import FUNCTIONS as AXIS
from ..distributed.rows import FUNCTIONS as ROWS
from ..plans.signatures import bound, dressed
from ..segment.descriptor import OrderedIds
from .sharded_gradients import Call, differentiable


class _Local(torch.autograd.Function):  # type: ignore[misc]
    """The local part of a DTensor. Its gradient is placed like the DTensor and has a gradient, too; that of ``to_local`` has none in older torch."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.layout = {"device_mesh": x.device_mesh, "placements": x.placements, "shape": x.shape, "stride": x.stride()}
        local = x.to_local()
        return local.view_as(local)  # a tensor of its own, as autograd writes to it

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(dy, run_check=False, **ctx.layout)


def _of_dtensors(run: Callable[..., Any], x: Any, ids: Any, segments: int, **options: Any) -> Any:
    """An op of segments whose rows are a ``DTensor`` placed ``Shard(0)``, as are the ids; a result of rows is, too, others as ``result`` says.

    For the ids, ranks may give indices of their own rows.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    indexed = isinstance(ids, OrderedIds)
    for given in (x,) if indexed else (x, ids):
        if type(given).__name__ != "DTensor" or tuple(given.placements) != (Shard(0),) or given.device_mesh != x.device_mesh:
            raise Unsupported(f"{run.__name__}: input and segment_ids are not both DTensors of one mesh that are placed Shard(0), which it wants")
    mesh = x.device_mesh
    made = run(_Local.apply(x), ids if indexed else ids.to_local(), segments, **options | {"group": mesh})
    segments = ids.num_segments if indexed else segments
    shape = torch.Size((segments if "result" in options else x.shape[0], *made.shape[1:]))
    stride = tuple(torch.empty(shape, device="meta").stride())
    placement = Replicate() if options.get("result") == "replicated" else Shard(0)
    return DTensor.from_local(made, mesh, [placement], run_check=False, shape=shape, stride=stride)


def _function(name: str) -> Callable[..., Any]:
    """The differentiable function of an op of :mod:`numba_baracuda.distributed`."""
    plain, op = getattr(distributed, name), OPS[name]
    signature = inspect.signature(plain)

    def run(*given: Any, **options: Any) -> Any:
        sharded = name in ROWS and type(given[0] if given else options.get("input")).__name__ == "DTensor"
        (x, *others), options = bound(name, signature, given, {"group": None} | options if sharded else options)
        if sharded:
            return _of_dtensors(run, x, *others, **options)
        if not isinstance(x, torch.Tensor) or not (torch.is_grad_enabled() and x.requires_grad and op.backward):
            return plain(x.detach() if isinstance(x, torch.Tensor) else x, *others, **options)
        return differentiable(x, Call(name, others, options))

    made = dressed(run, op, signature, f"{plain.__doc__}\n{Call.promise(name)}\n" if op.backward else plain.__doc__)
    made.__module__ = __name__
    return made


_FORWARD = [name for name in ROWS if not OPS[name].traits["backward"]]
FUNCTIONS = {name: _function(name) for name in (*AXIS, *_FORWARD)}
