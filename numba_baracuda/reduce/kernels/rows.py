"""Reductions along the axis on which neighbours lie side by side: lanes share out the elements of a row."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.vector import aligned_span
from ...kernels.batch import state_kind
from ...kernels.elements import accumulator_of, origin_of, place_of
from ...kernels.tallies import tally_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import Block
from ..tiling import steps_of
from .access import accesses_of, lane_of_group, part_of_block
from .results import results_of


@functools.cache
def lane_of_row(monoid: str, value: str, vector: int, lanes: int, peeled: bool, dims: int, again: bool = False, rarely: bool = False) -> Any:
    """``fold(x, base, first, last, lane, shape, strides)``: the tally of a lane of a group for the places from ``first`` to ``last`` of a row.

    And how many they are. All accesses of a step are in flight at once, or one, in fewer registers, of what is ``rarely`` folded. ``again``: the row
    will be read once more.
    """
    element, stride, steps, tally = jit.SCALARS[value], lanes * vector, 1 if rarely else steps_of(value, vector), tally_of(monoid, value)
    nothing, take, take_one = tally.nothing, tally.batch(steps, vector, 1, stride), tally.batch(1, 1, 1, 0)
    (fetch, fetch_some), size = accesses_of(value, vector, stride, dims, steps, again), steps * vector

    @jit.device
    def fold(x: Any, base: Any, first: Any, last: Any, lane: Any, shape: Any, strides: Any) -> Any:
        batch = cuda.local.array(size, element)
        one = cuda.local.array(1, element)
        made, count, begin, end = nothing(), int32(0), first, last
        if peeled:
            begin, end = aligned_span(x, base + first, base + last, vector)
            begin, end = begin - base, end - base
        position = begin + lane * vector
        while position + (steps - 1) * stride < end:
            fetch(x, base, position, shape, strides, batch, 0)
            made = take(made, batch, 0, position, steps, count)
            count = int32(count + size)
            position = opaque(position + steps * stride)
        if position < end:
            valid = fetch_some(x, base, position, end, position, shape, strides, batch, 0)
            made = take(made, batch, 0, position, valid, count)
            count = int32(count + valid * vector)
        if peeled and first + lane < begin:
            one[0] = x[base + first + lane]
            made = take_one(made, one, 0, first + lane, 1, count)
            count = int32(count + 1)
        if peeled and end + lane < last:
            one[0] = x[base + end + lane]
            made = take_one(made, one, 0, end + lane, 1, count)
            count = int32(count + 1)
        return made, count

    return fold


@jit.kernel
def fold_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, peeled: bool, guarded: bool, kept: int, dims: int,
    threads_per_block: int = Block.threads_per_block,
) -> Any:  # fmt: skip
    """``y[o] = finish(⊕ lift(x[o, r]))`` over the places r of row o; of rows in several parts, ``splits``, the state of each part goes to ``parts``.

    A group of ``lanes`` lanes, which is a block where there are more than 32, takes ``chunk`` places of a row, several accesses of ``vector``
    elements in flight a lane; elements are folded in registers, then over lanes. ``peeled`` rows begin and end anywhere: the ends are taken one by
    one. Places lie over ``dims`` axes, rows over ``kept``. With ``guarded`` nothing is done unless ``guard[0]`` is set. The order is fixed by the
    geometry. Bytes: rows · extent · value read, rows · result written.
    """
    wide, first_of, shifts = accumulator_of(value), origin_of(value), monoid_of(monoid).shifts
    tally, groups, row_of, (write, keep) = tally_of(monoid, value), threads_per_block // lanes, place_of(kept), results_of(monoid, value, result)
    nothing, fold_lane, fold = tally.nothing, lane_of_row(monoid, value, vector, lanes, peeled, dims), tally.over(lanes)

    def fold_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], parts: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, chunk: int64, splits: int64, left: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_rows: Extents[kept], y_rows: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        row_block, split = part_of_block(splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        made, count, origin = nothing(), int32(0), wide(0)
        if row < rows:
            base, first = row_of(row, kept_shape, x_rows), split * chunk
            last = min(first + chunk, int64(extent))
            made, count = fold_lane(x, base, first, last, lane, shape, x_strides)
            if shifts and first < last:
                origin = first_of(x[base])
        state = fold(made, count, origin)
        if lane == 0 and row < rows:
            if splits > 1:
                keep(parts, row * splits + split, state)
            else:
                write(y, row_of(row, kept_shape, y_rows), state, left)

    return fold_rows, lambda rows, splits: (-(-rows // groups) * splits, threads_per_block, 0)
