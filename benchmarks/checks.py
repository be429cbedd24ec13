"""What is right: every result in float64 by plain array operations, and how far from it a result may be.

``xp`` is NumPy or CuPy. ``TRUTHS`` is keyed by the op's name without ``unsorted_``, since a truth asks nothing of the order of ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numba_baracuda import dtypes

_SLAB = 1 << 24  #: elements in float64 at a time, to spare memory


@dataclass(frozen=True)
class Truth:
    """``value``, and what a rounding error is measured by: ``scale`` = Σ |terms|, and how many ``terms`` each row folds.

    Without a scale the value must be met exactly.
    """

    value: Any
    scale: Any = None
    terms: Any = 1


def slabs(array: Any) -> list[slice]:
    """Ranges of rows that cover an array."""
    rows = max(1, _SLAB // max(1, math.prod(array.shape[1:])))
    return [slice(start, start + rows) for start in range(0, len(array), rows)]


def column(each: Any, like: Any) -> Any:
    """One number a row, so that it broadcasts against ``like``."""
    return each.reshape(-1, *[1] * (like.ndim - 1))


def _segment_sum(xp: Any, operands: Mapping[str, Any]) -> Truth:
    values, ids, shape = operands["input"], operands["segment_ids"], operands["output"].shape
    total, scale = xp.zeros(shape, xp.float64), xp.zeros(shape, xp.float64)
    for rows in slabs(values):
        wide = values[rows].astype(xp.float64)
        xp.add.at(total, ids[rows], wide)
        xp.add.at(scale, ids[rows], abs(wide))
    return Truth(total, scale, xp.bincount(ids, minlength=shape[0]))


def _segment_mean(xp: Any, operands: Mapping[str, Any]) -> Truth:
    total = _segment_sum(xp, operands)
    counts = column(xp.maximum(total.terms, 1), total.value)
    return Truth(total.value / counts, total.scale / counts, total.terms)


def _segment_sum_backward(xp: Any, operands: Mapping[str, Any]) -> Truth:
    return Truth(xp.take(operands["d_output"], operands["segment_ids"], axis=0))


def _segment_mean_backward(xp: Any, operands: Mapping[str, Any]) -> Truth:
    d_output, ids = operands["d_output"], operands["segment_ids"]
    counts = column(xp.maximum(xp.bincount(ids, minlength=len(d_output)), 1), d_output)
    value = xp.take(d_output.astype(xp.float64) / counts, ids, axis=0)
    return Truth(value, abs(value))


def _row_sum(xp: Any, operands: Mapping[str, Any]) -> Truth:
    x = operands["x"]
    parts = [(x[rows].sum(axis=1, dtype=xp.float64), abs(x[rows]).sum(axis=1, dtype=xp.float64)) for rows in slabs(x)]
    value, scale = (xp.concatenate(list(each)) for each in zip(*parts, strict=True))
    return Truth(value, scale, x.shape[1])


def _fold_permuted(xp: Any, operands: Mapping[str, Any]) -> Truth:
    rows = operands["input"][operands["permutation"]]
    return _segment_sum(xp, {"input": rows, "segment_ids": operands["sorted_ids"], "output": operands["output"]})


TRUTHS: dict[str, Callable[[Any, Mapping[str, Any]], Truth]] = {
    "segment_sum": _segment_sum,
    "segment_mean": _segment_mean,
    "segment_sum_backward": _segment_sum_backward,
    "segment_mean_backward": _segment_mean_backward,
    "row_sum": _row_sum,
    "fold_permuted": _fold_permuted,
}


def truth(xp: Any, op: str, operands: Mapping[str, Any]) -> Truth:
    """The truth of an op, its output among the operands for its shape only."""
    return TRUTHS[op.removeprefix("unsorted_")](xp, operands)


def complaint(xp: Any, got: Any, wanted: Truth) -> str:
    """What is wrong with a result, or nothing: the tolerance is :meth:`~numba_baracuda.dtypes.Element.tolerance`·Σ |terms|."""
    if got.shape != wanted.value.shape:
        return f"is of shape {got.shape}, wants {wanted.value.shape}"
    terms = xp.broadcast_to(xp.asarray(wanted.terms, xp.float64), (len(got),))
    factor = column(dtypes.element(got.dtype).tolerance(terms), got)
    wrong, worst = 0, 0.0
    for rows in slabs(got):
        error = abs(got[rows].astype(xp.float64) - wanted.value[rows])
        allowed = 0.0 if wanted.scale is None else factor[rows] * wanted.scale[rows]
        wrong += int((~(error <= allowed)).sum())  # a NaN is wrong
        worst = max(worst, float(error.max())) if error.size else worst
    return f"{wrong} of {got.size} elements are wrong, the worst by {worst:.3g}" if wrong else ""
