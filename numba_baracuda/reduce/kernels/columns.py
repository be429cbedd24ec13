"""Reductions along another axis than the one on which neighbours lie side by side: lanes share out the columns, and walk down."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.vector import aligned_span
from ...kernels.batch import accessors, state_kind, states_on
from ...kernels.elements import accumulator_of, origin_of, place_of
from ...kernels.tallies import tally_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS, steps_of
from .access import accesses_of, edges_of, lane_of_group, part_of_block
from .results import results_of


@functools.cache
def stretches_of(depth: int) -> Any:
    """``stretch(first, last, below)``: the neighbouring places that lane ``below`` of ``depth`` takes of those from ``first`` to ``last``.

    In the order of the bits in reverse, in which the tree that first joins the upper half of the lanes to the lower one joins them.
    """
    levels = depth.bit_length() - 1

    @jit.device
    def stretch(first: Any, last: Any, below: Any) -> Any:
        share, number = (max(last - first, int64(0)) + depth - 1) // depth, int32(0)
        for level in range(levels):
            number |= (below >> level & 1) << (levels - 1 - level)
        return first + number * share, min(first + (number + 1) * share, last)

    return stretch


@jit.kernel
def fold_columns(*, monoid: str, value: str, result: str, vector: int, lanes: int, peeled: bool, guarded: bool, kept: int, dims: int) -> Any:
    """``fold_rows`` where x is not contiguous along the rows: here they are called columns.

    A block has ``lanes`` lanes beside each other, ``vector`` columns each, and THREADS // lanes below each other, which walk down ``chunk`` places,
    several accesses in flight; those of a column meet in shared memory, joined as a tree. A lane takes every ``depth``-th place, or neighbouring ones
    of a monoid that does not commute. ``peeled`` lines of columns begin and end anywhere: accesses are aligned, and the lanes at either end take what
    columns there are one by one. Bytes and order as ``fold_rows``.
    """
    element, wide, first_of, tally = jit.SCALARS[value], accumulator_of(value), origin_of(value), tally_of(monoid, value)
    depth, steps, shifts, kind = THREADS // lanes, steps_of(value, vector), monoid_of(monoid).shifts, tally.kind
    width, kept_width, combine, nothing, state_of = tally.state_width, tally.width, states_on(monoid, value).combine, tally.nothing, tally.state
    (get, put), (get_tally, put_tally) = accessors(width), accessors(kept_width)
    ordered, stretch_of = not monoid_of(monoid).commutes, stretches_of(depth)
    gap = 1 if ordered else depth
    take, (write, keep), column_of = tally.beside(steps, vector, gap), results_of(monoid, value, result), place_of(kept)
    fetch_each = edges_of(value, vector, gap, dims, steps)
    (fetch, fetch_some), size, scalars, kept_scalars = (
        accesses_of(value, vector, gap, dims, steps),
        steps * vector,
        width * vector,
        kept_width * vector,
    )
    shared, levels = THREADS * scalars if depth > 1 else 1, depth.bit_length() - 1

    def fold_columns(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], parts: Ptr[state_kind(monoid, value)],
        columns: int64, extent: int64, chunk: int64, splits: int64, left: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_columns: Extents[kept], y_columns: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        met = cuda.shared.array(shared, kind)
        batch = cuda.local.array(size, element)
        tallies = cuda.local.array(kept_scalars, kind)
        state = cuda.local.array(scalars, kind)
        if guarded and guard[0] == 0:
            return
        column_block, split = part_of_block(splits)
        below, beside = lane_of_group(lanes)
        column = (column_block * lanes + beside) * vector
        count, first = int32(0), split * chunk
        for v in range(vector):
            put_tally(tallies, v * kept_width, 1, nothing())
        low, high = int64(0), int64(vector)
        if peeled:
            column -= (vector - aligned_span(x, 0, columns, vector)[0]) & (vector - 1)
            low, high, base = max(-column, low), min(columns - column, high), column
        else:
            base = column_of(min(column, int64(columns - 1)), kept_shape, x_columns)
        last = min(first + chunk, int64(extent)) if column < columns else int64(0)
        position = first + below
        if ordered:
            position, last = stretch_of(first, last, below)
        while position + (steps - 1) * gap < last:
            if peeled and high - low < vector:
                fetch_each(x, base, low, high, position, last, shape, x_strides, batch)
            else:
                fetch(x, base, position, shape, x_strides, batch, 0)
            take(tallies, batch, position, steps, count)
            count = int32(count + steps)
            position = opaque(position + steps * gap)
        if position < last:
            if peeled and high - low < vector:
                valid = fetch_each(x, base, low, high, position, last, shape, x_strides, batch)
            else:
                valid = fetch_some(x, base, position, last, position, shape, x_strides, batch, 0)
            take(tallies, batch, position, valid, count)
            count = int32(count + valid)
        for v in range(vector):
            origin = first_of(x[base + v]) if shifts and first < last and low <= v < high else wide(0)
            put(state, v * width, 1, state_of(get_tally(tallies, v * kept_width, 1), count, origin))
        thread = int32(cuda.threadIdx.x)
        for level in range(levels):
            half = depth >> (level + 1)
            if half <= below < 2 * half:
                for k in range(scalars):
                    met[k * THREADS + thread] = state[k]
            cuda.syncthreads()
            if below < half:
                for v in range(vector):
                    other = get(met, v * width * THREADS + thread + half * lanes, THREADS)
                    put(state, v * width, 1, combine(get(state, v * width, 1), other))
        if below == 0 and column < columns:
            for v in range(vector):
                if peeled and not low <= v < high:
                    continue
                if splits > 1:
                    keep(parts, (column + v) * splits + split, get(state, v * width, 1))
                else:
                    write(y, column_of(column + v, kept_shape, y_columns), get(state, v * width, 1), left)

    return fold_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)
