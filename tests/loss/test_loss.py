"""The fused linear cross-entropy against float64 NumPy: values, gradients, options, targets that do not count, and numbers that are none."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from loss_cases import CLASS_WEIGHTS, EVERYTHING, INPUTS, OP, OPTIONS, OUTPUTS, RETURNED, ROW_WEIGHTS, WAYS, check, problem
from loss_reference import MEANING, REFERENCES, Wanted, assert_close, scaled, wanted

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype


@pytest.mark.parametrize("value", OP.elements)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_elements_and_reductions(kind: Kind, value: str, reduction: str) -> None:
    check(kind, *problem(kind=value), value, reduction=reduction, chunk=8)


@pytest.mark.parametrize(
    ("rows", "width", "classes", "chunk"),
    [
        (1, 1, 1, 1),
        (3, 1, 2, 2),
        (5, 7, 3, 5),
        (2, 3, 600, 1),
        (9, 5, 64, 4),
        (4, 33, 129, 100),
        (17, 8, 257, "liger"),
        (6, 4, 40, "lean"),
        (1, 9, 5000, "auto"),
    ],
)
@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_extents(kind: Kind, rows: int, width: int, classes: int, chunk: Any, value: str) -> None:
    check(kind, *problem(rows, width, classes, value), value, chunk=chunk)


def test_every_op_option_and_output_is_known() -> None:
    """A new one wants a reference in tests/support/loss_reference.py, and values in tests/support/loss_cases.py."""
    assert {op.name for op in nb.OPS.values() if op.family == "loss"} == set(REFERENCES)
    assert set(OUTPUTS) == {field.name for field in dataclasses.fields(Wanted)} - {"scales"}
    tried = {name for each in OPTIONS.values() for name in each}
    assert tried | {"reduction"} == set(MEANING)
    requests = {*[name for name in OUTPUTS if name != "out"]} - {*RETURNED} | {f"return_{name}" for name in RETURNED}
    known = {*INPUTS, *MEANING, *WAYS, *requests, "accumulate_grad_weight", "out", "stream", "workspace"}
    assert set(inspect.signature(getattr(nb, OP.name)).parameters) == known
    assert {operand.name for operand in OP.operands} <= known | {*RETURNED}


@pytest.mark.parametrize(("way", "value"), [(way, value) for way, values in WAYS.items() for value in values])
def test_ways(kind: Kind, way: str, value: Any) -> None:
    """How the loss is computed does not change what it is."""
    check(kind, *problem(), **{"row_weight": ROW_WEIGHTS, way: value})


@pytest.mark.parametrize("name", list(OPTIONS))
def test_options(kind: Kind, name: str) -> None:
    for reduction in ("mean", "sum") if name in ("class_weight", "squared with weights") else ("mean",):
        check(kind, *problem(), **({"reduction": reduction, "chunk": 16} | OPTIONS[name]))


@pytest.mark.parametrize("value", ["f64", "f16", "bf16"])
def test_everything_at_once(kind: Kind, value: str) -> None:
    wide = numpy_dtype(BY_NAME[value].accumulator)
    options = {name: each.astype(wide) if isinstance(each, np.ndarray) else each for name, each in EVERYTHING.items()}
    options["bias"] = options["bias"].astype(numpy_dtype(value))
    for reduction in ("mean", "none"):
        check(kind, *problem(kind=value), value, reduction=reduction, chunk=16, **options)


@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_gradient_of_rows(kind: Kind, value: str) -> None:
    """An upstream gradient for each row reaches the weight as well."""
    dy = np.random.default_rng(2).uniform(0.5, 1.5, 21).astype(np.float32)
    for each in (dy, dy.astype(numpy_dtype(value))):
        check(kind, *problem(kind=value), value, reduction="none", dy=each, chunk=8)
    check(kind, *problem(kind=value), value, reduction="none", dy=3.0, chunk=8)


def test_the_reference_by_differences() -> None:
    """Gradients of the reference are those of its loss."""
    x, w, target = problem(9, 3, 5)
    x, w, step = x.astype(np.float64), w.astype(np.float64), 1e-6
    options = EVERYTHING | {"class_weight": CLASS_WEIGHTS[:5], "row_weight": ROW_WEIGHTS[:9], "bias": OPTIONS["bias"]["bias"][:5], "dy": 1.0}
    for more in ({}, options):
        right = wanted(x, w, target, **more)
        for name, array in (("grad_input", x), ("grad_weight", w)):
            found = np.empty_like(array)
            for place in np.ndindex(array.shape):
                kept = array[place]
                array[place] = kept + step
                above = wanted(x, w, target, **more).out
                array[place] = kept - step
                found[place] = (above - wanted(x, w, target, **more).out) / (2 * step)
                array[place] = kept
            np.testing.assert_allclose(found, getattr(right, name), atol=1e-7)


def test_what_else_is_returned(kind: Kind) -> None:
    x, w, target = problem()
    w[7] = w[3]  # equal logits: the first class counts
    x[4], target[4] = 3 * w[3], 3
    for reduction in ("mean", "sum", "none"):
        options: dict[str, Any] = {"reduction": reduction, "lse_square_scale": 0.02}
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), **options, **{f"return_{name}": True for name in RETURNED})
        right = wanted(x, w, target, **options)
        assert got.grad_input is None and got.grad_weight is None
        assert kind.numpy(got.predicted)[4] == 3 and kind.numpy(got.predicted)[2] == -1
        for name in RETURNED:
            np.testing.assert_allclose(kind.numpy(getattr(got, name)), getattr(right, name), rtol=1e-5, atol=1e-7)


def test_nothing_counts(kind: Kind) -> None:
    """Loss, gradients and what else is returned are 0 to the last bit, whatever the logits are."""
    x, w, _ = problem()
    x *= 1e38  # logits are infinite
    for target in (np.full(21, -100), np.full(21, 70)):
        for options in ({}, {"class_weight": np.ones(70, np.float32)}):
            given = {name: kind.array(each) for name, each in options.items()}
            got = nb.fused_linear_cross_entropy(
                *map(kind.array, (x, w, target)), lse_square_scale=0.1, grad_input=True, grad_weight=True, return_z_loss=True, return_accuracy=True,
                chunk=8, **given,
            )  # fmt: skip
            assert kind.numpy(got.loss) == kind.numpy(got.z_loss) == kind.numpy(got.accuracy) == 0
            assert not kind.numpy(got.grad_input).any() and not kind.numpy(got.grad_weight).any()


def test_no_rows(kind: Kind) -> None:
    """The loss is 0, and so are the gradients; nothing is added."""
    x, w, target = np.empty((0, 12), np.float32), problem()[1], np.empty(0, np.int64)
    bias = kind.array(np.zeros(70, np.float32))
    got = nb.fused_linear_cross_entropy(
        *map(kind.array, (x, w, target)), bias=bias, grad_input=True, grad_weight=True, grad_bias=True, return_accuracy=True
    )
    assert kind.numpy(got.loss) == kind.numpy(got.accuracy) == 0 and kind.numpy(got.grad_input).shape == (0, 12)
    assert not kind.numpy(got.grad_weight).any() and not kind.numpy(got.grad_bias).any()
    held = kind.array(np.ones_like(w))
    nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_weight=held, accumulate_grad_weight=True)
    assert (kind.numpy(held) == 1).all()
    assert kind.numpy(nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), reduction="none")).shape == (0,)


def test_numbers_that_are_none(kind: Kind) -> None:
    """NaN and +∞ make their own row NaN, −∞ among finite logits is a class that cannot be; nothing but −∞ is NaN, and predicts class 0."""
    target = np.array([0, 1, 2, 0])
    for value in (np.nan, np.inf):
        x, w = np.zeros((4, 1), np.float32), np.ones((5, 1), np.float32)
        x[1] = value
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), reduction="none", grad_input=True)
        assert list(np.isnan(kind.numpy(got.loss))) == list(np.isnan(kind.numpy(got.grad_input)[:, 0])) == [False, True, False, False]
    x, w, bias = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32), np.zeros(5, np.float32)
    bias[3] = -np.inf
    given = [*map(kind.array, (x, w, target))]
    got = nb.fused_linear_cross_entropy(*given, reduction="none", bias=kind.array(bias), grad_input=True, grad_weight=True, grad_bias=True)
    np.testing.assert_allclose(kind.numpy(got.loss), np.log(4), rtol=1e-6)
    assert np.isfinite(kind.numpy(got.grad_weight)).all() and kind.numpy(got.grad_bias)[3] == 0
    bias[:] = -np.inf
    got = nb.fused_linear_cross_entropy(*given, reduction="none", bias=kind.array(bias), grad_input=True, return_predicted=True)
    assert np.isnan(kind.numpy(got.loss)).all() and np.isnan(kind.numpy(got.grad_input)).all()
    assert (kind.numpy(got.predicted) == 0).all()


def test_entropies_where_classes_cannot_be(kind: Kind) -> None:
    """Classes of logit −∞ add nothing, however many; rows that are certain have entropy 0, and rows that are left out, too. NaN stays in its row."""
    bias = np.zeros(300, np.float32)
    bias[3:] = -np.inf
    x, w, target = np.ones((4, 1), np.float32), np.zeros((300, 1), np.float32), np.array([0, 1, -100, 2])
    w[0] = 1
    x[1], x[3] = 500, np.nan
    dy = kind.array(np.ones(4, np.float32))
    given = {"reduction": "none", "bias": kind.array(bias), "dy": dy, "dy_entropy": dy, "return_entropy": True, "grad_input": True}
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), **given)
    p = np.exp([1.0, 0, 0]) / np.exp([1.0, 0, 0]).sum()
    entropy = -(p * np.log(p)).sum()
    np.testing.assert_allclose(kind.numpy(got.entropy), [entropy, 0, 0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(kind.numpy(got.grad_input)[:, 0], [p[0] - 1 - p[0] * (np.log(p[0]) + entropy), 1, 0, np.nan], rtol=1e-5)


def test_small_gradients_survive_in_float16(kind: Kind) -> None:
    """The mean's share goes into the products: by itself it would take a gradient below the least float16."""
    x, w, target = problem(kind="f16", odd=False)
    w = (w * np.float16(64)).astype(np.float16)
    x = (x / np.float16(64)).astype(np.float16)
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, dy=2e-5)
    right = wanted(x, w, target, dy=2e-5).grad_input
    found = kind.numpy(got.grad_input).astype(np.float64)
    assert np.max(abs(found - right)) <= 0.02 * np.max(abs(right)) + 2.0**-24


