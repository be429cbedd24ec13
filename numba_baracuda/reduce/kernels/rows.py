"""Folds along the axis that is contiguous in memory, or nearest to it: neighbouring lanes load neighbouring vectors of a row."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.arrivals import last_to_arrive
from ...kernels.batch import state_accessors, state_kind
from ...kernels.elements import accumulator_type, origin_of, strided_offset_of
from ...kernels.thread_accumulator import group_reduce
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS, steps_of
from .loads import lane_of_group, peeled_span_of, split_of, vector_loads
from .ordered import lane_in_order
from .results import result_stores, special_of, splits_fold


@functools.cache
def lane_fold(monoid: str, value: str, vector: int, lanes: int, peeled: bool, dims: int, reused: bool = False, rare: bool = False) -> Any:
    """``fold(x, base, split, splits, extent, lane, shape, strides)``: (accumulator, number of elements) of one lane's share of a row.

    The row of ``extent`` elements at offset ``base`` is cut into batches, of which ``splits`` groups of ``lanes`` lanes take every ``splits``-th
    each, so that all groups read neighbouring lines of memory at a time. A lane loads ``steps_of`` vectors of a batch before it uses the first, or
    one where the fold is ``rare``, which takes fewer registers. ``peeled``: each of the first lanes of split 0 has one of the elements before the
    first and behind the last aligned vector, which it loads ahead of its vectors. ``reused``: the row is read once more.
    """
    element, accumulator = jit.SCALARS[value], thread_accumulator_of(monoid, value)
    stride, steps = lanes * vector, 1 if rare else steps_of(value, vector)
    batch_stride, span = steps * stride, peeled_span_of(vector)
    empty, add, add_one = accumulator.empty, accumulator.add_batch(steps, vector, 1, stride), accumulator.add_batch(1, 1, 1, 0)
    (fetch, fetch_some), size = vector_loads(value, vector, stride, dims, steps, reused), steps * vector

    @jit.device
    def fold(x: Any, base: Any, split: Any, splits: Any, extent: Any, lane: Any, shape: Any, strides: Any) -> Any:
        batch = cuda.local.array(size, element)
        single = cuda.local.array(1, element)
        acc, count, begin, end, unaligned = empty(), int32(0), int64(0), int64(extent), int64(extent)
        if peeled:
            begin, end, unaligned = span(x, base, extent, split, lane)
            if unaligned < extent:
                single[0] = x[base + unaligned]
        position, jump = begin + split * batch_stride + lane * vector, splits * batch_stride
        while position + (steps - 1) * stride < end:
            fetch(x, base, position, shape, strides, batch, 0)
            acc = add(acc, batch, 0, position, steps, count)
            count = int32(count + size)
            position = opaque(position + jump)
        if position < end:
            valid = fetch_some(x, base, position, end, position, shape, strides, batch, 0)
            acc = add(acc, batch, 0, position, valid, count)
            count = int32(count + valid * vector)
        if peeled and unaligned < extent:
            acc = add_one(acc, single, 0, unaligned, 1, count)
            count = int32(count + 1)
        return acc, count

    return fold


@jit.kernel
def fold_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, peeled: bool, guarded: bool, special: bool,
    single_pass: bool, reused: bool, kept: int, dims: int,
) -> Any:  # fmt: skip
    """``y[r] = finish(lift(x[r, 0]) ⊕ … ⊕ lift(x[r, extent - 1]))`` for each row r.

    A group of ``lanes`` lanes folds one split of a row: every ``splits``-th batch, or, where elements are combined in order, ``chunk`` neighbours.
    Each lane loads several vectors before it uses the first, folds its elements in registers, and the group reduces the states of its lanes. Where
    a row has one split, its state is finished and stored to ``y``; the states of several ``splits`` go to ``partials``. In a ``single_pass`` the
    last block of a row to finish combines them. ``peeled``: rows begin or end inside an aligned vector; the elements at the ends are loaded one by
    one. A monoid that does not commute wants 32 lanes, or a block, and rows that are not peeled. Order: fixed by the constants, ``splits`` and
    ``chunk``. Bytes: rows · extent · value read, rows · result written.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, origin_from, subtracts_origin = accumulator_type(value), origin_of(value), monoid_of(monoid).subtracts_origin
    accumulator, groups, row_offset = thread_accumulator_of(monoid, value), THREADS // lanes, strided_offset_of(kept)
    empty, reduce_lanes, (store_result, store_partial) = accumulator.empty, accumulator.reduce_lanes(lanes), result_stores(monoid, value, result)
    is_special: Any = special_of(value) if special else None
    combine_splits, reduce_warp = splits_fold(monoid, value, 1, 1, 32), group_reduce(monoid, value, 32)
    (get, _), width, kind = state_accessors(accumulator.state_width), accumulator.state_width, jit.SCALARS[state_kind(monoid, value)]
    commutes = monoid_of(monoid).commutes
    fold_lane = lane_fold(monoid, value, vector, lanes, peeled, dims, reused) if commutes else lane_in_order(monoid, value, vector, lanes, dims)

    def fold_rows(
        x: Ptr[value], guard: Ptr[value if special else int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, chunk: int64, splits: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], y_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        row_block, split = split_of(int64(cuda.blockIdx.x), splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        if special and not is_special(guard, row_offset(row, kept_shape, y_kept_strides)):
            return
        acc, count, origin = empty(), int32(0), wide(0)
        if row < rows:
            base = row_offset(row, kept_shape, x_kept_strides)
            if commutes:
                acc, count = fold_lane(x, base, split, splits, extent, lane, shape, x_strides)
            else:
                acc, count = fold_lane(x, base, split * chunk, min((split + 1) * chunk, int64(extent)), lane, shape, x_strides)
            if subtracts_origin and extent > 0:
                origin = origin_from(x[base])
        state = reduce_lanes(acc, count, origin)
        if single_pass:
            if lane == 0:
                store_partial(partials, row * splits + split, state)
            if not last_to_arrive(guard, row, splits) or lane >= 32:
                return
            states = cuda.local.array(width, kind)
            combine_splits(partials, row, splits, lane, splits, 0, states, int64(1), int64(1), int64(0))
            state = reduce_warp(get(states, 0, 1))
        if lane == 0 and row < rows:
            if splits > 1 and not single_pass:
                store_partial(partials, row * splits + split, state)
            else:
                store_result(y, row_offset(row, kept_shape, y_kept_strides), state, corrected_count)

    return fold_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)
