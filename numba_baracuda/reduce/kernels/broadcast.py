"""Gradients of folds: the result's gradient of each row is broadcast to the elements of the row, times their derivatives."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...device.atomics import red_max
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.elements import (
    accumulator_type,
    conversions_of,
    coordinates_of,
    is_normal_of,
    next_coordinates_of,
    origin_of,
    strided_offset_of,
)
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import block_of, column_split_of, lane_of_group, split_of, turned_of
from .results import row_results_of, special_of
from .rows import lane_fold
from .vjp import ROW_TERMS, group_vjp, lane_vjp, terms_at, vjp_of


@jit.kernel
def broadcast_rows(
    *, gradient: str, value: str, vector: int, lanes: int, steps: int, peeled: bool, after_fold: bool, kept: int, dims: int
) -> Any:  # fmt: skip
    """``dx[r, i] = vjp(x[r, i], dy[r], y[r], p[r], q[r])``: a group of lanes has every ``splits``-th batch of a row, as in :func:`fold_rows`.

    p and q are the results of a fold that ran before. Bytes: rows · extent · value written, and as many read where the gradient uses x.

    Constants and parameters as :mod:`.` lists them.
    """
    row_vjp, store_gradient = vjp_of(gradient, value), group_vjp(gradient, value, vector, lanes, dims, peeled, steps)
    load_folded, load_row_terms, wide = row_vjp.load_folded, row_vjp.load_row_terms, accumulator_type(value)
    groups, row_offset, block = THREADS // lanes, strided_offset_of(kept), block_of(after_fold)

    def broadcast_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], folded: Ptr[wide], dx: Ptr[value],
        rows: int64, extent: int64, splits: int64, inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        folded_kept_strides: Extents[kept], dx_kept_strides: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(ROW_TERMS, wide)
        row_block, split = split_of(block(), splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        if row < rows:
            x_offset, dx_offset = row_offset(row, kept_shape, x_kept_strides), row_offset(row, kept_shape, dx_kept_strides)
            y_offset = row_offset(row, kept_shape, y_kept_strides)
            p_q = load_folded(folded, row_offset(row, kept_shape, folded_kept_strides), y, y_offset)
            load_row_terms(row_terms, 0, x, dy, y, x_offset, row_offset(row, kept_shape, dy_kept_strides), y_offset, p_q)
            store_gradient(x, dx, x_offset, dx_offset, split, splits, extent, lane, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return broadcast_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def fold_and_broadcast_rows(
    *, gradient: str, monoid: str, value: str, vector: int, lanes: int, steps: int, peeled: bool, kept: int, dims: int
) -> Any:  # fmt: skip
    """:func:`fold_rows` and :func:`broadcast_rows` in one launch: a group folds its whole row, then reads it again while caches still hold it.

    The group stores the whole row of dx, unless the gradient is guarded: then a row may have several splits, and a group folds only where a result
    of its block is no normal number. Bytes: rows · extent · value read from memory and written, and read once more, from the caches as far as rows
    fit.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, row_vjp, guarded = accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded
    store_gradient, load_row_terms = group_vjp(gradient, value, vector, lanes, dims, peeled, steps), row_vjp.load_row_terms
    widen, is_normal, origin_from = conversions_of(value)[0], is_normal_of(value), origin_of(value)
    subtracts_origin, accumulator = monoid_of(monoid).subtracts_origin, thread_accumulator_of(monoid, value)
    fold_lane = lane_fold(monoid, value, vector, lanes, peeled, dims, reused=row_vjp.has_x, rare=guarded)
    empty, reduce_lanes, row_results = accumulator.empty, accumulator.reduce_lanes(lanes), row_results_of(monoid, value)
    groups, row_offset = THREADS // lanes, strided_offset_of(kept)

    @jit.device
    def fold_row(x: Any, x_offset: Any, exists: Any, extent: Any, lane: Any, corrected_count: Any, shape: Any, x_strides: Any) -> Any:
        """(p, q) of a row. Lanes of a group without a row call it, too: the reduction over lanes needs all of them."""
        acc, count, origin = empty(), int32(0), wide(0)
        if exists:
            acc, count = fold_lane(x, x_offset, int64(0), int64(1), extent, lane, shape, x_strides)
            if subtracts_origin:
                origin = origin_from(x[x_offset])
        return row_results(reduce_lanes(acc, count, origin), corrected_count)

    def fold_and_broadcast_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        rows: int64, extent: int64, splits: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(ROW_TERMS, wide)
        row_block, split = split_of(int64(cuda.blockIdx.x), splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        safe_row = min(row, int64(rows - 1))
        x_offset, y_offset = row_offset(safe_row, kept_shape, x_kept_strides), row_offset(safe_row, kept_shape, y_kept_strides)
        p_q = wide(0), wide(-1)
        if guarded:
            special = not is_normal(widen(y[y_offset]))
            if cuda.syncthreads_or(int32(special)):
                row_p_q = fold_row(x, x_offset, row < rows, extent, lane, corrected_count, shape, x_strides)
                p_q = row_p_q if special else p_q
        else:
            p_q = fold_row(x, x_offset, row < rows, extent, lane, corrected_count, shape, x_strides)
        if row < rows:
            load_row_terms(row_terms, 0, x, dy, y, x_offset, row_offset(row, kept_shape, dy_kept_strides), y_offset, p_q)
            dx_offset = row_offset(row, kept_shape, dx_kept_strides)
            store_gradient(x, dx, x_offset, dx_offset, split, splits, extent, lane, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return fold_and_broadcast_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def broadcast_columns(
    *, gradient: str, value: str, vector: int, lanes: int, steps: int, ragged: bool, outer: int, after_fold: bool, kept: int, dims: int
) -> Any:  # fmt: skip
    """:func:`broadcast_rows` for columns, with the lanes of a block in a grid, as many ``steps`` and perhaps ``ragged`` as in :func:`fold_columns`.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, row_vjp, depth = accumulator_type(value), vjp_of(gradient, value), THREADS // lanes
    (coordinates, column_offset), advance, turn = coordinates_of(kept), next_coordinates_of(kept, outer, ragged), turned_of(vector, kept, outer)
    load_folded, load_row_terms, terms_size = row_vjp.load_folded, row_vjp.load_row_terms, ROW_TERMS * vector
    store_gradient, batch_stride = lane_vjp(gradient, value, vector, depth, dims, steps, True), depth * steps
    element, has_x, element_vjp = jit.SCALARS[value], row_vjp.has_x, row_vjp.element_vjp
    block = block_of(after_fold)

    @jit.device
    def store_one(x: Any, dx: Any, offset: Any, inverse_extent: Any, terms: Any) -> None:
        dx[offset] = element_vjp(x[offset] if has_x else element(0), int64(0), inverse_extent, terms)

    def broadcast_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], folded: Ptr[wide], dx: Ptr[value],
        columns: int64, longer: int64, extent: int64, splits: int64, across: int64, inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], origin_kept_strides: Extents[kept], dy_kept_strides: Extents[kept],
        y_kept_strides: Extents[kept], folded_kept_strides: Extents[kept], dx_kept_strides: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(terms_size, wide)
        found = cuda.local.array(kept, int64)
        column_block, split = column_split_of(block(), splits, across)
        row_lane, column_lane = lane_of_group(lanes)
        column = (column_block * lanes + column_lane) * vector
        if column < columns:
            if ragged:
                dx_offset, _, others, more, left = turn(dx, column, longer, dx_strides[0], kept_shape, dx_kept_strides, found)
                x_offset = dx_offset
            else:
                coordinates(column, kept_shape, found)
                x_offset, dx_offset = column_offset(found, x_kept_strides), column_offset(found, dx_kept_strides)
            for v in range(vector):
                dy_offset, y_offset = column_offset(found, dy_kept_strides), column_offset(found, y_kept_strides)
                p_q = load_folded(folded, column_offset(found, folded_kept_strides), y, y_offset)
                load_row_terms(row_terms, ROW_TERMS * v, x, dy, y, column_offset(found, origin_kept_strides), dy_offset, y_offset, p_q)
                advance(found, kept_shape)
            position, end, jump = split * batch_stride + row_lane, int64(extent), splits * batch_stride
            behind = depth - 1 - row_lane
            if ragged:
                turned = row_lane == 0 and others > 0
                starts, ends = turned and split == 0, row_lane == 0 and split == splits - 1
                end += more
                position += depth if turned else 0
                for v in range(vector):
                    if starts and v >= others:
                        store_one(x, dx, x_offset + v, inverse_extent, terms_at(row_terms, ROW_TERMS * v))
                    if ends and v < left:
                        last = x_offset + v + (extent + more) * dx_strides[0]
                        store_one(x, dx, last, inverse_extent, terms_at(row_terms, ROW_TERMS * v))
            store_gradient(x, dx, x_offset, dx_offset, position, behind, end, jump, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return broadcast_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)


@jit.kernel
def find_special_results(*, value: str, kept: int) -> Any:
    """Sets ``guard[0]`` to 1 if an element of ``y`` is zero, subnormal, infinite or NaN; each thread tests one. Bytes: elements · value read.

    Constants and parameters as :mod:`.` lists them, and: ``guard`` [1]: 0 before the launch. ``elements``: the number of elements of ``y``, which
    has extents ``shape`` [kept] and ``strides`` [kept], in elements.
    """
    is_special, offset_of = special_of(value), strided_offset_of(kept)

    def find_special_results(
        y: Ptr[value], guard: Ptr[int32],
        elements: int64,
        shape: Extents[kept], strides: Extents[kept],
    ) -> None:  # fmt: skip
        index = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if index < elements and is_special(y, offset_of(index, shape, strides)):
            red_max(guard, 0, int32(1))

    return find_special_results, lambda elements: (-(-elements // THREADS), THREADS, 0)
