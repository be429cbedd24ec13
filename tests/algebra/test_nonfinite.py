"""Gradients where x or dy holds zeros, infinities and NaN: the formula in IEEE arithmetic, element by element, at every place of a slice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from scan_cases import EVERY as EVERY_SCAN
from scan_reference import REFERENCES, gradient, scanned

import numba_baracuda as nb

INF, NAN = np.inf, np.nan
AMBIGUOUS = 12345678.9  #: stands where the order of the arithmetic decides
Array = np.ndarray[Any, Any]
#: every slice of three of these
POOL = (INF, -INF, NAN, 0.0, -0.0, 1.5, -2.0)


def short_slices() -> Array:
    return np.array(list(itertools.product(POOL, repeat=3)))


def long_slices() -> Array:
    """Of ordinary numbers, with one or two others in front, in the middle, and at the end."""
    rows = []
    for special, other in itertools.product(POOL[:4], (1.25, -INF, 0.0)):
        for place in (0, 1, 150, 298, 299):
            row = np.where(np.arange(300) % 2, 1.25, -0.75) ** (np.arange(300) % 3 == 0)
            row[place], row[(place + 77) % 300] = special, other
            rows.append(row)
    return np.array(rows)


def _of_sum(g: Array, x: Array, y: Array) -> Array:
    return g + 0 * np.ones_like(x)


def _of_mean(g: Array, x: Array, y: Array) -> Array:
    return g / x.shape[1] * np.ones_like(x)


def _of_extreme(ties: str) -> Callable[[Array, Array, Array], Array]:
    def gradient(g: Array, x: Array, y: Array) -> Array:
        hit = (x == y) | (np.isnan(x) & np.isnan(y))
        if ties == "first":
            hit &= np.cumsum(hit, axis=1) == 1
        return np.where(hit, g, 0)

    return gradient


def _of_prod(g: Array, x: Array, y: Array) -> Array:
    others = np.ones_like(x)
    for k in range(x.shape[1]):
        others[:, :k] *= x[:, k : k + 1]
        others[:, k + 1 :] *= x[:, k : k + 1]
    return g * others


def _of_logsumexp(g: Array, x: Array, y: Array) -> Array:
    return np.where(y == -INF, 0, g * np.exp(x - y))


def _of_norm2(g: Array, x: Array, y: Array) -> Array:
    return np.where(y == 0, 0, g * (x / y))


def _of_var(g: Array, x: Array, y: Array) -> Array:
    return g * (2 * (x - x.mean(axis=1, keepdims=True)) / (x.shape[1] - 1))


def _of_std(g: Array, x: Array, y: Array) -> Array:
    return np.where(y == 0, 0, g * ((x - x.mean(axis=1, keepdims=True)) / ((x.shape[1] - 1) * y)))


def _logsumexp(x: Array) -> Array:
    most = x.max(axis=1, keepdims=True)
    return np.where(np.isfinite(most), most + np.log(np.exp(x - most).sum(axis=1, keepdims=True)), most)


#: result and gradient over the second axis
RULES: dict[str, tuple[Callable[[Array], Array], Callable[[Array, Array, Array], Array]]] = {
    "sum": (lambda x: x.sum(axis=1, keepdims=True), _of_sum),
    "mean": (lambda x: x.mean(axis=1, keepdims=True), _of_mean),
    "max": (lambda x: x.max(axis=1, keepdims=True), _of_extreme("first")),
    "min": (lambda x: x.min(axis=1, keepdims=True), _of_extreme("first")),
    "prod": (lambda x: x.prod(axis=1, keepdims=True), _of_prod),
    "logsumexp": (_logsumexp, _of_logsumexp),
    "norm2": (lambda x: np.sqrt((x * x).sum(axis=1, keepdims=True)), _of_norm2),
    "var": (lambda x: x.var(axis=1, ddof=1, keepdims=True), _of_var),
    "std": (lambda x: x.std(axis=1, ddof=1, keepdims=True), _of_std),
}
SLICES = {"short": short_slices, "long": long_slices}
EVERY = pytest.mark.parametrize("name", RULES)
EVERY_LENGTH = pytest.mark.parametrize("length", SLICES)


def upstream(rows: int) -> Array:
    """One number a slice, some of them not finite."""
    return np.resize([2.0, -3.0, INF, 0.5, NAN, -INF, 4.0], rows)[:, None]


def made(name: str, length: str) -> tuple[Array, Array, Array, Array]:
    """x, y and dy, and the gradient by the formula."""
    x = SLICES[length]()
    with np.errstate(all="ignore"):
        y = RULES[name][0](x)
        g = upstream(len(x))
        return x, y, g, RULES[name][1](g, x, y)


def agree(got: Array, wanted: Array, x: Array) -> None:
    got = got.reshape(wanted.shape).astype(np.float64)
    alike = np.isclose(got, wanted, rtol=1e-4, atol=1e-6, equal_nan=True) | (wanted == AMBIGUOUS)
    where = np.unravel_index(int(alike.argmin()), alike.shape)
    assert alike.all(), f"{(~alike).sum()} wrong; of {x[where[0]].tolist()} element {where[1]} got {got[where]}, wants {wanted[where]}"


@EVERY_LENGTH
@EVERY
@pytest.mark.parametrize("prefix", ["", "unsorted_"])
def test_segments(kind: Kind, prefix: str, name: str, length: str) -> None:
    x, y, g, wanted = made(name, length)
    ids = np.repeat(np.arange(len(x)), x.shape[1])
    known = {"d_output": g, "input": x.reshape(-1, 1), "output": y, "segment_ids": ids}
    op = nb.OPS[f"{prefix}segment_{name}_backward"]
    given = [kind.array(known[operand.name].astype(np.int32 if operand.index else np.float32)) for operand in op.operands[:-1]]
    agree(kind.numpy(getattr(nb, op.name)(*given)), wanted, x)


@EVERY_LENGTH
@EVERY
def test_reductions(kind: Kind, name: str, length: str) -> None:
    x, y, g, wanted = made(name, length)
    if name in ("max", "min"):
        wanted = _of_extreme("all")(g, x, y)
    known = {"dy": g.astype(np.float32), "x": x.astype(np.float32), "y": y.astype(np.float32)}
    op = nb.OPS[f"reduce_{name}_backward"]
    names = [operand.name for operand in op.operands[:-1]]
    for axis in (1, 0):
        given = [kind.array(known[each] if axis else known[each].T.copy()) for each in names]
        shape = {} if "x" in names else {"input_shape": x.shape[:: 1 if axis else -1]}
        got = kind.numpy(getattr(nb, op.name)(*given, axis=axis, **shape))
        agree(got if axis else got.T, wanted, x)


@EVERY_LENGTH
def test_softmax(kind: Kind, length: str) -> None:
    """Of the saved softmax, which is what holds NaN and zeros."""
    y = np.where(np.isinf(SLICES[length]()), NAN, abs(SLICES[length]()))
    g = np.resize([2.0, -3.0, INF, 0.5, 1.0, 1.0, NAN, 4.0], y.size).reshape(y.shape)
    with np.errstate(all="ignore"):
        wanted = y * (g - (y * g).sum(axis=1, keepdims=True))
    ids = np.repeat(np.arange(len(y)), y.shape[1]).astype(np.int32)
    rows = [kind.array(each.reshape(-1, 1).astype(np.float32)) for each in (g, y)]
    agree(kind.numpy(nb.segment_softmax_backward(*rows, kind.array(ids), len(y))), wanted, y)


def test_too_few_rows_for_the_correction(kind: Kind) -> None:
    """The gradient is 0, whatever the element and dy are."""
    x, g = np.array([[INF], [NAN], [0.0], [3.0]], np.float32), np.array([[1.0], [INF], [NAN], [2.0]], np.float32)
    zeros, ids = np.zeros((4, 1), np.float32), np.arange(4, dtype=np.int32)
    a, dy, y, names = kind.array(x), kind.array(g), kind.array(zeros), kind.array(ids)
    for got in (
        nb.segment_var_backward(dy, a, names), nb.segment_std_backward(dy, a, y, names),
        nb.reduce_var_backward(dy, a, y, axis=1), nb.reduce_std_backward(dy, a, y, axis=1),
    ):  # fmt: skip
        np.testing.assert_array_equal(kind.numpy(got), zeros)


# ---------------------------------------------------------------- scans


@EVERY_LENGTH
@pytest.mark.parametrize("exclusive", [False, True])
@EVERY_SCAN
def test_scans(kind: Kind, name: str, exclusive: bool, length: str) -> None:
    x, op = SLICES[length](), nb.OPS[f"{name}_backward"]
    g = np.resize([2.0, -3.0, 0.5, 4.0, -1.0], x.shape)
    if name != "logcumsumexp":
        g[::5, 1], g[1::5, 0], g[2::5, 2] = INF, NAN, -INF
    if REFERENCES[name].factors:
        g[3::5, 1] = 0
    y = scanned(name, x, 1, exclusive=exclusive)
    right = gradient(name, g, x, y, 1, exclusive=exclusive)
    wanted = np.where(right.free, AMBIGUOUS, right.value)
    known = {"dy": g.astype(np.float32), "x": x.astype(np.float32), "y": y.astype(np.float32)}
    names = [operand.name for operand in op.operands[:-1]]
    for axis in (1, 0):
        given = [kind.array(known[each] if axis else known[each].T.copy()) for each in names]
        got = kind.numpy(getattr(nb, op.name)(*given, axis, exclusive=exclusive))
        agree(got if axis else got.T, wanted, x)
