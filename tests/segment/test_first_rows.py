"""The first row of each segment by atomics, and by a fold of sorted ids: the same rows, and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import samples
from kinds import Kind
from samples import OPS, Sample

from numba_baracuda import SegmentDescriptor
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment import times
from numba_baracuda.segment.policy import Times
from numba_baracuda.segment.recipes import unfit_for_atomics

ELEMENTS = ("f32", "f16", "f64", "i32", "i64")
ROWS, SEGMENTS, FEW = 1100, 520, 6
#: element types by columns: of vectors, of single elements and of one column
CASES = [*((element, 8) for element in ELEMENTS), ("f32", 1), ("f16", 3)]


def problem(element: str, columns: int, segments: int = SEGMENTS) -> tuple[np.ndarray, np.ndarray]:
    """Few distinct values, so that most segments have ties; zeros of both signs, NaN, infinities, or the ends of the range; ids in no order, some
    out of range.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (ROWS, columns)).astype(numpy_dtype(element))
    if x.dtype.kind == "i":
        x[rng.random(x.shape) < 0.2] = np.iinfo(x.dtype).min
        x[rng.random(x.shape) < 0.2] = np.iinfo(x.dtype).max
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.05] = np.nan
        x[rng.random(x.shape) < 0.05] = -0.0
        x[rng.random(x.shape) < 0.2] = -np.inf
        x[rng.random(x.shape) < 0.05] = np.inf
    return x, rng.integers(-3, segments + 3, ROWS).astype(np.int32)


def expected(op: str, x: np.ndarray, ids: np.ndarray, empty: int, segments: int = SEGMENTS) -> np.ndarray:
    """The first row of each segment and column, where NaN is the greatest and the least."""
    found = np.full((segments, x.shape[1]), empty, np.int64)
    for segment in range(segments):
        rows = np.flatnonzero(ids == segment)
        if len(rows):  # NumPy's argmax and argmin are the first, and NaN wins
            found[segment] = rows[(np.argmax if op.endswith("max") else np.argmin)(x[rows], 0)]
    return found


@pytest.mark.parametrize("name", ["atomic_first", "ragged_permuted"])
@pytest.mark.parametrize(("element", "columns"), CASES)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions(kind: Kind, op: str, element: str, columns: int, name: str) -> None:
    table, sample = OPS[f"unsorted_segment_{op}"], Sample("first", ROWS, (columns,), SEGMENTS, element=element)
    variant = next(each for each in table.variants if each.name == name)
    x, ids = problem(element, columns)
    for empty in (None, 7) if columns < 8 else (None,):
        plan = samples.plan_of(table, variant, samples.descriptor(table, sample, empty=empty))
        out = kind.array(np.full((SEGMENTS, columns), 99, np.int64))
        plan.run(input=kind.array(x), segment_ids=kind.array(ids), output=out)
        np.testing.assert_array_equal(kind.numpy(out), expected(op, x, ids, -1 if empty is None else empty))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_positions_of_any_bits(kind: Kind, op: str, element: str) -> None:
    """Numbers of all sizes and signs, subnormal ones and NaN of any payload among them."""
    table, sample = OPS[f"unsorted_segment_{op}"], Sample("first", ROWS, (2,), SEGMENTS, element=element)
    rng, dtype = np.random.default_rng(3), numpy_dtype(element)
    x = rng.integers(0, 256, (ROWS, 2 * dtype.itemsize), np.uint8).view(dtype)
    if dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            x[rng.random(x.shape) < 0.2] *= np.finfo(dtype).tiny
    ids = rng.integers(0, SEGMENTS, ROWS).astype(np.int32)
    variant, out = next(each for each in table.variants if each.name == "atomic_first"), kind.array(np.full((SEGMENTS, 2), 99, np.int64))
    samples.plan_of(table, variant, samples.descriptor(table, sample)).run(input=kind.array(x), segment_ids=kind.array(ids), output=out)
    np.testing.assert_array_equal(kind.numpy(out), expected(op, x, ids, -1))