def test_confident_predictions(kind: Kind) -> None:
    """The gradient at a target that is all but certain is rounded once: its own size counts, not that of the 1 that is taken away."""
    x = np.array([[1.0], [1.0]], np.float32)
    for margin in (5.0, 8.0, 11.0):
        w = np.array([[0.0], [margin], [0.5]], np.float32)
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, np.array([1, 1]))), reduction="sum", grad_weight=True)
        right = wanted(x, w, np.array([1, 1]), reduction="sum").grad_weight
        np.testing.assert_allclose(kind.numpy(got.grad_weight), right, rtol=2e-3 * np.exp(margin - 11) + 1e-5, atol=2.0**-22)


@pytest.mark.parametrize("value", ["f32", "bf16"])
def test_where_gradients_go(kind: Kind, value: str) -> None:
    """Into arrays with gaps between rows, on top of what is there, and through sums of their own."""
    x, w, target = problem(kind=value)
    right, dtype = wanted(x, w, target), numpy_dtype(value)
    wide_x, wide_w = kind.array(np.zeros((21, 15), dtype)), kind.array(np.zeros((70, 12), dtype))
    wide_x[:, :12] = kind.array(x)
    into, held = kind.array(np.full((42, 12), 7, dtype)), kind.array(np.full((70, 16), 2, dtype))
    wide_w[...] = kind.array(w)
    for accum in (None, "f32"):
        held[...] = kind.array(np.full((70, 16), 2, dtype))
        nb.fused_linear_cross_entropy(
            wide_x[:, :12], wide_w, kind.array(target.astype(np.int32)), grad_input=into[::2], grad_weight=held[:, :12], accumulate_grad_weight=True,
            grad_weight_accum=accum, chunk=8,
        )  # fmt: skip
        assert_close(kind.numpy(into[::2]), right, "grad_input", value, 70)
        got = kind.numpy(held).astype(np.float64)
        allowed = 4 * np.finfo(np.float32).eps + (0.02 * 3 if value == "bf16" else 0)
        assert np.max(abs(got[:, :12] - 2 - right.grad_weight)) <= allowed and (got[:, 12:] == 2).all()
    assert (kind.numpy(into[1::2]) == 7).all()
    if value == "bf16":
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_weight=True, grad_weight_accum="f32", chunk=4).grad_weight
        assert_close(kind.numpy(got), right, "grad_weight", value, 70)


