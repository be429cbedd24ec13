"""The truths of the segment family: a row for each kind of op, for ids in any order.

Folds combine pairs of neighbouring rows, then pairs of the results, and so on. This works for any function of two arrays, without atomics, in log₂ of
the longest segment passes, and with an error of a few ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from numba_baracuda import OPS

from .checks import Truth, column, inverse
from .values import wide

_SLAB = 1 << 26  #: elements that are folded at a time, unless one column has more


class Runs:
    """The rows of each segment in their order: sorted once, folded often."""

    def __init__(self, xp: Any, ids: Any, segments: int = 0) -> None:
        self.xp, self.ids = xp, ids
        self.counts = xp.bincount(ids, minlength=segments)
        self._order = None if bool((ids[1:] >= ids[:-1]).all()) else xp.argsort(ids, kind="stable")

    def fold(self, combine: Callable[[Any, Any], Any], rows: Any, empty: float = 0.0) -> Any:
        """``combine`` over the rows of each segment, in float64."""
        xp, ids = self.xp, self.ids
        if self._order is not None:
            rows, ids = rows[self._order], ids[self._order]
        while True:
            first = xp.ones(len(ids), bool)
            first[1:] = ids[1:] != ids[:-1]
            heads = xp.flatnonzero(first)
            if len(heads) == len(ids):
                break
            rank = xp.arange(len(ids)) - heads[xp.cumsum(first) - 1]
            left = xp.flatnonzero(rank % 2 == 0)
            right = xp.minimum(left + 1, len(ids) - 1)
            right = xp.where(ids[right] == ids[left], right, left)
            alone = column(right == left, rows)
            rows, ids = xp.where(alone, rows[left], combine(rows[left], rows[right])), ids[left]
        folded = xp.full((len(self.counts), *rows.shape[1:]), empty, xp.float64)
        folded[ids] = rows
        return folded

    def spread(self, each: Any) -> Any:
        """Each row gets the element of its segment."""
        return self.xp.take(each, self.ids, axis=0)


Operands = Mapping[str, Any]
#: runs, columns of the operands in float64, the value of an empty segment -> a truth of these columns
Row = Callable[[Runs, Operands, float], Truth]


def _sum(runs: Runs, o: Operands, empty: float) -> Truth:
    xp, x = runs.xp, o["input"]
    return Truth(runs.fold(xp.add, x, empty), runs.fold(xp.add, abs(x)), runs.counts)


def _mean(runs: Runs, o: Operands, empty: float) -> Truth:
    total = _sum(runs, o, empty)
    counts = column(runs.xp.maximum(runs.counts, 1), total.value)
    return Truth(total.value / counts, total.scale / counts, runs.counts)


def _extreme(which: str) -> Row:
    return lambda runs, o, empty: Truth(runs.fold(getattr(runs.xp, which), o["input"], empty), None, runs.counts)


def _winners(runs: Runs, x: Any, which: str) -> tuple[Any, Any]:
    """Which rows have the extreme of their segment, and the first of these in each segment; the number of rows for empty ones."""
    xp = runs.xp
    best = x == runs.spread(runs.fold(getattr(xp, which), x))
    row = column(xp.arange(len(x), dtype=xp.float64), x)
    return best, runs.fold(xp.minimum, xp.where(best, row, len(x)), len(x))


def _first(which: str) -> Row:
    def first(runs: Runs, o: Operands, empty: float) -> Truth:
        rows = _winners(runs, o["input"], which)[1]
        return Truth(runs.xp.where(column(runs.counts == 0, rows), empty, rows), None, runs.counts)

    return first


def _prod(runs: Runs, o: Operands, empty: float) -> Truth:
    """Products of factors near 1 are rounded to the same side again and again, so that errors add up."""
    value = runs.fold(runs.xp.multiply, o["input"], empty)
    return Truth(value, abs(value), runs.counts**2)


def _shifted(runs: Runs, x: Any) -> tuple[Any, Any, Any]:
    """The maximum of each segment, exp(row − maximum), and the sums of these; 0 and 1 for empty segments."""
    xp = runs.xp
    top = runs.fold(xp.maximum, x)
    powers = xp.exp(x - runs.spread(top))
    return top, powers, runs.fold(xp.add, powers, 1.0)


def _logsumexp(runs: Runs, o: Operands, empty: float) -> Truth:
    xp = runs.xp
    top, _, total = _shifted(runs, o["input"])
    value = xp.where(column(runs.counts == 0, top), empty, top + xp.log(total))
    return Truth(value, abs(top) + xp.log(total) + 1, runs.counts)


def _norm2(runs: Runs, o: Operands, empty: float) -> Truth:
    xp = runs.xp
    value = xp.sqrt(runs.fold(xp.add, o["input"] ** 2, empty))
    return Truth(value, value, runs.counts)


def _var(runs: Runs, o: Operands, empty: float) -> Truth:
    """Of a sample: the sum of squares is divided by one less than the rows."""
    xp, x = runs.xp, o["input"]
    share = 1 / column(xp.maximum(runs.counts - 1, 1), x)
    apart = x - runs.spread(_mean(runs, o, 0.0).value)
    return Truth(runs.fold(xp.add, apart**2, empty) * share, runs.fold(xp.add, x**2) * share, runs.counts)


def _std(runs: Runs, o: Operands, empty: float) -> Truth:
    """The mean's rounding error adds to that of the deviations."""
    variance, mean = _var(runs, o, empty).value, _mean(runs, o, 0.0).value
    value = runs.xp.sqrt(variance)
    return Truth(value, value + abs(mean) / column(runs.xp.maximum(runs.counts - 1, 1), mean) ** 0.5, runs.counts)


