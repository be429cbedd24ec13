"""The truth of every result in float64 by plain array operations, and the tolerance. ``xp`` is NumPy or CuPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from numba_baracuda.core import dtypes

from .values import wide

_SLAB = 1 << 24  #: elements in float64 at a time, to spare memory
#: the least normal number of float32: CuPy takes lesser ones for 0
_LEAST = 2.0**-126


@dataclass(frozen=True)
class Truth:
    """``value``, and what a rounding error is measured by: ``scale`` = Σ |terms|, and how many ``terms`` each row folds, or each element.

    Without a scale the value must be met exactly. Conventions differ on rows without terms, and on the elements of ``free``, which broadcasts against
    the value: peers are not checked there.
    """

    value: Any
    scale: Any = None
    terms: Any = 1
    free: Any = None


def slabs(array: Any) -> list[slice]:
    """Ranges of rows that cover an array."""
    rows = max(1, _SLAB // max(1, math.prod(array.shape[1:])))
    return [slice(start, start + rows) for start in range(0, len(array), rows)]


def column(each: Any, like: Any) -> Any:
    """One number for each row, in a shape that broadcasts against ``like``."""
    return each.reshape(-1, *[1] * (like.ndim - 1))


def spread(xp: Any, each: Any, like: Any) -> Any:
    """One number for all, for each row or for each element, as a view in the shape of ``like``."""
    return xp.broadcast_to(column(each, like) if each.ndim == 1 else each, like.shape)


def inverse(xp: Any, x: Any) -> Any:
    """1 / x, and 0 where x is."""
    return xp.where(x == 0, 0.0, 1 / xp.where(x == 0, 1.0, x))


def row_sum(xp: Any, operands: Mapping[str, Any]) -> Truth:
    x = operands["x"]
    parts = [(x[rows].sum(axis=1, dtype=xp.float64), abs(x[rows]).sum(axis=1, dtype=xp.float64)) for rows in slabs(x)]
    value, scale = (xp.concatenate(list(each)) for each in zip(*parts, strict=True))
    return Truth(value, scale, x.shape[1])


def complaint(xp: Any, got: Any, wanted: Truth, conventions: bool = True) -> str:
    """What is wrong with a result, or "": the tolerance is :meth:`~numba_baracuda.core.dtypes.Element.tolerance`·Σ |terms|, or a subnormal step.

    Numbers below the normal ones of float32 count as 0.
    ``conventions``: whether elements are checked that depend on a convention.
    """
    if got.shape != wanted.value.shape:
        return f"is of shape {got.shape}, wants {wanted.value.shape}"
    each, kind = xp.asarray(wanted.terms, xp.float64), dtypes.element(got.dtype)
    terms, factor = spread(xp, each, got), spread(xp, kind.tolerance(each), got)
    step = max(kind.tiny * kind.eps, 0.0 if kind.accumulator == "f64" else _LEAST) if kind.eps else 0.0
    wrong, worst = 0, 0.0
    for rows in slabs(got):
        found, value = wide(xp, got[rows]), wanted.value[rows]
        with np.errstate(invalid="ignore"):
            error = xp.where(found == value, 0.0, abs(found - value))  # also where both are infinite
        allowed = 0.0 if wanted.scale is None else xp.maximum(factor[rows] * wanted.scale[rows], step)
        if not conventions:
            error = xp.where(terms[rows] == 0, 0.0, error)
            error = error if wanted.free is None else xp.where(wanted.free[rows], 0.0, error)
        wrong += int((~(error <= allowed)).sum())  # a NaN is wrong
        worst = max(worst, float(error.max())) if error.size else worst
    return f"{wrong} of {got.size} elements are wrong, the worst by {worst:.3g}" if wrong else ""
