"""Scans along the axis on which neighbours lie side by side: lanes share out the elements of a row."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.block import scan_warps
from ...device.build import opaque
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...device.warp import scan_of
from ...kernels.elements import place_of
from ...runtime import jit
from .law import Law, law_of


class Strips:
    """What lanes do with their part of a row: ``steps`` accesses of ``vector`` elements, each access beside that of the next lane of a warp.

    Positions count in the scan's order, ``reverse`` from the row's end. ``peeled`` rows begin inside of an access and end inside of another, whose
    other elements are left alone. ``fetch`` fills three arrays with what the rule makes of the elements, ``fold`` gives the fold of the group's
    part and writes each lane's states before its accesses, less those of other groups, and ``give`` writes results.
    """

    def __init__(self, law: Law, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, result: str) -> None:
        self.size, self.strip = steps * vector, min(lanes, 32) * vector
        self._law, self._vector, self._lanes, self._steps = law, vector, min(lanes, 32), steps
        self._reverse, self._peeled, self._result = reverse, peeled, result

        @jit.device
        def place(position: Any, extent: Any, run: Any) -> Any:
            """Where a run of elements begins in memory, counted from the row's first element."""
            return extent - run - position if reverse else position

        self._place = place
        self.fetch, self.fold, self.give = self._fetch(), self._fold(), self._give()

    def _fetch(self) -> Any:
        law, vector, steps, strip, place = self._law, self._vector, self._steps, self.strip, self._place
        element, widen, prepare, wide, size, load = law.element, law.widen, law.prepare, law.wide, self.size, LOAD_STREAM[self._vector]
        reads, items, near, reverse, peeled = len(law.rule.reads), law.rule.items, law.rule.near, self._reverse, self._peeled
        sizes = tuple(size if k < reads else 1 for k in range(3))
        size_a, size_b, size_c, size_near = *sizes, steps if near else 1

        @jit.device
        def read(array: Any, base: Any, gap: Any, start: Any, extent: Any, spare: Any, raw: Any) -> None:
            for s in range(steps):
                at = start + s * strip
                whole = (at >= 0) & (at + vector <= extent)
                load(array, base + place(at if whole else spare, extent, vector) * gap, raw, s * vector)
            if peeled:
                for s in range(steps):
                    at = start + s * strip
                    if ((at < 0) & (at + vector > 0)) | ((at < extent) & (at + vector > extent)):
                        for v in range(vector):
                            if (at + v >= 0) & (at + v < extent):
                                raw[s * vector + (vector - 1 - v if reverse else v)] = array[base + place(at + v, extent, 1) * gap]

        @jit.device
        def fetch(arrays: Any, bases: Any, gaps: Any, start: Any, extent: Any, spare: Any, initial: Any, made: Any) -> None:
            raw_a = cuda.local.array(size_a, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            beside = cuda.local.array(size_near, element)
            read(arrays[0], bases[0], gaps[0], start, extent, spare, raw_a)
            if reads > 1:
                read(arrays[1], bases[1], gaps[1], start, extent, spare, raw_b)
            if reads > 2:
                read(arrays[2], bases[2], gaps[2], start, extent, spare, raw_c)
            if near != 0:
                for s in range(steps):
                    at = start + s * strip + (vector if near > 0 else -1)
                    inside = (at >= 0) & (at < extent)
                    beside[s] = arrays[2][bases[2] + place(at if inside else spare, extent, 1) * gaps[2]]
            for s in range(steps):
                for v in range(vector):
                    k = s * vector + (vector - 1 - v if reverse else v)
                    a = widen(raw_a[k])
                    b = widen(raw_b[k]) if reads > 1 else a
                    c = widen(raw_c[k]) if reads > 2 else a
                    other = c
                    if near > 0:
                        following = k + (-1 if reverse else 1)
                        other = widen(beside[s]) if v == vector - 1 else widen(raw_c[following if v < vector - 1 else k])
                        if start + s * strip + v + 1 >= extent:
                            other = wide(initial)
                    if near < 0:
                        preceding = k - (-1 if reverse else 1)
                        other = widen(beside[s]) if v == 0 else widen(raw_c[preceding if v > 0 else k])
                        if start + s * strip + v <= 0:
                            other = c
                    p, q, r = prepare(a, b, c, other)
                    at = s * vector + v
                    made[0][at] = p
                    if items > 1:
                        made[1][at] = q
                    if items > 2:
                        made[2][at] = r

        return fetch

    def _taken(self) -> Any:
        """``lift(made, at, position)``: the state of an element."""
        lift, items = self._law.lift, self._law.rule.items
        return jit.device(lambda made, at, position: lift(made[0][at], made[1][at] if items > 1 else made[0][at], position))

    def _fold(self) -> Any:
        law, vector, steps, strip, lanes, peeled = self._law, self._vector, self._steps, self.strip, self._lanes, self._peeled
        states, put, get, lifted = law.states, law.put, law.get, self._taken()
        identity, combine, of_lane, of_lower, over_lanes = states.identity, states.combine, states.of_lane, states.of_lower, scan_of(states, lanes)

        @jit.device
        def fold(made: Any, start: Any, extent: Any, lane: Any, before: Any) -> Any:
            for s in range(steps):
                total = identity()
                for v in range(vector):
                    position = start + s * strip + v
                    if position < extent and (position >= 0 or not peeled):
                        total = combine(total, lifted(made, s * vector + v, position))
                put(before, s, total)
            ahead = identity()
            for s in range(steps):
                through = over_lanes(get(before, s))
                lower = of_lower(through, int32(1))
                put(before, s, combine(ahead, lower) if lane > 0 else ahead)
                ahead = combine(ahead, of_lane(through, (int32(cuda.laneid) & -lanes) + lanes - 1))
            return ahead

        return fold

    def _write(self, run: int) -> Any:
        """``write(array, base, gap, at, extent, values, s)``: an access, in stores of ``run`` elements; of one across an end of the row its part."""
        vector, reverse, peeled, place, store = self._vector, self._reverse, self._peeled, self._place, STORE_STREAM[run]

        @jit.device
        def write(array: Any, base: Any, gap: Any, at: Any, extent: Any, values: Any, s: Any) -> None:
            if (at >= 0) & (at + vector <= extent):
                first = base + place(at, extent, vector) * gap
                for k in range(0, vector, run):
                    store(array, first + k, values, s * vector + k)
            elif peeled:
                for v in range(vector):
                    if (at + v >= 0) & (at + v < extent):
                        array[base + place(at + v, extent, 1) * gap] = values[s * vector + (vector - 1 - v if reverse else v)]

        return write

    def _give(self) -> Any:
        if self._law.rule.scatters:
            return self._give_scattered()
        law, vector, steps, strip, reverse, peeled = self._law, self._vector, self._steps, self.strip, self._reverse, self._peeled
        combine, get, lifted, emit, narrow = law.states.combine, law.get, self._taken(), law.emit, law.narrow
        element, size, items, placed, exclusive = law.element, self.size, law.rule.items, self._result != "", law.exclusive
        result = jit.SCALARS[self._result] if placed else element
        size_places, write = size if placed else 1, self._write(vector)
        write_places = self._write(vector // max(1, vector * result.bitwidth // 128)) if placed else write

        @jit.device
        def give(y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, made: Any, start: Any, extent: Any, own: Any, before: Any) -> None:
            values = cuda.local.array(size, element)
            places = cuda.local.array(size_places, result)
            for s in range(steps):
                state = combine(own, get(before, s))
                for v in range(vector):
                    at, k, position = s * vector + v, s * vector + (vector - 1 - v if reverse else v), start + s * strip + v
                    after = combine(state, lifted(made, at, position))
                    values[k] = narrow(emit(state, after, made[0][at], made[2][at] if items > 2 else made[0][at]))
                    if placed:
                        winner = state[1] if exclusive else after[1]
                        places[k] = result(extent - 1 - winner if reverse and winner >= 0 else max(winner, -1))
                    if not peeled or position >= 0:
                        state = after
                write(y, to_y, y_gap, start + s * strip, extent, values, s)
                if placed:
                    write_places(z, to_z, z_gap, start + s * strip, extent, places, s)

        return give

    def _give_scattered(self) -> Any:
        """Zeros, but for winners, each of which gets what is emitted where the next one takes over or the row ends."""
        law, vector, steps, strip, reverse, peeled = self._law, self._vector, self._steps, self.strip, self._reverse, self._peeled
        combine, get, lifted, emit, narrow, place = law.states.combine, law.get, self._taken(), law.emit, law.narrow, self._place
        element, wide, store = law.element, law.wide, STORE_STREAM[vector]

        @jit.device
        def give(y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, made: Any, start: Any, extent: Any, own: Any, before: Any) -> None:
            zeros = cuda.local.array(vector, element)
            for v in range(vector):
                zeros[v] = narrow(wide(0))
            for s in range(steps):
                state, winners = combine(own, get(before, s)), int32(0)
                for v in range(vector):
                    at, position = s * vector + v, start + s * strip + v
                    if (position >= 0) & (position < extent):
                        after = combine(state, lifted(made, at, position))
                        if after[1] == position:
                            winners |= int32(1 << v)
                            if state[1] >= 0:
                                y[to_y + place(state[1], extent, 1) * y_gap] = narrow(emit(state, after, made[0][at], made[0][at]))
                        if position == extent - 1 and after[1] >= 0:
                            y[to_y + place(after[1], extent, 1) * y_gap] = narrow(after[2])
                        state = after
                first = start + s * strip
                if winners == 0 and first >= 0 and first + vector <= extent:
                    store(y, to_y + place(first, extent, vector) * y_gap, zeros, 0)
                else:
                    for v in range(vector):
                        if (first + v >= 0) & (first + v < extent) & (winners >> v & 1 == 0):
                            y[to_y + place(first + v, extent, 1) * y_gap] = zeros[0]

        return give


@functools.cache
def strips_of(law: Law, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, result: str) -> Strips:
    """The one :class:`Strips` for these."""
    return Strips(law, vector, lanes, steps, reverse, peeled, result)


@jit.kernel
def scan_rows(
    *, rule: str, value: str, result: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool, peeled: bool,
    place: str, kept: int,
) -> Any:  # fmt: skip
    """``y[o, r] = emit(initial ⊕ lift(x[o, 0]) ⊕ … ⊕ lift(x[o, r]))``; a, b, c are what the rule reads, z takes the places of winners.

    A group of ``lanes`` lanes, which is a block where there are more than 32, walks its row in tiles of ``steps`` accesses a lane. An access is
    folded in registers, the totals of the lanes of a warp are scanned by shuffles, the strips of a warp one after the other, and warps through shared
    memory; the tiles follow each other with a carry. The order is fixed by the geometry. Bytes: every operand once.
    """
    law = law_of(rule, value, exclusive, place)
    strips = strips_of(law, vector, lanes, steps, reverse, peeled, result)
    fetch, fold, give, begin, states, wide, size = strips.fetch, strips.fold, strips.give, law.begin, law.states, law.wide, strips.size
    combine, group_lanes, groups, whole_block = states.combine, min(lanes, 32), threads // lanes, lanes > 32
    over_warps, row_of, gapless = scan_warps(states, threads), place_of(kept), vector > 1
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = law.sizes(steps), law.kinds
    size_q, size_r, tile = size if law.rule.items > 1 else 1, size if law.rule.items > 2 else 1, lanes * size

    def scan_rows(
        a: Any, b: Any, c: Any, y: Any, z: Any, rows: Any, extent: Any, initial: Any, origin: Any, skew: Any, kept_shape: Any,
        a_rows: Any, b_rows: Any, c_rows: Any, y_rows: Any, z_rows: Any, gaps: Any,
    ) -> None:  # fmt: skip
        made = (cuda.local.array(size, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        before = (
            cuda.local.array(size_0, kind_0), cuda.local.array(size_1, kind_1), cuda.local.array(size_2, kind_2), cuda.local.array(size_3, kind_3),
        )  # fmt: skip
        thread = uint32(cuda.threadIdx.x)
        lane, warp = int32(thread % uint32(group_lanes)), int32(thread % uint32(lanes) // uint32(32))
        row = int64(cuda.blockIdx.x) * groups + int32(thread // uint32(lanes))
        there = row < rows
        row = min(row, int64(rows - 1))
        bases = row_of(row, kept_shape, a_rows), row_of(row, kept_shape, b_rows), row_of(row, kept_shape, c_rows)
        to_y, to_z = row_of(row, kept_shape, y_rows), row_of(row, kept_shape, z_rows)
        steps_apart = (int64(1), int64(1), int64(1)) if gapless else (gaps[0], gaps[1], gaps[2])
        y_gap, z_gap = (int64(1), int64(1)) if gapless else (gaps[3], gaps[4])
        carry, first, spare, end = begin(initial, origin), int64(0), int64(0), int64(extent)
        if peeled:
            edge = skew + (bases[0] + extent if reverse else bases[0])
            first = -((-edge if reverse else edge) & (vector - 1))
            spare = first + vector if first < 0 else first
        while first < end:
            start = first + warp * size * group_lanes + lane * vector
            fetch((a, b, c), bases, steps_apart, start, end, spare, initial, made)
            ahead = fold(made, start, end, lane, before)
            own, ended = carry, combine(carry, ahead)
            if whole_block:
                lower, total = over_warps(lane == 0, ahead)
                own, ended = combine(carry, lower), combine(carry, total)
            if there:
                give(y, z, to_y, to_z, y_gap, z_gap, made, start, end, own, before)
            carry = ended
            first = opaque(first + tile)

    return scan_rows, lambda rows: (-(-rows // groups), threads, 0)
