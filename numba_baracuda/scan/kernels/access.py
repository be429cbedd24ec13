"""A warp's accesses to its part of a row, and the turn from neighbours in neighbouring lanes to neighbours in one lane."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit


class Accesses:
    """``steps`` accesses of ``vector`` elements of a type by each of ``lanes`` lanes of a warp to the part of a row that begins at ``first``.

    Positions count in the scan's order, ``reverse`` from the row's end; in registers each access is as in memory. ``read`` and ``write`` take
    every lane beside the next; with ``turn_in`` each lane then has ``steps`` accesses that follow one another, and ``turn_out`` is the way back, both
    through shared memory that belongs to the warp: 16-byte words are stored without bank conflicts, word w at w ^ (w / 8 mod steps). ``peeled`` rows
    begin inside of an access and end inside of another, whose other elements are left alone.
    """

    def __init__(self, element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool) -> None:
        strip, line, run = lanes * vector, max(1, 1024 // (vector * element.bitwidth)), min(vector, 128 // element.bitwidth)
        load, store, load_shared, store_shared = LOAD_STREAM[run], STORE_STREAM[run], LOAD[run], STORE[run]

        @jit.device
        def place(position: Any, extent: Any, run: Any) -> Any:
            """Where a run of elements begins in memory, counted from the row's first element."""
            return extent - run - position if reverse else position

        @jit.device
        def read(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, spare: Any, raw: Any) -> None:
            for s in range(steps):
                at = first + s * strip + lane * vector
                whole = (at >= 0) & (at + vector <= extent)
                load(array, base + place(at if whole else spare, extent, vector) * gap, raw, s * vector)
            if peeled:
                for s in range(steps):
                    at = first + s * strip + lane * vector
                    if ((at < 0) & (at + vector > 0)) | ((at < extent) & (at + vector > extent)):
                        for v in range(vector):
                            if (at + v >= 0) & (at + v < extent):
                                raw[s * vector + (vector - 1 - v if reverse else v)] = array[base + place(at + v, extent, 1) * gap]

        @jit.device
        def word(number: Any) -> Any:
            return number ^ (number // line & (steps - 1))

        @jit.device
        def turn(raw: Any, shared: Any, lane: Any, inwards: Any) -> None:
            if steps > 1:
                low = (int32(cuda.threadIdx.x) - lane) * steps
                for s in range(steps):
                    at = word(low + (s * lanes + lane if inwards else lane * steps + s)) * vector
                    for k in range(0, vector, run):
                        store_shared(shared, at + k, raw, s * vector + k)
                cuda.syncwarp()
                for s in range(steps):
                    at = word(low + (lane * steps + s if inwards else s * lanes + lane)) * vector
                    for k in range(0, vector, run):
                        load_shared(shared, at + k, raw, s * vector + k)
                cuda.syncwarp()

        self.place, self.read = place, read
        self.turn_in = jit.device(lambda raw, shared, lane: turn(raw, shared, lane, True))
        self.turn_out = jit.device(lambda raw, shared, lane: turn(raw, shared, lane, False))

        @jit.device
        def write(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, values: Any) -> None:
            for s in range(steps):
                at = first + s * strip + lane * vector
                if (at >= 0) & (at + vector <= extent):
                    begin = base + place(at, extent, vector) * gap
                    for k in range(0, vector, run):
                        store(array, begin + k, values, s * vector + k)
                elif peeled:
                    for v in range(vector):
                        if (at + v >= 0) & (at + v < extent):
                            array[base + place(at + v, extent, 1) * gap] = values[s * vector + (vector - 1 - v if reverse else v)]

        self.write = write


@functools.cache
def accesses_of(element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool) -> Accesses:
    """The one :class:`Accesses` for these."""
    return Accesses(element, vector, lanes, steps, reverse, peeled)
