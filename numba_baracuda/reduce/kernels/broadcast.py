"""Gradients go back along the axes: every element of x takes what its row's results say."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS, LARGE
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import typed_monoid
from ...kernels.elements import accumulator_type, conversions_of, is_normal_of, of_type, origin_of, position_code_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS, steps_of
from .loads import lane_of_group, split_of_block, vector_loads
from .rows import lane_fold

#: numbers that say what a row's elements take
ROW_TERMS = 5


class RowVjp:
    """What a gradient reads, and how it makes an element of the result."""

    def __init__(self, gradient: str, value: str) -> None:
        grad, wide = GRADIENTS[gradient], accumulator_type(value)
        (widen, narrow), is_normal, position_code = conversions_of(value), is_normal_of(value), position_code_of(value)
        has_y, results, guarded, uses_positions, shares = len(grad.segments) > 1, grad.results, grad.guarded, grad.uses_positions, grad.shares
        subtracts_origin, self.has_x, prepare, large = (
            bool(grad.fold) and monoid_of(grad.fold).subtracts_origin,
            bool(grad.rows),
            jit.device(grad.prepare),
            wide(LARGE),
        )
        vjp, origin_from = jit.device(of_type(grad.vjp, wide)), origin_of(value)

        @jit.device
        def load_folded(folded: Any, folded_offset: Any, y: Any, y_offset: Any) -> Any:
            """(p, q) of a row, where a fold left them."""
            p, q = wide(0), wide(0)
            if guarded:
                q = wide(-1)
                if not is_normal(widen(y[y_offset])):
                    p, q = folded[folded_offset * 2], folded[folded_offset * 2 + 1]
            elif results > 0:
                p = folded[folded_offset * results]
                if results > 1:
                    q = folded[folded_offset * results + 1]
            return p, q

        @jit.device
        def load_row_terms(row_terms: Any, offset: Any, x: Any, dy: Any, y: Any, x_offset: Any, dy_offset: Any, y_offset: Any, p_q: Any) -> None:
            """To ``into[at:]``: (g, y, p, q) of a row, prepared, and its origin, which its fold took from every element."""
            saved, origin = wide(0), wide(0)
            if has_y:
                saved = widen(y[y_offset])
            if subtracts_origin:
                origin = origin_from(x[x_offset])
            g, saved, p, q = prepare(widen(dy[dy_offset]), saved, p_q[0], p_q[1], wide(1), large)
            row_terms[offset], row_terms[offset + 1], row_terms[offset + 2], row_terms[offset + 3], row_terms[offset + 4] = g, saved, p, q, origin

        @jit.device
        def element_vjp(x: Any, position: Any, inverse_extent: Any, row_terms: Any) -> Any:
            w = wide(0)
            if uses_positions:
                w = position_code(position)
            if shares:
                w = wide(inverse_extent)
            return narrow(vjp(widen(x) - row_terms[4], w, row_terms[0], row_terms[1], row_terms[2], row_terms[3], wide(0)))

        @jit.device
        def element_vjp_normal(x: Any, position: Any, inverse_extent: Any, row_terms: Any) -> Any:
            return element_vjp(x, position, inverse_extent, (row_terms[0], row_terms[1], row_terms[2], wide(-1), row_terms[4]))

        self.load_folded, self.load_row_terms, self.element_vjp, self.element_vjp_normal = (
            load_folded,
            load_row_terms,
            element_vjp,
            element_vjp_normal,
        )


vjp_of = functools.cache(RowVjp)


@functools.cache
def lane_vjp(gradient: str, value: str, vector: int, stride: int, dims: int, across_rows: bool) -> Any:
    """``give(x, dx, from_x, to_dx, position, last, shape, x_strides, dx_strides, share, rules)``: a lane's part of the gradient of rows.

    Its accesses begin at ``position``, ``gap`` apart. ``across``: the ``vector`` elements of an access are of as many rows, else all of one;
    ``rules`` are those of these rows, one behind the other. Rows whose guarded gradient wants p and q have a walk of their own.
    """
    row_vjp, steps, rows = vjp_of(gradient, value), steps_of(value, vector), vector if across_rows else 1
    if not GRADIENTS[gradient].guarded:
        return _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp, steps)
    walk = _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp_normal, steps)
    walk_special = _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp, 1)

    @jit.device
    def store_gradient(
        x: Any,
        dx: Any,
        x_offset: Any,
        dx_offset: Any,
        position: Any,
        end: Any,
        shape: Any,
        x_strides: Any,
        dx_strides: Any,
        inverse_extent: Any,
        row_terms: Any,
    ) -> None:
        all_normal = True
        for v in range(rows):
            all_normal &= row_terms[v * ROW_TERMS + 3] < 0
        if all_normal:
            walk(x, dx, x_offset, dx_offset, position, end, shape, x_strides, dx_strides, inverse_extent, row_terms)
        else:
            walk_special(x, dx, x_offset, dx_offset, position, end, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return store_gradient


def _walk(gradient: str, value: str, vector: int, stride: int, dims: int, across_rows: bool, element_vjp: Any, steps: int) -> Any:
    """The walk of :func:`part_of`, with ``steps`` accesses in flight."""
    element, has_x, offset_of, store = jit.SCALARS[value], vjp_of(gradient, value).has_x, strided_offset_of(dims), STORE_STREAM[vector]
    (fetch, fetch_some), size = vector_loads(value, vector, stride, dims, steps), steps * vector
    position_step, row_step = (0, ROW_TERMS) if across_rows else (1, 0)

    @jit.device
    def vjp_of_vector(batch: Any, s: Any, position: Any, inverse_extent: Any, row_terms: Any) -> None:
        for v in range(vector):
            offset = v * row_step
            terms = row_terms[offset], row_terms[offset + 1], row_terms[offset + 2], row_terms[offset + 3], row_terms[offset + 4]
            batch[s * vector + v] = element_vjp(batch[s * vector + v], position + v * position_step, inverse_extent, terms)

    @jit.device
    def walk(
        x: Any,
        dx: Any,
        x_offset: Any,
        dx_offset: Any,
        position: Any,
        end: Any,
        shape: Any,
        x_strides: Any,
        dx_strides: Any,
        inverse_extent: Any,
        row_terms: Any,
    ) -> None:
        batch = cuda.local.array(size, element)
        if not has_x:
            for k in range(size):
                batch[k] = element(0)
        while position + (steps - 1) * stride < end:
            if has_x:
                fetch(x, x_offset, position, shape, x_strides, batch, 0)
            for s in range(steps):
                vjp_of_vector(batch, s, position + s * stride, inverse_extent, row_terms)
                if not has_x:  # a batch of one number many times would be kept in memory
                    store(dx, dx_offset + offset_of(position + s * stride, shape, dx_strides), batch, s * vector)
            if has_x:
                for s in range(steps):
                    store(dx, dx_offset + offset_of(position + s * stride, shape, dx_strides), batch, s * vector)
            position = opaque(position + steps * stride)
        if position < end:
            if has_x:
                fetch_some(x, x_offset, position, end, position, shape, x_strides, batch, 0)
                for s in range(steps):
                    vjp_of_vector(batch, s, position + s * stride, inverse_extent, row_terms)
            for s in range(steps):
                if position + s * stride < end:
                    if not has_x:
                        vjp_of_vector(batch, s, position + s * stride, inverse_extent, row_terms)
                    store(dx, dx_offset + offset_of(position + s * stride, shape, dx_strides), batch, s * vector)

    return walk


@jit.kernel
def broadcast_rows(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``dx[o, r] = pull(x[o, r], dy[o], y[o], p[o], q[o])``: a group of lanes takes ``chunk`` places of a row, as ``fold_rows`` does.

    p and q are the results of a fold, side by side. Bytes: rows · extent · value written, and read where the gradient wants x.
    """
    row_vjp, store_gradient = vjp_of(gradient, value), lane_vjp(gradient, value, vector, lanes * vector, dims, False)
    load_folded, load_row_terms, groups, row_offset, wide = (
        row_vjp.load_folded,
        row_vjp.load_row_terms,
        THREADS // lanes,
        strided_offset_of(kept),
        accumulator_type(value),
    )

    def broadcast_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], folded: Ptr[wide], dx: Ptr[value],
        rows: int64, extent: int64, chunk: int64, splits: int64, inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        folded_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(ROW_TERMS, wide)
        row_block, split = split_of_block(splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        if row < rows:
            x_offset, dx_offset, y_offset = (
                row_offset(row, kept_shape, x_kept_strides),
                row_offset(row, kept_shape, dx_kept_strides),
                row_offset(row, kept_shape, y_kept_strides),
            )
            p_q = load_folded(folded, row_offset(row, kept_shape, folded_kept_strides), y, y_offset)
            load_row_terms(row_terms, 0, x, dy, y, x_offset, row_offset(row, kept_shape, dy_kept_strides), y_offset, p_q)
            end = min((split + 1) * chunk, int64(extent))
            store_gradient(x, dx, x_offset, dx_offset, split * chunk + lane * vector, end, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return broadcast_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def fold_and_broadcast_rows(*, gradient: str, monoid: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``fold_rows`` and ``spread_rows`` in one, for rows that a group folds alone and then reads a second time, where the caches still hold them.

    For a guarded gradient the group folds its row only if that, or another row of the block, wants it, and gives ``chunk`` places their gradient.
    Bytes: rows · extent · value read from memory and written, and read once more, as far as rows fit, from the caches.
    """
    wide, row_vjp, guarded = accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded
    store_gradient = lane_vjp(gradient, value, vector, lanes * vector, dims, False)
    widen, subtracts_origin, results, is_normal = (
        conversions_of(value)[0],
        monoid_of(monoid).subtracts_origin,
        monoid_of(monoid).results,
        is_normal_of(value),
    )
    accumulator, fold_lane = (
        thread_accumulator_of(monoid, value),
        lane_fold(monoid, value, vector, lanes, False, dims, reused=row_vjp.has_x, rare=guarded),
    )
    empty, reduce_lanes, finish, load_row_terms = (
        accumulator.empty,
        accumulator.reduce_lanes(lanes),
        jit.device(typed_monoid(monoid, value).finish),
        row_vjp.load_row_terms,
    )
    groups, row_offset, origin_from = THREADS // lanes, strided_offset_of(kept), origin_of(value)

    @jit.device
    def fold_row(x: Any, x_offset: Any, exists: Any, extent: Any, lane: Any, corrected_count: Any, shape: Any, x_strides: Any) -> Any:
        """(p, q) of a row, if it is there."""
        acc, count, origin = empty(), int32(0), wide(0)
        if exists:
            acc, count = fold_lane(x, x_offset, int64(0), int64(extent), lane, shape, x_strides)
            if subtracts_origin:
                origin = origin_from(x[x_offset])
        finished = finish(reduce_lanes(acc, count, origin), wide(corrected_count), wide(1))
        return (finished, wide(0)) if results == 1 else finished

    def fold_and_broadcast_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        rows: int64, extent: int64, chunk: int64, splits: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(ROW_TERMS, wide)
        row_block, split = split_of_block(splits)
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
            dx_offset, end = row_offset(row, kept_shape, dx_kept_strides), min((split + 1) * chunk, int64(extent))
            store_gradient(x, dx, x_offset, dx_offset, split * chunk + lane * vector, end, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return fold_and_broadcast_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def broadcast_columns(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``spread_rows`` where x is not contiguous along the rows: lanes lie as in ``fold_columns``."""
    wide, row_vjp, column_offset, depth = accumulator_type(value), vjp_of(gradient, value), strided_offset_of(kept), THREADS // lanes
    load_folded, load_row_terms, terms_size, store_gradient = (
        row_vjp.load_folded,
        row_vjp.load_row_terms,
        ROW_TERMS * vector,
        lane_vjp(gradient, value, vector, depth, dims, True),
    )

    def broadcast_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], folded: Ptr[wide], dx: Ptr[value],
        columns: int64, extent: int64, chunk: int64, splits: int64, inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        folded_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        row_terms = cuda.local.array(terms_size, wide)
        column_block, split = split_of_block(splits)
        row_lane, column_lane = lane_of_group(lanes)
        column = (column_block * lanes + column_lane) * vector
        if column < columns:
            x_offset, dx_offset = column_offset(column, kept_shape, x_kept_strides), column_offset(column, kept_shape, dx_kept_strides)
            for v in range(vector):
                dy_offset, y_offset = column_offset(column + v, kept_shape, dy_kept_strides), column_offset(column + v, kept_shape, y_kept_strides)
                p_q = load_folded(folded, column_offset(column + v, kept_shape, folded_kept_strides), y, y_offset)
                load_row_terms(row_terms, ROW_TERMS * v, x, dy, y, x_offset + v, dy_offset, y_offset, p_q)
            end = min((split + 1) * chunk, int64(extent))
            store_gradient(x, dx, x_offset, dx_offset, split * chunk + row_lane, end, shape, x_strides, dx_strides, inverse_extent, row_terms)

    return broadcast_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)


@jit.kernel
def find_special_results(*, value: str, kept: int) -> Any:
    """Sets ``guard[0]`` where an element of y is a zero, a subnormal, an infinity or NaN. Bytes: elements · value read."""
    (widen, _), is_normal, offset_of = conversions_of(value), is_normal_of(value), strided_offset_of(kept)

    def find_special_results(
        y: Ptr[value], guard: Ptr[int32],
        elements: int64,
        shape: Extents[kept], strides: Extents[kept],
    ) -> None:  # fmt: skip
        index = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if index < elements and not is_normal(widen(y[offset_of(index, shape, strides)])):
            red_max(guard, 0, int32(1))

    return find_special_results, lambda elements: (-(-elements // THREADS), THREADS, 0)
