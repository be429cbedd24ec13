"""The truth: every op in float64 NumPy, by stable sorting and ``ufunc.reduceat``, which is quick at millions of rows.

``REFERENCES[name]`` takes the op's inputs in their order, then what was :class:`Asked`. Integers are folded as int64, which wraps as
any shorter type once it is cast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Truth:
    """``value``, and the measure of its rounding error: ``scale`` = Σ |terms| of each element, and the number of ``terms``.

    ``terms`` is one number a row or one for each element. Errors of the accumulator grow with its root, the last rounding does not, so the square
    of a condition number belongs here. Where the scale is 0 the value must be met exactly, as must all integers. ``element`` is that of the result
    where it is not that of the values.
    """

    value: Array
    scale: Array
    terms: Array
    element: str = ""


@dataclass(frozen=True)
class Asked:
    """The arguments of an op that are no arrays; gradients ignore ``empty``."""

    segments: int
    empty: float = 0
    ties: str = "first"
    correction: float = 1


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

    def first(self, x: Array) -> Array:
        """The first row of each segment, 0 where there is none."""
        out = np.zeros((self.segments, *x.shape[1:]), x.dtype)
        out[self.filled] = x[self.order[self.starts]]
        return out

    def spread(self, y: Array, outside: float = 0) -> Array:
        """Each row gets its segment's ``y``."""
        out = np.full((len(self.ids), *y.shape[1:]), outside, y.dtype)
        out[self.inside] = y[self.ids[self.inside]]
        return out

    def or_empty(self, y: Array, empty: float) -> Array:
        """``y``, but ``empty`` where a segment has no rows."""
        return np.where(_column(self.counts, y) > 0, y, empty)

    def or_zero(self, x: Array) -> Array:
        """``x``, but 0 in rows that belong to no segment."""
        return np.where(_column(self.inside, x), x, 0)


def _exact(value: Array) -> Truth:
    return Truth(value, np.zeros(value.shape), np.ones(len(value)))


def _rounded(value: Array, terms: Array) -> Truth:
    return Truth(value, abs(value), terms)


def _column(each: Array, like: Array) -> Array:
    """One number for each row, in a shape that broadcasts against ``like``."""
    return each.reshape(-1, *[1] * (like.ndim - 1))


# ---------------------------------------------------------------- sums, products, extremes


