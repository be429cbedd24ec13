"""Statuses of blocks that look back: how many there are, and their size. Kernels and launches share it. Imports no Numba."""

from __future__ import annotations

from ..core.axes import ceil_div

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
