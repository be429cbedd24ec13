"""A level's part of columns that are few and lie densely: a contiguous range of memory, in vectors that are staged in shared memory."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...core.axes import ceil_div
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit
from ..tiling import dense_pitch


class DenseTile:
    """``steps`` consecutive positions of all columns of a slice, for the ``lanes`` adjacent lanes of a level; a lane has one column of them.

    The columns are *dense*: an element of the next position follows that of the last column, so that ``stride``, the elements from one position to
    the next, is also the number of columns, at most ``lanes``. Adjacent lanes load and store adjacent vectors of ``vector`` elements, which divides
    ``steps``. Arrays begin at a multiple of a vector, and a slice anywhere: where the level's range does, its two ends, ``vector`` elements together,
    are loaded and stored one by one.
    The lanes turn vectors into columns and back in the block's dynamic shared memory, each level in a part of its own, which are
    :func:`~..tiling.dense_pitch` apart so that the levels of a warp meet different banks. All lanes of a warp call these functions, for ``base``, the
    offset of their columns: those beyond the last column stand in for it, and store nothing.

    ``fetch`` loads a lane's vectors and ends into ``items`` [``size``]; ``arrange`` turns them into the lane's column, ``items`` [steps]; ``write``
    stores the column of ``items``. ``l1_cached`` loads stay in L1, for a second reading.
    """

    def __init__(self, element: Any, lanes: int, steps: int, vector: int, reverse: bool, l1_cached: bool) -> None:
        pitch, rounds, ends = dense_pitch(lanes, steps, element.bitwidth // 8), steps // vector, ceil_div(vector, lanes)
        load_global, store_global, load_shared, store_shared = (
            (LOAD if l1_cached else LOAD_STREAM)[vector],
            STORE_STREAM[vector],
            LOAD[vector],
            STORE[vector],
        )
        first_step = steps - 1 if reverse else 0
        self.size = steps + ends

        @jit.device
        def places(base: Any, stride: Any, start: Any, extent: Any) -> Any:
            """(the lane's number, its column, where its level begins in memory, the elements from a multiple of a vector to there)."""
            lane = int32(cuda.threadIdx.x) & (lanes - 1)
            column = min(lane, int32(int32(stride) - 1))
            first = base - column + (extent - start - steps if reverse else start) * stride
            return lane, column, first, int32(first & (vector - 1))

        @jit.device
        def vectors_of(stride: Any, shift: Any) -> Any:
            """(begin, end): the elements of vectors, counted from the last multiple of a vector up to the level's beginning."""
            return int32(vector if shift > 0 else 0), int32(int32(stride) * steps)

        @jit.device
        def end_of(lane: Any, e: Any, stride: Any, shift: Any) -> Any:
            """(the lane's e-th element of the ends, counted likewise, whether there is one)."""
            k = int32(lane + e * lanes)
            return int32(k + (int32(stride) * steps if k < shift else 0)), (shift > 0) & (k < vector)

        @jit.device
        def part_of() -> Any:
            return int32(int32(cuda.threadIdx.x) // lanes * pitch)

        @jit.device
        def fetch(array: Any, base: Any, stride: Any, start: Any, extent: Any, items: Any) -> None:
            lane, _, first, shift = places(base, stride, start, extent)
            begin, end = vectors_of(stride, shift)
            first -= shift
            for r in range(rounds):
                at = int32(begin + (r * lanes + lane) * vector)
                if at < end:
                    load_global(array, first + at, items, r * vector)
            for e in range(ends):
                at, present = end_of(lane, e, stride, shift)
                if present:
                    items[steps + e] = array[first + at]

        @jit.device
        def arrange(base: Any, stride: Any, start: Any, extent: Any, items: Any) -> None:
            shared = cuda.shared.array(0, element, 16)
            lane, column, _, shift = places(base, stride, start, extent)
            (begin, end), part = vectors_of(stride, shift), part_of()
            # the warp may still read what it had here before
            cuda.syncwarp()
            for r in range(rounds):
                at = int32(begin + (r * lanes + lane) * vector)
                if at < end:
                    store_shared(shared, part + at, items, r * vector)
            for e in range(ends):
                at, present = end_of(lane, e, stride, shift)
                if present:
                    shared[int32(part + at)] = items[steps + e]
            cuda.syncwarp()
            at, step = int32(part + shift + column + first_step * int32(stride)), int32(-stride if reverse else stride)
            for s in range(steps):
                items[s] = shared[at]
                at = int32(at + step)

        @jit.device
        def write(array: Any, base: Any, stride: Any, start: Any, extent: Any, items: Any) -> None:
            shared, words = cuda.shared.array(0, element, 16), cuda.local.array(vector, element)
            lane, column, first, shift = places(base, stride, start, extent)
            (begin, end), part = vectors_of(stride, shift), part_of()
            first -= shift
            cuda.syncwarp()
            # offsets anew, rather than in registers since the lane read its column
            at, step = int32(part + shift + column + first_step * int32(stride)), opaque(int32(-stride if reverse else stride))
            if lane == column:
                for s in range(steps):
                    shared[at] = items[s]
                    at = int32(at + step)
            cuda.syncwarp()
            for r in range(rounds):
                at = int32(begin + (r * lanes + lane) * vector)
                if at < end:
                    load_shared(shared, part + at, words, 0)
                    store_global(array, first + at, words, 0)
            for e in range(ends):
                at, present = end_of(lane, e, stride, shift)
                if present:
                    array[first + at] = shared[int32(part + at)]

        self.fetch, self.arrange, self.write = fetch, arrange, write


@functools.cache
def dense_tile_of(element: Any, lanes: int, steps: int, vector: int, reverse: bool, l1_cached: bool) -> DenseTile:
    """The one :class:`DenseTile` for these."""
    return DenseTile(element, lanes, steps, vector, reverse, l1_cached)
