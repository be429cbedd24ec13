"""Exponentials of differences: errors against float64 are at most twice those of PyTorch's algorithms and a rounding, at offsets up to 1e5.

The algorithms, written in NumPy: the maximum is subtracted first, then exponentials, sum and logarithm; gradients take exp(x − y) and
y · (dy − Σ dy · y). Halves are widened first and rounded at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype

F = np.float32
Array = np.ndarray[Any, Any]
ROWS, LENGTH = 24, 40
#: by element, offsets that it holds with some digits to spare
OFFSETS = {"f32": (0.0, 3.0, -4.0, 170.0, -1700.0, 17_000.0, 1e5, -1e5), "f16": (0.0, 100.0, -3000.0), "bf16": (0.0, -170.0, 1e5)}
EVERY = pytest.mark.parametrize(("element", "offset"), [(element, offset) for element, offsets in OFFSETS.items() for offset in offsets])


def rows(element: str, offset: float) -> Array:
    """Numbers around an offset as the element rounds them, some far below the others."""
    rng = np.random.default_rng(int(abs(offset)) + len(element))
    x = offset + 3 * rng.standard_normal((ROWS, LENGTH))
    x[::4, 5:20] -= 30
    return x.astype(numpy_dtype(element))


def upstream(element: str, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(numpy_dtype(element))


def logsumexp(x: Array) -> Array:
    most = x.max(axis=1, keepdims=True)
    return most + np.log(np.exp(x - most).sum(axis=1, keepdims=True))


def softmax(x: Array) -> Array:
    shares = np.exp(x - x.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def softmax_backward(g: Array, y: Array) -> Array:
    return y * (g - (g * y).sum(axis=1, keepdims=True))


def logcumsumexp(x: Array) -> Array:
    out, so_far = np.empty_like(x), np.full(len(x), -np.inf, x.dtype)
    for k in range(x.shape[1]):
        most, least = np.maximum(so_far, x[:, k]), np.minimum(so_far, x[:, k])
        so_far = np.where(np.isinf(least), most, most + np.log1p(np.exp(np.where(np.isinf(least), 0, least - most))))
        out[:, k] = so_far
    return out


def logcumsumexp_backward(g: Array, x: Array, y: Array) -> Array:
    """Parts of g of either sign apart, in logarithms."""
    with np.errstate(divide="ignore"):
        parts = [np.exp(logcumsumexp((np.log(np.maximum(part, 0)) - y)[:, ::-1])[:, ::-1] + x) for part in (g, -g)]
    return parts[0] - parts[1]


def not_worse(got: Array, exact: Array, simple: Array, element: str, terms: float = 1.0) -> None:
    """``simple`` is PyTorch's algorithm in float32, not yet rounded to the element. Beside it, one number of the size of ``terms`` may be rounded."""
    assert simple.dtype == F and exact.dtype == np.float64
    ours = abs(got.astype(np.float64).reshape(exact.shape) - exact)
    theirs = abs(simple.astype(numpy_dtype(element)).astype(np.float64) - exact)
    rounding = float(np.finfo(F).eps) * max(terms, abs(exact).max())
    assert ours.max() <= 2 * theirs.max() + rounding, (ours.max(), theirs.max())


def segmented(kind: Kind, *arrays: Array) -> list[Any]:
    """Slices as segments of one column, and their ids."""
    return [*[kind.array(each.reshape(-1, 1)) for each in arrays], kind.array(np.repeat(np.arange(ROWS, dtype=np.int32), LENGTH))]


@EVERY
@pytest.mark.parametrize("prefix", ["", "unsorted_"])
def test_segments(kind: Kind, prefix: str, element: str, offset: float) -> None:
    x = rows(element, offset)
    wide, narrow = x.astype(np.float64), x.astype(F)
    a, ids = segmented(kind, x)
    y = getattr(nb, f"{prefix}segment_logsumexp")(a, ids, ROWS)
    not_worse(kind.numpy(y), logsumexp(wide), logsumexp(narrow), element)
    shares = getattr(nb, f"{prefix}segment_softmax")(a, ids, ROWS)
    not_worse(kind.numpy(shares), softmax(wide), softmax(narrow), element)

    g, saved = upstream(element, (ROWS, 1)), logsumexp(narrow).astype(numpy_dtype(element))
    got = getattr(nb, f"{prefix}segment_logsumexp_backward")(kind.array(g), a, kind.array(saved), ids)
    exact, simple = (g.astype(to) * np.exp(x.astype(to) - saved.astype(to)) for to in (np.float64, F))
    not_worse(kind.numpy(got), exact, simple, element)

    g, saved = upstream(element, x.shape), softmax(narrow).astype(numpy_dtype(element))
    got = getattr(nb, f"{prefix}segment_softmax_backward")(*segmented(kind, g, saved), ROWS)
    exact, simple = (softmax_backward(g.astype(to), saved.astype(to)) for to in (np.float64, F))
    not_worse(kind.numpy(got), exact, simple, element, terms=float(abs(g).max()))


@EVERY
def test_reductions(kind: Kind, element: str, offset: float) -> None:
    x = rows(element, offset)
    wide, narrow = x.astype(np.float64), x.astype(F)
    g, saved = upstream(element, (ROWS, 1)), logsumexp(narrow).astype(numpy_dtype(element))
    exact, simple = (g.astype(to) * np.exp(x.astype(to) - saved.astype(to)) for to in (np.float64, F))
    for axis in (1, 0):
        a, dy, y = (kind.array(each if axis else each.T.copy()) for each in (x, g, saved))
        not_worse(kind.numpy(nb.reduce_logsumexp(a, axis)).T, logsumexp(wide).T, logsumexp(narrow).T, element)
        got = kind.numpy(nb.reduce_logsumexp_backward(dy, a, y, axis=axis))
        not_worse(got if axis else got.T.copy(), exact, simple, element)


@EVERY
def test_scans(kind: Kind, element: str, offset: float) -> None:
    """Values within 4 ulp of the accumulator times 1 + |m| + log s, and a rounding; gradients as the others."""
    x = rows(element, offset)
    wide, narrow = x.astype(np.float64), x.astype(F)
    exact = logcumsumexp(wide)
    g, saved = upstream(element, x.shape), exact.astype(numpy_dtype(element))
    terms = np.exp(wide[:, :, None] - saved.astype(np.float64)[:, None, :]) * np.triu(np.ones((LENGTH, LENGTH)))
    precise, simple = (terms * g.astype(np.float64)[:, None, :]).sum(axis=2), logcumsumexp_backward(g.astype(F), narrow, saved.astype(F))
    for axis in (1, 0):
        a, dy, y = (kind.array(each if axis else each.T.copy()) for each in (x, g, saved))
        got = kind.numpy(nb.logcumsumexp(a, axis)).astype(np.float64)
        error = abs((got if axis else got.T) - exact)
        most = 4 * float(np.finfo(F).eps) * (1 + abs(narrow).max() + math.log(LENGTH))
        step = 0.0 if element == "f32" else float(nb.core.dtypes.element(x.dtype).tolerance(0.0)) * abs(exact)
        assert (error <= most + step).all()
        found = kind.numpy(nb.logcumsumexp_backward(dy, a, y, axis))
        not_worse(found if axis else found.T.copy(), precise, simple, element)
