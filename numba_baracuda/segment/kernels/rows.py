"""Kernels that work row by row: scatter, fill and finish."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import Integer, float32, int32, int64, uint32

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...device.atomics import atomic_mul, red_add, red_add_2, red_add_4, red_max, red_max_value, red_min, red_min_value
from ...device.bits import f32_as_i32, f64_as_i64, i32_as_f32, i64_as_f64, recast
from ...device.numbers import maximum, minimum
from ...device.order import load_relaxed, load_relaxed_2
from ...device.vector import LOAD, LOAD_STREAM, STORE
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import RowWise
from ..policy_of import scatter_items
from ..tiling import Tiling
from .common import ids_of
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


@functools.cache
def updates_of(update: str, value: str, vector: int) -> Any:
    """``change(output, at, batch, first)`` updates ``vector`` elements of the output, which is of the accumulator's type, each by one atomic.

    Sums of float32 go by as many elements as one vectorized atomic takes. For max and min the lane loads the element first, and updates it only where
    that may change something: most do not.
    """
    wide, widen = accumulator_type(value), conversions_of(value)[0]
    if update == "add":
        pairs, fours = wide == float32 and vector == 2, wide == float32 and vector % 4 == 0

        @jit.device
        def add(output: Any, at: Any, batch: Any, first: Any) -> None:
            if fours:
                for v in range(0, vector, 4):
                    k = first + v
                    red_add_4(output, at + v, widen(batch[k]), widen(batch[k + 1]), widen(batch[k + 2]), widen(batch[k + 3]))
            elif pairs:
                red_add_2(output, at, widen(batch[first]), widen(batch[first + 1]))
            else:
                for v in range(vector):
                    red_add(output, at + v, widen(batch[first + v]))

        return add
    if update == "mul":

        @jit.device
        def multiply(output: Any, at: Any, batch: Any, first: Any) -> None:
            for v in range(vector):
                atomic_mul(output, at + v, widen(batch[first + v]))

        return multiply
    red, is_max = red_max if update == "max" else red_min, update == "max"
    whole, narrow_words = isinstance(wide, Integer), wide.bitwidth == 32
    nan = (1 << (wide.bitwidth - 1)) - 1 if is_max else -1  #: the bits that an update by NaN leaves
    word_type = int32 if narrow_words else int64
    per_load = 128 // wide.bitwidth if vector * wide.bitwidth >= 128 else 1
    shift = 1 if narrow_words else 0  #: from elements to words of 64 bits

    if whole:
        bits = from_bits = jit.device(lambda word: word)
    elif narrow_words:
        bits, from_bits = f32_as_i32, i32_as_f32
    else:
        bits, from_bits = f64_as_i64, i64_as_f64

    @jit.device
    def beaten(x: Any, word: Any) -> Any:
        """Whether an update by x would leave the element that has these bits as it is; NaN may have the bits that memory starts from."""
        current = from_bits(word)
        return (x < current if is_max else x > current) or (bits(x) == word if x == x else word == nan)

    @jit.device
    def extend(output: Any, at: Any, batch: Any, first: Any) -> None:
        pair = cuda.local.array(2, int64)
        for v in range(0, vector, per_load):
            if per_load == 1:
                x = widen(batch[first + v])
                if not beaten(x, load_relaxed(recast(output, word_type), at + v)):
                    red(output, at + v, x)
            else:
                load_relaxed_2(recast(output, int64), (at + v) >> shift, pair, 0)
                for w in range(per_load):
                    x = widen(batch[first + v + w])
                    if not beaten(x, word_type(pair[w >> shift] >> (32 * (w & shift)))):
                        red(output, at + v + w, x)

    return extend


@jit.kernel
def scatter_rows(
    *, update: str, value: str, index: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Updates ``output[ids[r]]`` by ``input[r]`` atomically, in no fixed order; drops rows whose id is outside [low, high).

    A group takes ``items_per_thread`` rows and issues all loads before the first update. The input is streamed, so that the output stays in L2.
    Of its rows of a segment that follow each other it makes one for max and min, which do not round: updates of one address wait for each other.
    Bytes: rows · (columns · value + index) read, as many updated.

    Constants and parameters as :mod:`.` lists them, and ``update``: add, mul, max or min; ``items_per_thread``: 0 stands for the 2 or 4 rows of the
    tuning policy. ``output`` [segments, columns] is of the accumulator's type; floats for max and min are encoded as in ``device.red_max``. ``low``,
    ``high``: ids, the bounds of this pass.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    load, offset_of, update_output = LOAD_STREAM[vector], strided_offset_of(dims), updates_of(update, value, vector)
    items = items_per_thread or scatter_items(update)
    group_position = position_of(threads_per_block, lanes, vector, items, cut)
    groups, batch_size = threads_per_block // lanes, items * vector
    (last_id, _), greatest = ids_of(index), index_type.maxval
    joins, (widen, narrow) = update in ("max", "min"), conversions_of(value)
    combine = minimum if update == "min" else maximum

    def scatter_rows(
        input: Ptr[value], ids: Ptr[index], output: Ptr[accumulator_type(value)],
        rows: int64, columns: int64, chunks: int64, low: int64, high: int64, ids_step: int64, input_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(items, index_type)
        least = index_type(min(low, greatest))
        last = last_id(high) if low <= greatest else index_type(-1)
        first, column = group_position(columns, chunks)
        input_offset, output_offset = offset_of(column, shape, input_strides), offset_of(column, shape, output_strides)
        if column < columns:
            for u in range(items):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(items):
                row = first + u * groups
                if least <= batch_ids[u] <= last:
                    load(input, row * input_row + input_offset, batch, u * vector)
            for u in range(1, items if joins else 0):
                if batch_ids[u] == batch_ids[u - 1] and least <= batch_ids[u] <= last:
                    for v in range(u * vector, (u + 1) * vector):
                        batch[v] = narrow(combine(widen(batch[v - vector]), widen(batch[v])))
                    batch_ids[u - 1] = index_type(-1)
            for u in range(items):
                if least <= batch_ids[u] <= last:
                    update_output(output, int64(batch_ids[u]) * output_row + output_offset, batch, u * vector)

    return scatter_rows, rows_launch(threads_per_block, vector, items)


@jit.kernel
def fill_rows(
    *, value: str, vector: int, lanes: int, cut: bool, dims: int, threads_per_block: int = RowWise.threads_per_block
) -> Any:  # fmt: skip
    """``output[low + r] = fill`` for every row r. Bytes: rows · columns · value written.

    Constants and parameters as :mod:`.` lists them, and ``low``: the first row; ``fill``: a number.
    """
    offset_of, write_empty = strided_offset_of(dims), blank_writer(value, vector)
    group_position = position_of(threads_per_block, lanes, vector, 1, cut)

    def fill_rows(
        output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, low: int64, fill: Scalar[value], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
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
