"""What a lane does with its part of a row, whose elements follow one another."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import STORE_STREAM
from ...device.warp import scan_of
from ...runtime import jit
from ..tiling import LINE_BYTES
from .access import accesses_of
from .law import Law
from .making import Making


class Part:
    """``size`` elements of each of ``lanes`` lanes of a warp, in a part of the row that begins at ``first``; lane l's at first + l · size.

    ``read`` brings what the rule reads to ``shared`` memory, where it lies one operand after the other, and gives the element beside the lane's part,
    if the rule wants it. ``fold`` gives the fold of the lanes below, and of all lanes; ``give`` writes results, by way of the first operand's place
    or, where they are of another type, of one behind all operands, and places of winners by way of one behind that. ``results`` and ``places`` are
    the same memory as arrays of their types. All lanes of the warp call them.
    """

    def __init__(self, law: Law, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare: bool, index: str) -> None:
        reads = len(law.rule.reads)
        self.size, self._law, self._vector, self._lanes, self._steps = steps * vector, law, vector, min(lanes, 32), steps
        self._reverse, self._peeled, self._rare, self._placed, self._index = reverse, peeled, rare, index != "", jit.SCALARS[index or "i32"]
        self._sizes = [self.size if k < reads else 1 for k in range(3)]
        held = threads * self.size
        self._accesses = [accesses_of(law.element, vector, self._lanes, steps, reverse, peeled, rare, k * held) for k in range(3)]
        self._apart_results = law.result != law.element
        read, given = reads * law.element.bitwidth, self._apart_results * law.result.bitwidth
        #: of shared memory for a block
        self.nbytes = (read + given + self._placed * self._index.bitwidth) * held // 8
        self._results_at, self._places_at = self._apart_results * read * held // law.result.bitwidth, (read + given) * held // self._index.bitwidth
        #: whether parts at a row's edge go another way, and in how many accesses of the others a lane has places before the row
        self._apart = peeled and rare
        self._masked = int(peeled and not rare)
        #: whether rows are so long that in most accesses of a warp no winner changes
        self._seldom = lanes > 32 or rare
        self._room = jit.device(lambda shared, results: results) if self._apart_results else jit.device(lambda shared, results: shared)
        self._making = Making(law, vector, steps, reverse, self._accesses)
        self.edge, self.read, self.fold, self.give = self._edge(), self._read(), self._fold(), self._give()

    def _edge(self) -> Any:
        """``edge(base, extent, skew)`` of a peeled row: places of its first access or line before it, and where the first whole one begins."""
        reverse, low_bits = self._reverse, (LINE_BYTES * 8 // self._law.element.bitwidth if self._rare else self._vector) - 1

        @jit.device
        def edge(base: Any, extent: Any, skew: Any) -> tuple[Any, Any]:
            begin = skew + (base + extent if reverse else base)
            skipped = (-begin if reverse else begin) & low_bits
            return skipped, (low_bits + 1 - skipped) & low_bits

        return edge

    def _read(self) -> Any:
        law, size, accesses = self._law, self.size, self._accesses
        element, widen, wide, reads, near = law.element, law.widen, law.wide, len(law.rule.reads), law.rule.near
        (size_a, size_b, size_c), (keep_a, keep_b, keep_c), (bring_a, bring_b, bring_c) = (
            self._sizes, [each.keep for each in accesses], [each.bring for each in accesses],
        )  # fmt: skip
        load, bounds, place, get_other = accesses[0].load, accesses[0].bounds, accesses[0].place, accesses[2].get_other
        lanes, rare, keeps = self._lanes, self._rare, self._making.keeps

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
                at = first + (lanes * size if near > 0 else -1)
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
            if near != 0:
                at = int32(lane * size + (size if near > 0 else -1))
                if (at >= 0) & (at < lanes * size):
                    beside = widen(get_other(shared, lane, at))
                if keeps:
                    cuda.syncwarp()
            return beside

        return read

    def _fold(self) -> Any:
        states, lanes = self._law.states, self._lanes
        of_lane, of_lower, group_reduce = states.of_lane, states.of_lower, scan_of(states, lanes)
        usual, at_edge, apart, bounds = self._fold_own(self._masked), self._fold_own(self._steps), self._apart, self._accesses[0].bounds

        @jit.device
        def fold(shared: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any) -> Any:
            _, _, whole = bounds(first, extent)
            if apart and not whole:
                total = at_edge(shared, first, lane, extent, initial, beside)
            else:
                total = usual(shared, first, lane, extent, initial, beside)
            through = group_reduce(total)
            return of_lower(through, int32(1)), of_lane(through, (int32(cuda.laneid) & -lanes) + lanes - 1)

        return fold

    def _in_row(self, masked: int) -> Any:
        """``in_row(s, k, ends)``: whether place k of a lane's part, of access s, is not before the row, where only those of the first may be."""
        return jit.device(lambda s, k, ends: True if not masked or s >= masked else k >= ends[0])

    def _fold_own(self, masked: int) -> Any:
        """The fold of a lane's own part, of whose first ``masked`` accesses some places may lie before the row.

        What lies behind the row's end is folded in too: nothing comes after it.
        """
        law, size, vector, steps = self._law, self.size, self._vector, self._steps
        wide, lift, make, ends, (made_0, made_1, made_2) = law.wide, law.lift, self._making.make, self._making.ends, self._making.sizes
        identity, combine, in_row = law.states.identity, law.states.combine, self._in_row(masked)

        @jit.device
        def fold_own(shared: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any) -> Any:
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            near = cuda.local.array(1, wide)
            start, total, near[0] = first + lane * size, identity(), beside
            own = ends(start, extent)
            for s in range(steps):
                make(shared, lane, s, own, initial, near, made)
                for v in range(vector):
                    k, position = int32(s * vector + v), start + s * vector + v
                    if s == 0 and v == 0:
                        total = lift(made, v, position)
                        if not in_row(s, k, own):
                            total = identity()
                    elif in_row(s, k, own):
                        total = combine(total, lift(made, v, position))
            return total

        return fold_own

    def _give(self) -> Any:
        if self._law.rule.scatters:
            return self._give_scattered()
        vector, lanes, steps, placed, rare = self._vector, self._lanes, self._steps, self._placed, self._rare
        of_results = accesses_of(self._law.result, vector, lanes, steps, self._reverse, self._peeled, rare, self._results_at)
        of_places = accesses_of(self._index, vector, lanes, steps, self._reverse, self._peeled, rare, self._places_at)
        puts = of_results.put, of_places.put
        usual, at_edge, apart = self._give_own(self._masked, *puts), self._give_own(steps, *puts), self._apart
        write, write_places, bounds, room = of_results.write, of_places.write, self._accesses[0].bounds, self._room

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any,
            state: Any, shared: Any, results: Any, places: Any,
        ) -> None:  # fmt: skip
            _, _, whole = bounds(first, extent)
            if apart and not whole:
                at_edge(first, lane, extent, initial, beside, state, shared, results, places)
            else:
                usual(first, lane, extent, initial, beside, state, shared, results, places)
            cuda.syncwarp()
            if there:
                write(y, to_y, y_gap, first, lane, extent, room(shared, results))
                if placed:
                    write_places(z, to_z, z_gap, first, lane, extent, places)
            # no barrier: what a lane reads here is what it alone overwrites with its accesses to the next tile

        return give

    def _give_own(self, masked: int, put: Any, put_places: Any) -> Any:
        """The results of a lane's own part, put in its place, of whose first ``masked`` accesses some places may lie before the row."""
        law, size, vector, steps, reverse = self._law, self.size, self._vector, self._steps, self._reverse
        again, ends, lift, room, (made_0, made_1, made_2) = self._making.again, self._making.ends, law.lift, self._room, self._making.sizes
        combine, emit, narrow, result, wide = law.states.combine, law.emit, law.narrow, law.result, law.wide
        items, placed, index = law.rule.items, self._placed, self._index
        reported, size_places, in_row = law.reported(reverse, index), vector if placed else 1, self._in_row(masked)

        @jit.device
        def give_own(
            first: Any, lane: Any, extent: Any, initial: Any, beside: Any, state: Any, shared: Any, results: Any, places: Any
        ) -> None:  # fmt: skip
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            values, winners, near = cuda.local.array(vector, result), cuda.local.array(size_places, index), cuda.local.array(1, wide)
            start, near[0] = first + lane * size, beside
            own = ends(start, extent)
            for s in range(steps):
                again(shared, lane, s, own, initial, near, made)
                for v in range(vector):
                    k, position = vector - 1 - v if reverse else v, start + s * vector + v
                    after = combine(state, lift(made, v, position))
                    values[k] = narrow(emit(state, after, made[0][v], made[2][v] if items > 2 else made[0][v], position))
                    if placed:
                        winners[k] = reported(state, after, extent)
                    if in_row(s, int32(s * vector + v), own):
                        state = after
                put(room(shared, results), lane, s, values)
                if placed:
                    put_places(places, lane, s, winners)

        return give_own

    def _give_scattered(self) -> Any:
        """Zeros, but for winners, each of which gets what is emitted where the next one takes over or the row ends.

        Where winners ``seldom`` change, an access is gone through element by element only if one does, or if the row begins or ends there.
        """
        law, size, vector, lanes, steps, place = self._law, self.size, self._vector, self._lanes, self._steps, self._accesses[0].place
        bounds, combine, lift, making = self._accesses[0].bounds, law.states.combine, law.lift, self._making
        emit, narrow, element, wide, store, strip = law.emit, law.narrow, law.element, law.wide, STORE_STREAM[vector], self._lanes * vector
        make, ends, (made_0, made_1, made_2) = making.make, making.ends, making.sizes
        toward, marks = self._accesses[0].toward, int32 if size <= 32 else int64
        in_row, seldom = self._in_row(steps if self._apart else self._masked), self._seldom

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, first: Any, lane: Any, extent: Any, initial: Any, beside: Any,
            state: Any, shared: Any, results: Any, places: Any,
        ) -> None:  # fmt: skip
            made = (cuda.local.array(made_0, wide), cuda.local.array(made_1, wide), cuda.local.array(made_2, wide))
            zeros = cuda.local.array(vector, element)
            near = cuda.local.array(1, wide)
            for v in range(vector):
                zeros[v] = narrow(wide(0))
            start, winners = first + lane * size, marks(0)
            own = ends(start, extent)
            for s in range(steps):
                make(shared, lane, s, own, initial, near, made)
                at, after = int32(s * vector), state
                if seldom:
                    for v in range(vector):
                        after = combine(after, lift(made, v, start + at + v))
                if not seldom or (after[1] != state[1]) | (own[0] > at) | (own[1] <= at + vector):
                    after = state
                    for v in range(vector):
                        k = int32(at + v)
                        one = lift(made, v, start + k)
                        before, after = after, combine(after, one)
                        won = (after[1] == one[1]) & (k < own[1]) & in_row(s, k, own)
                        if won | (k == own[1] - 1):
                            if won:
                                winners |= marks(marks(1) << k)
                            if there and won and before[1] >= 0:
                                y[to_y + place(before[1], extent, 1) * y_gap] = narrow(emit(before, after, made[0][v], made[0][v], start + k))
                            if there and k == own[1] - 1 and after[1] >= 0:
                                y[to_y + place(after[1], extent, 1) * y_gap] = narrow(after[2])
                        if not in_row(s, k, own):
                            after = before
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
def part_of(law: Law, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare: bool, index: str) -> Part:
    """The one :class:`Part` for these."""
    return Part(law, vector, lanes, steps, threads, reverse, peeled, rare, index)
