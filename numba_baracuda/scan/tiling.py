"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from ..axes import ceil_div
from ..dtypes import BY_NAME

#: threads in a block whose groups of lanes are no wider than a warp, and in one that walks down columns
THREADS, COLUMN_THREADS = 256, 256
#: bytes that a lane holds of a tile in the accumulator's type, along rows and across
HELD_ROWS, HELD_COLUMNS = 64, 128
#: bytes that a block accesses side by side across rows
BESIDE = 128
#: bytes of a row whose ends are taken one by one so that what lies between is accessed 16 bytes at a time
PEELED_BYTES = 1 << 10


def power_of_two(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def steps_of(held: int, value: str, vector: int, items: int) -> int:
    """Accesses of so many elements that a lane has of a tile, where ``items`` numbers are kept of each; a power of two."""
    wide = BY_NAME[BY_NAME[value].accumulator].itemsize
    most = held * (4 // BY_NAME[value].itemsize if BY_NAME[value].itemsize < 4 else 1) // (wide * vector * power_of_two(items))
    return max(1, power_of_two(most + 1) // 2)


def dealt_row(accesses: int, steps: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for rows of so many accesses: some lanes of a warp where these need few steps, else a block."""
    if accesses <= 32 * steps:
        lanes = min(32, power_of_two(accesses))
        return lanes, ceil_div(accesses, lanes), THREADS
    threads = min(THREADS, max(64, power_of_two(ceil_div(accesses, steps))))
    return threads, steps, threads


def column_lanes(accesses: int, nbytes: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous."""
    return max(1, min(32, BESIDE // nbytes, power_of_two(accesses)))
