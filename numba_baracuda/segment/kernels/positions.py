"""Positions of the greatest or least values, for ids in any order: the least row index of each segment wins by an atomic minimum."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.dtypes import BY_NAME
from ...device.atomics import red_max_value, red_min, red_min_value
from ...device.bits import recast
from ...device.order import load_relaxed
from ...device.vector import LOAD, LOAD_STREAM
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..first_rows import NO_ROW
from ..policy import RowWise
from ..policy_of import scatter_items
from .candidates import row_of_candidate
from .common import coded_type
from .rows import position_of, rows_launch


@jit.kernel
def scatter_positions(
    *, update: str, value: str, index: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """``positions[s] = min(positions[s], r)`` for every row r of segment s with ``input[r] = extremes[s]``, where NaN equals NaN.

    A group takes ``items_per_thread`` rows and issues all loads of them before it compares. A lane updates only what it finds to be greater. Bytes:
    rows · (columns · value + index) read, and the rows of ``extremes`` that are gathered.

    Constants and parameters as :mod:`.` lists them, and ``update``: max or min; ``items_per_thread``: 0 stands for the rows of the tuning policy;
    ``extremes`` [segments, columns]: the results of a fold, of the accumulator's type, contiguous, floats encoded as in ``device.red_max`` or
    ``red_min``; ``positions`` [segments, columns], contiguous.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    coded = jit.SCALARS[value] if BY_NAME[value].whole else coded_type(value)
    load, load_extremes, offset_of, widen = LOAD_STREAM[vector], LOAD[vector], strided_offset_of(dims), conversions_of(value)[0]
    items = items_per_thread or scatter_items(update)
    group_position = position_of(threads_per_block, lanes, vector, items, cut)
    groups, batch_size = threads_per_block // lanes, items * vector
    decode = red_max_value if update == "max" else red_min_value
    if BY_NAME[value].whole:
        decode = jit.device(lambda bits, empty: bits)

    def scatter_positions(
        input: Ptr[value], ids: Ptr[index], extremes: Ptr[wide], positions: Ptr[int32],
        rows: int64, columns: int64, chunks: int64, segments: int64, ids_step: int64, input_row: int64,
        shape: Extents[dims], input_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_extremes = cuda.local.array(vector, coded)
        batch_ids = cuda.local.array(items, index_type)
        first, column = group_position(columns, chunks)
        offset = offset_of(column, shape, input_strides)
        if column < columns:
            for u in range(items):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(items):
                if 0 <= batch_ids[u] < segments:
                    load(input, (first + u * groups) * input_row + offset, batch, u * vector)
            for u in range(items):
                if 0 <= batch_ids[u] < segments:
                    at, row = int64(batch_ids[u]) * columns + column, int32(first + u * groups)
                    load_extremes(recast(extremes, coded), at, batch_extremes, 0)
                    for v in range(vector):
                        x, extreme = widen(batch[u * vector + v]), decode(batch_extremes[v], wide(0))
                        if (x == extreme or (x != x and extreme != extreme)) and row < load_relaxed(positions, at + v):
                            red_min(positions, at + v, row)

    return scatter_positions, rows_launch(threads_per_block, vector, items)


@jit.kernel
def finish_positions(
    *, candidates: bool, result: str, vector: int, lanes: int, cut: bool, dims: int, threads_per_block: int = RowWise.threads_per_block
) -> Any:  # fmt: skip
    """``output[s]`` = the row in ``positions[s]``, or ``empty`` where there is none. Bytes: segments · columns · (position + result).

    Constants and parameters as :mod:`.` lists them, where ``rows`` are segments, and ``candidates``: whether ``positions`` [segments, columns],
    contiguous, are words of :mod:`.candidates`; else they are row indices of 32 bits, whose bytes are 0x7F where there is no row.
    """
    result_type, offset_of = jit.SCALARS[result], strided_offset_of(dims)
    group_position = position_of(threads_per_block, lanes, vector, 1, cut)
    row_in = row_of_candidate if candidates else jit.device(lambda row: int64(-1) if row == NO_ROW else int64(row))

    def finish_positions(
        positions: Ptr[int64 if candidates else int32], output: Ptr[result],
        rows: int64, columns: int64, chunks: int64, empty: Scalar[result], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row, column = group_position(columns, chunks)
        if column < columns and row < rows:
            found = row_in(positions[row * columns + column])
            output[row * output_row + offset_of(column, shape, output_strides)] = result_type(empty) if found < 0 else result_type(found)

    return finish_positions, rows_launch(threads_per_block, vector, 1)
