"""Device functions that the segment kernels share."""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda.types import int64

from ...runtime import jit


@jit.device
def clamp(identifier: Any, segments: Any) -> Any:
    """An id as int64, with everything below the range as −1 and everything above as ``segments``; order is kept."""
    wide = int64(identifier)
    if wide < 0:
        return int64(-1)
    return segments if wide > segments else wide


@jit.device
def first_at_least(sorted_numbers: Any, step: Any, first: Any, last: Any, least_number: Any) -> Any:
    """The first of the places first … last − 1 whose number is at least ``wanted``, else ``last``, for numbers in order, ``step`` elements apart."""
    low, high = int64(first), int64(last)
    while low < high:
        middle = (low + high) >> 1
        if int64(sorted_numbers[middle * step]) < least_number:
            low = middle + 1
        else:
            high = middle
    return low


@jit.device
def rotate_blocks(block: Any, blocks: Any) -> Any:
    """The blocks in turn, from the last eighth on.

    Where ids are sorted by frequency, short runs and gaps crowd at one end; blocks that meet them take longest and should not start last.
    """
    rotated = block + blocks - (blocks >> 3)
    return rotated if rotated < blocks else rotated - blocks


@functools.cache
def ids_of(index: str) -> tuple[Any, Any]:
    """``last_id(segments)``, the greatest id that names a segment, and ``adjoin(a, b)``, whether b = a + 1; both without leaving the ids' width."""
    index_type = jit.SCALARS[index]
    unsigned, greatest = jit.SCALARS["u" + index[1:]], index_type.maxval

    @jit.device
    def last_id(segments: Any) -> Any:
        return index_type(min(segments - 1, greatest))

    @jit.device
    def adjoin(a: Any, b: Any) -> Any:
        # b − a = 1 modulo 2^32 where b is the least integer and a the greatest, too: that is no gap either
        return unsigned(b - a) == unsigned(1)

    return last_id, adjoin
