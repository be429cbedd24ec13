"""A level's part of columns that are few and lie densely: a contiguous range of memory, in vectors that are staged in shared memory."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...device.build import opaque
from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit
from ..tiling import dense_pitch


class DenseTile:
    """``steps`` consecutive positions of all columns of a slice, for the ``lanes`` adjacent lanes of a level; a lane has one column of them.

    The columns are *dense*: an element of the next position follows that of the last column, so that ``stride``, the elements from one position to
    the next, is also the number of columns, at most ``lanes``. Adjacent lanes load and store adjacent vectors of ``vector`` elements.
    The lanes turn vectors into columns and back in the block's dynamic shared memory, each level in a part of its own, which are
    :func:`~..tiling.dense_pitch` apart so that the levels of a warp meet different banks. All lanes of a warp call these functions, for ``base``, the
    offset of their columns: those beyond the last column stand in for it, and store nothing.

    ``fetch`` loads a lane's vectors into ``items`` [steps]; ``arrange`` turns them into the lane's column; ``write`` stores the column of ``items``.
    """

    def __init__(self, element: Any, lanes: int, steps: int, vector: int, reverse: bool) -> None:
        pitch, rounds = dense_pitch(lanes, steps, element.bitwidth // 8), steps // vector
        load_global, store_global, load_shared, store_shared = LOAD_STREAM[vector], STORE_STREAM[vector], LOAD[vector], STORE[vector]
        first_step = steps - 1 if reverse else 0

        @jit.device
        def places(stride: Any) -> Any:
            """(the lane's number, its column, where the level's part of shared memory begins, its elements)."""
            lane, width = int32(cuda.threadIdx.x) & (lanes - 1), int32(stride)
            return lane, min(lane, int32(width - 1)), int32(int32(cuda.threadIdx.x) // lanes * pitch), int32(width * steps)

        @jit.device
        def fetch(array: Any, base: Any, stride: Any, start: Any, extent: Any, items: Any) -> None:
            lane, column, _, count = places(stride)
            first = base - column + (extent - start - steps if reverse else start) * stride
            for r in range(rounds):
                at = int32((r * lanes + lane) * vector)
                if at < count:
                    load_global(array, first + at, items, r * vector)

        @jit.device
        def arrange(items: Any, stride: Any) -> None:
            shared = cuda.shared.array(0, element, 16)
            lane, column, part, count = places(stride)
            # the warp may still read what it had here before
            cuda.syncwarp()
            for r in range(rounds):
                at = int32((r * lanes + lane) * vector)
                if at < count:
                    store_shared(shared, part + at, items, r * vector)
            cuda.syncwarp()
            at, step = int32(part + column + first_step * int32(stride)), int32(-stride if reverse else stride)
            for s in range(steps):
                items[s] = shared[at]
                at = int32(at + step)

        @jit.device
        def write(array: Any, base: Any, stride: Any, start: Any, extent: Any, items: Any) -> None:
            shared, words = cuda.shared.array(0, element, 16), cuda.local.array(vector, element)
            lane, column, part, count = places(stride)
            first = base - column + (extent - start - steps if reverse else start) * stride
            cuda.syncwarp()
            # offsets anew, rather than in registers since the lane read its column
            at, step = int32(part + column + first_step * int32(stride)), opaque(int32(-stride if reverse else stride))
            if lane == column:
                for s in range(steps):
                    shared[at] = items[s]
                    at = int32(at + step)
            cuda.syncwarp()
            for r in range(rounds):
                at = int32((r * lanes + lane) * vector)
                if at < count:
                    load_shared(shared, part + at, words, 0)
                    store_global(array, first + at, words, 0)

        self.fetch, self.arrange, self.write = fetch, arrange, write


@functools.cache
def dense_tile_of(element: Any, lanes: int, steps: int, vector: int, reverse: bool) -> DenseTile:
    """The one :class:`DenseTile` for these."""
    return DenseTile(element, lanes, steps, vector, reverse)