def _softmax(runs: Runs, o: Operands, empty: float) -> Truth:
    _, powers, total = _shifted(runs, o["input"])
    value = powers / runs.spread(total)
    return Truth(value, value, runs.spread(runs.counts))


def _log_softmax(runs: Runs, o: Operands, empty: float) -> Truth:
    xp = runs.xp
    top, _, total = _shifted(runs, o["input"])
    apart, logs = o["input"] - runs.spread(top), runs.spread(xp.log(total))
    return Truth(apart - logs, 1 + abs(apart) + logs, runs.spread(runs.counts))


def _sum_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    return Truth(runs.spread(o["d_output"]))


def _mean_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    value = runs.spread(o["d_output"] / column(runs.xp.maximum(runs.counts, 1), o["d_output"]))
    return Truth(value, abs(value))


def _extreme_backward(which: str) -> Row:
    """The gradient goes to the first row that has the extreme; other conventions divide it among all such rows."""

    def backward(runs: Runs, o: Operands, empty: float) -> Truth:
        xp, x = runs.xp, o["input"]
        best, rows = _winners(runs, x, which)
        first = column(xp.arange(len(x)), x) == runs.spread(rows)
        tied = best & runs.spread(runs.fold(xp.add, best.astype(xp.float64)) > 1)
        return Truth(xp.where(first, runs.spread(o["d_output"]), 0.0), free=tied)

    return backward


def _prod_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    """For inputs without zeros."""
    value = runs.spread(o["d_output"] * runs.fold(runs.xp.multiply, o["input"])) / o["input"]
    return Truth(value, abs(value), runs.spread(runs.counts) ** 2)


def _logsumexp_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    apart = o["input"] - runs.spread(o["output"])
    value = runs.spread(o["d_output"]) * runs.xp.exp(apart)
    return Truth(value, abs(value) * (1 + abs(apart)))


def _norm2_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    value = runs.spread(o["d_output"]) * o["input"] * runs.spread(inverse(runs.xp, o["output"]))
    return Truth(value, abs(value), 4)


