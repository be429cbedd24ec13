"""What kernels that work row by row share, and two of them: fill and finish."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.atomics import red_max_value, red_min_value
from ...device.bits import recast
from ...device.build import opaque
from ...device.vector import LOAD, STORE, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import Elements, FillRows, FinishFlat, RowWise
from ..tiling import Tiling, elements_launch
from .common import count_of, first_row_of, row_of, short_reciprocal
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
    *, value: str, guarded: bool, vector: int, lanes: int, cut: bool, dims: int, threads_per_block: int = RowWise.threads_per_block,
    items_per_thread: int = FillRows.items_per_thread,
) -> Any:  # fmt: skip
    """``output[low + r] = fill`` for every row r. Bytes: rows · columns · value written.

    Constants and parameters as :mod:`.` lists them, and ``items_per_thread``: rows of a group; ``low``: the first row; ``fill``: a number.
    """
    offset_of, write_empty = strided_offset_of(dims), blank_writer(value, vector)
    group_position, groups = position_of(threads_per_block, lanes, vector, items_per_thread, cut), threads_per_block // lanes

    def fill_rows(
        guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, low: int64, fill: Scalar[value], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        row, column = group_position(columns, chunks)
        offset = offset_of(column, shape, output_strides)
        for _ in range(items_per_thread):
            if column < columns and row < rows:
                write_empty(output, low + row, 1, output_row, offset, columns - column, fill)
            row += groups

    return fill_rows, rows_launch(threads_per_block, vector, items_per_thread)


@jit.kernel
def fill_elements(
    *, value: str, vector: int, threads_per_block: int = Elements.threads_per_block, items_per_thread: int = Elements.items_per_thread
) -> Any:  # fmt: skip
    """``output[e] = fill`` for every element, which are contiguous. Bytes: elements · value written.

    Constants and parameters as :mod:`.` lists them, and ``vector``: elements of a store; ``items_per_thread``: stores; ``elements``: their number;
    ``fill``: a number.
    """
    element, threads, (_, narrow) = jit.SCALARS[value], threads_per_block, conversions_of(value)
    store, tile = STORE_STREAM[vector], threads_per_block * items_per_thread * vector

    def fill_elements(
        output: Ptr[value],
        elements: int64, fill: Scalar[accumulator_type(value)],
    ) -> None:  # fmt: skip
        blank = cuda.local.array(vector, element)
        for v in range(vector):
            blank[v] = narrow(fill)
        begin = int64(cuda.blockIdx.x) * tile
        length = int32(min(int64(tile), elements - begin))
        for u in range(items_per_thread):
            first = int32((u * threads + cuda.threadIdx.x) * vector)
            if first + vector <= length:
                store(output, begin + first, blank, 0)
            else:
                for v in range(vector):
                    if first + v < length:
                        output[begin + first + v] = blank[v]

    return fill_elements, lambda elements: elements_launch(elements, vector, threads, items_per_thread)


@jit.kernel
def finish_rows(
    *, monoid: str, value: str, source_value: str, coded: str, count: str, vector: int, lanes: int, cut: bool, dims: int, differences: bool = False,
    threads_per_block: int = RowWise.threads_per_block,
) -> Any:  # fmt: skip
    """``output[s] = finish(source[s], counts[s])``, or ``empty`` where segment s has no rows; source and output may be the same memory.

    Bytes: segments · columns · (source_value + value), and the counts.

    Constants and parameters as :mod:`.` lists them, where ``rows`` are segments, and ``source_value``: the element type of the source; ``coded``:
    "max" or "min" where ``device.red_max`` or ``red_min`` has encoded it, so that the source itself tells which segments are empty, else "". Where
    ``coded`` is "" the counts tell, or, where ``count`` is "", no segment is empty.
    """
    source_type, finished = _finisher_of(monoid, value, source_value, coded, count)
    element, wide, counted = jit.SCALARS[value], accumulator_type(value), count != ""
    load, store, offset_of, rows_of = LOAD[vector], STORE[vector], strided_offset_of(dims), count_of(differences)
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
            here = wide(rows_of(counts, row)) if counted else wide(1)
            for v in range(vector):
                results[v] = finished(states[v], here, empty)
            store(output, row * output_row + offset_of(column, shape, output_strides), results, 0)

    return finish_rows, rows_launch(threads_per_block, vector, 1)


@functools.cache
def _finisher_of(monoid: str, value: str, source_value: str, coded: str, count: str) -> tuple[Any, Any]:
    """The type in which a source is read, and ``finished(state, count, empty)``: the element that becomes of a state. See :func:`finish_rows`."""
    wide, counted = accumulator_type(value), count != ""
    source_type = jit.SCALARS["u" + str(8 * BY_NAME[source_value].itemsize)] if coded else jit.SCALARS[source_value]
    (widen, _), (_, narrow), finish = conversions_of(source_value), conversions_of(value), jit.device(monoid_of(monoid).finish)
    decode = red_max_value if coded == "max" else red_min_value

    @jit.device
    def finished(state: Any, count: Any, empty: Any) -> Any:
        if coded != "":
            return narrow(decode(state, wide(empty)))
        if not counted:
            return narrow(finish(widen(state), wide(1), wide(1)))
        result = narrow(finish(widen(state), max(count, wide(1)), wide(1)))
        return result if count > 0 else narrow(empty)

    return source_type, finished


@jit.kernel
def finish_flat(
    *, monoid: str, value: str, source_value: str, coded: str, count: str, vector: int, span: int, differences: bool = False,
    threads_per_block: int = FinishFlat.threads_per_block, items_per_thread: int = FinishFlat.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`finish_rows` where source and output are contiguous: lanes share pieces of ``vector`` elements of all rows.

    A block has ``items_per_thread`` pieces of each thread, whose loads and those of their counts are issued before the first is finished. Bytes: as
    :func:`finish_rows`.

    Constants and parameters as :mod:`.` lists them, where ``rows`` are segments, ``source_value`` and ``coded`` as in :func:`finish_rows`, and

    * ``span``: 1 where no piece meets two rows, 2 where one may meet two, 3 where it may meet more
    * ``reciprocal``: :func:`~..tiling.reciprocal_of` the columns; its upper half divides exactly as long as (elements of a block + columns) ·
      columns < 2^32
    """
    source_type, finished = _finisher_of(monoid, value, source_value, coded, count)
    element, wide, counted, rows_of = jit.SCALARS[value], accumulator_type(value), count != "", count_of(differences)
    threads, tile = threads_per_block, threads_per_block * items_per_thread * vector

    @functools.cache
    def step_of(pieces: int, width: int) -> Any:
        """``step(source, counts, output, begin, start, shift, …)`` finishes ``pieces`` pieces of ``width`` elements each."""
        stride, size, together = threads * width, pieces * width, min(width, BY_NAME[source_value].vector)
        load, store, met = LOAD[together], STORE[width], span if width > 1 else 1
        unit = 1 if met > 2 else width
        units = size // unit

        @jit.device
        def step(
            source: Any, counts: Any, output: Any, begin: Any, start: Any, shift: Any, first: Any, last: Any, pitch: Any, reciprocal: Any, empty: Any
        ) -> None:
            batch = cuda.local.array(size, source_type)
            results = cuda.local.array(size, element)
            here = cuda.local.array(units, wide)
            after = cuda.local.array(units, wide)
            left = cuda.local.array(units, int32)
            for u in range(pieces):
                for k in range(0, width, together):
                    load(source, begin + start + u * stride + k, batch, u * width + k)
            for k in range(units):
                here[k] = wide(1)
                if counted:
                    at = int32(shift + start + k * unit // width * stride + k * unit % width)
                    row = row_of(at, reciprocal)
                    here[k] = wide(rows_of(counts, first + row))
                    if met == 2:
                        left[k] = int32((row + 1) * pitch - at)
                        after[k] = wide(rows_of(counts, first + min(int32(row + 1), last)))
            for k in range(units):
                for v in range(unit):
                    count = here[k]
                    if counted and met == 2:
                        count = count if int32(v) < left[k] else after[k]
                    results[k * unit + v] = finished(batch[k * unit + v], count, empty)
            for u in range(pieces):
                store(output, begin + start + u * stride, results, u * width)

        return step

    batch, piece, single = step_of(items_per_thread, vector), step_of(1, vector), step_of(1, 1)

    def finish_flat(
        source: Ptr[source_value], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, reciprocal: int64, empty: Scalar[wide],
    ) -> None:  # fmt: skip
        states = recast(source, source_type)
        pitch, begin = int32(columns), int64(cuda.blockIdx.x) * tile
        length = int32(min(int64(tile), rows * columns - begin))
        first, short = first_row_of(begin, reciprocal), short_reciprocal(reciprocal)
        shift, last = int32(begin - first * columns), int32(min(rows - first - 1, int64(tile)))
        start = int32(cuda.threadIdx.x * vector)
        if length == tile:
            batch(states, counts, output, begin, start, shift, first, last, pitch, short, empty)
            return
        while start + vector <= length:
            piece(states, counts, output, begin, start, shift, first, last, pitch, short, empty)
            start = int32(opaque(start + threads * vector))
        start = int32(length - length % vector + cuda.threadIdx.x)
        if start < length:
            single(states, counts, output, begin, start, shift, first, last, pitch, short, empty)

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return ceil_div(rows * columns, tile), threads, 0

    return finish_flat, launch_config
