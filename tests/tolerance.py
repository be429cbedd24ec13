"""The one tolerance policy: ``4·eps(accumulator)·√terms + eps(dtype)``, times Σ |terms|."""

from __future__ import annotations

from typing import Any

import numpy as np
from references import Array, Truth

from numba_baracuda import dtypes

#: op → (factor, reason); an op without a row has none
WIDER: dict[str, tuple[float, str]] = {}


def allowed(truth: Truth, element: str, op: str) -> Array:
    """The error that each element may have."""
    terms = np.asarray(truth.terms, np.float64).reshape(-1, *[1] * (truth.value.ndim - 1))
    return WIDER.get(op, (1.0, ""))[0] * dtypes.BY_NAME[element].tolerance(terms) * truth.scale


def assert_close(got: Any, truth: Truth, element: str, op: str) -> None:
    """``got`` is a NumPy array of the element's dtype that meets the truth; NaN and infinities stand where they should."""
    assert got.dtype == dtypes.numpy_dtype(element)
    assert got.shape == truth.value.shape
    with np.errstate(all="ignore"):
        value = truth.value
        finite = np.isfinite(value)
        np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, value), err_msg=f"{op}: NaN or infinities")
        excess = np.where(finite, abs(got.astype(np.float64) - value) - allowed(truth, element, op), -np.inf)
        excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(int(excess.argmax()), excess.shape)
        wrong = int((excess > 0).sum())
        raise AssertionError(f"{op}: {wrong} of {excess.size} elements are wrong; at {worst} got {got[worst]!r}, wants {value[worst]!r}")
