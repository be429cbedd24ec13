"""Kernels that a user launches: through numba's own dispatcher with arrays as arguments, and in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from kinds import Kind

from numba_baracuda import device
from numba_baracuda.segment import kernels
from numba_baracuda.segment.tiling import MEANS_LENGTHS, Tiling

ROWS, COLUMNS, SEGMENTS, TILE = 1000, 8, 20, 192


def launch(kind: Kind, kernel: Any, sizes: tuple[int, ...], **arguments: Any) -> None:
    grid, block, shared = kernel.launch_config(*sizes)
    runnable = device.emulate(kernel) if kind.emulated else kernel
    runnable[grid, block, 0, shared](*kernel.ordered(**arguments))


def test_a_fold_and_a_gather(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    ids, x = np.sort(rng.integers(0, SEGMENTS, ROWS, np.int32)), rng.random((ROWS, COLUMNS), np.float32)
    given, rows, sums = kind.array(ids), kind.array(x.ravel()), kind.array(np.full(SEGMENTS * COLUMNS, np.nan, np.float32))
    none = {name: kind.array(np.zeros(1, dtype)) for name, dtype in (("i64", np.int64), ("f32", np.float32), ("i32", np.int32))}
    shape = Tiling(ROWS, COLUMNS, 4, TILE, 128)
    assert shape.row_blocks == 1  # no carries
    fold = kernels.fold_tiles(
        monoid="sum", value="f32", result="f32", index="i32", vector=4, lanes=shape.lanes, packed=True, row_index="", input_positions=False,
        fills=True, guarded=False, apart=False, dims=1,
    )  # fmt: skip
    launch(
        kind, fold, (ROWS, COLUMNS, SEGMENTS, TILE), input=rows, other=rows, ids=given, permutation=none["i64"], guard=none["i32"], output=sums,
        carry_ids=none["i64"], carry_counts=none["i64"], carry_states=none["f32"], run_status=none["i64"], rows=ROWS,
        columns=COLUMNS, segments=SEGMENTS, tile=TILE,
        row_blocks=shape.row_blocks, early=0, chunks=shape.chunks, empty=0.0, correction=1.0, ids_step=1, input_row=COLUMNS, other_row=COLUMNS,
        output_row=COLUMNS, shape=(COLUMNS,), input_strides=(1,), other_strides=(1,), output_strides=(1,),
    )  # fmt: skip
    wanted = np.stack([np.bincount(ids, x[:, k].astype(np.float64), SEGMENTS) for k in range(COLUMNS)], axis=1)
    found = kind.numpy(sums).reshape(SEGMENTS, COLUMNS)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)

    back = kind.array(np.full(ROWS * COLUMNS, np.nan, np.float32))
    gather = kernels.gather_rows(value="f32", index="i32", count="", vector=4, lanes=shape.lanes, cut=False, dims=1)
    launch(
        kind, gather, (ROWS, COLUMNS), source=sums, ids=given, counts=none["i32"], output=back, rows=ROWS, columns=COLUMNS, chunks=1,
        segments=SEGMENTS, ids_step=1, source_row=COLUMNS, output_row=COLUMNS, shape=(COLUMNS,), source_strides=(1,), output_strides=(1,),
    )  # fmt: skip
    np.testing.assert_array_equal(kind.numpy(back).reshape(ROWS, COLUMNS), found[ids])


def test_a_length_that_another_warp_has_found(kind: Kind) -> None:
    """A tile within a run takes the length that it is given for the run's id; the tiles in which it begins and ends search."""
    rows, run, length = 2048, (100, 1900), 9
    ids, output = np.repeat(np.array([3, 5, 8], np.int32), (run[0], run[1] - run[0], rows - run[1])), kind.array(np.zeros(rows, np.float32))
    kernel = kernels.gather_means(value="f32", index="i32", count="i32", threads_per_block=32, items_per_thread=1)
    known = np.zeros(2 * MEANS_LENGTHS, np.int64)
    known[10:12] = 6, length
    source = kind.array(np.full(9, 4 * 9 * 1800, np.float32))
    launch(
        kind, kernel, (rows,), source=source, ids=kind.array(ids), output=output, lengths=kind.array(known), rows=rows, segments=9, source_row=1
    )  # fmt: skip
    wanted = np.repeat(np.array([648, 36, 64800 / 148], np.float32), (run[0], run[1] - run[0], rows - run[1]))
    wanted[256:1792] = 4 * 1800
    np.testing.assert_array_equal(kind.numpy(output), wanted)


def test_a_run_of_millions_of_rows(kind: Kind) -> None:
    """The first tiles of a run whose end is further away than where the search looks first."""
    rows, tiles = 3_000_000, 2048
    ids, output = np.repeat(np.array([0, 1], np.int32), (5, rows - 5)), kind.array(np.full(rows, np.nan, np.float32))
    kernel = kernels.gather_means(value="f32", index="i32", count="i32", threads_per_block=32, items_per_thread=1)
    runnable = device.emulate(kernel) if kind.emulated else kernel
    source = kind.array(np.array([10.0, rows - 5], np.float32))
    lengths = kind.array(np.zeros(2 * MEANS_LENGTHS, np.int64))
    arguments = kernel.ordered(source=source, ids=kind.array(ids), output=output, lengths=lengths, rows=rows, segments=2, source_row=1)
    runnable[tiles // 256, 32](*arguments)
    np.testing.assert_array_equal(kind.numpy(output)[:tiles], np.repeat(np.array([2, 1], np.float32), (5, tiles - 5)))
    assert kind.numpy(lengths)[2:4].tolist() == [2, rows - 5]
