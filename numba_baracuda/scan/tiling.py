"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from collections.abc import Sequence

from ..axes import ceil_div
from ..dtypes import BY_NAME

#: threads in a block that scans rows, whose states are one number or several, in one that scans a tile of a long row, and in one that walks down columns
THREADS, HEAVY_THREADS, LONG_THREADS, COLUMN_THREADS = 256, 128, 256, 256
#: bytes of elements that a lane holds of a tile, along rows and across, where a state is one number and one is kept of each element
HELD_ROWS, HELD_COLUMNS = 128, 128
#: bytes of the widest access across rows, and those that a block accesses side by side
ACROSS, BESIDE = 16, 256
#: bytes of a row whose ends are taken one by one so that what lies between is accessed 16 bytes at a time
PEELED_BYTES = 1 << 10
#: rows for each multiprocessor that keep it busy, and tiles that a row needs to be shared out to blocks
BUSY_ROWS, LONG_TILES = 4, 2
#: tiles of a long row that are joined at once, a multiple of 32, and words before those that blocks leave for one another
GROUP, HEAD = 128, 2
#: resident blocks that a multiprocessor should hold of those that scan long rows
LONG_BLOCKS = 4
#: threads and tiles where kernels are emulated, so that small rows have several of each
FEW_THREADS, FEW_TILES = 64, 32
#: lanes that access a row side by side, if there are as many accesses, before a lane takes several that follow one another
BESIDE_LANES = 8


def power_of_two(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def steps_of(held: int, value: str, vector: int, weight: int) -> int:
    """Accesses of so many elements that a lane has of a tile, where they weigh ``weight`` times what plain ones do; a power of two."""
    most = held // (vector * max(4, BY_NAME[value].itemsize) * weight)
    return max(2, power_of_two(most + 1) // 2)


def dealt_row(accesses: int, steps: int, threads: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for rows of so many accesses: some lanes of a warp where these need few steps, else a block of up to ``threads``."""
    if accesses <= 32 * steps:
        steps = max(1, min(steps, power_of_two(accesses) // BESIDE_LANES))
        return power_of_two(ceil_div(accesses, steps)), steps, threads
    threads = min(threads, max(64, power_of_two(ceil_div(accesses, steps))))
    return threads, steps, threads


def column_lanes(accesses: int, nbytes: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous."""
    return max(1, min(32, BESIDE // nbytes, power_of_two(accesses)))


def pieces_of(bits: Sequence[int]) -> list[tuple[int, int]]:
    """(number of a 64-bit piece, shift in it) for each scalar of a state, of so many bits; two of 32 that follow one another share one."""
    places: list[tuple[int, int]] = []
    for each in bits:
        piece, shift = places[-1] if places else (-1, 32)
        places.append((piece, 32) if each == 32 and shift == 0 and bits[len(places) - 1] == 32 else (piece + 1, 0))
    return places


def words_of(bits: Sequence[int], rows: int, tiles: int, group: int) -> int:
    """64-bit words for chains of states over so many rows of so many tiles, ``group`` of which are joined at once; 0 joins as it comes."""
    items = rows * (tiles + (ceil_div(tiles, group) if group else 0))
    return HEAD + 2 * items * (pieces_of(bits)[-1][0] + 1)
