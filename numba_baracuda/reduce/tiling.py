"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from ..axes import ceil_div

#: threads in a block whose groups are no wider than a warp, and in one that walks down columns
THREADS = 256
#: accesses whose loads a lane issues before it uses the first
STEPS = 4
#: passes of ``STEPS`` accesses that a group makes over a row before the row is split, and that make up for the launch that joins the parts
PASSES = 4
#: blocks for each multiprocessor that keep the memory busy
BLOCKS = 8
#: a row of so many accesses or fewer belongs to a warp, or to some of its lanes
WARP_ACCESSES = 32 * STEPS * PASSES


def power_of_two(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def row_lanes(accesses: int) -> int:
    """Lanes that share out a row of so many accesses: side by side in a warp, and a block where each would have many."""
    return THREADS if accesses > WARP_ACCESSES else min(32, power_of_two(accesses))


def short_row(accesses: int, lanes: int) -> tuple[int, int]:
    """(accesses of a lane to each row, rows that its group takes at a time), together up to ``STEPS``; (0, 0) where a row takes more."""
    steps = max(1, ceil_div(accesses, lanes))
    return (steps, STEPS // steps) if steps <= STEPS else (0, 0)


def column_lanes(accesses: int, extent: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` wide where they are contiguous and columns of ``extent`` places.

    At least as many as lie beside each other, up to a warp; and so many that each lane has ``STEPS`` places.
    """
    lanes = min(32, power_of_two(accesses))
    while lanes < THREADS and THREADS // lanes * STEPS > extent:
        lanes *= 2
    return lanes


def splits_for(blocks: int, extent: int, step: int, multiprocessors: int) -> tuple[int, int]:
    """(parts of each row, places of a part), a multiple of ``step``: enough for every multiprocessor to be busy, as far as rows are long enough."""
    wanted = ceil_div(BLOCKS * multiprocessors, max(blocks, 1))
    most = max(1, extent // (PASSES * step))
    chunk = ceil_div(ceil_div(extent, min(wanted, most)), step) * step
    return (ceil_div(extent, chunk), chunk) if 0 < chunk < extent else (1, extent)
