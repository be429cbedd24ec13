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
from ..distributed.agreement import telling
from ..distributed.loss import groups_of, waiting
from ..distributed.loss_run import NAME as FUSED
from .linear import factors_of, is_dtensor, layer_of, wanted_of
from .log_probs import scales_of
from .sharded import FUNCTIONS

with contextlib.suppress(ImportError):  # torch has these rules from 2.5 on
    from . import placements as placements

globals().update(FUNCTIONS)
__all__ = sorted([*FUNCTIONS, "linear_cross_entropy", "linear_log_probs"])
_NAME, _LOG_PROBS = "distributed.linear_cross_entropy", "distributed.linear_log_probs"
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


def _local(given: Any, mesh: Any, name: str, wants: tuple[str, ...], summed: bool = False) -> tuple[Any, str]:
    """The local part of a tensor, and whether it is "Replicate", or "Shard" along the first axis.

    Its gradient is placed alike, or with ``summed``, that of one that all ranks have is the sum of theirs.
    """
    if not is_dtensor(given):
        return given, "Replicate"
    if given.device_mesh != mesh or len(given.placements) != 1:
        raise InvalidProblem(f"{_NAME}: {name} lies on {given.device_mesh}, wants {mesh}, one dimension, as that of linear_weight")
    (placement,) = given.placements
    kind = type(placement).__name__
    if kind not in wants or (kind == "Shard" and placement.dim != 0):
        raise Unsupported(f"{_NAME}: {name} of shape {list(given.shape)} is placed {placement}, wants {' or '.join(wants)} along axis 0")
    if not (summed and kind == "Replicate"):
        return given.to_local(grad_placements=[placement]), kind
    from torch.distributed.tensor import Partial

    return given.to_local(grad_placements=[Partial()]), kind


def linear_cross_entropy(
    input: Any, linear_weight: Any, target: Any, *, group: Any = None, data_group: Any = None, rows: str = "replicated",
    vocab_range: tuple[int, int] | None = None, linear_bias: Any = None, weight: Any = None, row_weight: Any = None, reduction: str = "mean",
    ignore_index: int | None = -100, label_smoothing: float = 0.0, softcap: float | None = None, logit_scale: float = 1.0,
    lse_square_scale: float = 0.0, chunk: str | int = "auto", max_workspace_bytes: int | None = None, grad_weight_accum: str | None = None,
    grad_input_accum: str | None = None,
) -> Any:  # fmt: skip
    """:func:`numba_baracuda.torch.linear_cross_entropy` of a layer whose classes are divided among the ranks of ``group``.

    ``linear_weight`` [v1 − v0, H] and ``linear_bias`` [v1 − v0] are a rank's part of the classes; ``input`` […, H] and ``target`` […] are the same on
    all ranks, or with ``rows="sharded"`` a rank's own rows. ``weight`` [V] has a factor for each class of all. ``vocab_range`` and
    ``grad_input_accum`` are those of :func:`numba_baracuda.distributed.fused_linear_cross_entropy`; other options, and what autocast casts, are those
    of the function of one process.

    Every rank gets the loss. Gradients are those of the rank's own tensors: that of a replicated ``input`` is summed over the ranks. With
    ``data_group`` the loss is that of all its rows, and gradients are a rank's share: add them up, as by ``all_reduce``, or multiply by the size of
    the group where a wrapper averages.

    A ``DTensor`` as ``linear_weight``, placed ``Shard(0)`` on a one-dimensional mesh, brings the group; ``input``, ``target`` and ``row_weight`` may
    then be placed ``Replicate()`` or ``Shard(0)``, and the loss is a replicated ``DTensor``, but a rank's own tensor for ``reduction="none"`` of own
    rows. Placed ``Replicate()``, it brings the data group of rows that are placed ``Shard(0)``, and its gradient is a sum over ranks.
    :func:`numba_baracuda.torch.linear_cross_entropy` of DTensors is this function.

    What is wrong with the tensors of one rank is raised on all.
    """
    mesh = linear_weight.device_mesh if is_dtensor(linear_weight) else None
    own_rows = rows == "sharded"
    if mesh is not None:
        input, placed = _local(input, mesh, "input", ("Replicate", "Shard"))
        target, also = _local(target, mesh, "target", ("Replicate", "Shard"))
        if placed != also:
            raise InvalidProblem(f"{_NAME}: target is placed {also}, wants {placed}, as input")
        own_rows = own_rows or placed == "Shard"
        linear_weight, kept = _local(linear_weight, mesh, "linear_weight", ("Shard", "Replicate"), summed=own_rows)
        linear_bias, _ = _local(linear_bias, mesh, "linear_bias", (kept,), summed=own_rows)
        weight, row_weight = (
            _local(each, mesh, name, (of,))[0] for name, each, of in (("weight", weight, "Replicate"), ("row_weight", row_weight, placed))
        )
        if kept == "Shard":
            group, rows = mesh, "sharded" if own_rows else rows
        elif own_rows:
            data_group, rows = mesh, "replicated"
    comm, data = groups_of(group, data_group)
    with telling(FUSED, *waiting(comm, data)):
        x, linear_weight, classes, linear_bias = layer_of(_NAME, input=input, linear_weight=linear_weight, target=target, linear_bias=linear_bias)
        by_class, by_row = factors_of(_NAME, x, weight=(weight, None), row_weight=(row_weight, target.shape))
    named = {
        "group": group, "data_group": data_group, "rows": rows, "vocab_range": vocab_range, "class_weight": by_class, "row_weight": by_row,
        "reduction": reduction, "ignore_index": -100 if ignore_index is None else ignore_index, "label_smoothing": label_smoothing,
        "softcap": softcap, "logit_scale": logit_scale, "lse_square_scale": lse_square_scale, "chunk": chunk,
        "max_workspace_bytes": max_workspace_bytes, "grad_weight_accum": grad_weight_accum, "grad_input_accum": grad_input_accum,
    }  # fmt: skip
    named["reduce_grad_input"] = "reduce_scatter" if rows == "sharded" else "all_reduce"
    wanted = dict(zip(_GRADIENTS, wanted_of(x, linear_weight, linear_bias), strict=True))
    loss = _Loss.apply(x, linear_weight, linear_bias, classes, named, wanted)
    loss = loss.reshape(target.shape) if reduction == "none" else loss
    if mesh is None or (reduction == "none" and own_rows):
        return loss
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(loss, mesh, [Replicate()], run_check=False)


