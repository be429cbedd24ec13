"""The loss at the ends of its numbers: large logits, NaN and infinities, rows that are left out, weights that sum to 0, caps, a single class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sass
from kinds import Kind
from loss_cases import problem
from loss_reference import assert_close, wanted

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.runtime import jit


def by_torch(z: Any, target: int, weight: Any, smoothing: float, dtype: type = np.float32) -> tuple[Any, Any]:
    """Loss and gradient of a row of logits by PyTorch's algorithm, every step rounded to ``dtype``."""
    z, weight, smoothing = z.astype(dtype), weight.astype(dtype), dtype(smoothing)
    with np.errstate(all="ignore"):
        log_p = z - z.max()
        log_p -= np.log(np.exp(log_p).sum(dtype=dtype))
        loss = -log_p[target] * weight[target] * (dtype(1) - smoothing)
        d_log_p = -smoothing / dtype(len(z)) * weight
        if smoothing:
            loss += -(log_p * weight).sum(dtype=dtype) * smoothing / dtype(len(z))
        d_log_p[target] -= weight[target] * (dtype(1) - smoothing)
        return loss, d_log_p - np.exp(log_p) * d_log_p.sum(dtype=dtype)


def of_logits(kind: Kind, z: Any, target: Any, value: str = "f32", **options: Any) -> Any:
    """The loss of given rows of logits, and its gradient by them, which is that of the weight where the input is an identity matrix."""
    dtype = numpy_dtype(value)
    given = {name: kind.array(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}
    x, w = np.eye(len(z), dtype=dtype), np.ascontiguousarray(z.T).astype(dtype)
    options = {"reduction": "none", "grad_weight": True, "return_lse": True, "return_predicted": True} | given
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, np.asarray(target))), **options)
    return [kind.numpy(each) for each in (got.loss, got.grad_weight.T, got.lse, got.predicted)]


# ---------------------------------------------------------------- large logits


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("offset", [0.0, 170.0, -2e3, 17e3, 1e5])
def test_large_logits(kind: Kind, offset: float, smoothing: float) -> None:
    """The error is at most twice that of PyTorch's algorithm in float32, with room for a power that is off by 2^-22."""
    rng = np.random.default_rng(5)
    z = offset + np.round(rng.uniform(-6, 6, (8, 70)) * 64) / 64  # exact in float32
    target, weight = rng.integers(0, 70, 8), np.ones(70)
    found = of_logits(kind, z, target, label_smoothing=smoothing)
    right = [np.array(each) for each in zip(*(by_torch(*row, weight, smoothing, np.float64) for row in zip(z, target, strict=True)), strict=True)]
    theirs = [np.array(each) for each in zip(*(by_torch(*row, weight, smoothing) for row in zip(z, target, strict=True)), strict=True)]
    for got, peer, true in zip(found, theirs, right, strict=False):
        assert abs(got - true).max() <= 2 * abs(peer - true).max() + 2.0**-22 * abs(true).max()


def test_a_certain_class_at_a_large_logit(kind: Kind) -> None:
    x, w = np.array([[2000, 0]], np.float32), np.array([[1, 0], [-1, 0], [0, 1]], np.float32)
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, np.array([1]))), grad_input=True)
    assert kind.numpy(got.loss) == 4000
    np.testing.assert_allclose(kind.numpy(got.grad_input), [[2, 0]], rtol=2.0**-22)


@pytest.mark.compile
def test_no_difference_is_scaled_before_it_is_made() -> None:
    """No multiply-add of the machine code takes log₂ e for a factor: that is how exp(z − m) would lose |z| · 2^-24."""
    specs = [spec for spec in kernel_specs("fused_linear_cross_entropy", "sm_90") if "cross_entropy_rows" in spec.name]
    spec = next(spec for spec in specs if {("value", "f32"), ("gradient", False)} <= set(spec.constants))
    code = sass.disassemble(jit.compile_cubin(spec, "sm_90"))
    assert "MUFU.EX2" in code and not [line for line in code.splitlines() if "FFMA" in line and "1.4426" in line]


# ---------------------------------------------------------------- numbers that are not finite

