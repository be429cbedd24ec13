"""Monoids of count, mean and Σ (x − mean)²: variance, standard deviation, mean."""

from __future__ import annotations

import math
from typing import Any

from .monoid import KernelMonoid

INF = math.inf


def _one_value(x: Any, other: Any, one: Any) -> Any:
    return one, x, x - x


def _combine_moments(a: Any, b: Any) -> Any:
    """(count, mean, Σ (x − mean)²) of two samples combined, after Chan, Golub and LeVeque, "Updating formulae" (1979)."""
    count, difference = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + difference * share, a[2] + b[2] + difference * difference * (a[0] * share)


def _deviation_terms(x: Any, pivot: Any, one: Any) -> Any:
    return x - pivot, (x - pivot) * (x - pivot)


def _rebase_moments(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    difference = old - new
    return first + count * difference, second + difference * (first + first + count * difference)


def _moments_state(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    """About one of n elements Σ (x − pivot)² is at most n times Σ (x − mean)², about the mean of m of them n / m times, so few digits are lost."""
    share = one / count
    return count, pivot + first * share, second - first * (first * share)


def _variance(state: Any, count: Any, one: Any) -> Any:
    return state[2] * (one / count) if count > 0 else one - one


def _deviation(state: Any, count: Any, one: Any) -> Any:
    return math.sqrt(state[2] * (one / count)) if count > 0 else one - one


#: the variance and its root; both are 0 where the count less the correction is not positive
_BATCH: dict[str, Any] = {
    "pivot_terms": _deviation_terms, "rebase": _rebase_moments, "pivot_state": _moments_state, "term_count": 2, "subtracts_origin": True,
    "corrected": True, "divides": True,
}  # fmt: skip
VAR = KernelMonoid("var", (0.0, 0.0, 0.0), _combine_moments, _one_value, _variance, counts=True, **_BATCH)
STD = KernelMonoid("std", (0.0, 0.0, 0.0), _combine_moments, _one_value, _deviation, counts=True, **_BATCH)


def _one_mean(x: Any, other: Any, one: Any) -> Any:
    return one, x


def _combine_means(a: Any, b: Any) -> Any:
    """(count, mean) of two samples combined. A mean that is not finite is what IEEE arithmetic makes of the sum."""
    count, difference = a[0] + b[0], b[1] - a[1]
    share = b[0] / count if count > 0 else b[0]
    return count, a[1] + difference * share if abs(difference) < INF else a[1] * (a[0] / count) + b[1] * share


def _deviation_and_value(x: Any, pivot: Any, one: Any) -> Any:
    return x - pivot, x


def _rebase_first(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first + count * (old - new), second


def _mean_state(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    """(count, mean) from Σ (x − pivot), or from Σ x where an infinite element or pivot makes that NaN."""
    share = one / count
    mean = pivot + first * share
    return count, mean if (mean == mean) | (abs(second) < INF) else second * share


def _mean_and_share(state: Any, count: Any, one: Any) -> Any:
    return state[1], one / count if count > 0 else one - one


#: the mean, and 1 / count, or 0 where the count is not positive
MOMENTS = KernelMonoid(
    "moments", (0.0, 0.0), _combine_means, _one_mean, _mean_and_share, results=2, counts=True,
    pivot_terms=_deviation_and_value, rebase=_rebase_first, pivot_state=_mean_state, term_count=2, subtracts_origin=True, corrected=True,
    divides=True,
)  # fmt: skip
