"""Scans against float64 NumPy: values, directions, axes, layouts, what comes before the first element, and calls that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda.core.dtypes import element, numpy_dtype

F, INF, NAN = np.float32, np.inf, np.nan
FOLDS = {
    "cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum, "logcumsumexp": np.logaddexp,
}  # fmt: skip
BEGINNING = {"cumsum": 0.0, "cumprod": 1.0, "cummax": -INF, "cummin": INF, "logcumsumexp": -INF}
OPTIONS = ({}, {"reverse": True}, {"exclusive": True}, {"initial": 0.5}, {"exclusive": True, "reverse": True, "initial": 2.0})
EVERY = pytest.mark.parametrize("name", list(FOLDS))


def values(name: str, shape: tuple[int, ...], dtype: str = "f32") -> Any:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.9, 1.1, shape) * rng.choice([-1, 1], shape) if name == "cumprod" else rng.standard_normal(shape)
    return x.astype(numpy_dtype(dtype))


def truth(name: str, x: Any, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any) -> Any:
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
    ((6, 300), 1), ((300, 10), 0), ((4, 3001), 1), ((5000,), 0), ((900, 3), 0), ((3, 20, 5), 1), ((70, 3), -1), ((1, 1), 1), ((33, 4), 1),
    ((9, 700), 1), ((3, 4096), 1), ((50, 31), 1), ((5, 300, 8), 1), ((2, 1, 3, 1, 2, 1, 2, 3), 6), ((70, 130), 0), ((0, 5), 1), ((5, 0), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_shapes_and_axes(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    for reverse in (False, True):
        check(kind, "cumsum", values("cumsum", shape), axis, reverse=reverse)


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_elements(kind: Kind, name: str, dtype: str) -> None:
    for shape, axis in (((6, 150), 1), ((70, 12), 0)):
        for options in OPTIONS if dtype == "f32" else OPTIONS[-1:]:
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


def backward_truth(
    name: str, dy: Any, x: Any, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any
) -> Any:  # fmt: skip
    """By definition: Σ over i of dy[i] · ∂y[i]/∂x[j], one derivative after the other, in float64."""
    g, w = (np.moveaxis(each.astype(np.float64), axis, -1)[..., :: -1 if reverse else 1] for each in (dy, x))
    made, n = np.zeros_like(w), w.shape[-1]
    begin = BEGINNING[name] if initial is None else initial
    y = np.moveaxis(truth(name, x, axis, reverse, exclusive, initial), axis, -1)[..., :: -1 if reverse else 1]
    others, product = np.empty_like(w), np.full(w.shape[:-1], float(begin))  # of what is behind, without each element, and of all
    for i in range(n):
        behind = range(i if exclusive else i + 1)
        if name == "cumprod" and len(behind):
            last = len(behind) - 1
            others[..., :last] *= w[..., last : last + 1]
            others[..., last] = product
            product = product * w[..., last]
            made[..., : len(behind)] += g[..., i : i + 1] * others[..., : len(behind)]
        elif name == "cumsum":
            made[..., : len(behind)] += g[..., i : i + 1]
        elif name == "logcumsumexp":
            with np.errstate(invalid="ignore"):
                share = np.where(y[..., i : i + 1] == -INF, 0, np.exp(w[..., : len(behind)] - y[..., i : i + 1]))
            made[..., : len(behind)] += g[..., i : i + 1] * share
        elif len(behind):
            seen = w[..., : len(behind)]
            place = np.where(np.isnan(seen).any(-1), np.isnan(seen).argmax(-1), (seen if name == "cummax" else -seen).argmax(-1))
            best = np.take_along_axis(seen, place[..., None], -1)
            beaten = False if initial is None else (best <= begin if name == "cummax" else best >= begin)
            np.put_along_axis(made, place[..., None], np.take_along_axis(made, place[..., None], -1) + np.where(beaten, 0, g[..., i : i + 1]), -1)
    return np.moveaxis(made[..., :: -1 if reverse else 1], -1, axis)


def factored(dy: Any, x: Any, axis: int, reverse: bool = False, exclusive: bool = False, initial: float | None = None, **_: Any) -> tuple[Any, Any]:
    """The gradient of cumprod as p · s, p the product before an element and s the sum behind it, where a factor of 0 makes a term 0.

    And where its order decides: s is summed term by term and by Horner's rule, which differ where infinities of both signs meet, and where s nearly
    cancels the sign of an infinite p · s is anyone's. An exclusive product is the inclusive one of the element before.
    """
    g, w = (np.moveaxis(each.astype(np.float64), axis, -1)[..., :: -1 if reverse else 1] for each in (dy, x))
    before = np.moveaxis(truth("cumprod", x, axis, reverse, True, initial), axis, -1)[..., :: -1 if reverse else 1]
    if exclusive:
        g, w, before = g[..., 1:], w[..., :-1], before[..., :-1]
    terms, nested, summed, sizes = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    behind = np.zeros(w.shape[:-1])

    def times(a: Any, b: Any) -> Any:
        return np.where((a == 0) | (b == 0), 0, a * b)

    for j in range(w.shape[-1] - 1, -1, -1):
        terms[..., j], nested[..., j] = g[..., j], g[..., j] + behind
        summed[..., j], sizes[..., j] = terms[..., j:].sum(-1), abs(terms[..., j:]).sum(-1)
        terms[..., j:], behind = times(terms[..., j:], w[..., j : j + 1]), times(nested[..., j], w[..., j])
    unsure = (nested != summed) & ~(np.isnan(nested) & np.isnan(summed)) & ~(np.isfinite(nested) & np.isfinite(summed))
    unsure |= np.isinf(before) & (abs(summed) <= 1e-4 * sizes) & (sizes > 0)
    made = before * summed
    if exclusive and x.size:
        made, unsure = (np.concatenate([each, np.zeros((*each.shape[:-1], 1), each.dtype)], -1) for each in (made, unsure))
    return tuple(np.moveaxis(each[..., :: -1 if reverse else 1], -1, axis) for each in (made, unsure))


def gradient(kind: str, operands: dict[str, Any], axis: int) -> tuple[Any, Any]:
    """Of long rows, in float64 by a walk along the axis, and what its rounding is measured by."""
    moved = {name: np.moveaxis(array.astype(np.float64), axis, 0) for name, array in operands.items()}
    dy, n = moved["dy"], operands["dy"].shape[axis]
    if kind in ("cummax", "cummin"):
        x, made, scale = moved["x"], np.zeros_like(dy), np.zeros_like(dy)
        best, place = x[0].copy(), np.zeros(x.shape[1:], np.int64)
        columns = np.indices(x.shape[1:])
        for k in range(n):
            later = x[k] > best if kind == "cummax" else x[k] < best
            best, place = np.where(later, x[k], best), np.where(later, k, place)
            np.add.at(made, (place, *columns), dy[k])
            np.add.at(scale, (place, *columns), abs(dy[k]))
        return np.moveaxis(made, 0, axis), np.moveaxis(scale, 0, axis)
    made, scale = np.empty_like(dy), np.empty_like(dy)
    behind, size = np.zeros(dy.shape[1:]), np.zeros(dy.shape[1:])
    for k in range(n - 1, -1, -1):
        share, weight = np.ones_like(behind), np.ones_like(behind)
        if kind == "cumprod":
            share, weight = moved["x"][k], moved["y"][k - 1] if k else np.ones_like(behind)
        if kind == "logcumsumexp":
            share = np.exp((moved["y"][k - 1] if k else -np.inf) - moved["y"][k])
            weight = np.exp(moved["x"][k] - moved["y"][k])
        made[k], scale[k] = weight * (dy[k] + behind), abs(weight) * (abs(dy[k]) + size)
        behind, size = share * (dy[k] + behind), abs(share) * (abs(dy[k]) + size)
    return np.moveaxis(made, 0, axis), np.moveaxis(scale, 0, axis)


def backward(kind: Kind, name: str, dy: Any, x: Any, axis: int, views: Any = None, **options: Any) -> Any:
    """The gradient by the library, y as the forward op rounds it."""
    dy_given, x_given = views or (kind.array(dy), kind.array(x))
    wanted = nb.OPS[f"{name}_backward"].operands
    given = {"dy": dy_given, "x": x_given}
    if any(operand.name == "y" for operand in wanted):
        given["y"] = kind.array(truth(name, x, axis, **options).astype(x.dtype))
    return kind.numpy(getattr(nb, f"{name}_backward")(*[given[operand.name] for operand in wanted[:-1]], axis, **options)).astype(np.float64)


def check_backward(kind: Kind, name: str, x: Any, axis: int, views: Any = None, **options: Any) -> None:
    dy = np.random.default_rng(8).standard_normal(x.shape).astype(x.dtype)
    got, wanted = backward(kind, name, dy, x, axis, views and (views(dy), views(x)), **options), backward_truth(name, dy, x, axis, **options)
    terms = backward_truth(name, np.abs(dy), np.abs(x) if name == "cumprod" else x, axis, **options)
    scale = np.max(np.abs(terms), initial=0.0) + 1
    scale *= 4 if name == "logcumsumexp" else 1  # x and y are as far apart as log n, and what is rounded is y
    np.testing.assert_allclose(got, wanted, rtol=0, atol=float(element(x.dtype).tolerance(max(1, x.shape[axis])) * scale))


@EVERY
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_gradients(kind: Kind, name: str, dtype: str) -> None:
    for shape, axis in (((3, 150), 1), ((70, 12), 0)):
        for options in OPTIONS if dtype == "f32" else ({}, OPTIONS[-1]):
            check_backward(kind, name, values(name, shape, dtype), axis, **options)


@EVERY
@pytest.mark.parametrize(("shape", "axis"), [((4, 700), 1), ((300, 3), 0), ((5, 37), 1), ((3, 20, 5), 1), ((1, 1), 0), ((0, 5), 1), ((5, 0), 1)])
def test_shapes_of_gradients(kind: Kind, name: str, shape: tuple[int, ...], axis: int) -> None:
    check_backward(kind, name, values(name, shape), axis)


@EVERY
def test_gradients_of_views(kind: Kind, name: str) -> None:
    x = values(name, (20, 30))
    for axis in (0, 1):
        check_backward(kind, name, x, axis, lambda array: kind.transpose(kind.array(array.T.copy()), (1, 0)))
        check_backward(kind, name, x, axis, lambda array: kind.array(np.repeat(array, 2, 1))[:, ::2], reverse=True)


@EVERY
@pytest.mark.parametrize(("shape", "axis"), [((4, 300), 1), ((300, 4), 0), ((4, 301), 1), ((4, 601), 1)])
def test_gradients_of_many_winners_zeros_and_ties(kind: Kind, name: str, shape: tuple[int, ...], axis: int) -> None:
    """Rising, falling and equal elements, and zeros: one, many and neighbours."""
    n = shape[axis]
    rows = [np.arange(n) / n, -np.arange(n) / n, np.ones(n), np.where(np.arange(n) % 97 == 3, 0, 1.0)][: shape[1 - axis]]
    x = np.stack(rows, 1 - axis).astype(F)
    for options in OPTIONS[:3]:
        check_backward(kind, name, x, axis, **options)


def test_gradients_where_products_leave_the_range(kind: Kind) -> None:
    """A zero gradient stays zero though what it would be multiplied by overflows, and so does all that a zero element ends."""
    x = np.full((1, 300), 3, F)
    x[0, 200] = 0
    dy = np.zeros((1, 300), F)
    dy[0, :20] = 1
    y = np.where(np.arange(300) < 200, np.minimum(np.cumprod(x.astype(np.float64), 1), 1e30), 0).astype(F)
    got = kind.numpy(nb.cumprod_backward(kind.array(dy), kind.array(x), kind.array(y), 1))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got[0, :60], backward_truth("cumprod", dy[:, :60], x[:, :60], 1)[0], rtol=1e-5)


def test_logcumsumexp_far_apart(kind: Kind) -> None:
    x = np.tile(np.array([900, -900, 0, 900], F), (2, 40))
    for axis, array in ((1, x), (0, x.T.copy())):
        np.testing.assert_allclose(kind.numpy(nb.logcumsumexp(kind.array(array), axis)), truth("logcumsumexp", array, axis), rtol=1e-6)
        check_backward(kind, "logcumsumexp", array, axis)


def test_nan_and_infinities_in_gradients(kind: Kind) -> None:
    x = np.array([[NAN, 1, 2, 0], [-INF, 1, -INF, 2], [1, NAN, 2, 3], [1, INF, 2, NAN], [-INF, -INF, INF, 1], [-INF, -INF, -INF, -INF]], F)
    dy = np.arange(1, 25, dtype=F).reshape(6, 4)
    for name in ("cummax", "cummin"):
        for array, given, axis in ((x, dy, 1), (x.T.copy(), dy.T.copy(), 0), (np.tile(x, (1, 150)), np.tile(dy, (1, 150)), 1)):
            for options in OPTIONS[:3]:
                wanted = backward_truth(name, given, array, axis, **options)
                np.testing.assert_array_equal(backward(kind, name, given, array, axis, **options), wanted)
    nothing = kind.numpy(nb.logcumsumexp_backward(kind.array(dy[5:]), kind.array(x[5:]), kind.array(x[5:]), 1))
    np.testing.assert_array_equal(nothing, 0)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("index_dtype", ["int64", "int32"])
def test_indices(kind: Kind, name: str, index_dtype: str) -> None:
    rng = np.random.default_rng(3)
    for shape, axis in (((3, 300), 1), ((90, 8), 0), ((5, 37), 1)):
        for dtype in ("f32", "f16", "f64"):
            x = rng.integers(0, 9, shape).astype(numpy_dtype(dtype))
            x[0, 5] = NAN
            for reverse in (False, True):
                y, places = map(kind.numpy, getattr(nb, name)(kind.array(x), axis, reverse=reverse, return_indices=True, index_dtype=index_dtype))
                np.testing.assert_array_equal(y.astype(float), truth(name, x, axis, reverse))
                assert places.dtype == index_dtype
                np.testing.assert_array_equal(np.take_along_axis(x, places.astype(np.int64), axis).astype(float), y.astype(float))
                along = np.moveaxis(places, axis, -1)[..., :: -1 if reverse else 1]
                changes = np.diff(np.moveaxis(y.astype(float), axis, -1)[..., :: -1 if reverse else 1], axis=-1)
                np.testing.assert_array_equal(np.diff(along) != 0, (changes != 0) & ~np.isnan(changes) | (np.isnan(changes) & (np.diff(along) != 0)))
                own = np.arange(x.shape[axis])[:: -1 if reverse else 1]
                assert ((along == own) | (np.diff(along, prepend=along[..., :1]) == 0)).all()
    x = kind.array(np.array([[1, 3, 2, 5]], F))
    assert kind.numpy(nb.cummax(x, 1, initial=2, return_indices=True)[1]).tolist() == [[-1, 1, 1, 3]]
    assert kind.numpy(nb.cummax(x, 1, exclusive=True, return_indices=True)[1]).tolist() == [[-1, 0, 1, 1]]
    assert kind.numpy(nb.cummin(x, 1, reverse=True, return_indices=True)[1]).tolist() == [[0, 2, 2, 3]]
    zeros = kind.array(np.array([[-0.0, 0.0, -0.0]], F))
    for function, signs in ((nb.cummax, [True, False, False]), (nb.cummin, [True, True, True])):
        y, places = function(zeros, 1, return_indices=True)
        assert np.signbit(kind.numpy(y)).tolist() == np.signbit(kind.numpy(function(zeros, 1))).tolist() == [signs]
        assert kind.numpy(places).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: nb.cumsum(x, 2), nb.InvalidProblem, "cumsum: axis is 2, wants a number from -2 to 1 for 2 axes"),
        (lambda x: nb.cumsum(x, 1.5), nb.InvalidProblem, "cumsum: axis is 1.5, wants a whole number"),
        (lambda x: nb.cumsum(x, 1, reverse=1), nb.InvalidProblem, "cumsum: reverse is 1, wants True or False"),
        (lambda x: nb.cumsum(x, 1, initial="a"), nb.InvalidProblem, "cumsum: initial is 'a', wants a number or None"),
        (lambda x: nb.cumsum(x, 1, out=x), nb.InvalidProblem, "overlaps"),
        (lambda x: nb.cumsum(x, 1, out=x[:1]), nb.InvalidProblem, "has shape"),
        (lambda x: nb.cumsum(x, [1]), nb.InvalidProblem, r"cumsum: axis is \[1\], wants a whole number"),
        (lambda x: nb.cumsum(x.reshape(12)[:1].reshape(())), nb.InvalidProblem, "wants an array of at least one axis"),
        (lambda x: nb.cummax(x, return_indices=True, index_dtype="int16"), nb.InvalidProblem, "int16"),
        (lambda x: nb.cummax(x, return_indices=True, index_dtype="float32"), nb.Unsupported, "cummax: index is f32, wants one of i64, i32"),
        (lambda x: nb.cummax(x, return_indices=True, out=x), nb.InvalidProblem, "wants a pair of values and indices"),
        (lambda x: nb.cumsum(x, return_indices=True), TypeError, "return_indices"),
        (lambda x: nb.cumprod_backward(x, x), TypeError, "missing a required argument: 'y'"),
        (lambda x: nb.cumprod_backward(x, x[:1], x), nb.InvalidProblem, "cumprod_backward: x has shape"),
        (lambda x: nb.select(nb.ScanDescriptor("cumsum", (3, 4), 1, index="i64")), nb.Unsupported, "cumsum: index is i64, wants none"),
    ],
)  # fmt: skip
def test_wrong_calls(kind: Kind, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(kind.array(np.ones((3, 4), F)))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_results_of_one_memory_are_refused(kind: Kind, name: str) -> None:
    x, function = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]), getattr(nb, name)
    both = kind.array(np.zeros((2, 6)))
    for values, places in ((both[:, :3], both[:, :3]), (both[:, :3], both[:, 2:5]), (both[:, ::2], both[:, :3])):
        with pytest.raises(nb.InvalidProblem, match=f"{name}: indices overlaps y, wants memory of its own"):
            function(kind.array(x), out=(values, places.view(np.int64)), return_indices=True)
    y, indices = function(kind.array(x), out=(both[:, ::2], both.view(np.int64)[:, 1::2]), return_indices=True)
    expected, order = function(kind.array(x), return_indices=True)
    np.testing.assert_array_equal(kind.numpy(y), kind.numpy(expected))
    np.testing.assert_array_equal(kind.numpy(indices), kind.numpy(order))
