"""The monoids that folds and scans are made of; what one is :class:`Monoid` says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .monoid import ByType
from .monoid import Monoid as Monoid

INF = math.inf


def _add(a: Any, b: Any) -> Any:
    return a + b


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _average(state: Any, count: Any, one: Any) -> Any:
    return state / count


def _square(x: Any, other: Any, one: Any) -> Any:
    return x * x


def _root(state: Any, count: Any, one: Any) -> Any:
    return math.sqrt(state)


SUM = Monoid("sum", (0.0,), _add)
MEAN = Monoid("mean", (0.0,), _add, finish=_average, counts=True)
MAX = Monoid("max", (-INF,), "numba_baracuda.device.numbers:maximum")
MIN = Monoid("min", (INF,), "numba_baracuda.device.numbers:minimum")
PROD = Monoid("prod", (1.0,), _multiply)
NORM2 = Monoid("norm2", (0.0,), _add, _square, _root)

# ---------------------------------------------------------------- extremes with more than their value


def _at(x: Any, position: Any, one: Any) -> Any:
    return x, position


def _position(state: Any, count: Any, one: Any) -> Any:
    return state[1]


def _first_greatest(a: Any, b: Any) -> Any:
    alike = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    later = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (alike & (b[1] < a[1]))
    return b[0] if later else a[0], b[1] if later else a[1]


def _first_least(a: Any, b: Any) -> Any:
    alike = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    later = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (alike & (b[1] < a[1]))
    return b[0] if later else a[0], b[1] if later else a[1]


def _greater_behind(state: Any, x: Any, position: Any) -> Any:
    later = (not x <= state[0]) & (state[0] == state[0])
    return x if later else state[0], position if later else state[1]


def _less_behind(state: Any, x: Any, position: Any) -> Any:
    later = (not x >= state[0]) & (state[0] == state[0])
    return x if later else state[0], position if later else state[1]


def _once(x: Any, other: Any, one: Any) -> Any:
    return x, one


def _ties_of_greatest(a: Any, b: Any) -> Any:
    later = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if later else a[0], b[1] if later else a[1] + b[1] if tied else a[1]


def _ties_of_least(a: Any, b: Any) -> Any:
    later = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if later else a[0], b[1] if later else a[1] + b[1] if tied else a[1]


#: the position of the first NaN, else of the first greatest element: no position is as far as the identity's
FIRST_MAX = Monoid("first_max", (-INF, INF), _first_greatest, _at, _position, _greater_behind)
FIRST_MIN = Monoid("first_min", (INF, INF), _first_least, _at, _position, _less_behind)
#: the greatest element, and how many elements are equal to it
TIED_MAX = Monoid("tied_max", (-INF, 0.0), _ties_of_greatest, _once, results=2)
TIED_MIN = Monoid("tied_min", (INF, 0.0), _ties_of_least, _once, results=2)

# ---------------------------------------------------------------- products

_PRODUCTS = "numba_baracuda.kernels.products"
#: the product of the elements, with an exponent of its own and apart from zeros, infinities and NaN: what the product of all but one is made of
SCALED_PROD = Monoid(
    "scaled_prod", (1.0, 0.0, 0.0), ByType(f"{_PRODUCTS}:joined"), ByType(f"{_PRODUCTS}:factor"), ByType(f"{_PRODUCTS}:packed"), results=2
)

# ---------------------------------------------------------------- exponentials


def _join_exponentials(a: Any, b: Any) -> Any:
    """Σ exp x as exp(m)·s with m the greatest x. Equal infinities are one; a NaN enters s."""
    greater = a[0] > b[0]
    most, more, less = a[0] if greater else b[0], a[1] if greater else b[1], b[1] if greater else a[1]
    apart = b[0] - a[0] if greater else a[0] - b[0]
    scaled = less * math.exp(apart)
    return most, more + (less if a[0] == b[0] else scaled)


def _log_of_sum(state: Any, count: Any, one: Any) -> Any:
    return state[0] + math.log(state[1])


def _greatest_and_share(state: Any, count: Any, one: Any) -> Any:
    return state[0], one / state[1] + (state[0] - state[0])


def _greatest_and_log(state: Any, count: Any, one: Any) -> Any:
    return state[0], math.log(state[1]) + (state[0] - state[0])


def _product(x: Any, other: Any, one: Any) -> Any:
    return x * other


def _greater(a: Any, x: Any) -> Any:
    return max(a, x)


def _rescaled(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first if old == new else first * math.exp(old - new), second


_EXPONENTIALS: dict[str, Any] = {"pivot": _greater, "about": ByType("numba_baracuda.kernels.pivots:exponential"), "moved": _rescaled}
LOGSUMEXP = Monoid("logsumexp", (-INF, 0.0), _join_exponentials, _once, _log_of_sum, **_EXPONENTIALS)
#: the same for results that are rounded to a half
ROUNDED_LOGSUMEXP = replace(LOGSUMEXP, name="rounded_logsumexp", finish="numba_baracuda.kernels.pivots:rounded_log_of_sum")
#: the greatest element m and 1 / Σ exp(x − m), NaN where m is infinite
SOFTMAX = Monoid("softmax", (-INF, 0.0), _join_exponentials, _once, _greatest_and_share, results=2)
#: the greatest element m and log Σ exp(x − m), NaN where m is infinite
LOG_SOFTMAX = Monoid("log_softmax", (-INF, 0.0), _join_exponentials, _once, _greatest_and_log, results=2)
#: Σ of the products of two arrays
DOT = Monoid("dot", (0.0,), _add, _product, pairs=True)

# ---------------------------------------------------------------- squares


def _scaled(x: Any, other: Any, one: Any) -> Any:
    return abs(x), one if x != 0 else one - one


def _join_scaled(a: Any, b: Any) -> Any:
    """Σ x² as u²·s with u about the size of the greatest x, so that no square leaves the range; see Blue, "A portable Fortran program" (1978)."""
    greater = a[0] > b[0]
    most, more, less, rest = a[0] if greater else b[0], a[1] if greater else b[1], b[0] if greater else a[0], b[1] if greater else a[1]
    ratio = less / most
    return most, more + (rest if a[0] == b[0] else rest * ratio * ratio)


def _root_of_scaled(state: Any, count: Any, one: Any) -> Any:
    return state[0] * math.sqrt(state[1])


def _greater_size(a: Any, x: Any) -> Any:
    return max(a, abs(x))


#: √Σ x² wherever that can be represented
HYPOT = Monoid(
    "hypot", (0.0, 0.0), _join_scaled, _scaled, _root_of_scaled,
    pivot=_greater_size,
    about=ByType("numba_baracuda.kernels.pivots:scaled_square"),
    moved=ByType("numba_baracuda.kernels.pivots:scaled_again"),
    around=ByType("numba_baracuda.kernels.pivots:scaled_sum"),
    divides=True,
)  # fmt: skip
#: the same, quicker where the squares stay in range as they are
TRIED_HYPOT = replace(HYPOT, name="tried_hypot", suits=ByType("numba_baracuda.kernels.pivots:squares_in_range"))


def _add_three(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


_NORMS = "numba_baracuda.kernels.norms"
#: the same for folds that take elements one by one, without a pivot
SCALED_NORM2 = Monoid("scaled_norm2", (0.0, 0.0, 0.0), _add_three, ByType(f"{_NORMS}:squares"), ByType(f"{_NORMS}:root"))

# ---------------------------------------------------------------- moments


def _one_value(x: Any, other: Any, one: Any) -> Any:
    return one, x, x - x


def _join_moments(a: Any, b: Any) -> Any:
    """(count, mean, Σ (x − mean)²) of two samples together, after Chan, Golub and LeVeque, "Updating formulae" (1979)."""
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * (a[0] * share)


def _apart(x: Any, pivot: Any, one: Any) -> Any:
    return x - pivot, (x - pivot) * (x - pivot)


def _moments_moved(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    apart = old - new
    return first + count * apart, second + apart * (first + first + count * apart)


def _moments(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    """Σ (x − pivot)² is at most n times the moment about an element that is one of n, and at most n/m times about the mean of m, so few digits go."""
    share = one / count
    return count, pivot + first * share, second - first * (first * share)


def _variance(state: Any, count: Any, one: Any) -> Any:
    return state[2] * (one / count) if count > 0 else one - one


def _deviation(state: Any, count: Any, one: Any) -> Any:
    return math.sqrt(state[2] * (one / count)) if count > 0 else one - one


#: the variance and its root; where nothing is left of the count, they are 0
_BATCH: dict[str, Any] = {
    "about": _apart,
    "moved": _moments_moved,
    "around": _moments,
    "terms": 2,
    "shifts": True,
    "corrected": True,
    "divides": True,
}
VAR = Monoid("var", (0.0, 0.0, 0.0), _join_moments, _one_value, _variance, counts=True, **_BATCH)
STD = Monoid("std", (0.0, 0.0, 0.0), _join_moments, _one_value, _deviation, counts=True, **_BATCH)


def _one_mean(x: Any, other: Any, one: Any) -> Any:
    return one, x


def _join_means(a: Any, b: Any) -> Any:
    """(count, mean) of two samples together. A mean that is not finite is what IEEE arithmetic makes of the sum."""
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + apart * share if abs(apart) < INF else a[1] * (a[0] / count) + b[1] * share


def _apart_and_whole(x: Any, pivot: Any, one: Any) -> Any:
    return x - pivot, x


def _whole_unmoved(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first + count * (old - new), second


def _mean(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    """From Σ (x − pivot); where an infinite element spoils that, or the pivot, Σ x is what IEEE arithmetic says."""
    share = one / count
    mean = pivot + first * share
    return count, mean if (mean == mean) | (abs(second) < INF) else second * share


def _mean_and_share(state: Any, count: Any, one: Any) -> Any:
    return state[1], one / count if count > 0 else one - one


#: the mean, and 1 / count, 0 where nothing is left of that
MOMENTS = Monoid(
    "moments", (0.0, 0.0), _join_means, _one_mean, _mean_and_share, results=2, counts=True,
    about=_apart_and_whole, moved=_whole_unmoved, around=_mean, terms=2, shifts=True, corrected=True, divides=True,
)  # fmt: skip

# ---------------------------------------------------------------- truth


def _is_true(x: Any, other: Any, one: Any) -> Any:
    return one if x != 0 else one - one


def _or(a: Any, b: Any) -> Any:
    return a | b


def _and(a: Any, b: Any) -> Any:
    return a & b


#: over x ≠ 0, which NaN is
ANY = Monoid("any", (0,), _or, _is_true, kind="i32")
ALL = Monoid("all", (1,), _and, _is_true, kind="i32")
COUNT = Monoid("count_nonzero", (0,), _add, _is_true, kind="i64")

_MONOIDS = {
    monoid.name: monoid
    for monoid in (
        SUM, MEAN, MAX, MIN, PROD, NORM2, FIRST_MAX, FIRST_MIN, TIED_MAX, TIED_MIN, SCALED_PROD, LOGSUMEXP, ROUNDED_LOGSUMEXP, SOFTMAX, LOG_SOFTMAX,
        DOT, HYPOT, TRIED_HYPOT, SCALED_NORM2, VAR, STD, MOMENTS, ANY, ALL, COUNT,
    )
}  # fmt: skip


def monoid_of(name: str) -> Monoid:
    """The monoid of a name."""
    return _MONOIDS[name]
