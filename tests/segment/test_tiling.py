"""Geometry: how rows and columns are dealt to lanes, and which kernel a layout gets."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from samples import OPS

from numba_baracuda import PlanPreference, SegmentDescriptor, select
from numba_baracuda.algebra import monoid_of
from numba_baracuda.core.axes import ceil_div
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.core.op import NULL, Launch, Layout, Target
from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.plans.tuning import using
from numba_baracuda.segment import policy, policy_of
from numba_baracuda.segment.flat_tiling import broadcast_tile, flat_height, flat_ids, flat_lanes, flat_tile
from numba_baracuda.segment.kernels import fold_and_broadcast_runs
from numba_baracuda.segment.ops import contiguous
from numba_baracuda.segment.staged_tiling import (
    STAGED_ROWS,
    held_bytes,
    held_rows,
    staged_columns,
    staged_rows,
    staged_runs_bytes,
    staged_runs_columns,
    staged_runs_rows,
)
from numba_baracuda.segment.tiling import GAP, Tiling, gap_blocks, half_reciprocal_of, lanes_for, reciprocal_of
from numba_baracuda.segment.waves import even_steps

CARD = Target((9, 0), 132, 50 << 20)
_FOLDS = [f"unsorted_segment_{kind}" for kind in ("sum", "var", "logsumexp", "argmax", "norm2")]
FLAT_COLUMNS = policy.GatherFlat.max_columns


@pytest.mark.parametrize(("threads", "widest"), [(128, 128), (256, 128), (1024, 32)])
def test_lanes(threads: int, widest: int) -> None:
    """Groups cover the columns, fit the block, and leave no more than a third of it idle; powers of two leave nothing."""
    for needed in range(1, 700):
        lanes = lanes_for(needed, threads, widest)
        chunks = ceil_div(needed, lanes)
        assert 1 <= lanes <= widest and chunks * lanes >= needed
        assert needed * (threads // lanes) / (chunks * threads) > 2 / 3
    assert [lanes_for(1 << k, threads, widest) for k in range(6)] == [1, 2, 4, 8, 16, 32]


def test_rows_are_covered_once() -> None:
    for rows in (1, 255, 256, 257, 10_000, 1 << 31):
        narrow = Tiling.of_narrow(policy.FoldNarrow(), rows, 132)
        assert narrow.tile % 256 == 0
        assert (narrow.row_blocks - 1) * narrow.groups * narrow.tile < rows <= narrow.row_blocks * narrow.groups * narrow.tile
        shape = Tiling.of(policy.FoldTiles(), rows, 37, 1, 4, 132)
        assert (shape.row_blocks - 1) * shape.groups * shape.tile < rows <= shape.row_blocks * shape.groups * shape.tile


def test_tiles_of_short_runs_are_short() -> None:
    """Of wide states blocks have more rows, so that carries stay few; no tile is longer than others are; and the workspace has room for carries.

    Where there is much to read besides, tiles are as long as others.
    """
    plan = policy.FoldTiles()
    for columns, vector, itemsize, state_bytes in ((128, 4, 4, 4), (491, 3, 2, 12), (300, 1, 2, 8)):
        rows = 400_000
        usual, short = (Tiling.of(plan, rows, columns, vector, itemsize, 132, each) for each in (0, state_bytes))
        least = max(plan.short_tile_rows, plan.carry_rows * state_bytes / itemsize / short.groups)
        assert short.tile < usual.tile and short.groups == usual.groups and 0.9 * least <= short.tile <= least + 8
        assert short.entries <= Tiling.most_entries(plan, rows, 132, short=True)
        many = 2 * usual.tile * plan.run_bytes // (columns * itemsize)
        assert Tiling.of(plan, many, columns, vector, itemsize, 132, state_bytes) == Tiling.of(plan, many, columns, vector, itemsize, 132)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_stages_are_multiples_of_pieces(itemsize: int) -> None:
    """Rows and ids of a stage are multiples of 16 bytes, tiles cover the rows once, and a product and a shift find the run and column of an item."""
    plan = policy.FoldStaged()
    for columns, id_bytes in itertools.product((1, 2, 3, 5, 11, 49, 141, 265, 512), (4, 8)):
        stage = staged_rows(plan, columns * itemsize, id_bytes, itemsize, 1 << 31, 132)
        assert stage <= 1024 and stage * columns * itemsize % 16 == 0 and stage * id_bytes % 16 == 0
        if stage:
            for rows in (1, 255, 256, 257, 10_000, 1 << 31):
                shape = Tiling.of_staged(plan, rows, stage, 132)
                assert shape.groups == plan.threads_per_block // 32 and shape.tile % stage == 0
                assert (shape.row_blocks - 1) * shape.groups * shape.tile < rows <= shape.row_blocks * shape.groups * shape.tile
                assert shape.entries <= Tiling.most_entries(policy.FoldTiles(), rows, 132)
            items = np.arange((stage + 1) * columns, dtype=np.uint64)
            np.testing.assert_array_equal(items * np.uint64(half_reciprocal_of(columns)) >> np.uint64(31), items // np.uint64(columns))


def test_stages_are_shorter_where_rows_are_few() -> None:
    plan = policy.FoldStaged()
    usual, few = (staged_rows(plan, 192, 4, 4, rows, 132) for rows in (1 << 20, 10_000))
    assert few < usual and few % 4 == 0
    assert all(staged_rows(plan, columns * 8, 4, 8, 100, 132) == staged_rows(plan, columns * 8, 8, 8, 100, 132) for columns in (1, 3, 17))
    assert Tiling.of_staged(plan, 10_000, few, 132).row_blocks >= 132 > Tiling.of_staged(plan, 10_000, usual, 132).row_blocks


@pytest.mark.parametrize(
    ("fewest", "resident", "longer", "changes"),
    [
        (16 * 132, 6 * 132, False, "="), (16 * 132, 6 * 132, True, "=+"), (16 * 132, 3 * 132, False, "="), (16 * 132, 3 * 132, True, "=+"),
        (2 * 132, 8 * 132, False, "-="), (2 * 132, 8 * 132, True, "-="), (2 * 132, 0, False, "="), (2 * 132, 0, True, "="),
    ],
)  # fmt: skip
def test_waves_of_blocks_are_about_full(fewest: int, resident: int, longer: bool, changes: str) -> None:
    """Blocks take about no longer than with the usual number of steps; where they may, of some waves less than a quarter is idle."""
    idle, changed = [], set()
    for blocks in [1, 131, 133, 792, *range(1000, 60_000, 331)]:
        steps, usual = even_steps(blocks, fewest, resident, 16, longer=longer), min(16, max(1, blocks // fewest))
        assert usual / 2 <= steps <= (min(16, usual + 7) if longer else usual)
        changed.add("-=+"[(steps > usual) - (steps < usual) + 1])
        if not resident:
            continue
        used, usually = (ceil_div(ceil_div(blocks, each), resident) * each for each in (steps, usual))
        assert used <= 1.15 * usually and (steps >= usual or 2 * blocks < 5 * resident * usual)
        idle.append(1 - blocks / (used * resident) if blocks >= 2.5 * resident * usual else 0.0)
    assert changed == set(changes)
    assert max(idle, default=0.0) < (0.25 if longer else 0.34)


def test_columns_of_a_lane_of_staged_rows() -> None:
    """Lanes have all columns once, and few places behind a row's end; where a row is shared by lanes, half of a warp is busy at least."""
    plan = policy.FoldStaged()
    assert [staged_columns(plan, columns, vector, True) for columns, vector in ((48, 8), (50, 2), (9, 1), (3, 1))] == [(4, 0), (2, 0), (1, 0), (3, 1)]
    assert [staged_columns(plan, columns, vector, True, True) for columns, vector in ((48, 8), (36, 4), (50, 2))] == [(8, 0), (4, 0), (7, 1)]
    assert staged_columns(plan, 33, 1, False) == (1, 0)
    assert [staged_columns(plan, columns, 1, True, short=short) for columns, short in ((13, False), (13, True), (8, True), (17, True))] == [
        (1, 0),
        (4, 4),
        (1, 0),
        staged_columns(plan, 17, 1, True),
    ]
    assert [staged_columns(plan, columns, vector, True, True) for columns, vector in ((9, 1), (10, 2), (11, 1), (12, 4))] == [
        (9, 1),
        (5, 1),
        (6, 1),
        (4, 0),
    ]
    for columns, halves in itertools.product(range(17, 128), (False, True)):
        count, apart = staged_columns(plan, columns, 1, True, halves)
        lanes = ceil_div(columns, count)
        assert apart == (1 if halves else lanes) and count in (range(5, 10) if halves else (3, 4)) and lanes * (count - 1) < columns <= count * lanes
        used = lanes << (32 // lanes).bit_length() - 1 if lanes <= 32 else lanes
        assert 2 * used >= 32 * ceil_div(used, 32)


@pytest.mark.parametrize(
    ("op", "columns", "rows_each", "apart"),
    [("var", 21, 6, 7), ("var", 21, 7, 0), ("std", 13, 2, 4), ("norm2", 127, 2, 32), ("norm2", 129, 2, None), ("var", 3, 100, 1), ("var", 22, 2, 0)],
)
def test_lanes_of_states_of_several_scalars_have_columns_apart_in_short_segments(op: str, columns: int, rows_each: int, apart: int | None) -> None:
    launch, *_ = _launches(f"segment_{op}", columns, segments=(1 << 20) // rows_each + 1)
    assert (dict(launch.spec.constants)["apart"] if launch.spec.kernel == "fold_staged" else None) == apart


def test_blocks_take_turns_where_multiprocessors_stay_busy() -> None:
    for rows, columns, turns in ((1, 128, 1), (30_000, 128, 1), (40_000, 128, 2), (2_000_000, 128, 16), (2_000_000, 4096, 16)):
        shape = Tiling(rows, columns, 4, 2)
        blocks = shape.persistent_launch(policy.BroadcastToRows(), 132)[0]
        assert blocks % shape.chunks == 0
        assert ceil_div(shape.row_blocks, blocks // shape.chunks) == turns
        assert blocks // shape.chunks >= min(shape.row_blocks, 8 * 132)
    assert Tiling(2_000_000, 128, 4, 1).persistent_launch(policy.BroadcastToRows(), 132)[0] == 250_000 // 32 + 1


@pytest.mark.parametrize(
    ("monoid", "itemsize", "vector", "rows"),
    [
        ("sum", 4, 4, 8), ("sum", 4, 1, 16), ("softmax", 4, 4, 8), ("softmax", 2, 8, 8), ("scaled_prod", 4, 4, 4), ("scaled_prod", 4, 1, 8),
        ("first_max", 2, 2, 8), ("first_max", 4, 4, 8), ("dot", 2, 2, 8), ("dot", 4, 2, 4), ("softmax", 8, 2, 4), ("softmax", 2, 1, 16),
        ("var", 4, 4, 8), ("var", 8, 2, 8), ("moments", 2, 8, 8), ("moments", 4, 1, 16), ("scaled_norm2", 2, 3, 8), ("scaled_norm2", 4, 4, 4),
    ],
)  # fmt: skip
def test_rows_in_flight(monoid: str, itemsize: int, vector: int, rows: int) -> None:
    """Fewer where the states of a lane are large, unless they are sums about a pivot."""
    assert policy_of.fold_items(itemsize * vector, 4, vector, monoid_of(monoid)) == rows


@pytest.mark.parametrize("element", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("index", ["i32", "i64"])
def test_flat_tiles(element: str, index: str) -> None:
    """A tile is a multiple of 16 bytes, and fits in shared memory with its ids; large problems have whole rounds of a block's threads."""
    flat, size = policy.GatherFlat(), BY_NAME[element].itemsize
    for columns, vector in itertools.product((*range(1, 70), *range(71, FLAT_COLUMNS + 1, 97), FLAT_COLUMNS), (1, 2, 4)):
        lanes, lane_vectors = flat_lanes(columns, vector)
        together = flat_height(element, vector, lane_vectors) * flat.threads_per_block // lanes
        assert lanes > 1 or lane_vectors * vector >= columns
        for rows in (1, 5000, 1 << 26):
            tile = flat_tile(flat, rows, columns, element, index, 132, together)
            assert tile % BY_NAME[element].vector == 0 and 0 < tile * columns * size <= flat.tile_bytes and tile <= flat_ids(index)
        assert tile % together == 0 or together * columns * size > flat.tile_bytes


@pytest.mark.parametrize("items", [1, 2, 4, 8])
def test_broadcasts_divide_exactly(items: int) -> None:
    """Product and shift give the row of every element that a tile may have, counted from the begin of the tile's first row, for rows of all widths.

    They do if 2^32 exceeds the place times that by which the product of the columns and their reciprocal exceeds 2^32.
    """
    flat = replace(policy.BroadcastFlat(), items_per_thread=items)
    tile = max(broadcast_tile(flat, elements, vector, 132) for elements in (1, 1 << 40) for vector in (1, 2, 4, 8))
    columns = np.arange(2, flat.max_columns + 1, dtype=np.uint64)
    reciprocals = (np.array([reciprocal_of(int(each)) for each in columns], np.uint64) - np.uint64(1) >> np.uint64(31)) + np.uint64(1)
    excess = reciprocals * columns - np.uint64(1 << 32)
    assert np.all(excess > 0) and np.all(excess * (columns + np.uint64(tile)) < 1 << 32)
    for at in (*range(12), *range(12, columns.size, 2731), columns.size - 1):
        places = np.arange(tile + columns[at], dtype=np.uint64)
        np.testing.assert_array_equal(places * reciprocals[at] >> np.uint64(32), places // columns[at])
        for begin in (0, 1, int(columns[at]) - 1, (1 << 40) + 1, (1 << 47) // int(columns[at]) * int(columns[at]) - 1, 1 << 47):
            assert begin * reciprocal_of(int(columns[at])) >> 63 == begin // int(columns[at])


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_tiles_of_staged_runs(itemsize: int) -> None:
    """Rows and ids of a tile, and of what may lie behind it, are multiples of 16 bytes and fit a block, or there is no tile; and the lanes of a row
    have each of its columns once.
    """
    for columns, id_bytes, long_rows in itertools.product(range(1, 65), (4, 8), (16, 64, 128)):
        plan, row_bytes, unit = policy.FoldAndBroadcastStaged(long_rows=long_rows), columns * itemsize, 16 // min(itemsize, id_bytes)
        tile, reach = staged_runs_rows(plan, row_bytes, id_bytes, itemsize)
        assert tile % unit == reach % unit == 0 < reach and tile + reach <= STAGED_ROWS
        assert (staged_runs_bytes(tile or unit, reach, row_bytes, id_bytes) <= plan.shared_bytes_per_block) == (tile > 0)
        width, vector, apart = staged_runs_columns(policy.FoldAndBroadcastStaged(columns_per_thread={16: 1, 64: 2, 128: 3}[long_rows]), columns)
        # behind the row's end is at most the second of two columns
        taken = [lane + k * width if apart else lane * vector + k for lane in range(width) for k in range(vector)]
        assert sorted(each for each in taken if each < columns) == list(range(columns))
        assert max(taken) < columns or (apart and vector == 2 and max(taken) == columns)
        assert apart or columns % vector == 0


def _launches(
    op: str, columns: int, address: int = 0, step: int = 0, rows: int = 1 << 20, segments: int = 1 << 14, variant: str = "",
    element: str = "f32", index: str = "i32",
) -> list[Launch]:  # fmt: skip
    """The launches of a variant, by default the first, for values ``address`` bytes behind a multiple of 16, rows ``step`` elements apart."""
    row, descriptor = OPS[op], SegmentDescriptor(op, rows, columns, segments, element, index)
    layouts: dict[str, Layout] = {}
    for operand in row.operands:
        layout = contiguous(operand, descriptor)
        layouts[operand.name] = layout if operand.index else Layout(layout.shape, (step or columns, 1), address)
    chosen = next(each for each in row.variants if variant in ("", each.name))
    return [each for each in chosen.recipe(row, descriptor, layouts, CARD).steps if isinstance(each, Launch)]


@pytest.mark.parametrize(
    ("op", "element", "mixed_rows"),
    [
        ("var", "f32", "mixed_heavy_rows"),
        ("sum", "bf16", "mixed_segment_rows"),
        ("var", "f64", "mixed_heavy_rows"),
        ("sum", "f32", ""),
        ("argmax", "f32", "mixed_segment_rows"),
        ("var", "bf16", "mixed_segment_rows"),
    ],
)
@pytest.mark.parametrize("columns", [128, 1000])
def test_tiles_by_the_length_of_segments(op: str, element: str, mixed_rows: str, columns: int) -> None:
    """Tiles of halves, and with states of several scalars, are longer in long segments, and shorter where segments may be long and short ones; and
    the workspace has room for carries.
    """
    plan, rows = policy.FoldTiles(), 1 << 25
    least_rows = getattr(plan, mixed_rows or "mixed_segment_rows")
    counts = rows // plan.long_segment_rows, rows // least_rows, rows // least_rows + 1
    long, usual, mixed = (_launches(f"segment_{op}", columns, rows=rows, segments=each, element=element)[0].arguments for each in counts)
    assert (int(long["tile"]) > 1.5 * int(usual["tile"]) > 2 * int(mixed["tile"])) == bool(mixed_rows)
    assert 2 * mixed["row_blocks"] <= Tiling.most_entries(plan, rows, CARD.multiprocessors, halves=1)


@pytest.mark.parametrize(
    ("op", "columns", "options", "kernel"),
    [
        ("segment_sum", 1, {}, "fold_narrow"),
        ("segment_mean", 4, {}, "fold_narrow"),
        ("segment_sum", 1, {"segments": 1 << 17}, "fold_short_runs"),
        ("segment_logsumexp", 4, {"segments": 1 << 17}, "fold_short_runs"),
        ("segment_sum", 3, {"address": 4}, "fold_tiles"),
        ("segment_sum", 3, {"step": 5}, "fold_tiles"),
        ("segment_sum", 5, {}, "fold_staged"),
        ("segment_sum", 5, {"address": 4}, "fold_tiles"),
        ("segment_sum", 5, {"step": 6}, "fold_tiles"),
        ("segment_sum", 8, {}, "fold_staged"),
        ("segment_sum", 63, {}, "fold_staged"),
        ("segment_sum", 64, {}, "fold_tiles"),
        ("segment_norm2", 8, {}, "fold_staged"),
        ("segment_norm2", 2, {}, "fold_narrow"),
        ("segment_var", 3, {}, "fold_staged"),
        ("segment_var", 2, {"segments": 1 << 17}, "fold_staged"),
        ("segment_argmax", 33, {"segments": 1 << 17}, "fold_staged"),
        ("segment_argmax", 47, {}, "fold_staged"),
        ("segment_argmax", 49, {}, "fold_tiles"),
        ("segment_argmax", 49, {"segments": 1 << 17}, "fold_staged"),
        ("segment_argmax", 63, {"element": "bf16"}, "fold_staged"),
        ("segment_argmax", 65, {"element": "bf16"}, "fold_tiles"),
        ("segment_var", 55, {"element": "bf16"}, "fold_staged"),
        ("segment_var", 55, {"element": "bf16", "segments": 1 << 13}, "fold_tiles"),
        ("segment_var", 57, {"element": "bf16"}, "fold_tiles"),
        ("segment_sum", 223, {"element": "bf16", "segments": 1 << 10}, "fold_staged"),
        ("segment_sum", 225, {"element": "bf16"}, "fold_tiles"),
        ("segment_sum", 66, {"element": "bf16"}, "fold_staged"),
        ("segment_sum", 66, {"element": "bf16", "segments": 1 << 13}, "fold_tiles"),
        ("segment_argmax", 34, {}, "fold_tiles"),
        ("segment_argmax", 34, {"segments": 1 << 17}, "fold_staged"),
        ("segment_argmax", 30, {}, "fold_staged"),
        ("segment_logsumexp", 24, {}, "fold_tiles"),
        ("segment_logsumexp", 24, {"segments": 1 << 17}, "fold_staged"),
        ("segment_logsumexp", 24, {"segments": 1 << 17, "element": "f64"}, "fold_tiles"),
        ("segment_logsumexp", 15, {"segments": 1 << 17, "element": "f64"}, "fold_staged"),
        ("segment_logsumexp", 15, {"segments": 1 << 10, "element": "f64"}, "fold_tiles"),
        ("segment_logsumexp", 15, {"segments": 1 << 10}, "fold_staged"),
        ("segment_logsumexp", 20, {"segments": 1 << 10}, "fold_tiles"),
        ("segment_logsumexp", 31, {"segments": 1 << 10}, "fold_staged"),
        ("segment_logsumexp", 17, {"segments": 1 << 10, "element": "bf16"}, "fold_staged"),
        ("segment_logsumexp", 16, {"segments": 1 << 10, "element": "bf16"}, "fold_tiles"),
        ("segment_sum", 62, {"element": "bf16"}, "fold_staged"),
        ("segment_sum", 64, {"element": "bf16"}, "fold_tiles"),
        ("segment_argmax", 8, {}, "fold_staged"),
        ("segment_argmax", 341, {}, "fold_tiles"),
        ("segment_var", 67, {}, "fold_tiles"),
        ("segment_var", 82, {}, "fold_staged"),
        ("segment_norm2", 265, {}, "fold_tiles"),
        ("segment_softmax_backward", 2, {}, "fold_narrow"),
        ("segment_softmax_backward", 2, {"address": 4}, "fold_tiles"),
        ("segment_softmax_backward", 2, {"step": 3}, "fold_tiles"),
        ("segment_softmax_backward", 31, {"segments": 64}, "fold_tiles"),
        ("segment_softmax_backward", 28, {"segments": 64}, "fold_staged"),
        ("segment_softmax_backward", 32, {"segments": 64}, "fold_tiles"),
        ("segment_sum_backward", 1, {}, "gather_elements"),
        ("segment_sum_backward", 37, {}, "broadcast_flat"),
        ("segment_sum_backward", 37, {"step": 38}, "gather_runs"),
        ("segment_sum_backward", 37, {"address": 8}, "gather_runs"),
        ("segment_sum_backward", 36, {}, "gather_runs"),
        ("segment_sum_backward", 28, {}, "gather_rows"),
        ("segment_sum_backward", FLAT_COLUMNS + 1, {}, "gather_runs"),
        ("unsorted_segment_sum_backward", 37, {}, "gather_flat"),
        ("unsorted_segment_sum_backward", 3, {}, "gather_rows"),
        ("unsorted_segment_sum_backward", 37, {"step": 38}, "gather_rows"),
        ("unsorted_segment_sum_backward", 36, {}, "gather_rows"),
    ],
)
def test_kernel_of_a_layout(op: str, columns: int, options: dict[str, int], kernel: str) -> None:
    assert _launches(op, columns, **options)[0].spec.factory.endswith(f":{kernel}")


def _shared_bytes(spec: KernelSpec) -> int:
    """Bytes of shared memory of a spec of ``fold_short_runs``, by its constants."""
    given = dict(spec.constants)
    monoid, state = monoid_of(given["monoid"]), BY_NAME[given["value"]].accumulator
    states = given["columns"] * monoid.width * BY_NAME[monoid.kind or state].itemsize
    return policy_of.short_run_bytes(given.get("threads_per_block", policy.FoldShortRuns.threads_per_block), given["share"], states, given["index"])


def test_states_of_short_runs_fit() -> None:
    """A kernel may have 48 KiB of shared memory whose size it knows."""
    specs = [each for each in kernel_specs() if each.factory.endswith(":fold_short_runs")]
    for op, columns, element, index in itertools.product(_FOLDS, range(1, 17), ("f32", "f16", "f64"), ("i32", "i64")):
        for segments in (1 << 12, 1 << 18):
            specs += [each.spec for each in _launches(op, columns, segments=segments, variant="ragged_permuted", element=element, index=index)]
            specs += [each.spec for each in _launches(op.removeprefix("unsorted_"), columns, segments=segments, element=element, index=index)]
    found = {each for each in specs if each.factory.endswith(":fold_short_runs")}
    assert len({dict(each.constants)["share"] for each in found}) == 3
    assert all(_shared_bytes(each) <= 48 << 10 for each in found)


@pytest.mark.parametrize("segments", [1 << 11, 1 << 15, 1 << 18, 1 << 20])
@pytest.mark.parametrize(("row_bytes", "given_bytes"), [(96, 384), (400, 800), (1024, 512), (40000, 40000)])
def test_segments_that_a_block_holds(row_bytes: int, given_bytes: int, segments: int) -> None:
    """A tile leaves room for one and a half segments behind it; rows and what is given take little more than they may, or nothing is held."""
    plan, rows = policy.FoldAndBroadcast(), 1 << 20
    tile, room, most = held_rows(plan, row_bytes, given_bytes, rows, segments, plan.threads_per_block - 1)
    fits = 3 * rows // segments * row_bytes < 0.5 * plan.most_held_bytes and 3 * rows // segments < plan.threads_per_block
    assert room or not fits
    if room:
        assert 0 < tile <= room - rows // segments and 3 * rows <= room * segments and room < plan.threads_per_block and 0 < most <= room
        assert held_bytes(room, row_bytes, 1, most, given_bytes) <= plan.most_held_bytes + 5 * given_bytes + 32


@pytest.mark.parametrize(
    ("op", "columns", "segments", "kernels"),
    [
        ("segment_max_backward", 1, 1 << 14, ["fold_narrow", "scatter_to_winners"]),
        ("segment_max_backward", 1, 1 << 18, ["fold_short_runs", "broadcast_to_elements"]),
        ("segment_max_backward", 2, 1 << 14, ["fold_narrow", "scatter_to_winners"]),
        ("segment_max_backward", 2, 1 << 16, ["fold_narrow", "broadcast_flat"]),
        ("segment_mean_backward", 1, 1 << 14, ["gather_means"]),
        ("segment_mean_backward", 1, (1 << 14) - 1, ["bound_short_segments", "finish_rows", "gather_elements"]),
        ("segment_mean_backward", 1, 1 << 13, ["bound_segments", "finish_rows", "gather_elements"]),
        ("segment_mean_backward", 36, 1 << 13, ["bound_segments", "gather_runs"]),
        ("segment_mean_backward", 36, 1 << 16, ["bound_short_segments", "gather_runs"]),
        ("segment_mean_backward", 37, 1 << 13, ["bound_segments", "finish_flat", "broadcast_flat"]),
        ("segment_mean_backward", 37, 1 << 17, ["bound_short_segments", "finish_flat", "broadcast_flat"]),
        ("segment_mean_backward", 37, 1 << 18, ["bound_short_segments", "broadcast_flat"]),
        ("segment_mean_backward", 37, 1 << 21, ["bound_short_segments", "broadcast_flat"]),
        ("unsorted_segment_mean_backward", 36, 1 << 15, ["count_ids", "finish_flat", "gather_rows"]),
        ("unsorted_segment_mean_backward", 36, 1 << 14, ["count_few_ids", "finish_flat", "gather_rows"]),
        ("unsorted_segment_max_backward", 2, 1 << 14, ["fill_rows", "scatter_rows", "finish_positions", "fill_elements", "scatter_to_winners"]),
        ("unsorted_segment_max_backward", 2, 1 << 18, ["fill_rows", "scatter_rows", "finish_positions", "broadcast_flat"]),
        ("unsorted_segment_max_backward", 97, 1 << 9, ["sort_keys", "fold_tiles", "fill_elements", "scatter_to_winners"]),
        ("segment_std_backward", 17, 1 << 18, ["fold_and_broadcast_staged", "fold_staged", "broadcast_flat"]),
        ("segment_std_backward", 17, 1 << 20, ["fold_staged", "broadcast_flat"]),
        ("segment_std_backward", 36, 1 << 18, ["fold_and_broadcast_staged", "fold_staged", "broadcast_flat"]),
        ("segment_std_backward", 36, 1 << 16, ["fold_and_broadcast_runs", "fold_staged", "broadcast_flat"]),
        ("segment_softmax_backward", 36, 1 << 18, ["fold_and_broadcast_staged", "fold_tiles", "broadcast_flat"]),
        ("segment_softmax_backward", 36, 1 << 17, ["fold_and_broadcast_runs", "fold_tiles", "broadcast_flat"]),
        ("segment_max_backward", 36, 1 << 18, ["fold_and_broadcast_staged", "fold_staged", "broadcast_flat"]),
        ("segment_max_backward", 128, 1 << 18, ["fold_and_broadcast_staged", "fold_tiles", "broadcast_flat"]),
        ("segment_max_backward", 36, 1 << 15, ["fold_tiles", "broadcast_flat"]),
        ("segment_std_backward", 36, 1 << 14, ["fold_and_broadcast_runs", "fold_tiles", "broadcast_flat"]),
        ("segment_std_backward", 36, 1 << 12, ["fold_tiles", "broadcast_flat"]),
        ("segment_std_backward", 37, 1 << 18, ["fold_and_broadcast_staged", "fold_staged", "broadcast_flat"]),
        ("segment_std_backward", 65, 1 << 18, ["fold_and_broadcast_staged", "fold_staged", "broadcast_flat"]),
        ("segment_std_backward", 129, 1 << 18, ["fold_and_broadcast_staged", "fold_tiles", "broadcast_flat"]),
        ("segment_std_backward", 65, 1 << 16, ["fold_tiles", "broadcast_flat"]),
        ("segment_std_backward", 513, 1 << 18, ["fold_tiles", "fold_carries", "fold_carries", "broadcast_flat"]),
        ("segment_std_backward", 17, 1 << 15, ["fold_staged", "broadcast_flat"]),
        ("segment_softmax", 65, 1 << 16, ["fold_and_broadcast_runs", "fold_tiles", "broadcast_flat"]),
        ("segment_softmax", 65, 1 << 18, ["fold_and_broadcast_runs", "fold_tiles", "broadcast_flat"]),
        ("segment_softmax", 65, 1 << 19, ["fold_and_broadcast_staged", "fold_tiles", "broadcast_flat"]),
    ],
)
def test_kernels_of_a_gradient(op: str, columns: int, segments: int, kernels: list[str]) -> None:
    with using(policy.BoundShortSegments, max_pass_bytes=1):
        assert [each.spec.factory.partition(":")[2] for each in _launches(op, columns, segments=segments)] == kernels


@pytest.mark.parametrize(("element", "rows_each", "divided"), [("f32", 5, True), ("f32", 6, False), ("bf16", 2, True), ("bf16", 3, False)])
def test_means_of_short_segments_are_divided_as_they_are_copied(element: str, rows_each: int, divided: bool) -> None:
    *_, last = _launches("segment_mean_backward", 9, rows=rows_each << 16, segments=1 << 16, element=element)
    assert last.spec.kernel == "broadcast_flat" and (dict(last.spec.constants)["count"] == "i32") == divided


@pytest.mark.parametrize(("rows", "segments", "passes"), [(1 << 20, 1, True), (1 << 24, 1 << 12, False), (1 << 24, 1 << 20, True)])
def test_ids_are_passed_where_they_are_few_or_segments_short(rows: int, segments: int, passes: bool) -> None:
    first, *_ = _launches("segment_mean_backward", 36, rows=rows, segments=segments)
    assert first.spec.kernel == ("bound_short_segments" if passes else "bound_segments")


@pytest.mark.parametrize(
    ("op", "element", "columns", "rows_each", "runs"),
    [("softmax", "bf16", 48, 1 << 12, True), ("softmax", "f16", 512, 1 << 12, True), ("softmax", "bf16", 520, 1 << 12, False),
     ("softmax", "bf16", 100, 1 << 12, False), ("softmax", "f32", 48, 1 << 12, False), ("softmax_backward", "bf16", 48, 1 << 12, False),
     ("norm2_backward", "bf16", 48, 40, True), ("norm2_backward", "bf16", 48, 39, False)],
)  # fmt: skip
def test_lanes_keep_columns_in_long_runs(op: str, element: str, columns: int, rows_each: int, runs: bool) -> None:
    """Of halves that are whole vectors, where a segment has more than one number for each column and rows for each lane of a block."""
    launches = _launches(f"segment_{op}", columns, rows=1 << 24, segments=(1 << 24) // rows_each, element=element)
    assert launches[-1].spec.kernel == ("broadcast_runs" if runs else "broadcast_flat")


@pytest.mark.parametrize(
    ("op", "element", "columns", "vector"),
    [("std_backward", "bf16", 97, 2), ("std_backward", "bf16", 95, 4), ("std_backward", "bf16", 98, 4), ("std_backward", "f32", 97, 2),
     ("softmax", "f16", 97, 2), ("softmax_backward", "bf16", 97, 4)],
)  # fmt: skip
def test_pieces_of_rows_that_are_no_vectors(op: str, element: str, columns: int, vector: int) -> None:
    """Of halves of many columns that gather two results of a fold, those of 4 bytes; else of 8."""
    *_, last = _launches(f"segment_{op}", columns, segments=1 << 12, element=element)
    assert (last.spec.kernel, dict(last.spec.constants)["vector"]) == ("broadcast_flat", vector)


@pytest.mark.parametrize(
    ("op", "element", "columns", "rows_each", "vector", "gap"),
    [("sum", "f32", 1, 0.25, 4, 4096), ("sum", "bf16", 5, 1.5, 8, 1024), ("logsumexp", "f32", 3, 2, 4, 1024), ("sum", "f32", 5, 2, 4, 512),
     ("sum", "f32", 5, 4, 0, GAP), ("max", "bf16", 9, 64, 8, 512), ("sum", "f32", 33, 1, 0, GAP), ("sum", "f64", 4, 1, 0, GAP),
     ("sum", "f64", 5, 1, 2, 256), ("var", "f32", 3, 8, 4, 1024), ("var", "f32", 3, 9, 0, GAP), ("var", "f32", 5, 1, 0, GAP),
     ("argmax", "f32", 5, 8, 2, 256), ("sum", "f32", 16, 0.25, 4, 256)],
)  # fmt: skip
def test_where_warps_fill_empty_segments(op: str, element: str, columns: int, rows_each: float, vector: int, gap: int) -> None:
    """Ranges of elements, in gaps of some bytes; lanes do where that is as fast, and blocks of their own where gaps are longer."""
    rows = 1 << 22
    fold, *_ = _launches(f"segment_{op}", columns, rows=rows, segments=int(rows / rows_each), element=element)
    constants, looking = dict(fold.spec.constants), fold.config[0] - int(fold.arguments["row_blocks"])
    assert (constants.get("fill_vector"), constants.get("longest_gap")) == (vector, gap)
    assert looking == gap_blocks(int(rows / rows_each), fold.config[1], gap)


@pytest.mark.parametrize(
    ("op", "element", "columns", "rows_each", "first"),
    [("sum", "f32", 64, 0.5, True), ("sum", "f32", 64, 0.51, False), ("sum", "f32", 65, 1, True), ("sum", "f32", 65, 1.01, False),
     ("var", "f32", 13, 0.5, True), ("var", "f32", 13, 0.51, False), ("sum", "f32", 1, 1 / 48, True), ("sum", "f32", 1, 1 / 47, False),
     ("sum", "bf16", 5, 1 / 48, True), ("sum", "bf16", 5, 1 / 47, False), ("var", "f32", 5, 0.25, True), ("sum_backward", "f32", 64, 0.5, False)],
)  # fmt: skip
def test_where_outputs_are_filled_first(op: str, element: str, columns: int, rows_each: float, first: bool) -> None:
    """Where most segments are empty: the most of them where warps fill gaps as ranges. Then no block looks for gaps."""
    segments = 1 << 20
    fill, *others = _launches(f"segment_{op}", columns, rows=int(segments * rows_each), segments=segments, element=element)
    assert (fill.spec.kernel == "fill_elements") == first
    if first:
        (fold,) = others
        assert (fill.arguments["output"], fill.arguments["elements"]) == ("output", segments * columns)
        assert not dict(fold.spec.constants)["fills"]
        assert fold.config[0] == fold.arguments["row_blocks"] * fold.arguments.get("chunks", 1)


@pytest.mark.parametrize(
    ("rows", "segments", "address", "step", "vector"),
    [(1 << 12, 1 << 14, 0, 0, 4), (1 << 12, 1 << 14, 4, 0, 1), (1 << 12, 1 << 14, 0, 80, 0), (1 << 12, (1 << 14) - 1, 0, 0, 0)],
)  # fmt: skip
def test_large_contiguous_outputs_are_filled_first(rows: int, segments: int, address: int, step: int, vector: int) -> None:
    """By single elements where they do not begin at a multiple of 16 bytes."""
    fill, *others = _launches("segment_sum", 64, address, step, rows, segments)
    assert (fill.spec.kernel == "fill_elements") == (vector > 0) == bool(others)
    if vector:
        assert dict(fill.spec.constants)["vector"] == vector


@pytest.mark.parametrize(
    ("op", "element", "columns", "rows_each", "short"),
    [("softmax", "f32", 1, 2, True), ("softmax", "f32", 1, 8, True), ("softmax", "f32", 1, 10, False), ("softmax", "f32", 2, 8, False),
     ("log_softmax", "bf16", 1, 8, True), ("softmax", "f64", 1, 8, False), ("softmax_backward", "f32", 2, 16, True),
     ("softmax_backward", "f32", 2, 32, False), ("softmax_backward", "f64", 1, 8, True), ("softmax_backward", "f32", 3, 8, False),
     ("std_backward", "f32", 1, 8, False)],
)  # fmt: skip
def test_rows_in_registers(op: str, element: str, columns: int, rows_each: int, short: bool) -> None:
    """In short runs, of single elements, or of two of up to 8 bytes whose fold adds up what they are; of a state of several scalars if a pivot is
    chosen for it.
    """
    launches = _launches(f"segment_{op}", columns, rows=1 << 24, segments=(1 << 24) // rows_each, element=element)
    assert any(each.spec.kernel == "fold_and_broadcast_short" for each in launches) == short


@pytest.mark.parametrize(
    ("element", "columns", "rows_each", "staged"),
    [("f32", 4, 4, True), ("f32", 4, 20, True), ("f32", 4, 32, False), ("f32", 2, 8, True), ("f32", 2, 16, False), ("bf16", 4, 8, True),
     ("bf16", 2, 8, False), ("f32", 1, 8, False)],
)  # fmt: skip
def test_narrow_rows_in_stages(element: str, columns: int, rows_each: int, staged: bool) -> None:
    """Where a row has some bytes, and a tile so many runs that most threads have one."""
    launches = _launches("segment_softmax", columns, rows=1 << 24, segments=(1 << 24) // rows_each, element=element)
    assert any("fold_and_broadcast_staged" in each.spec.factory for each in launches) == staged


@pytest.mark.parametrize("element", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("rows_each", [1, 4, 5, 9])
def test_wide_rows_in_stages(element: str, rows_each: int) -> None:
    """Rows that are no vectors; the shorter segments are, the less room is behind a tile, which is never more than a block may have."""
    plan, itemsize = policy.FoldAndBroadcastWide(), BY_NAME[element].itemsize
    for row_bytes, served in ((plan.odd_row_bytes + 1, True), (1100, True), (1800, rows_each <= plan.short_segment_rows), (3000, False)):
        columns = row_bytes // (2 * itemsize) | 1
        launches = _launches("segment_softmax_backward", columns, rows=1 << 21, segments=(1 << 21) // rows_each, element=element)
        staged = [each for each in launches if each.spec.kernel == "fold_and_broadcast_staged"]
        assert len(staged) == served
        for launch in staged:
            assert int(launch.arguments["reach"]) == plan.long_rows * (1 if rows_each <= plan.short_segment_rows else 2)
            assert int(launch.arguments["tile"]) >= plan.min_tile_rows
            assert int(launch.config[2]) <= plan.shared_bytes_per_block


@pytest.mark.parametrize(
    ("element", "columns", "segments", "constants", "threads"),
    [
        ("bf16", 48, 1 << 16, {"in_place": True, "rows_per_thread": 2, "vector": 4}, 256),
        ("f16", 100, 1 << 16, {"in_place": True, "rows_per_thread": 1, "vector": 4}, 256),
        ("f32", 257, 1 << 16, {"in_place": True, "rows_per_thread": 1, "vector": 2}, 256),
        ("f32", 100, 1 << 16, {"in_place": False, "rows_per_thread": 1, "vector": 2}, 256),
    ],
)
def test_blocks_that_replace_rows(element: str, columns: int, segments: int, constants: dict[str, int], threads: int) -> None:
    """Of halves and of rows that are no vectors; the kernel knows how many threads it has, and has room for every row."""
    launch = next(each for each in _launches("segment_softmax", columns, segments=segments, element=element) if "_runs" in each.spec.factory)
    usual = {name: each.default for name, each in inspect.signature(fold_and_broadcast_runs).parameters.items()}
    found = usual | dict(launch.spec.constants)
    assert constants | {"threads_per_block": threads} == {name: found[name] for name in [*constants, "threads_per_block"]}
    assert launch.config[1] == threads and launch.arguments["room"] < threads * constants["rows_per_thread"]


@pytest.mark.parametrize(("op", "columns"), [("segment_norm2", 1), ("segment_max", 26), ("segment_argmax", 300), ("segment_std", 21)])
def test_many_carries_are_joined(op: str, columns: int) -> None:
    """Twice, so that no block reads many; the workspace has room for those that are left, whatever the layout of the rows."""
    row, descriptor = OPS[op], SegmentDescriptor(op, 1 << 27, columns, 1 << 26, "f32", "i32")
    contiguously = {each.name: contiguous(each, descriptor) for each in row.operands}
    chosen = next(each for each in row.variants if each.name == "ragged_sorted")
    for step, address in ((columns, 0), (columns + 3, 4)):
        with using(policy.FoldLookback, max_status_bytes=1):
            recipe = chosen.recipe(row, descriptor, contiguously | {"input": Layout((1 << 27, columns), (step, 1), address)}, CARD)
        launches = [each for each in recipe.steps if isinstance(each, Launch) and each.spec.factory.endswith(":fold_carries")]
        assert [dict(each.spec.constants)["joins"] for each in launches] == [True, False]
        joined = launches[1].arguments["entries"]
        entries, tile = (launches[0].arguments[each] for each in ("entries", "tile"))
        assert joined == 2 * -(-entries // tile) < entries // 16
        assert joined <= next(each.count for each in recipe.slots if each.name == "joined_ids")


FEW, MANY = 1 << 12, 1 << 18


@pytest.mark.parametrize(
    ("op", "columns", "segments", "indexed", "walk"),
    [
        ("segment_prod_backward", 16, MANY, "permuted", "segment_ids"),
        ("segment_prod_backward", 128, MANY, "permuted", "sorted_ids"),
        ("segment_prod_backward", 128, FEW, "permuted", "segment_ids"),
        ("segment_prod_backward", 16, MANY, "sorted", "sorted_ids"),
        ("segment_prod_backward", 16, MANY, "", "segment_ids"),
        ("unsorted_segment_prod_backward", 1, MANY, "", "segment_ids"),
        ("unsorted_segment_prod_backward", 128, MANY, "", "sorted_ids"),
        ("unsorted_segment_prod_backward", 128, FEW, "", "segment_ids"),
        ("unsorted_segment_max_backward", 16, MANY, "permuted", "segment_ids"),
        ("unsorted_segment_max_backward", 128, MANY, "permuted", "sorted_ids"),
        ("unsorted_segment_norm2_backward", 16, MANY, "permuted", "segment_ids"),
        ("segment_prod_backward", 145, MANY, "permuted", "segment_ids"),
        ("unsorted_segment_softmax_backward", 100, MANY, "", "segment_ids"),
        ("unsorted_segment_softmax_backward", 96, MANY, "", "sorted_ids"),
    ],
)
def test_walk_of_a_gradient(op: str, columns: int, segments: int, indexed: str, walk: str) -> None:
    """Rows get what they get as they lie, unless they are whole lines and the rows of all segments are more than the level 2 cache holds."""
    descriptor = SegmentDescriptor(op, 1 << 20, columns, segments, indexed=indexed)
    row = descriptor.specialise(OPS[op])
    recipe = row.variants[0].recipe(row, descriptor, {operand.name: contiguous(operand, descriptor) for operand in row.operands}, CARD)
    last = recipe.steps[-1]
    assert isinstance(last, Launch) and last.spec.factory.partition(":")[2] in ("broadcast_to_elements", "broadcast_flat", "broadcast_to_rows")
    assert last.arguments["ids"] == walk
    assert last.arguments.get("permutation", "") == ("permutation" if walk == "sorted_ids" and indexed != "sorted" else "")


@pytest.mark.parametrize(
    ("deterministic", "rows", "columns", "segments", "variant"),
    [
        (True, 20_000_000, 16, 1_000_000, "ragged_permuted"),
        (True, 20_000_000, 3, 1_000_000, "ragged_ranges"),
        (True, 20_000_000, 16, 400, "ragged_ranges"),
        (True, 100_000_000, 1, 400, "ragged_ranges"),
        (True, 1_000_000, 16, 50_000, "ragged_permuted"),
        (True, 20_000_000, 16, 10_000_000, "ragged_permuted"),
        (True, 20_000_000, 128, 1_000_000, "ragged_permuted"),
        (True, 100_000_000, 1, 1_000_000, "ragged_ranges"),
        (True, 100_000_000, 1, 100_000, "ragged_ranges"),
        (False, 3_000_000, 128, 1000, "ragged_permuted"),
        (False, 10_000, 128, 1000, "atomic"),
        (False, 20_000_000, 16, 1000, "atomic"),
        (False, 20_000_000, 16, 500, "atomic"),
        (False, 100_000_000, 1, 500, "ragged_ranges"),
        (False, 100_000_000, 1, 1000, "ragged_ranges"),
        (False, 100_000_000, 1, 100_000, "atomic"),
    ],
)
def test_sorting_where_it_pays(deterministic: bool, rows: int, columns: int, segments: int, variant: str) -> None:
    """By range, with the rows or with their indices, whatever is faster; atomics for what sorting would hold up, and not for few segments."""
    described = SegmentDescriptor("unsorted_segment_sum", rows, columns, segments)
    assert select(described, PlanPreference(deterministic=deterministic), device=-1).variant.name == variant


@pytest.mark.parametrize(
    ("rows", "columns", "segments", "variant"),
    [(19_000_000, 3, 1_300_000, "atomic_about_max"), (60_000_000, 2, 400_000, "atomic_about_max"), (3_000_000, 128, 1000, "ragged_permuted")],
)
def test_exponentials_by_atomics_where_they_pay(rows: int, columns: int, segments: int, variant: str) -> None:
    """Two passes of atomics are faster than a sort of many narrow rows."""
    described = SegmentDescriptor("unsorted_segment_logsumexp", rows, columns, segments)
    assert select(described, PlanPreference(deterministic=False), device=-1).variant.name == variant
    assert select(described, PlanPreference(), device=-1).variant.deterministic


@pytest.mark.parametrize(
    ("stem", "element", "rows", "columns", "segments", "variant"),
    [
        ("softmax", "f32", 10_700_000, 8, 4000, "atomic_broadcast"),
        ("log_softmax", "f32", 17_800_000, 2, 39_000, "atomic_broadcast"),
        ("log_softmax", "f32", 60_000_000, 1, 300, "broadcast"),
        ("softmax", "f32", 700_000, 186, 600, "broadcast"),
        ("log_softmax", "bf16", 3_400_000, 33, 32_000, "broadcast"),
        ("softmax", "f64", 4_000_000, 8, 50_000, "atomic_broadcast"),
    ],
)
def test_sums_of_gradients_by_atomics_where_they_pay(stem: str, element: str, rows: int, columns: int, segments: int, variant: str) -> None:
    """A sort and two random reads of narrow rows take longer than atomics, unless these meet at few segments."""
    described = SegmentDescriptor(f"unsorted_segment_{stem}_backward", rows, columns, segments, element)
    assert select(described, PlanPreference(deterministic=False), device=-1).variant.name == variant
    assert select(described, PlanPreference(), device=-1).variant.name == "broadcast"


def test_atomics_need_a_number_of_segments_and_no_index() -> None:
    op, wanted = "unsorted_segment_softmax_backward", PlanPreference(deterministic=False)
    unbounded = SegmentDescriptor(op, 10_700_000, 8, 10_700_000, bounded=False)
    indexed = SegmentDescriptor(op, 10_700_000, 8, 4000, indexed="permuted")
    assert [select(each, wanted, device=-1).variant.name for each in (unbounded, indexed)] == ["broadcast", "broadcast"]


@pytest.mark.parametrize(
    ("stem", "columns", "segments", "passes"),
    [
        ("sum", 1, 7_000_000, 1), ("sum", 1, 12_000_000, 2), ("sum", 1, 10**8, 8), ("sum", 1, 2 * 10**8, 1), ("sum", 4, 12_000_000, 7),
        ("sum", 3, 12_000_000, 5), ("sum", 16, 800_000, 2), ("sum", 16, 3_000_000, 1), ("sum", 32, 10**6, 1), ("mean", 1, 12_000_000, 2),
        ("max", 1, 50_000_000, 7), ("max", 2, 6_000_000, 2), ("max", 4, 3_000_000, 2), ("max", 8, 3_000_000, 1), ("max", 3, 6_000_000, 1),
        ("argmax", 1, 6_000_000, 2), ("argmax", 2, 12_000_000, 1), ("argmax", 2, 6_000_000, 2),
    ],
)  # fmt: skip
def test_passes_of_atomics(stem: str, columns: int, segments: int, passes: int) -> None:
    """Where there are several, one over all segments comes before, for crowds; together the others name every segment once."""
    variant = {"max": "atomic_exact", "argmax": "atomic_first"}.get(stem, "atomic")
    made: list[Any] = _launches(f"unsorted_segment_{stem}", columns, segments=segments, variant=variant)
    for kernel in ("scatter_rows", *(["count_ids"] if stem == "mean" else [])):
        found = [[each.arguments[name] for name in ("low", "high", "guard")] for each in made if each.spec.kernel == kernel]
        if passes > 1:
            assert found.pop(0) == [0, segments, "once"]
        assert len(found) == passes
        assert [low for low, _, _ in found] == [0, *[high for _, high, _ in found[:-1]]]
        assert found[-1][1] == segments
        assert {guard for _, _, guard in found} == {"by_range" if passes > 1 else NULL}
