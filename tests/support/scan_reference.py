"""Scans in float64 NumPy: results and gradients, with the scale of each element's error.

``REFERENCES`` has a row for each scan of the op table. The functions of a row take arrays whose last axis is the scan's, in its order: ``w`` holds
the elements, ``y`` their inclusive scan, ``g`` the gradient of y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from references import Array, Truth

INF = np.inf


@dataclass(frozen=True)
class Gradient:
    """``value``, ``size`` = Σ |terms| of each element, and a mask of elements that depend on the order of arithmetic: any value is accepted there."""

    value: Array
    size: Array
    free: Array


@dataclass(frozen=True)
class Reference:
    """A scan. ``sizes`` gives Σ |terms| of each element of y and how many terms there are, from w, y, and 1, 2, … along the axis."""

    fold: np.ufunc
    identity: float
    sizes: Callable[[Array, Array, Array], tuple[Array, Array]]
    gradient: Callable[[Array, Array, Array], Gradient]
    factors: bool = False  #: whether elements are multiplied, so that they must be near 1 or −1


# ---------------------------------------------------------------- gradients


def _behind(g: Array, factor: Callable[[int], Array], times: Callable[[Array, Array], Array]) -> Array:
    """Horner's rule from the last element to the first: g plus ``factor`` times the result of the element after it."""
    made = g.copy()
    for k in range(g.shape[-1] - 2, -1, -1):
        made[..., k] += times(made[..., k + 1], factor(k))
    return made


def _of_sum(g: Array, w: Array, y: Array) -> Gradient:
    value, size = (np.cumsum(each[..., ::-1], -1)[..., ::-1] for each in (g, abs(g)))
    return Gradient(value, size, np.zeros(g.shape, bool))


def _times(a: Array, b: Array) -> Array:
    """The product, 0 where a factor is 0, even if the other is infinite or NaN."""
    return np.where((a == 0) | (b == 0), 0, a * b)


def _of_product(g: Array, w: Array, y: Array) -> Gradient:
    """p · s, p the product before an element and s the sum after it of products with g, where a factor of 0 makes a term 0.

    The order decides where infinities of both signs meet in s, which Horner's rule and a sum term by term then make different, and what sign an
    infinite p · s has where s nearly cancels.
    """
    before = np.multiply.accumulate(np.concatenate([np.ones((*w.shape[:-1], 1)), w[..., :-1]], -1), axis=-1)
    factors = np.stack((w, abs(w)))
    nested, size = _behind(np.stack((g, abs(g))), lambda k: factors[..., k + 1], _times)
    free = np.zeros(w.shape, bool)
    if not (np.isfinite(before) & np.isfinite(size)).all():
        summed, terms = np.zeros_like(w), np.zeros_like(w)
        for j in range(w.shape[-1] - 1, -1, -1):
            terms[..., j] = g[..., j]
            summed[..., j], sizes = terms[..., j:].sum(-1), abs(terms[..., j:]).sum(-1)
            free[..., j] = np.isinf(before[..., j]) & (abs(summed[..., j]) <= 1e-4 * sizes) & (sizes > 0)
            terms[..., j:] = _times(terms[..., j:], w[..., j : j + 1])
        alike = (nested == summed) | (np.isnan(nested) & np.isnan(summed)) | (np.isfinite(nested) & np.isfinite(summed))
        return Gradient(before * np.where(np.isnan(summed), nested, summed), abs(before) * size, free | ~alike)
    return Gradient(before * nested, abs(before) * size, free)


def _of_extreme(fold: np.ufunc, better: np.ufunc) -> Callable[[Array, Array, Array], Gradient]:
    """The gradient goes to the first that holds the extreme so far, where that is NaN to the first NaN."""

    def gradient(g: Array, w: Array, y: Array) -> Gradient:
        best, wins = fold.accumulate(w, axis=-1), np.zeros(w.shape, bool)
        wins[..., 1:] = better(w[..., 1:], best[..., :-1]) | (np.isnan(w[..., 1:]) & ~np.isnan(best[..., :-1]))
        winner = np.maximum.accumulate(np.where(wins, np.arange(w.shape[-1]), 0), -1)
        value, size = np.zeros_like(w), np.zeros_like(w)
        for made, given in ((value, g), (size, abs(g))):
            np.add.at(made, (*np.indices(w.shape)[:-1], winner), given)
        return Gradient(value, size, np.zeros(w.shape, bool))

    return gradient


def _of_exponentials(g: Array, w: Array, y: Array) -> Gradient:
    """Terms shrink by exp(y[k] − y[k + 1]) from one element to the one before; the error of an exponential in ulp is the size of its exponent."""
    apart = y[..., :-1] - y[..., 1:]
    shrunk = np.exp(np.where(y[..., :-1] == y[..., 1:], 0, apart))
    value, size = _behind(np.stack((g, abs(g))), lambda k: shrunk[..., k], np.multiply)
    share = np.where(y == -INF, 0, np.exp(w - y))
    return Gradient(share * value, share * size * (1 + np.where(np.isfinite(w - y), abs(w - y), 0)), np.zeros(w.shape, bool))


# ---------------------------------------------------------------- the table


def _sizes_of_exponentials(w: Array, y: Array, count: Array) -> tuple[Array, Array]:
    """1 + |m| + log s, m the greatest element and s = Σ exp(x − m), however many the terms."""
    greatest = np.maximum.accumulate(w, axis=-1)
    return np.where(np.isfinite(y) & np.isfinite(greatest), 1 + abs(greatest) + (y - greatest), 0), np.ones_like(count)


