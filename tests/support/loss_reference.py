"""The fused linear cross-entropy in float64 NumPy: loss, gradients, and their tolerances."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from numba_baracuda.core.dtypes import element


@dataclass(frozen=True)
class Wanted:
    """The truth, and for losses and gradients the scale of their errors."""

    out: Any
    grad_input: Any
    grad_weight: Any
    grad_bias: Any
    lse: Any
    z_loss: Any
    accuracy: Any
    predicted: Any
    entropy: Any
    scales: dict[str, Any]


def wanted(
    x: Any, w: Any, target: Any, *, reduction: str = "mean", ignore_index: int = -100, bias: Any = None, label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0, softcap: float | None = None, logit_scale: float = 1.0, class_weight: Any = None, row_weight: Any = None,
    dy: Any = 1.0, dy_entropy: Any = 0.0,
) -> Wanted:  # fmt: skip
    x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
    rows, classes = len(x), len(w)
    weight = np.ones(classes) if class_weight is None else np.asarray(class_weight, np.float64)
    share = np.ones(rows) if row_weight is None else np.asarray(row_weight, np.float64)
    raw = (x @ w.T + (0 if bias is None else np.asarray(bias, np.float64))) * logit_scale
    z = raw if softcap is None else softcap * np.tanh(raw / softcap)
    slope = logit_scale * (1 if softcap is None else 1 - np.tanh(raw / softcap) ** 2)
    counted = target != ignore_index
    there = counted & (target >= 0) & (target < classes)
    at = np.where(there, target, 0)
    picked = np.arange(rows), at
    with np.errstate(all="ignore"):
        top = z.max(1)
        lse = top + np.log(np.exp(z - top[:, None]).sum(1))
        own = (1 - label_smoothing) * weight[at]
        square = lse_square_scale * lse**2
        losses = own * (lse - z[picked])
        even = label_smoothing / classes
        if label_smoothing:
            losses = losses + even * (weight.sum() * lse - z @ weight)
        n = counted.sum()
        divisor = (n if class_weight is None else weight[at][there].sum()) if reduction == "mean" else 1
        squares_by = n if reduction == "mean" else 1
        p = np.exp(z - lse[:, None])
        per_loss, per_square = (1 / divisor if divisor else 0.0), (1 / squares_by if squares_by else 0.0)
        dz = per_loss * ((own + even * weight.sum())[:, None] * p - even * weight) + per_square * (2 * lse_square_scale * lse)[:, None] * p
        dz[picked] -= per_loss * own
        dz = dz * (share * np.broadcast_to(np.asarray(dy, np.float64).reshape(-1), (rows,)))[:, None] * slope
        log_p = np.where(p > 0, z - lse[:, None], 0)
        entropy, by_entropy = -(p * log_p).sum(1), p * slope * np.broadcast_to(np.asarray(dy_entropy, np.float64), (rows,))[:, None]
        sizes = abs(dz) + abs(by_entropy) * (1 + abs(log_p) + abs(entropy)[:, None])
        dz = dz - by_entropy * (log_p + entropy[:, None])
        dz[~there] = sizes[~there] = 0
        each = np.where(there, share * (losses * per_loss + square * per_square), 0)
        squares = np.where(there, share * square * per_square, 0)
        hits = np.where(there, z.argmax(1) == target, False).astype(np.float64)
        none = reduction == "none"
        reach = 2 + abs(np.where(np.isfinite(raw), raw, 0)).max(initial=0)
        losses_by = abs(per_loss * share) * abs(weight).max(initial=0)
        scales = {
            "out": reach * (abs(each) + losses_by if none else abs(each).sum() + losses_by.sum()),
            "grad_input": reach * (sizes + abs(per_loss) * np.finfo(np.float32).tiny) @ abs(w),
            "grad_weight": reach * sizes.T @ abs(x),
            "grad_bias": reach * sizes.sum(0),
            "entropy": reach * (1 + abs(entropy)),
        }
        return Wanted(
            each if none else each.sum(), dz @ w, dz.T @ x, dz.sum(0), np.where(there, lse, 0), squares if none else squares.sum(),
            hits if none else hits.sum() / max(n, 1), np.where(there, z.argmax(1), -1), np.where(there, entropy, 0), scales,
        )  # fmt: skip


#: keywords that change the result
MEANING = tuple(name for name, each in inspect.signature(wanted).parameters.items() if each.kind == each.KEYWORD_ONLY)


def scaled(before: Any, dy: Any) -> Any:
    """A gradient times the upstream scalar, rounded once."""
    return (before.astype(np.float64) * float(np.asarray(dy).reshape(()))).astype(before.dtype)


REFERENCES = {"fused_linear_cross_entropy": wanted, "fused_linear_cross_entropy_backward": scaled}


def assert_close(got: Any, right: Wanted, name: str, kind: str, inner: int) -> None:
    """``got`` is within the tolerance of sums of ``inner`` terms in elements of this kind, scaled by what is summed."""
    value, found = getattr(right, name), np.asarray(got).astype(np.float64)
    assert found.shape == np.shape(value)
    allowed = element(kind).tolerance(inner) * right.scales[name] + 4 * (2.0**-24 if kind == "f16" else 0)
    same = np.isnan(found) & np.isnan(value)
    with np.errstate(invalid="ignore"):
        worst = np.max(np.where(same, 0, abs(found - value) - allowed), initial=0.0)
    assert worst <= 0, f"{name}: off by {worst} more than allowed"
