"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.axes import ceil_div, power_of_two


@dataclass(frozen=True)
class Weight:
    """How a sort of scan is dealt out: bytes of each operand that a lane holds of a tile, and how it accesses them."""

    row_bytes: int
    row_threads: int  #: in a block that scans rows, and at most in one that scans a row
    long_bytes: int  #: of rows that are shared out to blocks
    long_threads: int  #: in a block that scans a tile of such a row
    long_blocks: int  #: resident ones of these that a multiprocessor should hold
    column_bytes: int
    access_bytes: int  #: of the widest access across rows
    beside_bytes: int  #: that a block accesses side by side across rows
    half_beside: int  #: the same of halves
    column_blocks: int = 0  #: resident blocks that a multiprocessor should hold of those that walk down columns of 4-byte elements, and of halves
    half_blocks: int = 0
    row_blocks: int = 0  #: the same of those that scan rows of 4-byte elements
    strip_bytes: int = 128  #: that a block accesses side by side where columns are shared out to blocks
    strip_blocks: int = 4  #: resident ones of such blocks, of 4-byte elements
    strip_again: bool = True  #: whether what such a block reads twice is kept in L1


#: scans whose states are one number, or several; sums over runs of winners; affine maps
WEIGHTS = {
    "single": Weight(
        row_bytes=128, row_threads=256,
        long_bytes=128, long_threads=256, long_blocks=4,
        column_bytes=128, access_bytes=16, beside_bytes=256, half_beside=128, strip_bytes=64, strip_blocks=3,
    ),
    "several": Weight(
        row_bytes=128, row_threads=128,
        long_bytes=128, long_threads=256, long_blocks=5,
        column_bytes=64, access_bytes=16, beside_bytes=128, half_beside=64, column_blocks=4, half_blocks=4,
    ),
    "runs": Weight(
        row_bytes=64, row_threads=128,
        long_bytes=128, long_threads=256, long_blocks=3,
        column_bytes=32, access_bytes=8, beside_bytes=128, half_beside=128, column_blocks=4, row_blocks=7, strip_again=False,
    ),
    "affine": Weight(
        row_bytes=64, row_threads=128,
        long_bytes=64, long_threads=256, long_blocks=4,
        column_bytes=32, access_bytes=16, beside_bytes=128, half_beside=128, row_blocks=6,
    ),
}  # fmt: skip
#: scans by users' monoids, of which nobody knows how many registers they take
WEIGHTS |= {
    f"foreign_{name}": replace(WEIGHTS[name], long_blocks=2, column_blocks=0, half_blocks=0, strip_blocks=2) for name in ("single", "several")
}
#: resident blocks that scan long rows, at most, where their tiles are joined as they come, and where elements are doubles
EARLY_BLOCKS, DOUBLE_BLOCKS = 4, 3
#: bytes of the widest access along rows, and of the results that it gives
ACCESS, RESULT_ACCESS = 16, 32
#: bytes of the widest access across rows of halves
HALF_ACCESS = 8
#: threads in a block that walks down columns
COLUMN_THREADS = 256
#: bytes that memory is read by at most, where a tile had better begin
LINE_BYTES = 128
#: bytes of a row whose ends are taken one by one so that what lies between is accessed 16 bytes at a time
PEELED_BYTES = 1 << 10
#: rows for each multiprocessor that keep it busy, and tiles that a row needs to be shared out to blocks
BUSY_ROWS, LONG_TILES = 4, 2
#: bytes beside each other for each multiprocessor up to which columns are shared out to blocks, and 1 / the share of what is read that the words of
#: their chains may be
FEW_BYTES, WORDS_SHARE = 128, 100
#: resident blocks that scan such columns of doubles
DOUBLE_STRIPS = 2
#: tiles of all strips that pass while a group of one's hears from that before, and the least and most of a strip that are joined at once
APART, LEAST_GROUP, MOST_GROUP = 64, 8, 64
#: tiles of rows for each multiprocessor that a block calls up ahead of its own
AHEAD = 1
#: tiles of a long row that are joined at once, and words before those that blocks leave for one another
GROUP, HEAD = 32, 2
#: threads that share out a tile of a long row where kernels are emulated, so that small rows have several
FEW_THREADS = 64
#: elements of a tile that a lane has at most: it marks them in a word of so many bits; and accesses, whatever their width
MOST_ELEMENTS, MOST_STEPS = 64, 16
#: bytes of shared memory that a lane has at most for its part of all operands, and that resident blocks have together
LANE_BYTES, SHARED_BYTES = 256, 224 << 10
#: resident blocks where elements are accessed one by one, which takes more registers
SINGLE_BLOCKS = 2
#: lanes that access a row side by side, if there are as many accesses, before a lane takes several that follow one another
BESIDE_LANES = 8


def steps_of(nbytes: int, vector: int, size: int) -> int:
    """Accesses of ``vector`` elements of ``size`` bytes for ``nbytes`` of a tile in a lane, as far as it may have so many; a power of two."""
    most = min(min(nbytes // size, MOST_ELEMENTS) // vector, MOST_STEPS)
    return max(1, power_of_two(most + 1) // 2)


def dealt_row(accesses: int, steps: int, threads: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for rows of so many accesses: some lanes of a warp where these need few steps, else a block of up to ``threads``."""
    if accesses <= 32 * steps:
        steps = max(1, min(steps, power_of_two(accesses) // BESIDE_LANES))
        return power_of_two(ceil_div(accesses, steps)), steps, threads
    threads = min(threads, max(64, power_of_two(ceil_div(accesses, steps))))
    return threads, steps, threads


def column_lanes(accesses: int, nbytes: int, beside: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous, ``beside`` bytes if there are as many."""
    return max(1, min(32, beside // nbytes, power_of_two(accesses)))


def pieces_of(bits: Sequence[int]) -> list[tuple[int, int]]:
    """(number of a 64-bit piece, shift in it) for each scalar of a state, of so many bits; two of 32 that follow one another share one."""
    places: list[tuple[int, int]] = []
    for each in bits:
        piece, shift = places[-1] if places else (-1, 32)
        places.append((piece, 32) if each == 32 and shift == 0 and bits[len(places) - 1] == 32 else (piece + 1, 0))
    return places


def tall_tile(bits: Sequence[int], places: int, nbytes: int) -> tuple[int, int]:
    """(batches of so many places, their places) of a tile of columns, so that the words of its states are few beside its elements of ``nbytes``."""
    times = ceil_div(WORDS_SHARE * 16 * (pieces_of(bits)[-1][0] + 1), places * nbytes)
    return times, times * places


def group_of(strips: int) -> int:
    """Tiles of a strip that are joined at once."""
    return max(LEAST_GROUP, min(MOST_GROUP, power_of_two(ceil_div(APART, strips))))


def words_of(bits: Sequence[int], items: int) -> int:
    """64-bit words for chains of so many states."""
    return HEAD + 2 * items * (pieces_of(bits)[-1][0] + 1)
