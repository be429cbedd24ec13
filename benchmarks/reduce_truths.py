"""The truths of the reduce family in float64, by plain array operations along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .checks import Truth
from .values import wide

Operands = Mapping[str, Any]


def axes_of(x: Any, y: Any) -> tuple[int, ...]:
    """The axes along which y has extent 1 and x has not; found by shapes alone, so that compiled functions can use it."""
    return tuple(axis for axis, (extent, kept) in enumerate(zip(x.shape, y.shape, strict=True)) if extent != kept)


def _moments(xp: Any, x: Any, axes: tuple[int, ...], n: int) -> tuple[Any, Any, Any]:
    """Mean, variance of a sample, and the scale of its rounding error."""
    mean = x.mean(axes, keepdims=True)
    spread = ((x - mean) ** 2).sum(axes, keepdims=True) / (n - 1)
    return mean, spread, spread + (mean**2) / n


def _forward(xp: Any, kind: str, x: Any, axes: tuple[int, ...], n: int) -> Truth:
    def along(function: str, array: Any) -> Any:
        return getattr(array, function)(axes, keepdims=True)

    if kind in ("sum", "mean"):
        share = 1 if kind == "sum" else n
        return Truth(along("sum", x) / share, along("sum", abs(x)) / share, n)
    if kind in ("max", "min"):
        return Truth(along(kind, x))
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
    _, spread, scale = _moments(xp, x, axes, n)
    return Truth(spread, scale, n) if kind == "var" else Truth(xp.sqrt(spread), scale / xp.sqrt(spread), n)


def _backward(xp: Any, kind: str, o: Operands, dx: Any, axes: tuple[int, ...], n: int) -> Truth:
    dy = o["dy"]
    if kind in ("sum", "mean"):
        value = xp.broadcast_to(dy / (1 if kind == "sum" else n), dx.shape)
        return Truth(value, abs(value))
    x, y = o["x"], o["y"]
    if kind in ("max", "min"):
        return Truth(xp.where(x == y, dy, 0.0))
    if kind == "prod":
        value = dy * (y / x)
    elif kind == "norm2":
        value = dy * (x / y)
    elif kind == "logsumexp":
        value = dy * xp.exp(x - y)
        return Truth(value, abs(value) * (1 + abs(x - y)))
    else:
        mean, spread, _ = _moments(xp, x, axes, n)
        share = abs(dy) / (n - 1) * (2 if kind == "var" else 1 / y)
        value = xp.sign(dy) * share * (x - mean)
        return Truth(value, share * (abs(x - mean) + xp.sqrt(spread)), n)
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
