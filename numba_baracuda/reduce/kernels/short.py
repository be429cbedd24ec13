"""Reductions of rows so short that a group of lanes takes several at a time."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.vector import LOAD_ONCE, STORE
from ...kernels.batch import accessors, state_kind
from ...kernels.elements import accumulator_of, origin_of, place_of
from ...kernels.tallies import tally_of
from ...kernels.transpose import first_place
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import Block
from ..tiling import STAGED_STEPS, steps_of
from .access import accesses_of, lane_of_group
from .results import results_of


def below_of(kept: int) -> Any:
    """``below(base, row, rows, shape, strides)``: the offset of the row that is ``rows`` behind ``row``, which lies at ``base``."""
    place = place_of(kept)
    if kept == 1:
        return jit.device(lambda base, row, rows, shape, strides: base + rows * strides[0])
    return jit.device(lambda base, row, rows, shape, strides: place(row + rows, shape, strides))


@jit.kernel
def fold_short_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, steps: int, height: int, full: bool, guarded: bool, kept: int, dims: int,
    threads_per_block: int = Block.threads_per_block,
) -> Any:  # fmt: skip
    """``fold_rows`` for rows that a group of up to 32 lanes takes at once, ``steps`` accesses a lane: ``height`` of them at a time, all loads first.

    No row is empty; ``full`` rows are ``steps · lanes`` accesses long. The fold over lanes leaves each lane other rows. Bytes and order as
    ``fold_rows``.
    """
    element, tally, groups, stride, row_size = jit.SCALARS[value], tally_of(monoid, value), threads_per_block // lanes, lanes * vector, steps * vector
    fold, (write, _), row_of, below = (
        tally.rows(steps, vector, stride, lanes, height),
        results_of(monoid, value, result),
        place_of(kept),
        below_of(kept),
    )
    fetch, fetch_some = accesses_of(value, vector, stride, dims, steps)
    size, rows_a_block, own_rows, place_of_lane = height * row_size, groups * height, max(1, height // lanes), first_place(lanes, height)
    kind, width, (get, _) = tally.kind, tally.state_width, accessors(tally.state_width)
    scalars = height * width

    def fold_short_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], parts: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, left: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_rows: Extents[kept], y_rows: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        states = cuda.local.array(scalars, kind)
        valid = cuda.local.array(height, int32)
        if guarded and guard[0] == 0:
            return
        group, lane = lane_of_group(lanes)
        first = int64(cuda.blockIdx.x) * rows_a_block
        here = int32(min(int64(rows_a_block), rows - first))
        own = first + min(group, int32(here - 1))
        base = row_of(own, kept_shape, x_rows)
        for h in range(height):
            at = below(base, own, h * groups, kept_shape, x_rows)
            at = at if group + h * groups < here else base
            if full:
                fetch(x, at, lane * vector, shape, x_strides, batch, h * row_size)
                valid[h] = int32(steps)
            else:
                valid[h] = fetch_some(x, at, lane * vector, extent, 0, shape, x_strides, batch, h * row_size)
        fold(batch, int64(lane * vector), valid, lane, extent, states)
        group = int32(group + place_of_lane(lane) * groups)
        if lane < height and group < here:
            base = row_of(first + group, kept_shape, y_rows)
            for h in range(own_rows):
                if group + h * groups < here:
                    write(y, below(base, first + group, h * groups, kept_shape, y_rows), get(states, h * width, 1), left)

    return fold_short_rows, lambda rows: (-(-rows // rows_a_block), threads_per_block, 0)


@jit.kernel
def fold_staged_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, guarded: bool, kept: int, threads_per_block: int = Block.threads_per_block
) -> Any:  # fmt: skip
    """``fold_rows`` for rows of any length that follow one another without a gap, as many as fit in shared memory at a time.

    Accesses of ``vector`` elements pay no heed to where rows begin; ``lanes`` lanes then share out a row from shared memory. Bytes as ``fold_rows``.
    """
    element, wide, first_of, tally = jit.SCALARS[value], accumulator_of(value), origin_of(value), tally_of(monoid, value)
    shifts, rows_a_block, stride, steps = monoid_of(monoid).shifts, threads_per_block // lanes, threads_per_block * vector, steps_of(value, vector)
    load, store, in_flight = LOAD_ONCE[vector], STORE[vector], steps * vector
    take, fold, nothing = tally.batch(STAGED_STEPS, 1, 1, lanes), tally.over(lanes), tally.nothing
    (write, _), row_of = results_of(monoid, value, result), place_of(kept)

    def fold_staged_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], parts: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, left: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], y_rows: Extents[kept],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        accesses = cuda.local.array(in_flight, element)
        batch = cuda.local.array(STAGED_STEPS, element)
        if guarded and guard[0] == 0:
            return
        first, thread = int64(cuda.blockIdx.x) * rows_a_block, int32(cuda.threadIdx.x)
        base, size = first * extent, int32(min(int64(rows_a_block), rows - first) * extent)
        whole = int32(size & -vector)
        at = int32(thread * vector)
        while at + (steps - 1) * stride < whole:
            for s in range(steps):
                load(x, base + (at + s * stride), accesses, s * vector)
            for s in range(steps):
                store(staged, at + s * stride, accesses, s * vector)
            at = int32(at + steps * stride)
        while at < whole:
            load(x, base + at, accesses, 0)
            store(staged, at, accesses, 0)
            at = int32(at + stride)
        if whole + thread < size:
            staged[whole + thread] = x[base + whole + thread]
        cuda.syncthreads()
        group, lane = lane_of_group(lanes)
        row, begin = first + group, int32(group * extent)
        made, count, origin = nothing(), int32(0), wide(0)
        if row < rows:
            place, end = int32(begin + lane), int32(begin + extent)
            while place + (STAGED_STEPS - 1) * lanes < end:
                for s in range(STAGED_STEPS):
                    batch[s] = staged[place + s * lanes]
                made = take(made, batch, 0, int64(place - begin), STAGED_STEPS, count)
                count, place = int32(count + STAGED_STEPS), int32(place + STAGED_STEPS * lanes)
            valid = int32(0)
            for s in range(STAGED_STEPS):
                inside = place + s * lanes < end
                batch[s] = staged[place + s * lanes if inside else begin]
                valid = int32(valid + int32(inside))
            if valid > 0:
                made = take(made, batch, 0, int64(place - begin), valid, count)
                count = int32(count + valid)
            if shifts and extent > 0:
                origin = first_of(staged[begin])
        state = fold(made, count, origin)
        if lane == 0 and row < rows:
            write(y, row_of(row, kept_shape, y_rows), state, left)

    return fold_staged_rows, lambda rows: (-(-rows // rows_a_block), threads_per_block, 0)
