"""What a lane does with its part of a row, whose elements follow one another."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import STORE_STREAM
from ...device.warp import scan_of
from ...runtime import jit
from .access import accesses_of
from .law import Law


class Part:
    """``size`` elements of each of ``lanes`` lanes of a warp, in a part of the row that begins at ``first``; lane l's at first + l · size.

    ``read`` brings what the rule reads to ``shared`` memory, where it lies one operand after the other, and gives the element beside the lane's part,
    if the rule wants it. ``fold`` gives the fold of the lanes below, and of all lanes; ``give`` writes results, by way of the first operand's place,
    and those of ``places``, the same memory as their type, by way of one behind all. All lanes of the warp call them.
    """

    def __init__(self, law: Law, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare: bool, result: str) -> None:
        reads, items = len(law.rule.reads), law.rule.items
        self.size, self._law, self._vector, self._lanes, self._steps = steps * vector, law, vector, min(lanes, 32), steps
        self._reverse, self._peeled, self._rare, self._placed, self._result = reverse, peeled, rare, result != "", jit.SCALARS[result or "i32"]
        self._sizes = [self.size if k < reads else 1 for k in range(3)]
        self._made = [vector if k < items else 1 for k in range(3)]
        held = threads * self.size
        self._accesses = [accesses_of(law.element, vector, self._lanes, steps, reverse, peeled, rare, k * held) for k in range(3)]
        #: of shared memory for a block
        self.nbytes = (reads * law.element.bitwidth + self._placed * self._result.bitwidth) * held // 8
        self._places_at = reads * held * law.element.bitwidth // self._result.bitwidth
        self._own = self._ends()
        self._make = self._maker()
        self.edge, self.read, self.fold, self.give = self._edge(), self._read(), self._fold(), self._give()

    def _edge(self) -> Any:
        """``edge(base, extent, skew)`` of a peeled row: places of its first access that lie before it, and where its first whole access begins."""
        reverse, low_bits = self._reverse, self._vector - 1

        @jit.device
        def edge(base: Any, extent: Any, skew: Any) -> tuple[Any, Any]:
            begin = skew + (base + extent if reverse else base)
            skipped = (-begin if reverse else begin) & low_bits
            return skipped, (low_bits + 1 - skipped) & low_bits

        return edge

    def _read(self) -> Any:
        law, size, accesses = self._law, self.size, self._accesses
        element, widen, wide, reads, near = law.element, law.widen, law.wide, len(law.rule.reads), law.rule.near
        (size_a, size_b, size_c), (keep_a, keep_b, keep_c) = self._sizes, [each.keep for each in accesses]
        load, bounds, place, (bring_a, bring_b, bring_c), rare = (
            accesses[0].load,
            accesses[0].bounds,
            accesses[0].place,
            [each.bring for each in accesses],
            self._rare,
        )

        @jit.device
        def take(arrays: Any, bases: Any, gaps: Any, first: Any, lane: Any, extent: Any, spare: Any, shared: Any) -> None:
            raw_a = cuda.local.array(size_a, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            load(arrays[0], bases[0], gaps[0], first, lane, extent, spare, raw_a)
            if reads > 1:
                load(arrays[1], bases[1], gaps[1], first, lane, extent, spare, raw_b)
            if reads > 2:
                load(arrays[2], bases[2], gaps[2], first, lane, extent, spare, raw_c)
            keep_a(raw_a, shared, lane)
            if reads > 1:
                keep_b(raw_b, shared, lane)
            if reads > 2:
                keep_c(raw_c, shared, lane)

        @jit.device
        def read(arrays: Any, bases: Any, gaps: Any, first: Any, lane: Any, extent: Any, spare: Any, shared: Any) -> Any:
            beside = wide(0)
            if near != 0:
                at = first + lane * size + (size if near > 0 else -1)
                beside = widen(arrays[2][bases[2] + place(at if (at >= 0) & (at < extent) else spare, extent, 1) * gaps[2]])
            _, _, whole = bounds(first, extent)
            if whole or not rare:
                take(arrays, bases, gaps, first, lane, extent, spare, shared)
            else:
                bring_a(arrays[0], bases[0], gaps[0], first, lane, extent, shared)
                if reads > 1:
                    bring_b(arrays[1], bases[1], gaps[1], first, lane, extent, shared)
                if reads > 2:
                    bring_c(arrays[2], bases[2], gaps[2], first, lane, extent, shared)
            cuda.syncwarp()
            return beside

        return read

    def _ends(self) -> Any:
        """``ends(start, extent)`` of a lane's part: its places before the row, or −1, and those before its end, or one more."""
        most = self.size + 1

        @jit.device
        def ends(start: Any, extent: Any) -> Any:
            return int32(min(max(-start, int64(-1)), int64(most))), int32(max(min(extent - start, int64(most)), int64(-1)))

        return ends

    def _maker(self) -> Any:
        """``make(shared, lane, s, ends, initial, beside, made)``: what the rule makes of access s, in the scan's order."""
        law, vector, steps, reverse, accesses = self._law, self._vector, self._steps, self._reverse, self._accesses
        element, widen, note, wide, reads, near = law.element, law.widen, law.note, law.wide, len(law.rule.reads), law.rule.near
        (get_a, get_b, get_c), get_one = [each.get for each in accesses], accesses[2].get_one
        size_b, size_c = vector if reads > 1 else 1, vector if reads > 2 else 1

        @jit.device
        def make(shared: Any, lane: Any, s: Any, ends: Any, initial: Any, beside: Any, made: Any) -> None:
            raw_a = cuda.local.array(vector, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            get_a(shared, lane, s, raw_a)
            if reads > 1:
                get_b(shared, lane, s, raw_b)
            if reads > 2:
                get_c(shared, lane, s, raw_c)
            for v in range(vector):
                k = vector - 1 - v if reverse else v
                a = widen(raw_a[k])
                b = widen(raw_b[k]) if reads > 1 else a
                c = widen(raw_c[k]) if reads > 2 else a
                other = c
                if near > 0:
                    if v < vector - 1:
                        other = widen(raw_c[k - 1 if reverse else k + 1])
                    else:
                        other = widen(get_one(shared, lane, s + 1, 0)) if s < steps - 1 else beside
                    if s * vector + v + 1 >= ends[1]:
                        other = wide(initial)
                if near < 0:
                    if v > 0:
                        other = widen(raw_c[k + 1 if reverse else k - 1])
                    else:
                        other = widen(get_one(shared, lane, s - 1, vector - 1)) if s > 0 else beside
                    if s * vector + v <= ends[0]:
                        other = c
                note(made, v, a, b, c, other)

        return make

    def _fold(self) -> Any:
        law, size, vector, steps, lanes, peeled = self._law, self.size, self._vector, self._steps, self._lanes, self._peeled
        states, wide, lift, make, ends, (made_0, made_1, made_2) = law.states, law.wide, law.lift, self._make, self._own, self._made
        identity, combine, of_lane, of_lower, over_lanes = states.identity, states.combine, states.of_lane, states.of_lower, scan_of(states, lanes)

        @jit.device
        def fold(shared: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any) -> Any:
            """What lies behind the row's end is folded in too: nothing comes after it."""
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            start, total = first + lane * size, identity()
            own = ends(start, extent)
            for s in range(steps):
                make(shared, lane, s, own, initial, beside, made)
                for v in range(vector):
                    position = start + s * vector + v
                    if s == 0 and v == 0:
                        total = lift(made, v, position)
                        if peeled and own[0] > 0:
                            total = identity()
                    elif not (peeled and s == 0) or v >= own[0]:
                        total = combine(total, lift(made, v, position))
            through = over_lanes(total)
            return of_lower(through, int32(1)), of_lane(through, (int32(cuda.laneid) & -lanes) + lanes - 1)

        return fold

    def _give(self) -> Any:
        if self._law.rule.scatters:
            return self._give_scattered()
        law, size, vector, steps, lanes = self._law, self.size, self._vector, self._steps, self._lanes
        reverse, peeled, make, ends, lift, (made_0, made_1, made_2) = self._reverse, self._peeled, self._make, self._own, law.lift, self._made
        combine, emit, narrow, element, wide = law.states.combine, law.emit, law.narrow, law.element, law.wide
        items, placed = law.rule.items, self._placed
        result = self._result if placed else element
        reported = law.reported(reverse, result)
        of_places, put, write = (
            accesses_of(result, vector, lanes, steps, reverse, peeled, self._rare, self._places_at), self._accesses[0].put, self._accesses[0].write,
        )  # fmt: skip
        put_places, write_places, size_places = of_places.put, of_places.write, vector if placed else 1

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any,
            state: Any, shared: Any, places: Any,
        ) -> None:  # fmt: skip
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            values = cuda.local.array(vector, element)
            winners = cuda.local.array(size_places, result)
            start = first + lane * size
            own = ends(start, extent)
            for s in range(steps):
                make(shared, lane, s, own, initial, beside, made)
                for v in range(vector):
                    k, position = vector - 1 - v if reverse else v, start + s * vector + v
                    after = combine(state, lift(made, v, position))
                    values[k] = narrow(emit(state, after, made[0][v], made[2][v] if items > 2 else made[0][v]))
                    if placed:
                        winners[k] = reported(state, after, extent)
                    if not (peeled and s == 0) or v >= own[0]:
                        state = after
                put(shared, lane, s, values)
                if placed:
                    put_places(places, lane, s, winners)
            cuda.syncwarp()
            if there:
                write(y, to_y, y_gap, first, lane, extent, shared)
                if placed:
                    write_places(z, to_z, z_gap, first, lane, extent, places)
            cuda.syncwarp()

        return give

    def _give_scattered(self) -> Any:
        """Zeros, but for winners, each of which gets what is emitted where the next one takes over or the row ends."""
        law, size, vector, lanes, steps, place = self._law, self.size, self._vector, self._lanes, self._steps, self._accesses[0].place
        bounds, combine, lift, make, (made_0, made_1, made_2) = self._accesses[0].bounds, law.states.combine, law.lift, self._make, self._made
        emit, narrow, element, wide, store, strip = law.emit, law.narrow, law.element, law.wide, STORE_STREAM[vector], self._lanes * vector
        ends, toward, peeled, marks = self._own, self._accesses[0].toward, self._peeled, int32 if size <= 32 else int64

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any,
            state: Any, shared: Any, places: Any,
        ) -> None:  # fmt: skip
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            zeros = cuda.local.array(vector, element)
            for v in range(vector):
                zeros[v] = narrow(wide(0))
            start, winners = first + lane * size, marks(0)
            own = ends(start, extent)
            for s in range(steps):
                make(shared, lane, s, own, initial, beside, made)
                for v in range(vector):
                    k = s * vector + v
                    one = lift(made, v, start + k)
                    after = combine(state, one)
                    won = (after[1] == one[1]) & (k < own[1]) & (not (peeled and s == 0) or v >= own[0])
                    if won | (k == own[1] - 1):
                        if won:
                            winners |= marks(1) << k
                        if there and won and state[1] >= 0:
                            y[to_y + place(state[1], extent, 1) * y_gap] = narrow(emit(state, after, made[0][v], made[0][v]))
                        if there and k == own[1] - 1 and after[1] >= 0:
                            y[to_y + place(after[1], extent, 1) * y_gap] = narrow(after[2])
                    if not (peeled and s == 0) or v >= own[0]:
                        state = after
            cuda.syncwarp()
            low, high, whole = bounds(first, extent)
            if cuda.ballot_sync(-1, (winners != 0) | (not (whole and there))) == 0:
                at = to_y + place(first + lane * vector, extent, vector) * y_gap
                for s in range(steps):
                    store(y, at + toward(s * strip) * y_gap, zeros, 0)
            else:
                for s in range(steps):
                    at = int32(s * strip + lane * vector)
                    found = cuda.shfl_sync(-1, winners, (int32(cuda.laneid) & -lanes) + at // size) >> (at % size)
                    if (found & ((1 << vector) - 1)) == 0 and at >= low and at + vector <= high:
                        if there:
                            store(y, to_y + place(first + at, extent, vector) * y_gap, zeros, 0)
                    elif there:
                        for v in range(vector):
                            if (at + v >= low) & (at + v < high) & (found >> v & 1 == 0):
                                y[to_y + place(first + at + v, extent, 1) * y_gap] = zeros[0]

        return give


@functools.cache
def part_of(law: Law, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare: bool, result: str) -> Part:
    """The one :class:`Part` for these."""
    return Part(law, vector, lanes, steps, threads, reverse, peeled, rare, result)
