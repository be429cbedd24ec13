"""A block's part of a slab of rows in shared memory: where its rows lie there, and copies to and from it."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint32

from ...device.build import pointer_at
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, STORE_STREAM
from ...runtime import jit
from ..tiling import MAX_VECTOR_BYTES

#: vectors that a thread copies one after the other without a condition
COPIES = 4
#: bits of a grain from which on a part whose rows begin inside vectors is stored by grains, adjacent threads to adjacent ones: vectors would share
#: sectors with what is left of their rows. Computed, not timed
GRAIN_BITS = 32


class SlabTile:
    """``rows`` rows of ``own`` adjacent columns of each input, in the block's dynamic shared memory, with ``room`` elements for each input.

    In memory a row begins ``width`` elements after the one before. The first begins at element ``first``, ``shift`` elements from a multiple of a
    vector. If ``pitch`` is 0, rows are whole and a contiguous range, there and in shared memory. Otherwise they are ``pitch`` elements apart there,
    each as far from a multiple of a vector as in memory: ``row_begin(row, width, shift)`` says where, and ``even`` whether they are evenly apart.

    ``begin_copy(array, first, shift, rows, width, own, limit, number)`` starts the copy of input ``number``; it may read up to ``limit`` elements
    from the first on, and those of a vector before it. ``end_copy`` waits for the thread's own copies. ``write`` stores what is in the place of input
    0. Vectors that belong to the part as a whole are moved as such; at both ends of a range, ``grain`` elements at a time, which divides whatever
    rows and columns begin at. Of rows that begin inside vectors, wide grains are all stored so. ``lanes`` is a power of two, at least ``own``. All
    threads of the block call these.
    """

    def __init__(self, element: Any, room: int, threads: int, pitch: int, grain: int, lanes: int) -> None:
        self.vector, self.room, self.element, self._threads, self._lanes = MAX_VECTOR_BYTES * 8 // element.bitwidth, room, element, threads, lanes
        self.end_copy, self.even = await_copies(0), pitch == 0
        if pitch:
            self._pieces(pitch, grain)
        else:
            self._range()

    def _range(self) -> None:
        element, room, vector, threads = self.element, self.room, self.vector, self._threads
        load_shared, store_global, round_size, words_size = LOAD[vector], STORE_STREAM[vector], threads * vector, COPIES * vector
        self.row_begin = jit.device(lambda row, width, shift: int32(shift + row * int32(width)))

        @jit.device
        def vectors_of(shift: Any, count: Any) -> Any:
            """(the thread's first whole vector, the last)."""
            return int32((vector if shift > 0 else 0) + int32(cuda.threadIdx.x) * vector), int32(shift + count - vector)

        @jit.device
        def ends_of(shift: Any, count: Any) -> Any:
            """The thread's element before the first whole vector, and that after the last; −1 for none."""
            thread, end = int32(cuda.threadIdx.x), int32(shift + count)
            head, tail = int32(shift + thread), int32((end & -vector) + thread)
            return (
                head if shift > 0 and head < min(int32(vector), end) else int32(-1),
                tail if tail >= (vector if shift > 0 else 0) and tail < end else int32(-1),
            )

        @jit.device
        def begin_copy(array: Any, first: Any, shift: Any, rows: Any, width: Any, own: Any, limit: Any, number: Any) -> None:
            shared = cuda.shared.array(0, element, 16)
            begin, place, count = first - shift, int32(number * room), int32(rows * int32(width))
            (index, last), (head, tail) = vectors_of(shift, count), ends_of(shift, count)
            while index + (COPIES - 1) * round_size <= last:
                for k in range(COPIES):
                    copy_async(array, begin + index + k * round_size, shared, int32(place + index + k * round_size))
                index = int32(index + COPIES * round_size)
            while index <= last:
                copy_async(array, begin + index, shared, int32(place + index))
                index = int32(index + round_size)
            commit_copies()
            if head >= 0:
                shared[uint32(place + head)] = array[begin + head]
            if tail >= 0:
                shared[uint32(place + tail)] = array[begin + tail]

        @jit.device
        def write(array: Any, first: Any, shift: Any, rows: Any, width: Any, own: Any) -> None:
            shared, words = cuda.shared.array(0, element, 16), cuda.local.array(words_size, element)
            begin, count = first - shift, int32(rows * int32(width))
            (index, last), (head, tail) = vectors_of(shift, count), ends_of(shift, count)
            while index + (COPIES - 1) * round_size <= last:
                for k in range(COPIES):
                    load_shared(shared, uint32(index + k * round_size), words, k * vector)
                for k in range(COPIES):
                    store_global(array, begin + index + k * round_size, words, k * vector)
                index = int32(index + COPIES * round_size)
            while index <= last:
                load_shared(shared, uint32(index), words, 0)
                store_global(array, begin + index, words, 0)
                index = int32(index + round_size)
            if head >= 0:
                array[begin + head] = shared[uint32(head)]
            if tail >= 0:
                array[begin + tail] = shared[uint32(tail)]

        self.begin_copy, self.write = begin_copy, write

    def _pieces(self, pitch: int, grain: int) -> None:
        element, room, vector, threads = self.element, self.room, self.vector, self._threads
        load_shared, store_global, load_grain, store_grain = LOAD[vector], STORE_STREAM[vector], LOAD[grain], STORE_STREAM[grain]
        row_vectors, end_grains, first_vector = pitch // vector, vector // grain, 0 if grain == vector else vector
        grain_bits, end_bits = grain.bit_length() - 1, (vector // grain).bit_length() - 1
        lane_bits = self._lanes.bit_length() - 1 - grain_bits
        step, grains_size = threads >> lane_bits, COPIES * grain

        @jit.device
        def shift_of(row: Any, width: Any, shift: Any) -> Any:
            return int32(int32(shift + int32(row * width)) & (vector - grain))

        self.row_begin = jit.device(lambda row, width, shift: int32(row * pitch + shift_of(row, int32(width), shift)))

        @jit.device
        def vector_of(number: Any, width: Any, shift: Any) -> Any:
            """Of a vector of the part: (where it begins in its row's place, where the row does, the offset in memory)."""
            row = int32(uint32(number) // uint32(row_vectors))
            at, begin = int32(int32(number - int32(row * row_vectors)) * vector), shift_of(row, width, shift)
            return at, begin, int32(int32(row * width) + int32(at - begin))

        @jit.device
        def begin_copy(array: Any, first: Any, shift: Any, rows: Any, width: Any, own: Any, limit: Any, number: Any) -> None:
            shared = cuda.shared.array(0, element, 16)
            k, place, row_size, count = int32(cuda.threadIdx.x), int32(number * room), int32(width), int32(rows * row_vectors)
            source = pointer_at(array, first)
            # a vector may end behind the last row; those of rows that fill their places go without a condition, even if one too many is copied
            inside = (rows - 1) * row_size + own + vector <= limit
            if own > pitch - 2 * vector and (rows - 1) * row_size + pitch <= limit:
                while k + (COPIES - 1) * threads < count:
                    for c in range(COPIES):
                        number_c = int32(k + c * threads)
                        _, _, offset = vector_of(number_c, row_size, shift)
                        copy_async(source, offset, shared, int32(place + int32(number_c * vector)))
                    k = int32(k + COPIES * threads)
            while k < count:
                at, begin, offset = vector_of(k, row_size, shift)
                if at < int32(begin + own):
                    if inside or int32(offset + vector) <= limit:
                        copy_async(source, offset, shared, int32(place + int32(k * vector)))
                    else:
                        for v in range(vector):
                            if at + v < begin + own:
                                shared[uint32(place + k * vector + v)] = array[first + offset + v]
                k = int32(k + threads)
            commit_copies()

        @jit.device
        def write(array: Any, first: Any, shift: Any, rows: Any, width: Any, own: Any) -> None:
            shared, words = cuda.shared.array(0, element, 16), cuda.local.array(vector, element)
            k, row_size, count, target = int32(cuda.threadIdx.x), int32(width), int32(rows * row_vectors), pointer_at(array, first)
            while k < count:
                at, begin, offset = vector_of(k, row_size, shift)
                if at >= first_vector and int32(at + vector) <= int32(begin + own):
                    load_shared(shared, uint32(k * vector), words, 0)
                    store_global(target, offset, words, 0)
                k = int32(k + threads)
            if first_vector > 0:
                # a row's first vector and what is left behind its last; of whole vectors, together as many elements as one has
                apart, thread = int32(0 if own & (vector - 1) == 0 else 1), int32(cuda.threadIdx.x)
                # a thread has the same element of each of its rows
                bits, place, second = int32(end_bits + apart), int32(int32(thread & (end_grains - 1)) << grain_bits), thread >> end_bits & apart != 0
                row, step = int32(thread >> bits), int32(threads >> bits)
                while row < rows:
                    offset = int32(row * row_size)
                    begin = int32(int32(shift + offset) & (vector - grain))
                    end = int32(begin + own)
                    behind = second | ((apart == 0) & (place < begin))
                    at = int32(place + (int32(end & -vector) if behind else int32(0)))
                    if (at >= (int32(vector) if behind else begin)) & (at < end):
                        load_grain(shared, uint32(int32(row * pitch) + at), words, 0)
                        store_grain(target, int32(offset + int32(at - begin)), words, 0)
                    row = int32(row + step)

        @jit.device
        def write_grains(array: Any, first: Any, shift: Any, rows: Any, width: Any, own: Any) -> None:
            shared, words = cuda.shared.array(0, element, 16), cuda.local.array(grains_size, element)
            thread, row_size, target = int32(cuda.threadIdx.x), int32(width), pointer_at(array, first)
            row, place = int32(thread >> lane_bits), int32(int32(thread & ((1 << lane_bits) - 1)) << grain_bits)
            if place < own:
                while row + (COPIES - 1) * step < rows:
                    for c in range(COPIES):
                        own_row = int32(row + c * step)
                        load_grain(shared, uint32(int32(own_row * pitch) + int32(shift_of(own_row, row_size, shift) + place)), words, c * grain)
                    for c in range(COPIES):
                        store_grain(target, int32(int32(int32(row + c * step) * row_size) + place), words, c * grain)
                    row = int32(row + COPIES * step)
                while row < rows:
                    load_grain(shared, uint32(int32(row * pitch) + int32(shift_of(row, row_size, shift) + place)), words, 0)
                    store_grain(target, int32(int32(row * row_size) + place), words, 0)
                    row = int32(row + step)

        by_grains = grain < vector and grain * element.bitwidth >= GRAIN_BITS
        self.begin_copy, self.write = begin_copy, write_grains if by_grains else write


@functools.cache
def slab_tile_of(element: Any, room: int, threads: int, pitch: int, grain: int, lanes: int) -> SlabTile:
    """The one :class:`SlabTile` for these."""
    return SlabTile(element, room, threads, pitch, grain, lanes)
