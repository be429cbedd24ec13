"""Scans along another axis than the one on which neighbours lie side by side: lanes share out the columns, and walk down."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.build import opaque
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...kernels.batch import accessors, monoid_on, state_kind, states_on
from ...kernels.elements import conversions_of, place_of
from ...runtime import jit
from ..tiling import steps_of


@jit.kernel
def scan_columns(*, monoid: str, value: str, vector: int, lanes: int, threads: int, reverse: bool, exclusive: bool, kept: int) -> Any:
    """``scan_rows`` where x is not contiguous along the rows: here they are called columns.

    A block has ``lanes`` lanes beside each other, ``vector`` columns each, and threads // lanes below each other, which take ``steps`` neighbouring
    places each of a tile. Their totals meet in shared memory, where every lane folds those above its own; the last of all is the carry of the
    next tile. Bytes and order as ``scan_rows``.
    """
    element, kind, states = jit.SCALARS[value], jit.SCALARS[state_kind(monoid, value)], states_on(monoid, value)
    found, steps, width = monoid_on(monoid, value), steps_of(value, vector), len(states.kinds)
    (widen, narrow), lift, finish = conversions_of(value), jit.device(found.lift), jit.device(found.finish)
    identity, combine, cast = states.identity, states.combine, states.cast
    (get, put), column_of, load, store = accessors(width), place_of(kept), LOAD_STREAM[vector], STORE_STREAM[vector]
    depth, size, scalars = threads // lanes, steps * vector, vector * width
    shared, tile = threads * scalars, depth * steps

    def scan_columns(
        x: Any, y: Any, columns: Any, extent: Any, initial: Any, kept_shape: Any, x_columns: Any, y_columns: Any, x_step: Any, y_step: Any
    ) -> None:
        met = cuda.shared.array(shared, kind)
        batch = cuda.local.array(size, element)
        carry = cuda.local.array(scalars, kind)
        thread = uint32(cuda.threadIdx.x)
        below, beside = int32(thread // uint32(lanes)), int32(thread % uint32(lanes))
        column = (int64(cuda.blockIdx.x) * lanes + beside) * vector
        there = column < columns
        from_x, to_y = int64(0), int64(0)
        if there:
            from_x, to_y = column_of(column, kept_shape, x_columns), column_of(column, kept_shape, y_columns)
        for v in range(vector):
            put(carry, v * width, 1, cast(lift(kind(initial), kind(1), kind(1))))
        first = int64(0)
        while first < extent:
            start = first + below * steps
            for s in range(steps):
                at = start + s
                if there and at < extent:
                    load(x, from_x + (extent - 1 - at if reverse else at) * x_step, batch, s * vector)
                else:
                    for v in range(vector):
                        batch[s * vector + v] = element(0)
            for v in range(vector):
                total = identity()
                for s in range(steps):
                    if start + s < extent:
                        total = combine(total, cast(lift(widen(batch[s * vector + v]), kind(1), kind(1))))
                put(met, v * width * threads + cuda.threadIdx.x, threads, total)
            cuda.syncthreads()
            for v in range(vector):
                left = get(carry, v * width, 1)
                ended = left
                for above in range(depth):
                    total = get(met, v * width * threads + above * lanes + beside, threads)
                    if above < below:
                        left = combine(left, total)
                    ended = combine(ended, total)
                put(carry, v * width, 1, ended)
                for s in range(steps):
                    after = combine(left, cast(lift(widen(batch[s * vector + v]), kind(1), kind(1))))
                    batch[s * vector + v] = narrow(finish(left if exclusive else after, kind(1), kind(1)))
                    left = after
            for s in range(steps):
                at = start + s
                if there and at < extent:
                    store(y, to_y + (extent - 1 - at if reverse else at) * y_step, batch, s * vector)
            cuda.syncthreads()
            first = opaque(first + tile)

    return scan_columns, lambda columns: (-(-columns // (lanes * vector)), threads, 0)
