"""Folds of two, four, … neighbouring columns whose elements alternate: a vector has several positions, and a lane a state of each column."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_accessors, state_kind
from ...kernels.elements import accumulator_type, origin_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS, steps_of
from .loads import lane_of_group, peeled_span_of, split_of, vector_loads
from .results import result_stores


@functools.cache
def line_fold(monoid: str, value: str, vector: int, lanes: int, inner: int, reused: bool) -> Any:
    """``fold(x, base, split, splits, line_size, lane, accumulators)``: one lane's share of ``inner`` alternating columns.

    Element p of the line of ``line_size`` elements at offset ``base`` is at position p // ``inner`` of column p % ``inner``. ``splits`` groups of
    ``lanes`` lanes share its batches as those of :func:`~.rows.lane_fold` do. Each of the first lanes of split 0 has one of the elements before the
    first aligned vector and behind the last. Returns how many elements of vectors each accumulator has, the column of the first accumulator, and the
    number of the accumulator that has an element more, or −1. Accumulator j is of the j-th column from the first on, around.
    """
    element, accumulator = jit.SCALARS[value], thread_accumulator_of(monoid, value)
    stride, steps, own, width = lanes * vector, steps_of(value, vector), vector // inner, accumulator.width
    batch_stride, kind, span = steps * stride, accumulator.kind, peeled_span_of(vector)
    add, add_one, empty = accumulator.add_batch(steps, own, inner, stride // inner), accumulator.add_batch(1, 1, 1, 0), accumulator.empty
    (fetch, fetch_some), (get, put), size = vector_loads(value, vector, stride, 1, steps, reused), state_accessors(width), steps * vector

    @jit.device
    def add_each(accumulators: Any, batch: Any, position: Any, valid: Any, count: Any) -> None:
        for j in range(inner):
            before = get(accumulators, j * width, 1)
            put(accumulators, j * width, 1, add(before, batch, j, (position + j) // inner, valid, count))

    @jit.device
    def fold(x: Any, base: Any, split: Any, splits: Any, line_size: Any, lane: Any, accumulators: Any) -> Any:
        batch, single, unit = cuda.local.array(size, element), cuda.local.array(1, element), (int64(1),)
        chosen = cuda.local.array(width, kind)
        for j in range(inner):
            put(accumulators, j * width, 1, empty())
        first, last, unaligned = span(x, base, line_size, split, lane)
        if unaligned < line_size:
            single[0] = x[base + unaligned]
        count, longer = int32(0), int32(-1)
        position, jump = first + split * batch_stride + lane * vector, splits * batch_stride
        while position + (steps - 1) * stride < last:
            fetch(x, base, position, unit, unit, batch, 0)
            add_each(accumulators, batch, position, steps, count)
            count = int32(count + steps * own)
            position = opaque(position + jump)
        if position < last:
            valid = fetch_some(x, base, position, last, position, unit, unit, batch, 0)
            add_each(accumulators, batch, position, valid, count)
            count = int32(count + valid * own)
        if unaligned < line_size:
            longer = int32((unaligned - first) & (inner - 1))
            for k in range(inner * width):  # chosen, not indexed: the array stays in registers
                chosen[k % width] = accumulators[k] if k // width == longer or k < width else chosen[k % width]
            put(chosen, 0, 1, add_one(get(chosen, 0, 1), single, 0, unaligned // inner, 1, count))
            for k in range(inner * width):
                accumulators[k] = chosen[k % width] if k // width == longer else accumulators[k]
        return count, int32(first & (inner - 1)), longer

    return fold


@jit.kernel
def fold_lines(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, inner: int, guarded: bool, reused: bool, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_columns` for lines of ``inner`` neighbouring columns, contiguous at all positions; fewer than a vector holds, and a power of two.

    A group of ``lanes`` lanes, at least a warp, folds a split of a line, every ``splits``-th batch, as :func:`fold_rows` does that of a row. A lane
    has an accumulator for each column; the group reduces those of one column after another, and lane j stores the j-th. Lines need not be aligned.
    Order and bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``inner``: neighbouring columns.
    """
    wide, origin_from, subtracts_origin = accumulator_type(value), origin_of(value), monoid_of(monoid).subtracts_origin
    accumulator, groups, row_offset = thread_accumulator_of(monoid, value), THREADS // lanes, strided_offset_of(kept)
    reduce_lanes, (store_result, store_partial), kind = accumulator.reduce_lanes(lanes), result_stores(monoid, value, result), accumulator.kind
    fold, (get, put), width = line_fold(monoid, value, vector, lanes, inner, reused), state_accessors(accumulator.width), accumulator.width
    (get_state, put_state), state_width = state_accessors(accumulator.state_width), accumulator.state_width
    empty, scalars = accumulator.empty, accumulator.width * inner

    def fold_lines(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        columns: int64, extent: int64, splits: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        accumulators, own_state = cuda.local.array(scalars, kind), cuda.local.array(state_width, kind)
        if guarded and guard[0] == 0:
            return
        line_block, split = split_of(int64(cuda.blockIdx.x), splits)
        group, lane = lane_of_group(lanes)
        first_column = (line_block * groups + group) * inner
        exists, base = first_column < columns, int64(0)
        count, turn, longer = int32(0), int32(0), int32(-1)
        for j in range(inner):
            put(accumulators, j * width, 1, empty())
        if exists:
            base = row_offset(first_column, kept_shape, x_kept_strides)
            count, turn, longer = fold(x, base, split, splits, extent * inner, lane, accumulators)
        column = first_column
        for j in range(inner):
            own, origin = int32((turn + j) & (inner - 1)), wide(0)
            if subtracts_origin:
                origin = origin_from(x[base + own])
            state = reduce_lanes(get(accumulators, 0, 1), int32(count + int32(j == longer)), origin)
            if lane == j:
                put_state(own_state, 0, 1, state)
                column = first_column + own
            for k in range(scalars - width):  # by constants: a loop that stays one would leave an array that it indexes in local memory
                accumulators[k] = accumulators[k + width]
        if lane < inner and exists:
            if splits > 1:
                store_partial(partials, column * splits + split, get_state(own_state, 0, 1))
            else:
                store_result(y, row_offset(column, kept_shape, y_kept_strides), get_state(own_state, 0, 1), corrected_count)

    return fold_lines, lambda columns, splits: (-(-columns // (inner * groups)) * splits, THREADS, 0)
