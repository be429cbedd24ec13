"""Gradients of rows that a group of lanes holds in registers, and folds there."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.elements import accumulator_type, origin_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import lane_of_group, peeled_span_of
from .results import row_results_of
from .vjp import ROW_TERMS, terms_at, vjp_of


@functools.cache
def held_share(gradient: str, monoid: str, value: str, vector: int, lanes: int, lines: int, steps: int, peeled: bool) -> tuple[Any, Any, Any]:
    """(``load``, ``fold``, ``store``) of one lane's share of a row that ``lanes`` lanes hold, ``steps`` vectors of each of its ``lines`` at most.

    ``load(x, base, line, stride, lane, batch, single)`` loads the vectors of the row, whose lines of ``line`` elements begin at offset ``base`` and
    every ``stride`` elements from there, to ``batch``, and of a ``peeled`` row one of the elements beside them to ``single``. Returns the position of
    the lane's first vector in a line, how many of its last vectors there the line has, and the position of the single element, ``line`` where there
    is none. All other vectors exist, since fewer lanes would hold the line.
    ``fold(batch, single, left, unaligned, line)`` is (accumulator, number of elements) of what is loaded.
    ``store(dx, base, stride, batch, single, position, left, unaligned, line, inverse_extent, row_terms)`` stores the gradient.
    """
    accumulator, step, last = thread_accumulator_of(monoid, value), lanes * vector, min(steps, 2 if peeled else 1)
    whole, empty, span, element_vjp = steps - last, accumulator.empty, peeled_span_of(vector), vjp_of(gradient, value).element_vjp
    load_vector, store_vector, element, whole_size = LOAD_STREAM[vector], STORE_STREAM[vector], jit.SCALARS[value], lines * whole * vector
    add_whole: Any = accumulator.add_batch(lines * whole, vector, 1, 0) if whole else None
    add_last, add_one, last_size = accumulator.add_batch(lines * last, vector, 1, 0), accumulator.add_batch(1, 1, 1, 0), lines * vector

    @jit.device
    def load(x: Any, base: Any, line: Any, stride: Any, lane: Any, batch: Any, single: Any) -> Any:
        begin, end, unaligned, left = int64(0), int64(line), int64(line), int32(0)
        if peeled:
            begin, end, unaligned = span(x, base, line, int64(0), lane)
            if unaligned < line:
                single[0] = x[base + unaligned]
        position = begin + lane * vector
        for k in range(lines):
            for s in range(whole):
                load_vector(x, base + k * stride + position + s * step, batch, (k * whole + s) * vector)
        for s in range(last):
            inside = position + (whole + s) * step < end
            for k in range(lines):
                load_vector(x, base + k * stride + (position + (whole + s) * step if inside else begin), batch, whole_size + (s * lines + k) * vector)
            left = int32(left + int32(inside))
        return position, left, unaligned

    @jit.device
    def fold(batch: Any, single: Any, left: Any, unaligned: Any, line: Any) -> Any:
        acc, count = empty(), int32(0)
        if whole > 0:
            acc, count = add_whole(acc, batch, 0, int64(0), lines * whole, count), int32(whole_size)
        if left > 0:
            acc, count = add_last(acc, batch, whole_size, int64(0), left * lines, count), int32(count + left * last_size)
        if peeled and unaligned < line:
            acc, count = add_one(acc, single, 0, int64(0), 1, count), int32(count + 1)
        return acc, count

    @jit.device
    def store(
        dx: Any, base: Any, stride: Any, batch: Any, single: Any, position: Any, left: Any, unaligned: Any, line: Any, inverse_extent: Any,
        row_terms: Any,
    ) -> None:  # fmt: skip
        out, terms = cuda.local.array(vector, element), terms_at(row_terms, 0)
        for k in range(lines):
            for s in range(steps):
                if s < whole or s - whole < left:
                    for v in range(vector):
                        at = (k * whole + s) * vector if s < whole else whole_size + ((s - whole) * lines + k) * vector
                        out[v] = element_vjp(batch[at + v], int64(0), inverse_extent, terms)
                    store_vector(dx, base + k * stride + position + s * step, out, 0)
        if peeled and unaligned < line:
            dx[base + unaligned] = element_vjp(single[0], int64(0), inverse_extent, terms)

    return load, fold, store


@jit.kernel
def fold_and_broadcast_held_rows(
    *, gradient: str, monoid: str, value: str, vector: int, lanes: int, lines: int, steps: int, peeled: bool, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_rows` where a group holds a whole row in registers: it loads the row once, folds it, and stores its gradient.

    A row has ``lines`` lines of contiguous elements, each of which needs all ``steps`` vectors of a lane but the last one. Of a gradient that is not
    guarded, and counts no positions. Bytes: rows · extent · value read and written.

    Constants and parameters as :mod:`.` lists them, and: ``lines``, ``line``: how many a row has, and the elements of one; more than one of rows that
    are not ``peeled``. ``x_stride``, ``dx_stride``: the distance of neighbouring lines, in elements.
    """
    element, wide, load_row_terms = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value).load_row_terms
    load, fold, store = held_share(gradient, monoid, value, vector, lanes, lines, steps, peeled)
    reduce_lanes, row_results = thread_accumulator_of(monoid, value).reduce_lanes(lanes), row_results_of(monoid, value)
    subtracts_origin, origin_from = monoid_of(monoid).subtracts_origin, origin_of(value)
    groups, row_offset, size = THREADS // lanes, strided_offset_of(kept), lines * steps * vector

    def fold_and_broadcast_held_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        rows: int64, line: int64, x_stride: int64, dx_stride: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
        dx_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        row_terms, batch, single = cuda.local.array(ROW_TERMS, wide), cuda.local.array(size, element), cuda.local.array(1, element)
        group, lane = lane_of_group(lanes)
        row = int64(cuda.blockIdx.x) * groups + group
        safe_row = min(row, int64(rows - 1))
        x_offset, y_offset = row_offset(safe_row, kept_shape, x_kept_strides), row_offset(safe_row, kept_shape, y_kept_strides)
        position, left, unaligned = load(x, x_offset, line, x_stride, lane, batch, single)
        origin = origin_from(x[x_offset]) if subtracts_origin else wide(0)
        acc, count = fold(batch, single, left, unaligned, line)
        p_q = row_results(reduce_lanes(acc, count, origin), corrected_count)
        if row < rows:
            load_row_terms(row_terms, 0, x, dy, y, x_offset, row_offset(safe_row, kept_shape, dy_kept_strides), y_offset, p_q)
            dx_offset = row_offset(safe_row, kept_shape, dx_kept_strides)
            store(dx, dx_offset, dx_stride, batch, single, position, left, unaligned, line, inverse_extent, row_terms)

    return fold_and_broadcast_held_rows, lambda rows: (-(-rows // groups), THREADS, 0)
