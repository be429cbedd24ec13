"""Short rows that are contiguous as a whole: a block copies some to shared memory, in aligned vectors that need not begin or end with a row."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, LOAD_ONCE, STORE, STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_kind
from ...kernels.elements import accumulator_type, conversions_of, is_normal_of, origin_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import ASYNC_BYTES, STAGED_STEPS, THREADS, steps_of
from .loads import lane_of_group
from .results import result_stores, row_results_of
from .vjp import ROW_TERMS, one_of, terms_at, vjp_of


@functools.cache
def copy_of(value: str, vector: int) -> Any:
    """``copy(x, base, size, staged)``: the block copies ``x[base : base + size]`` to ``staged``, in vectors up to the last whole one.

    ``x + base`` is aligned to a vector. A barrier must follow before another thread's elements are used. Vectors of 16 bytes are all on their way at
    once, past the registers.
    """
    element, stride, steps = jit.SCALARS[value], THREADS * vector, steps_of(value, vector)
    load, store, in_flight = LOAD_ONCE[vector], STORE[vector], steps * vector
    past_registers, arrived = vector * BY_NAME[value].itemsize == ASYNC_BYTES, await_copies(0)

    @jit.device
    def copy(x: Any, base: Any, size: Any, staged: Any) -> None:
        loaded = cuda.local.array(in_flight, element)
        thread, vector_end = int32(cuda.threadIdx.x), int32(size & -vector)
        copied = int64(uint32(thread * vector))
        if not past_registers:
            while copied + (steps - 1) * stride < vector_end:
                for s in range(steps):
                    load(x, base + (copied + s * stride), loaded, s * vector)
                for s in range(steps):
                    store(staged, copied + s * stride, loaded, s * vector)
                copied += steps * stride
        while copied < vector_end:
            if past_registers:
                copy_async(x, base + copied, staged, copied)
            else:
                load(x, base + copied, loaded, 0)
                store(staged, copied, loaded, 0)
            copied += stride
        if vector_end + thread < size:
            staged[vector_end + thread] = x[base + vector_end + thread]
        if past_registers:
            commit_copies()
            arrived()

    return copy


@functools.cache
def _batch_fold(monoid: str, value: str, lanes: int, steps: int, inner: int) -> Any:
    """``take(acc, count, index, staged, lane, end)``: (accumulator, its elements, index of the next) after ``steps`` more of them, or as they are.

    A lane takes every ``lanes``-th element of a row, which are ``inner`` apart in ``staged`` and end before ``end``, from ``index`` on, if so many
    are left.
    """
    element, add, stride = jit.SCALARS[value], thread_accumulator_of(monoid, value).add_batch(steps, 1, 1, lanes), lanes * inner

    @jit.device
    def take(acc: Any, count: Any, index: Any, staged: Any, lane: Any, end: Any) -> Any:
        batch = cuda.local.array(steps, element)
        if index < int32(end - (steps - 1) * stride):
            for s in range(steps):
                batch[s] = staged[uint64(int64(index) + s * stride)]  # of a signed index, Numba would wrap negative ones
            acc = add(acc, batch, 0, int64(lane + count * lanes), steps, count)
            count, index = int32(count + steps), int32(index + steps * stride)
        return acc, count, index

    return take


@functools.cache
def group_fold_of(monoid: str, value: str, lanes: int, inner: int = 1) -> Any:
    """``fold(staged, begin, extent, exists, lane)``: the state of a row of ``extent`` elements, in the first of its ``lanes`` lanes.

    Its elements are ``inner`` apart in ``staged``, from ``staged[begin]`` on.
    Groups whose row does not ``exist`` call it, too: the reduction over lanes needs all of them. A lane takes batches of ``STAGED_STEPS`` elements,
    then a half and a quarter of a batch, …: lanes that share a row alone would load elements again to fill the last batch.
    """
    wide, origin_from, subtracts_origin = accumulator_type(value), origin_of(value), monoid_of(monoid).subtracts_origin
    accumulator = thread_accumulator_of(monoid, value)
    reduce_lanes, empty = accumulator.reduce_lanes(lanes), accumulator.empty
    take_8, take_4, take_2, take_1 = (_batch_fold(monoid, value, lanes, STAGED_STEPS >> halved, inner) for halved in range(4))

    @jit.device
    def fold(staged: Any, begin: Any, extent: Any, exists: Any, lane: Any) -> Any:
        acc, count, origin = empty(), int32(0), wide(0)
        if exists:
            index, end = int32(begin + lane * inner), int32(begin + extent * inner)
            while index < int32(end - (STAGED_STEPS - 1) * lanes * inner):
                acc, count, index = take_8(acc, count, index, staged, lane, end)
            acc, count, index = take_4(acc, count, index, staged, lane, end)
            acc, count, index = take_2(acc, count, index, staged, lane, end)
            acc, count, index = take_1(acc, count, index, staged, lane, end)
            if subtracts_origin and extent > 0:
                origin = origin_from(staged[begin])
        return reduce_lanes(acc, count, origin)

    return fold


@jit.kernel
def fold_staged_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, height: int, inner: int, guarded: bool, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_rows` for short rows that are contiguous as a whole: row r begins at ``x[r · extent]``, which need not be aligned.

    Of ``inner`` > 1 neighbouring columns each position has one element of each, and all positions of all columns are contiguous as a whole.
    A block copies ``THREADS // lanes · height`` rows to shared memory, or the most whole neighbours that these are, in aligned vectors that need not
    begin or end with a row. Then ``lanes`` lanes fold each row from shared memory. Dynamic shared memory: the bytes of these rows, and of a vector
    where they may begin inside one, rounded up to 16. Order and bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``height``: rows that a group folds, one after another; ``inner``: neighbouring columns, 1
    of rows. ``partials`` is not used.
    """
    element, groups, copy = jit.SCALARS[value], THREADS // lanes, copy_of(value, vector)
    rows_a_block = groups * height // inner * inner
    fold, (store_result, _), row_offset = group_fold_of(monoid, value, lanes, inner), result_stores(monoid, value, result), strided_offset_of(kept)

    def fold_staged_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        if guarded and guard[0] == 0:
            return
        first_row = int64(cuda.blockIdx.x) * rows_a_block
        rows_here = int32(min(int64(rows_a_block), rows - first_row))
        base = first_row * extent
        before = int32(base & (vector - 1)) if inner > 1 else int32(0)
        copy(x, base - before, int32(rows_here * extent + before), staged)
        cuda.syncthreads()
        group, lane = lane_of_group(lanes)
        for h in range(height):
            own = int32(group + h * groups)
            line = int32(uint32(own) // uint32(inner))
            state = fold(staged, int32(before + line * inner * extent + (own - line * inner)), extent, own < rows_here, lane)
            if lane == 0 and own < rows_here:
                store_result(y, row_offset(first_row + own, kept_shape, y_kept_strides), state, corrected_count)

    return fold_staged_rows, lambda rows: (-(-rows // rows_a_block), THREADS, 0)


def rows_store_of(element_vjp: Any, value: str, vector: int, uses_x: bool) -> Any:
    """``store_rows(staged, terms, dx, base, size, extent, last_row, inverse_extent)``: the block stores ``dx[base : base + size]``.

    Those are the elements of its rows of ``extent`` elements, stored as vectors up to the last whole one. ``staged`` are those of x, if it is used,
    and ``terms`` those of the rows, of which ``last_row`` is the last one.
    """
    element, load, store, stride = jit.SCALARS[value], LOAD[vector], STORE_STREAM[vector], THREADS * vector

    @jit.device
    def element_of_dx(x: Any, position: Any, row: Any, terms: Any, inverse_extent: Any) -> Any:
        """An element of dx: of the element x at a position of a row of the block."""
        return element_vjp(x, int64(position), inverse_extent, terms_at(terms, ROW_TERMS * row))

    @jit.device
    def store_rows(staged: Any, terms: Any, dx: Any, base: Any, size: Any, extent: Any, last_row: Any, inverse_extent: Any) -> None:
        batch, width = cuda.local.array(vector, element), int32(extent)
        vector_end, thread = int32(size & -vector), int32(cuda.threadIdx.x)
        index = int32(thread * vector)
        while index < vector_end:
            if uses_x:
                load(staged, index, batch, 0)
            own = int32(uint32(index) // uint32(extent))
            position = int32(index - own * int32(extent))
            if extent >= vector:
                here, behind = terms_at(terms, ROW_TERMS * own), terms_at(terms, ROW_TERMS * min(int32(own + 1), last_row))
                for v in range(vector):
                    inside = position + v < width
                    place = int64(position + v if inside else position + v - width)
                    batch[v] = element_vjp(batch[v] if uses_x else element(0), place, inverse_extent, one_of(inside, here, behind))
            else:
                for v in range(vector):
                    batch[v] = element_of_dx(batch[v] if uses_x else element(0), position, own, terms, inverse_extent)
                    position = int32(position + 1)
                    if position == width:
                        own, position = int32(own + 1), int32(0)
            store(dx, base + index, batch, 0)
            index = int32(index + stride)
        index = int32(vector_end + thread)
        if index < size:
            own = int32(uint32(index) // uint32(extent))
            single = staged[index] if uses_x else element(0)
            dx[base + index] = element_of_dx(single, int32(index - own * int32(extent)), own, terms, inverse_extent)

    return store_rows


@jit.kernel
def broadcast_staged_rows(*, gradient: str, monoid: str, value: str, vector: int, lanes: int, height: int, kept: int) -> Any:
    """:func:`broadcast_rows` for short rows of dx and x that are contiguous as a whole, with the fold that the gradient needs, if any.

    A block copies ``THREADS // lanes · height`` rows of x to shared memory, if the gradient or its fold uses x. ``lanes`` lanes fold each row there,
    only where a result of the block is no normal number if the gradient is guarded; the terms of each row go to shared memory, too. Then the threads
    store dx in aligned vectors, which need not begin or end with a row. Dynamic shared memory: the bytes of these rows, rounded up to 16. Bytes:
    rows · extent · value written, and as many read where x is used.

    Constants and parameters as :mod:`.` lists them, and: ``monoid``: of the fold, "" where the gradient has none. ``height``: as in
    :func:`fold_staged_rows`.
    """
    element, wide, row_vjp, grad = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient]
    groups, copy, guarded, folds = THREADS // lanes, copy_of(value, vector), grad.guarded, monoid != ""
    rows_a_block = groups * height
    load_row_terms, terms_size, uses_x = row_vjp.load_row_terms, ROW_TERMS * rows_a_block, row_vjp.has_x or folds
    store_any, store_normal = (rows_store_of(each, value, vector, uses_x) for each in (row_vjp.element_vjp, row_vjp.element_vjp_normal))
    widen, is_normal, row_offset = conversions_of(value)[0], is_normal_of(value), strided_offset_of(kept)
    group_fold: Any = group_fold_of(monoid, value, lanes) if folds else None
    row_results: Any = row_results_of(monoid, value) if folds else None

    @jit.device
    def fold(staged: Any, begin: Any, extent: Any, exists: Any, lane: Any, corrected_count: Any) -> Any:
        """(p, q) of a row."""
        if folds:
            return row_results(group_fold(staged, begin, extent, exists, lane), corrected_count)
        return wide(0), wide(0)

    def broadcast_staged_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        rows: int64, extent: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
        kept_shape: Extents[kept], dy_kept_strides: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        terms = cuda.shared.array(terms_size, wide)
        first_row = int64(cuda.blockIdx.x) * rows_a_block
        base, size = first_row * extent, int32(min(int64(rows_a_block), rows - first_row) * extent)
        if uses_x:
            copy(x, base, size, staged)
        if uses_x and not guarded:
            cuda.syncthreads()
        group, lane = lane_of_group(lanes)
        found = int32(0)
        for h in range(height):
            own = int32(group + h * groups)
            row, begin = first_row + own, int32(own * extent)
            safe_row = min(row, int64(rows - 1))
            y_offset, p_q = row_offset(safe_row, kept_shape, y_kept_strides), (wide(0), wide(-1))
            if guarded:
                special = not is_normal(widen(y[y_offset]))
                anywhere = cuda.syncthreads_or(int32(special))
                found |= anywhere
                if anywhere:
                    row_p_q = fold(staged, begin, extent, row < rows, lane, corrected_count)
                    p_q = row_p_q if special else p_q
            else:
                p_q = fold(staged, begin, extent, row < rows, lane, corrected_count)
            if lane == 0 and row < rows:
                load_row_terms(terms, own * ROW_TERMS, staged, dy, y, begin, row_offset(row, kept_shape, dy_kept_strides), y_offset, p_q)
        cuda.syncthreads()
        last_row = int32(min(int64(rows_a_block), rows - first_row) - 1)
        if guarded and found == 0:
            store_normal(staged, terms, dx, base, size, extent, last_row, inverse_extent)
        else:
            store_any(staged, terms, dx, base, size, extent, last_row, inverse_extent)

    return broadcast_staged_rows, lambda rows: (-(-rows // rows_a_block), THREADS, 0)
