"""Reductions along another axis than the one on which neighbours lie side by side: lanes share out the columns, and walk down."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...kernels.batch import accessors, batch_of, state_kind, states_on
from ...kernels.elements import accumulator_of, conversions_of, place_of
from ...runtime import jit
from ..tiling import STEPS, THREADS
from .access import accesses_of, part_of_block
from .results import results_of


@jit.kernel
def fold_columns(*, monoid: str, value: str, result: str, vector: int, lanes: int, guarded: bool, kept: int, dims: int) -> Any:
    """``fold_rows`` where x is not contiguous along the rows: here they are called columns.

    A block has ``lanes`` lanes beside each other, ``vector`` columns each, and THREADS // lanes below each other, which walk down ``chunk`` places,
    ``STEPS`` accesses in flight; those of a column meet in shared memory, joined as a tree. Bytes and order as ``fold_rows``.
    """
    element, kind = jit.SCALARS[value], jit.SCALARS[state_kind(monoid, value)]
    wide, widen, shifts, states = accumulator_of(value), conversions_of(value)[0], monoid_of(monoid).shifts, states_on(monoid, value)
    identity, combine, width = states.identity, states.combine, len(states.kinds)
    depth, (get, put), scalars = THREADS // lanes, accessors(width), width * vector
    batch_of_steps, write = batch_of(monoid, value, STEPS, 1, vector, depth), results_of(monoid, value, result)
    column_of, (fetch, fetch_some), size = place_of(kept), accesses_of(value, vector, depth, dims), STEPS * vector
    shared, levels = THREADS * scalars if depth > 1 else 1, depth.bit_length() - 1

    def fold_columns(
        x: Any, guard: Any, y: Any, parts: Any, columns: Any, extent: Any, chunk: Any, splits: Any, correction: Any,
        kept_shape: Any, x_columns: Any, y_columns: Any, shape: Any, x_strides: Any,
    ) -> None:  # fmt: skip
        met = cuda.shared.array(shared, kind)
        batch = cuda.local.array(size, element)
        state = cuda.local.array(scalars, kind)
        origins = cuda.local.array(vector, wide)
        if guarded and guard[0] == 0:
            return
        column_block, split = part_of_block(splits)
        below = int32(cuda.threadIdx.x // lanes)
        column = (column_block * lanes + (cuda.threadIdx.x - below * lanes)) * vector
        for v in range(vector):
            put(state, v * width, 1, identity())
        if column < columns:
            base = column_of(column, kept_shape, x_columns)
            last = min((split + 1) * chunk, int64(extent))
            for v in range(vector):
                origins[v] = widen(x[base + v]) if shifts and split * chunk < last else wide(0)
            position = split * chunk + below
            while position + (STEPS - 1) * depth < last:
                fetch(x, base, position, shape, x_strides, batch, 0)
                for v in range(vector):
                    put(state, v * width, 1, combine(get(state, v * width, 1), batch_of_steps(batch, v, position, STEPS, origins[v])))
                position = opaque(position + STEPS * depth)
            valid = fetch_some(x, base, position, last, shape, x_strides, batch, 0)
            if valid > 0:
                for v in range(vector):
                    put(state, v * width, 1, combine(get(state, v * width, 1), batch_of_steps(batch, v, position, valid, origins[v])))
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
                write(y, column_of(column + v, kept_shape, y_columns), column + v, parts, split, splits, get(state, v * width, 1), extent, correction)

    return fold_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)