def _exact(w: Array, y: Array, count: Array) -> tuple[Array, Array]:
    return np.zeros(y.shape), count


REFERENCES: dict[str, Reference] = {
    "cumsum": Reference(np.add, 0.0, lambda w, y, count: (np.cumsum(abs(w), -1), count), _of_sum),
    "cumprod": Reference(np.multiply, 1.0, lambda w, y, count: (abs(y), count), _of_product, factors=True),
    "cummax": Reference(np.maximum, -INF, _exact, _of_extreme(np.maximum, np.greater)),
    "cummin": Reference(np.minimum, INF, _exact, _of_extreme(np.minimum, np.less)),
    "logcumsumexp": Reference(np.logaddexp, -INF, _sizes_of_exponentials, _of_exponentials),
}


# ---------------------------------------------------------------- along any axis


def lined_up(array: Array, axis: int, reverse: bool) -> Array:
    """The array with the scan's axis last, in its order; :func:`laid_back` is the inverse."""
    return np.moveaxis(array, axis, -1)[..., :: -1 if reverse else 1]


def laid_back(rows: Array, axis: int, reverse: bool) -> Array:
    return np.moveaxis(rows[..., :: -1 if reverse else 1], -1, axis)


def beginning(name: str, dtype: Any = np.float64) -> Any:
    """The value before the first element without ``initial``: the identity, or the limit of integers."""
    identity = REFERENCES[name].identity
    if np.dtype(dtype).kind == "f" or np.isfinite(identity):
        return identity
    return np.iinfo(dtype).max if identity > 0 else np.iinfo(dtype).min


def _begun(name: str, x: Array, axis: int, reverse: bool, initial: float | None, dtype: Any) -> Array:
    """The elements to scan, with the value before the first element in front."""
    rows = lined_up(x.astype(dtype), axis, reverse)
    start = beginning(name, dtype) if initial is None else initial
    return np.concatenate([np.full((*rows.shape[:-1], 1), start, dtype), rows], -1)


def _accumulated(fold: np.ufunc, w: Array) -> Array:
    """The inclusive scan in the dtype of w; floats are accumulated with more digits, since errors of long scans add up."""
    wide = np.longdouble if w.dtype.kind == "f" else w.dtype
    return fold.accumulate(w, axis=-1, dtype=wide).astype(w.dtype)


def scanned(
    name: str, x: Array, axis: int, dtype: Any = np.float64, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any
) -> Array:  # fmt: skip
    """The result, in float64 or in a dtype of integers, which wrap around; other options change nothing."""
    with np.errstate(all="ignore"):
        made = _accumulated(REFERENCES[name].fold, _begun(name, x, axis, reverse, initial, dtype))
    return laid_back(made[..., :-1] if exclusive else made[..., 1:], axis, reverse)


def rounded_last(found: Truth) -> Truth:
    """The truth with a scale for the accumulator's error, a share of Σ |terms|, and the last rounding, a share of the value."""
    value, size = found.value, found.scale
    scale = np.where((value == 0) | (size == 0), size, abs(value))
    ratio = np.divide(size, scale, out=np.ones_like(scale), where=np.isfinite(scale) & (scale > 0))
    return Truth(value, np.where(np.isfinite(scale), scale, 0.0), found.terms * ratio**2)


def truth(name: str, x: Array, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any) -> Truth:
    """The result, each element with its own Σ |terms|."""
    w = _begun(name, x, axis, reverse, initial, np.float64)
    reference = REFERENCES[name]
    with np.errstate(all="ignore"):
        y = _accumulated(reference.fold, w)
        size, terms = reference.sizes(w, y, np.arange(1.0, y.shape[-1] + 1))
        part = slice(None, -1) if exclusive else slice(1, None)
        parts = (y[..., part], size[..., part], np.broadcast_to(terms, y.shape)[..., part])
        return Truth(*(laid_back(each, axis, reverse) for each in parts))


def gradient(
    name: str, dy: Array, x: Array, y: Array, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any
) -> Gradient:  # fmt: skip
    """The gradient of x, by the saved result y. An exclusive result is the inclusive one of the element before."""
    if not x.size:
        return Gradient(np.zeros(x.shape), np.zeros(x.shape), np.zeros(x.shape, bool))
    g, w, saved = (lined_up(each.astype(np.float64), axis, reverse) for each in (dy, x, y))
    edge = (*w.shape[:-1], 1)
    if exclusive:
        w = w[..., :-1]
        g, saved = (g[..., 1:], saved[..., 1:]) if initial is None else (g, saved)
    if initial is not None:
        start = np.full(edge, initial)
        w = np.concatenate([start, w], -1)
        g, saved = (g, saved) if exclusive else (np.concatenate([0 * start, g], -1), np.concatenate([start, saved], -1))
    with np.errstate(all="ignore"):
        made = REFERENCES[name].gradient(g, w, saved) if w.size else Gradient(g, g, g.astype(bool))
    parts = [each[..., 0 if initial is None else 1 :] for each in (made.value, made.size, made.free)]
    if exclusive:
        parts = [np.concatenate([each, np.zeros(edge, each.dtype)], -1) for each in parts]
    return Gradient(*(laid_back(each, axis, reverse) for each in parts))
