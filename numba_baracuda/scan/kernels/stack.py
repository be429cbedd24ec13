"""What a lane does with its places of a few columns, where x is not contiguous along the scanned axis."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import LOAD, LOAD_STREAM, STORE_STREAM
from ...runtime import jit
from .law import Law


class Stack:
    """What a lane does with ``steps`` neighbouring places of ``vector`` columns; element v of place s is item s · vector + v.

    ``fetch`` fills three arrays with what the rule makes of the elements, ``fold`` gives the fold of one column's, and ``give`` writes results and
    leaves the states behind the places in ``before``. Elements that are read ``again`` soon are kept in L1.
    """

    def __init__(self, law: Law, vector: int, steps: int, reverse: bool, index: str, again: bool) -> None:
        self.size = steps * vector
        self._law, self._vector, self._steps, self._reverse, self._index = law, vector, steps, reverse, index
        self._load = (LOAD if again else LOAD_STREAM)[vector]
        self._place = jit.device(lambda position, extent: extent - 1 - position if reverse else position)
        self.fetch, self.fold, self.give = self._fetch(), self._fold(), self._give()

    def _fetch(self) -> Any:
        law, vector, steps, place, reverse = self._law, self._vector, self._steps, self._place, self._reverse
        element, widen, note, wide, size, load = law.element, law.widen, law.note, law.wide, self.size, self._load
        reads, near = len(law.rule.reads), law.rule.near
        size_a, size_b, size_c = (size if k < reads else 1 for k in range(3))
        size_near = vector if near else 1

        @jit.device
        def read(array: Any, base: Any, gap: Any, start: Any, extent: Any, raw: Any) -> None:
            there, at = int32(min(extent - start, int64(steps))), base + place(min(start, extent - 1), extent) * gap
            onwards = -gap if reverse else gap
            for s in range(steps):
                load(array, at, raw, s * vector)
                at += onwards if s + 1 < there else int64(0)

        @jit.device
        def fetch(arrays: Any, bases: Any, gaps: Any, start: Any, extent: Any, initial: Any, made: Any) -> None:
            raw_a = cuda.local.array(size_a, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            beside = cuda.local.array(size_near, element)
            read(arrays[0], bases[0], gaps[0], start, extent, raw_a)
            if reads > 1:
                read(arrays[1], bases[1], gaps[1], start, extent, raw_b)
            if reads > 2:
                read(arrays[2], bases[2], gaps[2], start, extent, raw_c)
            if near != 0:
                at = min(start + steps, extent - 1) if near > 0 else max(min(start, extent) - 1, int64(0))
                load(arrays[2], bases[2] + place(at, extent) * gaps[2], beside, 0)
            for s in range(steps):
                for v in range(vector):
                    k = s * vector + v
                    a = widen(raw_a[k])
                    b = widen(raw_b[k]) if reads > 1 else a
                    c = widen(raw_c[k]) if reads > 2 else a
                    other = c
                    if near > 0:
                        other = widen(beside[v]) if s == steps - 1 else widen(raw_c[k + vector if s < steps - 1 else k])
                        if start + s + 1 >= extent:
                            other = wide(initial)
                    if near < 0:
                        other = widen(beside[v]) if s == 0 else widen(raw_c[k - vector if s > 0 else k])
                        if start + s <= 0:
                            other = c
                    note(made, k, a, b, c, other)

        return fetch

    def _fold(self) -> Any:
        law, vector, steps = self._law, self._vector, self._steps
        identity, combine, lift = law.states.identity, law.states.combine, law.lift

        @jit.device
        def fold(made: Any, v: Any, start: Any, extent: Any) -> Any:
            total = identity()
            for s in range(steps):
                if start + s < extent:
                    total = combine(total, lift(made, s * vector + v, start + s))
            return total

        return fold

    def _give(self) -> Any:
        if self._law.rule.scatters:
            return self._give_scattered()
        law, vector, steps, reverse, place = self._law, self._vector, self._steps, self._reverse, self._place
        combine, get, put, lift, emit, narrow = law.states.combine, law.get, law.put, law.lift, law.emit, law.narrow
        result, size, items, placed = law.result, self.size, law.rule.items, self._index != ""
        index = jit.SCALARS[self._index] if placed else result
        reported, run, run_of_places = law.reported(reverse, index), min(vector, 128 // result.bitwidth), min(vector, 128 // index.bitwidth)
        size_places, store, store_places = size if placed else 1, STORE_STREAM[run], STORE_STREAM[run_of_places]

        @jit.device
        def give(y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, made: Any, start: Any, extent: Any, before: Any) -> None:
            values = cuda.local.array(size, result)
            places = cuda.local.array(size_places, index)
            for v in range(vector):
                state = get(before, v)
                for s in range(steps):
                    k = s * vector + v
                    position = start + s
                    after = combine(state, lift(made, k, position))
                    values[k] = narrow(emit(state, after, made[0][k], made[2][k] if items > 2 else made[0][k], position))
                    if placed:
                        places[k] = reported(state, after, extent)
                    state = after
                put(before, v, state)
            there, at, at_z = int32(min(extent - start, int64(steps))), to_y + place(start, extent) * y_gap, to_z + place(start, extent) * z_gap
            for s in range(steps):
                if s < there:
                    for k in range(0, vector, run):
                        store(y, at + k, values, s * vector + k)
                    if placed:
                        for k in range(0, vector, run_of_places):
                            store_places(z, at_z + k, places, s * vector + k)
                at += -y_gap if reverse else y_gap
                at_z += -z_gap if reverse else z_gap

        return give

    def _give_scattered(self) -> Any:
        """Zeros, but for winners, each of which gets what is emitted where the next one takes over or the column ends."""
        law, vector, steps, place = self._law, self._vector, self._steps, self._place
        combine, get, put, lift, emit, narrow = law.states.combine, law.get, law.put, law.lift, law.emit, law.narrow
        element, wide, store = law.element, law.wide, STORE_STREAM[vector]

        @jit.device
        def give(y: Any, z: Any, to_y: Any, to_z: Any, y_gap: Any, z_gap: Any, made: Any, start: Any, extent: Any, before: Any) -> None:
            zeros = cuda.local.array(vector, element)
            winners = cuda.local.array(steps, int32)
            for v in range(vector):
                zeros[v] = narrow(wide(0))
            for s in range(steps):
                winners[s] = int32(0)
            for v in range(vector):
                state = get(before, v)
                for s in range(steps):
                    k, position = s * vector + v, start + s
                    if position < extent:
                        after = combine(state, lift(made, k, position))
                        if after[1] == position:
                            winners[s] |= int32(1 << v)
                            if state[1] >= 0:
                                y[to_y + v + place(state[1], extent) * y_gap] = narrow(emit(state, after, made[0][k], made[0][k], position))
                        if position == extent - 1 and after[1] >= 0:
                            y[to_y + v + place(after[1], extent) * y_gap] = narrow(after[2])
                        state = after
                put(before, v, state)
            for s in range(steps):
                if start + s < extent:
                    at = to_y + place(start + s, extent) * y_gap
                    if winners[s] == 0:
                        store(y, at, zeros, 0)
                    else:
                        for v in range(vector):
                            if winners[s] >> v & 1 == 0:
                                y[at + v] = zeros[0]

        return give


@functools.cache
def stack_of(law: Law, vector: int, steps: int, reverse: bool, index: str, again: bool) -> Stack:
    """The one :class:`Stack` for these."""
    return Stack(law, vector, steps, reverse, index, again)
