"""Linear layers whose cross-entropy is timed, the truth in float64, and the tolerance. ``xp`` is NumPy or CuPy."""

from __future__ import annotations

import fnmatch
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import numpy as np

from numba_baracuda import FusedLinearCrossEntropyDescriptor
from numba_baracuda.loss.chunking import logits_row_stride, rows_of_chunk
from numba_baracuda.loss.policy import Chunks

from .checks import slabs
from .results import RIGHT
from .values import cast, wide

WRONG, LESS_EXACT = "WRONG", "less exact"
ITEM = 2  #: bytes of a bfloat16
_SLAB = 1 << 27  #: logits in float64 at a time


@dataclass(frozen=True)
class LossCase:
    """``bt`` rows of ``h`` numbers, ``v`` classes, bfloat16: the loss and both gradients.

    ``gib`` is the number of bytes that counts as a GiB of logits.
    """

    name: str
    bt: int
    h: int
    v: int
    gib: int = 1 << 30

    @property
    def id(self) -> str:
        return f"{self.name}-{self.bt}x{self.h}x{self.v}"

    @property
    def flops(self) -> int:
        """Operations of the three matrix products, which every contestant needs."""
        return 6 * self.bt * self.h * self.v

    @property
    def gradient_bytes(self) -> int:
        return ITEM * self.h * (self.bt + self.v)

    def tiny(self) -> LossCase:
        """The same case with few rows, which still need several chunks under a limit, and few classes with the same remainder."""
        bt, v = max(8, self.bt // 512), Chunks.row_elements + self.v % Chunks.row_elements
        return replace(self, bt=bt, h=16, v=v, gib=logits_row_stride(v) * ITEM * bt // 4)

    def descriptor(self, chunk: str | int) -> FusedLinearCrossEntropyDescriptor:
        return FusedLinearCrossEntropyDescriptor(self.bt, self.h, self.v, "bf16", chunk=chunk)

    def chunks(self) -> dict[int, list[str]]:
        """Rows of logits at a time -> the options that lead to so many."""
        found: dict[int, list[str]] = {}
        for name in ("auto", "1 GiB", "2 GiB", "lean"):
            budget = self.gib * int(name[0]) if name[0].isdigit() else 0
            rows = (
                rows_of_chunk(self.bt, self.h, self.v, budget // (logits_row_stride(self.v) * ITEM)) if budget else self.descriptor(name).chunk_size
            )
            found.setdefault(rows, []).append(name)
        return found


CASES = (
    LossCase("llama3", 8192, 4096, 128256),
    LossCase("llama3", 16384, 4096, 128256),
    LossCase("gemma2", 8192, 2304, 256000),
    LossCase("qwen2.5", 4096, 3584, 152064),
    LossCase("llama2", 2048, 4096, 32000),
    LossCase("gpt2", 8192, 768, 50257),
)


def matching(pattern: str = "*") -> list[LossCase]:
    return [case for case in CASES if fnmatch.fnmatchcase(case.id, pattern)]


@dataclass(frozen=True)
class Result:
    """The mean loss and its gradients; the truth is in float64."""

    loss: float
    grad_input: Any
    grad_weight: Any


@dataclass(frozen=True)
class Errors:
    """The error of the loss, and the greatest error of each gradient as a share of its greatest element, over all elements."""

    loss: float
    grad_input: float
    grad_weight: float


def truth(xp: Any, x: Any, w: Any, target: Any) -> Result:
    """The truth in float64, in chunks of rows of logits."""
    x, w = wide(xp, x), wide(xp, w)
    loss, grad_input, grad_weight = 0.0, xp.empty_like(x), xp.zeros_like(w)
    rows = max(1, _SLAB // len(w))
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        z = x[part] @ w.T
        picked = xp.arange(len(z)), target[part]
        z -= z.max(axis=1, keepdims=True)
        own = z[picked]
        xp.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss += float((xp.log(total[:, 0]) - own).sum()) / len(x)
        z /= total
        z[picked] -= 1
        z /= len(x)
        grad_input[part] = z @ w
        grad_weight += z.T @ x[part]
    return Result(loss, grad_input, grad_weight)


def _half(xp: Any, array: Any) -> Any:
    """Rounded to bfloat16, as float64."""
    return wide(xp, cast(xp, array, "bf16"))


def rounded(xp: Any, x: Any, w: Any, target: Any) -> Result:
    """The frameworks' algorithm by plain array operations: logits, their gradients and results are bfloat16, intermediates are wider."""
    x, w, picked = wide(xp, x), wide(xp, w), (xp.arange(len(x)), target)
    z = _half(xp, x @ w.T)
    z -= z.max(axis=1, keepdims=True)
    p = xp.exp(z)
    total = p.sum(axis=1, keepdims=True)
    loss = _half(xp, xp.atleast_1d((xp.log(total[:, 0]) - z[picked]).mean()))
    p /= total
    p[picked] -= 1
    p = _half(xp, p / len(x))
    return Result(float(loss[0]), cast(xp, p @ w, "bf16"), cast(xp, p.T @ x, "bf16"))


def errors(xp: Any, got: Result, wanted: Result) -> Errors:
    """The errors of a result; NaN where it has one."""
    return Errors(abs(got.loss - wanted.loss), _worst(xp, got.grad_input, wanted.grad_input), _worst(xp, got.grad_weight, wanted.grad_weight))


def _worst(xp: Any, got: Any, wanted: Any) -> float:
    if got.shape != wanted.shape:
        raise ValueError(f"a gradient is of shape {got.shape}, wants {wanted.shape}")
    off = [float(abs(wide(xp, got[rows]) - wanted[rows]).max()) for rows in slabs(got)]
    scale = max(float(abs(wanted[rows]).max()) for rows in slabs(wanted))
    return float(np.max(off)) / scale


#: verdict, and the errors above which it applies: factor on a framework's error of the loss, share of the loss, and factor on its errors of gradients
_LIMITS = ((WRONG, 2.0, 1e-3, 8.0), (LESS_EXACT, 1.0, 1e-5, 1.5))


def verdict(found: Errors, framework: Errors, loss: float) -> str:
    """The verdict on a result with these errors, against those of a framework that computes in bfloat16; ``yes`` if it is right."""
    for word, of_loss, near, of_gradient in _LIMITS:
        off = []
        for field, error, reference in zip(fields(Errors), astuple(found), astuple(framework), strict=True):
            allowed = max(of_loss * reference, near * abs(loss)) if field.name == "loss" else of_gradient * reference
            if not error <= allowed:  # a NaN is wrong
                off.append(f"{field.name} is off by {error:.2g}, a framework's by {reference:.2g}")
        if off:
            return f"{word}: {'; '.join(off)}"
    return RIGHT
