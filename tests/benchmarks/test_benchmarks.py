"""The benchmark harness: every case in its tiny form, the checks that guard the times, and what is made of samples."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy_card import Xp
from references import Truth as Reference
from tolerance import allowed

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import cases, checks, host, peer, peers, report, results, run, scan_truths, segment_cases, segment_truths, sweep, timing, values
from benchmarks.case import Case, nbytes, output_of
from benchmarks.monoid_cases import MonoidCase
from benchmarks.reduce_cases import LAYOUTS, ReduceCase
from benchmarks.scan_cases import ScanCase
from benchmarks.segment_cases import SegmentCase
from numba_baracuda import OPS, SegmentIndex
from numba_baracuda.core.dtypes import numpy_dtype


def typical(case: Case) -> bool:
    """float32 stands for the other elements at most shapes of a reduction, and at all but one of a scan."""
    if isinstance(case, ReduceCase):
        return case.element == "f32" or (case.shape, case.axes) in cases.SQUARE
    return case.element == "f32" or not isinstance(case, ScanCase) or (case.shape[1:], case.axis) == (cases.ROWS[0][1:], 1)


CASES = [case for case in cases.matching() if typical(case)]
#: one case for each kind of truth, of floats in which a small error is none of rounding
KINDS = list({case.op.removeprefix("unsorted_"): case for case in CASES if case.element[0] == "f"}.values())


def name_of(case: Any) -> str:
    return f"{case.op}-{case.id}"


@pytest.fixture
def xp(kind: Any) -> Any:
    return importlib.import_module(kind.name)


def ready(xp: Any, case: Case) -> tuple[dict[str, Any], Any, checks.Truth]:
    """Operands, the call on them, and the truth."""
    operands = case.make(xp)
    return operands, case.prepare(xp)[1](operands), case.truth(xp, operands)


def test_copies_lie_as_the_original(xp: Any) -> None:
    for lies, make in LAYOUTS.items():
        array = make(xp, xp.arange(12, dtype=xp.float32).reshape(3, 4))
        copy = values.duplicate(xp, array)
        assert (copy.strides, copy.shape) == (array.strides, array.shape) and not xp.shares_memory(copy, array), lies
        assert bool((copy == array).all())
        assert array.strides == {"transposed": (4, 12), "every_second_row": (32, 4)}.get(lies, (16, 4))


def test_ids_are_unique() -> None:
    assert len({(case.op, case.id) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_tiny_case_is_right(xp: Any, case: Case) -> None:
    tiny = case.tiny()
    assert tiny.op == case.op and nbytes(tiny) < 20_000
    operands, call, wanted = ready(xp, tiny)
    assert run.verify(xp, tiny, operands, call, wanted) == ""
    assert list(operands) == list(tiny.specs)
    for name, spec in tiny.specs.items():
        assert operands[name].shape == spec.shape
        assert operands[name].nbytes == spec.nbytes


@pytest.mark.parametrize("case", KINDS, ids=name_of)
def test_planted_errors_are_found(xp: Any, case: Case) -> None:
    tiny = case.tiny()
    operands, call, wanted = ready(xp, tiny)
    output = operands[output_of(tiny)]
    terms = checks.spread(xp, xp.asarray(wanted.terms), output)
    filled = int(xp.flatnonzero(terms.reshape(len(output), -1)[:, 0])[-1])
    size = 1.0 if wanted.scale is None else float(xp.maximum(wanted.scale, 1.0)[filled : filled + 1].reshape(-1)[0])
    for added in (0.01 * size, np.nan) if output.dtype.kind == "f" else (1,):

        def spoiled(added: float = added) -> None:
            call()
            where = output[filled : filled + 1].reshape(-1)[:1]
            where[...] = ~where if output.dtype == bool else where + added

        assert run.verify(xp, tiny, operands, spoiled, wanted).startswith("1 of")
    assert "elements are wrong" in run.verify(xp, tiny, operands, lambda: None, wanted)
    assert "is of shape" in checks.complaint(xp, output[:-1], wanted)


def test_peers_are_not_judged_by_conventions() -> None:
    """Neither at an empty segment, here the second, nor at a tie, here the last element; but everywhere else."""
    wanted = checks.Truth(np.zeros((3, 2)), None, np.array([1, 0, 2]), np.array([[0, 0], [0, 0], [0, 1]], bool))
    for place, judged in (((0, 1), True), ((1, 0), False), ((2, 1), False), ((2, 0), True)):
        got = np.zeros((3, 2), np.float32)
        got[place] = np.nan
        assert checks.complaint(np, got, wanted).startswith("1 of 6")
        assert bool(checks.complaint(np, got, wanted, conventions=False)) == judged
    assert checks.complaint(np, np.array([-np.inf], np.float32), checks.Truth(np.array([-np.inf]))) == ""


def _first(which: Any) -> Any:
    return lambda x, dy: np.where(np.arange(len(x)) == which(x), dy, 0)


def _deviations(x: Any) -> Any:
    return (x - np.mean(x)) / max(len(x) - 1, 1)


#: of one column of one segment, in float64: from x, or from x (for softmax: the output), dy and, where it is saved, y
BY_HAND: dict[str, Any] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "prod": np.prod,
    "logsumexp": lambda x: np.log(np.sum(np.exp(x))),
    "norm2": lambda x: np.sqrt(np.sum(x * x)),
    "var": lambda x: np.var(x, ddof=1) if len(x) > 1 else 0.0,
    "std": lambda x: np.std(x, ddof=1) if len(x) > 1 else 0.0,
    "softmax": lambda x: np.exp(x) / np.sum(np.exp(x)),
    "log_softmax": lambda x: x - np.log(np.sum(np.exp(x))),
    "sum_backward": lambda x, dy: np.full_like(x, dy),
    "mean_backward": lambda x, dy: np.full_like(x, dy / len(x)),
    "max_backward": _first(np.argmax),
    "min_backward": _first(np.argmin),
    "prod_backward": lambda x, dy: dy * np.array([np.prod(np.delete(x, k)) for k in range(len(x))]),
    "logsumexp_backward": lambda x, dy, y: dy * np.exp(x - y),
    "norm2_backward": lambda x, dy, y: dy * x / y if y else 0 * x,
    "var_backward": lambda x, dy: 2 * dy * _deviations(x),
    "std_backward": lambda x, dy, y: dy * _deviations(x) / y if y else 0 * x,
    "softmax_backward": lambda y, dy: y * (dy - y @ dy),
    "log_softmax_backward": lambda y, dy: dy - np.exp(y) * np.sum(dy),
}


@pytest.mark.parametrize("kind", segment_truths.ROWS)
def test_truths_are_those_of_a_loop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ties, empty segments, ids in no order, a saved output of 0 and more columns than are folded at a time."""
    monkeypatch.setattr(segment_truths, "_SLAB", 120)
    rng = np.random.default_rng(5)
    ids, segments = rng.permutation([1] * 37 + [3] + [4] * 8 + [6] * 5 + [7] * 2), 9
    x, dy, y = rng.integers(1, 9, (len(ids), 5)) / 8, rng.standard_normal((segments, 5)), rng.integers(0, 5, (segments, 5)) / 4
    fold, by_row = "softmax" not in kind and not kind.endswith("_backward"), kind.endswith("softmax_backward")
    given = {"d_output": rng.standard_normal(x.shape) if by_row else dy, "input": x, "segment_ids": ids, "output": x if by_row else y}
    saved = ["output"] if kind in ("logsumexp_backward", "norm2_backward", "std_backward") else []
    assert not saved or (y[4] == 0).any()
    for order in ("segment_", "unsorted_segment_"):
        found = segment_truths.segment_truth(np, order + kind, given)
        wanted = np.full((segments if fold else len(ids), 5), segment_truths.empty_of(order + kind, x.dtype))
        for segment, column in itertools.product(set(ids), range(5)):
            rows = np.flatnonzero(ids == segment)
            names = ["d_output", *saved] if kind.endswith("_backward") else []
            upstream = [given[name][rows if by_row else segment, column] for name in names]
            made = BY_HAND[kind](x[rows, column], *upstream)
            wanted[segment if fold else rows, column] = rows[made] if kind in cases.FIRST else made
        np.testing.assert_allclose(found.value, wanted, rtol=1e-13, atol=1e-15)
        if found.scale is not None:
            size = abs(np.where(np.isinf(wanted), 0, wanted))
            assert found.scale.shape == wanted.shape and (found.scale * 1.001 >= size).all()
            assert by_row or (found.scale <= (40 if "_backward" in kind else 6) * (1 + size)).all()
        if fold:
            assert list(found.terms) == list(np.bincount(ids, minlength=segments) ** (2 if kind == "prod" else 1))


