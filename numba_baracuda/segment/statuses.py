"""Statuses of blocks that look back: how many there are, and their size. Kernels and launches share it. Imports no Numba."""

from __future__ import annotations

from ..core.axes import ceil_div
from ..core.op import FRESH_BYTES

#: a span of blocks has 2 ** SPAN_BITS parts
SPAN_BITS = 2
#: more rows than a status of 32-bit states can count
STATUS_ROWS = 1 << 29


def status_words(scalars: int, itemsize: int) -> int:
    """128-bit words of a lane's status of ``scalars`` scalars of ``itemsize`` bytes; each word leaves room for one more, its flag."""
    return ceil_div(scalars, 16 // itemsize - 1)


def statuses_of(row_blocks: int) -> int:
    """Statuses that there is room for: those of all blocks and spans are no more."""
    return row_blocks + row_blocks // 3


def most_blocks(statuses: int) -> int:
    """The most row blocks of which :func:`statuses_of` is at most ``statuses``."""
    return (3 * statuses + 2) // 4


#: row blocks that may wait for the same one at a time: that which ends its run, and the last of a span of each size, where statuses take 16 bytes
MOST_WAITING = 1 + (most_blocks(FRESH_BYTES // 16).bit_length() - 1) // SPAN_BITS


def early_blocks(row_blocks: int, chunks: int, multiprocessors: int, looks_back: bool) -> int:
    """How many row blocks, the last ones, start first: an eighth.

    Of those that look back, a few wait for a block that starts last: the one in which its last run ends, and the last of each span across that place.
    They must leave others room to run, so that all start at some time; else no block starts early.
    """
    return 0 if looks_back and MOST_WAITING * chunks >= multiprocessors else row_blocks >> 3
