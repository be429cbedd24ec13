"""What values mean, whatever computes them: ties, zeros, NaN, empties, corrections, half types, integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import references
import samples
from kinds import Kind
from references import BY_ROW, INTEGERS, POSITIONS, WITH_INTEGERS, stem
from samples import BACKWARD, FORWARD, OPS, Sample, check, name_of, takes_empty, variants_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.op import Op, Variant
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment.policy import FoldAndBroadcast, FoldAndBroadcastShort, FoldAndBroadcastStaged, FoldThenBroadcast

NAN, INF = np.nan, np.inf


def of(*stems: str, ops: list[Op] = FORWARD) -> Any:
    """Parameters: the ops that compute these, with every variant."""
    return pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(ops) if stem(pair[0].name) in stems], ids=name_of)


def columns(*slices: list[float], repeat: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Slices as the segments of every column; ids ascend."""
    x = np.concatenate([np.array(each, np.float64) for each in slices])
    return np.repeat(x[:, None], repeat, axis=1), np.repeat(np.arange(len(slices)), [len(each) for each in slices])


def run(kind: Kind, op: Op, variant: Variant, element: str, segments: int, given: dict[str, Any], **options: Any) -> np.ndarray:
    """A variant on arrays of an element, checked; ids of an op that takes any order are shuffled with their rows, and come back in order."""
    ids = given["segment_ids"]
    sample = Sample("given", len(ids), next(iter(given.values())).shape[1:], segments, element=element)
    dtype = numpy_dtype(element)
    given = {name: array.astype(np.int32 if name == "segment_ids" else dtype) for name, array in given.items()}
    order = np.arange(len(ids)) if op.traits["ordered"] else np.random.default_rng(len(ids)).permutation(len(ids))
    rows = {operand.name for operand in op.operands if operand.axes[0] == "num_inputs"}
    got = check(kind, op, variant, sample, {name: array[order] if name in rows else array for name, array in given.items()}, **options)
    return got[np.argsort(order)] if op.operands[-1].name in rows else got


# ---------------------------------------------------------------- max and min


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("ties", ["first", "all", "even"])
@pytest.mark.parametrize(
    ("op", "variant"),
    [pair for pair in variants_of(BACKWARD) if pair[0].name in ("segment_max_backward", "unsorted_segment_min_backward")],
    ids=name_of,
)
def test_ties(kind: Kind, op: Op, variant: Variant, ties: str, at_once: bool) -> None:
    """Whole numbers with ties among them, zeros of both signs, NaN and infinities, against the truth; of ids in order by one launch, too."""
    sample = Sample("tied", 140, (3,), 9, samples.outside, whole=True)
    given = samples.operands(op, sample)
    x, ids = given["input"], given["segment_ids"]
    x[...] = np.sign(x) * (1 if stem(op.name) == "max" else -1) - 1 * (ids % 2 == 0)[:, None]
    x[x == 0] = np.random.default_rng(0).choice([-0.0, 0.0], (x == 0).sum())
    x[(ids == 3) & (np.arange(140) % 3 > 0), 1] = NAN
    x[ids == 4, 2] = INF if stem(op.name) == "min" else -INF
    with using(FoldAndBroadcast, min_bytes=1 if at_once else 1 << 30), using(FoldAndBroadcastStaged, min_lanes=1):
        got = check(kind, op, variant, sample, given, ties=ties)
    received = references.Runs(ids, 9).fold(np.add, (got != 0).astype(np.int64), 0)
    assert (received.max() == 1) == (ties == "first")


