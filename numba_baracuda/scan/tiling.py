"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from ..dtypes import BY_NAME

#: threads in a block
THREADS = 256
#: bytes whose loads a lane issues before it uses the first, and the most accesses for them
IN_FLIGHT, MOST_STEPS = 64, 8


def steps_of(value: str, vector: int) -> int:
    """Accesses of so many elements whose loads a lane issues before it uses the first; a power of two."""
    return max(1, min(MOST_STEPS, IN_FLIGHT // (vector * BY_NAME[value].itemsize)))


#: lanes beside each other, and in all, of a block that walks down columns
COLUMN_LANES, COLUMN_THREADS = 32, 512


def row_lanes(accesses: int, steps: int) -> int:
    """Lanes that share out a row of so many accesses: some of a warp, or a block where each would have many."""
    return THREADS if accesses > 32 * steps * 4 else min(32, 1 << max(accesses - 1, 0).bit_length())
