"""A warp's accesses to its part of a row, which it keeps in shared memory while it needs them."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit
from ..tiling import LINE_BYTES


class Accesses:
    """``steps`` accesses of ``vector`` elements of a type by each of ``lanes`` lanes of a warp to the part of a row that begins at ``first``.

    Positions count in the scan's order, ``reverse`` from the row's end; elements of an access lie as in memory. In global memory every lane accesses
    what is beside that of the next lane. In shared memory, from element ``begin`` on, each warp has a part of its own, and lane l's accesses are
    those at first + l · steps · vector and behind. ``load`` and ``keep`` bring the part there by way of registers, ``get`` and ``put`` reach an
    access of the lane's own, and ``write`` takes the part back. Accesses are kept without bank conflicts, number n at n ^ (n / (128 bytes) mod
    steps): powers of two, so that a lane's addresses differ by constants, added or in bits. ``peeled`` rows begin inside of an access and end inside
    of another, whose other elements are left alone. Where parts that are not ``whole`` are ``rare``, ``load`` is not for them: ``bring`` has them in
    shared memory element by element, and they are written likewise.
    """

    def __init__(self, element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, rare: bool, begin: int) -> None:
        strip, line, run = lanes * vector, max(1, 8 * LINE_BYTES // (vector * element.bitwidth)), min(vector, 128 // element.bitwidth)
        load_global, store_global, load_shared, store_shared = LOAD_STREAM[run], STORE_STREAM[run], LOAD[run], STORE[run]
        line_bits, low_bits = line.bit_length() - 1, steps - 1

        @jit.device
        def place(position: Any, extent: Any, run: Any) -> Any:
            """Where a run of elements begins in memory, counted from the row's first element."""
            return extent - run - position if reverse else position

        toward = jit.device(lambda at: int64(-at) if reverse else int64(at))

        @jit.device
        def kept(lane: Any, number: Any) -> Any:
            """Where access ``number`` of the lane's group is in shared memory."""
            at = (int32(cuda.threadIdx.x) - lane) * steps + number
            return begin + (at ^ at >> line_bits & low_bits) * vector

        @jit.device
        def across(lane: Any, s: Any) -> Any:
            """Where access s · lanes + lane is: side by side with those of the next lanes."""
            if lanes < line or line < steps:
                return kept(lane, int32(s * lanes + lane))
            number = (int32(cuda.threadIdx.x) - lane) * steps + (lane ^ lane >> line_bits & low_bits)
            return int32((int32(begin + number * vector) ^ int32((int32(s) * (lanes // line) & low_bits) * vector)) + int32(s) * strip)

        @jit.device
        def along(lane: Any, s: Any) -> Any:
            """Where access lane · steps + s is: the lane's own."""
            if line < steps:
                return kept(lane, int32(lane * steps + s))
            number = int32(cuda.threadIdx.x) * steps
            return int32(int32(begin + (number | number >> line_bits & low_bits) * vector) ^ int32(int32(s) * vector))

        @jit.device
        def slot(lane: Any, at: Any) -> Any:
            """Where an element of the part is in shared memory."""
            v = int32(at & (vector - 1))
            return kept(lane, int32(at // vector)) + (vector - 1 - v if reverse else v)

        @jit.device
        def bounds(first: Any, extent: Any) -> Any:
            """Which of the part's places are in the row: those from the first on, and less than the second; and whether all are."""
            low, high = int32(max(-first, int64(0))) if peeled else int32(0), int32(min(extent - first, int64(strip * steps)))
            return low, high, low == 0 and high == strip * steps

        @jit.device
        def load_some(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, spare: Any, raw: Any) -> None:
            low, high, whole = bounds(first, extent)
            own = base + place(first, extent, vector) * gap
            for s in range(steps):
                at = int32(s * strip + lane * vector)
                inside = (at >= low) & (at + vector <= high)
                load_global(array, own + toward(at) * gap if inside else base + place(spare, extent, vector) * gap, raw, s * vector)
            if peeled and not whole:
                for s in range(steps):
                    at = int32(s * strip + lane * vector)
                    if ((at < low) & (at + vector > low)) | ((at < high) & (at + vector > high)):
                        for v in range(vector):
                            if (at + v >= low) & (at + v < high):
                                raw[s * vector + (vector - 1 - v if reverse else v)] = array[base + place(first + at + v, extent, 1) * gap]

        @jit.device
        def load_whole(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, spare: Any, raw: Any) -> None:
            own = base + (place(first, extent, vector) + toward(lane * vector)) * gap
            for s in range(steps):
                load_global(array, own + toward(s * strip) * gap, raw, s * vector)

        @jit.device
        def bring(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, shared: Any) -> None:
            low, high, _ = bounds(first, extent)
            for k in range(steps * vector):
                at = int32(k * lanes + lane)
                shared[uint32(slot(lane, at))] = array[base + place(first + min(max(at, low), high - 1), extent, 1) * gap]

        @jit.device
        def keep(raw: Any, shared: Any, lane: Any) -> None:
            for s in range(steps):
                store_shared(shared, across(lane, s), raw, s * vector)

        @jit.device
        def get(shared: Any, lane: Any, s: Any, raw: Any) -> None:
            load_shared(shared, along(lane, s), raw, 0)

        @jit.device
        def get_first(shared: Any, lane: Any, s: Any) -> Any:
            """The first element of an access of the lane's own."""
            return shared[uint32(along(lane, s) + (vector - 1 if reverse else 0))]

        @jit.device
        def get_other(shared: Any, lane: Any, at: Any) -> Any:
            """Any element of the part."""
            return shared[uint32(slot(lane, at))]

        @jit.device
        def put(shared: Any, lane: Any, s: Any, raw: Any) -> None:
            at = along(lane, s)
            for k in range(0, vector, run):
                store_shared(shared, at + k, raw, k)

        @jit.device
        def write_some(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, shared: Any) -> None:
            low, high, _ = bounds(first, extent)
            for k in range(steps * vector):
                at = int32(k * lanes + lane)
                if (at >= low) & (at < high):
                    array[base + place(first + at, extent, 1) * gap] = shared[uint32(slot(lane, at))]

        @jit.device
        def write(array: Any, base: Any, gap: Any, first: Any, lane: Any, extent: Any, shared: Any) -> None:
            values = cuda.local.array(vector, element)
            low, high, whole = bounds(first, extent)
            if rare and not whole:
                write_some(array, base, gap, first, lane, extent, shared)
            else:
                own = base + (place(first, extent, vector) + toward(lane * vector)) * gap
                for s in range(steps):
                    at, there = int32(s * strip + lane * vector), across(lane, s)
                    for k in range(0, vector, run):
                        load_shared(shared, there + k, values, k)
                    if rare or ((at >= low) & (at + vector <= high)):
                        for k in range(0, vector, run):
                            store_global(array, own + toward(s * strip) * gap + k, values, k)
                    elif peeled:
                        for v in range(vector):
                            if (at + v >= low) & (at + v < high):
                                array[base + place(first + at + v, extent, 1) * gap] = values[vector - 1 - v if reverse else v]

        self.bounds, self.place, self.toward, self.load, self.bring, self.keep = (
            bounds, place, toward, load_whole if rare else load_some, bring, keep,
        )  # fmt: skip
        self.get, self.get_first, self.get_other, self.put, self.write = get, get_first, get_other, put, write


@functools.cache
def accesses_of(element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, rare: bool, begin: int) -> Accesses:
    """The one :class:`Accesses` for these."""
    return Accesses(element, vector, lanes, steps, reverse, peeled, rare, begin)