@pytest.mark.parametrize(
    ("ties", "wanted"),
    [
        ("first", [0, 12, 0, 24, 0, 0, 36, 0, 48, 0, 60]),
        ("all", [0, 12, 12, 24, 0, 24, 36, 36, 48, 48, 60]),
        ("even", [0, 6, 6, 12, 0, 12, 18, 18, 24, 24, 60]),
    ],
)
@of("max", "min", ops=BACKWARD)
def test_ties_by_hand(kind: Kind, op: Op, variant: Variant, ties: str, wanted: list[float]) -> None:
    sign = 1 if stem(op.name) == "max" else -1
    x, ids = columns([1, 4, 4], [NAN, 2, NAN], [-INF, -INF], [-0.0, 0.0], [7])
    sample = Sample("by hand", len(ids), (3,), 5)
    upstream = np.repeat(np.array([[12], [24], [36], [48], [60]], np.float32), 3, axis=1)
    given = {"d_output": upstream, "input": (sign * x).astype(np.float32), "segment_ids": ids.astype(np.int32)}
    got = check(kind, op, variant, sample, given, ties=ties)
    np.testing.assert_array_equal(got, np.repeat(np.array(wanted, np.float32)[:, None], 3, axis=1))


@pytest.mark.parametrize("ties", ["first", "all", "even"])
def test_ties_in_the_function(kind: Kind, ties: str) -> None:
    x, ids = columns([2, 2, 1])
    for name in ("segment_max_backward", "unsorted_segment_max_backward"):
        given = [np.full((1, 3), 6, np.float32), x.astype(np.float32), ids.astype(np.int32)]
        got = kind.numpy(getattr(nb, name)(*[kind.array(array) for array in given], ties=ties))
        np.testing.assert_array_equal(got[:, 0], {"first": [6, 0, 0], "all": [6, 6, 0], "even": [3, 3, 0]}[ties])


@of("max", "min")
def test_extremes_in_every_order(kind: Kind, op: Op, variant: Variant) -> None:
    """NaN wins wherever it stands, infinities are values."""
    slices = [list(order) for values in ([NAN, 1, INF], [-INF, 2, INF], [-INF, -3, NAN]) for order in itertools.permutations(values)]
    slices += [[-INF], [-INF] * 3, [INF], [INF] * 2, [NAN] * 2, [-INF, INF]]
    x, ids = columns(*slices)
    got = run(kind, op, variant, "f32", len(slices), {"input": x, "segment_ids": ids})
    combine = np.max if stem(op.name) == "max" else np.min
    np.testing.assert_array_equal(got[:, 0], [combine(each) for each in slices])


