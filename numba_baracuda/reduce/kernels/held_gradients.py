"""Gradients of rows and columns of few elements: a thread holds whole ones in registers, several of them, and folds them there."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra.gradients import GRADIENTS
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_accessors, state_kind
from ...kernels.elements import accumulator_type, conversions_of, is_normal_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .held import places_of
from .results import row_results_of
from .vjp import ROW_TERMS, terms_at, vjp_of


def _uses_x(gradient: str, monoid: str, value: str) -> bool:
    return vjp_of(gradient, value).has_x or monoid != ""


@functools.cache
def held_terms_of(gradient: str, monoid: str, value: str, extent: int, rows: int) -> Any:
    """``load_terms(own, dys, ys, offset, corrected_count, terms)``: stores the terms of each of the rows in ``own`` [rows, extent] to ``terms``.

    ``dys[offset:]`` and ``ys[offset:]`` are the gradients of the results of the rows, and these. ``monoid``: of the fold that the gradient needs, ""
    where it has none. Where the gradient is guarded a thread folds only if a result of its rows is no normal number. Returns whether one is none.
    """
    wide, grad, folds, widen, is_normal = accumulator_type(value), GRADIENTS[gradient], monoid != "", conversions_of(value)[0], is_normal_of(value)
    load_row_terms, guarded = vjp_of(gradient, value).load_row_terms, grad.guarded
    kind = jit.SCALARS[state_kind(monoid, value)] if folds else wide
    accumulator: Any = thread_accumulator_of(monoid, value) if folds else None
    fold_rows: Any = accumulator.reduce_rows(extent, 1, 1, 1, rows) if folds else None
    row_results: Any = row_results_of(monoid, value) if folds else None
    width = accumulator.state_width if folds else 1
    (get, _), scalars, pairs = state_accessors(width), width * rows, 2 * rows

    @jit.device
    def fold(own: Any, corrected_count: Any, p_q: Any) -> None:
        """(p, q) of each row."""
        if folds:
            states, valid = cuda.local.array(scalars, kind), cuda.local.array(rows, int32)
            for r in range(rows):
                valid[r] = int32(extent)
            fold_rows(own, int64(0), valid, int32(0), extent, states)
            for r in range(rows):
                p_q[2 * r], p_q[2 * r + 1] = row_results(get(states, r * width, 1), corrected_count)

    @jit.device
    def load_terms(own: Any, dys: Any, ys: Any, offset: Any, corrected_count: Any, terms: Any) -> Any:
        p_q, special = cuda.local.array(pairs, wide), False
        for r in range(rows):
            p_q[2 * r], p_q[2 * r + 1] = wide(0), wide(-1 if guarded else 0)
            if guarded:
                special |= not is_normal(widen(ys[offset + r]))
        if not guarded:
            fold(own, corrected_count, p_q)
        elif special:
            fold(own, corrected_count, p_q)
            for r in range(rows):
                p_q[2 * r + 1] = wide(-1) if is_normal(widen(ys[offset + r])) else p_q[2 * r + 1]
        for r in range(rows):
            load_row_terms(terms, ROW_TERMS * r, own, dys, ys, r * extent, offset + r, offset + r, (p_q[2 * r], p_q[2 * r + 1]))
        return special

    return load_terms


@functools.cache
def held_rows_vjp_of(gradient: str, monoid: str, value: str, extent: int, rows: int) -> Any:
    """``replace(own, dys, ys, offset, corrected_count, inverse_extent)``: the elements of x in ``own`` [rows, extent] become those of dx.

    The other parameters are those of :func:`held_terms_of`.
    """
    element, wide, row_vjp, size = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value), rows * extent
    element_vjp, element_vjp_normal, terms_size = row_vjp.element_vjp, row_vjp.element_vjp_normal, ROW_TERMS * rows
    load_terms, uses_x = held_terms_of(gradient, monoid, value, extent, rows), _uses_x(gradient, monoid, value)
    guarded = GRADIENTS[gradient].guarded

    @jit.device
    def replace(own: Any, dys: Any, ys: Any, offset: Any, corrected_count: Any, inverse_extent: Any) -> None:
        terms = cuda.local.array(terms_size, wide)
        special = load_terms(own, dys, ys, offset, corrected_count, terms)
        if guarded and not special:
            for k in range(size):
                own[k] = element_vjp_normal(own[k], int64(k % extent), inverse_extent, terms_at(terms, ROW_TERMS * (k // extent)))
        else:
            for k in range(size):
                x = own[k] if uses_x else element(0)
                own[k] = element_vjp(x, int64(k % extent), inverse_extent, terms_at(terms, ROW_TERMS * (k // extent)))

    return replace


@jit.kernel
def broadcast_held_rows(*, gradient: str, monoid: str, value: str, vector: int, extent: int, pieces: int, loaded: int) -> Any:
    """:func:`broadcast_rows` for rows of ``extent`` elements, a constant here, of which a vector holds whole ones, with their fold, if any.

    A thread has ``pieces`` vectors, from one to the next ``THREADS`` vectors further on, and loads all before it uses the first. Rows of x and dx are
    contiguous as a whole, as are the results and their gradients. The first block has the rows left over, too, fewer than a vector holds. Where the
    gradient is guarded a thread folds only if a result of a vector's rows is no normal number. Bytes: rows · extent · value written, and as many read
    where x is used.

    Constants and parameters as :mod:`.` lists them, and: ``monoid``: of the fold, "" where the gradient has none; ``pieces``; ``loaded``: elements
    of dy and y that a thread loads at a time.
    """
    element, wide, height = jit.SCALARS[value], accumulator_type(value), vector // extent
    has_y, uses_x = len(GRADIENTS[gradient].segments) > 1, _uses_x(gradient, monoid, value)
    load, load_rows, store, stride = LOAD_STREAM[vector], LOAD_STREAM[loaded], STORE_STREAM[vector], THREADS * height
    replace, replace_one = (held_rows_vjp_of(gradient, monoid, value, extent, rows) for rows in (height, 1))
    held, across, words = vector * pieces if uses_x else 1, height * pieces, height // loaded

    def broadcast_held_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value], rows: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide]
    ) -> None:  # fmt: skip
        batch, own = cuda.local.array(held, element), cuda.local.array(vector, element)
        dys, ys = cuda.local.array(across, element), cuda.local.array(across, element)
        whole = rows & -height
        first = int64(cuda.blockIdx.x) * (pieces * stride) + cuda.threadIdx.x * height
        for p in range(pieces):
            row = min(first + p * stride, int64(whole - height))
            if uses_x:
                load(x, row * extent, batch, p * vector)
            for k in range(words):
                load_rows(dy, row + k * loaded, dys, p * height + k * loaded)
                if has_y:
                    load_rows(y, row + k * loaded, ys, p * height + k * loaded)
        for p in range(pieces):
            for k in range(vector):
                own[k] = batch[p * vector + k] if uses_x else element(0)
            replace(own, dys, ys, p * height, corrected_count, inverse_extent)
            if first + p * stride < whole:
                store(dx, (first + p * stride) * extent, own, 0)
        row = whole + cuda.threadIdx.x
        if height > 1 and cuda.blockIdx.x == 0 and row < rows:
            for k in range(extent):
                own[k] = x[row * extent + k] if uses_x else element(0)
            dys[0] = dy[row]
            if has_y:
                ys[0] = y[row]
            replace_one(own, dys, ys, 0, corrected_count, inverse_extent)
            for k in range(extent):
                dx[row * extent + k] = own[k]

    return broadcast_held_rows, lambda rows: (-(-rows // (pieces * stride)), THREADS, 0)


@jit.kernel
def broadcast_held_columns(
    *, gradient: str, monoid: str, value: str, vector: int, extent: int, pieces: int, loaded: int, kept: int
) -> Any:  # fmt: skip
    """:func:`broadcast_columns` for columns of ``extent`` elements, a constant here, with the fold that the gradient needs, if any.

    A thread has columns as in :func:`fold_held_columns`. x lies as dx does, and the results of neighbouring columns and their gradients lie side by
    side. Where the gradient is guarded a thread folds only if a result of its neighbouring columns is no normal number. Bytes: columns · extent ·
    value written, and as many read where x is used.

    Constants and parameters as :mod:`.` lists them, and: ``monoid``: of the fold, "" where the gradient has none; ``pieces``; ``loaded``: elements
    of dy and y that a thread loads at a time. ``stride``: the distance of neighbours in a column, in elements.
    """
    element, wide, element_vjp, terms_size = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value).element_vjp, ROW_TERMS * vector
    has_y, uses_x = len(GRADIENTS[gradient].segments) > 1, _uses_x(gradient, monoid, value)
    load, load_rows, store, stride_across = LOAD_STREAM[vector], LOAD_STREAM[loaded], STORE_STREAM[vector], THREADS * vector
    (begin, go_on, column_offset), load_terms = places_of(kept, vector), held_terms_of(gradient, monoid, value, extent, vector)
    size, words, across = extent * vector, vector // loaded, vector * pieces
    held = size * pieces if uses_x else 1

    def broadcast_held_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        columns: int64, stride: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        batch, own, out = cuda.local.array(held, element), cuda.local.array(size, element), cuda.local.array(vector, element)
        dys, ys, bases = cuda.local.array(across, element), cuda.local.array(across, element), cuda.local.array(pieces, int64)
        found, terms = cuda.local.array(kept, int64), cuda.local.array(terms_size, wide)
        first = int64(cuda.blockIdx.x) * (pieces * stride_across) + cuda.threadIdx.x * vector
        begin(found, first, columns, kept_shape)
        for p in range(pieces):
            bases[p] = column_offset(found, x_kept_strides)
            column = min(first + p * stride_across, int64(columns - vector))
            if uses_x:
                for s in range(extent):
                    load(x, bases[p] + s * stride, batch, p * size + s * vector)
            for k in range(words):
                load_rows(dy, column + k * loaded, dys, p * vector + k * loaded)
                if has_y:
                    load_rows(y, column + k * loaded, ys, p * vector + k * loaded)
            if p < pieces - 1:
                go_on(found, first + (p + 1) * stride_across, columns, kept_shape)
        for p in range(pieces):
            for v in range(vector):
                for s in range(extent):
                    own[v * extent + s] = batch[p * size + s * vector + v] if uses_x else element(0)
            load_terms(own, dys, ys, p * vector, corrected_count, terms)
            if first + p * stride_across < columns:
                for s in range(extent):
                    for v in range(vector):
                        out[v] = element_vjp(own[v * extent + s], int64(s), inverse_extent, terms_at(terms, ROW_TERMS * v))
                    store(dx, bases[p] + s * stride, out, 0)

    return broadcast_held_columns, lambda columns: (-(-columns // (pieces * stride_across)), THREADS, 0)