_INF, _NAN = np.inf, np.nan
ROWS = {
    "a NaN": [1, _NAN, 2, 0.5], "NaN and +inf": [_INF, 3, _NAN, _NAN], "+inf": [1, 2, _INF, 3], "+inf at the target": [_INF, 1, 2, 3],
    "both infinities": [1, -_INF, _INF, _INF], "nothing but -inf": [-_INF] * 4, "-inf": [1, -_INF, 2, -_INF], "-inf at the target": [-_INF, 1, 2, 3],
}  # fmt: skip
#: as shares of the greatest finite number
ENDS = {
    "the lowest": [-1, -1, -1, -1], "the lowest and -inf": [-_INF, -1, -_INF, -1], "both ends": [1, -1, 1, 0], "the lowest of them": [-1, 1, 0, 0],
    "low": [-0.75, -0.875, -0.75, -1],
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {"plain": {}, "smoothed": {"label_smoothing": 0.2}, "weighted": {"class_weight": [0.5, 2, 1, 3]}}


@pytest.mark.parametrize("value", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_numbers_at_their_ends(kind: Kind, name: str, value: str) -> None:
    """Loss and gradient of every row are PyTorch's, NaN and infinities where it has them; lse and the class predicted follow the logits."""
    wide = numpy_dtype(BY_NAME[value].accumulator)
    most = BY_NAME[value].limits[1]
    options = {key: np.array(each, wide) if isinstance(each, list) else each for key, each in OPTIONS[name].items()}
    for label, row in (ROWS | {label: [share * most for share in shares] for label, shares in ENDS.items()}).items():
        z = np.array(row)[None]
        made = nb.fused_linear_cross_entropy(
            *map(kind.array, (np.ones((1, 1), numpy_dtype(value)), z.T.astype(numpy_dtype(value)), np.zeros(1, np.int64))), reduction="none",
            grad_weight=True, return_lse=True, return_predicted=True,
            **{key: kind.array(each) if isinstance(each, np.ndarray) else each for key, each in options.items()},
        )  # fmt: skip
        weight = options.get("class_weight", np.ones(4))
        loss, gradient = by_torch(z[0], 0, weight, options.get("label_smoothing", 0.0), wide.type)
        with np.errstate(all="ignore"):
            lse = np.logaddexp.reduce(z[0].astype(wide))
        found = [kind.numpy(each).astype(np.float64) for each in (made.loss[0], made.grad_weight[:, 0], made.lse[0])]
        for got, right in zip(found, (loss, gradient, lse), strict=True):
            np.testing.assert_allclose(got, right, rtol=BY_NAME[value].tolerance(4), atol=1e-7, err_msg=label)
        assert kind.numpy(made.predicted)[0] == z[0].argmax(), label


@pytest.mark.parametrize("value", ["f32", "bf16"])
@pytest.mark.parametrize("also_input", [True, False])
def test_rows_that_are_left_out_may_hold_anything(kind: Kind, value: str, also_input: bool) -> None:
    """Their targets are ignored or no class: not a bit of any result depends on their input, and theirs are 0."""
    x, w, target = problem(kind=value)
    out = [2, 5, 7]
    assert not {*target[out]} & {*range(70)}
    held = np.zeros((21, 15), x.dtype)
    held[:, :12] = x
    held[out] = np.array([[np.nan], [np.inf], [-np.inf]])
    odd, bias = kind.array(held)[:, :12], kind.array(np.zeros(70, x.dtype))
    for options in ({"chunk": 8}, {"skip_ignored": True}) if also_input else ({"chunk": 8, "grad_weight_accum": "f32"},):
        plain, filled = (
            nb.fused_linear_cross_entropy(
                made, kind.array(w), kind.array(target.astype(number)), bias=bias, grad_input=also_input, grad_weight=True, grad_bias=True, **options
            )
            for made, number in ((kind.array(x), np.int64), (odd, np.int32))
        )
        for a, b in zip(plain[:4], filled[:4], strict=True):
            assert a is b or np.array_equal(kind.numpy(a), kind.numpy(b))
        assert not also_input or not kind.numpy(filled.grad_input)[out].any()
    np.testing.assert_array_equal(kind.numpy(odd).astype(np.float64), held[:, :12].astype(np.float64))


def test_a_row_that_counts_spares_none(kind: Kind) -> None:
    """A NaN in its input is in its own gradient, and in that of the weight, as the product has it; a weight of 0 does not leave a row out."""
    x, w, target = problem(odd=False)
    x[4] = np.nan
    share = np.ones(21, np.float32)
    share[4] = 0
    for options in ({}, {"row_weight": kind.array(share)}):
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, grad_weight=True, **options)
        assert list(np.flatnonzero(np.isnan(kind.numpy(got.grad_input)).any(1))) == [4]
        assert np.isnan(kind.numpy(got.loss)) and np.isnan(kind.numpy(got.grad_weight)).all()


# ---------------------------------------------------------------- options at their ends


@pytest.mark.parametrize("value", ["f32", "f16"])
@pytest.mark.parametrize("weights", ["all zero", "opposite"])
def test_weights_that_sum_to_0(kind: Kind, value: str, weights: str) -> None:
    """What is left of the mean is the square of the logarithm, which no class's weight multiplies."""
    x, w, target = problem(8, kind=value)
    weight = np.zeros(70, np.float32)
    if weights == "opposite":
        target[:] = [3, 4] * 4
        weight[[3, 4]] = 2, -2
    for smoothing in (0.0, 0.1):
        options: dict[str, Any] = {"class_weight": weight, "lse_square_scale": 0.01, "label_smoothing": smoothing, "dy": 0.5}
        given = options | {"class_weight": kind.array(weight)}
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, grad_weight=True, return_z_loss=True, chunk=4, **given)
        right = wanted(x, w, target, **options)
        assert kind.numpy(got.loss) == kind.numpy(got.z_loss) > 0
        for name in ("out", "grad_input", "grad_weight"):
            assert_close(kind.numpy(got.loss if name == "out" else getattr(got, name)), right, name, value, 70)
    plain = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, class_weight=kind.array(weight))
    assert kind.numpy(plain.loss) == 0 and not kind.numpy(plain.grad_input).any()


