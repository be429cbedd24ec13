"""Gradients across rows in one launch with the folds that they need: the second time columns come from the caches."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.arrivals import last_to_arrive
from ...kernels.batch import state_accessors, state_kind, typed_monoid
from ...kernels.elements import accumulator_type, coordinates_of, next_coordinates_of, origin_of, strided_offset_of
from ...kernels.thread_accumulator import group_reduce
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .columns import columns_fold, columns_tree
from .loads import lane_of_group
from .results import result_stores, special_of, splits_fold
from .rows import lane_fold
from .turns import await_folded, next_turn, say_folded, split_of_turn
from .vjp import ROW_TERMS, group_vjp, lane_vjp, vjp_of


class ColumnTerms:
    """Device functions of a lane's ``vector`` neighbouring columns, of a block with ``lanes`` lanes across.

    * ``special(y, column, found, kept_shape, y_strides)``: whether a result is no normal number; where the gradient is not guarded, True
    * ``fold(x, x_offset, column, begin, end, row_lane, found, kept_shape, origin_strides, shape, x_strides, state)``: the states of the lane's
      share of the columns, to ``state``
    * ``spread(x, dy, y, column, folds, found, kept_shape, origin_strides, dy_strides, y_strides, corrected_count, state, shared, row_terms)``: the
      terms of the columns to ``row_terms``, for all lanes, given the whole columns' states in row lane 0, unless not ``folds``. All threads of a
      block call it; ``shared`` has ``shared_size`` scalars.
    """

    def __init__(self, gradient: str, monoid: str, value: str, vector: int, lanes: int, steps: int, kept: int, dims: int) -> None:
        wide, row_vjp, guarded, depth = accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded, THREADS // lanes
        (coordinates, column_offset), advance, load_row_terms = coordinates_of(kept), next_coordinates_of(kept), row_vjp.load_row_terms
        accumulator, subtracts_origin, results = thread_accumulator_of(monoid, value), monoid_of(monoid).subtracts_origin, monoid_of(monoid).results
        width, accumulator_width, state_of, origin_from = accumulator.state_width, accumulator.width, accumulator.state, origin_of(value)
        (get, put), (get_accumulator, _), is_special = state_accessors(width), state_accessors(accumulator_width), special_of(value)
        fold_lane, finish = (
            columns_fold(monoid, value, vector, lanes, 1 if guarded else steps, False, dims, True),
            jit.device(typed_monoid(monoid, value).finish),
        )
        kind, accumulator_scalars, terms_size = accumulator.kind, accumulator_width * vector, ROW_TERMS * vector
        self.shared_size = terms_size * lanes if depth > 1 else 1

        @jit.device
        def special(y: Any, column: Any, found: Any, kept_shape: Any, y_strides: Any) -> Any:
            any_special = int32(not guarded)
            if guarded:
                coordinates(column, kept_shape, found)
                for _ in range(vector):
                    any_special |= is_special(y, column_offset(found, y_strides))
                    advance(found, kept_shape)
            return any_special

        @jit.device
        def fold(
            x: Any, x_offset: Any, column: Any, begin: Any, end: Any, row_lane: Any, found: Any, kept_shape: Any, origin_strides: Any, shape: Any,
            x_strides: Any, state: Any,
        ) -> None:  # fmt: skip
            accumulators = cuda.local.array(accumulator_scalars, kind)
            count = fold_lane(x, x_offset, begin, end, row_lane, int64(0), int64(vector), shape, x_strides, accumulators)
            if subtracts_origin:
                coordinates(column, kept_shape, found)
            for v in range(vector):
                origin = wide(0)
                if subtracts_origin:
                    origin = origin_from(x[column_offset(found, origin_strides)])
                    advance(found, kept_shape)
                put(state, v * width, 1, state_of(get_accumulator(accumulators, v * accumulator_width, 1), count, origin))

        @jit.device
        def spread(
            x: Any, dy: Any, y: Any, column: Any, folds: Any, found: Any, kept_shape: Any, origin_strides: Any, dy_strides: Any, y_strides: Any,
            corrected_count: Any, state: Any, shared: Any, row_terms: Any,
        ) -> None:  # fmt: skip
            row_lane, column_lane = lane_of_group(lanes)
            if row_lane == 0:
                coordinates(column, kept_shape, found)
                for v in range(vector):
                    p_q, y_offset = (wide(0), wide(-1)), column_offset(found, y_strides)
                    if folds:
                        finished = finish(get(state, v * width, 1), wide(corrected_count), wide(1))
                        own = (finished, wide(0)) if results == 1 else finished
                        p_q = own if not guarded or is_special(y, y_offset) else p_q
                    load_row_terms(
                        row_terms, ROW_TERMS * v, x, dy, y, column_offset(found, origin_strides), column_offset(found, dy_strides), y_offset, p_q
                    )
                    advance(found, kept_shape)
            if depth > 1:
                if row_lane == 0:
                    for k in range(terms_size):
                        shared[k * lanes + column_lane] = row_terms[k]
                cuda.syncthreads()
                for k in range(terms_size):
                    row_terms[k] = shared[k * lanes + column_lane]

        self.special, self.fold, self.spread = special, fold, spread


column_terms_of = functools.cache(ColumnTerms)


@jit.kernel
def fold_and_broadcast_columns(
    *, gradient: str, monoid: str, value: str, vector: int, lanes: int, steps: int, turns: bool, kept: int, dims: int
) -> Any:  # fmt: skip
    """:func:`fold_columns` and :func:`broadcast_columns` in one launch: columns are read again while caches still hold them.

    Without ``turns`` a block folds whole columns, and stores their gradient. With them, a block folds one of ``splits`` parts of some columns, and
    stores the gradient of a part that a block ``lag`` turns before folded: see :mod:`.turns`. Where the gradient is guarded, only special columns
    and their neighbours are folded. Order: fixed by the constants and ``chunk``. Bytes: columns · extent · value read from memory and written, and
    read once more, from the caches.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, depth, kind = accumulator_type(value), THREADS // lanes, thread_accumulator_of(monoid, value).kind
    each = column_terms_of(gradient, monoid, value, vector, lanes, steps, kept, dims)
    is_special, fold, spread, shared_terms_size, guarded = each.special, each.fold, each.spread, each.shared_size, GRADIENTS[gradient].guarded
    (combine_lanes, shared_size), store_gradient = (
        columns_tree(monoid, value, vector, lanes),
        lane_vjp(gradient, value, vector, depth, dims, steps, True),
    )
    state_scalars, terms_size = thread_accumulator_of(monoid, value).state_width * vector, ROW_TERMS * vector
    coordinates, column_offset = coordinates_of(kept)
    combine_splits, stages = splits_fold(monoid, value, vector, lanes, depth), 2 if turns else 0

    def fold_and_broadcast_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], arrivals: Ptr[int32], partials: Ptr[state_kind(monoid, value)], dx: Ptr[value],
        columns: int64, longer: int64, extent: int64, chunk: int64, splits: int64, lag: int64, corrected_count: Scalar[wide],
        inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], origin_kept_strides: Extents[kept], dy_kept_strides: Extents[kept],
        y_kept_strides: Extents[kept], dx_kept_strides: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        shared_states, shared_terms = cuda.shared.array(shared_size, kind), cuda.shared.array(shared_terms_size, wide)
        row_terms, found = cuda.local.array(terms_size, wide), cuda.local.array(kept, int64)
        state = cuda.local.array(state_scalars, kind)
        row_lane, column_lane = lane_of_group(lanes)
        blocks = (columns + lanes * vector - 1) // (lanes * vector)
        turn, folds = int64(cuda.blockIdx.x), int32(1)
        if turns:
            turn = next_turn(arrivals, blocks, cuda.shared.array(1, int32))
        if turn < blocks * splits:
            column_block, split = split_of_turn(turn, splits)
            column = (column_block * lanes + column_lane) * vector
            end = min((split + 1) * chunk, int64(extent)) if column < columns else int64(0)
            column = min(column, int64(columns - vector))
            if guarded:
                folds = cuda.syncthreads_or(is_special(y, column, found, kept_shape, y_kept_strides))
            if folds:
                coordinates(column, kept_shape, found)
                x_offset = column_offset(found, x_kept_strides)
                fold(x, x_offset, column, split * chunk, end, row_lane, found, kept_shape, origin_kept_strides, shape, x_strides, state)
                combine_lanes(state, shared_states, row_lane)
                for stage in range(stages):
                    place = (column_block * splits + (split if stage == 0 else int64(0))) * state_scalars
                    if row_lane == 0:
                        for k in range(state_scalars):
                            partials[(place + k) * lanes + column_lane] = state[k]
                    if stage > 0:
                        say_folded(arrivals, blocks, column_block)
                    elif last_to_arrive(arrivals, column_block, splits):
                        combine_splits(partials, column_block, splits, row_lane, column_lane, state, int64(1), int64(0))
                        combine_lanes(state, shared_states, row_lane)
                    else:
                        break
        turn -= lag
        if turn < 0:
            return
        column_block, split = split_of_turn(turn, splits)
        column = (column_block * lanes + column_lane) * vector
        exists, column = column < columns, min(column, int64(columns - vector))
        if turns:
            if guarded:
                folds = cuda.syncthreads_or(is_special(y, column, found, kept_shape, y_kept_strides))
            if folds:
                await_folded(arrivals, blocks, column_block)
                if row_lane == 0:
                    for k in range(state_scalars):
                        state[k] = partials[(column_block * splits * state_scalars + k) * lanes + column_lane]
        spread(
            x, dy, y, column, folds, found, kept_shape, origin_kept_strides, dy_kept_strides, y_kept_strides, corrected_count, state, shared_terms,
            row_terms,
        )  # fmt: skip
        if exists:
            coordinates(column, kept_shape, found)
            x_offset, dx_offset = column_offset(found, x_kept_strides), column_offset(found, dx_kept_strides)
            begin, end = split * chunk + row_lane, min((split + 1) * chunk, int64(extent))
            store_gradient(x, dx, x_offset, dx_offset, begin, end, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return fold_and_broadcast_columns, lambda columns: (-(-columns // (lanes * vector)), THREADS, 0)


@jit.kernel
def fold_and_broadcast_long_rows(*, gradient: str, monoid: str, value: str, vector: int, peeled: bool, kept: int, dims: int) -> Any:
    """:func:`fold_and_broadcast_rows` for rows that many blocks share, by :mod:`.turns`.

    A block folds one of ``splits`` parts of a row, then stores the gradient of a part that a block ``lag`` turns before folded. Where the gradient is
    guarded, only rows with a special result are folded. Order and bytes as there.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, row_vjp, guarded, kind = (
        accumulator_type(value),
        vjp_of(gradient, value),
        GRADIENTS[gradient].guarded,
        jit.SCALARS[state_kind(monoid, value)],
    )
    store_gradient, load_row_terms = group_vjp(gradient, value, vector, THREADS, dims, peeled), row_vjp.load_row_terms
    subtracts_origin, results, accumulator = monoid_of(monoid).subtracts_origin, monoid_of(monoid).results, thread_accumulator_of(monoid, value)
    fold_lane, origin_from, is_special = lane_fold(monoid, value, vector, THREADS, peeled, dims, True, guarded), origin_of(value), special_of(value)
    reduce_lanes, (_, store_partial), row_offset = accumulator.reduce_lanes(THREADS), result_stores(monoid, value, value), strided_offset_of(kept)
    combine_splits, reduce_warp, finish = (
        splits_fold(monoid, value, 1, 1, 32),
        group_reduce(monoid, value, 32),
        jit.device(typed_monoid(monoid, value).finish),
    )
    (get, _), width = state_accessors(accumulator.state_width), accumulator.state_width

    def fold_and_broadcast_long_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], arrivals: Ptr[int32], partials: Ptr[state_kind(monoid, value)], dx: Ptr[value],
        rows: int64, extent: int64, chunk: int64, splits: int64, lag: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms, states = cuda.local.array(ROW_TERMS, wide), cuda.local.array(width, kind)
        lane, turn = int32(cuda.threadIdx.x), next_turn(arrivals, rows, cuda.shared.array(1, int32))
        if turn < rows * splits:
            row, split = split_of_turn(turn, splits)
            if not guarded or is_special(y, row_offset(row, kept_shape, y_kept_strides)):
                x_offset, begin, origin = row_offset(row, kept_shape, x_kept_strides), split * chunk, wide(0)
                acc, count = fold_lane(x, x_offset, begin, min(begin + chunk, int64(extent)), lane, shape, x_strides)
                if subtracts_origin:
                    origin = origin_from(x[x_offset])
                state = reduce_lanes(acc, count, origin)
                if lane == 0:
                    store_partial(partials, row * splits + split, state)
                if last_to_arrive(arrivals, row, splits):
                    if lane < 32:
                        combine_splits(partials, row, splits, lane, 0, states, int64(1), int64(0))
                        state = reduce_warp(get(states, 0, 1))
                    if lane == 0:
                        store_partial(partials, row * splits, state)
                    say_folded(arrivals, rows, row)
        turn -= lag
        if turn < 0:
            return
        row, split = split_of_turn(turn, splits)
        x_offset, y_offset, p_q = row_offset(row, kept_shape, x_kept_strides), row_offset(row, kept_shape, y_kept_strides), (wide(0), wide(-1))
        if not guarded or is_special(y, y_offset):
            await_folded(arrivals, rows, row)
            finished = finish(get(partials, row * splits * width, 1), wide(corrected_count), wide(1))
            p_q = (finished, wide(0)) if results == 1 else finished
        load_row_terms(row_terms, 0, x, dy, y, x_offset, row_offset(row, kept_shape, dy_kept_strides), y_offset, p_q)
        dx_offset, begin, end = row_offset(row, kept_shape, dx_kept_strides), split * chunk, min((split + 1) * chunk, int64(extent))
        store_gradient(x, dx, x_offset, dx_offset, begin, end, lane, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return fold_and_broadcast_long_rows, lambda rows, splits, lag: (rows * splits + lag, THREADS, 0)
