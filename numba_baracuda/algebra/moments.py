"""Monoids of count, mean and squares apart from the mean: variance, deviation, mean."""

from __future__ import annotations

import math
from typing import Any

from .monoid import KernelMonoid

INF = math.inf


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
    "about": _apart, "moved": _moments_moved, "around": _moments, "terms": 2, "shifts": True, "corrected": True, "divides": True,
}  # fmt: skip
VAR = KernelMonoid("var", (0.0, 0.0, 0.0), _join_moments, _one_value, _variance, counts=True, **_BATCH)
STD = KernelMonoid("std", (0.0, 0.0, 0.0), _join_moments, _one_value, _deviation, counts=True, **_BATCH)


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
MOMENTS = KernelMonoid(
    "moments", (0.0, 0.0), _join_means, _one_mean, _mean_and_share, results=2, counts=True,
    about=_apart_and_whole, moved=_whole_unmoved, around=_mean, terms=2, shifts=True, corrected=True, divides=True,
)  # fmt: skip