def _prefixes(fold: Any) -> Any:
    return lambda x: np.array([fold(x[: k + 1]) for k in range(len(x))])


def _shares(share: Any) -> Any:
    """dx of ``share(x, i, k)``, the derivative of the i-th result by the k-th element."""
    return lambda x, dy: np.array([sum(dy[i] * share(x, i, k) for i in range(k, len(x))) for k in range(len(x))])


#: of one row, scanned from its beginning, in float64: from x, or from x and dy
SCANNED_BY_HAND: dict[str, Any] = {
    "cumsum": _prefixes(np.sum),
    "cumprod": _prefixes(np.prod),
    "cummax": _prefixes(np.max),
    "cummin": _prefixes(np.min),
    "logcumsumexp": _prefixes(lambda x: np.log(np.sum(np.exp(x)))),
    "cumsum_backward": _shares(lambda x, i, k: 1),
    "cumprod_backward": _shares(lambda x, i, k: np.prod(np.delete(x[: i + 1], k))),
    "cummax_backward": _shares(lambda x, i, k: np.argmax(x[: i + 1]) == k),
    "cummin_backward": _shares(lambda x, i, k: np.argmin(x[: i + 1]) == k),
    "logcumsumexp_backward": _shares(lambda x, i, k: np.exp(x[k]) / np.sum(np.exp(x[: i + 1]))),
}


@pytest.mark.parametrize("op", scan_truths.ROWS)
def test_truths_of_scans_are_those_of_a_loop(op: str) -> None:
    """With ties, along every axis in both directions, over extents of one and of a power of two among others."""
    rng = np.random.default_rng(6)
    for shape, reverse in itertools.product(((3, 37), (5, 2, 7), (1, 64)), (False, True)):
        x, dy = rng.integers(1, 9, shape) / 8, rng.standard_normal(shape)
        for axis in range(len(shape)):
            found = scan_truths.scan_truth(np, op, {"x": x, "dy": dy}, axis, reverse)

            def rows(array: Any, axis: int = axis, step: int = -1 if reverse else 1) -> Any:
                return np.moveaxis(array, axis, -1)[..., ::step].reshape(-1, array.shape[axis])

            given = [rows(x), rows(dy)] if op.endswith("_backward") else [rows(x)]
            wanted = [SCANNED_BY_HAND[op](*each) for each in zip(*given, strict=True)]
            np.testing.assert_allclose(rows(found.value), wanted, rtol=1e-12, atol=1e-13)
            if found.scale is not None:
                sizes = np.array([SCANNED_BY_HAND[op](*map(abs, each)) for each in zip(*given, strict=True)])
                assert (rows(found.scale) * 1.001 >= sizes).all() and (rows(found.scale) <= 15 * (1 + sizes)).all()
                terms, most = checks.spread(np, np.asarray(found.terms), x), shape[axis] ** (2 if "prod" in op else 1)
                assert ((terms > 0.999) & (terms < most + 0.001)).all()


