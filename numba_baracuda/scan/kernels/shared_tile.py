"""A warp's part of one operand's row: vectorized accesses to global memory, by way of shared memory."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit
from ..tiling import LINE_BYTES

#: elements of a partial tile that a lane loads before it stores them to shared memory: the block waits so many times less for memory
_AT_ONCE = 8


class SharedTile:
    """``steps`` vectors of ``vector`` elements for each of ``lanes`` lanes of a warp: the part of a row that begins at position ``warp_start``.

    Positions count in the scan's order, with ``reverse`` from the row's end; the elements of a vector lie as in memory. Global memory is accessed
    striped: adjacent lanes access adjacent vectors. A lane works on the vectors from lane · steps on (blocked). Shared memory turns one arrangement
    into the other: each warp has a part of it, from element ``shared_base`` of the block's array on. Vector n is in slot n ^ (n / (vectors in 128
    bytes) mod steps), so that no access has bank conflicts. All these numbers are powers of two, so the addresses of a lane differ by constants,
    added or XORed.

    ``load`` brings vectors from global memory to registers, ``stage`` from there to shared memory, and ``store`` from shared to global memory.
    ``read_vector`` and ``write_vector`` access vector s of the lane in shared memory, ``read_first`` the first element of one, ``read_element`` any
    element of the tile; ``blocked_offset`` and ``element_offset`` tell where these lie. ``peeled`` rows begin and end inside a vector, whose other
    elements are left alone: ``load_ends`` loads the elements of these two vectors one by one, and ``filler`` in place of those outside the row; they
    belong where ``stage`` put anything.
    With ``rare_partial``, ``load`` takes only tiles that lie wholly in the row; ``load_elements`` brings a partial one to shared memory element by
    element, and ``store`` writes it so.
    """

    def __init__(self, element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, rare_partial: bool, shared_base: int) -> None:
        stripe, line_vectors, width = lanes * vector, max(1, 8 * LINE_BYTES // (vector * element.bitwidth)), min(vector, 128 // element.bitwidth)
        load_global, store_global, load_shared, store_shared = LOAD_STREAM[width], STORE_STREAM[width], LOAD[width], STORE[width]
        at_once = min(_AT_ONCE, steps * vector)
        line_bits, low_bits, vector_bits = line_vectors.bit_length() - 1, steps - 1, vector.bit_length() - 1
        #: a lane's elements of the first and the last vector in a peeled row, at most
        self.end_steps = end_steps = -(-2 * vector // lanes)

        @jit.device
        def memory_offset(position: Any, extent: Any, count: Any) -> Any:
            """Where ``count`` elements from ``position`` on begin in memory, in elements from the row's first one."""
            return extent - count - position if reverse else position

        memory_step = jit.device(lambda count: int64(-count) if reverse else int64(count))

        @jit.device
        def swizzled_offset(lane: Any, vector_index: Any) -> Any:
            """The element of shared memory at which vector ``vector_index`` of the lane's group begins."""
            slot = (int32(cuda.threadIdx.x) - lane) * steps + vector_index
            return shared_base + (slot ^ slot >> line_bits & low_bits) * vector

        @jit.device
        def striped_offset(lane: Any, s: Any) -> Any:
            """The same of vector s · lanes + lane: adjacent to those of adjacent lanes."""
            if lanes < line_vectors or line_vectors < steps:
                return swizzled_offset(lane, int32(s * lanes + lane))
            slot = (int32(cuda.threadIdx.x) - lane) * steps + (lane ^ lane >> line_bits & low_bits)
            return int32((int32(shared_base + slot * vector) ^ int32((int32(s) * (lanes // line_vectors) & low_bits) * vector)) + int32(s) * stripe)

        @jit.device
        def blocked_offset(lane: Any, s: Any) -> Any:
            """The same of vector lane · steps + s: the lane's own."""
            if line_vectors < steps:
                return swizzled_offset(lane, int32(lane * steps + s))
            slot = int32(cuda.threadIdx.x) * steps
            return int32(int32(shared_base + (slot | slot >> line_bits & low_bits) * vector) ^ int32(int32(s) * vector))

        @jit.device
        def element_offset(lane: Any, index: Any) -> Any:
            """The element of shared memory that holds element ``index`` of the tile."""
            v = int32(index & (vector - 1))
            return swizzled_offset(lane, int32(index >> vector_bits)) + (vector - 1 - v if reverse else v)

        @jit.device
        def tile_bounds(warp_start: Any, extent: Any) -> Any:
            """(low, high, whole): elements from low on, and before high, are in the row; whole says that all are."""
            low, high = int32(max(-warp_start, int64(0))) if peeled else int32(0), int32(min(extent - warp_start, int64(stripe * steps)))
            return low, high, low == 0 and high == stripe * steps

        @jit.device
        def load_vectors(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, safe: Any, raw: Any) -> None:
            low, high, _ = tile_bounds(warp_start, extent)
            start_offset, last = base + memory_offset(warp_start, extent, vector) * stride, int32(high - vector)
            # rows of so many tiles that 32 bits do not reach ``safe`` fit no memory
            instead = int32(memory_step(safe - warp_start))
            for s in range(steps):
                index = int32(s * stripe + lane * vector)
                # only the first of all vectors may begin before the row
                inside = (index <= last) & (s > 0 or index >= low)
                load_global(array, start_offset + int64(int32(memory_step(index)) if inside else instead) * stride, raw, s * vector)

        @jit.device
        def end_of(warp_start: Any, lane: Any, extent: Any, k: Any) -> Any:
            """(index, exists, inside): element number k · lanes + lane of the row's first and last vectors, as far as these lie partly outside.

            Whether there ``exists`` one of this number, and whether it is ``inside`` the row. Adjacent lanes take adjacent elements.
            """
            low, high, _ = tile_bounds(warp_start, extent)
            first_end, number = int32((low + vector - 1) & -vector), int32(k * lanes + lane)
            last = int32(max(high & -vector, first_end) - vector)
            index = int32(number + (low & -vector if number < vector else last))
            exists = index < (first_end if number < vector else int32((high + vector - 1) & -vector))
            return index, exists, exists & (index >= low) & (index < high)

        @jit.device
        def load_ends(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, filler: Any, ends: Any) -> None:
            for k in range(end_steps):
                index, _, inside = end_of(warp_start, lane, extent, k)
                ends[k] = filler
                if inside:
                    ends[k] = array[base + memory_offset(warp_start + index, extent, 1) * stride]

        @jit.device
        def store_ends(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, shared: Any) -> None:
            for k in range(end_steps):
                index, _, inside = end_of(warp_start, lane, extent, k)
                if inside:
                    array[base + memory_offset(warp_start + index, extent, 1) * stride] = shared[uint32(element_offset(lane, index))]

        @jit.device
        def load_whole(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, safe: Any, raw: Any) -> None:
            start_offset = base + (memory_offset(warp_start, extent, vector) + memory_step(lane * vector)) * stride
            for s in range(steps):
                load_global(array, start_offset + memory_step(s * stripe) * stride, raw, s * vector)

        @jit.device
        def load_elements(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, shared: Any) -> None:
            values, (low, high, _) = cuda.local.array(at_once, element), tile_bounds(warp_start, extent)
            for start in range(0, steps * vector, at_once):
                for k in range(at_once):
                    position = warp_start + min(max(int32((start + k) * lanes + lane), low), high - 1)
                    values[k] = array[base + memory_offset(position, extent, 1) * stride]
                for k in range(at_once):
                    shared[uint32(element_offset(lane, int32((start + k) * lanes + lane)))] = values[k]

        @jit.device
        def stage(raw: Any, shared: Any, lane: Any) -> None:
            for s in range(steps):
                store_shared(shared, striped_offset(lane, s), raw, s * vector)

        @jit.device
        def read_vector(shared: Any, lane: Any, s: Any, raw: Any) -> None:
            load_shared(shared, blocked_offset(lane, s), raw, 0)

        @jit.device
        def read_first(shared: Any, lane: Any, s: Any) -> Any:
            """The first element of the lane's vector s."""
            return shared[uint32(blocked_offset(lane, s) + (vector - 1 if reverse else 0))]

        @jit.device
        def read_element(shared: Any, lane: Any, index: Any) -> Any:
            """Element ``index`` of the tile."""
            return shared[uint32(element_offset(lane, index))]

        @jit.device
        def write_vector(shared: Any, lane: Any, s: Any, raw: Any) -> None:
            offset = blocked_offset(lane, s)
            for k in range(0, vector, width):
                store_shared(shared, offset + k, raw, k)

        @jit.device
        def store_elements(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, shared: Any) -> None:
            low, high, _ = tile_bounds(warp_start, extent)
            for k in range(steps * vector):
                index = int32(k * lanes + lane)
                if (index >= low) & (index < high):
                    array[base + memory_offset(warp_start + index, extent, 1) * stride] = shared[uint32(element_offset(lane, index))]

        @jit.device
        def store(array: Any, base: Any, stride: Any, warp_start: Any, lane: Any, extent: Any, shared: Any) -> None:
            values = cuda.local.array(vector, element)
            low, high, whole = tile_bounds(warp_start, extent)
            if rare_partial and not whole:
                store_elements(array, base, stride, warp_start, lane, extent, shared)
            else:
                start_offset = base + (memory_offset(warp_start, extent, vector) + memory_step(lane * vector)) * stride
                first, last = int32(lane * vector), int32(high - vector)
                for s in range(steps):
                    offset = striped_offset(lane, s)
                    for k in range(0, vector, width):
                        load_shared(shared, offset + k, values, k)
                    # only the first of all vectors may begin before the row
                    if rare_partial or (first <= int32(last - s * stripe)) & (s > 0 or first >= low):
                        for k in range(0, vector, width):
                            store_global(array, start_offset + memory_step(s * stripe) * stride + k, values, k)
                if peeled and not rare_partial:
                    store_ends(array, base, stride, warp_start, lane, extent, shared)

        self.tile_bounds, self.memory_offset, self.memory_step, self.load, self.load_elements, self.stage = (
            tile_bounds, memory_offset, memory_step, load_whole if rare_partial else load_vectors, load_elements, stage,
        )  # fmt: skip
        self.load_ends, self.end_of, self.element_offset, self.blocked_offset = load_ends, end_of, element_offset, blocked_offset
        self.read_vector, self.read_first, self.read_element, self.write_vector, self.store = (
            read_vector, read_first, read_element, write_vector, store,
        )  # fmt: skip


@functools.cache
def shared_tile_of(
    element: Any, vector: int, lanes: int, steps: int, reverse: bool, peeled: bool, rare_partial: bool, shared_base: int
) -> SharedTile:
    """The one :class:`SharedTile` for these."""
    return SharedTile(element, vector, lanes, steps, reverse, peeled, rare_partial, shared_base)
