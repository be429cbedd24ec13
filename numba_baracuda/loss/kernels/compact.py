"""Rows that count: which they are, one behind the other, and apart from all others."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_scan
from ...device.vector import LOAD, STORE
from ...kernels.elements import accumulator_of, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..geometry import TOTAL_THREADS as THREADS
from ..policy import Assign


@jit.device
def class_of(target: Any, at: Any, ignore: Any, classes: Any) -> Any:
    """The class that a row is to have, −1 where the row is left out."""
    which = int64(target[at])
    return which if which != ignore and 0 <= which < classes else int64(-1)


@jit.kernel
def compact_rows(*, label: str) -> Any:
    """``order[k]`` = the k-th row r whose target is not ``ignore``, ``kept[k]`` its target, ``places[r]`` = k, and ``count[0]`` how many there are.

    Behind them ``order`` is −1 and ``kept`` is ``ignore``, and so is ``places`` −1 for other rows. One block, in the order of the rows.
    Bytes: rows targets read, three int64 each written.
    """
    scan = block_scan(Monoid("sum", (0,), lambda a, b: a + b), int32, THREADS, exclusive=True)

    def compact_rows(
        target: Ptr[label], order: Ptr[int64], kept: Ptr[int64], places: Ptr[int64], count: Ptr[int64],
        rows: int64, stride: int64, ignore: int64,
    ) -> None:  # fmt: skip
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

    def take_places(
        values: Ptr[int64], places: Ptr[int64], out: Ptr[int64],
        rows: int64, stride: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            place = places[row]
            out[row * stride] = values[place] if place >= 0 else int64(-1)

    return take_places, lambda rows: (-(-rows // THREADS), THREADS, 0)


@jit.kernel
def keep_rows(
    *, value: str, label: str, vector: int,
    threads_per_block: int = Assign.threads_per_block, items_per_thread: int = Assign.items_per_thread,
) -> Any:  # fmt: skip
    """``y[r] = x[r]`` where a row's target counts, else 0: in a product, a row whose gradient is 0 must not hold NaN or infinities.

    ``parts`` blocks share a row, ``items_per_thread`` accesses a lane. Bytes: rows of x that count read, y written.
    """
    wide, narrow, kind = accumulator_of(value), conversions_of(value)[1], jit.SCALARS[value]
    load, store, size, gap = LOAD[vector], STORE[vector], items_per_thread * vector, threads_per_block * vector

    def keep_rows(
        x: Ptr[value], target: Ptr[label], y: Ptr[value],
        columns: int64, parts: int64, x_first: int64, x_row: int64, y_first: int64, y_row: int64, first: int64, stride: int64, ignore: int64,
        classes: int64,
    ) -> None:  # fmt: skip
        raw = cuda.local.array(size, kind)
        block = int64(cuda.blockIdx.x)
        row = block // parts
        column = (block - row * parts) * (items_per_thread * gap) + cuda.threadIdx.x * vector
        for k in range(size):
            raw[k] = narrow(wide(0))
        if class_of(target, first + row * stride, ignore, classes) >= 0:
            for step in range(items_per_thread):
                if column + step * gap < columns:
                    load(x, x_first + row * x_row + column + step * gap, raw, step * vector)
        for step in range(items_per_thread):
            if column + step * gap < columns:
                store(y, y_first + row * y_row + column + step * gap, raw, step * vector)

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return rows * -(-columns // (items_per_thread * gap)), threads_per_block, 0

    return keep_rows, launch_config
