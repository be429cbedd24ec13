"""Scans along the axis on which neighbours lie side by side: lanes share out the elements of a row."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.block import block_scan
from ...device.build import opaque
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...device.warp import warp_scan
from ...kernels.batch import accessors, monoid_on, state_kind, states_on
from ...kernels.elements import conversions_of, place_of
from ...runtime import jit
from ..tiling import THREADS, steps_of


@jit.kernel
def scan_rows(*, monoid: str, value: str, vector: int, lanes: int, reverse: bool, exclusive: bool, kept: int) -> Any:
    """``y[o, r] = finish(initial ⊕ lift(x[o, 0]) ⊕ … ⊕ lift(x[o, r]))``; ``exclusive`` leaves x[o, r] out, ``reverse`` counts r from the end.

    A group of ``lanes`` lanes, which is a block where there are more than 32, walks its row in tiles of ``steps`` accesses a lane. An access is
    folded in registers, the totals of the lanes of a warp are scanned by shuffles, the strips of a warp one after the other, and warps through shared
    memory; the tiles follow each other with a carry. The order is fixed by the geometry. Bytes: rows · extent · value read and written.
    """
    element, kind, states = jit.SCALARS[value], jit.SCALARS[state_kind(monoid, value)], states_on(monoid, value)
    found, steps, width = monoid_on(monoid, value), steps_of(value, vector), len(states.kinds)
    (widen, narrow), lift, finish = conversions_of(value), jit.device(found.lift), jit.device(found.finish)
    identity, combine, cast, of_lane, of_lower = states.identity, states.combine, states.cast, states.of_lane, states.of_lower
    (get, put), row_of, load, store = accessors(width), place_of(kept), LOAD_STREAM[vector], STORE_STREAM[vector]
    group_lanes, groups, whole_block = min(lanes, 32), THREADS // lanes, lanes > 32
    kinds: Any = states.kinds if width > 1 else states.kinds[0]
    over_lanes, over_block = warp_scan(found, kinds, group_lanes), block_scan(found, kinds, THREADS, exclusive=True)
    strip, size = group_lanes * vector, steps * vector
    scalars, tile = steps * width, lanes * steps * vector

    def scan_rows(x: Any, y: Any, rows: Any, extent: Any, initial: Any, kept_shape: Any, x_rows: Any, y_rows: Any, x_step: Any, y_step: Any) -> None:
        batch = cuda.local.array(size, element)
        totals = cuda.local.array(scalars, kind)
        before = cuda.local.array(scalars, kind)
        thread = uint32(cuda.threadIdx.x)
        group = int32(thread // uint32(lanes))
        lane, warp = int32(thread % uint32(group_lanes)), int32(thread % uint32(lanes) // uint32(32))
        row = int64(cuda.blockIdx.x) * groups + group
        there = row < rows
        from_x, to_y = row_of(min(row, int64(rows - 1)), kept_shape, x_rows), row_of(min(row, int64(rows - 1)), kept_shape, y_rows)
        carry = cast(lift(kind(initial), kind(1), kind(1)))
        first = int64(0)
        while first < extent:
            start = first + warp * steps * strip + lane * vector
            for s in range(steps):
                at = start + s * strip
                if there and at < extent:
                    load(x, from_x + (extent - vector - at if reverse else at) * x_step, batch, s * vector)
                else:
                    for v in range(vector):
                        batch[s * vector + v] = element(0)
            for s in range(steps):
                total = identity()
                for v in range(vector):
                    if start + s * strip < extent:
                        one = batch[s * vector + (vector - 1 - v if reverse else v)]
                        total = combine(total, cast(lift(widen(one), kind(1), kind(1))))
                put(totals, s * width, 1, total)
            ahead = identity()
            for s in range(steps):
                through = over_lanes(get(totals, s * width, 1))
                lower = of_lower(through, int32(1))
                put(before, s * width, 1, combine(ahead, lower) if lane > 0 else ahead)
                ahead = combine(ahead, of_lane(through, (int32(cuda.laneid) & -group_lanes) + group_lanes - 1))
            own, ended = carry, combine(carry, ahead)
            if whole_block:
                prefix, total = over_block(ahead if lane == 31 else identity())
                prefix = of_lane(prefix, int32(31))
                own, ended = combine(carry, prefix), combine(carry, total)
            for s in range(steps):
                at = start + s * strip
                state = combine(own, get(before, s * width, 1))
                for v in range(vector):
                    place = s * vector + (vector - 1 - v if reverse else v)
                    after = combine(state, cast(lift(widen(batch[place]), kind(1), kind(1))))
                    batch[place] = narrow(finish(state if exclusive else after, kind(1), kind(1)))
                    state = after
                if there and at < extent:
                    store(y, to_y + (extent - vector - at if reverse else at) * y_step, batch, s * vector)
            carry = ended
            first = opaque(first + tile)

    return scan_rows, lambda rows: (-(-rows // groups), THREADS, 0)