@pytest.mark.parametrize(
    ("op", "variant", "element"),
    [(op, v, e) for op, v in variants_of(FORWARD) for e in ("f32", "f16") if stem(op.name) == "max" or (stem(op.name) == "min" and e == "f32")],
    ids=name_of,
)
def test_the_sign_of_zero(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    """−0 < +0, in every order."""
    slices = [[-0.0, 0.0], [0.0, -0.0], [-0.0], [-0.0, -0.0], [0.0], [-0.0, 0.0, -0.0], [0.0, 0.0]]
    x, ids = columns(*slices)
    got = run(kind, op, variant, element, len(slices), {"input": x, "segment_ids": ids})
    whole = all if stem(op.name) == "max" else any
    np.testing.assert_array_equal(np.signbit(got.astype(np.float64))[:, 0], [whole(np.signbit(each)) for each in slices])


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("element", ["f32", "f16", "i64"])
@of(*POSITIONS)
def test_first_rows_by_hand(kind: Kind, op: Op, variant: Variant, element: str, width: int) -> None:
    """Ties, NaN, zeros of both signs, segments of nothing but the identity or of nothing, ids out of range; rows of unsorted segments in turn."""
    slices, wanted, limits = [[1, 4, 4], [0, 0], [5], [3, 9, 3, 9]], [1, 0, 0, 1], np.iinfo(np.int64)
    if element == "i64":
        slices, wanted = [*slices, [limits.min] * 3, [limits.max - 1, limits.max]], [*wanted, 0, 1]
    else:
        slices, wanted = [*slices, [-INF] * 3, [-0.0, 0.0], [NAN, 2, NAN], [2, INF, NAN, NAN]], [*wanted, 0, 0, 0, 2]
    rows = [(0, -1, 99), *[(place, segment, value) for segment, each in enumerate(slices) for place, value in enumerate(each)], (0, 99, 99)]
    rows.sort(key=lambda row: (row[1], row[0]) if op.traits["ordered"] else (row[0], -row[1]))
    x = np.array([value for _, _, value in rows], np.int64 if element == "i64" else np.float64)
    if stem(op.name) == "argmin":
        x = ~x if element == "i64" else -x
    x, ids = x[:, None].repeat(width, axis=1).astype(numpy_dtype(element)), np.array([segment for _, segment, _ in rows], np.int32)
    sample = Sample("first rows", len(rows), (width,), len(slices) + 1, element=element)
    got = check(kind, op, variant, sample, {"input": x, "segment_ids": ids}, result="i32")
    found = [next(k for k, row in enumerate(rows) if row[:2] == (place, segment)) for segment, place in enumerate(wanted)]
    np.testing.assert_array_equal(got, np.array([*found, -1], np.int32)[:, None].repeat(width, axis=1))


@pytest.mark.parametrize(
    ("op", "variant", "element", "width"),
    [
        (op, variant, element, width)
        for op, variant in variants_of(FORWARD)
        for element, width in (("f32", 4), ("i32", 2), ("f16", 3), ("bf16", 2), ("bf16", 70), ("f16", 75))
        if stem(op.name) in POSITIONS and (width < 8 or variant.name in ("ragged_sorted", "ragged_permuted"))
    ],
    ids=name_of,
)
def test_first_rows_of_long_runs(kind: Kind, op: Op, variant: Variant, element: str, width: int) -> None:
    """Of many batches: extremes that come early, late, twice in a batch or in several; with the first of some NaN among infinities, or of zeros."""
    rng = np.random.default_rng(width)
    x, ids = rng.integers(-3, 4, (230, width)).astype(np.float64), np.repeat(np.arange(5), [90, 17, 1, 64, 58])
    sign = 1 if stem(op.name) == "argmax" else -1
    x[:90] += np.arange(90)[:, None] // 30 * sign
    for step in range(12):  # each in a batch of its own, and of one column alone
        x[7 * step + 3 : 7 * step + 5, step % width] = (10 + step) * sign
    if element != "i32":
        x[rng.random(x.shape) < 0.1] = -0.0
        x[170:, 0][rng.random(60) < 0.2] = INF
        x[100:104, -1], x[190::3, 1] = NAN, NAN
        x[107:172, 0] = -INF
    order = np.arange(len(ids)) if op.traits["ordered"] else rng.permutation(len(ids))
    x, ids = x[order].astype(numpy_dtype(element)), ids[order].astype(np.int32)
    got = check(kind, op, variant, Sample("long runs", len(ids), (width,), 5, element=element), {"input": x, "segment_ids": ids}, result="i32")
    first = np.argmax if stem(op.name) == "argmax" else np.argmin
    for segment in range(5):
        rows = np.flatnonzero(ids == segment)
        np.testing.assert_array_equal(got[segment], rows[first(x[rows].astype(np.float64), 0)])


# ---------------------------------------------------------------- products


@of("prod", ops=BACKWARD)
def test_gradient_of_a_product_for_every_count_of_zeros(kind: Kind, op: Op, variant: Variant) -> None:
    slices = [[2.0, -3.0, 5.0, 0.5][: 4 - zeros] + [(-1) ** k * 0.0 for k in range(zeros)] for zeros in range(5)]
    slices += [[0.0], [7.0], [0.0, 4.0], [4.0, 0.0]]
    x, ids = columns(*slices)
    runs = references.Runs(ids, len(slices))
    upstream = np.arange(1.0, len(slices) + 1)[:, None].repeat(3, axis=1)
    given = {"d_output": upstream, "input": x, "output": runs.fold(np.multiply, x, 1.0), "segment_ids": ids}
    got = run(kind, op, variant, "f32", len(slices), given)
    wanted = [number * np.prod(each[:k] + each[k + 1 :]) for number, each in enumerate(slices, 1) for k in range(len(each))]
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6)
    assert (got[np.array(wanted) == 0] == 0).all()


