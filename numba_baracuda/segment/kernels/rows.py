"""What kernels that work row by row share, and two of them: fill and finish."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...device.atomics import red_max_value, red_min_value
from ...device.bits import recast
from ...device.vector import LOAD, STORE
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import RowWise
from ..tiling import Tiling
from .gaps import blank_writer


def rows_launch(threads: int, vector: int, rows_a_group: int) -> Any:
    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, rows_a_group, threads).launch

    return launch_config


@functools.cache
def position_of(threads: int, lanes: int, vector: int, rows_a_group: int, cut: bool, contiguous: bool = False, apart: bool = False) -> Any:
    """``group_position(columns, chunks)``: the first row of a group and the first column of a lane.

    A group's rows are neighbours if ``contiguous``, else ``threads // lanes`` rows apart; ``cut`` says whether rows are cut into chunks. The columns
    of a lane are neighbours, or, if ``apart``, ``lanes`` columns apart.
    """
    groups, lane_step = threads // lanes, 1 if apart else vector

    @jit.device
    def group_position(columns: Any, chunks: Any) -> Any:
        block = int64(cuda.blockIdx.x)
        row_block = int64(uint32(block) // uint32(chunks)) if cut else block
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        column = (block - row_block * chunks) * (lanes * vector) + (cuda.threadIdx.x - group * lanes) * lane_step
        return row_block * groups * rows_a_group + (group * rows_a_group if contiguous else group), column if group < groups else columns

    return group_position


@functools.cache
def ids_loader_of(index: str, row_index: str, count: int, stride: int) -> Any:
    """``load_row_ids(ids, permutation, first, rows, ids_step, batch_ids, row_indices)`` loads the ids of ``count`` rows, ``stride`` rows apart.

    Behind the last row an id is −1. Unless ``row_index`` is "", it also loads which rows of the operands they are, ``permutation[r]`` of row r.
    """
    index_type, row_index_type, permuted = jit.SCALARS[index], jit.SCALARS[row_index or "i32"], row_index != ""

    @jit.device
    def load_row_ids(ids: Any, permutation: Any, first: Any, rows: Any, ids_step: Any, batch_ids: Any, row_indices: Any) -> None:
        for u in range(count):
            row = first + u * stride
            batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            if permuted:
                row_indices[u] = permutation[row] if row < rows else row_index_type(0)

    return load_row_ids


@jit.kernel
def fill_rows(
    *, value: str, guarded: bool, vector: int, lanes: int, cut: bool, dims: int, threads_per_block: int = RowWise.threads_per_block
) -> Any:  # fmt: skip
    """``output[low + r] = fill`` for every row r. Bytes: rows · columns · value written.

    Constants and parameters as :mod:`.` lists them, and ``low``: the first row; ``fill``: a number.
    """
    offset_of, write_empty = strided_offset_of(dims), blank_writer(value, vector)
    group_position = position_of(threads_per_block, lanes, vector, 1, cut)

    def fill_rows(
        guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, low: int64, fill: Scalar[value], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        row, column = group_position(columns, chunks)
        if column < columns and row < rows:
            write_empty(output, low + row, low + row + 1, output_row, offset_of(column, shape, output_strides), columns - column, fill)

    return fill_rows, rows_launch(threads_per_block, vector, 1)


@jit.kernel
def finish_rows(
    *, monoid: str, value: str, source_value: str, coded: str, count: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block,
) -> Any:  # fmt: skip
    """``output[s] = finish(source[s], counts[s])``, or ``empty`` where segment s has no rows; source and output may be the same memory.

    Bytes: segments · columns · (source_value + value), and the counts.

    Constants and parameters as :mod:`.` lists them, where ``rows`` are segments, and ``source_value``: the element type of the source; ``coded``:
    "max" or "min" where ``device.red_max`` or ``red_min`` has encoded it, so that the source itself tells which segments are empty, else "". Where
    ``coded`` is "" the counts tell, or, where ``count`` is "", no segment is empty.
    """
    element, wide = jit.SCALARS[value], accumulator_type(value)
    source_type = jit.SCALARS["u" + str(8 * BY_NAME[source_value].itemsize)] if coded else jit.SCALARS[source_value]
    load, store, offset_of = LOAD[vector], STORE[vector], strided_offset_of(dims)
    (widen, _), (_, narrow) = conversions_of(source_value), conversions_of(value)
    finish, counted = jit.device(monoid_of(monoid).finish), count != ""
    decode = red_max_value if coded == "max" else red_min_value
    group_position = position_of(threads_per_block, lanes, vector, 1, cut)

    def finish_rows(
        source: Ptr[source_value], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, empty: Scalar[wide], source_row: int64, output_row: int64,
        shape: Extents[dims], source_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        states = cuda.local.array(vector, source_type)
        results = cuda.local.array(vector, element)
        row, column = group_position(columns, chunks)
        if column < columns and row < rows:
            load(recast(source, source_type), row * source_row + offset_of(column, shape, source_strides), states, 0)
            for v in range(vector):
                if coded != "":
                    results[v] = narrow(decode(states[v], wide(empty)))
                elif not counted:
                    results[v] = narrow(finish(widen(states[v]), wide(1), wide(1)))
                else:
                    results[v] = narrow(finish(widen(states[v]), wide(counts[row]), wide(1))) if counts[row] > 0 else narrow(empty)
            store(output, row * output_row + offset_of(column, shape, output_strides), results, 0)

    return finish_rows, rows_launch(threads_per_block, vector, 1)