#: of 150 rows; what is left of them is searched in steps of 128
SHARES = [slice(0, 0), slice(3, 130), slice(0, 150)]


@pytest.mark.parametrize(
    ("reduction", "shares"),
    [("mean", SHARES[::2]), ("none", SHARES[1:2]), *(pytest.param(each, SHARES, marks=pytest.mark.full) for each in ("mean", "none"))],
    ids=["mean", "none", "mean, all shares", "none, all shares"],
)
def test_ignored_rows_are_skipped(kind: Kind, reduction: str, shares: list[slice]) -> None:
    """Nothing else changes: not the mean, not what is returned for each row, whatever share of them is ignored."""
    x, w, target = problem(150)
    options: dict[str, Any] = {"reduction": reduction, "row_weight": kind.array(np.linspace(0, 2, 150, dtype=np.float32)), "return_lse": True}
    options |= {"return_predicted": True, "grad_input": True, "grad_weight": True, "chunk": 64}
    if reduction == "none":
        options["dy"] = kind.array(np.linspace(1, 2, 150, dtype=np.float32))
    for ignored in shares:
        target[ignored] = -100
        given = [*map(kind.array, (x, w, target))]
        skipped, whole = (nb.fused_linear_cross_entropy(*given, skip_ignored=skip, **options) for skip in (True, False))
        for name in ("loss", "grad_input", "grad_weight", "lse", "predicted"):
            np.testing.assert_allclose(kind.numpy(getattr(skipped, name)), kind.numpy(getattr(whole, name)), rtol=1e-5, atol=1e-6, err_msg=name)
    if ignored == slice(0, 150):
        assert (kind.numpy(skipped.predicted) == -1).all() and not kind.numpy(skipped.grad_weight).any()
    with pytest.raises(nb.Unsupported, match="workspace is given with skip_ignored=True"):
        nb.fused_linear_cross_entropy(*given, skip_ignored=True, workspace=given[0])
    with pytest.raises(nb.InvalidProblem, match="target is float32, wants int64 or int32"):
        nb.fused_linear_cross_entropy(*given[:2], kind.array(target.astype(np.float32)), skip_ignored=True)