@pytest.mark.parametrize("width", [2, 8, 36])
@of("prod", ops=BACKWARD)
def test_gradient_of_products_some_of_which_are_zero(kind: Kind, op: Op, variant: Variant, width: int) -> None:
    """Side by side, among what a lane takes at once."""
    sample = Sample("some zeros", 60, (width,), 30, whole=True)
    given = samples.operands(op, sample)
    zeros = (given["output"] == 0).mean(axis=1)
    assert (zeros == 0).any() and ((zeros > 0) & (zeros < 1)).any()
    check(kind, op, variant, sample, given)


@of("prod", ops=BACKWARD)
def test_gradient_of_a_product_that_is_too_small_to_be_saved(kind: Kind, op: Op, variant: Variant) -> None:
    """In float16: the saved output is 0, or subnormal with few bits left, where the product of the others is an ordinary number."""
    slices = [[1e-3] * 3, [2e-3, 3e-3, 5e-3, 30.0], [0.013, 0.011, 0.007], [1e-4, 1e-4], [300.0, 1e-7, 1e-4]]
    x, ids = columns(*slices)
    x = x.astype(np.float16).astype(np.float64)
    output = references.Runs(ids, len(slices)).fold(np.multiply, x, 1.0).astype(np.float16)
    assert (output[0] == 0).all() and (output[2] > 0).all() and (output[2] < np.finfo(np.float16).smallest_normal).all()
    given = {"d_output": np.full((len(slices), 3), 1000.0), "input": x, "output": output, "segment_ids": ids}
    got = run(kind, op, variant, "f16", len(slices), given)
    assert (got[:3] > 5e-4).all()


#: by element: numbers of which two, or a few, multiply out of the range
EXTREMES = {"f32": (1e-30, 1e30), "f64": (1e-200, 1e200), "bf16": (1e-30, 1e30), "f16": (1e-4, 1e4)}


