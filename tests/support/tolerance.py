"""The one tolerance policy: ``4·eps(accumulator)·√terms + eps(dtype)``, times Σ |terms|.

Underflow adds two steps of the smallest numbers of the dtype and of its accumulator.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from references import Array, Truth, is_whole

from numba_baracuda.core import dtypes

#: op → (factor, reason); an op without a row has none
WIDER: dict[str, tuple[float, str]] = {}


def terms_of(truth: Truth) -> Array:
    """The number of terms of each element, in a shape that broadcasts against the value."""
    terms = np.asarray(truth.terms, np.float64)
    return terms.reshape(-1, *[1] * (truth.value.ndim - 1)) if terms.ndim < truth.value.ndim else terms


def allowed(truth: Truth, element: str, op: str) -> Array:
    """The error that each element may have."""
    relative = WIDER.get(op, (1.0, ""))[0] * dtypes.BY_NAME[element].tolerance(terms_of(truth)) * truth.scale
    dtype = dtypes.numpy_dtype(element)
    step = 0.0 if is_whole(dtype) else float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return relative + np.where(truth.scale > 0, 2 * step, 0.0)


def assert_close(got: Any, truth: Truth, element: str, op: str) -> None:
    """``got``, a NumPy array of the element's dtype or the truth's own, is within the tolerance of the truth; NaN and infinities are equal."""
    assert got.dtype == dtypes.numpy_dtype(truth.element or element)
    assert got.shape == truth.value.shape
    if is_whole(got.dtype):
        np.testing.assert_array_equal(got, truth.value, err_msg=f"{op}: integers")
        return
    with np.errstate(all="ignore"):
        value, wide = truth.value, got.astype(np.float64)
        finite = np.isfinite(value)
        np.testing.assert_array_equal(np.where(finite, 0, wide), np.where(finite, 0, value), err_msg=f"{op}: NaN or infinities")
        excess = np.where(finite, abs(wide - value) - allowed(truth, element, op), -np.inf)
        excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(int(excess.argmax()), excess.shape)
        wrong = int((excess > 0).sum())
        raise AssertionError(f"{op}: {wrong} of {excess.size} elements are wrong; at {worst} got {got[worst]!r}, wants {value[worst]!r}")
