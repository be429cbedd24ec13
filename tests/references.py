"""The truth: every op in float64 NumPy, by stable sorting and ``ufunc.reduceat``, which is quick at millions of rows.

``REFERENCES[name]`` takes the op's inputs in their order, then the number of segments and the value of empty ones, which gradients ignore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Truth:
    """``value``, and what a rounding error is measured by: ``scale`` = Σ |terms| of each element, and how many ``terms`` were folded.

    Where the scale is 0 the value must be met exactly.
    """

    value: Array
    scale: Array
    terms: Array


class Runs:
    """The rows of each segment, in their order; ids outside [0, segments) belong to none."""

    def __init__(self, ids: Array, segments: int) -> None:
        self.ids, self.segments = ids.astype(np.int64), segments
        self.inside = (self.ids >= 0) & (self.ids < segments)
        kept = self.ids[self.inside]
        self.counts = np.bincount(kept, minlength=segments)
        self.filled = np.flatnonzero(self.counts)
        self.starts = (np.cumsum(self.counts) - self.counts)[self.filled]
        self.order = np.flatnonzero(self.inside)[np.argsort(kept, kind="stable")]

    def fold(self, combine: np.ufunc, x: Array, empty: float) -> Array:
        """``combine`` over the rows of each segment."""
        out = np.full((self.segments, *x.shape[1:]), empty, x.dtype)
        if self.filled.size:
            out[self.filled] = combine.reduceat(x[self.order], self.starts, axis=0)
        return out

    def spread(self, y: Array, outside: float = 0) -> Array:
        """Each row gets its segment's ``y``."""
        out = np.full((len(self.ids), *y.shape[1:]), outside, y.dtype)
        out[self.inside] = y[self.ids[self.inside]]
        return out


def _exact(value: Array) -> Truth:
    return Truth(value, np.zeros_like(value), np.ones(len(value)))


def _rounded(value: Array, terms: Array) -> Truth:
    return Truth(value, abs(value), terms)


def _column(each: Array, like: Array) -> Array:
    """One number a row, so that it broadcasts against ``like``."""
    return each.reshape(-1, *[1] * (like.ndim - 1))


def _sum(input: Array, ids: Array, segments: int, empty: float) -> Truth:
    runs = Runs(ids, segments)
    return Truth(runs.fold(np.add, input, empty), runs.fold(np.add, abs(input), abs(empty)), runs.counts)


def _mean(input: Array, ids: Array, segments: int, empty: float) -> Truth:
    total = _sum(input, ids, segments, empty)
    counts = _column(np.maximum(total.terms, 1), input)
    return Truth(total.value / counts, total.scale / counts, total.terms)


def _prod(input: Array, ids: Array, segments: int, empty: float) -> Truth:
    runs = Runs(ids, segments)
    return _rounded(runs.fold(np.multiply, input, empty), runs.counts)


def _extreme(combine: np.ufunc) -> Callable[..., Truth]:
    def extreme(input: Array, ids: Array, segments: int, empty: float) -> Truth:
        return _exact(Runs(ids, segments).fold(combine, input, empty))

    return extreme


def _sum_backward(d_output: Array, ids: Array, segments: int, empty: float) -> Truth:
    return _exact(Runs(ids, segments).spread(d_output))


def _mean_backward(d_output: Array, ids: Array, segments: int, empty: float) -> Truth:
    runs = Runs(ids, segments)
    value = runs.spread(d_output / _column(np.maximum(runs.counts, 1), d_output))
    return _rounded(value, np.ones(len(value)))


def _prod_backward(d_output: Array, input: Array, output: Array, ids: Array, segments: int, empty: float) -> Truth:
    """The product of the others: exact where one or more of them are 0."""
    runs = Runs(ids, segments)
    zeros = runs.spread(runs.fold(np.add, (input == 0).astype(np.int64), 0))
    others = runs.spread(runs.fold(np.multiply, np.where(input == 0, 1.0, input), 1.0))
    share = np.where(zeros - (input == 0) > 0, 0.0, others / np.where(input == 0, 1.0, input))
    return _rounded(runs.spread(d_output) * share, runs.spread(runs.counts))


def _extreme_backward(combine: np.ufunc) -> Callable[..., Truth]:
    """All of the gradient goes to the first row that holds the extreme."""

    def backward(d_output: Array, input: Array, ids: Array, segments: int, empty: float) -> Truth:
        runs = Runs(ids, segments)
        best = runs.spread(runs.fold(combine, input, np.nan), np.nan)
        row = np.broadcast_to(_column(np.arange(len(input)), input), input.shape)
        hit = (input == best) | (np.isnan(input) & np.isnan(best))
        first = runs.spread(runs.fold(np.minimum, np.where(hit, row, len(input)), -1), -1)
        return _exact(np.where(row == first, runs.spread(d_output), 0.0))

    return backward


_BY_KIND: dict[str, Callable[..., Truth]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "prod": _prod,
    "sum_backward": _sum_backward,
    "mean_backward": _mean_backward,
    "max_backward": _extreme_backward(np.maximum),
    "min_backward": _extreme_backward(np.minimum),
    "prod_backward": _prod_backward,
}
REFERENCES = {f"{order}segment_{name}": compute for order in ("", "unsorted_") for name, compute in _BY_KIND.items()}

#: inputs of the gradients, in their order
GRADIENT_INPUTS = {
    "sum": ("d_output", "segment_ids"),
    "mean": ("d_output", "segment_ids"),
    "max": ("d_output", "input", "segment_ids"),
    "min": ("d_output", "input", "segment_ids"),
    "prod": ("d_output", "input", "output", "segment_ids"),
}
IDENTITY = {"sum": 0.0, "mean": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}


def empty_of(name: str, dtype: Any) -> float:
    """What the op of a name gives for an empty segment when nothing else is asked for."""
    limit = float(np.finfo(dtype).max)
    kind = name.rpartition("_")[2]
    unsorted = {"max": -limit, "min": limit}
    return {"prod": 1.0, **(unsorted if name.startswith("unsorted") else {})}.get(kind, 0.0)


def truth(name: str, given: dict[str, Array], segments: int, empty: float | str | None = None) -> Truth:
    """The truth for inputs of the op's own dtype; ``empty`` as the op takes it."""
    values = [array for operand, array in given.items() if operand != "segment_ids"]
    wide = [array if operand == "segment_ids" else array.astype(np.float64) for operand, array in given.items()]
    if name.endswith("_backward"):
        number = 0.0
    elif empty is None:
        number = empty_of(name, values[0].dtype)
    else:
        number = IDENTITY[name.rpartition("_")[2]] if empty == "identity" else float(empty)
    with np.errstate(all="ignore"):
        return REFERENCES[name](*wide, segments, number)
