"""The truths of the scan family in float64.

Scans are by doubling: each element is combined with the one before it, then with the one two before, four before, and so on. This works for any
function of two arrays, in ⌈log₂ n⌉ passes and with as many roundings.

Sums are of terms of either sign, so that their rounding errors cancel as the terms do: a few steps of Σ |terms| are allowed however long a row is. √n
steps would exceed the contribution of a block of a long row, so that a missing block would pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .checks import Truth
from .segment_truths import Runs
from .values import wide

Operands = Mapping[str, Any]
Combine = Callable[[Any, Any], Any]
#: operands in float64, scanned along their last axis -> a truth of the same shape
Row = Callable[[Any, Operands], Truth]


def onward(combine: Combine, x: Any) -> Any:
    """``combine`` over each element and those before it."""
    made, step = x.copy(), 1
    while step < made.shape[-1]:
        made[..., step:] = combine(made[..., step:], made[..., :-step])
        step *= 2
    return made


def backward(combine: Combine, x: Any) -> Any:
    """``combine`` over each element and those after it."""
    return onward(combine, x[..., ::-1])[..., ::-1]


def _counts(xp: Any, x: Any) -> Any:
    """The number of elements up to each one, in a shape that broadcasts against x."""
    return xp.arange(1, x.shape[-1] + 1).reshape(*[1] * (x.ndim - 1), -1)


def _sum(xp: Any, o: Operands) -> Truth:
    return Truth(onward(xp.add, o["x"]), onward(xp.add, abs(o["x"])))


def _prod(xp: Any, o: Operands) -> Truth:
    """Roundings of products of factors near 1 are all to the same side, so that errors add up."""
    value = onward(xp.multiply, o["x"])
    return Truth(value, abs(value), _counts(xp, value) ** 2)


def _extreme(which: str) -> Row:
    return lambda xp, o: Truth(onward(getattr(xp, which), o["x"]))


def _logsumexp(xp: Any, o: Operands) -> Truth:
    x = o["x"]
    value, top = onward(xp.logaddexp, x), onward(xp.maximum, x)
    return Truth(value, 1 + abs(top) + (value - top), _counts(xp, x))


def _sum_backward(xp: Any, o: Operands) -> Truth:
    return Truth(backward(xp.add, o["dy"]), backward(xp.add, abs(o["dy"])))


def _from_output(xp: Any, factor: Any, terms: Any, sizes: Any, steps: float) -> Truth:
    """``factor`` · Σ ``terms`` that depend on y, whose error makes errors of ``sizes``.

    y is computed again here; that of a forward pass differs by some steps. Where one term outweighs the others, so does the sum; where many weigh
    alike, their errors cancel. The steps are those of ``steps`` · Σ sizes² / (Σ sizes)² terms.
    """
    total = backward(xp.add, sizes)
    count = steps * backward(xp.add, sizes**2) / xp.maximum(total**2, 1e-300)
    return Truth(factor * backward(xp.add, terms), abs(factor) * total, count)


def _prod_backward(xp: Any, o: Operands) -> Truth:
    """For inputs without zeros; products have the errors of ``_prod``."""
    terms = o["dy"] * onward(xp.multiply, o["x"])
    return _from_output(xp, 1 / o["x"], terms, abs(terms), float(terms.shape[-1]) ** 2)


def _extreme_backward(which: str) -> Row:
    """The gradient of a run of equal extremes goes to its first element; other conventions divide it among equal elements."""

    def truth(xp: Any, o: Operands) -> Truth:
        x, dy = o["x"], o["dy"]
        extreme = onward(getattr(xp, which), x)
        first = xp.ones(x.shape, bool)
        first[..., 1:] = extreme[..., 1:] != extreme[..., :-1]
        runs, holds = Runs(xp, xp.cumsum(first.reshape(-1)) - 1), x == extreme

        def total(each: Any) -> Any:
            return runs.spread(runs.fold(xp.add, each.reshape(-1))).reshape(x.shape)

        tied = holds & (total(holds.astype(xp.float64)) > 1)
        return Truth(xp.where(first, total(dy), 0.0), xp.where(first, total(abs(dy)), 0.0), free=tied)

    return truth


def _logsumexp_backward(xp: Any, o: Operands) -> Truth:
    """For small inputs, whose exponentials are finite; the error of y is a share of |y|, that of a term a share of the term."""
    y = onward(xp.logaddexp, o["x"])
    terms = o["dy"] * xp.exp(-y)
    return _from_output(xp, xp.exp(o["x"]), terms, abs(terms) * (2 + abs(y)), float(terms.shape[-1]))


ROWS: dict[str, Row] = {
    "cumsum": _sum,
    "cumprod": _prod,
    "cummax": _extreme("maximum"),
    "cummin": _extreme("minimum"),
    "logcumsumexp": _logsumexp,
    "cumsum_backward": _sum_backward,
    "cumprod_backward": _prod_backward,
    "cummax_backward": _extreme_backward("maximum"),
    "cummin_backward": _extreme_backward("minimum"),
    "logcumsumexp_backward": _logsumexp_backward,
}


def scan_truth(xp: Any, op: str, operands: Operands, axis: int, reverse: bool = False) -> Truth:
    """The truth by :data:`ROWS`; of the operands, x and dy are read."""

    def there(array: Any) -> Any:
        rows = xp.ascontiguousarray(xp.moveaxis(wide(xp, array), axis, -1))
        return rows[..., ::-1] if reverse else rows

    def back(rows: Any) -> Any:
        return xp.moveaxis(rows[..., ::-1] if reverse else rows, -1, axis)

    found = ROWS[op](xp, {name: there(array) for name, array in operands.items() if name in ("x", "dy")})
    parts = {name: getattr(found, name) for name in ("value", "scale", "terms", "free")}
    return replace(found, **{name: back(part) for name, part in parts.items() if getattr(part, "ndim", 0)})
