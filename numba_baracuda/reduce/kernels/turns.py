"""Turns: blocks of one launch that fold rows and use the results of rows that other blocks have folded, while caches hold these rows.

A counter numbers blocks in the order in which they begin. Turn t folds part t of all rows and leaves its state; the last block of a row to do so
combines all of them, and says that the row is folded. Then turn t uses the row of part t − lag, and waits until that is folded. ``lag`` is a multiple
of the parts of a row, so a block waits for blocks with smaller numbers alone: they run or are done, and fold before they wait. So every block ends,
however few run at a time.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.order import fetch_add, load_acquire, store_release
from ...runtime import jit

# ``arrivals`` holds, of ``rows`` rows, how many parts of each are folded, the number of the next turn, and whether each row is folded. All are 0
# before the launch. The threads of a block call these functions together.


@jit.device
def split_of_turn(turn: Any, splits: Any) -> Any:
    """(row, its split) of a turn, of rows that have ``splits`` splits each."""
    row = int64(uint32(turn) // uint32(splits)) if splits > 1 else turn
    return row, turn - row * splits


@jit.device
def next_turn(arrivals: Any, rows: Any, number: Any) -> Any:
    """The number of the block; ``number`` [1] is shared memory."""
    if cuda.threadIdx.x == 0:
        number[0] = fetch_add(arrivals, rows, int32(1))
    cuda.syncthreads()
    return int64(number[0])


@jit.device
def say_folded(arrivals: Any, rows: Any, row: Any) -> None:
    """Says that the row is folded, and its state stored."""
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        store_release(arrivals, rows + 1 + row, int32(1))


@jit.device
def await_folded(arrivals: Any, rows: Any, row: Any) -> None:
    """Waits until the row is folded; the block then sees its state."""
    if cuda.threadIdx.x == 0:
        while load_acquire(arrivals, rows + 1 + row) == 0:
            pass
    cuda.syncthreads()
