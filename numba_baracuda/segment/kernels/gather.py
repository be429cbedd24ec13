"""Gradients of sums: each row gets its segment's row. One kernel each for wide rows, odd rows, single columns, and ids in order."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, LOAD_SHARED, STORE, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..flat_tiling import flat_height, flat_ids
from ..policy import Elements, GatherFlat, GatherRows, GatherRuns, RowWise
from ..tiling import elements_launch
from .common import count_of
from .rows import ids_loader_of, position_of, rows_launch


def quotient_of(value: str) -> Any:
    """``quotient(x, count)`` of an element, in the accumulator's precision."""
    wide, (widen, narrow) = accumulator_type(value), conversions_of(value)
    return jit.device(lambda x, count: narrow(widen(x) / wide(count)))


@jit.kernel
def gather_rows(
    *, value: str, index: str, count: str, vector: int, lanes: int, cut: bool, dims: int, differences: bool = False,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = GatherRows.items_per_thread,
) -> Any:  # fmt: skip
    """``output[r] = source[ids[r]]``, divided by the count of ``ids[r]`` unless ``count`` is ""; 0 where the id is out of range.

    A group copies ``items_per_thread`` rows and issues all loads before the first store. The output is streamed, so that the source stays in L2.
    Bytes: rows · (columns · value + index) read or written once, plus the rows gathered.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    load, store, offset_of, quotient = LOAD_ONCE[vector], STORE_STREAM[vector], strided_offset_of(dims), quotient_of(value)
    group_position = position_of(threads_per_block, lanes, vector, items_per_thread, cut)
    groups, batch_size = threads_per_block // lanes, items_per_thread * vector
    divided, rows_of = count != "", count_of(differences)

    def gather_rows(
        source: Ptr[value], ids: Ptr[index], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, segments: int64, ids_step: int64, source_row: int64, output_row: int64,
        shape: Extents[dims], source_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(items_per_thread, index_type)
        first, column = group_position(columns, chunks)
        source_offset, output_offset = offset_of(column, shape, source_strides), offset_of(column, shape, output_strides)
        if column < columns:
            for u in range(items_per_thread):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(items_per_thread):
                if 0 <= batch_ids[u] < segments:
                    load(source, int64(batch_ids[u]) * source_row + source_offset, batch, u * vector)
                else:
                    for v in range(vector):
                        batch[u * vector + v] = element(0)
            for u in range(items_per_thread):
                row = first + u * groups
                if row < rows:
                    if divided and 0 <= batch_ids[u] < segments:
                        for v in range(vector):
                            batch[u * vector + v] = quotient(batch[u * vector + v], rows_of(counts, int64(batch_ids[u])))
                    store(output, row * output_row + output_offset, batch, u * vector)

    return gather_rows, rows_launch(threads_per_block, vector, items_per_thread)


@jit.kernel
def gather_runs(
    *, value: str, index: str, count: str, row_index: str, vector: int, lanes: int, cut: bool, dims: int, differences: bool = False,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = GatherRuns.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`gather_rows` along ids in order: only the first of neighbouring rows of a segment loads the segment's row, and divides.

    A group copies ``items_per_thread`` neighbouring rows. Unless ``row_index`` is "", row r of the output is row ``permutation[r]``. Bytes: as
    :func:`gather_rows`, and the permutation.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type, row_index_type = jit.SCALARS[value], jit.SCALARS[index], jit.SCALARS[row_index or "i32"]
    load, store, offset_of, quotient = LOAD_ONCE[vector], STORE_STREAM[vector], strided_offset_of(dims), quotient_of(value)
    group_position = position_of(threads_per_block, lanes, vector, items_per_thread, cut, contiguous=True)
    load_row_ids = ids_loader_of(index, row_index, items_per_thread, 1)
    permuted, divided, rows_of = row_index != "", count != "", count_of(differences)

    def gather_runs(
        source: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, segments: int64, ids_step: int64, source_row: int64, output_row: int64,
        shape: Extents[dims], source_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, element)
        batch_ids = cuda.local.array(items_per_thread, index_type)
        row_indices = cuda.local.array(items_per_thread, row_index_type)
        first, column = group_position(columns, chunks)
        source_offset, output_offset = offset_of(column, shape, source_strides), offset_of(column, shape, output_strides)
        if column < columns:
            load_row_ids(ids, permutation, first, rows, ids_step, batch_ids, row_indices)
            for u in range(items_per_thread):
                identifier = batch_ids[u]
                if u == 0 or identifier != batch_ids[max(u - 1, 0)]:
                    if 0 <= identifier < segments:
                        load(source, int64(identifier) * source_row + source_offset, batch, 0)
                        if divided:
                            for v in range(vector):
                                batch[v] = quotient(batch[v], rows_of(counts, int64(identifier)))
                    else:
                        for v in range(vector):
                            batch[v] = element(0)
                if first + u < rows:
                    row = int64(row_indices[u]) if permuted else first + u
                    store(output, row * output_row + output_offset, batch, 0)

    return gather_runs, rows_launch(threads_per_block, vector, items_per_thread)


@jit.kernel
def gather_flat(
    *, value: str, index: str, count: str, vector: int, lanes: int, lane_vectors: int, cut: bool, differences: bool = False,
    threads_per_block: int = GatherFlat.threads_per_block,
) -> Any:  # fmt: skip
    """:func:`gather_rows` for an output whose rows are contiguous and no multiple of 16 bytes: blocks store it in pieces of 16 bytes.

    A block loads what ``tile`` rows get to shared memory, and stores it from there, wherever a row ends. Loads stay in L1, since neighbouring rows of
    ids in order are the same. Where a tile is full and all its ids are in range, no row asks. Dynamic shared memory: ``tile`` · columns elements, a
    multiple of 16 bytes. Bytes: as :func:`gather_rows`.

    Constants and parameters as :mod:`.` lists them, and ``lane_vectors``: vectors of a row that a lane has at a time; all of them if ``lanes`` is 1.
    """
    element, index_type, unsigned, piece = jit.SCALARS[value], jit.SCALARS[index], jit.SCALARS["u" + index[1:]], BY_NAME[value].vector
    load, store, load_piece, store_piece = LOAD_ONCE[vector], STORE[vector], LOAD_SHARED[piece], STORE_STREAM[piece]
    quotient, divided, rows_of, most_rows = quotient_of(value), count != "", count_of(differences), flat_ids(index)
    groups, lane_step, chunk = threads_per_block // lanes, lanes * vector, lanes * vector * lane_vectors
    height, row_size, stride, pieces = flat_height(value, vector, lane_vectors), lane_vectors * vector, threads_per_block * piece, 4
    batch_size, words_size = height * row_size, pieces * piece

    @functools.cache
    def rows_copier(whole: bool) -> Any:
        """``copy(…)`` brings vectors of ``height`` rows, ``groups`` apart, to shared memory, from ``column`` on; of ``whole`` ones all are there."""

        @jit.device
        def copy(source: Any, counts: Any, source_row: Any, columns: Any, rows: Any, ids: Any, row: Any, column: Any, elements: Any) -> None:
            batch = cuda.local.array(batch_size, element)
            batch_ids = cuda.local.array(height, index_type)
            for u in range(height):
                batch_ids[u] = ids[row + u * groups] if whole or row + u * groups < rows else index_type(-1)
            for u in range(height):
                at = int64(batch_ids[u]) * source_row + column
                for k in range(lane_vectors):
                    if (whole or batch_ids[u] >= 0) and (lanes == 1 or column + k * lane_step < columns):
                        load(source, at + k * lane_step, batch, u * row_size + k * vector)
                    else:
                        for v in range(vector):
                            batch[u * row_size + k * vector + v] = element(0)
                if divided and (whole or batch_ids[u] >= 0):
                    times = rows_of(counts, int64(batch_ids[u]))
                    for k in range(row_size):
                        batch[u * row_size + k] = quotient(batch[u * row_size + k], times)
            for u in range(height):
                at = int32((row + u * groups) * columns + column)
                for k in range(lane_vectors):
                    if (whole or row + u * groups < rows) and (lanes == 1 or column + k * lane_step < columns):
                        store(elements, at + k * lane_step, batch, u * row_size + k * vector)

        return copy

    copy_whole, copy_partial = rows_copier(True), rows_copier(False)

    def gather_flat(
        source: Ptr[value], ids: Ptr[index], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, ids_step: int64, source_row: int64,
    ) -> None:  # fmt: skip
        elements = cuda.shared.array(0, element)
        tile_ids = cuda.shared.array(most_rows, index_type)
        words = cuda.local.array(words_size, element)
        thread, pitch, first, most = int32(cuda.threadIdx.x), int32(columns), int64(cuda.blockIdx.x) * tile, unsigned(segments)
        rows_here, row, place, all_inside = int32(min(tile, rows - first)), thread, (first + thread) * ids_step, True
        while row < rows_here:
            inside = unsigned(ids[place]) < most
            all_inside &= inside
            tile_ids[row] = ids[place] if inside else index_type(-1)
            row = int32(opaque(row + threads_per_block))
            place += threads_per_block * ids_step
        whole = cuda.syncthreads_and(int32(all_inside)) and rows_here % (height * groups) == 0
        row = int32(uint32(thread) // uint32(lanes))
        begin = int32((thread - row * lanes) * vector)
        while row < rows_here:
            column = begin
            while column < pitch:
                if whole:
                    copy_whole(source, counts, source_row, pitch, rows_here, tile_ids, row, column, elements)
                else:
                    copy_partial(source, counts, source_row, pitch, rows_here, tile_ids, row, column, elements)
                column = int32(opaque(column + chunk)) if cut else pitch
            row = int32(opaque(row + height * groups))
        cuda.syncthreads()
        size, place, start = int32(rows_here * pitch), first * columns + thread * piece, int32(thread * piece)
        while start + (pieces - 1) * stride + piece <= size:
            for u in range(pieces):
                load_piece(elements, start + u * stride, words, u * piece)
            for u in range(pieces):
                store_piece(output, place + u * stride, words, u * piece)
            start, place = int32(opaque(start + pieces * stride)), place + pieces * stride
        while start + piece <= size:
            load_piece(elements, start, words, 0)
            store_piece(output, place, words, 0)
            start, place = int32(opaque(start + stride)), place + stride
        start = int32(size - size % piece + thread)
        if start < size:
            output[first * columns + start] = elements[start]

    def launch_config(rows: int, columns: int, tile: int) -> tuple[int, int, int]:
        return ceil_div(rows, tile), threads_per_block, tile * columns * BY_NAME[value].itemsize

    return gather_flat, launch_config


@jit.kernel
def gather_elements(
    *, value: str, index: str, count: str, differences: bool = False,
    threads_per_block: int = Elements.threads_per_block, items_per_thread: int = Elements.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`gather_rows` for one column, where output and ids are contiguous: a lane takes as many neighbouring rows as fill 16 bytes of both.

    Bytes: rows · (value + index) read or written once, plus the elements gathered.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    vector, index_vector = BY_NAME[value].vector, BY_NAME[index].vector
    lane_items = max(vector, index_vector)
    load_ids, store, quotient = LOAD_ONCE[index_vector], STORE_STREAM[vector], quotient_of(value)
    stride, batch_size = threads_per_block * lane_items, items_per_thread * lane_items
    divided, rows_of = count != "", count_of(differences)

    @jit.device
    def fetch(source: Any, counts: Any, identifier: Any, segments: Any, source_row: Any) -> Any:
        if not 0 <= identifier < segments:
            return element(0)
        if divided:
            return quotient(source[int64(identifier) * source_row], rows_of(counts, int64(identifier)))
        return source[int64(identifier) * source_row]

    def gather_elements(
        source: Ptr[value], ids: Ptr[index], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, segments: int64, source_row: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(batch_size, index_type)
        tile = int64(cuda.blockIdx.x) * (items_per_thread * stride)
        if tile + items_per_thread * stride <= rows:
            first = tile + cuda.threadIdx.x * lane_items
            for u in range(items_per_thread):
                for k in range(0, lane_items, index_vector):
                    load_ids(ids, first + u * stride + k, batch_ids, u * lane_items + k)
            for k in range(batch_size):
                batch[k] = fetch(source, counts, batch_ids[k], segments, source_row)
            for u in range(items_per_thread):
                for k in range(0, lane_items, vector):
                    store(output, first + u * stride + k, batch, u * lane_items + k)
        else:
            row = tile + cuda.threadIdx.x
            while row < rows:
                output[row] = fetch(source, counts, ids[row], segments, source_row)
                row = opaque(row + threads_per_block)

    def launch_config(rows: int) -> tuple[int, int, int]:
        return elements_launch(rows, lane_items, threads_per_block, items_per_thread)

    return gather_elements, launch_config