@pytest.mark.parametrize(("element", "columns"), [each for each in CASES if each[0].startswith("f")])
@pytest.mark.parametrize("segments", [SEGMENTS, FEW])
@pytest.mark.parametrize("op", ["max", "min"])
def test_gradients(kind: Kind, op: str, segments: int, element: str, columns: int) -> None:
    """By a fold and by atomics, broadcast to rows, or stored at few of them over zeros."""
    table, sample = OPS[f"unsorted_segment_{op}_backward"], Sample("first", ROWS, (columns,), segments, element=element)
    x, ids = problem(element, columns, segments)
    given = np.random.default_rng(1).integers(1, 9, (segments, columns)).astype(x.dtype)
    wanted = np.zeros_like(x)
    first = expected(op, x, ids, -1, segments)
    for segment, column in np.argwhere(first >= 0):
        wanted[first[segment, column], column] = given[segment, column]
    for row in (0.0, 1e12):
        with using(Times, update_row=row, launches=0.0):
            plan = samples.plan_of(table, table.variants[0], samples.descriptor(table, sample))
            out = kind.array(np.full_like(x, 99))
            plan.run(d_output=kind.array(given), input=kind.array(x), segment_ids=kind.array(ids), d_input=out)
        np.testing.assert_array_equal(kind.numpy(out), wanted)


@pytest.mark.parametrize("element", ["f32", "f16", "f64"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_nan_of_any_bits(kind: Kind, op: str, element: str) -> None:
    """NaN wins also where its bits are those that atomics start from, and where it is the first to arrive."""
    dtype = numpy_dtype(element)
    words: Any = np.dtype(f"u{dtype.itemsize}")
    bits = np.array([words.type(-1 & (1 << 8 * dtype.itemsize) - 1), words.type((1 << 8 * dtype.itemsize - 1) - 1)], words)
    x = np.concatenate([bits.view(dtype), np.ones(2, dtype)])[:, None]
    ids = np.array([0, 1, 1, 0], np.int32)
    for order in ([0, 1, 2, 3], [2, 3, 0, 1], [0, 1]):
        name = f"unsorted_segment_{op}"
        variant = next(each for each in OPS[name].variants if each.name == "atomic_exact")
        sample = Sample("nan", len(order), (1,), 3, element=element)
        out = kind.array(np.ones((3, 1), dtype))
        given = {"input": kind.array(x[order]), "segment_ids": kind.array(ids[order])}
        samples.plan_of(OPS[name], variant, samples.descriptor(OPS[name], sample)).run(**given, output=out)
        assert np.isnan(kind.numpy(out)[:2]).all()


@pytest.mark.parametrize(
    ("rows", "columns", "segments", "indexed", "loses"),
    [
        (60_000_000, 1, 2_000_000, "", False), (60_000_000, 1, 500, "", True), (4_000_000, 128, 100_000, "", True),
        (4_000_000, 1, 100_000, "permuted", False), (4_000_000, 32, 100_000, "permuted", True),
    ],
)  # fmt: skip
def test_choice(rows: int, columns: int, segments: int, indexed: str, loses: bool) -> None:
    """Atomics win where rows are narrow, since a permutation reads as much for short rows as for longer ones."""
    descriptor = SegmentDescriptor("unsorted_segment_argmax", rows, columns, segments, indexed=indexed)
    op = OPS["unsorted_segment_argmax"]
    assert (times.first(op, descriptor) > times.permuted(op, descriptor)) is loses


def test_rows_that_no_position_tells_apart() -> None:
    op, most = OPS["unsorted_segment_argmax"], 0x7F7F7F7F
    assert "fewer than" in str(unfit_for_atomics(op, SegmentDescriptor(op.name, most, 1, 2)))
    assert unfit_for_atomics(op, SegmentDescriptor(op.name, most - 1, 1, 2)) is None
