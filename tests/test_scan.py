"""Scans against float64 NumPy: values, directions, axes, layouts, what comes before the first element, and calls that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda.dtypes import element, numpy_dtype

F, INF, NAN = np.float32, np.inf, np.nan
FOLDS = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum, "logcumsumexp": np.logaddexp,
}  # fmt: skip
BEGINNING = {"cumsum": 0.0, "cumprod": 1.0, "cummax": -INF, "cummin": INF, "logcumsumexp": -INF}
EVERY = pytest.mark.parametrize("name", list(FOLDS))


def values(name: str, shape: tuple[int, ...], dtype: str = "f32") -> Any:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.9, 1.1, shape) * rng.choice([-1, 1], shape) if name == "cumprod" else rng.standard_normal(shape)
    return x.astype(numpy_dtype(dtype))


def truth(name: str, x: Any, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None) -> Any:
    wide = np.moveaxis(x.astype(np.float64), axis, -1)
    wide = wide[..., ::-1] if reverse else wide
    start = np.full((*wide.shape[:-1], 1), BEGINNING[name] if initial is None else initial)
    with np.errstate(invalid="ignore"):
        made = FOLDS[name].accumulate(np.concatenate([start, wide], -1), axis=-1)
    made = made[..., :-1] if exclusive else made[..., 1:]
    return np.moveaxis(made[..., ::-1] if reverse else made, -1, axis)


def check(kind: Kind, name: str, x: Any, axis: int, given: Any = None, **options: Any) -> None:
    got = kind.numpy(getattr(nb, name)(kind.array(x) if given is None else given, axis, **options)).astype(np.float64)
    wanted = truth(name, x, axis, **options)
    terms = (
        FOLDS["cumsum"].accumulate(np.abs(x.astype(np.float64)), axis=axis) if name == "cumsum" else np.abs(np.where(np.isfinite(wanted), wanted, 0))
    )
    scale = np.max(terms, initial=0.0) + 1 + abs(options.get("initial") or 0)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=float(element(x.dtype).tolerance(max(1, x.shape[axis])) * scale))


SHAPES = [
    ((6, 300), 1), ((300, 10), 0), ((2, 9001), 1), ((7000,), 0), ((900, 3), 0), ((3, 20, 5), 1), ((70, 3), -1), ((1, 1), 1), ((33, 4), 1),
    ((9, 700), 1), ((2, 4096), 1), ((50, 31), 1), ((5, 300, 8), 1), ((2, 1, 3, 1, 2, 1, 2, 3), 6), ((70, 130), 0), ((0, 5), 1), ((5, 0), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_shapes_and_axes(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    for reverse in (False, True):
        check(kind, "cumsum", values("cumsum", shape), axis, reverse=reverse)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_elements(kind: Kind, name: str, dtype: str) -> None:
    for shape, axis in (((6, 300), 1), ((70, 12), 0)):
        for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 0.5}, {"exclusive": True, "reverse": True, "initial": 2.0}):
            check(kind, name, values(name, shape, dtype), axis, **options)


def test_strides(kind: Kind) -> None:
    base = values("cumsum", (40, 60))
    made = kind.array(base)
    for view, array in (
        (made[::2], base[::2]), (made[:, ::-1], base[:, ::-1]), (made[:, 1:], base[:, 1:]), (kind.transpose(made, (1, 0)), base.T),
        (kind.broadcast(made[:1], base.shape), np.broadcast_to(base[:1], base.shape)),
    ):  # fmt: skip
        for axis in (0, 1):
            check(kind, "cumsum", array, axis, view, reverse=axis == 0)


def test_infinities_and_nan(kind: Kind) -> None:
    x = np.array([[NAN, 1, 2, 0], [-INF, 1, -INF, 2], [1, NAN, 2, 3], [1, INF, 2, NAN], [-INF, -INF, INF, 1]], F)
    for name in ("cummax", "cummin", "logcumsumexp", "cumsum"):
        for array, axis in ((x, 1), (x.T.copy(), 0)):
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(kind.numpy(getattr(nb, name)(kind.array(array), axis)), truth(name, array, axis), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: nb.cumsum(x, 2), nb.InvalidProblem, "cumsum: axis is 2, wants a number from -2 to 1 for 2 axes"),
        (lambda x: nb.cumsum(x, 1.5), nb.InvalidProblem, "cumsum: axis is 1.5, wants a whole number"),
        (lambda x: nb.cumsum(x, 1, reverse=1), nb.InvalidProblem, "cumsum: reverse is 1, wants True or False"),
        (lambda x: nb.cumsum(x, 1, initial="a"), nb.InvalidProblem, "cumsum: initial is 'a', wants a number or None"),
        (lambda x: nb.cumsum(x, 1, out=x), nb.InvalidProblem, "overlaps"),
        (lambda x: nb.cumsum(x, 1, out=x[:1]), nb.InvalidProblem, "has shape"),
    ],
)  # fmt: skip
def test_wrong_calls(kind: Kind, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(kind.array(np.ones((3, 4), F)))
