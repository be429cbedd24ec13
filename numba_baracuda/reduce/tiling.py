"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME

#: threads in a block whose groups are no wider than a warp, and in one that walks down columns
THREADS = 256
#: bytes whose loads a lane issues before it uses the first, and the most accesses for them
IN_FLIGHT, MOST_STEPS = 64, 16
#: times as many where there is so little to read that a block for a row would wait for its warps longer than a warp for its accesses
FEW_TIMES = 2
#: bytes that a block reads side by side across rows
BESIDE = 512
#: times that a lane issues as many before it is done with a gradient, along rows and across
GIVEN_ROWS, GIVEN_COLUMNS = 2, 4
#: times that a group does so over a row before the row is split, which make up for the launch that joins the parts
PASSES = 4
#: blocks for each multiprocessor that keep the memory busy, along rows and across, where they have more to do in the end
BLOCKS_ROWS, BLOCKS_COLUMNS = 16, 8
#: a row of so many accesses or fewer belongs to a warp where there are as many rows for each multiprocessor
WARP_ACCESSES, WARP_ROWS = 2048, 32
#: bytes of rows without gaps that a block keeps in shared memory where accesses to single rows would be narrower than ``STAGED_BELOW``, and elements
#: that a lane takes from there at a time
STAGED_BYTES, STAGED_BELOW, STAGED_STEPS = 40 << 10, 8, 8
#: bytes of a line of neighbours whose ends are taken one by one so that what lies between is accessed 16 bytes at a time
PEELED_BYTES = 1 << 10
#: parts of a row that a lane joins for itself
JOINED = 4


def steps_of(value: str, vector: int) -> int:
    """Accesses of so many elements whose loads a lane issues before it uses the first; a power of two."""
    return max(1, min(MOST_STEPS, IN_FLIGHT // (vector * BY_NAME[value].itemsize)))


def row_lanes(accesses: int, steps: int, rows: int, multiprocessors: int) -> int:
    """Lanes that share out a row of so many accesses: some of a warp, or a block where a warp would take long and other warps have no rows."""
    alone = accesses <= 32 * steps or (accesses <= WARP_ACCESSES and rows >= WARP_ROWS * multiprocessors)
    return min(32, power_of_two(accesses)) if alone else THREADS


def short_row(accesses: int, lanes: int, most: int) -> tuple[int, int]:
    """(accesses of a lane to each row, rows that its group takes at a time), up to ``most``; (0, 0) where a row takes more, or none.

    The rows are a power of two.
    """
    steps = ceil_div(accesses, lanes)
    return (steps, power_of_two(most // steps + 1) // 2) if 0 < steps <= most else (0, 0)


def few_rows(accesses: int, rows: int, steps: int) -> int:
    """Accesses of a lane to each row where a warp takes a whole row at once that a block would take otherwise; 0 where it does not.

    It does where all rows together are no more than a block has in flight.
    """
    own = ceil_div(accesses, 32)
    return own if steps < own <= min(FEW_TIMES * steps, MOST_STEPS) and rows * accesses <= THREADS * steps else 0


def staged_lanes(row_bytes: int) -> int:
    """Lanes that share out a row of so many bytes from shared memory; 0 where a block would keep fewer than 16 rows."""
    lanes = 1
    while THREADS // lanes * row_bytes > STAGED_BYTES:
        lanes *= 2
    return lanes if lanes <= THREADS // 16 else 0


def join_lanes(splits: int) -> int:
    """Lanes that share out the parts of a row."""
    return min(32, power_of_two(ceil_div(splits, JOINED)))


def column_lanes(accesses: int, nbytes: int, extent: int, steps: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous and columns of ``extent`` places.

    At least as many as lie beside each other, up to ``BESIDE`` bytes; and so many that each lane has ``steps`` places.
    """
    lanes = min(max(32, BESIDE // nbytes), power_of_two(accesses), THREADS)
    while lanes < THREADS and THREADS // lanes * steps > extent:
        lanes *= 2
    return lanes


def splits_for(blocks: int, extent: int, step: int, wanted_blocks: int) -> tuple[int, int]:
    """(parts of each row, places of a part), a multiple of ``step``: enough for as many blocks as are wanted, as far as rows are long enough."""
    wanted = ceil_div(wanted_blocks, max(blocks, 1))
    most = max(1, extent // (PASSES * step))
    chunk = ceil_div(ceil_div(extent, min(wanted, most)), step) * step
    return (ceil_div(extent, chunk), chunk) if 0 < chunk < extent else (1, extent)