@pytest.mark.parametrize("op", [op for op in scan_truths.ROWS if op.endswith("_backward")])
def test_gradients_of_scans_are_finite_differences(op: str) -> None:
    rng, step, forward = np.random.default_rng(7), 1e-5, op.removesuffix("_backward")
    x, dy = (rng.permutation(30).reshape(2, 15) - 14.5) / 15, rng.standard_normal((2, 15))
    for reverse in (False, True):
        found = scan_truths.scan_truth(np, op, {"x": x, "dy": dy}, 1, reverse).value
        for place in np.ndindex(x.shape):
            apart = np.zeros_like(x)
            apart[place] = step
            above, below = (scan_truths.scan_truth(np, forward, {"x": each}, 1, reverse).value for each in (x + apart, x - apart))
            assert found[place] == pytest.approx((dy * (above - below)).sum() / (2 * step), rel=1e-6, abs=1e-8), (place, reverse)


def test_a_tie_of_a_scan_is_of_those_that_hold_the_extreme() -> None:
    """All of it goes to the first of them in the order of the scan."""
    x, dy = np.array([[1, 3, 2, 3, 1, 5]], np.float32), np.array([[1, 2, 4, 8, 16, 32]], np.float32)
    for op, reverse, wanted, tied in (("cummax", False, [1, 30, 0, 0, 0, 32], [1, 3]), ("cummin", True, [0, 0, 0, 0, 31, 32], [0, 4])):
        found = scan_truths.scan_truth(np, f"{op}_backward", {"dy": dy, "x": x, "dx": x}, 1, reverse)
        assert found.value[0].tolist() == wanted and list(np.flatnonzero(found.free)) == tied


def test_values_of_empty_segments() -> None:
    f32, largest = np.dtype(np.float32), float(np.finfo(np.float32).max)
    for op, wanted in (("sum", 0), ("mean", 0), ("max", 0), ("min", 0), ("prod", 1), ("logsumexp", -np.inf), ("var", 0)):
        assert segment_truths.empty_of(f"segment_{op}", f32) == wanted
        assert segment_truths.empty_of(f"unsorted_segment_{op}", f32) == {"max": -largest, "min": largest}.get(op, wanted)
    assert segment_truths.empty_of("unsorted_segment_max", np.dtype(np.int32)) == -(2**31)


def test_a_tie_is_of_those_that_hold_the_extreme() -> None:
    x, ids = np.array([2, 5, 5, 1, 1, 3], np.float32), np.array([0, 0, 0, 1, 1, 1])
    given = {"d_output": np.array([10, 20], np.float32), "input": x, "segment_ids": ids, "d_input": x}
    for which, wanted, tied in (("max", [0, 10, 0, 0, 0, 20], [1, 2]), ("min", [10, 0, 0, 20, 0, 0], [3, 4])):
        found = segment_truths.segment_truth(np, f"segment_{which}_backward", given)
        assert list(found.value) == wanted and list(np.flatnonzero(found.free)) == tied


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    bits = np.random.default_rng(2).integers(0, 0x7F000000, 50_000, dtype=np.uint32)
    bits[:4] = (0x3F808000, 0x3F818000, 0x3F808001, 0x00000001)
    x = np.concatenate([bits.view(np.float32), -bits.view(np.float32)])
    got = values.cast(np, x, "bf16")
    assert got.dtype == values.BF16 and (got == x.astype(values.BF16)).all()
    assert (values.wide(np, got) == got.astype(np.float64)).all()


def test_products_stay_in_range() -> None:
    rng = np.random.default_rng(4)
    for most in (3, 20_000):
        x = values.factors(np, rng, (20_000, 16), "f32", most)
        assert x.dtype == np.float32 and 0.45 < (x < 0).mean() < 0.55
        spread = min(0.3, 20 / most**0.5)
        low, high = np.quantile(np.log(abs(x)), (0.1, 0.9))
        assert abs(np.log(abs(x))).max() <= spread * 1.001 and low == pytest.approx(-0.8 * spread, rel=0.05) and high == pytest.approx(-low, rel=0.05)
    product = np.prod(x.reshape(20_000, 16), axis=0)
    assert (abs(product) > 1e-36).all() and (abs(product) < 1e36).all()


@pytest.mark.parametrize(("element", "limit"), [("bf16", 80.0), ("f16", 9.0)])
@pytest.mark.parametrize("most", [3, 100_000, 4_000_000])
def test_products_of_halves_do_not_drift(element: str, limit: float, most: int) -> None:
    x = values.factors(np, np.random.default_rng(4), (4_000_000,), element, most)
    assert x.dtype == numpy_dtype(element) and 0.45 < (values.wide(np, x) < 0).mean() < 0.55
    logarithms = np.log(abs(values.wide(np, x)))
    assert abs(logarithms).max() <= min(0.3, 20 / most**0.5) + float(ml_dtypes.finfo(x.dtype).eps)
    assert len(np.unique(abs(x))) > 2 and abs(logarithms.mean()) < 5 * logarithms.std() / len(x) ** 0.5
    if most > 3:
        assert 0.5 < abs(np.cumsum(logarithms[:most])).max() < limit


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_subnormal_results_count_as_zero(element: str) -> None:
    wanted = checks.Truth(np.array([1e-39, 3e-38]), np.array([1e-39, 3e-38]))
    assert checks.complaint(np, np.array([0, 3e-38]).astype(numpy_dtype(element)), wanted) == ""
    assert checks.complaint(np, np.zeros(2, numpy_dtype(element)), wanted) != ""
    assert checks.complaint(np, np.array([0.0, 3e-38]), wanted) != ""


