"""What a lane does with its part of a row, whose elements follow one another."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...device.vector import STORE_STREAM
from ...device.warp import scan_of
from ...runtime import jit
from .access import accesses_of
from .law import Law


class Part:
    """``size`` elements of each of ``lanes`` lanes of a warp, in a part of the row that begins at ``first``; lane l's at first + l · size.

    ``fetch`` fills three arrays with what the rule makes of them, ``fold`` gives the fold of the lane below and all below that, and of all lanes,
    and ``give`` writes results. All lanes of the warp call them; ``shared`` holds ``size`` elements for each thread of the block, ``shared_places``
    as many places.
    """

    def __init__(self, law: Law, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, result: str) -> None:
        self.size, self._law, self._vector, self._lanes, self._steps = steps * vector, law, vector, min(lanes, 32), steps
        self._reverse, self._peeled, self._result = reverse, peeled, jit.SCALARS[result] if result else None
        self._accesses = accesses_of(law.element, vector, self._lanes, steps, reverse, peeled)
        lift, items = law.lift, law.rule.items
        #: the state of an element
        self._lifted = jit.device(lambda made, k, position: lift(made[0][k], made[1][k] if items > 1 else made[0][k], position))
        #: where element k of a lane's part is in registers, as memory has it
        self._memory = jit.device(lambda k: k // vector * vector + (vector - 1 - k % vector) if reverse else k)
        self.fetch, self.fold, self.give = self._fetch(), self._fold(), self._give()

    def _fetch(self) -> Any:
        law, size, accesses, memory = self._law, self.size, self._accesses, self._memory
        element, widen, prepare, wide, read, turn, place = (
            law.element, law.widen, law.prepare, law.wide, accesses.read, accesses.turn_in, accesses.place,
        )  # fmt: skip
        reads, items, near = len(law.rule.reads), law.rule.items, law.rule.near
        size_b, size_c = size if reads > 1 else 1, size if reads > 2 else 1

        @jit.device
        def fetch(arrays: Any, bases: Any, gaps: Any, first: Any, lane: Any, extent: Any, spare: Any, initial: Any, shared: Any, made: Any) -> None:
            raw_a = cuda.local.array(size, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            start, beside = first + lane * size, wide(0)
            read(arrays[0], bases[0], gaps[0], first, lane, extent, spare, raw_a)
            if reads > 1:
                read(arrays[1], bases[1], gaps[1], first, lane, extent, spare, raw_b)
            if reads > 2:
                read(arrays[2], bases[2], gaps[2], first, lane, extent, spare, raw_c)
            if near != 0:
                at = start + size if near > 0 else start - 1
                beside = widen(arrays[2][bases[2] + place(at if (at >= 0) & (at < extent) else spare, extent, 1) * gaps[2]])
            turn(raw_a, shared, lane)
            if reads > 1:
                turn(raw_b, shared, lane)
            if reads > 2:
                turn(raw_c, shared, lane)
            for k in range(size):
                a = widen(raw_a[memory(k)])
                b = widen(raw_b[memory(k)]) if reads > 1 else a
                c = widen(raw_c[memory(k)]) if reads > 2 else a
                other = c
                if near > 0:
                    other = widen(raw_c[memory(k + 1)]) if k < size - 1 else beside
                    if start + k + 1 >= extent:
                        other = wide(initial)
                if near < 0:
                    other = widen(raw_c[memory(k - 1)]) if k > 0 else beside
                    if start + k <= 0:
                        other = c
                p, q, r = prepare(a, b, c, other)
                made[0][k] = p
                if items > 1:
                    made[1][k] = q
                if items > 2:
                    made[2][k] = r

        return fetch

    def _fold(self) -> Any:
        law, size, vector, lanes, peeled, lifted = self._law, self.size, self._vector, self._lanes, self._peeled, self._lifted
        states = law.states
        identity, combine, of_lane, of_lower, over_lanes = states.identity, states.combine, states.of_lane, states.of_lower, scan_of(states, lanes)

        @jit.device
        def fold(made: Any, first: Any, lane: Any) -> Any:
            """What lies behind the row's end is folded in too: nothing comes after it."""
            start = first + lane * size
            total = lifted(made, 0, start)
            if peeled and start < 0:
                total = identity()
            for k in range(1, size):
                if not (peeled and k < vector) or start + k >= 0:
                    total = combine(total, lifted(made, k, start + k))
            through = over_lanes(total)
            return of_lower(through, int32(1)), of_lane(through, (int32(cuda.laneid) & -lanes) + lanes - 1)

        return fold

    def _give(self) -> Any:
        if self._law.rule.scatters:
            return self._give_scattered()
        law, size, vector, lanes, reverse, peeled = self._law, self.size, self._vector, self._lanes, self._reverse, self._peeled
        combine, lifted, emit, narrow, memory = law.states.combine, self._lifted, law.emit, law.narrow, self._memory
        element, items, exclusive, placed = law.element, law.rule.items, law.exclusive, self._result is not None
        result: Any = self._result if placed else element
        accesses, of_places = self._accesses, accesses_of(result, vector, lanes, self._steps, reverse, peeled)
        turn, write, turn_places, write_places, size_places = (
            accesses.turn_out, accesses.write, of_places.turn_out, of_places.write, size if placed else 1,
        )  # fmt: skip

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, made: Any, first: Any, lane: Any, extent: Any, state: Any,
            shared: Any, shared_places: Any,
        ) -> None:  # fmt: skip
            values = cuda.local.array(size, element)
            places = cuda.local.array(size_places, result)
            for k in range(size):
                position = first + lane * size + k
                after = combine(state, lifted(made, k, position))
                values[memory(k)] = narrow(emit(state, after, made[0][k], made[2][k] if items > 2 else made[0][k]))
                if placed:
                    winner = state[1] if exclusive else after[1]
                    places[memory(k)] = result(extent - 1 - winner if reverse and winner >= 0 else max(winner, -1))
                if not (peeled and k < vector) or position >= 0:
                    state = after
            turn(values, shared, lane)
            if placed:
                turn_places(places, shared_places, lane)
            if there:
                write(y, to_y, y_gap, first, lane, extent, values)
                if placed:
                    write_places(z, to_z, z_gap, first, lane, extent, places)

        return give

    def _give_scattered(self) -> Any:
        """Zeros, but for winners, each of which gets what is emitted where the next one takes over or the row ends."""
        law, size, vector, lanes, steps, place = self._law, self.size, self._vector, self._lanes, self._steps, self._accesses.place
        combine, lifted, emit, narrow = law.states.combine, self._lifted, law.emit, law.narrow
        element, wide, store, strip = law.element, law.wide, STORE_STREAM[vector], self._lanes * vector

        @jit.device
        def give(
            y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, there: Any, made: Any, first: Any, lane: Any, extent: Any, state: Any,
            shared: Any, shared_places: Any,
        ) -> None:  # fmt: skip
            zeros = cuda.local.array(vector, element)
            for v in range(vector):
                zeros[v] = narrow(wide(0))
            winners = int32(0)
            for k in range(size):
                position = first + lane * size + k
                if (position >= 0) & (position < extent):
                    after = combine(state, lifted(made, k, position))
                    if after[1] == position:
                        winners |= int32(1 << k)
                        if there and state[1] >= 0:
                            y[to_y + place(state[1], extent, 1) * y_gap] = narrow(emit(state, after, made[0][k], made[0][k]))
                    if there and position == extent - 1 and after[1] >= 0:
                        y[to_y + place(after[1], extent, 1) * y_gap] = narrow(after[2])
                    state = after
            for s in range(steps):
                at = s * strip + lane * vector
                found = cuda.shfl_sync(-1, winners, (int32(cuda.laneid) & -lanes) + int32(at) // size) >> (int32(at) % size)
                at += first
                if (found & ((1 << vector) - 1)) == 0 and at >= 0 and at + vector <= extent:
                    if there:
                        store(y, to_y + place(at, extent, vector) * y_gap, zeros, 0)
                elif there:
                    for v in range(vector):
                        if (at + v >= 0) & (at + v < extent) & (found >> v & 1 == 0):
                            y[to_y + place(at + v, extent, 1) * y_gap] = zeros[0]

        return give


@functools.cache
def part_of(law: Law, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, result: str) -> Part:
    """The one :class:`Part` for these."""
    return Part(law, vector, lanes, steps, reverse, peeled, result)