@pytest.mark.parametrize("value", ["f32", "f64", "f16", "bf16"])
def test_a_single_class(kind: Kind, value: str) -> None:
    """It is certain: loss and gradients are 0 to the last bit, but for the square of the logarithm, which is the only logit."""
    x, w, target = problem(9, 5, 1, value, odd=False)
    wide = numpy_dtype(BY_NAME[value].accumulator)
    some = {"class_weight": kind.array(np.array([0.7], wide)), "logit_scale": 0.3, "softcap": 2.0}
    for options in ({}, {"label_smoothing": 0.1}, {"label_smoothing": 0.3, **some}):
        got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, grad_weight=True, **options)
        assert not any(kind.numpy(each).any() for each in got[:3])
    options = {"label_smoothing": 0.1, "lse_square_scale": 1e-4}
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), grad_input=True, grad_weight=True, **options)
    x, w = x.astype(np.float64), w.astype(np.float64)
    z, close = x @ w.T, {"rtol": 4 * BY_NAME[value].tolerance(9), "atol": 2.0**-24 if value == "f16" else 1e-20}
    np.testing.assert_allclose(kind.numpy(got.loss), (z**2).mean() * 1e-4, **close)
    np.testing.assert_allclose(kind.numpy(got.grad_input).astype(np.float64), 2e-4 / 9 * z * w, **close)


@pytest.mark.parametrize(("value", "cap"), [("f32", 1e-40), ("bf16", 1e-39), ("f16", 1e300), ("f64", 1e-310), ("f32", np.nextafter(0, 1))])
def test_caps_out_of_range(kind: Kind, value: str, cap: float) -> None:
    with pytest.raises(nb.InvalidProblem, match=r"fused_linear_cross_entropy: softcap is \S+, wants a number above 0 that f(32|64) holds and"):
        nb.fused_linear_cross_entropy(*map(kind.array, problem(kind=value)), softcap=cap)


@pytest.mark.parametrize(("value", "cap"), [("f32", 1e-37), ("bf16", 1e-37), ("f64", 1e-300), ("f32", 1e37), ("bf16", 1e6), ("f16", 1e37)])
def test_caps_of_any_size(kind: Kind, value: str, cap: float) -> None:
    """A small one makes all classes equal, a large one changes nothing."""
    x, w, target = problem(kind=value)
    got = nb.fused_linear_cross_entropy(*map(kind.array, (x, w, target)), softcap=cap, grad_input=True)
    right = wanted(x, w, target, softcap=cap)
    assert_close(kind.numpy(got.loss), right, "out", value, 12)
    if cap < 1:
        assert abs(kind.numpy(got.grad_input)).max() <= BY_NAME[value].tolerance(1)
    else:
        assert_close(kind.numpy(got.grad_input), right, "grad_input", value, 70)
        np.testing.assert_allclose(right.out, wanted(x, w, target).out, rtol=1e-5)
