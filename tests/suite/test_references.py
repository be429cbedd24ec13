"""The truth itself: forward against plain Python one segment at a time, gradients against finite differences of the forward reference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import references
from references import BY_ROW, FLOATS, INTEGERS, REFERENCES, WITH_INTEGERS, stem, truth
from tolerance import assert_close

from numba_baracuda.core.dtypes import numpy_dtype

NAN, INF = math.nan, math.inf
FORWARD = [name for name in REFERENCES if not name.endswith("_backward")]


def _log_sum_exp(x: list[float]) -> float:
    if any(each != each for each in x):
        return NAN
    return max(x) + math.log(sum(math.exp(each - max(x)) for each in x)) if math.isfinite(max(x)) else max(x)


def _variance(x: list[float], correction: float) -> float:
    middle = statistics.fmean(x)
    return math.fsum((each - middle) ** 2 for each in x) / (len(x) - correction) if len(x) > correction else 0.0


def _greatest(x: list[float]) -> float:
    return NAN if any(each != each for each in x) else max(x)


#: what a slice with at least one element gives
PLAIN: dict[str, Callable[[list[float], float], Any]] = {
    "sum": lambda x, correction: math.fsum(x),
    "mean": lambda x, correction: statistics.fmean(x),
    "max": lambda x, correction: _greatest(x),
    "min": lambda x, correction: -_greatest([-each for each in x]),
    "prod": lambda x, correction: math.prod(x),
    "logsumexp": lambda x, correction: _log_sum_exp(x),
    "norm2": lambda x, correction: math.hypot(*x),
    "var": _variance,
    "std": lambda x, correction: math.sqrt(_variance(x, correction)),
    "softmax": lambda x, correction: [math.exp(each - _log_sum_exp(x)) for each in x],
    "log_softmax": lambda x, correction: [each - _log_sum_exp(x) for each in x],
}


def _slice_by_slice(name: str, x: np.ndarray, ids: np.ndarray, segments: int, empty: float, correction: float) -> np.ndarray:
    by_row = stem(name) in BY_ROW
    out = np.full((len(x) if by_row else segments, *x.shape[1:]), 0.0 if by_row else float(empty))
    for segment in range(segments):
        rows = [row for row in range(len(ids)) if ids[row] == segment]
        for column in np.ndindex(x.shape[1:]) if rows else ():
            made = PLAIN[stem(name)]([float(x[(row, *column)]) for row in rows], correction)
            for place, value in zip(rows, made, strict=True) if by_row else [(segment, made)]:
                out[(place, *column)] = value
    return out


@pytest.mark.parametrize("correction", [0, 1, 1.5, 3])
@pytest.mark.parametrize("trailing", [(), (2, 2)], ids=str)
@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str, trailing: tuple[int, ...], correction: float) -> None:
    """Segments of 0 to a dozen rows, ids below and above the range."""
    rng = np.random.default_rng([len(name), int(4 * correction)])
    ids, segments = rng.integers(-2, 12, 40) // 2 * 2, 11
    x = rng.standard_normal((40, *trailing)) * 2 + 1
    for empty in (None, 2.5, NAN, "identity"):
        got = truth(name, {"input": x, "segment_ids": ids}, segments, empty, correction=correction).value
        wanted = _slice_by_slice(name, x, ids, segments, references.empty_of(name, np.float64, empty), correction)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("kind", ["max", "min", "logsumexp"])
@pytest.mark.parametrize("x", [[NAN, 1, INF], [1, NAN], [-INF, NAN], [-INF], [-INF, -INF], [INF, 3], [INF, -INF], [3, -INF, 2]], ids=str)
def test_values_that_are_not_finite(kind: str, x: list[float]) -> None:
    got = truth(f"segment_{kind}", {"input": np.array(x), "segment_ids": np.zeros(len(x), np.int32)}, 1).value
    np.testing.assert_allclose(got[0], PLAIN[kind](x, 1), rtol=1e-15)


@pytest.mark.parametrize(("x", "share"), [([-INF, -INF], [NAN, NAN]), ([INF, 1], [NAN, NAN]), ([NAN, 1], [NAN, NAN]), ([-INF, 3], [0, 1])])
def test_softmax_of_values_that_are_not_finite(x: list[float], share: list[float]) -> None:
    made = truth("segment_softmax", {"input": np.array([*x, 5]), "segment_ids": np.array([0, 0, 1])}, 1)
    np.testing.assert_array_equal(made.value, [*share, 0])
    assert_close(made.value, made, "f64", "segment_softmax")
    with np.errstate(divide="ignore"):
        logs = truth("segment_log_softmax", {"input": np.array([*x, 5]), "segment_ids": np.array([0, 0, 1])}, 1).value
        np.testing.assert_array_equal(logs, [*np.log(share), 0])


def test_variance_of_equal_and_of_large_values() -> None:
    given = {"input": np.full(70, 0.1, np.float32), "segment_ids": np.zeros(70, np.int32)}
    assert truth("segment_var", given, 1).value == 0 and truth("segment_std", given, 1).scale == 0
    given["input"] = (1e4 + np.arange(70) % 2).astype(np.float32)
    assert truth("segment_var", given, 1, correction=0).value == 0.25


def test_defaults_of_empty_segments() -> None:
    kinds = ("sum", "mean", "max", "min", "prod", "logsumexp", "norm2", "var", "std")
    most = {"f16": 65504.0, "f32": float(np.finfo(np.float32).max)}
    for element, limit in most.items():
        dtype = numpy_dtype(element)
        assert [references.empty_of(f"segment_{kind}", dtype) for kind in kinds] == [0, 0, 0, 0, 1, -INF, 0, 0, 0]
        assert [references.empty_of(f"unsorted_segment_{kind}", dtype) for kind in kinds] == [0, 0, -limit, limit, 1, -INF, 0, 0, 0]
        for order in ("", "unsorted_"):
            assert [references.empty_of(f"{order}segment_{kind}", dtype, "identity") for kind in kinds] == [0, 0, -INF, INF, 1, -INF, 0, 0, 0]
    for bits, dtype in ((31, np.int32), (63, np.int64)):
        assert [references.empty_of(f"unsorted_segment_{kind}", dtype) for kind in WITH_INTEGERS] == [0, -(1 << bits), (1 << bits) - 1, 1]
        assert [references.empty_of(f"segment_{kind}", dtype, "identity") for kind in WITH_INTEGERS] == [0, -(1 << bits), (1 << bits) - 1, 1]
        assert [references.empty_of(f"segment_{kind}", dtype) for kind in WITH_INTEGERS] == [0, 0, 0, 1]


@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize("kind", WITH_INTEGERS)
def test_integers_wrap(element: str, kind: str) -> None:
    dtype, bits = numpy_dtype(element), 8 * numpy_dtype(element).itemsize
    rng = np.random.default_rng(bits)
    x, ids = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (40, 2), dtype, endpoint=True), rng.integers(0, 3, 40)
    got = truth(f"segment_{kind}", {"input": x, "segment_ids": ids}, 3).value
    for segment, column in np.ndindex(3, 2):
        exact = {"sum": sum, "max": max, "min": min, "prod": math.prod}[kind](int(each) for each in x[ids == segment, column])
        assert int(got[segment, column]) == (exact + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    assert got.dtype == dtype


@pytest.mark.parametrize("element", FLOATS)
def test_what_an_element_cannot_hold_is_infinite(element: str) -> None:
    x = np.array([1.5, 1.5, 1.5]).astype(numpy_dtype(element)) * numpy_dtype(element).type(
        references.empty_of("unsorted_segment_min", numpy_dtype(element)) / 2
    )
    made = truth("segment_sum", {"input": x, "segment_ids": np.array([0, 0, 1])}, 2)
    assert made.value[0] == INF and math.isfinite(made.value[1])


@pytest.mark.parametrize("correction", [0, 0.5, 1, 2])
@pytest.mark.parametrize("trailing", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", FORWARD)
def test_gradients_against_finite_differences(name: str, trailing: tuple[int, ...], correction: float) -> None:
    """Among segments of 0, 1, 2 and more rows."""
    rng = np.random.default_rng(len(name))
    ids, segments, step = np.array([-1, 0, 0, 0, 0, 1, 1, 3, 4, 4, 4, 4, 4, 5]), 5, 1e-6
    x = rng.permutation(np.linspace(0.5, 1.5, 14 * math.prod(trailing))).reshape(14, *trailing) * rng.choice([-1, 1], (14, *trailing))
    given = {"input": x, "segment_ids": ids}
    output = truth(name, given, segments, correction=correction).value
    weights = rng.standard_normal(output.shape)

    def loss(x: np.ndarray) -> float:
        empty = None if stem(name) in BY_ROW else 0
        return float((truth(name, {**given, "input": x}, segments, empty, correction=correction).value * weights).sum())

    slopes = np.empty_like(x)
    for place in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[place] = step
        slopes[place] = (loss(x + nudge) - loss(x - nudge)) / (2 * step)
    known = {"d_output": weights, "input": x, "output": output, "segment_ids": ids}
    saved = {operand: known[operand] for operand in references.GRADIENT_INPUTS[stem(name)]}
    for ties in ("first", "all", "even"):
        made = truth(f"{name}_backward", saved, segments, ties=ties, correction=correction)
        np.testing.assert_allclose(made.value, slopes, rtol=1e-6, atol=1e-7)
        assert (made.value[[0, 13]] == 0).all() and (made.value[7] == 0).all() == (stem(name) in ("var", "std", *BY_ROW))


def test_gradient_of_a_product_at_zeros() -> None:
    x, ids = np.array([0.0, 2.0, 3.0, 0.0, -0.0, 5.0, 7.0]), np.array([0, 0, 0, 1, 1, 1, 2])
    given = {"d_output": np.ones(3), "input": x, "output": np.array([0.0, 0.0, 7.0]), "segment_ids": ids}
    np.testing.assert_array_equal(truth("segment_prod_backward", given, 3).value, [6, 0, 0, 0, 0, 0, 1])
    given["output"] = np.full(3, NAN)
    np.testing.assert_array_equal(truth("segment_prod_backward", given, 3).value, [6, 0, 0, 0, 0, 0, 1])


def test_gradient_of_a_product_that_leaves_the_range() -> None:
    x, ids = np.array([1e-200, 1e-200, 1e300, 1e300, -1e300, NAN, 2.0, INF, -0.0, 3.0]), np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, 3])
    given = {"d_output": np.ones(4), "input": x, "output": np.zeros(4), "segment_ids": ids}
    wanted = [1e-200, 1e-200, -INF, -INF, INF, 2.0, NAN, -0.0, INF, NAN]
    np.testing.assert_allclose(truth("segment_prod_backward", given, 4).value, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("ties", "wanted"),
    [
        ("first", [0, 12, 0, 24, 0, 0, 36, 0, 48, 0, 0]),
        ("all", [0, 12, 12, 24, 0, 24, 36, 36, 48, 48, 0]),
        ("even", [0, 6, 6, 12, 0, 12, 18, 18, 24, 24, 0]),
    ],
)
def test_gradient_of_an_extreme_at_ties_and_nan(ties: str, wanted: list[float]) -> None:
    x = np.array([1.0, 4.0, 4.0, NAN, 2.0, NAN, -INF, -INF, -0.0, 0.0, 9.0])
    given = {"d_output": np.array([12.0, 24.0, 36.0, 48.0]), "input": x, "segment_ids": np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4])}
    np.testing.assert_array_equal(truth("segment_max_backward", given, 4, ties=ties).value, wanted)
    given["input"] = -x
    np.testing.assert_array_equal(truth("unsorted_segment_min_backward", given, 4, ties=ties).value, wanted)


def test_gradients_where_the_formula_has_none() -> None:
    """Norms and deviations of 0, too few rows for the correction, exp(−∞ + ∞), and ids out of range."""
    ids = np.array([0, 0, 1, -1])
    zeros = {"d_output": np.ones(2), "input": np.zeros(4), "output": np.zeros(2), "segment_ids": ids}
    for kind in ("norm2", "std"):
        np.testing.assert_array_equal(truth(f"segment_{kind}_backward", zeros, 2).value, 0)
    few = {"d_output": np.ones(2), "input": np.array([1.0, 2, 3, 4]), "segment_ids": ids}
    np.testing.assert_array_equal(truth("segment_var_backward", few, 2, correction=2).value, 0)
    np.testing.assert_array_equal(truth("segment_var_backward", few, 2).value, [-1, 1, 0, 0])
    lost = {"d_output": np.ones(2), "input": np.array([-INF, -INF, 3, 4]), "output": np.array([-INF, 3]), "segment_ids": ids}
    np.testing.assert_array_equal(truth("segment_logsumexp_backward", lost, 2).value, [0, 0, 1, 0])
    endless = {"d_output": np.ones(2), "input": np.array([INF, 1, 3, 4]), "output": np.array([INF, 3]), "segment_ids": ids}
    np.testing.assert_array_equal(truth("segment_logsumexp_backward", endless, 2).value, [NAN, 0, 1, 0])