def test_whole_values_are_not_all_alike() -> None:
    x = values.uniform(np, np.random.default_rng(1), (1000,), "i32")
    assert x.dtype == np.int32 and x.min() >= -100 and x.max() < 100 and len(set(x)) > 150


def test_tolerance_is_that_of_the_tests() -> None:
    rng = np.random.default_rng(0)
    value, terms = rng.standard_normal((50, 3)), rng.integers(0, 100, 50)
    scale = abs(value) + rng.random((50, 3))
    for dtype, element in ((np.float32, "f32"), (np.float64, "f64")):
        limit = allowed(Reference(value, scale, terms), element, "segment_sum")
        wanted = checks.Truth(value.astype(dtype).astype(np.float64), scale, terms)
        for factor, verdict in ((0.5, ""), (2.0, "150 of 150")):
            got = (wanted.value + factor * limit).astype(dtype)
            assert checks.complaint(np, got, wanted).startswith(verdict) and bool(checks.complaint(np, got, wanted)) == bool(verdict)


@pytest.mark.parametrize(
    ("op", "case", "wanted"),
    [
        ("segment_sum", "uniform-2Mx128-S100k", 4 * (2_000_000 * 128 + 2_000_000 + 100_000 * 128)),
        ("segment_mean", "uniform-100Mx1-S1M", 4 * (100_000_000 + 100_000_000 + 1_000_000)),
        ("segment_sum", "uniform-2Mx64-S100k-f64", 8 * 2_000_000 * 64 + 4 * 2_000_000 + 8 * 100_000 * 64),
        ("unsorted_segment_mean_backward", "uniform-20Mx16-S1M", 4 * (1_000_000 * 16 + 20_000_000 + 20_000_000 * 16)),
        ("segment_max", "uniform-2Mx128-S100k-bf16", 2 * (2_000_000 * 128 + 100_000 * 128) + 4 * 2_000_000),
        ("segment_softmax", "uniform-20Mx8-S1M", 4 * (20_000_000 * 8 + 20_000_000 + 20_000_000 * 8)),
        ("segment_softmax_backward", "uniform-20Mx8-S1M", 4 * (3 * 20_000_000 * 8 + 20_000_000)),
        ("segment_prod_backward", "uniform-2Mx128-S100k", 4 * (2 * 2_000_000 * 128 + 2_000_000 + 2 * 100_000 * 128)),
        ("unsorted_segment_sum", "uniform-2Mx128-S100k-indexed", 4 * (2_000_000 * 128 + 100_000 * 128) + (4 + 4) * 2_000_000),
        ("unsorted_segment_sum_backward", "uniform-2Mx128-S100k-indexed", 4 * (2_000_000 * 128 + 2_000_000 + 100_000 * 128)),
        ("cumsum", "16384x16384-axis0", 4 * 2 * 16384 * 16384),
        ("logcumsumexp", "7x33554435-axis1", 4 * 2 * 7 * 33_554_435),
        ("cummax", "8192x16384-axis1-f64", 8 * 2 * 8192 * 16384),
        ("row_sum", "16384x16384", 4 * (16384 * 16384 + 16384)),
        ("SegmentIndex", "uniform-5M-S250k", 4 * (3 * 5_000_003 + 250_001 + 250_000)),
    ],
)
def test_bytes_count_every_operand_once(op: str, case: str, wanted: int) -> None:
    (found,) = cases.matching(op, case)
    assert nbytes(found) == wanted


def test_an_index_is_counted_at_its_width(xp: Any) -> None:
    index = SegmentIndex(xp.asarray([2, 0, 1], dtype=xp.int32), 3)
    assert index.permutation.dtype == numpy_dtype(segment_cases.PERMUTATION) and index.sorted_ids.dtype == xp.int32


def test_patterns_select() -> None:
    assert {case.op for case in cases.matching("unsorted_*_backward", "*-S1M")} == {"unsorted_segment_sum_backward", "unsorted_segment_mean_backward"}
    zipf = [(case.op, case.id) for case in cases.matching("*segment_sum", "zipf-*")]
    orders = [("unsorted_segment_sum", f"zipf-2Mx128-S100k-{order}") for order in ("deterministic", "any_order")]
    assert zipf == [("segment_sum", "zipf-2Mx128-S100k"), *orders]
    assert {case.op for case in cases.matching("*", "*-atomic_exact")} == {"unsorted_segment_max", "unsorted_segment_min"}
    assert len(cases.matching("unsorted_segment_*", "*-indexed")) == 3 + 3 + 5 * 2
    assert cases.matching("no_such_op") == []


def test_every_kind_is_measured() -> None:
    """Every op of these families, and in both orders what has one in the other's table."""
    reductions, scans, segments = ({name for name, op in OPS.items() if op.family == family} for family in ("reduce", "scan", "segment"))
    assert scans <= set(scan_truths.ROWS)
    assert {name.removeprefix("unsorted_").removeprefix("segment_") for name in segments} == set(segment_truths.ROWS)
    others = {case.op for case in CASES if case.op not in OPS}
    assert others == {"row_sum", "SegmentIndex", "segment_reduce", "reduce_axis", "scan_axis"}
    measured = {case.op.removeprefix("unsorted_").removeprefix("segment_") for case in CASES if case.op not in others}
    assert measured == {*segment_truths.ROWS, *reductions, *scans}
    for kind in cases.KINDS:
        for order in ("segment_", "unsorted_segment_"):
            assert cases.matching(order + kind) and cases.matching(f"{order}{kind}_backward")


