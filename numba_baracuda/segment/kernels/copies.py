"""Copies of neighbouring elements to shared memory, which are under way while threads do other things."""

from typing import Any

from numba.cuda.types import int32, int64, uint32

from ...device.build import opaque, pointer_at
from ...device.stage import copy_async
from ...runtime import jit

#: bytes that ``copy_async`` copies
_PIECE = 16


@jit.device
def begin_copies(array: Any, first: Any, count: Any, size: Any, shared: Any, at: Any, lane: Any, lanes: Any) -> None:
    """This lane of ``lanes`` begins its part of a copy of ``count`` elements of ``size`` bytes from ``array[first]`` to ``shared[at]``.

    Both are multiples of 16 bytes. There are more lanes than elements in a piece.
    """
    each = _PIECE // size
    turn, rest = lanes * each, int32(count & (each - 1))
    source, target, left = int64(first + lane * each), int32(at + lane * each), int32(count - lane * each)
    while left >= 3 * turn + each:
        # offsets from these are part of the instructions
        near, place = pointer_at(array, source), pointer_at(shared, target)
        for k in range(4):
            copy_async(near, k * turn, place, k * turn)
        source, target, left = source + 4 * turn, int32(target + 4 * turn), int32(opaque(left - 4 * turn))
    while left >= each:
        copy_async(array, source, shared, target)
        source, target, left = source + turn, int32(target + turn), int32(opaque(left - turn))
    # what is left, less than a piece
    if lane < rest:
        shared[uint32(at + count - rest + lane)] = array[first + count - rest + lane]
