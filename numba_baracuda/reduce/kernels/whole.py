"""Gradients across rows in one launch with the folds that they need."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_accessors
from ...kernels.elements import accumulator_type, coordinates_of, next_coordinates_of, origin_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS, sure_steps
from .columns import columns_fold, columns_tree
from .loads import lane_of_group, vector_loads
from .results import row_results_of, special_of
from .vjp import ROW_TERMS, held_vjp, lane_vjp, vjp_of


@jit.kernel
def fold_and_broadcast_columns(
    *, gradient: str, monoid: str, value: str, vector: int, lanes: int, steps: int, held: bool, kept: int, dims: int
) -> Any:  # fmt: skip
    """:func:`fold_columns` and :func:`broadcast_columns` in one launch: a block folds whole columns, then stores their gradient.

    A lane holds its elements between, ``steps`` vectors at most, if ``held``; else it reads them again while caches still have them. The lanes of a
    column find its terms in shared memory. Where the gradient is guarded a block folds only if one of its results is no normal number. Bytes:
    columns · extent · value read from memory and written; if not ``held`` they are read once more, from the caches.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, row_vjp, guarded, depth = accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded, THREADS // lanes
    (coordinates, column_offset), advance, load_row_terms = coordinates_of(kept), next_coordinates_of(kept), row_vjp.load_row_terms
    accumulator, subtracts_origin = thread_accumulator_of(monoid, value), monoid_of(monoid).subtracts_origin
    element, kind, width, accumulator_width = jit.SCALARS[value], accumulator.kind, accumulator.state_width, accumulator.width
    (get, put), (get_accumulator, _), state_of = state_accessors(width), state_accessors(accumulator_width), accumulator.state
    origin_from, is_special, row_results = origin_of(value), special_of(value), row_results_of(monoid, value)
    fold_steps, ordered = 1 if guarded else steps, not monoid_of(monoid).commutes
    fold_lane, fold_stride = columns_fold(monoid, value, vector, lanes, fold_steps, False, dims, True), fold_steps * (1 if ordered else depth)
    sure = sure_steps(steps, lanes)
    more, size_of_sure = max(steps - sure, 1), sure * vector
    (fetch, _), add_sure = vector_loads(value, vector, depth, dims, sure), accumulator.add_batch(sure, 1, vector, depth)
    (_, fetch_more), add_more = vector_loads(value, vector, depth, dims, more), accumulator.add_batch(more, 1, vector, depth)
    empty, store_held = accumulator.empty, held_vjp(gradient, value, vector, depth, dims, steps)
    (combine_lanes, shared_size), store_gradient = (
        columns_tree(monoid, value, vector, lanes),
        lane_vjp(gradient, value, vector, depth, dims, steps, True),
    )
    terms_size, state_scalars, accumulator_scalars = ROW_TERMS * vector, width * vector, accumulator_width * vector
    shared_terms_size, size = terms_size * lanes if depth > 1 else 1, steps * vector if held else 1

    def fold_and_broadcast_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        columns: int64, longer: int64, extent: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], origin_kept_strides: Extents[kept], dy_kept_strides: Extents[kept],
        y_kept_strides: Extents[kept], dx_kept_strides: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        shared_states, shared_terms = cuda.shared.array(shared_size, kind), cuda.shared.array(shared_terms_size, wide)
        row_terms, found = cuda.local.array(terms_size, wide), cuda.local.array(kept, int64)
        accumulators, state = cuda.local.array(accumulator_scalars, kind), cuda.local.array(state_scalars, kind)
        batch = cuda.local.array(size, element)
        row_lane, column_lane = lane_of_group(lanes)
        column = (int64(cuda.blockIdx.x) * lanes + column_lane) * vector
        end = int64(extent) if column < columns else int64(0)
        column = min(column, int64(columns - vector))
        coordinates(column, kept_shape, found)
        x_offset, dx_offset = column_offset(found, x_kept_strides), column_offset(found, dx_kept_strides)
        special = int32(not guarded)
        if guarded:
            for _ in range(vector):
                special |= is_special(y, column_offset(found, y_kept_strides))
                advance(found, kept_shape)
            special = cuda.syncthreads_or(special)
            coordinates(column, kept_shape, found)
        if special:
            behind = int64(row_lane + sure * depth)
            if held:
                fetch(x, x_offset, int64(row_lane), shape, x_strides, batch, 0)
                count = int32(sure)
                if sure < steps:
                    count = int32(count + fetch_more(x, x_offset, behind, int64(extent), int64(0), shape, x_strides, batch, size_of_sure))
            else:
                count = fold_lane(x, x_offset, int64(0), end, fold_stride, row_lane, int64(0), int64(vector), shape, x_strides, accumulators)
            for v in range(vector):
                origin = wide(0)
                if held:
                    acc = add_sure(empty(), batch, v, int64(row_lane), sure, int32(0))
                    if sure < count:
                        acc = add_more(acc, batch, size_of_sure + v, behind, int32(count - sure), int32(sure))
                else:
                    acc = get_accumulator(accumulators, v * accumulator_width, 1)
                if subtracts_origin:
                    origin = origin_from(x[column_offset(found, origin_kept_strides)])
                    advance(found, kept_shape)
                put(state, v * width, 1, state_of(acc, count, origin))
            combine_lanes(state, shared_states, row_lane)
            if subtracts_origin:
                coordinates(column, kept_shape, found)
        if row_lane == 0:
            for v in range(vector):
                p_q, y_offset = (wide(0), wide(-1)), column_offset(found, y_kept_strides)
                if special:
                    own = row_results(get(state, v * width, 1), corrected_count)
                    p_q = own if not guarded or is_special(y, y_offset) else p_q
                origin_offset, dy_offset = column_offset(found, origin_kept_strides), column_offset(found, dy_kept_strides)
                load_row_terms(row_terms, ROW_TERMS * v, x, dy, y, origin_offset, dy_offset, y_offset, p_q)
                advance(found, kept_shape)
        if depth > 1:
            if row_lane == 0:
                for k in range(terms_size):
                    shared_terms[k * lanes + column_lane] = row_terms[k]
            cuda.syncthreads()
            for k in range(terms_size):
                row_terms[k] = shared_terms[k * lanes + column_lane]
        if held:
            store_held(dx, batch, dx_offset, int64(row_lane), end, shape, dx_strides, inverse_extent, row_terms)
        else:
            position, behind, jump = int64(row_lane), depth - 1 - row_lane, int64(steps * depth)
            store_gradient(x, dx, x_offset, dx_offset, position, behind, end, jump, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return fold_and_broadcast_columns, lambda columns: (-(-columns // (lanes * vector)), THREADS, 0)
