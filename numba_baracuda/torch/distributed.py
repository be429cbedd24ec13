"""Ops whose operands are divided among processes, for PyTorch: differentiable, for tensors, process groups and DTensors.

:mod:`numba_baracuda.distributed` says what each argument is.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from ..core.errors import InvalidProblem, Unsupported
from ..core.registry import function
from ..distributed import fused_linear_cross_entropy as _fused
from .sharded import FUNCTIONS

with contextlib.suppress(ImportError):  # torch has these rules from 2.5 on
    from . import placements as placements

globals().update(FUNCTIONS)
__all__ = sorted([*FUNCTIONS, "linear_cross_entropy"])
_NAME = "distributed.linear_cross_entropy"
_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


class _Loss(torch.autograd.Function):  # type: ignore[misc]
    """Gradients are made with a mean or a sum, and scaled by backward; those of losses of rows are computed once more, with the factor of each."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, target: Any, options: dict[str, Any], wanted: dict[str, Any]) -> Any:
        ctx.options, ctx.wanted = options, wanted
        ctx.save_for_backward(input, weight, bias, target)
        later = options["reduction"] == "none"
        made = _fused(input, weight, target, bias=bias, **options, **({} if later else wanted))
        ctx.ready = None if later else made
        return made.loss

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise Unsupported(f"{_NAME}: create_graph=True asks for a gradient that is differentiable, wants it False")
        ready, ctx.ready = ctx.ready, None  # scaled in place, these serve once
        if ready is None:
            input, weight, bias, target = ctx.saved_tensors
            ready = _fused(input, weight, target, bias=bias, dy=dy, **ctx.options, **ctx.wanted)
        else:
            made = {name: getattr(ready, name) for name in _GRADIENTS if ctx.wanted[name]}
            function("fused_linear_cross_entropy_backward")(dy, **{name: each for name, each in made.items() if each.numel()})
        return *[getattr(ready, name) for name in _GRADIENTS], None, None, None


def _is_dtensor(given: Any) -> bool:
    return type(given).__name__ == "DTensor"


def _local(given: Any, mesh: Any, wants: tuple[str, ...]) -> tuple[Any, str]:
    """The local part of a tensor, whose gradient is placed alike, and whether it is "Replicate", or "Shard" along the first axis."""
    if not _is_dtensor(given):
        return given, "Replicate"
    if given.device_mesh != mesh or len(given.placements) != 1:
        raise InvalidProblem(f"{_NAME}: a DTensor lies on {given.device_mesh}, wants {mesh}, one dimension, as that of linear_weight")
    (placement,) = given.placements
    kind = type(placement).__name__
    if kind not in wants or (kind == "Shard" and placement.dim != 0):
        raise Unsupported(f"{_NAME}: a DTensor of shape {list(given.shape)} is placed {placement}, wants {' or '.join(wants)} along axis 0")
    return given.to_local(grad_placements=[placement]), kind


def linear_cross_entropy(
    input: Any, linear_weight: Any, target: Any, *, group: Any = None, data_group: Any = None, rows: str = "replicated", linear_bias: Any = None,
    weight: Any = None, row_weight: Any = None, reduction: str = "mean", ignore_index: int = -100, **options: Any,
) -> Any:  # fmt: skip
    """:func:`numba_baracuda.torch.linear_cross_entropy` of a layer whose classes are divided among the ranks of ``group``.

    ``linear_weight`` [v1 − v0, H] and ``linear_bias`` [v1 − v0] are a rank's part of the classes; ``input`` […, H] and ``target`` […] are the same on
    all ranks, or with ``rows="sharded"`` a rank's own rows. ``weight`` [V] has a factor for each class of all. Further ``options`` are those of
    :func:`numba_baracuda.distributed.fused_linear_cross_entropy`, but for gradients and results.

    Every rank gets the loss. Gradients are those of the rank's own tensors: that of a replicated ``input`` is summed over the ranks. With
    ``data_group`` the loss is that of all its rows, and gradients are a rank's share: add them up, as by ``all_reduce``, or multiply by the size of
    the group where a wrapper averages.

    A ``DTensor`` as ``linear_weight``, placed ``Shard(0)`` on a one-dimensional mesh, brings the group; ``input`` and ``target`` may then be placed
    ``Replicate()`` or ``Shard(0)``, and the loss is a replicated ``DTensor``.
    """
    mesh = linear_weight.device_mesh if _is_dtensor(linear_weight) else None
    if mesh is not None:
        group = mesh
        linear_weight, _ = _local(linear_weight, mesh, ("Shard",))
        linear_bias = linear_bias if linear_bias is None else _local(linear_bias, mesh, ("Shard",))[0]
        input, placed = _local(input, mesh, ("Replicate", "Shard"))
        target, also = _local(target, mesh, ("Replicate", "Shard"))
        if placed != also:
            raise InvalidProblem(f"{_NAME}: target is placed {also}, wants {placed}, as input")
        rows = "sharded" if placed == "Shard" else rows
    wide = torch.float64 if input.dtype is torch.float64 else torch.float32
    by_class, by_row = (None if each is None else each.detach().to(wide) for each in (weight, row_weight))
    named = {"group": group, "data_group": data_group, "rows": rows, "class_weight": by_class, "reduction": reduction, "ignore_index": ignore_index}
    named["row_weight"] = None if by_row is None else by_row.reshape(-1)
    named["reduce_grad_input"] = "reduce_scatter" if rows == "sharded" else "all_reduce"
    grads = torch.is_grad_enabled()
    given = input.reshape(-1, input.shape[-1]), linear_weight, linear_bias
    wanted = {name: grads and each is not None and each.requires_grad for name, each in zip(_GRADIENTS, given, strict=True)}
    loss = _Loss.apply(*given, target.reshape(-1), named | options, wanted)
    loss = loss.reshape(target.shape) if reduction == "none" else loss
    if mesh is None or (reduction == "none" and rows == "sharded"):
        return loss
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(loss, mesh, [Replicate()], run_check=False)
