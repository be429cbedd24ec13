"""Gradients of sums: each row gets its segment's row. One kernel each for wide rows, odd rows, single columns, and ids in order."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..policy import Elements, GatherFlat, GatherRows, GatherRuns, RowWise
from ..tiling import THREADS, Tiling, elements_launch, flat_tile
from .common import row_of
from .rows import ids_loader_of, position_of, rows_launch


def _quotient(value: str) -> Any:
    """``quotient(x, count)`` of an element, in the accumulator's precision."""
    wide, (widen, narrow) = accumulator_type(value), conversions_of(value)
    return jit.device(lambda x, count: narrow(widen(x) / wide(count)))


@jit.kernel
def gather_rows(
    *, value: str, index: str, count: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = GatherRows.items_per_thread,
) -> Any:  # fmt: skip
    """``output[r] = source[ids[r]]``, divided by ``counts[ids[r]]`` unless ``count`` is ""; 0 where the id is out of range.

    A group copies ``items_per_thread`` rows and issues all loads before the first store. The output is streamed, so that the source stays in L2.
    Bytes: rows · (columns · value + index) read or written once, plus the rows gathered.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    load, store, offset_of, quotient = LOAD_ONCE[vector], STORE_STREAM[vector], strided_offset_of(dims), _quotient(value)
    group_position = position_of(threads_per_block, lanes, vector, items_per_thread, cut)
    groups, batch_size = threads_per_block // lanes, items_per_thread * vector
    divided = count != ""

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
                            batch[u * vector + v] = quotient(batch[u * vector + v], counts[int64(batch_ids[u])])
                    store(output, row * output_row + output_offset, batch, u * vector)

    return gather_rows, rows_launch(threads_per_block, vector, items_per_thread)


@jit.kernel
def gather_runs(
    *, value: str, index: str, count: str, row_index: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = GatherRuns.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`gather_rows` along ids in order: only the first of neighbouring rows of a segment loads the segment's row, and divides.

    A group copies ``items_per_thread`` neighbouring rows. Unless ``row_index`` is "", row r of the output is row ``permutation[r]``. Bytes: as
    :func:`gather_rows`, and the permutation.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type, row_index_type = jit.SCALARS[value], jit.SCALARS[index], jit.SCALARS[row_index or "i32"]
    load, store, offset_of, quotient = LOAD_ONCE[vector], STORE_STREAM[vector], strided_offset_of(dims), _quotient(value)
    group_position = position_of(threads_per_block, lanes, vector, items_per_thread, cut, contiguous=True)
    load_row_ids = ids_loader_of(index, row_index, items_per_thread, 1)
    permuted, divided = row_index != "", count != ""

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
                                batch[v] = quotient(batch[v], counts[int64(identifier)])
                    else:
                        for v in range(vector):
                            batch[v] = element(0)
                if first + u < rows:
                    row = int64(row_indices[u]) if permuted else first + u
                    store(output, row * output_row + output_offset, batch, 0)

    return gather_runs, rows_launch(threads_per_block, vector, items_per_thread)


@jit.kernel
def gather_flat(
    *, value: str, index: str, count: str, short: bool,
    threads_per_block: int = GatherFlat.threads_per_block, items_per_thread: int = GatherFlat.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`gather_rows` for an output whose rows are contiguous and no multiple of 16 bytes: lanes share its 16-byte pieces.

    A block writes ``tile`` rows, which :func:`..tiling.flat_tile` chooses. Bytes: as :func:`gather_rows`.

    Constants and parameters as :mod:`.` lists them, and ``short``: whether rows have fewer than 16 bytes, so that a piece may meet more than two
    rows; ``reciprocal``: ⌊2^32 / columns⌋ + 1, by which a product and a shift divide exactly as long as ``tile`` · columns² < 2^32.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    vector = BY_NAME[value].vector
    store, quotient = STORE_STREAM[vector], _quotient(value)
    stride, batch_size = threads_per_block * vector, items_per_thread * vector
    divided = count != ""

    @jit.device
    def id_at(ids: Any, row: Any, ids_step: Any, segments: Any, inside: Any) -> Any:
        """The id of a row, or −1."""
        if not inside:
            return index_type(-1)
        identifier = ids[row * ids_step]
        return identifier if 0 <= identifier < segments else index_type(-1)

    @jit.device
    def fetch(source: Any, counts: Any, at: Any, identifier: Any) -> Any:
        if identifier < 0:
            return element(0)
        if divided:
            return quotient(source[at], counts[int64(identifier)])
        return source[at]

    def gather_flat(
        source: Ptr[value], ids: Ptr[index], counts: Ptr[count or int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, reciprocal: int64, ids_step: int64, source_row: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        here = cuda.local.array(items_per_thread, index_type)
        after = cuda.local.array(items_per_thread, index_type)
        left = cuda.local.array(items_per_thread, int32)
        first = int64(cuda.blockIdx.x) * tile
        height = int32(min(tile, rows - first))
        size = int32(height * columns)
        start = int32(cuda.threadIdx.x * vector)
        while start < size:
            if short:
                for u in range(items_per_thread):
                    for v in range(vector):
                        offset = int32(start + u * stride + v)
                        row = row_of(offset, reciprocal)
                        identifier = id_at(ids, first + row, ids_step, segments, row < height)
                        batch[u * vector + v] = fetch(source, counts, int64(identifier) * source_row + offset - row * columns, identifier)
            else:
                for u in range(items_per_thread):
                    offset = int32(start + u * stride)
                    row = row_of(offset, reciprocal)
                    left[u] = int32((row + 1) * columns - offset)
                    here[u] = id_at(ids, first + row, ids_step, segments, row < height)
                    after[u] = id_at(ids, first + row + 1, ids_step, segments, left[u] < vector and row + 1 < height)
                for u in range(items_per_thread):
                    here_at = int64(here[u]) * source_row + columns - left[u]
                    after_at = int64(after[u]) * source_row - left[u]
                    for v in range(vector):
                        if v < left[u]:
                            batch[u * vector + v] = fetch(source, counts, here_at + v, here[u])
                        else:
                            batch[u * vector + v] = fetch(source, counts, after_at + v, after[u])
            for u in range(items_per_thread):
                offset = int32(start + u * stride)
                if offset + vector <= size:
                    store(output, first * columns + offset, batch, u * vector)
                else:
                    for v in range(vector):
                        if offset + v < size:
                            output[first * columns + offset + v] = batch[u * vector + v]
            start = int32(opaque(start + items_per_thread * stride))

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return ceil_div(rows, flat_tile(GatherFlat.tile_elements, columns, vector)), threads_per_block, 0

    return gather_flat, launch_config


@jit.kernel
def gather_elements(
    *, value: str, index: str, count: str,
    threads_per_block: int = Elements.threads_per_block, items_per_thread: int = Elements.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`gather_rows` for one column, where output and ids are contiguous: a lane takes as many neighbouring rows as fill 16 bytes of both.

    Bytes: rows · (value + index) read or written once, plus the elements gathered.

    Constants and parameters as :mod:`.` lists them.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    vector, index_vector = BY_NAME[value].vector, BY_NAME[index].vector
    lane_items = max(vector, index_vector)
    load_ids, store, quotient = LOAD_ONCE[index_vector], STORE_STREAM[vector], _quotient(value)
    stride, batch_size = threads_per_block * lane_items, items_per_thread * lane_items
    divided = count != ""

    @jit.device
    def fetch(source: Any, counts: Any, identifier: Any, segments: Any, source_row: Any) -> Any:
        if not 0 <= identifier < segments:
            return element(0)
        if divided:
            return quotient(source[int64(identifier) * source_row], counts[int64(identifier)])
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


@jit.kernel
def pair_rows(*, value: str) -> Any:
    """``output[s]`` = the rows ``g[s]`` and ``y[s]``, one behind the other, so that who gathers both finds them together.

    Bytes: segments · columns · 4 · value.

    Parameters: ``g``, ``y`` [segments, columns], contiguous; ``output`` [segments, 2, columns]; ``elements``: of ``g``; ``columns``: their number.
    """

    def pair_rows(
        g: Ptr[value], y: Ptr[value], output: Ptr[value],
        elements: int64, columns: int64,
    ) -> None:  # fmt: skip
        k = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if k < elements:
            at = k + k // columns * columns
            output[at], output[at + columns] = g[k], y[k]

    return pair_rows, lambda elements: Tiling.of_ids(elements).launch
