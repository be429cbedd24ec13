"""Counts of ids in any order: where they are made, and that they are right."""

from __future__ import annotations

import numpy as np
import pytest
from samples import OPS

import numba_baracuda as nb
from numba_baracuda import SegmentDescriptor
from numba_baracuda.core.op import Launch, Target
from numba_baracuda.emulator import emulator as emulation
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment.kernels import count_few_ids
from numba_baracuda.segment.ops import contiguous
from numba_baracuda.segment.policy import CountFewIds, CountIds
from numba_baracuda.segment.tiling import few_counted_launch

CARD = Target((9, 0), 132, 50 << 20)
FEW = CountFewIds()
RANGE = FEW.shared_bytes_per_block // 4  #: segments of a range at most
MOST = FEW.max_ranges * RANGE
RESIDENT = FEW.grid_blocks_per_multiprocessor * CARD.multiprocessors
TILE = FEW.threads_per_block * FEW.items_per_thread


@pytest.mark.parametrize(
    ("rows", "segments", "kernel", "blocks"),
    [
        (2_700_000, 721, "count_few_ids", RESIDENT),
        (FEW.min_rows_per_segment * MOST, MOST, "count_few_ids", RESIDENT),
        (FEW.min_rows_per_segment * (RANGE + 1), RANGE + 1, "count_few_ids", RESIDENT),
        (FEW.min_rows_per_segment * MOST - 1, MOST, "count_ids", CountIds().grid_blocks_per_multiprocessor * CARD.multiprocessors),
        (2_700_000, MOST + 1, "count_ids", CountIds().grid_blocks_per_multiprocessor * CARD.multiprocessors),
        (FEW.min_rows_per_segment, 1, "count_few_ids", 1),
        (FEW.min_rows_per_segment - 1, 1, "count_ids", 1),
        (0, 721, "count_ids", 0),
    ],
)
@pytest.mark.parametrize("op", ["unsorted_segment_mean", "unsorted_segment_mean_backward"])
def test_where_ids_are_counted(op: str, rows: int, segments: int, kernel: str, blocks: int) -> None:
    """In shared memory where the counts fit and a mean segment has many rows."""
    row, descriptor = OPS[op], SegmentDescriptor(op, rows, 4, segments)
    variant = next(each for each in row.variants if each.name in ("atomic", "gather"))
    recipe = variant.recipe(row, descriptor, {operand.name: contiguous(operand, descriptor) for operand in row.operands}, CARD)
    launches = {step.spec.factory.partition(":")[2]: step for step in recipe.steps if isinstance(step, Launch)}
    if rows == 0 and op.endswith("backward"):
        assert launches == {}
        return
    assert {"count_ids", "count_few_ids"} & set(launches) == {kernel}
    assert launches[kernel].config[0] == blocks
    ranges = -(-segments // RANGE)
    assert launches[kernel].config[2] == (4 * -(-segments // ranges) if kernel == "count_few_ids" else 0)


@pytest.mark.parametrize("segments", [9, RANGE + 1, MOST])
def test_a_block_has_fewer_rows_than_32_bits_count(segments: int) -> None:
    for multiprocessors in (4, 132):
        for rows in (1, TILE, (1 << 31) - 1, 1 << 31, (1 << 31) + TILE, 1 << 36, 1 << 45):
            (blocks, threads, _), _, ranges = few_counted_launch(FEW, rows, segments, multiprocessors)
            blocks //= ranges
            turns = -(-rows // (blocks * threads * FEW.items_per_thread))
            assert turns * threads * FEW.items_per_thread < 1 << 31


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("rows", "segments", "crowd", "step"),
    [(9000, 30, 0.0, 1), (9000, 30, 0.9, 1), (5000, 78, 0.3, 2), (64, 1, 0.0, 1), (63, 1, 0.0, 1), (700, 90, 0.5, 1)],
)
def test_means_against_numpy(index: type, rows: int, segments: int, crowd: float, step: int) -> None:
    """``crowd`` is the share of rows in one segment; some ids are out of range, and some segments have no rows."""
    rng = np.random.default_rng(rows)
    ids = np.where(rng.random(rows) < crowd, segments // 2, rng.integers(-2, segments + 2, rows)).astype(index)
    ids[ids == 1] = 0
    there = (ids >= 0) & (ids < segments)
    counts = np.bincount(ids[there], minlength=segments)
    lying = np.repeat(ids, step)[::step]
    x = np.ones((rows, 1), np.float32)
    d_output = rng.standard_normal((segments, 1)).astype(np.float32)
    got = nb.unsorted_segment_mean_backward(d_output, lying)
    quotients = d_output / np.maximum(counts, 1)[:, None]
    np.testing.assert_allclose(got, np.where(there[:, None], quotients[np.where(there, ids, 0)], 0), rtol=1e-6)
    mean = nb.unsorted_segment_mean(x, lying, segments, deterministic=False, empty=-7)
    np.testing.assert_array_equal(mean[:, 0], np.where(counts > 0, 1, -7))


def test_calls_of_many_sizes() -> None:
    """Sizes on both sides of the choice, most of which a program serves that calls of other sizes have left."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        rows, segments = int(rng.integers(1, 900)), int(rng.integers(1, 12))
        ids, d_output = rng.integers(0, segments, rows), rng.standard_normal((segments, 1)).astype(np.float32)
        got = nb.unsorted_segment_mean_backward(d_output, ids)
        np.testing.assert_allclose(got, (d_output / np.maximum(np.bincount(ids, minlength=segments), 1)[:, None])[ids], rtol=1e-6)


def test_counts_are_added_exactly() -> None:
    """64-bit counts that are not 0 at first, by blocks that take several turns and begin at segments of their own."""
    kernel = count_few_ids(index="i64", count="i64", threads_per_block=32, items_per_thread=2)
    ids = np.random.default_rng(1).integers(-3, 203, 1000)
    counts = np.full(200, 1 << 40)
    emulation.run(kernel.py_func, kernel.types, 6, 32, [ids, counts, 1000, 200, 1, 100, 2], dynamic_shared=400, mode=emulation.Mode(1))
    np.testing.assert_array_equal(counts - (1 << 40), np.bincount(ids[(ids >= 0) & (ids < 200)], minlength=200))


def test_measurements_replace_the_choice() -> None:
    descriptor = SegmentDescriptor("unsorted_segment_mean_backward", 2_700_000, 4, 721)
    row = OPS["unsorted_segment_mean_backward"]
    with using(CountFewIds, threads_per_block=256, grid_blocks_per_multiprocessor=1):
        layouts = {operand.name: contiguous(operand, descriptor) for operand in row.operands}
        launch = row.variants[0].recipe(row, descriptor, layouts, CARD).steps[1]
    assert isinstance(launch, Launch)
    assert (*launch.config[:2], dict(launch.spec.constants)["threads_per_block"]) == (132, 256, 256)
