"""The truths of the reduce family in float64, by plain array operations along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .checks import Truth, inverse
from .values import wide

Operands = Mapping[str, Any]


def axes_of(x: Any, y: Any) -> tuple[int, ...]:
    """The axes along which y has extent 1 and x has not; found by shapes alone, so that compiled functions can use it."""
    return tuple(axis for axis, (extent, kept) in enumerate(zip(x.shape, y.shape, strict=True)) if extent != kept)


def _moments(x: Any, axes: tuple[int, ...], n: int) -> tuple[Any, Any]:
    """Mean, and variance of a sample."""
    mean = x.mean(axes, keepdims=True)
    return mean, ((x - mean) ** 2).sum(axes, keepdims=True) / (n - 1)


def _forward(xp: Any, kind: str, x: Any, axes: tuple[int, ...], n: int) -> Truth:
    def along(function: str, array: Any) -> Any:
        return getattr(array, function)(axes, keepdims=True)

    if kind in ("sum", "mean"):
        share = 1 if kind == "sum" else n
        return Truth(along("sum", x) / share, along("sum", abs(x)) / share, n)
    if kind in ("max", "min"):
        return Truth(along(kind, x))
    if kind in ("argmax", "argmin"):
        last = xp.moveaxis(x, axes, tuple(range(-len(axes), 0))).reshape(-1, n)
        return Truth(getattr(last, kind)(1).reshape([1 if axis in axes else extent for axis, extent in enumerate(x.shape)]))
    if kind in ("any", "all", "count_nonzero"):
        return Truth(along("sum" if kind == "count_nonzero" else kind, x != 0))
    if kind == "prod":
        value = along("prod", x)
        return Truth(value, abs(value), n**2)
    if kind == "norm2":
        value = xp.sqrt(along("sum", x * x))
        return Truth(value, value, n)
    if kind == "logsumexp":
        top = along("max", x)
        total = along("sum", xp.exp(x - top))
        return Truth(top + xp.log(total), abs(top) + xp.log(total) + 1, n)
    mean, spread = _moments(x, axes, n)
    root = xp.sqrt(spread)
    return Truth(spread, spread + (mean**2) / n, n) if kind == "var" else Truth(root, root + abs(mean) / (n - 1) ** 0.5, n)


def _backward(xp: Any, kind: str, o: Operands, dx: Any, axes: tuple[int, ...], n: int) -> Truth:
    dy = o["dy"]
    if kind in ("sum", "mean"):
        value = xp.broadcast_to(dy / (1 if kind == "sum" else n), dx.shape)
        return Truth(value, abs(value))
    x, y = o["x"], o["y"]
    if kind in ("max", "min"):
        best = x == y
        return Truth(xp.where(best, dy, 0.0), free=best & (best.sum(axes, keepdims=True) > 1))
    if kind == "prod":
        value = dy * (y / x)
    elif kind == "norm2":
        value = dy * x * inverse(xp, y)
    elif kind == "logsumexp":
        value = dy * xp.exp(x - y)
        return Truth(value, abs(value) * (1 + abs(x - y)))
    else:
        share = dy / (n - 1) * (2 if kind == "var" else inverse(xp, y))
        return Truth(share * (x - x.mean(axes, keepdims=True)), abs(share) * (abs(x) + abs(x).mean(axes, keepdims=True)), n)
    return Truth(value, abs(value), 4)


def reduce_truth(xp: Any, op: str, operands: Operands) -> Truth:
    """The truth of an op; of the output only the shape is used."""
    kind = op.removeprefix("reduce_").removesuffix("_backward")
    full, kept = (operands["dx"], operands["dy"]) if "dx" in operands else (operands["x"], operands["y"])
    axes = axes_of(full, kept)
    n = full.size // max(kept.size, 1)
    if "dx" not in operands:
        return _forward(xp, kind, wide(xp, full), axes, n)
    return _backward(xp, kind, {name: wide(xp, array) for name, array in operands.items() if name != "dx"}, full, axes, n)