def test_scans_are_measured_as_their_ops_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients in fewer elements, and long rows once more where a variant is not deterministic; every operand is moved once."""
    forward = OPS["cumsum"]
    loose = dataclasses.replace(forward.variants[0], name="scan_any_order", deterministic=False)
    x, y = forward.operands
    gradient = dataclasses.replace(
        forward,
        name="cumprod_backward",
        operands=(dataclasses.replace(x, name="dy"), x, dataclasses.replace(x, name="y"), dataclasses.replace(y, name="dx")),
        variants=(*forward.variants, loose),
        traits={**forward.traits, "backward": True},
    )
    ops = {op.name: op for op in (dataclasses.replace(forward, variants=(*forward.variants, loose)), gradient)}
    for module in ("cases", "scan_cases"):
        monkeypatch.setattr(f"benchmarks.{module}.OPS", ops)
    found = list(cases.scan_cases())
    assert len({(case.op, case.id) for case in found}) == len(found)
    of_op = {op: [case.id for case in found if case.op == op] for op in ops}
    assert [len(of_op[op]) for op in ops] == [15 + 2 + 3 + 3 + 2 + 3 * 4 + 1, 15 + 1 + 2]
    assert {"1x268435456-axis1-any_order", "7x33554435-axis1-any_order", "16384x16384-axis1-reverse"} <= set(of_op["cumsum"])
    assert {"1x268435456-axis1-any_order", "16384x16384-axis0-bf16"} <= set(of_op["cumprod_backward"])
    for case in found:
        size, whole = numpy_dtype(case.element).itemsize, case.element in ("i32", "i64", "bool")
        assert nbytes(case) == math.prod(case.shape) * (4 * size if case.op == "cumprod_backward" else size + (8 if whole else size))
        made = case.tiny().make(np)
        assert list(made) == list(case.specs) and {array.shape for array in made.values()} == {case.tiny().shape}
        saved = scan_truths.scan_truth(np, "cumprod", made, case.axis)
        assert case.op == "cumsum" or checks.complaint(np, made["y"], saved) == ""


@pytest.mark.parametrize("case", [case for case in CASES if getattr(case, "variant", "")], ids=name_of)
def test_a_variant_is_forced(xp: Any, case: SegmentCase) -> None:
    assert case.tiny().prepare(xp)[0].split()[0] == case.variant
    with pytest.raises(StopIteration):
        dataclasses.replace(case.tiny(), variant="no_such_variant").prepare(xp)


def test_distributions() -> None:
    rng = np.random.default_rng(3)
    ids = {name: draw(np, rng, 20_000, 20_000 if name == "each" else 100) for name, draw in segment_cases.DISTRIBUTIONS.items()}
    for name, drawn in ids.items():
        assert drawn.min() >= 0 and drawn.max() < (20_000 if name == "each" else 100), name
    assert set(ids["even"]) == set(range(0, 100, 2)) and set(ids["uniform"]) == set(range(100))
    share = np.arange(1, 101) ** -1.3
    np.testing.assert_allclose(np.bincount(ids["zipf"], minlength=100)[:5] / 20_000, (share / share.sum())[:5], rtol=0.1)
    assert list(ids["each"]) == list(range(20_000))
    assert 0.89 < (ids["hot"] == 50).mean() < 0.92 and len(set(ids["hot"])) == 100


def test_ids_are_sorted_where_the_op_wants_them() -> None:
    found = cases.matching("*segment_sum", "uniform-2Mx128-*")
    assert {case.op for case in found} == {"segment_sum", "unsorted_segment_sum"}
    for case in found:
        ids = case.tiny().make(np)["segment_ids"]
        assert bool((np.diff(ids) >= 0).all()) == (case.op == "segment_sum")


@pytest.mark.parametrize("main", [run.main, host.main, sweep.main])
def test_without_a_gpu_there_is_nothing_to_measure(emulator: Any, main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().out


def test_list_and_patterns_that_match_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert listed == [[case.op, case.id] for case in cases.matching()]
    assert run.main(["--op", "no_such_op"]) == 2
    assert "no case matches" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["--against", "abacus"])


def test_percentiles() -> None:
    found = timing.Timing((5.0, 1.0, 3.0, 2.0, 4.0))
    assert (found.low, found.median, found.high) == (pytest.approx(1.4), 3.0, pytest.approx(4.6))
    assert timing.Timing((1.0, 2.0)).median == 1.5


def test_operand_sets_exceed_the_cache() -> None:
    for size, cache, memory in ((1 << 30, 60 << 20, 80 << 30), (1 << 20, 60 << 20, 80 << 30), (100 << 20, 60 << 20, 80 << 30)):
        count = timing.set_count(size, cache, memory)
        assert count >= 2 and count * size > 2 * cache
    assert timing.set_count(1 << 30, 60 << 20, 1 << 20) == 2
    assert timing.set_count(1000, 60 << 20, 80 << 30) == timing.MOST_SETS


def test_short_calls_are_timed_together() -> None:
    assert timing.plan_samples(300.0, 25) == (25, 1)
    samples, calls = timing.plan_samples(5.0, 25)
    assert samples == 25 and calls * 5 >= timing.TOGETHER
    assert timing.plan_samples(1e6, 25) == (timing.FEWEST, 1)
    assert timing.plan_samples(1e6, 3) == (3, 1)


def test_wall_clock_divides_by_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 4e-3))
    waited: list[str] = []
    found = timing.WallClock(waited.append)([lambda: "a", lambda: "b"], 7)
    assert found.samples == (pytest.approx(400.0),) * 7  # 4 ms by that clock for the 10 calls that 1000 us a call make of 10 ms
    assert waited[:4] == ["a", "b", "a", "b"] and len(waited) == 4 + 1 + 7


class Card:
    """What :class:`timing.Events` asks of CuPy, on clocks of its own: queueing takes the host 10 us, and the device runs what is queued in order."""

    def __init__(self) -> None:
        self.cuda = self
        self.host = self.device = 0.0  # microseconds
        self.held: list[float] = []

    def queue(self, microseconds: float) -> None:
        self.host += 10
        self.device = max(self.device, self.host) + microseconds

    def RawKernel(self, source: str, name: str) -> Any:
        def hold(blocks: Any, threads: Any, arguments: Any) -> None:
            self.held.append(float(arguments[0]) / 1e3)
            self.queue(self.held[-1])

        return hold

    def Event(self) -> Any:
        return Event(self)

    def Device(self) -> Any:
        return SimpleNamespace(synchronize=lambda: setattr(self, "host", max(self.host, self.device)))

    def get_elapsed_time(self, begin: Any, end: Any) -> float:
        return float(end.at - begin.at) / 1e3


class Event:
    def __init__(self, card: Card) -> None:
        self.card, self.at = card, 0.0

    def record(self) -> None:
        self.at = max(self.card.device, self.card.host)

    @property
    def done(self) -> bool:
        return self.card.host >= self.at


@pytest.mark.parametrize(("late", "holds", "dry"), [(range(0), 3, False), (range(7, 8), 4, False), (range(7, 10**6), 5, True)])
def test_the_queue_is_held_until_it_is_full(monkeypatch: pytest.MonkeyPatch, late: range, holds: int, dry: bool) -> None:
    """Late calls take the host 100 ms. Seven calls warm up, probe and estimate; a hold that was too short is tried again, and 2 s is the longest."""
    card, turns = Card(), itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: card.host / 1e6))

    def call() -> None:
        card.host += 1e5 if next(turns) in late else 0.0
        card.queue(5.0)

    found = timing.Events(card)([call, call], 8)
    assert found.dry == dry and len(card.held) == holds and max(card.held) <= 2e6
    assert dry or found.samples == (pytest.approx(5.0),) * 8


def test_no_queue_is_held_back_from_calls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: card.host / 1e6))

    def call() -> None:
        card.queue(4e4)
        card.Device().synchronize()

    found = timing.Events(card)([call, call], 8)
    assert found.dry and len(found.samples) == 8 and max(found.samples) < 4.1e4
    assert max(card.held) <= timing.WAIT / 1e3 and card.host < (4 + 1 + 2 + 8) * 4.1e4 + timing.WAIT / 1e3


def test_a_call_of_seconds_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: card.host / 1e6))
    found = timing.Events(card)([lambda: card.queue(3e6)] * 2, 8)
    assert found.samples == (pytest.approx(3e6, rel=1e-4),) and not found.dry and card.device < 4e6


def test_calls_take_turns_in_orders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is made for 100 ms before it is timed for as long; dry are one that keeps the host longer than the device, and one that waits for it."""
    card, turns = Card(), list[int]()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: card.host / 1e6))

    def caller(which: int, host: float, device: float) -> Any:
        def call() -> None:
            turns.append(which)
            card.host += host
            card.queue(device)
            if which == 2:
                card.Device().synchronize()

        return call

    found = timing.Events(card).in_turns([caller(0, 1e3, 2e4), caller(1, 3e4, 2.5e4), caller(2, 0, 1.5e5)], 6)
    assert [each.dry for each in found] == [False, True, True]
    assert [len(each.samples) for each in found] == [6, 6, 6]
    assert found[0].samples == (pytest.approx(2e4),) * 6 and 2.9e4 < max(found[1].samples) < 3.1e4 and max(found[2].samples) < 1.51e5
    order = [(which, len(list(calls))) for which, calls in itertools.groupby(turns[-6 * (10 + 4 + 2) :])]
    assert sum(count for _, count in order) == 6 * 16 and all(count % {0: 10, 1: 4, 2: 2}[which] == 0 for which, count in order)
    assert len({tuple(which for which, _ in order[first : first + 3]) for first in range(len(order) - 2)}) > 2


