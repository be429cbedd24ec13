"""Row-wise kernels: scatter, fill, finish; and two over the ids alone: counts and the first fault."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import MONOIDS
from ...device.atomics import red_add, red_add_2, red_add_4, red_min
from ...device.vector import LOAD, LOAD_STREAM, STORE
from ...runtime import jit
from ..tiling import SUMS, THREADS, Tiling
from .common import accumulator_of, ids_of, place_of
from .gaps import blank_writer


def rows_launch(vector: int, rows_a_group: int) -> Any:
    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, rows_a_group).launch

    return launch_config


@functools.cache
def position_of(lanes: int, vector: int, rows_a_group: int, cut: bool) -> Any:
    """``position(columns, chunks)``: the first row of a group and the first column of a lane; a group's rows are THREADS // lanes apart.

    ``cut`` says whether rows are cut into chunks.
    """
    groups = THREADS // lanes

    @jit.device
    def position(columns: Any, chunks: Any) -> Any:
        block = int64(cuda.blockIdx.x)
        row_block = int64(uint32(block) // uint32(chunks)) if cut else block
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        column = ((block - row_block * chunks) * lanes + (cuda.threadIdx.x - group * lanes)) * vector
        return row_block * groups * rows_a_group + group, column if group < groups else columns

    return position


@jit.kernel
def scatter_rows(*, value: str, index: str, vector: int, lanes: int, cut: bool, dims: int) -> Any:
    """``output[ids[r]] += input[r]`` by atomics, in no fixed order; rows whose id is outside ``[low, high)`` are left out.

    A group adds ``SUMS`` rows, all loads before the first addition; the input is streamed, so that the output stays in L2. Bytes: rows · (columns ·
    value + index) read, as many added.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    load, place = LOAD_STREAM[vector], place_of(dims)
    position = position_of(lanes, vector, SUMS, cut)
    groups, batch_size = THREADS // lanes, SUMS * vector
    (last_id, _), greatest = ids_of(index), index_type.maxval
    pairs, fours = value == "f32" and vector == 2, value == "f32" and vector == 4

    def scatter_rows(
        input: Any, ids: Any, output: Any,
        rows: Any, columns: Any, chunks: Any, low: Any, high: Any, ids_step: Any,
        input_row: Any, output_row: Any, shape: Any, input_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(SUMS, index_type)
        least = index_type(min(low, greatest))
        last = last_id(high) if low <= greatest else index_type(-1)
        first, column = position(columns, chunks)
        input_offset, output_offset = place(column, shape, input_strides), place(column, shape, output_strides)
        if column < columns:
            for u in range(SUMS):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(SUMS):
                row = first + u * groups
                if least <= batch_ids[u] <= last:
                    load(input, row * input_row + input_offset, batch, u * vector)
            for u in range(SUMS):
                if least <= batch_ids[u] <= last:
                    at = int64(batch_ids[u]) * output_row + output_offset
                    if fours:
                        red_add_4(output, at, batch[u * vector], batch[u * vector + 1], batch[u * vector + 2], batch[u * vector + 3])
                    elif pairs:
                        red_add_2(output, at, batch[u * vector], batch[u * vector + 1])
                    else:
                        for v in range(vector):
                            red_add(output, at + v, batch[u * vector + v])

    return scatter_rows, rows_launch(vector, SUMS)


@jit.kernel
def fill_rows(*, value: str, vector: int, lanes: int, cut: bool, dims: int) -> Any:
    """``output[low + r] = fill`` for every row. Bytes: rows · columns · value written."""
    place, write_empty = place_of(dims), blank_writer(value, vector)
    position = position_of(lanes, vector, 1, cut)

    def fill_rows(output: Any, rows: Any, columns: Any, chunks: Any, low: Any, fill: Any, output_row: Any, shape: Any, output_strides: Any) -> None:
        row, column = position(columns, chunks)
        if column < columns and row < rows:
            write_empty(output, low + row, low + row + 1, output_row, place(column, shape, output_strides), fill)

    return fill_rows, rows_launch(vector, 1)


@jit.kernel
def finish_rows(*, monoid: str, value: str, count: str, vector: int, lanes: int, cut: bool, dims: int) -> Any:
    """``output[s] = finish(output[s], counts[s])``, or ``empty`` where the count is 0. Bytes: segments · (2 · columns · value + count)."""
    element, wide = jit.SCALARS[value], accumulator_of(value)
    load, store, place = LOAD[vector], STORE[vector], place_of(dims)
    finish = jit.device(MONOIDS[monoid].finish)
    position = position_of(lanes, vector, 1, cut)

    def finish_rows(
        output: Any, counts: Any, rows: Any, columns: Any, chunks: Any, empty: Any, output_row: Any, shape: Any, output_strides: Any
    ) -> None:
        states = cuda.local.array(vector, element)
        row, column = position(columns, chunks)
        if column < columns and row < rows:
            at = row * output_row + place(column, shape, output_strides)
            load(output, at, states, 0)
            for v in range(vector):
                states[v] = element(finish(wide(states[v]), wide(counts[row]))) if counts[row] > 0 else element(empty)
            store(output, at, states, 0)

    return finish_rows, rows_launch(vector, 1)


@jit.kernel
def count_ids(*, index: str, count: str) -> Any:
    """``counts[s]`` += the rows whose id is s; ids outside ``[0, segments)`` are dropped. One addition for all lanes of a warp that hold the same id.

    Exact and independent of order, as the counts are integers. Bytes: rows · index read, and one atomic a distinct id a warp.
    """
    index_type, count_type = jit.SCALARS[index], jit.SCALARS[count]

    def count_ids(ids: Any, counts: Any, rows: Any, segments: Any, ids_step: Any) -> None:
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        identifier = index_type(-1)
        if row < rows:
            identifier = ids[row * ids_step]
        same = cuda.match_any_sync(-1, identifier)
        if cuda.ffs(same) - 1 == cuda.laneid and 0 <= identifier < segments:
            red_add(counts, int64(identifier), count_type(cuda.popc(same)))

    return count_ids, lambda rows: Tiling.of_ids(rows).launch


@jit.kernel
def first_fault(*, index: str, ordered: bool) -> Any:
    """``fault[0]`` = the first row whose id is outside ``[0, segments)``; if ``ordered``, ``fault[1]`` = the first whose id is less than the last.

    Both hold a large number beforehand and keep it when there is no fault. Bytes: rows · index read.
    """

    def first_fault(ids: Any, fault: Any, rows: Any, segments: Any, ids_step: Any) -> None:
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            if not 0 <= ids[row * ids_step] < segments:
                red_min(fault, 0, row)
            if ordered and row > 0 and ids[row * ids_step] < ids[(row - 1) * ids_step]:
                red_min(fault, 1, row)

    return first_fault, lambda rows: Tiling.of_ids(rows).launch