def test_out(kind: Kind) -> None:
    x, w, target = problem(kind="bf16")
    given = [*map(kind.array, (x, w, target))]
    loss = float(kind.numpy(nb.fused_linear_cross_entropy(*given)))
    for shape, dtype in (((), np.float32), ((1,), np.float32), ((1,), numpy_dtype("bf16"))):
        out = kind.array(np.zeros(shape, dtype))
        assert nb.fused_linear_cross_entropy(*given, out=out) is out
        assert float(kind.numpy(out).reshape(())) == float(np.asarray(loss).astype(dtype))


# ---------------------------------------------------------------- the upstream gradient afterwards


@pytest.mark.parametrize("value", OP.elements)
def test_backward(kind: Kind, value: str) -> None:
    rng, dtype = np.random.default_rng(3), numpy_dtype(value)
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 300), (7, 300), (7,)))
    for scalar in (0.375, np.array([0.375], dtype), np.array(-1.5, BY_NAME[value].accumulator.replace("f", "float"))):
        given = kind.array(scalar) if isinstance(scalar, np.ndarray) else scalar
        arrays = [kind.array(each) for each in (x, w, b)]
        assert nb.fused_linear_cross_entropy_backward(given, *arrays[:2], grad_bias=arrays[2]) is None
        for array, before in zip(arrays, (x, w, b), strict=True):
            np.testing.assert_array_equal(kind.numpy(array), scaled(before, scalar))


def test_backward_of_views_and_odd_numbers(kind: Kind) -> None:
    base = kind.array(np.ones((6, 10), np.float32))
    nb.fused_linear_cross_entropy_backward(2.0, base[::2, 1::3])
    wanted = np.ones((6, 10), np.float32)
    wanted[::2, 1::3] = 2
    np.testing.assert_array_equal(kind.numpy(base), wanted)
    nb.fused_linear_cross_entropy_backward(2.0, grad_weight=kind.transpose(base, (1, 0)))
    nb.fused_linear_cross_entropy_backward(1.0, base)
    nb.fused_linear_cross_entropy_backward(5.0)
    np.testing.assert_array_equal(kind.numpy(base), 2 * wanted)
    for number in (np.nan, np.inf, 0.0):
        array = kind.array(np.array([[1.0, 0.0]], np.float32))
        nb.fused_linear_cross_entropy_backward(number, array)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(kind.numpy(array), np.array([[1.0, 0.0]], np.float32) * np.float32(number))