ROWS = [
    results.Row("op", "case", "numba_baracuda kernel f32", 4_000_000, timing.Timing((2.0, 1.0, 3.0))),
    results.Row("op", "case", "torch right", 4_000_000, timing.Timing((4.0,), dry=True), note="by hand"),
    results.Row("op", "case", "torch slow", 4_000_000, timing.Timing((8.0,))),
    results.Row("op", "case", "torch, wrong", 4_000_000, timing.Timing((1.0,)), "WRONG: 3 of 4"),
    results.Row("op", "case", "jax", 4_000_000, None, 'failed: "quoted", # and\na new line'),
    results.Row("op", "other", "numba_baracuda kernel f32", 4_000_000, None, "WRONG: 1 of 4"),
]


COPIED = [dataclasses.replace(row, copy=4000.0) for row in ROWS]


def test_records_compare_with_the_copy_and_the_best_right_peer() -> None:
    ours, right, slow, wrong, failed, other = results.records(COPIED)
    assert (ours["median_us"], ours["gb_s"], ours["share_of_copy"], ours["vs_best_peer"]) == ("2.00", "2000.0", "0.5000", "2.000")
    assert (right["vs_best_peer"], slow["vs_best_peer"], wrong["vs_best_peer"]) == ("1.000", "0.500", "4.000")
    assert "by hand" in right["note"] and "ran dry" in right["note"]
    assert failed["median_us"] == other["median_us"] == "" and other["vs_best_peer"] == ""


def test_csv_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = {"gpu": "NVIDIA H200", "commit": "abc-dirty", "copy_gb_s": "4200.0", "empty": ""}
    path = tmp_path / "new" / "ops.csv"
    found = results.records(COPIED)
    results.write_csv(path, header, found)
    assert results.read_csv(path) == (header, found)
    assert report.main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "50.0%" in printed and "torch right" in printed and "torch slow" not in printed
    assert "torch slow" in render(report.case_table(found[:5]))


