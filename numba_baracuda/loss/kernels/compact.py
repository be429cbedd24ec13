"""Rows that count, one behind the other."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_scan
from ...runtime import jit
from ..geometry import TOTAL_THREADS as THREADS


@jit.kernel
def compact_rows() -> Any:
    """``order[k]`` = the k-th row r whose target is not ``ignore``, ``kept[k]`` its target, ``places[r]`` = k, and ``count[0]`` how many there are.

    Behind them ``order`` is −1 and ``kept`` is ``ignore``, and so is ``places`` −1 for other rows. One block, in the order of the rows.
    Bytes: rows targets read, three int64 each written.
    """
    scan = block_scan(Monoid("sum", (0,), lambda a, b: a + b), int32, THREADS, exclusive=True)

    def compact_rows(target: Any, order: Any, kept: Any, places: Any, count: Any, rows: Any, stride: Any, ignore: Any) -> None:
        first, done = int64(0), int64(0)
        while first < rows:
            row = first + cuda.threadIdx.x
            which = int64(ignore)
            if row < rows:
                which = int64(target[row * stride])
            wanted = which != ignore
            before, total = scan(int32(wanted))
            if wanted:
                order[done + before], kept[done + before] = row, which
            if row < rows:
                places[row] = done + before if wanted else int64(-1)
            done += total
            first += THREADS
        row = done + cuda.threadIdx.x
        while row < rows:
            order[row], kept[row] = int64(-1), int64(ignore)
            row += THREADS
        if cuda.threadIdx.x == 0:
            count[0] = done

    return compact_rows, lambda rows: (1, THREADS, 0)


@jit.kernel
def take_places() -> Any:
    """``out[r] = values[places[r]]``, or −1 where that is no place. Bytes: rows places and values read, and written."""

    def take_places(values: Any, places: Any, out: Any, rows: Any, stride: Any) -> None:
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            place = places[row]
            out[row * stride] = values[place] if place >= 0 else int64(-1)

    return take_places, lambda rows: (-(-rows // THREADS), THREADS, 0)
