"""Row-wise kernels: gather, scatter, fill, finish; and two over the ids alone: counts and the first fault."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...algebra import MONOIDS
from ...device.atomics import red_add, red_add_4, red_min
from ...device.vector import LOAD, LOAD_ONCE, STORE
from ...runtime import jit
from ..tiling import THREADS, UNROLL, Tiling
from .common import accumulator_of, blank_writer, place_of


def _rows_launch(vector: int, rows_a_group: int) -> Any:
    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, rows_a_group).launch

    return launch_config


@functools.cache
def _position(lanes: int, vector: int, rows_a_group: int) -> Any:
    """``position(chunks)``: the first row of a group and the first column of a lane; a group's rows are THREADS / lanes apart."""
    groups = THREADS // lanes
    shift, low_bits = lanes.bit_length() - 1, lanes - 1

    @jit.device
    def position(chunks: Any) -> Any:
        block = int64(cuda.blockIdx.x)
        row_block = block // chunks
        column = ((block - row_block * chunks) * lanes + (cuda.threadIdx.x & low_bits)) * vector
        return row_block * groups * rows_a_group + (cuda.threadIdx.x >> shift), column

    return position


@jit.kernel
def gather_rows(*, value: str, index: str, count: str, vector: int, lanes: int, dims: int) -> Any:
    """``output[r] = source[ids[r]]``, divided by ``counts[ids[r]]`` unless ``count`` is ""; 0 where the id is outside ``[0, segments)``.

    A group copies ``UNROLL`` rows, all loads before the first store. Bytes: rows · (columns · value + index) read or written once, plus the rows
    gathered.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_of(value)
    load, store, place = LOAD_ONCE[vector], STORE[vector], place_of(dims)
    position = _position(lanes, vector, UNROLL)
    groups, batch_size = THREADS // lanes, UNROLL * vector
    divided = count != ""

    def gather_rows(
        source: Any, ids: Any, counts: Any, output: Any,
        rows: Any, columns: Any, chunks: Any, segments: Any, ids_step: Any,
        source_row: Any, output_row: Any, shape: Any, source_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(UNROLL, index_type)
        first, column = position(chunks)
        source_offset, output_offset = place(column, shape, source_strides), place(column, shape, output_strides)
        if column < columns:
            for u in range(UNROLL):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(UNROLL):
                if 0 <= batch_ids[u] < segments:
                    load(source, int64(batch_ids[u]) * source_row + source_offset, batch, u * vector)
                else:
                    for v in range(vector):
                        batch[u * vector + v] = element(0)
            for u in range(UNROLL):
                row = first + u * groups
                if row < rows:
                    if divided and 0 <= batch_ids[u] < segments:
                        for v in range(vector):
                            batch[u * vector + v] = element(wide(batch[u * vector + v]) / wide(counts[int64(batch_ids[u])]))
                    result = cuda.local.array(vector, element)
                    for v in range(vector):
                        result[v] = batch[u * vector + v]
                    store(output, row * output_row + output_offset, result, 0)

    return gather_rows, _rows_launch(vector, UNROLL)


@jit.kernel
def scatter_rows(*, value: str, index: str, vector: int, lanes: int, dims: int, wide_red: bool) -> Any:
    """``output[ids[r]] += input[r]`` by atomics, in no fixed order; rows whose id is outside ``[0, segments)`` are dropped.

    ``wide_red`` adds four float32 in one access (compute capability 9.0). Bytes: rows · (columns · value + index) read, as many added.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    load, place = LOAD_ONCE[vector], place_of(dims)
    position = _position(lanes, vector, UNROLL)
    groups, batch_size = THREADS // lanes, UNROLL * vector

    def scatter_rows(
        input: Any, ids: Any, output: Any,
        rows: Any, columns: Any, chunks: Any, segments: Any, ids_step: Any,
        input_row: Any, output_row: Any, shape: Any, input_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(UNROLL, index_type)
        first, column = position(chunks)
        input_offset, output_offset = place(column, shape, input_strides), place(column, shape, output_strides)
        if column < columns:
            for u in range(UNROLL):
                row = first + u * groups
                batch_ids[u] = index_type(-1)
                if row < rows:
                    batch_ids[u] = ids[row * ids_step]
                    load(input, row * input_row + input_offset, batch, u * vector)
            for u in range(UNROLL):
                if 0 <= batch_ids[u] < segments:
                    at = int64(batch_ids[u]) * output_row + output_offset
                    if wide_red:
                        red_add_4(output, at, batch[u * vector], batch[u * vector + 1], batch[u * vector + 2], batch[u * vector + 3])
                    else:
                        for v in range(vector):
                            red_add(output, at + v, batch[u * vector + v])

    return scatter_rows, _rows_launch(vector, UNROLL)


@jit.kernel
def fill_rows(*, value: str, vector: int, lanes: int, dims: int) -> Any:
    """``output[r] = fill`` for every row. Bytes: rows · columns · value written."""
    place, write_empty = place_of(dims), blank_writer(value, vector)
    position = _position(lanes, vector, 1)

    def fill_rows(output: Any, rows: Any, columns: Any, chunks: Any, fill: Any, output_row: Any, shape: Any, output_strides: Any) -> None:
        row, column = position(chunks)
        if column < columns and row < rows:
            write_empty(output, row, row + 1, output_row, place(column, shape, output_strides), fill)

    return fill_rows, _rows_launch(vector, 1)


@jit.kernel
def finish_rows(*, monoid: str, value: str, count: str, vector: int, lanes: int, dims: int) -> Any:
    """``output[s] = finish(output[s], counts[s])``, or ``empty`` where the count is 0. Bytes: segments · (2 · columns · value + count)."""
    element, wide = jit.SCALARS[value], accumulator_of(value)
    load, store, place = LOAD[vector], STORE[vector], place_of(dims)
    finish = jit.device(MONOIDS[monoid].finish)
    position = _position(lanes, vector, 1)

    def finish_rows(
        output: Any, counts: Any, rows: Any, columns: Any, chunks: Any, empty: Any, output_row: Any, shape: Any, output_strides: Any
    ) -> None:
        states = cuda.local.array(vector, element)
        row, column = position(chunks)
        if column < columns and row < rows:
            at = row * output_row + place(column, shape, output_strides)
            load(output, at, states, 0)
            for v in range(vector):
                states[v] = element(finish(wide(states[v]), wide(counts[row]))) if counts[row] > 0 else element(empty)
            store(output, at, states, 0)

    return finish_rows, _rows_launch(vector, 1)


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