def render(table: Any) -> str:
    screen = report.console()
    with screen.capture() as captured:
        screen.print(table)
    return captured.get()


def test_stamp_names_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(results.COMMIT, "1234abc")
    assert results.stamp()["commit"] == "1234abc"
    assert {"date", "numpy", "numba-cuda", "python"} <= set(results.stamp())
    assert results.default_path("ops", "NVIDIA H200").name == "ops_h200.csv"
    assert results.default_path("host", "NVIDIA GeForce RTX 4090").name == "host_geforce_rtx_4090.csv"


def along(case: Case) -> Any:
    """Which of the peers of a scan it has."""
    return (case.axis, case.reverse) if isinstance(case, ScanCase) else None


@pytest.mark.parametrize("name", ["cupy", "torch", "jax", "numba"])
def test_peers_are_right(xp: Any, name: str) -> None:
    """On NumPy arrays the peers of CuPy are NumPy's functions of the same names. Scans of halves may be rounded after every element."""
    if name in ("torch", "jax"):
        pytest.importorskip(name)
    framework, ran = peers.load(name, xp), set()
    for case in {(case.op, case.element, case.indexed, along(case)): case.tiny() for case in reversed(CASES)}.values():
        operands = case.make(xp)
        wanted = case.truth(xp, operands)
        if isinstance(case, ScanCase) and case.element in ("f16", "bf16") and wanted.scale is not None:
            wanted = dataclasses.replace(wanted, scale=wanted.scale * case.shape[case.axis])
        alone = name in ("cupy", "numba") or case.op.endswith("_backward") or isinstance(case, MonoidCase)
        assert framework.of(case) or alone, f"{name} has no peer for {case.op}"
        for each in framework.of(case):
            values.poison(operands[output_of(case)])
            (call,) = framework.bind(each, xp, case, [operands])
            assert checks.complaint(xp, framework.take(call()), wanted, conventions=False) == "", (each.name, case.op, case.id)
            ran.add(each.name)
    assert ran == {each.name for each in framework.peers}


def test_peers_have_their_cases() -> None:
    """The rescan takes no more rows than it can, what is sorted beforehand is for an index, and CuPy adds no bfloat16."""
    rescan, cupy = peers.load("numba", np), peers.load("cupy", np)
    assert [(case.op, case.id) for case in CASES if rescan.of(case)] == [("unsorted_segment_max_backward", "uniform-100kx16-S5k")]
    assert not any(cupy.of(case) for case in CASES if case.element == "bf16")
    indexed, others = (SegmentCase("unsorted_segment_sum", *cases.WIDE, indexed=each) for each in (True, False))
    whole = dataclasses.replace(others, element="i32")
    assert [(fits(indexed), fits(others), fits(whole)) for fits in (peer.indexed, peer.one_go, peer.floats)] == [
        (True, False, False),
        (False, True, False),
        (True, True, False),
    ]
    uniform, short, long = (SegmentCase("segment_prod", ids, rows, 1, 9) for ids, rows in (("uniform", 10**8), ("hot", 10**6), ("hot", 10**7)))
    assert [(peer.calm(case), peer.brief(case)) for case in (uniform, short, long)] == [(True, True), (False, True), (False, False)]
    assert [peer.both(peer.calm, peer.floats)(case) for case in (uniform, short, whole)] == [True, False, False]
    halves = (dataclasses.replace(case, element="bf16") for case in (uniform, short))
    assert [peer.no_crowded_halves(case) for case in (*halves, short)] == [True, False, True]


def test_what_peers_are_given() -> None:
    operands = {
        "d_output": np.zeros((4, 2), np.float32),
        "input": np.arange(10, dtype=np.float32).reshape(5, 2) - 4,
        "segment_ids": np.array([2, 0, 2, 1, 0]),
    }
    given = peer.Given(np, operands, 4, lambda array: array)
    assert list(given.lengths) == [2, 1, 2, 0] and given.segments == 4
    assert given.counts.tolist() == [[2], [1], [2], [1]] and given.counts.dtype == np.float32
    assert list(given.permutation) == [1, 4, 3, 0, 2] and list(given.sorted_ids) == [0, 0, 1, 2, 2]
    assert given.extreme("max").tolist() == [[4, 5], [2, 3], [0, 1], [0, 0]]
    assert given.extreme("min").tolist() == [[-2, -1], [2, 3], [-4, -3], [0, 0]]


def test_rescan_takes_the_first_of_ties(xp: Any) -> None:
    (rescan,) = peers.load("numba", xp).peers
    case = SegmentCase("unsorted_segment_max_backward", "uniform", 60, 3, 4)
    operands = case.make(xp)
    operands["input"] = xp.floor(4 * operands["input"])
    wanted = case.truth(xp, operands)
    assert wanted.free.sum() > 20
    assert checks.complaint(xp, rescan.run(*(operands[name] for name in case.specs)), wanted) == ""