@pytest.mark.parametrize("element", EXTREMES)
@of("prod", ops=BACKWARD)
def test_gradient_of_products_out_of_the_range(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    """Of two elements, of many that balance, with one zero, and of those which the least and the greatest number are among."""
    small, large = EXTREMES[element]
    tiny, most = float(ml_dtypes.finfo(numpy_dtype(element)).smallest_subnormal), float(ml_dtypes.finfo(numpy_dtype(element)).max)
    slices = [[small] * 2, [large, -large], [small] * 40 + [large] * 40, [large] * 40 + [small] * 40, [small, 0.0, large], [tiny] * 2, [most] * 2]
    slices += [[tiny, most, 3.0], [small] * 60, [large] * 60, [2.0, 3.0]]
    x, ids = columns(*slices)
    x = x.astype(numpy_dtype(element)).astype(np.float64)
    wide = np.float64 if element == "f64" else np.float32
    with np.errstate(all="ignore"):
        output = references.Runs(ids, len(slices)).fold(np.multiply, x.astype(wide), 1).astype(numpy_dtype(element))
    given = {"d_output": np.ones((len(slices), 3)), "input": x, "output": output, "segment_ids": ids}
    got = run(kind, op, variant, element, len(slices), given).astype(np.float64)
    assert (got[ids == 0] > 0).all() and np.isfinite(got[ids <= 5]).all() and (got[ids == 1] != 0).all()


# ---------------------------------------------------------------- exponentials


@of("logsumexp", *BY_ROW)
def test_large_magnitudes(kind: Kind, op: Op, variant: Variant) -> None:
    """exp(±10 000) is far outside of float32, its logarithm is not."""
    slices = [[1e4, 1e4, 9990.0], [-1e4, -1e4, -10_010.0], [1e4, -1e4], [-1e4], [1e30, 1e30], [-1e30, 0.0], [88.8, 88.9]]
    x, ids = columns(*slices)
    got = run(kind, op, variant, "f32", len(slices), {"input": x, "segment_ids": ids})
    assert np.isfinite(got).all()
    if stem(op.name) in BY_ROW:
        shares = np.exp(got.astype(np.float64)) if stem(op.name) == "log_softmax" else got.astype(np.float64)
        np.testing.assert_allclose(references.Runs(ids, len(slices)).fold(np.add, shares, 0), 1, rtol=1e-6)


@of("logsumexp", *BY_ROW)
def test_exponentials_of_what_is_not_finite(kind: Kind, op: Op, variant: Variant) -> None:
    slices = [[-INF, -INF], [-INF], [-INF, 3.0], [INF, 3.0], [INF, INF, -INF], [NAN, 3.0], [3.0, NAN, INF], [1.0, 2.0]]
    x, ids = columns(*slices)
    got = run(kind, op, variant, "f32", len(slices), {"input": x, "segment_ids": ids})
    if stem(op.name) in BY_ROW:
        assert np.isnan(got[ids == 0]).all() and np.isnan(got[ids == 5]).all() and np.isfinite(got[ids == 7]).all()
    else:
        np.testing.assert_allclose(got[:, 0], [-INF, -INF, 3, INF, INF, NAN, NAN, 2.3132617], rtol=1e-6)


@of("logsumexp", ops=BACKWARD)
def test_gradient_of_logsumexp_of_what_is_not_finite(kind: Kind, op: Op, variant: Variant) -> None:
    x, ids = columns([-INF, -INF], [-INF, 3.0], [INF, 3.0], [1e4, 1e4])
    output = references.truth("segment_logsumexp", {"input": x, "segment_ids": ids}, 4).value
    got = run(kind, op, variant, "f32", 4, {"d_output": np.ones((4, 3)), "input": x, "output": output, "segment_ids": ids})
    np.testing.assert_allclose(got[:, 0], [0, 0, 0, 1, NAN, 0, 0.5, 0.5], rtol=2e-3)


def _far_and_near(element: str) -> list[list[float]]:
    """Far from zero, where a pivot times log₂ e is rounded; at both sides of 2¹⁷, and far beyond; with subnormal shares; and what is not finite."""
    most = float(BY_NAME[element].limits[1])
    near, around = [64000.0, min(1e30, most)], [65472.0, 65504.0, 65440.0] if element == "f16" else [130560.0, 131072.0, 132096.0]
    far = ([*near, 63968.0], around, around[:2], around[1:], [most, most / 2], [min(most, 1.7e13)] * 3)
    slices = [[sign * each for each in given] for sign in (1, -1) for given in far]
    slices += [[0.0, -16.0, -17.5, -87.0, -90.0, -92.0, -100.0, -INF], [-INF] * 9, [*[-INF] * 9, 3.0], [*[1.0] * 9, INF]]
    return [*slices, [NAN, *[1.0] * 9], [5.0] * 40]


@pytest.mark.parametrize("repeat", [9, 10, 12])
@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@of("softmax", "log_softmax")
def test_rows_that_a_block_replaces(kind: Kind, op: Op, variant: Variant, element: str, repeat: int) -> None:
    slices = _far_and_near(element)
    x, ids = columns(*slices, repeat=repeat)
    narrow = {"narrow_halves_bytes": 1, "narrow_odd_bytes": 1, "min_odd_segment_rows": 0.0, "held_halves_bytes": 2048}
    blocks = using(FoldAndBroadcast, min_bytes=1, threads_per_block=64, **narrow)
    with blocks, using(FoldThenBroadcast, max_bytes=1):
        run(kind, op, variant, element, len(slices), {"input": x, "segment_ids": ids})


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@of("softmax", "log_softmax")
def test_elements_that_a_thread_replaces(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    slices = _far_and_near(element) * 2
    x, ids = columns(*slices)
    with using(FoldAndBroadcast, min_bytes=1), using(FoldAndBroadcastShort, threads_per_block=64, long_rows=96, max_pivoted_rows=1e9):
        run(kind, op, variant, element, len(slices), {"input": x[:, 0], "segment_ids": ids})


@of("log_softmax")
def test_log_softmax_of_what_a_large_offset_or_a_small_share_would_spoil(kind: Kind, op: Op, variant: Variant) -> None:
    """Neither x − (m + log s), which keeps no digit of log s at 10⁵, nor the logarithm of a share, which is −∞ where that is too small."""
    slices = [[1e5 + 0.5, 1e5, 1e5 - 0.25], [-1e5, -1e5 - 1.0], [0.0, -300.0, -1e5], [3e7, 3e7 - 2.0]]
    x, ids = columns(*slices)
    got = run(kind, op, variant, "f32", len(slices), {"input": x, "segment_ids": ids})
    wanted = [each - max(x) - np.log(np.sum(np.exp(np.array(x) - max(x)))) for x in slices for each in x]
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6, atol=1e-7)


@of("log_softmax", ops=BACKWARD)
def test_gradient_of_log_softmax_where_shares_vanish(kind: Kind, op: Op, variant: Variant) -> None:
    ids = np.repeat(np.arange(2), 3)
    output = np.repeat(np.array([[-INF, 0.0, -INF, NAN, NAN, NAN]]).T, 3, 1)
    got = run(kind, op, variant, "f32", 2, {"d_output": np.tile(np.array([[1.0, 2, 3, 4, 5, 6]]).T, (1, 3)), "output": output, "segment_ids": ids})
    np.testing.assert_array_equal(got[:, 1], [1, -4, 3, NAN, NAN, NAN])


@of("softmax")
def test_rows_of_softmax_outside_every_segment(kind: Kind, op: Op, variant: Variant) -> None:
    sample = Sample("rows outside", 40, (3,), 6, samples.outside)
    given = samples.operands(op, sample)
    got = check(kind, op, variant, sample, given)
    outside = (given["segment_ids"] < 0) | (given["segment_ids"] >= 6)
    assert (got[outside] == 0).all() and (got[~outside] > 0).all() and outside.any() and not outside.all()


# ---------------------------------------------------------------- norms and moments


@pytest.mark.parametrize(
    ("op", "variant", "correction"),
    [
        (*pair, correction)
        for pair in variants_of(FORWARD + BACKWARD)
        if stem(pair[0].name) in ("var", "std")
        for correction in ((0, 1.5, 2, 4.75) if pair[0].traits["ordered"] and stem(pair[0].name) == "var" else (2.5,))
    ],
    ids=name_of,
)
def test_correction(kind: Kind, op: Op, variant: Variant, correction: float) -> None:
    """Segments of 1 to 7 rows: where no more rows are left than the correction takes, results and gradients are 0."""
    sample = Sample("corrected", 28, (3,), 9, lambda rng, rows, segments: np.repeat(np.arange(7), np.arange(1, 8)))
    given = samples.operands(op, sample, correction=correction)
    got = check(kind, op, variant, sample, given, correction=correction)
    counts = np.bincount(given["segment_ids"], minlength=9)
    few = counts <= max(correction, 1)
    few = few[given["segment_ids"]] if op in BACKWARD else few
    assert (got[few] == 0).all() and (got[~few] != 0).all()


@of("std", "var", "norm2", ops=FORWARD + BACKWARD)
def test_slices_without_a_gradient(kind: Kind, op: Op, variant: Variant) -> None:
    """Of equal rows the deviation is 0 exactly, and so is its gradient; the same holds for the norm of zeros."""
    x, ids = columns([0.1] * 5, [1e4 + 0.1] * 33, [0.0] * 3, [-7.3], [1.0, 2.0])
    output = references.truth(f"segment_{stem(op.name)}", {"input": x.astype(np.float32), "segment_ids": ids}, 5).value
    known = {"d_output": np.full((5, 3), 3.0), "input": x, "output": output, "segment_ids": ids}
    got = run(kind, op, variant, "f32", 5, {operand.name: known[operand.name] for operand in op.operands[:-1]})
    still = [2] if stem(op.name) == "norm2" else [0, 1, 2, 3]
    if op in FORWARD:
        assert (got[still] == 0).all() and (got[4] != 0).all()
    else:
        assert (got[ids == 4] != 0).all()
        assert stem(op.name) == "var" or (got[np.isin(ids, still)] == 0).all()


@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "f16"])
@of("norm2")
def test_norms_near_the_limits(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    """Squares of what the element holds are far outside of its accumulator, their root is not."""
    limits = ml_dtypes.finfo(numpy_dtype(element))
    sizes = [float(limits.smallest_subnormal), float(limits.smallest_normal), 1e-4, 1.0, 1e4, float(limits.max) / 8]
    sizes += [1e-30, 1e-19, 1e19, 1e30] if element != "f16" else []
    x, ids = columns(*[[size] * 16 for size in sizes], [sizes[1], sizes[5], 0.0], [INF, -INF], [NAN, INF], [0.0, -0.0])
    x = x.astype(numpy_dtype(element)).astype(np.float64)
    got = run(kind, op, variant, element, len(sizes) + 4, {"input": x, "segment_ids": ids})
    wanted = [4 * x[16 * k, 0] for k in range(len(sizes))] + [x[80, 0], INF, NAN, 0.0]
    rounded = np.array(wanted).astype(numpy_dtype(element)).astype(np.float64)
    np.testing.assert_allclose(got[:, 0].astype(np.float64), rounded, rtol=1e-6 if element in ("f32", "f64") else 0)


@of("norm2", ops=BACKWARD)
def test_gradients_of_norms_near_the_limits(kind: Kind, op: Op, variant: Variant) -> None:
    x, ids = columns([3e30, -4e30], [3e-30, 4e-30], [3e-41, 4e-41], [1e38, 0.0])
    output = np.hypot.reduceat(x, [0, 2, 4, 6], axis=0)
    got = run(kind, op, variant, "f32", 4, {"d_output": np.ones((4, 3)), "input": x, "output": output, "segment_ids": ids})
    np.testing.assert_allclose(got[:, 0], [0.6, -0.8, 0.6, 0.8, 0.6, 0.8, 1, 0], rtol=1e-4)


@of("var", "std")
def test_deviations_from_a_large_mean(kind: Kind, op: Op, variant: Variant) -> None:
    """Σ x² − (Σ x)² / n has no digit left here."""
    rng = np.random.default_rng(4)
    ids = np.sort(rng.integers(0, 6, 400))
    x = (1e4 + rng.standard_normal((400, 3))).astype(np.float32)
    got = run(kind, op, variant, "f32", 6, {"input": x, "segment_ids": ids})
    wanted = [x[ids == segment].astype(np.float64).var(axis=0, ddof=1) for segment in range(6)]
    np.testing.assert_allclose(got, wanted if stem(op.name) == "var" else np.sqrt(wanted), rtol=2e-3)


# ---------------------------------------------------------------- empty segments


#: every element where the value depends on it, float16 elsewhere; float32 is in test_forward.py
ELEMENTS = [
    (op, element)
    for op in FORWARD
    for element in (op.elements if stem(op.name) == "max" else ("f16", "i32") if stem(op.name) == "min" or op.name == "segment_prod" else ("f16",))
    if takes_empty(op) and (op.traits["ordered"] or stem(op.name) in ("max", "min"))
]


@pytest.mark.parametrize(("op", "element"), ELEMENTS, ids=name_of)
def test_empty_segments_of_every_element(kind: Kind, op: Op, element: str) -> None:
    """By default and by ``empty=``, in front of, between and behind others, and where there is nothing else."""
    kind = samples.suited(kind, element)
    dtype, segments = numpy_dtype(element), 9
    x, ids = np.ones((3, 3), dtype), np.array([2, 2, 5], np.int32)
    asked = [None, 3] if stem(op.name) in POSITIONS else [None, "identity", 3] if element in INTEGERS else [None, "identity", 2.5, -INF]
    for empty in asked:
        for rows in (3, 0):
            given = {"input": x[:rows], "segment_ids": ids[:rows]}
            got = kind.numpy(samples.call(op, [kind.array(array) for array in given.values()], segments, empty=empty))
            truth = references.truth(op.name, given, segments, empty)
            assert_close(got, truth, element, op.name)
            wanted = np.array(references.empty_of(op.name, dtype, empty)).astype(got.dtype)
            assert (got[[0, 1, 3, 8]] == wanted).all()


# ---------------------------------------------------------------- half types


ONES = {"f16": {2049: 2048, 2051: 2052, 4096: 4096}, "bf16": {257: 256, 259: 260, 1000: 1000}}


@pytest.mark.parametrize("element", ONES)
@of("sum")
def test_sums_of_halves_are_rounded_once(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    """Kept in float16 a sum of ones would stop at 2048, in bfloat16 at 256."""
    counts = ONES[element]
    ids = np.repeat(np.arange(len(counts)), list(counts))
    got = run(kind, op, variant, element, len(counts), {"input": np.ones((len(ids), 1)), "segment_ids": ids})
    np.testing.assert_array_equal(got[:, 0].astype(np.float64), list(counts.values()))


#: (slice, result) that half types could not hold on the way
ON_THE_WAY: dict[str, tuple[list[float], float]] = {
    "mean": ([60_000.0] * 4, 60_000.0),
    "prod": ([1e-4, 1e-4, 1e4, 1e4], 1.0),
    "norm2": ([300.0, 400.0], 500.0),
    "var": ([-200.0, 200.0, -200.0, 200.0, 0.0], 40_000.0),
    "std": ([-200.0, 200.0, -200.0, 200.0, 0.0], 200.0),
    "logsumexp": ([20.0, 20.0, 20.0, 20.0], 20 + np.log(4)),
    "sum": ([60_000.0, 60_000.0, -60_000.0, 0.25], 60_000.0),
}


@of(*ON_THE_WAY)
def test_halves_are_kept_in_float32_on_the_way(kind: Kind, op: Op, variant: Variant) -> None:
    values, wanted = ON_THE_WAY[stem(op.name)]
    x, ids = columns(values)
    got = run(kind, op, variant, "f16", 1, {"input": x, "segment_ids": ids})
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2e-3)


@of("mean", "norm2", "std", "var", ops=BACKWARD)
def test_gradients_of_halves_are_kept_in_float32_on_the_way(kind: Kind, op: Op, variant: Variant) -> None:
    """d_output · input is 90 000 on the way, and 5000 rows are more than float16 counts."""
    rows = 5000 if stem(op.name) == "mean" else 4
    x = np.resize([300.0, -300.0], (rows, 1))
    ids = np.zeros(rows, np.int64)
    output = references.truth(f"segment_{stem(op.name)}", {"input": x, "segment_ids": ids}, 1).value
    known = {"d_output": np.full((1, 1), 300.0), "input": x, "output": output, "segment_ids": ids}
    given = {operand.name: known[operand.name] for operand in op.operands[:-1]}
    got = run(kind, op, variant, "f16", 1, given)
    np.testing.assert_allclose(got.astype(np.float64), references.truth(op.name, given, 1).value, rtol=2e-3)


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize(
    ("op", "variant"),
    [(op, v) for op, v in variants_of(FORWARD) if stem(op.name) in WITH_INTEGERS and (op.traits["ordered"] or v.name == "atomic_exact")],
    ids=name_of,
)
def test_integers_of_the_whole_range(kind: Kind, op: Op, variant: Variant, element: str) -> None:
    """Sums and products wrap; no extreme passes through a float on its way."""
    dtype = numpy_dtype(element)
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(limits.bits)
    sample = Sample(f"whole range {element}", 60, (3,), 7, element=element)
    given = samples.operands(op, sample)
    given["input"] = rng.integers(limits.min, limits.max, (60, 3), dtype, endpoint=True)
    given["input"][given["segment_ids"] == 3] = [limits.max, limits.min, limits.max - 1]
    got = check(kind, op, variant, sample, given)
    assert got.dtype == samples.output_type(op, sample)
    if stem(op.name) in ("max", "min"):
        assert got[3].tolist() == [limits.max, limits.min, limits.max - 1]


@pytest.mark.parametrize(("name", "call"), [("segment_sum", np.add.reduce), ("unsorted_segment_prod", np.multiply.reduce)])
def test_integers_wrap(kind: Kind, name: str, call: Callable[..., Any]) -> None:
    for dtype in (np.int32, np.int64):
        x = np.array([[np.iinfo(dtype).max] * 3, [2] * 3, [1] * 3], dtype)
        got = kind.numpy(samples.call(OPS[name], [kind.array(x), kind.array(np.zeros(3, np.int32))], 1))
        np.testing.assert_array_equal(got, call(x, axis=0, keepdims=True, dtype=dtype))
        assert got[0, 0] < 0
