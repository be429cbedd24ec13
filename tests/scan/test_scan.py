"""Scans against float64 NumPy: values, directions, axes, layouts, what comes before the first element, and calls that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scan_reference
from kinds import Kind
from references import Array
from scan_cases import EVERY, EVERY_FLOAT, FORWARD, PLACED, check, check_backward, operands, run, values
from scan_reference import REFERENCES, rounded_last, scanned
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype

F, INF, NAN = np.float32, np.inf, np.nan
OPTIONS = ({}, {"reverse": True}, {"exclusive": True}, {"initial": 0.5}, {"exclusive": True, "reverse": True, "initial": 2.0})

SHAPES = [
    ((6, 300), 1), ((300, 10), 0), ((4, 3001), 1), ((5000,), 0), ((900, 3), 0), ((3, 20, 5), 1), ((70, 3), -1), ((1, 1), 1), ((33, 4), 1),
    ((9, 700), 1), ((3, 4096), 1), ((50, 31), 1), ((5, 300, 8), 1), ((2, 1, 3, 1, 2, 1, 2, 3), 6), ((70, 130), 0), ((0, 5), 1), ((5, 0), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_shapes_and_axes(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    for reverse in (False, True):
        check(kind, "cumsum", values("cumsum", shape), axis, reverse=reverse)


@EVERY_FLOAT
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


@EVERY
def test_infinities_and_nan(kind: Kind, name: str) -> None:
    x = np.array([[NAN, 1, 2, 0], [-INF, 1, -INF, 2], [1, NAN, 2, 3], [1, INF, 2, NAN], [-INF, -INF, INF, 1]], F)
    for array, axis in ((x, 1), (x.T.copy(), 0)):
        check(kind, name, array, axis)


# ---------------------------------------------------------------- the references


def test_every_op_has_a_reference() -> None:
    assert {op.name for op in FORWARD} == set(REFERENCES), "a new row wants a reference in tests/support/scan_reference.py"


@EVERY
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_of_references_are_finite_differences(name: str, options: dict[str, Any]) -> None:
    rng, step = np.random.default_rng(7), 1e-6
    for shape, axis in (((2, 9), 1), ((4, 1), 1), ((3, 2), 0)):
        x, dy = rng.permutation(np.linspace(-1.45, 1.4, int(np.prod(shape)))).reshape(shape), rng.standard_normal(shape)
        found = scan_reference.gradient(name, dy, x, scanned(name, x, axis, **options), axis, **options)
        for index in np.ndindex(shape):
            apart = np.zeros(shape)
            apart[index] = step
            above, below = (scanned(name, each, axis, **options) for each in (x + apart, x - apart))
            changed = above != below  # what is before the first element may be infinite
            slope = (dy[changed] * (above[changed] - below[changed])).sum() / (2 * step)
            assert found.value[index] == pytest.approx(slope, rel=1e-6, abs=1e-8), (shape, index)
        assert (found.size >= abs(found.value) * (1 - 1e-12)).all() and not found.free.any()


def kept_in(dtype: Any, name: str, x: Array) -> Array:
    """A scan along the last axis whose state is rounded to the dtype of x after every element."""
    made = x.copy()
    for k in range(1, x.shape[-1]):
        made[..., k] = REFERENCES[name].fold(made[..., k - 1].astype(np.float64), x[..., k].astype(np.float64)).astype(dtype)
    return made


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@EVERY
def test_a_state_that_is_no_wider_than_a_half_is_noticed(name: str, dtype: str) -> None:
    x = values(name, (6, 150), dtype)
    wanted, rounded = rounded_last(scan_reference.truth(name, x, 1)), kept_in(x.dtype, name, x)
    assert_close(wanted.value.astype(x.dtype), wanted, dtype, name)
    assert_close(kept_in(F, name, x.astype(F)).astype(x.dtype), wanted, dtype, name)
    if (wanted.scale == 0).all():  # nothing is rounded
        assert_close(rounded, wanted, dtype, name)
    else:
        with pytest.raises(AssertionError, match=f"{name}: .* elements are wrong"):
            assert_close(rounded, wanted, dtype, name)


# ---------------------------------------------------------------- gradients


@EVERY_FLOAT
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
    np.testing.assert_allclose(got[0, :60], scan_reference.gradient("cumprod", dy[:, :60], x[:, :60], y[:, :60], 1).value[0], rtol=1e-5)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("options", [{}, {"exclusive": True}, {"initial": 2.0}, {"exclusive": True, "reverse": True}], ids=str)
def test_logcumsumexp_along_rows(kind: Kind, element: str, options: dict[str, Any]) -> None:
    """Vectors whose elements exceed what comes before, vectors that do not, and rows that have some of each; rows of all alignments."""
    rng, count = np.random.default_rng(11), 1229
    steps = np.arange(count) * 0.75
    rows = [rng.normal(0, 1, count), steps, -steps, np.where(rng.random(count) < 0.03, 40, -3), 300 - np.abs(steps - 300), np.full(count, -np.inf)]
    rows.append(np.where(abs(np.arange(count) - 700) < 200, 100, -100))  # its exponentials overflow about what comes before, from either end
    for special in (np.inf, np.nan, -np.inf):
        rows.append(rng.normal(0, 1, count))
        rows[-1][500:503] = special
    x = np.stack(rows).astype(np.float32)
    check(kind, "logcumsumexp", x.astype(numpy_dtype(element)), 1, **options)


def test_logcumsumexp_far_apart(kind: Kind) -> None:
    x = np.tile(np.array([900, -900, 0, 900], F), (2, 40))
    for axis, array in ((1, x), (0, x.T.copy())):
        check(kind, "logcumsumexp", array, axis)
        check_backward(kind, "logcumsumexp", array, axis)


def test_nan_and_infinities_in_gradients(kind: Kind) -> None:
    x = np.array([[NAN, 1, 2, 0], [-INF, 1, -INF, 2], [1, NAN, 2, 3], [1, INF, 2, NAN], [-INF, -INF, INF, 1], [-INF, -INF, -INF, -INF]], F)
    dy = np.arange(1, 25, dtype=F).reshape(6, 4)
    for name in PLACED:
        op = nb.OPS[f"{name}_backward"]
        for array, upstream, axis in ((x, dy, 1), (x.T.copy(), dy.T.copy(), 0), (np.tile(x, (1, 150)), np.tile(dy, (1, 150)), 1)):
            for options in OPTIONS[:3]:
                given = operands(op, array, axis, **options) | {"dy": upstream}
                wanted = scan_reference.gradient(name, upstream, array, array, axis, **options).value
                np.testing.assert_array_equal(kind.numpy(run(op, {each: kind.array(part) for each, part in given.items()}, axis, **options)), wanted)
    nothing = kind.numpy(nb.logcumsumexp_backward(kind.array(dy[5:]), kind.array(x[5:]), kind.array(x[5:]), 1))
    np.testing.assert_array_equal(nothing, 0)


@pytest.mark.parametrize("special", [NAN, INF])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 0), ((16, 98), 0), ((3, 40), 1), ((2, 3000), 1), ((2100, 2), 0), ((40, 64), 0)])
def test_gradients_behind_infinity_enter_formulas_by_a_factor_of_0(kind: Kind, special: float, dtype: str, shape: tuple[int, int], axis: int) -> None:
    """dx[0] = dy[0] + dy[1] · exp(x[0] − ∞) + …, of which the second term is NaN if dy[1] is NaN or infinite."""
    x = values("logcumsumexp", shape, dtype)
    dy = np.ones_like(x)
    x.swapaxes(0, axis)[1], dy.swapaxes(0, axis)[1] = INF, special
    y = kind.numpy(nb.logcumsumexp(kind.array(x), axis))
    found = kind.numpy(nb.logcumsumexp_backward(kind.array(dy), kind.array(x), kind.array(y), axis)).swapaxes(0, axis)
    assert np.isnan(found[0]).all()
    np.testing.assert_array_equal(found[2:], 0)


@pytest.mark.parametrize("name", PLACED)
@pytest.mark.parametrize("index_dtype", ["int64", "int32"])
def test_indices(kind: Kind, name: str, index_dtype: str) -> None:
    rng = np.random.default_rng(3)
    for shape, axis in (((3, 300), 1), ((90, 8), 0), ((5, 37), 1)):
        for dtype in ("f32", "f16", "f64"):
            x = rng.integers(0, 9, shape).astype(numpy_dtype(dtype))
            x[0, 5] = NAN
            for reverse in (False, True):
                y, places = map(kind.numpy, getattr(nb, name)(kind.array(x), axis, reverse=reverse, return_indices=True, index_dtype=index_dtype))
                np.testing.assert_array_equal(y.astype(float), scanned(name, x, axis, reverse=reverse))
                assert places.dtype == index_dtype
                np.testing.assert_array_equal(np.take_along_axis(x, places.astype(np.int64), axis).astype(float), y.astype(float))
                along = np.moveaxis(places, axis, -1)[..., :: -1 if reverse else 1]
                changes = np.diff(np.moveaxis(y.astype(float), axis, -1)[..., :: -1 if reverse else 1], axis=-1)
                np.testing.assert_array_equal(np.diff(along) != 0, (changes != 0) & ~np.isnan(changes) | (np.isnan(changes) & (np.diff(along) != 0)))
                own = np.arange(x.shape[axis])[:: -1 if reverse else 1]
                assert ((along == own) | (np.diff(along, prepend=along[..., :1]) == 0)).all()


def test_indices_of_what_is_no_element(kind: Kind) -> None:
    x = kind.array(np.array([[1, 3, 2, 5]], F))
    assert kind.numpy(nb.cummax(x, 1, initial=2, return_indices=True)[1]).tolist() == [[-1, 1, 1, 3]]
    assert kind.numpy(nb.cummax(x, 1, exclusive=True, return_indices=True)[1]).tolist() == [[-1, 0, 1, 1]]
    assert kind.numpy(nb.cummin(x, 1, reverse=True, return_indices=True)[1]).tolist() == [[0, 2, 2, 3]]


def test_indices_of_signed_zeros(kind: Kind) -> None:
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
        (lambda x: nb.cummax(x, return_indices=True, out=(x, x, x)), nb.InvalidProblem, "out is 3 array, wants a pair of values and indices"),
        (lambda x: nb.cumsum(x, return_indices=True), TypeError, "return_indices"),
        (lambda x: nb.cumprod_backward(x, x), TypeError, "missing a required argument: 'y'"),
        (lambda x: nb.cumprod_backward(x, x[:1], x), nb.InvalidProblem, "cumprod_backward: x has shape"),
        (lambda x: nb.select(nb.ScanDescriptor("cumsum", (3, 4), 1, index="i64")), nb.Unsupported, "cumsum: index is i64, wants none"),
    ],
)  # fmt: skip
def test_wrong_calls(kind: Kind, call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(kind.array(np.ones((3, 4), F)))


@pytest.mark.parametrize("name", PLACED)
def test_results_of_one_memory_are_refused(kind: Kind, name: str) -> None:
    x, function = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]]), getattr(nb, name)
    both = kind.array(np.zeros((2, 6)))
    for best, places in ((both[:, :3], both[:, :3]), (both[:, :3], both[:, 2:5]), (both[:, ::2], both[:, :3])):
        with pytest.raises(nb.InvalidProblem, match=f"{name}: indices overlaps y, wants memory of its own"):
            function(kind.array(x), out=(best, places.view(np.int64)), return_indices=True)
    y, indices = function(kind.array(x), out=(both[:, ::2], both.view(np.int64)[:, 1::2]), return_indices=True)
    expected, order = function(kind.array(x), return_indices=True)
    np.testing.assert_array_equal(kind.numpy(y), kind.numpy(expected))
    np.testing.assert_array_equal(kind.numpy(indices), kind.numpy(order))