class _LogProbs(torch.autograd.Function):  # type: ignore[misc]
    """Both results always have a gradient, as ranks must agree on what they are given; backward computes the logits again."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, target: Any, options: dict[str, Any], wanted: dict[str, Any]) -> Any:
        ctx.options, ctx.wanted = options, wanted
        ctx.save_for_backward(input, weight, bias, target)
        made = _fused(input, weight, target, bias=bias, return_entropy=True, **options)
        return made.loss.neg_(), made.entropy

    @staticmethod
    def backward(ctx: Any, d_log_probs: Any, d_entropy: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise Unsupported(f"{_LOG_PROBS}: create_graph=True asks for a gradient that is differentiable, wants it False")
        input, weight, bias, target = ctx.saved_tensors
        made = _fused(input, weight, target, bias=bias, dy=-d_log_probs, dy_entropy=d_entropy.contiguous(), **ctx.options, **ctx.wanted)
        return *[getattr(made, name) for name in _GRADIENTS], None, None, None


def linear_log_probs(
    input: Any, weight: Any, target: Any, bias: Any = None, *, group: Any, rows: str = "replicated", temperature: float = 1.0,
    ignore_index: int = -100, softcap: float | None = None, chunk: str | int = "auto", grad_weight_accum: str | None = None,
    grad_input_accum: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """:func:`numba_baracuda.torch.linear_log_probs` of a layer whose classes are divided among the ranks of ``group``.

    ``weight`` [v1 − v0, H] and ``bias`` [v1 − v0] are a rank's part of the classes; ``input`` […, H] and ``target`` […] are the same on all ranks, or
    with ``rows="sharded"`` a rank's own rows, of which it gets the results. Gradients are those of the rank's own tensors: that of a replicated
    ``input`` is summed over the ranks. All ranks take part in backward.
    """
    scale, softcap = scales_of(_LOG_PROBS, temperature, softcap)
    comm, data = groups_of(group, None)
    with telling(FUSED, *waiting(comm, data)):
        x, weight, classes, bias = layer_of(_LOG_PROBS, input=input, weight=weight, target=target, bias=bias)
    options = {
        "group": group, "rows": rows, "reduction": "none", "logit_scale": scale, "softcap": softcap, "ignore_index": ignore_index, "chunk": chunk,
        "grad_weight_accum": grad_weight_accum, "grad_input_accum": grad_input_accum,
        "reduce_grad_input": "reduce_scatter" if rows == "sharded" else "all_reduce",
    }  # fmt: skip
    wanted = dict(zip(_GRADIENTS, wanted_of(x, weight, bias), strict=True))
    log_probs, entropy = _LogProbs.apply(x, weight, bias, classes, options, wanted)
    return log_probs.reshape(target.shape), entropy.reshape(target.shape)
