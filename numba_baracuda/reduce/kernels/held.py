"""Rows and columns of few elements: a thread loads whole ones, several of them, and holds all their elements in registers."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.vector import LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import narrow_of, state_accessors, state_kind, typed_monoid
from ...kernels.elements import accumulator_type, coordinates_of, origin_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS


@functools.cache
def held_stores(monoid: str, value: str, result: str, rows: int, stored: int) -> Any:
    """``store(states, y, first, exists, corrected_count)``: stores the results of ``rows`` neighbouring rows, from row ``first`` on, if they exist.

    ``states`` are theirs, one behind the other. Results are stored ``stored`` at a time.
    """
    typed, kind = typed_monoid(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    (get, _), width, results = state_accessors(typed.width), typed.width, typed.results
    finish, narrow = jit.device(typed.finish), narrow_of(monoid, value, result)
    store, numbers, target = STORE_STREAM[stored], rows * results, jit.SCALARS[result]
    words = numbers // stored

    @jit.device
    def store_results(states: Any, y: Any, first: Any, exists: Any, corrected_count: Any) -> None:
        out = cuda.local.array(numbers, target)
        for r in range(rows):
            finished = finish(get(states, r * width, 1), corrected_count, kind(1))
            if results == 1:
                out[r] = narrow(finished)
            else:
                for w in range(results):
                    out[r * results + w] = narrow(finished[w])
        if exists:
            for k in range(words):
                store(y, first * results + k * stored, out, k * stored)

    return store_results


@functools.cache
def held_fold(monoid: str, value: str, result: str, extent: int, rows: int, stored: int) -> Any:
    """``fold(elements, y, first, exists, corrected_count)``: folds ``rows`` rows of a thread, and stores their results as :func:`held_stores` does.

    ``elements`` [rows, extent] are those of the rows. All threads of a warp call it.
    """
    accumulator, kind, store_results = (
        thread_accumulator_of(monoid, value),
        jit.SCALARS[state_kind(monoid, value)],
        held_stores(monoid, value, result, rows, stored),
    )
    fold_rows, scalars = accumulator.reduce_rows(extent, 1, 1, 1, rows), rows * accumulator.state_width

    @jit.device
    def fold(elements: Any, y: Any, first: Any, exists: Any, corrected_count: Any) -> None:
        states, valid = cuda.local.array(scalars, kind), cuda.local.array(rows, int32)
        for r in range(rows):
            valid[r] = int32(extent)
        fold_rows(elements, int64(0), valid, int32(0), extent, states)
        store_results(states, y, first, exists, corrected_count)

    return fold


@functools.cache
def places_of(kept: int, vector: int) -> tuple[Any, Any, Any]:
    """``begin(found, column, columns, kept_shape)``, ``go_on(…)`` and ``offset(found, strides)`` for the places where a thread has columns.

    ``begin`` finds the coordinates of a column, or of the last vector of columns; ``go_on`` those of one ``THREADS · vector`` columns further on.
    """
    (coordinates, offset), inner, stride_across = coordinates_of(kept), kept - 1, THREADS * vector

    @jit.device
    def begin(found: Any, column: Any, columns: Any, kept_shape: Any) -> None:
        coordinates(min(column, int64(columns - vector)), kept_shape, found)

    @jit.device
    def go_on(found: Any, column: Any, columns: Any, kept_shape: Any) -> None:
        found[inner] += stride_across
        if found[inner] >= kept_shape[inner]:
            begin(found, column, columns, kept_shape)

    return begin, go_on, offset


@jit.kernel
def fold_held_columns(
    *, monoid: str, value: str, result: str, vector: int, extent: int, pieces: int, stored: int, guarded: bool, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_columns` for columns of ``extent`` elements, a constant here, with the results of neighbouring columns side by side.

    A thread has ``pieces`` times ``vector`` neighbouring columns, from one piece to the next ``THREADS · vector`` columns further on. It loads all
    of their elements before it uses the first. Bytes as ``fold_columns``.

    Constants and parameters as :mod:`.` lists them, and: ``pieces``; ``stored``: results that a thread stores at a time. ``stride``: the distance of
    neighbours in a column, in elements.
    """
    element, load, size, stride_across = jit.SCALARS[value], LOAD_STREAM[vector], extent * vector, THREADS * vector
    fold, (begin, go_on, column_offset), held = held_fold(monoid, value, result, extent, vector, stored), places_of(kept, vector), size * pieces

    def fold_held_columns(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result],
        columns: int64, stride: int64, corrected_count: Scalar[state_kind(monoid, value)], kept_shape: Extents[kept], x_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        batch, own = cuda.local.array(held, element), cuda.local.array(size, element)
        found = cuda.local.array(kept, int64)
        if guarded and guard[0] == 0:
            return
        first = int64(cuda.blockIdx.x) * (pieces * stride_across) + cuda.threadIdx.x * vector
        begin(found, first, columns, kept_shape)
        for p in range(pieces):
            base = column_offset(found, x_kept_strides)
            for s in range(extent):
                load(x, base + s * stride, batch, p * size + s * vector)
            if p < pieces - 1:
                go_on(found, first + (p + 1) * stride_across, columns, kept_shape)
        for p in range(pieces):
            for v in range(vector):
                for s in range(extent):
                    own[v * extent + s] = batch[p * size + s * vector + v]
            column = first + p * stride_across
            fold(own, y, column, column < columns, corrected_count)

    return fold_held_columns, lambda columns: (-(-columns // (pieces * stride_across)), THREADS, 0)


@jit.kernel
def fold_held_rows(
    *, monoid: str, value: str, result: str, vector: int, extent: int, height: int, pieces: int, stored: int, guarded: bool
) -> Any:  # fmt: skip
    """:func:`fold_rows` for rows of ``extent`` elements, a constant here, that are contiguous as a whole, as are their results.

    ``height`` rows are whole vectors: a thread has ``pieces`` times so many, from one piece to the next ``THREADS · height`` rows further on, and
    loads all of their vectors before it uses the first. Its neighbours find the other parts of its lines in L1. The first block has the rows left
    over, fewer than ``height``, too. Bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``height``; ``pieces``; ``stored``: results that a thread stores at a time.
    """
    element, load, size, stride = jit.SCALARS[value], LOAD_ONCE[vector], extent * height, THREADS * height
    fold, fold_one = held_fold(monoid, value, result, extent, height, stored), held_fold(monoid, value, result, extent, 1, 1)
    held, vectors = size * pieces, size // vector

    def fold_held_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], rows: int64, corrected_count: Scalar[state_kind(monoid, value)]
    ) -> None:  # fmt: skip
        batch, own = cuda.local.array(held, element), cuda.local.array(size, element)
        if guarded and guard[0] == 0:
            return
        whole = rows & -height
        first = int64(cuda.blockIdx.x) * (pieces * stride) + cuda.threadIdx.x * height
        for p in range(pieces):
            base = min(first + p * stride, int64(max(whole - height, int64(0)))) * extent
            for k in range(vectors):
                load(x, base + k * vector, batch, p * size + k * vector)
        for p in range(pieces):
            for k in range(size):
                own[k] = batch[p * size + k]
            row = first + p * stride
            fold(own, y, row, row < whole, corrected_count)
        if height > 1 and cuda.blockIdx.x == 0 and whole < rows:
            row = whole + cuda.threadIdx.x
            for k in range(extent):
                own[k] = x[min(row, int64(rows - 1)) * extent + k]
            fold_one(own, y, row, row < rows, corrected_count)

    return fold_held_rows, lambda rows: (max(1, -(-rows // (pieces * stride))), THREADS, 0)


@jit.kernel
def fold_held_lines(
    *, monoid: str, value: str, result: str, vector: int, extent: int, height: int, pieces: int, stored: int, guarded: bool, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_held_rows` for rows of several lines, of ``extent`` elements each, where the lines of rows along the last kept axis are contiguous.

    A thread has ``height`` neighbouring rows. It loads ``pieces`` of their lines before it uses the first. Bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``height``; ``pieces``; ``stored``: results that a thread stores at a time. ``lines``: their
    number in a row; ``stride``: the distance of neighbouring ones, in elements.
    """
    element, load, size, accumulator = jit.SCALARS[value], LOAD_ONCE[vector], extent * height, thread_accumulator_of(monoid, value)
    store_results, kind, width = held_stores(monoid, value, result, height, stored), accumulator.kind, accumulator.width
    (get, put), (_, put_state), state_width = state_accessors(width), state_accessors(accumulator.state_width), accumulator.state_width
    add, empty, state_of, subtracts_origin = (
        accumulator.add_batch(extent, 1, 1, 1),
        accumulator.empty,
        accumulator.state,
        monoid_of(monoid).subtracts_origin,
    )
    origin_from, vectors, held, scalars, state_scalars = origin_of(value), size // vector, size * pieces, width * height, state_width * height
    wide, (begin, _, row_offset) = accumulator_type(value), places_of(kept, height)

    def fold_held_lines(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result],
        rows: int64, lines: int64, stride: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        batch, accumulators, found = cuda.local.array(held, element), cuda.local.array(scalars, kind), cuda.local.array(kept, int64)
        states, firsts = cuda.local.array(state_scalars, kind), cuda.local.array(height, wide)
        if guarded and guard[0] == 0:
            return
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * height
        begin(found, first, rows, kept_shape)
        base, line, count = row_offset(found, x_kept_strides), int64(0), int32(0)
        for r in range(height):
            put(accumulators, r * width, 1, empty())
            firsts[r] = origin_from(x[base + r * extent]) if subtracts_origin else wide(0)
        while line < lines:
            for p in range(pieces):
                at = base + min(line + p, int64(lines - 1)) * stride
                for k in range(vectors):
                    load(x, at + k * vector, batch, p * size + k * vector)
            for p in range(pieces):
                if line + p < lines:
                    for r in range(height):
                        own = get(accumulators, r * width, 1)
                        put(accumulators, r * width, 1, add(own, batch, p * size + r * extent, (line + p) * extent, extent, count))
                    count = int32(count + extent)
            line += pieces
        for r in range(height):
            put_state(states, r * state_width, 1, state_of(get(accumulators, r * width, 1), count, firsts[r]))
        store_results(states, y, first, first < rows, corrected_count)

    return fold_held_lines, lambda rows: (-(-rows // (THREADS * height)), THREADS, 0)