def _sum(input: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    return Truth(runs.fold(np.add, input, asked.empty), runs.fold(np.add, abs(input), abs(asked.empty)), runs.counts)


def _mean(input: Array, ids: Array, asked: Asked) -> Truth:
    total = _sum(input, ids, asked)
    counts = _column(np.maximum(total.terms, 1), input)
    return Truth(total.value / counts, total.scale / counts, total.terms)


def _prod(input: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    return _rounded(runs.fold(np.multiply, input, asked.empty), runs.counts)


def _extreme(combine: np.ufunc) -> Callable[..., Truth]:
    def extreme(input: Array, ids: Array, asked: Asked) -> Truth:
        return _exact(Runs(ids, asked.segments).fold(combine, input, asked.empty))

    return extreme


def _first(combine: np.ufunc) -> Callable[..., Truth]:
    """The first row that holds the extreme, or a NaN."""

    def first(input: Array, ids: Array, asked: Asked) -> Truth:
        runs = Runs(ids, asked.segments)
        best = runs.spread(runs.fold(combine, input, 0))
        hit = (input == best) | (np.isnan(input) & np.isnan(best))
        row = np.broadcast_to(_column(np.arange(len(input)), input), input.shape)
        return _exact(runs.fold(np.minimum, np.where(hit, row, len(input)), asked.empty))

    return first


def _sum_backward(d_output: Array, ids: Array, asked: Asked) -> Truth:
    return _exact(Runs(ids, asked.segments).spread(d_output))


def _mean_backward(d_output: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    value = runs.spread(d_output / _column(np.maximum(runs.counts, 1), d_output))
    return _rounded(value, np.ones(len(value)))


def _prod_backward(d_output: Array, input: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    """The product of the other elements, independent of the saved output: with a separate exponent, and counts of 0, infinity and NaN."""
    runs = Runs(ids, asked.segments)
    kinds = [input == 0, np.isinf(input), np.isnan(input)]
    zeros, infinities, nans = (runs.spread(runs.fold(np.add, each.astype(np.int64), 0)) - each > 0 for each in kinds)
    mantissas, exponents = np.frexp(np.where(kinds[0] | ~np.isfinite(input), np.copysign(1.0, input), input))
    low = abs(mantissas) < np.sqrt(0.5)
    mantissas, exponents = np.where(low, 2 * mantissas, mantissas), (exponents - low).astype(np.int64)
    apart = np.clip(runs.spread(runs.fold(np.add, exponents, 0)) - exponents, -9999, 9999)
    product = runs.spread(runs.fold(np.multiply, mantissas, 1.0), 1.0) / mantissas
    share = np.where(zeros | infinities, np.copysign(np.where(zeros, np.where(infinities, np.nan, 0.0), np.inf), product), np.ldexp(product, apart))
    return _rounded(runs.or_zero(runs.spread(d_output) * np.where(nans, np.nan, share)), runs.spread(runs.counts))


def _extreme_backward(combine: np.ufunc) -> Callable[..., Truth]:
    """The gradient goes to the first row that holds the extreme, to all of them, or to all of them in even shares."""

    def backward(d_output: Array, input: Array, ids: Array, asked: Asked) -> Truth:
        runs = Runs(ids, asked.segments)
        best = runs.spread(runs.fold(combine, input, np.nan), np.nan)
        hit = (input == best) | (np.isnan(input) & np.isnan(best))
        upstream = runs.spread(d_output)
        if asked.ties == "first":
            row = np.broadcast_to(_column(np.arange(len(input)), input), input.shape)
            hit &= row == runs.spread(runs.fold(np.minimum, np.where(hit, row, len(input)), -1), -1)
        elif asked.ties == "even":
            ties = runs.spread(runs.fold(np.add, hit.astype(np.int64), 1), 1)
            return _rounded(runs.or_zero(np.where(hit, upstream / ties, 0.0)), np.ones(len(input)))
        return _exact(runs.or_zero(np.where(hit, upstream, 0.0)))

    return backward


# ---------------------------------------------------------------- exponentials


def _logsumexp(input: Array, ids: Array, asked: Asked) -> Truth:
    """The error is 4 ulp of the accumulator times 1 + |m| + log s, m the greatest element and s = Σ exp(x − m), however many the terms."""
    runs = Runs(ids, asked.segments)
    greatest = runs.fold(np.maximum, input, -np.inf)
    shift = np.where(np.isfinite(greatest), greatest, 0.0)
    logs = np.log(runs.fold(np.add, np.exp(input - runs.spread(shift)), 0.0))
    scale = np.where(np.isfinite(logs), 1 + abs(shift) + logs, 0.0)
    return Truth(runs.or_empty(shift + logs, asked.empty), runs.or_empty(scale, abs(asked.empty)), np.ones(asked.segments))


def _logsumexp_backward(d_output: Array, input: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    saved = runs.spread(output)
    apart = input - saved
    value = runs.or_zero(np.where(saved == -np.inf, 0.0, runs.spread(d_output) * np.exp(apart)))
    return _rounded(value, _finite((1 + abs(apart)) ** 2))


def _softmax(input: Array, ids: Array, asked: Asked) -> Truth:
    """The exponential multiplies the error of x − m, m the greatest element, by |x − m|."""
    runs = Runs(ids, asked.segments)
    apart = input - runs.spread(runs.fold(np.maximum, input, 0.0))
    shares = np.exp(apart)
    value = runs.or_zero(shares / runs.spread(runs.fold(np.add, shares, 1.0), 1.0))
    return _rounded(value, _finite((1 + abs(apart)) ** 2 + _column(runs.spread(runs.counts), apart)))


def _softmax_backward(d_output: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    both = output * d_output
    value = runs.or_zero(output * (d_output - runs.spread(runs.fold(np.add, both, 0.0))))
    scale = runs.or_zero(abs(output) * (abs(d_output) + runs.spread(runs.fold(np.add, abs(both), 0.0))))
    return Truth(value, scale, runs.spread(runs.counts))


def _log_softmax(input: Array, ids: Array, asked: Asked) -> Truth:
    """x − m is rounded once, and the logarithm of s has the error of a sum of as many terms as the segment has; m itself adds none."""
    runs = Runs(ids, asked.segments)
    apart = input - runs.spread(runs.fold(np.maximum, input, 0.0))
    logs = runs.spread(np.log(runs.fold(np.add, np.exp(apart), 1.0)))
    scale = np.where(np.isfinite(apart) & np.isfinite(logs), 1 + abs(apart) + logs, 0.0)
    return Truth(runs.or_zero(apart - logs), runs.or_zero(scale), runs.spread(runs.counts))


def _log_softmax_backward(d_output: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    shares = np.exp(output)
    value = runs.or_zero(d_output - shares * runs.spread(runs.fold(np.add, d_output, 0.0)))
    scale = runs.or_zero(abs(d_output) + shares * runs.spread(runs.fold(np.add, abs(d_output), 0.0)))
    return Truth(value, scale, runs.spread(runs.counts) + 1)


def _finite(terms: Array) -> Array:
    return np.where(np.isfinite(terms), terms, 1.0)


# ---------------------------------------------------------------- norms and moments


def _norm2(input: Array, ids: Array, asked: Asked) -> Truth:
    """Squares are scaled by a power of two near the greatest element."""
    runs = Runs(ids, asked.segments)
    _, exponents = np.frexp(runs.fold(np.maximum, np.where(np.isfinite(input), abs(input), 0.0), 0.0))
    scaled = np.ldexp(input, -runs.spread(exponents))
    norm = np.ldexp(np.sqrt(runs.fold(np.add, scaled * scaled, 0.0)), exponents)
    return _rounded(runs.or_empty(norm, asked.empty), runs.counts)


def _norm2_backward(d_output: Array, input: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    norm = runs.spread(output)
    return _rounded(runs.or_zero(np.where(norm == 0, 0.0, runs.spread(d_output) * input / norm)), np.ones(len(input)))


def _moments(runs: Runs, x: Array) -> tuple[Array, Array, Array]:
    """The mean of each segment, each row's difference from it, and Σ of their squares; taken from the first row, so that equal rows differ by 0."""
    first = runs.first(x)
    shifted = x - runs.spread(first)
    counts = _column(np.maximum(runs.counts, 1), x)
    mean = runs.fold(np.add, shifted, 0.0) / counts
    plain = runs.spread(runs.fold(np.add, x, 0.0) / counts)  # where the mean is infinite, finite rows differ from it by infinity
    apart = runs.or_zero(np.where(np.isfinite(plain), shifted - runs.spread(mean), x - plain))
    return first + mean, apart, runs.fold(np.add, apart * apart, 0.0)


def _var(input: Array, ids: Array, asked: Asked) -> Truth:
    """A mean that is large compared to the deviations adds an error by their ratio, once and not for each term."""
    runs = Runs(ids, asked.segments)
    mean, _, squares = _moments(runs, input)
    counts, left = _column(runs.counts, input), _column(runs.counts - asked.correction, input)
    value = np.where(left > 0, squares / np.where(left > 0, left, 1), 0.0)
    ratio = np.sqrt(counts * mean * mean / np.where(squares > 0, squares, np.inf))
    return _rounded(runs.or_empty(value, asked.empty), _finite((np.sqrt(counts) + 1 + ratio) ** 2))


def _std(input: Array, ids: Array, asked: Asked) -> Truth:
    runs = Runs(ids, asked.segments)
    variance = _var(input, ids, asked)
    return _rounded(runs.or_empty(np.sqrt(variance.value), asked.empty), variance.terms)


def _moments_backward(d_output: Array, input: Array, ids: Array, asked: Asked, divisor: Array) -> Truth:
    """d_output · (x − mean) / divisor, and 0 where the divisor is 0; x and Σ x / count are its terms."""
    runs = Runs(ids, asked.segments)
    _, apart, _ = _moments(runs, input)
    sizes = runs.fold(np.add, abs(input), 0.0) / _column(np.maximum(runs.counts, 1), input)
    share = runs.spread(np.where(divisor == 0, 0.0, d_output / np.where(divisor == 0, 1.0, divisor)))
    value = np.where(runs.spread(divisor) == 0, 0.0, share * apart)  # for any values of the rows
    return Truth(runs.or_zero(value), runs.or_zero(abs(share) * (abs(input) + runs.spread(sizes))), runs.spread(runs.counts) + 1)


def _var_backward(d_output: Array, input: Array, ids: Array, asked: Asked) -> Truth:
    left = np.maximum(Runs(ids, asked.segments).counts - asked.correction, 0) / 2
    return _moments_backward(d_output, input, ids, asked, np.broadcast_to(_column(left, d_output), d_output.shape))


def _std_backward(d_output: Array, input: Array, output: Array, ids: Array, asked: Asked) -> Truth:
    left = np.maximum(Runs(ids, asked.segments).counts - asked.correction, 0)
    return _moments_backward(d_output, input, ids, asked, np.where(_column(left, output) == 0, 0.0, _column(left, output) * output))


# ---------------------------------------------------------------- by name

_BY_STEM: dict[str, Callable[..., Truth]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "prod": _prod,
    "logsumexp": _logsumexp,
    "norm2": _norm2,
    "var": _var,
    "std": _std,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "argmax": _first(np.maximum),
    "argmin": _first(np.minimum),
    "sum_backward": _sum_backward,
    "mean_backward": _mean_backward,
    "max_backward": _extreme_backward(np.maximum),
    "min_backward": _extreme_backward(np.minimum),
    "prod_backward": _prod_backward,
    "logsumexp_backward": _logsumexp_backward,
    "norm2_backward": _norm2_backward,
    "var_backward": _var_backward,
    "std_backward": _std_backward,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
}
OPS = {name: op for name, op in nb.OPS.items() if op.family == "segment"}
REFERENCES = {name: _BY_STEM[kind] for name in OPS if (kind := name.removeprefix("unsorted_").removeprefix("segment_")) in _BY_STEM}
FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i32", "i64")
IDENTITY = {"prod": 1, "max": -np.inf, "min": np.inf, "logsumexp": -np.inf}


def stem(name: str) -> str:
    """The fold of an op: ``"max"`` for ``"unsorted_segment_max_backward"``."""
    return name.removeprefix("unsorted_").removeprefix("segment_").removesuffix("_backward")


#: stems of ops that take integers as well, of ops with a result for each row, and of ops whose results are indices
WITH_INTEGERS = tuple(dict.fromkeys(stem(name) for name, op in OPS.items() if {*INTEGERS} <= {*op.elements}))
BY_ROW = tuple(dict.fromkeys(stem(name) for name, op in OPS.items() if not op.traits["backward"] and op.operands[-1].axes[0] == "num_inputs"))
POSITIONS = tuple(dict.fromkeys(stem(name) for name, op in OPS.items() if op.traits["results"]))


def is_whole(dtype: Any) -> bool:
    return bool(np.issubdtype(dtype, np.integer))


def empty_of(name: str, dtype: Any, empty: float | str | None = None) -> float:
    """The result of an op for an empty segment; ``empty`` is the op's option."""
    limits = np.iinfo(dtype) if is_whole(dtype) else ml_dtypes.finfo(dtype)
    least, most = (int(limits.min), int(limits.max)) if is_whole(dtype) else (float(limits.min), float(limits.max))
    kind = stem(name)
    if empty is None:
        usual: Any = OPS[name].traits["empty"]
        return {"least": least, "greatest": most, "-inf": -np.inf}.get(usual, usual)
    number: Any = IDENTITY.get(kind, 0) if empty == "identity" else empty
    return int({-np.inf: least, np.inf: most}.get(number, number)) if is_whole(dtype) else float(number)


def truth(
    name: str, given: dict[str, Array], segments: int, empty: float | str | None = None, *,
    ties: str = "first", correction: float = 1, result: str = "",
) -> Truth:  # fmt: skip
    """The truth for inputs of the op's own dtype, and options as in descriptors. Values too large for that dtype become infinities."""
    dtype = next(array.dtype for operand, array in given.items() if operand != "segment_ids")
    work = np.int64 if is_whole(dtype) else np.float64
    wide = [array if operand == "segment_ids" else array.astype(work) for operand, array in given.items()]
    backward = name.endswith("_backward") or stem(name) in BY_ROW
    element = result or (*OPS[name].traits["results"], "")[0]
    dtype = numpy_dtype(element) if element else dtype
    with np.errstate(all="ignore"):
        made = REFERENCES[name](*wide, Asked(segments, 0 if backward else empty_of(name, dtype, empty), ties, correction))
        held = made.value.astype(dtype)
        if is_whole(dtype):
            return Truth(held, made.scale, made.terms, element)
        held = held.astype(np.float64)
        return Truth(np.where(np.isinf(held), held, made.value), made.scale, made.terms)
