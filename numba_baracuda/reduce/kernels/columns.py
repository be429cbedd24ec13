"""Folds along an axis that is not contiguous in memory: neighbouring lanes have neighbouring columns and walk down them."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.vector import aligned_span
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.arrivals import last_to_arrive
from ...kernels.batch import state_accessors, state_functions, state_kind
from ...kernels.elements import accumulator_type, coordinates_of, next_coordinates_of, origin_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import column_split_of, lane_of_group, peeled_loads, turned_of, walking_loads
from .results import placed_of, result_stores, splits_fold


@functools.cache
def stretches_of(depth: int) -> Any:
    """``stretch(first, last, below)``: the neighbouring positions that lane ``below`` of ``depth`` takes of those from ``first`` to ``last``.

    Runs of positions go to lanes in bit-reversed order, in which the tree combines lanes: first the upper half with the lower half.
    """
    levels = depth.bit_length() - 1

    @jit.device
    def stretch(begin: Any, end: Any, row_lane: Any) -> Any:
        share, number = (max(end - begin, int64(0)) + depth - 1) // depth, int32(0)
        for level in range(levels):
            number |= (row_lane >> level & 1) << (levels - 1 - level)
        return begin + number * share, min(begin + (number + 1) * share, end)

    return stretch


@functools.cache
def columns_fold(monoid: str, value: str, vector: int, lanes: int, steps: int, peeled: bool, dims: int, reused: bool = False) -> Any:
    """``fold(x, base, begin, end, jump, row_lane, low, high, shape, strides, accumulators)``: one lane's share of ``vector`` neighbouring columns.

    Of the positions ``begin`` to ``end`` − 1 the lane folds those that :func:`fold_columns` gives it, in batches that are ``jump`` positions apart,
    to ``accumulators``, one for each column, and returns their number. ``base`` is the offset of the first column. Columns ``low`` to ``high`` − 1
    of ``peeled`` ones exist. ``reused``: the columns are read once more.
    """
    element, accumulator, depth = jit.SCALARS[value], thread_accumulator_of(monoid, value), THREADS // lanes
    ordered, stretch_of = not monoid_of(monoid).commutes, stretches_of(depth)
    position_stride, size = 1 if ordered else depth, steps * vector
    start, fetch, fetch_some = walking_loads(value, vector, position_stride, dims, steps, reused)
    fetch_each, add = peeled_loads(value, vector, position_stride, dims, steps), accumulator.add_columns(steps, vector, position_stride)
    empty, width, (_, put) = accumulator.empty, accumulator.width, state_accessors(accumulator.width)

    @jit.device
    def fold(
        x: Any, base: Any, begin: Any, end: Any, jump: Any, row_lane: Any, low: Any, high: Any, shape: Any, strides: Any, accumulators: Any
    ) -> Any:  # fmt: skip
        batch = cuda.local.array(size, element)
        count, position, last = int32(0), int64(begin + row_lane), int64(end)
        for v in range(vector):
            put(accumulators, v * width, 1, empty())
        if ordered:
            position, last = stretch_of(begin, end, row_lane)
        walk = start(base, position, shape, strides)
        while position + (steps - 1) * position_stride < last:
            if peeled and high - low < vector:
                fetch_each(x, base, low, high, position, last, shape, strides, batch)
            else:
                if dims != 2:
                    walk = start(base, position, shape, strides)
                walk = fetch(x, walk, shape, strides, batch, 0)
            add(accumulators, batch, position, steps, count)
            count = int32(count + steps)
            position = opaque(position + jump)
        if position < last:
            if peeled and high - low < vector:
                valid = fetch_each(x, base, low, high, position, last, shape, strides, batch)
            else:
                valid = fetch_some(x, base, walk, position, last, position, shape, strides, batch, 0)
            add(accumulators, batch, position, valid, count)
            count = int32(count + valid)
        return count

    return fold


@functools.cache
def columns_tree(monoid: str, value: str, vector: int, lanes: int) -> tuple[Any, int]:
    """``combine_lanes(state, shared, row_lane)``, and the scalars that it wants in ``shared``: the states of all lanes of a column, combined.

    ``state`` holds one of each of a lane's ``vector`` columns; it becomes the whole columns' where ``row_lane`` is 0. All threads of a block call it.
    """
    (get, put), width = state_accessors(thread_accumulator_of(monoid, value).state_width), thread_accumulator_of(monoid, value).state_width
    combine, depth, scalars = state_functions(monoid, value).combine, THREADS // lanes, width * vector
    levels = depth.bit_length() - 1

    @jit.device
    def combine_lanes(state: Any, shared: Any, row_lane: Any) -> None:
        thread = uint32(cuda.threadIdx.x)
        for level in range(levels):
            half = depth >> (level + 1)
            if half <= row_lane < 2 * half:
                for k in range(scalars):
                    shared[k * THREADS + thread] = state[k]
            cuda.syncthreads()
            if row_lane < half:
                for v in range(vector):
                    other = get(shared, v * width * THREADS + thread + half * lanes, THREADS)
                    put(state, v * width, 1, combine(get(state, v * width, 1), other))

    return combine_lanes, THREADS * scalars if depth > 1 else 1


@jit.kernel
def fold_columns(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, steps: int, peeled: bool, ragged: bool, outer: int, guarded: bool,
    single_pass: bool, reused: bool, kept: int, dims: int,
) -> Any:  # fmt: skip
    """:func:`fold_rows` where the elements of a row are not contiguous in memory, but those of neighbouring rows are. Here rows are called columns.

    The threads of a block form a grid, ``lanes`` across and ``THREADS // lanes`` down. Each lane folds ``vector`` neighbouring columns: it loads one
    vector every ``THREADS // lanes`` positions, ``steps`` before it uses the first: a batch, of which the block takes every ``splits``-th. Along
    two axes, where a walk goes on without a division, and where the monoid does not commute, it takes ``chunk`` neighbouring positions instead; in
    the latter case so does each lane. Then the lanes of a column combine states in shared memory, as a tree. ``peeled``: the columns begin
    or end inside an aligned vector. Loads are aligned then, and the lanes at either end load the elements of the columns that exist one by one.
    ``ragged``: the first ``longer`` columns have one element more, and vectors are those of :func:`turned_of`; a lane of the first split and one of
    the last load the elements of vectors that are not whole one by one. Columns of the walk before are one position behind those of this walk.
    Consecutive blocks have neighbouring columns of a line.
    In a ``single_pass`` the last block of some columns to finish combines the splits: each lane every ``THREADS // lanes``-th split, then the lanes
    of a column as before. Order and bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them.
    """
    element, wide, origin_from = jit.SCALARS[value], accumulator_type(value), origin_of(value)
    accumulator = thread_accumulator_of(monoid, value)
    kind, state_of, subtracts_origin = accumulator.kind, accumulator.state, monoid_of(monoid).subtracts_origin
    depth, width, accumulator_width = THREADS // lanes, accumulator.state_width, accumulator.width
    (get, put), (get_accumulator, _) = state_accessors(width), state_accessors(accumulator_width)
    fold_lane, (combine_lanes, shared_size) = (
        columns_fold(monoid, value, vector, lanes, steps, peeled, dims, reused),
        columns_tree(monoid, value, vector, lanes),
    )
    (store_result, store_partial), (coordinates, column_offset) = result_stores(monoid, value, result), coordinates_of(kept)
    advance, turn = next_coordinates_of(kept, outer, ragged), turned_of(vector, kept, outer)
    add_one, ordered = accumulator.add_batch(1, 1, 1, 0), not monoid_of(monoid).commutes
    batch_stride, neighbours = steps if ordered else depth * steps, ordered or dims == 2
    state_scalars, accumulator_scalars = width * vector, accumulator_width * vector
    combine_splits, stages, placed = splits_fold(monoid, value, vector, lanes, depth), 2 if single_pass else 1, placed_of(monoid, value)

    def fold_columns(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        columns: int64, longer: int64, extent: int64, chunk: int64, splits: int64, across: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], origin_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        partial_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        shared_states = cuda.shared.array(shared_size, kind)
        single = cuda.local.array(1, element)
        found = cuda.local.array(kept, int64)
        accumulators = cuda.local.array(accumulator_scalars, kind)
        state = cuda.local.array(state_scalars, kind)
        if guarded and guard[0] == 0:
            return
        column_block, split = column_split_of(int64(cuda.blockIdx.x), splits, across)
        row_lane, column_lane = lane_of_group(lanes)
        column = (column_block * lanes + column_lane) * vector
        low, high, first = int64(0), int64(vector), column
        if neighbours:
            begin, jump, end = split * chunk, int64(batch_stride), min((split + 1) * chunk, int64(extent))
        else:
            begin, jump, end = split * batch_stride, splits * batch_stride, int64(extent)
        if peeled:
            column -= (vector - aligned_span(x, 0, columns, vector)[0]) & (vector - 1)
            low, high, base = max(-column, low), min(columns - column, high), column
            first = column
        elif ragged:
            base, first, others, more, left = turn(x, min(column, columns - vector), longer, x_strides[0], kept_shape, x_kept_strides, found)
        else:
            coordinates(min(column, int64(columns - 1)), kept_shape, found)
            base = column_offset(found, x_kept_strides)
        if column >= columns:
            end = int64(0)
        position = begin
        if ragged:
            turned = row_lane == 0 and others > 0
            starts, ends = turned and split == 0, row_lane == 0 and split == splits - 1
            end += more
            position += depth if turned else 0
        count = fold_lane(x, base, position, end, jump, row_lane, low, high, shape, x_strides, accumulators)
        if subtracts_origin:
            coordinates(first, kept_shape, found)
        for v in range(vector):
            acc, own_count, origin = get_accumulator(accumulators, v * accumulator_width, 1), count, wide(0)
            if ragged and starts and v >= others:
                single[0] = x[base + v]
                acc, own_count = add_one(acc, single, 0, int64(0), 1, own_count), int32(own_count + 1)
            if ragged and ends and v < left:
                single[0] = x[base + v + (extent + more) * x_strides[0]]
                acc, own_count = add_one(acc, single, 0, extent + more, 1, own_count), int32(own_count + 1)
            if subtracts_origin and begin < end and low <= v < high:
                origin = origin_from(x[column_offset(found, origin_kept_strides)])
            if subtracts_origin:
                advance(found, kept_shape)
            put(state, v * width, 1, state_of(acc, own_count, origin))
            if ragged and v < others:
                put(state, v * width, 1, placed(get(state, v * width, 1), int64(-1), int64(1)))
        for stage in range(stages):
            if single_pass and stage > 0:
                if row_lane == 0:
                    for k in range(state_scalars):
                        partials[((column_block * splits + split) * state_scalars + k) * lanes + column_lane] = state[k]
                if not last_to_arrive(guard, column_block, splits):
                    return
                combine_splits(partials, column_block, splits, row_lane, splits, column_lane, state, int64(1), int64(1), int64(0))
            combine_lanes(state, shared_states, row_lane)
        if row_lane == 0 and column < columns:
            if depth > 1 or dims > 1 or peeled or subtracts_origin:  # lanes of short columns still have them
                coordinates(first, kept_shape, found)
            for v in range(vector):
                if not peeled or low <= v < high:
                    if splits > 1 and not single_pass:
                        store_partial(partials, column_offset(found, partial_kept_strides) * splits + split, get(state, v * width, 1))
                    else:
                        store_result(y, column_offset(found, y_kept_strides), get(state, v * width, 1), corrected_count)
                advance(found, kept_shape)

    return fold_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)
