"""Candidates for the first row that has the greatest or least value of a segment: words of 64 bits, of which the greatest wins.

The upper half of a word orders the value, in the lower half rows descend. So one atomic maximum finds the value and the first row that has it. NaN is
the greatest and the least value, and −0 is equal to 0.
"""

import functools
from typing import Any

from numba.cuda.types import Integer, int32, int64

from ...device.bits import f32_as_i32
from ...runtime import jit
from ..first_rows import NO_CANDIDATE

_ROWS = (1 << 32) - 1


@functools.cache
def candidate_of(update: str, wide: Any) -> Any:
    """``candidate(x, row)``: the word of a value of type ``wide``, int32 or float32, that is in row ``row``, less than 2^32 − 1."""
    whole, is_max = isinstance(wide, Integer), update == "first_max"

    @jit.device
    def candidate(x: Any, row: Any) -> Any:
        code = int32(x if whole else f32_as_i32(x) if x != 0 else int32(0))
        if not whole:
            code = int32(code ^ ((code >> 31) & 0x7FFFFFFF))
        if not is_max:
            code = int32(~code)
        if not whole and x != x:
            code = int32(0x7FFFFFFF)
        return (int64(code) << 32) | (_ROWS - int64(row))

    return candidate


@jit.device
def row_of_candidate(word: Any) -> Any:
    """The row in a word, or −1 where there is none."""
    return int64(-1) if word == NO_CANDIDATE else _ROWS - (int64(word) & _ROWS)
