"""Turns: blocks of one launch that fold rows and use the results of rows that other blocks have folded, while caches hold these rows.

A counter numbers blocks in the order in which they begin. Turn t folds part t of all rows, and leaves its state and one more arrival for its row.
Then it uses the row of part t − lag, and waits until all parts of that have arrived. ``lag`` is a multiple of the parts of a row, so it waits for
blocks with smaller numbers alone: they run or are done, and fold before they wait. So every block ends, however few run at a time.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.order import fetch_add, fetch_add_acq_rel, load_acquire
from ...runtime import jit


@jit.device
def split_of_turn(turn: Any, splits: Any) -> Any:
    """(row, its split) of a turn, of rows that have ``splits`` splits each."""
    row = int64(uint32(turn) // uint32(splits)) if splits > 1 else turn
    return row, turn - row * splits


@functools.cache
def turns_of() -> tuple[Any, Any, Any]:
    """(``next_turn``, ``arrive``, ``await_all``), which all threads of a block call together.

    ``arrivals`` holds a counter for each of ``rows`` rows, and one of turns, all 0 before the launch. ``next_turn(arrivals, rows)`` numbers the
    block. ``arrive(arrivals, row)`` follows the stores of a part, and ``await_all(arrivals, row, splits)`` returns when these are visible of all parts.
    """

    @jit.device
    def next_turn(arrivals: Any, rows: Any) -> Any:
        number = cuda.shared.array(1, int32)
        if cuda.threadIdx.x == 0:
            number[0] = fetch_add(arrivals, rows, int32(1))
        cuda.syncthreads()
        return int64(number[0])

    @jit.device
    def arrive(arrivals: Any, row: Any) -> None:
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            fetch_add_acq_rel(arrivals, row, int32(1))

    @jit.device
    def await_all(arrivals: Any, row: Any, splits: Any) -> None:
        if cuda.threadIdx.x == 0:
            while load_acquire(arrivals, row) < splits:
                pass
        cuda.syncthreads()

    return next_turn, arrive, await_all
