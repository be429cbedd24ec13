"""Log-probabilities and entropies of the rows of a linear layer, from the passes of the loss over the logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InvalidProblem, Unsupported
from ..core.registry import function
from .linear import layer_of, wanted_of
from .operators import define, record

_NAME = "linear_log_probs"
_LAYER = "Tensor input, Tensor weight, Tensor target, Tensor? bias"
_OPTIONS = "float logit_scale, float? softcap, SymInt ignore_index, str chunk, str? grad_weight_accum"
_SCHEMAS = (
    f"{_NAME}({_LAYER}, {_OPTIONS}) -> (Tensor log_probs, Tensor entropy)",
    f"{_NAME}_backward({_LAYER}, Tensor? d_log_probs, Tensor? d_entropy, bool[3] wanted, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
_TENSORS = 4


def _loss(input: Any, weight: Any, target: Any, bias: Any, options: Sequence[Any], **more: Any) -> Any:
    logit_scale, softcap, ignore_index, chunk, accum = options
    return function("fused_linear_cross_entropy")(
        input, weight, target, bias=bias, reduction="none", logit_scale=logit_scale, softcap=softcap, ignore_index=ignore_index,
        chunk=int(chunk) if chunk.isdecimal() else chunk, grad_weight_accum=accum, **more,
    )  # fmt: skip


def _run(input: Any, weight: Any, target: Any, bias: Any, *options: Any, outs: Sequence[Any] = ()) -> tuple[Any, Any]:
    log_probs, entropy = outs or (None, None)
    made = _loss(input, weight, target, bias, options, return_entropy=True, out=log_probs)
    if entropy is not None and (entropy.shape, entropy.dtype) != (made.entropy.shape, made.entropy.dtype):
        got, wants = (f"{each.dtype}{[*each.shape]}" for each in (entropy, made.entropy))
        raise InvalidProblem(f"{_NAME}: entropy is {got}, wants {wants}")
    return made.loss.neg_(), made.entropy if entropy is None else entropy.copy_(made.entropy)


def _run_backward(input: Any, weight: Any, target: Any, bias: Any, d_log_probs: Any, d_entropy: Any, wanted: Sequence[bool], *options: Any) -> Any:
    """The wanted gradients; those that are not wanted are empty."""
    wide = torch.float64 if input.dtype is torch.float64 else torch.float32
    dy = input.new_zeros(target.shape, dtype=wide) if d_log_probs is None else -d_log_probs
    asked = {name: True for name, each in zip(_GRADIENTS, wanted, strict=True) if each}
    made = _loss(input, weight, target, bias, options, dy=dy, dy_entropy=d_entropy, **asked)
    return tuple(getattr(made, name) if each else input.new_empty(0) for name, each in zip(_GRADIENTS, wanted, strict=True))


def _fake(input: Any, weight: Any, target: Any, *others: Any) -> tuple[Any, Any]:
    wide = torch.float64 if input.dtype is torch.float64 else torch.float32
    return target.new_empty(target.shape, dtype=wide), target.new_empty(target.shape, dtype=wide)


def _fake_backward(input: Any, weight: Any, target: Any, bias: Any, d_log_probs: Any, d_entropy: Any, wanted: Sequence[bool], *options: Any) -> Any:
    shapes = input.shape, weight.shape, weight.shape[:1]
    return tuple(input.new_empty(tuple(shape) if each else (0,)) for shape, each in zip(shapes, wanted, strict=True))


_overload, _compute = define(_SCHEMAS[0], _run, _fake, out=True)
_compute_backward = define(_SCHEMAS[1], _run_backward, _fake_backward)[1]


class _LogProbs(torch.autograd.Function):  # type: ignore[misc]
    """Saves what it is given, and no logits: backward computes them again."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.options = values[_TENSORS:]
        ctx.save_for_backward(*values[:_TENSORS])
        return _compute(*values)

    @staticmethod
    def backward(ctx: Any, d_log_probs: Any, d_entropy: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise Unsupported(f"{_NAME}: create_graph=True asks for a gradient that is differentiable, wants it False")
        x, w, target, b = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[k] for k in (0, 1, 3)]
        if d_log_probs is None and d_entropy is None:
            return (None,) * (_TENSORS + len(ctx.options))
        made = _compute_backward(x, w, target, b, d_log_probs, d_entropy, wanted, *ctx.options)
        dx, dw, db = (each if asked else None for each, asked in zip(made, wanted, strict=True))
        return dx, dw, None, db, *[None] * len(ctx.options)


record(_overload, _LogProbs)


def scales_of(name: str, temperature: Any, softcap: float | None) -> tuple[float, float | None]:
    """The scale of logits and the softcap that follows it, by which what is capped is divided by the temperature."""
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not 0 < temperature < math.inf:
        raise InvalidProblem(f"{name}: temperature is {temperature!r}, wants a positive number")
    return 1 / temperature, None if softcap is None else softcap / temperature


def linear_log_probs(
    input: Any,
    weight: Any,
    target: Any,
    bias: Any = None,
    *,
    temperature: float = 1.0,
    ignore_index: int = -100,
    softcap: float | None = None,
    chunk: str | int = "auto",
    grad_weight_accum: str | None = None,
) -> tuple[Any, Any]:
    """log_probs[i] = log p[i, target[i]] and entropy[i] = −Σⱼ p[i, j] log p[i, j], p = softmax(linear(input, weight, bias) / temperature).

    ``input`` […, H], ``weight`` [V, H] and ``bias`` [V] are of one floating dtype; under autocast they are cast to its dtype, as for ``nn.Linear``.
    ``target`` […] int64 or int32 holds classes. Both results are float32, float64 for float64, and of the target's shape; they are 0 where the target
    is ``ignore_index`` or no class. With the ``softcap`` c a logit z becomes c tanh(z / c) before it is divided by the ``temperature``, a positive
    number.

    No more than ``chunk`` rows of logits exist at a time, in forward and in backward, which computes them again. Gradients of both results go to
    ``input``, ``weight`` and ``bias``; those that do not require grad cost no product. They are differentiable once, and ``torch.func`` is refused.
    ``chunk`` and ``grad_weight_accum`` are those of :func:`numba_baracuda.fused_linear_cross_entropy`, and so is what happens to numbers that are not
    finite: a class of logit −∞ has probability 0 and adds nothing to an entropy.

    Raises ``InvalidProblem`` for shapes, dtypes or options that contradict each other, ``Unsupported`` for other dtypes.
    """
    scale, softcap = scales_of(_NAME, temperature, softcap)
    rows, weight, classes, bias = layer_of(_NAME, input=input, weight=weight, target=target, bias=bias)
    values = (
        rows, weight, classes, bias, scale, softcap, ignore_index, str(chunk), grad_weight_accum,
    )  # fmt: skip
    run = _overload if torch.compiler.is_compiling() else _LogProbs.apply if any(wanted_of(rows, weight, bias)) else _compute
    log_probs, entropy = run(*values)
    return log_probs.reshape(target.shape), entropy.reshape(target.shape)