def _moments_backward(runs: Runs, o: Operands, factor: Any) -> Truth:
    """``factor`` · d_output · (input − mean) / (count − 1); the terms of the difference are the input and its mean."""
    x, counts = o["input"], column(runs.counts, o["d_output"])
    share = runs.spread(factor * o["d_output"] / runs.xp.maximum(counts - 1, 1))
    mean, size = (runs.spread(runs.fold(runs.xp.add, each) / runs.xp.maximum(counts, 1)) for each in (x, abs(x)))
    return Truth(share * (x - mean), abs(share) * (abs(x) + size), runs.spread(runs.counts))


def _var_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    return _moments_backward(runs, o, 2)


def _std_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    return _moments_backward(runs, o, inverse(runs.xp, o["output"]))


def _softmax_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    xp, dy, y = runs.xp, o["d_output"], o["output"]
    value = y * (dy - runs.spread(runs.fold(xp.add, y * dy)))
    return Truth(value, y * (abs(dy) + runs.spread(runs.fold(xp.add, y * abs(dy)))), runs.spread(runs.counts))


def _log_softmax_backward(runs: Runs, o: Operands, empty: float) -> Truth:
    xp, dy, shares = runs.xp, o["d_output"], runs.xp.exp(o["output"])
    value = dy - shares * runs.spread(runs.fold(xp.add, dy))
    return Truth(value, abs(dy) + shares * runs.spread(runs.fold(xp.add, abs(dy))), runs.spread(runs.counts))


ROWS: dict[str, Row] = {
    "sum": _sum,
    "mean": _mean,
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
    "argmax": _first("maximum"),
    "argmin": _first("minimum"),
    "prod": _prod,
    "logsumexp": _logsumexp,
    "norm2": _norm2,
    "var": _var,
    "std": _std,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "sum_backward": _sum_backward,
    "mean_backward": _mean_backward,
    "max_backward": _extreme_backward("maximum"),
    "min_backward": _extreme_backward("minimum"),
    "prod_backward": _prod_backward,
    "logsumexp_backward": _logsumexp_backward,
    "norm2_backward": _norm2_backward,
    "var_backward": _var_backward,
    "std_backward": _std_backward,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
}


def empty_of(op: str, dtype: Any) -> float:
    """The result of an op for an empty segment, for values of a dtype."""
    about: Any = np.iinfo if dtype.kind == "i" else ml_dtypes.finfo  # ml_dtypes has bfloat16, too
    limits, usual = about(dtype), OPS[op].traits["empty"]
    return float({"least": limits.min, "greatest": limits.max, "-inf": -np.inf}.get(usual, usual))


def segment_truth(xp: Any, op: str, operands: Operands) -> Truth:
    """The truth by :data:`ROWS`, some columns at a time."""
    kind = op.removeprefix("unsorted_").removeprefix("segment_")
    backward = kind.endswith("_backward")
    given = {name: operands[name] for name in (("d_output", "input", "output") if backward else ("input",)) if name in operands}
    first, ids = next(iter(given.values())), operands["segment_ids"]
    segments = 0 if "softmax" in kind else len(operands["d_output" if backward else "output"])
    runs, empty = Runs(xp, ids, segments), empty_of(op, first.dtype)
    tables = {name: array.reshape(len(array), -1) for name, array in given.items()}
    step = max(1, _SLAB // len(ids))
    parts = [
        ROWS[kind](runs, {name: wide(xp, table[:, start : start + step]) for name, table in tables.items()}, empty)
        for start in range(0, math.prod(first.shape[1:]), step)
    ]

    def joined(pieces: list[Any]) -> Any:
        return None if pieces[0] is None else xp.concatenate(pieces, axis=1).reshape(-1, *first.shape[1:])

    value, scale, free = (joined([getattr(part, name) for part in parts]) for name in ("value", "scale", "free"))
    return Truth(value, scale, parts[0].terms, free)