def test_a_case_from_end_to_end(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that disagree at empty segments are right, others are not; slow ones are not timed, and those that fail say how."""

    def peer_of(name: str, call: Any) -> peer.Peer:
        return peer.Peer(name, "segment_sum", lambda t: (t.input, t.segment_ids, t.output), call)

    def add(x: Any, ids: Any, y: Any) -> Any:
        y.fill(0)
        np.add.at(y, ids, x)
        return y

    def odd(x: Any, ids: Any, y: Any) -> Any:
        return np.where(np.isin(np.arange(len(y)), ids)[:, None], add(x, ids, y), np.nan).astype(np.float32)

    found = [peer_of("add", add), peer_of("odd", odd), peer_of("double", lambda *o: 2 * add(*o)), peer_of("fails", lambda *o: 1 / 0)]
    framework = peers.Framework("numpy", tuple(found), lambda array: array, lambda got: got)
    bench = run.Bench(Xp(), lambda calls, repeats: timing.Timing((1.0,)), (framework,), 3, 1000)  # type: ignore[arg-type]
    case = SegmentCase("segment_sum", "even", 20, 3, 40)
    rows = run.run_case(case, bench)
    assert [(row.ours, row.timing is not None, row.checked.partition(":")[0]) for row in rows] == [
        (True, True, "yes"),
        (False, True, "yes"),
        (False, True, "yes"),
        (False, True, "WRONG"),
        (False, False, "failed"),
    ]
    monkeypatch.setattr(run, "SLOW", -1.0)
    slow = run.run_case(case, bench)
    assert slow[0].note == "" and slow[1].note == "one call, host clock" and slow[1].timing != rows[1].timing
    monkeypatch.setattr(run, "TOO_SLOW", -1.0)
    rows = run.run_case(case, bench)
    assert rows[1].timing is None and rows[1].checked.startswith("too slow: 0.0 s")
    counted = list[int]()
    once = dataclasses.replace(framework, peers=(peer_of("add", lambda *o: [counted.append(1), add(*o)][1]),))
    for most, times in ((60.0, 2), (-1.0, 1)):  # seconds of the first call
        monkeypatch.setattr(run, "FIRST", most)
        counted.clear()
        run.run_case(case, dataclasses.replace(bench, frameworks=(once,)))
        assert len(counted) == times
    spoiled = dataclasses.replace(framework, peers=())
    monkeypatch.setattr(SegmentCase, "truth", lambda *given: checks.Truth(np.ones((40, 3))))
    assert [row.checked.partition(":")[0] for row in run.run_case(case, dataclasses.replace(bench, frameworks=(spoiled,)))] == ["WRONG"]


def test_summary_lists_every_case() -> None:
    rows = [results.Row(case.op, case.id, "numba_baracuda kernel", 1000, timing.Timing((1.0,)), copy=4000.0) for case in CASES]
    printed = {tuple(line.split()[:2]) for line in render(report.summary(results.records(rows), "title")).splitlines()}
    assert {(case.op, case.id) for case in CASES} <= printed


def test_sweep_covers_columns_and_lengths() -> None:
    found = list(sweep.points())
    assert len(set(found)) == len(found) == 2 * (29 + 3 * 21)
    for point in found:
        case = point.case(sweep.ELEMENTS)
        assert 0.999 * sweep.ELEMENTS < case.rows * case.columns <= sweep.ELEMENTS
        assert case.rows / case.segments == pytest.approx(point.length, rel=0.01) or case.segments < 300


def test_sweep_is_drawn(tmp_path: Path) -> None:
    points = [sweep.Point("columns", "segment_sum", 1, 20), sweep.Point("columns", "segment_sum", 8, 20), sweep.Point("length", "segment_max", 16, 4)]
    rows = [results.Row(point.op, "case", "numba_baracuda kernel", 4_000_000, timing.Timing((2.0,)), copy=4000.0) for point in points]
    rows.append(results.Row("segment_max", "case", "numba_baracuda kernel", 4_000_000, None, "WRONG: 1 of 4"))
    points.append(sweep.Point("length", "segment_max", 16, 8))
    path = tmp_path / "sweep.csv"
    results.write_csv(path, {"gpu": "NVIDIA H200"}, sweep.records(list(zip(points, rows, strict=True))))
    kept = results.read_csv(path)[1]
    assert [row["checked"] for row in kept] == ["yes", "yes", "yes", "WRONG: 1 of 4"]
    assert sweep.curves(kept, "columns") == {"segment_sum": [(1, 50.0), (8, 50.0)]}
    assert sweep.curves(kept, "length") == {"segment_max, 16 columns": [(4, 50.0)]}
    assert sweep.numbers(kept) == {panel: sweep.curves(kept, panel) for panel in ("columns", "length")}


@pytest.mark.gpu
@pytest.mark.memory(2 * (1 << 30) / 1e9 + 0.5)  # the buffers of the copy
def test_whole_run_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cupy")
    path = tmp_path / "ops.csv"
    arguments = ["--tiny", "--op", "segment_sum", "--case", "uniform-2Mx128-S100k", "--against", "cupy", "--repeats", "5", "--csv", str(path)]
    assert run.main(arguments) == 0
    header, rows = results.read_csv(path)
    assert {"gpu", "cuda", "driver", "commit", "copy_gb_s"} <= set(header)
    assert [row["who"].split()[0] for row in rows] == ["numba_baracuda", "cupy"]
    assert all(row["checked"] == "yes" and float(row["low_us"]) <= float(row["median_us"]) <= float(row["high_us"]) for row in rows)
    assert "copy" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.memory(2 * (1 << 30) / 1e9 + 0.5)  # the buffers of the copy
def test_sweep_on_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    pytest.importorskip("matplotlib")
    for name in ("COLUMNS", "COLUMNS_OF_LENGTHS", "LENGTHS"):
        monkeypatch.setattr(sweep, name, (1, 16))
    path, drawing = tmp_path / "sweep.csv", tmp_path / "sweep.png"
    assert sweep.main(["--csv", str(path), "--plot", str(drawing), "--elements", "100000", "--repeats", "3"]) == 0
    rows = results.read_csv(path)[1]
    assert len(rows) == 2 * (2 + 2 * 2) and all(row["checked"] == "yes" and float(row["median_us"]) > 0 for row in rows)
    assert drawing.stat().st_size > 1000
