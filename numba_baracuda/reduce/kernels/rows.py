"""Reductions along the axis on which neighbours lie side by side: lanes share out the elements of a row."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.vector import aligned_span
from ...kernels.batch import batch_of, over_lanes, row_of_group, single_of, states_on
from ...kernels.elements import accumulator_of, conversions_of, place_of
from ...runtime import jit
from ..tiling import STEPS, THREADS
from .access import accesses_of, part_of_block
from .results import results_of


@functools.cache
def lane_of_row(monoid: str, value: str, vector: int, lanes: int, peeled: bool, dims: int, again: bool = False) -> Any:
    """``fold(x, base, first, last, lane, shape, strides, origin)``: what a lane of a group has of the places from ``first`` to ``last`` of a row.

    ``STEPS`` accesses are in flight. ``again``: the row will be read once more.
    """
    element, stride, size = jit.SCALARS[value], lanes * vector, STEPS * vector
    states, single, batch_of_steps = states_on(monoid, value), single_of(monoid, value), batch_of(monoid, value, STEPS, vector, 1, lanes * vector)
    identity, combine, (fetch, fetch_some) = states.identity, states.combine, accesses_of(value, vector, stride, dims, again=again)

    @jit.device
    def fold(x: Any, base: Any, first: Any, last: Any, lane: Any, shape: Any, strides: Any, origin: Any) -> Any:
        batch = cuda.local.array(size, element)
        state, begin, end = identity(), first, last
        if peeled:
            begin, end = aligned_span(x, base + first, base + last, vector)
            begin, end = begin - base, end - base
            if first + lane < begin:
                state = combine(state, single(x[base + first + lane], first + lane, origin))
        position = begin + lane * vector
        while position + (STEPS - 1) * stride < end:
            fetch(x, base, position, shape, strides, batch, 0)
            state = combine(state, batch_of_steps(batch, 0, position, STEPS, origin))
            position = opaque(position + STEPS * stride)
        valid = fetch_some(x, base, position, end, shape, strides, batch, 0)
        if valid > 0:
            state = combine(state, batch_of_steps(batch, 0, position, valid, origin))
        if peeled and end + lane < last:
            state = combine(state, single(x[base + end + lane], end + lane, origin))
        return state

    return fold


@jit.kernel
def fold_rows(*, monoid: str, value: str, result: str, vector: int, lanes: int, peeled: bool, guarded: bool, kept: int, dims: int) -> Any:
    """``y[o] = finish(⊕ lift(x[o, r]))`` over the places r of row o; of rows in several parts, ``splits``, the state of each part goes to ``parts``.

    A group of ``lanes`` lanes, which is a block where there are more than 32, takes ``chunk`` places of a row, ``STEPS`` accesses of ``vector``
    elements in flight a lane; elements are folded in registers, then over lanes. ``peeled`` rows begin and end anywhere: the ends are taken one by
    one. Places lie over ``dims`` axes, rows over ``kept``. With ``guarded`` nothing is done unless ``guard[0]`` is set. The order is fixed by the
    geometry. Bytes: rows · extent · value read, rows · result written.
    """
    wide, widen, shifts = accumulator_of(value), conversions_of(value)[0], monoid_of(monoid).shifts
    groups, identity, row_of, write = THREADS // lanes, states_on(monoid, value).identity, place_of(kept), results_of(monoid, value, result)
    fold_lane, fold = lane_of_row(monoid, value, vector, lanes, peeled, dims), over_lanes(monoid, value, lanes)

    def fold_rows(
        x: Any, guard: Any, y: Any, parts: Any, rows: Any, extent: Any, chunk: Any, splits: Any, correction: Any,
        kept_shape: Any, x_rows: Any, y_rows: Any, shape: Any, x_strides: Any,
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        row_block, split = part_of_block(splits)
        group = int32(cuda.threadIdx.x // lanes)
        lane = int32(cuda.threadIdx.x - group * lanes)
        row = row_block * groups + group
        state = identity()
        if row < rows:
            base, first = row_of(row, kept_shape, x_rows), split * chunk
            last = min(first + chunk, int64(extent))
            origin = widen(x[base]) if shifts and first < last else wide(0)
            state = fold_lane(x, base, first, last, lane, shape, x_strides, origin)
        state = fold(state)
        if lane == 0 and row < rows:
            write(y, row_of(row, kept_shape, y_rows), row, parts, split, splits, state, extent, correction)

    return fold_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def fold_short_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, steps: int, height: int, guarded: bool, kept: int, dims: int
) -> Any:
    """``fold_rows`` for rows that a group of up to 32 lanes takes at once, ``steps`` accesses a lane: ``height`` of them at a time, all loads first.

    Bytes and order as ``fold_rows``.
    """
    element, wide, widen, shifts = jit.SCALARS[value], accumulator_of(value), conversions_of(value)[0], monoid_of(monoid).shifts
    groups, stride, row_size = THREADS // lanes, lanes * vector, steps * vector
    pivoted, fold = monoid_of(monoid).pivot != "", over_lanes(monoid, value, lanes)
    whole_row = row_of_group(monoid, value, steps, vector, lanes) if pivoted else batch_of(monoid, value, steps, vector, 1, stride)
    write, row_of, (_, fetch_some) = results_of(monoid, value, result), place_of(kept), accesses_of(value, vector, stride, dims, steps)
    size, rows_a_block = height * row_size, groups * height

    def fold_short_rows(
        x: Any, guard: Any, y: Any, parts: Any, rows: Any, extent: Any, correction: Any,
        kept_shape: Any, x_rows: Any, y_rows: Any, shape: Any, x_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        origins = cuda.local.array(height, wide)
        valid = cuda.local.array(height, int32)
        if guarded and guard[0] == 0:
            return
        group = int32(cuda.threadIdx.x // lanes)
        lane = int32(cuda.threadIdx.x - group * lanes)
        first = int64(cuda.blockIdx.x) * rows_a_block + group
        for h in range(height):
            row = first + h * groups
            base = row_of(min(row, int64(rows - 1)), kept_shape, x_rows)
            origins[h] = widen(x[base]) if shifts and extent > 0 else wide(0)
            valid[h] = fetch_some(x, base, lane * vector, extent, shape, x_strides, batch, h * row_size)
        for h in range(height):
            row = first + h * groups
            if pivoted:
                state = whole_row(batch, h * row_size, valid[h], origins[h], extent)
            else:
                state = fold(whole_row(batch, h * row_size, int64(lane * vector), valid[h], origins[h]))
            if lane == 0 and row < rows:
                write(y, row_of(row, kept_shape, y_rows), row, parts, 0, 1, state, extent, correction)

    return fold_short_rows, lambda rows: (-(-rows // rows_a_block), THREADS, 0)
