"""Reductions and their gradients: every op against float64, over any axes and strides, and what their rules promise."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kinds import Kind
from reduce_cases import BACKWARD, EVERY, FORWARD, NOTHING, OPS, OTHER, check, function, kind_of, operands, run, truth, values
from references import Array, Truth, stem
from samples import name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op, Target

F, INF, NAN = np.float32, np.inf, np.nan
HALVES_AND_MORE = ("f16", "bf16", "f64")

# ---------------------------------------------------------------- values

#: along and across memory, in one part and in several, peeled rows, and axes that do not merge
SHAPES = [
    ((6, 300), 1), ((300, 10), 0), ((3, 900), 1), ((2, 9001), 1), ((70_000,), 0), ((9000, 3), 0), ((3, 20, 5), 1), ((3, 20, 8), (0, 2)),
    ((6, 4, 5), None), ((70, 3), -1), ((1, 1), 1), ((33, 4), 1), ((9, 700), 1), ((2, 4096), 1), ((50, 31), 1), ((40, 64), 1),
    ((20, 601), 1), ((33, 701), 1), ((300, 24), 1), ((40, 900), 1), ((1024,), None),
    ((5, 1000, 2), 1), ((7,), ()), ((), None), ((2, 1, 3, 1, 2, 1, 2, 3), (1, 2, 6)),
]  # fmt: skip
FEW = [op for op in OPS if op.name in ("reduce_sum", "reduce_var", "reduce_std_backward")]


@EVERY
@pytest.mark.parametrize(("shape", "axis"), SHAPES[:3])
def test_rows_and_columns(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    check(kind, op, shape, axis)


@pytest.mark.parametrize(("shape", "axis"), SHAPES[3:])
@pytest.mark.parametrize("op", FEW, ids=name_of)
def test_shapes_and_axes(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    check(kind, op, shape, axis)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("op", [op for op in OPS if kind_of(op) in ("sum", "std", "max", "prod", "logsumexp")], ids=name_of)
def test_several_short_rows_of_a_group(kind: Kind, op: Op, element: str) -> None:
    """Rows shorter than a vector and longer ones, the last block with a part of its rows."""
    for shape in ((1150, 3), (700, 11)):
        check(kind, op, shape, 1, element)


@EVERY
@pytest.mark.parametrize("element", HALVES_AND_MORE)
def test_elements(kind: Kind, op: Op, element: str) -> None:
    for axis in (0, 1):
        check(kind, op, (16, 24), axis, element)


@pytest.mark.parametrize("op", [op for op in FORWARD if "i32" in op.elements], ids=name_of)
@pytest.mark.parametrize("element", ["i32", "i64"])
def test_integers(kind: Kind, op: Op, element: str) -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, (9, 40)).astype(numpy_dtype(element))
    for axis in (0, 1):
        got = kind.numpy(function(op)(kind.array(x), axis))
        assert_close(got, truth(op, {"x": x}, x.shape, (axis,)), element, op.name)


@pytest.mark.parametrize("op", [op for op in BACKWARD if "ties" in op.traits["keywords"]], ids=name_of)
@pytest.mark.parametrize("ties", ["first", "all", "even"])
def test_ties(kind: Kind, op: Op, ties: str) -> None:
    x = np.random.default_rng(0).integers(0, 4, (30, 20)).astype(F)
    x[:, 3], x[7:9, 5], x[4] = 2, NAN, -INF
    for axis in (0, 1):
        y = (np.max if kind_of(op) == "max" else np.min)(x, axis, keepdims=True)
        given = {"dy": values(op, y.shape, "f32"), "x": x, "y": y}
        got = kind.numpy(function(op)(*map(kind.array, given.values()), axis=axis, ties=ties))
        assert_close(got, truth(op, given, x.shape, (axis,), ties=ties), "f32", op.name)


@pytest.mark.parametrize("op", [op for op in OPS if "correction" in op.traits["keywords"]], ids=name_of)
@pytest.mark.parametrize("correction", [0, 0.5, 1.75, 2, 24, 30.25])
def test_corrections(kind: Kind, op: Op, correction: int) -> None:
    check(kind, op, (16, 24), 1, correction=correction)


def _found(op: Op, x: Array, axis: Any) -> Array:
    """What NumPy finds; it takes the first NaN for the greatest and the least."""
    return np.asarray(getattr(np, kind_of(op))(x, axis=axis))


@pytest.mark.parametrize("op", OTHER, ids=name_of)
@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "f64", "i32", "i64", "u8", "bool"])
def test_what_gives_no_element(kind: Kind, op: Op, element: str) -> None:
    if element not in op.elements:
        with pytest.raises(nb.Unsupported, match=f"element is {element}, wants one of f16"):
            function(op)(kind.array(np.ones((3, 3), numpy_dtype(element))), 1)
        return
    x = np.random.default_rng(0).integers(-2, 3, (24, 80)).astype(numpy_dtype(element))
    x[:, 5], x[7] = 0, 0
    x[:, 6], x[8] = 1, 1
    if not np.issubdtype(x.dtype, np.integer) and element != "bool":
        x[3, 10:12], x[9, 70] = NAN, NAN
    for axis in (0, 1):
        got = kind.numpy(function(op)(kind.array(x), axis, False))
        assert got.dtype == numpy_dtype(op.indices[0])
        np.testing.assert_array_equal(got, _found(op, x.astype(np.float64) if element == "bf16" else x, axis))


@pytest.mark.parametrize("op", [op for op in OTHER if kind_of(op).startswith("arg")], ids=name_of)
def test_places_over_several_axes(kind: Kind, op: Op) -> None:
    x = np.random.default_rng(0).integers(0, 9, (6, 7, 8)).astype(F)
    for view, array in ((kind.array(x), x), (kind.transpose(kind.array(x), (2, 1, 0)), x.T)):
        assert int(kind.numpy(function(op)(view, None, False))) == _found(op, array, None)
        got = function(op)(view, (0, 2), False, dtype=np.int32)
        assert kind.numpy(got).dtype == np.int32
        np.testing.assert_array_equal(kind.numpy(got), _found(op, np.moveaxis(array, 1, 0).reshape(array.shape[1], -1), 1))
    with pytest.raises(nb.InvalidProblem, match="wants at least one element along the reduced axes"):
        function(op)(kind.array(np.zeros((3, 0), F)), 1)
    with pytest.raises(nb.Unsupported, match="the dtype of the result is f32, wants one of i64, i32"):
        function(op)(kind.array(x), 1, dtype=F)


@pytest.mark.parametrize("op", [op for op in OTHER if kind_of(op).startswith("arg")], ids=name_of)
@pytest.mark.parametrize(("element", "result"), [("i64", "int64"), ("i64", "int32"), ("i32", "int64"), ("u8", "int32")])
def test_places_of_integers(kind: Kind, op: Op, element: str, result: str) -> None:
    """Neighbours beyond 2⁵³, which no float64 tells apart, the limits of the type, also alone, and ties: along, across, in splits, in short rows."""
    limits = np.iinfo(numpy_dtype(element))
    rng = np.random.default_rng(0)
    extreme = [limits.max - 1, limits.max] if kind_of(op) == "argmax" else [limits.min + 1, limits.min]
    for shape, axis in (((5, 300), 1), ((300, 10), 0), ((2, 9001), 1), ((6, 7), 1), ((3, 701), 1), ((9000, 3), 0), ((40, 50), None), ((4, 1), 1)):
        x = rng.integers(limits.min, limits.max, shape, endpoint=True, dtype=numpy_dtype(element))
        some = rng.random(shape) < 0.1
        x[some] = rng.choice(np.array(extreme, x.dtype), int(some.sum()))
        if element == "i64":
            near = rng.integers(0, 4, (shape[0], 1)) + (1 << 53)
            x[:1] = near[:1] + rng.integers(0, 2, x[:1].shape)
        for array in (x, np.full_like(x, limits.min), np.full_like(x, limits.max)):
            got = kind.numpy(function(op)(kind.array(array), axis, False, dtype=result))
            assert got.dtype == result
            np.testing.assert_array_equal(got, _found(op, array, axis))


def test_truth_of_nothing(kind: Kind) -> None:
    nothing = kind.array(np.zeros((2, 0), F))
    assert [kind.numpy(each(nothing, 1, False)).tolist() for each in (nb.reduce_any, nb.reduce_all, nb.reduce_count_nonzero)] == [
        [False, False], [True, True], [0, 0],
    ]  # fmt: skip


# ---------------------------------------------------------------- layouts


def _views(kind: Kind, x: Array) -> dict[str, tuple[Any, Array]]:
    """Views of one array with two axes, as the framework slices them, and as NumPy does."""
    made = kind.array(x)
    wide = kind.array(np.concatenate([np.full((x.shape[0], 1), NAN, x.dtype), x], axis=1))
    found = {
        "transposed": (kind.transpose(made, (1, 0)), x.T), "every second row": (made[::2], x[::2]), "every third column": (made[:, ::3], x[:, ::3]),
        "misaligned": (wide[:, 1:], x), "broadcast": (kind.broadcast(made[:1], x.shape), np.broadcast_to(x[:1], x.shape)),
    }  # fmt: skip
    return found | {"backwards": (made[::-1, ::-1], x[::-1, ::-1])}


@pytest.mark.parametrize("op", [op for op in FEW if op.backward], ids=name_of)
@pytest.mark.parametrize("axis", [0, 1])
def test_views(kind: Kind, op: Op, axis: int) -> None:
    for name, (view, array) in _views(kind, values(op, (12, 48), "f32")).items():
        assert_close(kind.numpy(function(op)(view, axis)), truth(op, {"x": array}, array.shape, (axis,)), "f32", f"{op.name}: {name}")


@pytest.mark.parametrize("name", ["sum", "var", "norm2", "argmax"])
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_columns_that_begin_anywhere(kind: Kind, name: str, element: str) -> None:
    """Accesses are aligned, so those at either end of a line reach beyond it; NaN is what lies there."""
    op, made = nb.OPS[f"reduce_{name}"], numpy_dtype(element)
    for before, behind in ((1, 7), (3, 0), (5, 2), (0, 1)):
        x = values(op, (9, 1040 - before - behind), element)
        wide = np.full((9, 1040), NAN, made)
        wide[:, before : 1040 - behind] = x
        got = kind.numpy(function(op)(kind.array(wide)[:, before : 1040 - behind], 0, False))
        if name == "argmax":
            np.testing.assert_array_equal(got, x.argmax(0))
        else:
            wanted = truth(op, {"x": x}, x.shape, (0,))
            assert_close(got, Truth(wanted.value[0], wanted.scale[0], wanted.terms[0]), element, op.name)


@pytest.mark.parametrize("axis", [0, 1])
def test_views_of_a_gradient(kind: Kind, axis: int) -> None:
    op = next(op for op in BACKWARD if op.name == "reduce_logsumexp_backward")
    for name, (view, array) in _views(kind, values(op, (12, 48), "f32")).items():
        given = operands(op, array.shape, (axis,))
        given["x"] = array
        forward = next(each for each in FORWARD if each.backward == op.name)
        given["y"] = truth(forward, {"x": array}, array.shape, (axis,)).value.astype(F)
        out = kind.transpose(kind.poisoned(array.shape[::-1], F), (1, 0))
        got = function(op)(kind.array(given["dy"]), view, kind.array(given["y"]), axis=axis, out=out)
        assert got is out
        assert_close(kind.numpy(got), truth(op, given, array.shape, (axis,)), "f32", f"{op.name}: {name}")


@EVERY
def test_results_without_the_axes(kind: Kind, op: Op) -> None:
    given = operands(op, (5, 6), (1,))
    whole = kind.numpy(run(op, {name: kind.array(array) for name, array in given.items()}, (5, 6), 1))
    if op.backward:
        less = function(op)(kind.array(given["x"]), 1, False)
        assert less.shape == (5,)
        np.testing.assert_array_equal(kind.numpy(less), whole[:, 0])
    else:
        squeezed = {name: kind.array(array if name == "x" else array[:, 0]) for name, array in given.items()}
        np.testing.assert_array_equal(kind.numpy(run(op, squeezed, (5, 6), 1)), whole)


def test_arguments_by_position_and_by_name(kind: Kind) -> None:
    """And the same call again, which finds its launches."""
    x = np.arange(12, dtype=F).reshape(3, 4)
    a, wanted, aside = kind.array(x), x.sum(1), kind.array(np.ones((3, 4), F))
    for _ in range(2):
        out, column = kind.poisoned((3,), F), kind.poisoned((3, 1), F)
        assert nb.reduce_sum(a, 1, False, out=out) is out and nb.reduce_sum(x=a, axis=1, out=column) is column
        np.testing.assert_array_equal(kind.numpy(out), wanted)
        np.testing.assert_array_equal(kind.numpy(column)[:, 0], wanted)
        np.testing.assert_array_equal(kind.numpy(nb.reduce_var(a, keepdims=False, axis=[1], correction=0)), x.var(1))
        np.testing.assert_array_equal(kind.numpy(nb.reduce_sum_backward(dy=kind.array(np.ones((3, 1), F)), axis=1, x=a)), np.ones((3, 4), F))
        np.testing.assert_array_equal(kind.numpy(nb.cumsum(axis=1, x=aside)), x[:1] + np.zeros((3, 1), F) + 1)
        with pytest.raises(nb.InvalidProblem, match=r"out has shape \[3, 1\], wants \[3\] with keepdims=False"):
            nb.reduce_sum(a, 1, False, out=column)
        with pytest.raises(nb.InvalidProblem, match="y overlaps x"):
            nb.reduce_sum(a, 1, out=a[:, 1:2])
        with pytest.raises(TypeError, match="unexpected keyword argument 'correction'"):
            nb.reduce_sum(a, 1, correction=0)
        with pytest.raises(TypeError, match=r"required .*argument: 'axis'"):
            nb.reduce_sum(a)


# ---------------------------------------------------------------- rules


def test_far_from_zero(kind: Kind) -> None:
    x = (1e6 + np.random.default_rng(0).standard_normal((2, 40_000))).astype(F)
    wanted = x.astype(np.float64).var(1, ddof=1)
    for array, axis in ((x, 1), (x.T.copy(), 0)):
        for name, right in (("reduce_var", wanted), ("reduce_std", wanted**0.5)):
            np.testing.assert_allclose(kind.numpy(getattr(nb, name)(kind.array(array), axis, False)), right, rtol=1e-5)


def test_an_outlier_at_the_front(kind: Kind) -> None:
    x = (1e4 + np.random.default_rng(0).standard_normal((1, 5000))).astype(F)
    x[0, 0] = -1e4
    np.testing.assert_allclose(kind.numpy(nb.reduce_var(kind.array(x), 1)), x.astype(np.float64).var(1, ddof=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("element", "sizes"),
    [
        ("f32", (1e-30, 1e-20, 1.0, 1e20, 1e37)),
        ("f64", (1e-300, 1e-200, 1e200, 1e307)),
        ("f16", (6e-8, 1e-4, 1e3)),
        ("bf16", (1e-38, 1e-20, 1.0, 1e20, 1e37)),
    ],
)
def test_norms_near_the_limits(kind: Kind, element: str, sizes: tuple[float, ...]) -> None:
    for size in sizes:
        x = np.full((20, 20), size).astype(numpy_dtype(element))
        for axis in (0, 1):
            got = kind.numpy(nb.reduce_norm2(kind.array(x), axis)).astype(np.float64)
            np.testing.assert_allclose(
                got, np.float64(x[0, 0]) * 20**0.5, rtol={"f16": 2e-3, "bf16": 1e-2}.get(element, 1e-6), atol=6e-8 if element == "f16" else 0
            )


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_norms_of_mixed_sizes(kind: Kind, element: str) -> None:
    x = np.array([[3e30, 4e30, 1e-30, 0], [0, 0, 0, 0], [INF, 1, 0, -INF], [1, NAN, 2, INF], [-3, 4, 0, 0], [3, 0, 0, 4e-30], [3e-38, 0, 0, 0]])
    wanted = np.array([5e30, 0, INF, NAN, 5, 3, 3e-38])
    for many in (1, 40):  # one access, and several
        for array, axis in ((np.repeat(x, many, 1), 1), (np.repeat(x, many, 1).T.copy(), 0)):
            got = kind.numpy(nb.reduce_norm2(kind.array(array.astype(numpy_dtype(element))), axis, False)).astype(np.float64)
            np.testing.assert_allclose(got, wanted * many**0.5, rtol=1e-6 if element == "f32" else 1e-2)


@pytest.mark.parametrize(("name", "element"), [("norm2", "f32"), ("norm2", "bf16"), ("logsumexp", "f32"), ("var", "f32")])
def test_sizes_that_change_along_the_way(kind: Kind, name: str, element: str) -> None:
    """Every lane has to move its pivot, upwards and downwards."""
    rising = {"norm2": np.geomspace(1e-35, 1e35, 6000), "logsumexp": np.linspace(-3000, 3000, 6000), "var": np.linspace(0, 1e6, 6000) ** 2}[name]
    x = np.stack([rising, rising[::-1], np.roll(rising, 3000)]).astype(numpy_dtype(element))
    wide = x.astype(np.float64)
    wanted = {"norm2": np.linalg.norm(wide, axis=1), "logsumexp": np.logaddexp.reduce(wide, axis=1), "var": wide.var(axis=1, ddof=1)}[name]
    for array, axis in ((x, 1), (x.T.copy(), 0)):
        got = kind.numpy(getattr(nb, f"reduce_{name}")(kind.array(array), axis, False))
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=3e-6 if element == "f32" else 1e-2)


def test_infinities_and_nan(kind: Kind) -> None:
    x = np.array([[-INF, -INF], [INF, 1], [NAN, 1], [-INF, 2], [INF, -INF], [88, 88]], F)
    wanted = {
        "logsumexp": [-INF, INF, NAN, 2, INF, 88 + np.log(2)], "max": [-INF, INF, NAN, 2, INF, 88], "min": [-INF, 1, NAN, -INF, -INF, 88],
        "sum": [-INF, INF, NAN, -INF, NAN, 176], "var": [NAN, NAN, NAN, NAN, NAN, 0],
    }  # fmt: skip
    for (name, numbers), (array, axis) in itertools.product(wanted.items(), ((x, 1), (x.T.copy(), 0))):
        got = kind.numpy(getattr(nb, f"reduce_{name}")(kind.array(array), axis, False))
        np.testing.assert_allclose(got, np.array(numbers, F), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_logsumexp_of_halves(kind: Kind, element: str, request: pytest.FixtureRequest) -> None:
    """Half a step of the element, and the error of a float32 of the size of the greatest element or 1, also where the result is near 0."""
    made = numpy_dtype(element)
    few = np.concatenate([-np.geomspace(1e-3, 20, 300), np.linspace(-1, 1, 40), np.linspace(-60, 60, 20)]).astype(made)
    below = np.arange(1 << 15, int(np.array(-18, made).view(np.uint16)), dtype=np.uint16).view(made)  # every number from -0 to -18
    cases = [np.stack([np.zeros_like(below), below], 1)]  # whose sums lie dense from 1 to 2
    for count in (1, 2, 4, 7, 300):
        cases.append(np.repeat(few[:, None], count, 1))
        cases[-1][::3] -= (np.arange(count) / 8).astype(made)
    for x in cases:
        wide = x.astype(np.float64)
        wanted = np.logaddexp.reduce(wide, axis=1)
        step = np.maximum(abs(wanted) * float(ml_dtypes.finfo(made).eps), float(ml_dtypes.finfo(made).smallest_subnormal))
        most = step / 2 + 2.0**-20 * (1 + abs(wide).max(1) / 4)
        some = slice(None, None, 1 if request.config.getoption("--full") or not kind.emulated else 7)  # columns compute as rows do
        for array, axis, within in ((x, 1, slice(None)), (x[some].T.copy(), 0, some)):
            got = kind.numpy(nb.reduce_logsumexp(kind.array(array), axis, False))
            assert got.dtype == made
            assert (abs(got.astype(np.float64) - wanted[within]) <= most[within]).all()
    x = np.array([[-INF, -INF], [INF, 1], [NAN, 1], [-INF, 2], [INF, -INF], [5, -INF]], made)
    for array, axis in ((x, 1), (x.T.copy(), 0)):
        got = kind.numpy(nb.reduce_logsumexp(kind.array(array), axis, False)).astype(F)
        np.testing.assert_array_equal(got, np.array([-INF, INF, NAN, 2, INF, 5], F))


def test_signed_zeros(kind: Kind) -> None:
    x = np.array([[0.0, -0.0], [-0.0, 0.0]], F)
    for axis in (0, 1):
        assert not np.signbit(kind.numpy(nb.reduce_max(kind.array(x), axis))).any()
        assert np.signbit(kind.numpy(nb.reduce_min(kind.array(x), axis))).all()


@pytest.mark.parametrize("op", FORWARD, ids=name_of)
def test_of_nothing(kind: Kind, op: Op) -> None:
    for shape, axis in (((3, 0), 1), ((0, 3), 0), ((0,), None), ((2, 3, 0), (0, 2)), ((3, 0, 4, 2), (0, 1, 3))):
        got = kind.numpy(function(op)(kind.array(np.zeros(shape, F)), axis, False))
        np.testing.assert_array_equal(got, np.full(got.shape, NOTHING.get(kind_of(op), 0), F))
    assert function(op)(kind.array(np.zeros((0, 3), F)), 1).shape == (0, 1)


@pytest.mark.parametrize("op", BACKWARD, ids=name_of)
def test_gradients_of_nothing(kind: Kind, op: Op) -> None:
    given = {"dy": np.ones((3, 1), F), "x": np.zeros((3, 0), F), "y": np.ones((3, 1), F)}
    named = {operand.name: kind.array(given[operand.name]) for operand in op.operands[:-1]}
    assert run(op, named, (3, 0), 1).shape == (3, 0)


def test_products_with_zeros(kind: Kind) -> None:
    x = np.array([[0, 2, 3], [0, 0, 3], [1, 2, 4], [-0.0, INF, 2]], F)
    with np.errstate(all="ignore"):
        y = x.prod(1, keepdims=True)
    wanted = np.array([[6, 0, 0], [0, 0, 0], [8, 4, 2], [INF, 0, 0]], F)
    got = kind.numpy(nb.reduce_prod_backward(kind.array(np.ones((4, 1), F)), kind.array(x), kind.array(y), axis=1))
    np.testing.assert_array_equal(got[:3], wanted[:3])


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f16"])
def test_gradients_of_products_out_of_the_range(kind: Kind, element: str) -> None:
    """Side by side with ordinary ones; of two elements, of many that balance, and with a zero."""
    op, made = nb.OPS["reduce_prod_backward"], numpy_dtype(element)
    small, large = {"f64": (1e-200, 1e200), "f16": (1e-4, 1e4)}.get(element, (1e-30, 1e30))
    x = np.ones((6, 40), made)
    x[0, 3:5], x[1, 3:5], x[2, :20], x[2, 20:] = small, -large, small, large
    x[3, ::2], x[3, 1::2], x[4, :2], x[4, 39] = large, small, large, 0
    wide = np.float64 if element == "f64" else F
    for many in (1, 60):
        array = np.concatenate([x] + [np.ones_like(x)] * (many - 1), axis=1)
        with np.errstate(all="ignore"):
            y = array.astype(wide).prod(axis=1, keepdims=True).astype(made)
        given = {"dy": np.ones((6, 1), made), "x": array, "y": y}
        wanted = truth(op, given, array.shape, (1,))
        got = kind.numpy(nb.reduce_prod_backward(*map(kind.array, given.values()), axis=1))
        assert_close(got, wanted, element, op.name)
        assert got[0, 3] > 0 and np.isfinite(got[1, 3:5].astype(F if element != "f64" else np.float64)).all()
        got = kind.numpy(nb.reduce_prod_backward(*[kind.array(each.T.copy()) for each in given.values()], axis=0))
        assert_close(got.T.copy(), wanted, element, op.name)


def test_gradients_at_zero_and_of_constants(kind: Kind) -> None:
    one, zeros, fives = (kind.array(np.full(shape, number, F)) for shape, number in (((2, 1), 1), ((2, 7), 0), ((2, 7), 5)))
    np.testing.assert_array_equal(kind.numpy(nb.reduce_norm2_backward(one, zeros, nb.reduce_norm2(zeros, 1), axis=1)), 0)
    np.testing.assert_array_equal(kind.numpy(nb.reduce_std_backward(one, fives, nb.reduce_std(fives, 1), axis=1)), 0)
    lowest = kind.array(np.full((2, 7), -INF, F))
    np.testing.assert_array_equal(kind.numpy(nb.reduce_logsumexp_backward(one, lowest, nb.reduce_logsumexp(lowest, 1), axis=1)), 0)


def test_halves_are_kept_in_float32(kind: Kind) -> None:
    ones = kind.array(np.ones((1, 4096), np.float16))
    assert float(kind.numpy(nb.reduce_sum(ones, 1))[0, 0]) == 4096
    many = kind.array(np.ones((1, 3001), ml_dtypes.bfloat16))
    assert float(kind.numpy(nb.reduce_sum(many, 1))[0, 0]) == 3008  # the nearest bfloat16
    share = kind.numpy(nb.reduce_mean_backward(kind.array(np.full((1, 1), 8192, np.float16)), axis=1, input_shape=(1, 40_000)))
    np.testing.assert_allclose(share[0, :5].astype(np.float64), 0.2048, rtol=1e-3)


@pytest.mark.parametrize("op", FEW, ids=name_of)
def test_the_same_bits_under_any_schedule(emulator: Kind, op: Op) -> None:
    for shape, axis in (((3, 700), 1), ((200, 8), 0), ((1, 70_000), 1)):
        given = operands(op, shape, (axis,))
        results = []
        for seed in (None, *((1, 2) if shape[-1] < 1000 else ())):
            with emulator.schedule(seed):
                results.append(run(op, given, shape, axis))
        assert all(np.array_equal(results[0], other) for other in results)


# ---------------------------------------------------------------- calls and plans

X = np.ones((4, 6), F)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda k: nb.reduce_sum(k(X), 2), nb.InvalidProblem, "reduce_sum: axis is 2, wants numbers from -2 to 1"),
        (lambda k: nb.reduce_sum(k(X), (0, -2)), nb.InvalidProblem, "axis is \\(0, -2\\), wants each axis once"),
        (lambda k: nb.reduce_sum(k(X), 1.5), nb.InvalidProblem, "axis is 1.5, wants a whole number"),
        (lambda k: nb.reduce_mean(k(X.astype(np.int32)), 1), nb.Unsupported, "reduce_mean: element is i32, wants one of f16, bf16, f32, f64"),
        (lambda k: nb.reduce_sum(k(np.ones((1,) * 9, F)), 1), nb.Unsupported, "input_shape has 9 axes, wants at most 8"),
        (lambda k: nb.reduce_var(k(X), 1, correction=-1), nb.InvalidProblem, "correction is -1, wants a finite number, 0 or more"),
        (lambda k: nb.reduce_sum(k(X), 1, out=k(np.ones((4, 2), F))), nb.InvalidProblem, r"y has shape \[4, 2\], wants \[4, 1\]"),
        (lambda k: nb.reduce_sum(k(X), 1, False, out=k(np.ones((4, 1), F))), nb.InvalidProblem, r"out has shape \[4, 1\], wants \[4\]"),
        (lambda k: nb.reduce_sum(k(X), 1, out=k(np.ones((4, 1)))), nb.InvalidProblem, "y is float64, wants float32"),
        (lambda k: nb.reduce_sum_backward(k(X[:, :1]), axis=1), nb.InvalidProblem, "input_shape is missing"),
        (lambda k: nb.reduce_max_backward(k(X[:, :1]), axis=1), nb.InvalidProblem, "reduce_max_backward: x is missing, wants dy, x, y"),
        (lambda k: nb.reduce_max_backward(k(X[:, :1]), k(X), axis=1), nb.InvalidProblem, "y is missing"),
        (lambda k: nb.reduce_sum_backward(k(X), axis=1, input_shape=(4, 6)), nb.InvalidProblem, r"dy has shape \[4, 6\], wants \[4, 1\]"),
        (lambda k: nb.reduce_mean_backward(k(X[:, :1]), k(X), axis=1, input_shape=(4, 5)), nb.InvalidProblem, r"input_shape is \[4, 5\], wants"),
        (lambda k: nb.reduce_max_backward(k(X[:, :1]), k(X), k(X[:, :1]), axis=1, ties="some"), nb.InvalidProblem, "ties is 'some', wants one"),
    ],
)
def test_wrong_calls(kind: Kind, call: Any, error: type[Exception], says: str) -> None:
    for _ in range(2):
        with pytest.raises(error, match=says):
            call(kind.array)


def test_overlap_is_refused(kind: Kind) -> None:
    x = kind.array(X)
    with pytest.raises(nb.InvalidProblem, match="y overlaps x, wants memory of its own"):
        nb.reduce_sum(x, 1, out=x[:, :1])


@EVERY
def test_plans(kind: Kind, op: Op) -> None:
    made: Any = nb.ReduceDescriptor if op.backward else nb.ReduceBackwardDescriptor
    descriptor = made(op.kind, (16, 24), -1, "f32")
    assert descriptor == made(kind_of(op), [16, 24], (1,), "float32")
    plan = nb.select(descriptor)
    given = operands(op, (16, 24), (1,))
    out = kind.poisoned((16, 1) if op.backward else (16, 24), F)
    named = {name: kind.array(array) for name, array in given.items()} | {op.operands[-1].name: out}
    plan.can_implement(**named)
    plan.run(workspace=kind.workspace(plan.workspace_size) if plan.workspace_size else None, **named)
    options = {"ties": "all"} if "ties" in op.traits["keywords"] else {}
    assert_close(kind.numpy(out), truth(op, given, (16, 24), (1,), **options), "f32", op.name)
    assert plan.sku.op == int(op.kind) and plan.sku.category == nb.OpCategory.REDUCTION and plan.sku.aux_element is None
    assert plan.precision_guarantee.deterministic and plan.precision_guarantee.accumulator == nb.ElementKind.F32


def test_descriptors_tell_their_shapes() -> None:
    assert nb.ReduceDescriptor("sum", (2, 3, 4), (0, -1)).output_shape == (1, 3, 1)
    assert nb.ReduceBackwardDescriptor("sum", (2, 3, 4), None).dy_shape == (1, 1, 1)
    with pytest.raises(nb.InvalidProblem, match="ReduceKind: got 'sums'"):
        nb.ReduceDescriptor("sums", (2, 3), 1)
    with pytest.raises(nb.InvalidProblem, match="wants extents of 0 or more"):
        nb.select(nb.ReduceDescriptor("sum", (2, -3), 1))
    with pytest.raises(nb.Unsupported, match="op: got 'reduce_trace'"):
        nb.select(nb.ReduceDescriptor("trace", (2, 3), 1))


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_the_stated_workspace_is_enough(op: Op) -> None:
    for descriptor, layouts in op.samples(op):
        plan = nb.select(descriptor, device=-1)
        assert op.variants[0].recipe(op, descriptor, layouts, plan.target).workspace <= plan.workspace_size


@pytest.mark.parametrize("shape", [(1024,), (128, 1024), (4096, 4096)])
def test_small_problems_take_one_launch(shape: tuple[int, ...]) -> None:
    """As they do where there are enough rows to keep a device busy."""
    for op in FORWARD:
        descriptor = nb.ReduceDescriptor(op.kind, shape, -1)
        for layouts in descriptor.typical_layouts(op):
            if layouts["x"].strides[-1] == 1:
                assert len(op.variants[0].recipe(op, descriptor, layouts, Target((9, 0), 132)).steps) == 1


def test_every_kind_has_a_gradient() -> None:
    assert [kind_of(op) for op in FORWARD] == [kind_of(op) for op in BACKWARD]
    assert {stem(f"segment_{kind_of(op)}") for op in FORWARD} == {"sum", "mean", "max", "min", "prod", "norm2", "logsumexp", "var", "std"}
