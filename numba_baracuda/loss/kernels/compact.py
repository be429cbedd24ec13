"""Rows that count: which they are, one behind the other, and apart from all others."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_scan
from ...device.vector import LOAD, STORE
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..geometry import TOTAL_THREADS as THREADS
from ..policy import Assign


@jit.device
def target_class_of(target: Any, at: Any, ignore: Any, classes: Any) -> Any:
    """The class that a row is to have, −1 where the row is left out."""
    target_class = int64(target[at])
    return target_class if target_class != ignore and 0 <= target_class < classes else int64(-1)


@jit.kernel
def compact_rows(*, label: str) -> Any:
    """``order[k]`` = the k-th row r whose target is not ``ignore``, ``kept[k]`` its target, ``places[r]`` = k, and ``count[0]`` how many there are.

    Behind them ``order`` is −1 and ``kept`` is ``ignore``, and so is ``places`` −1 for other rows. One block, in the order of the rows.
    Bytes: rows targets read, three int64 each written.
    """
    scan = block_scan(Monoid("sum", (0,), lambda a, b: a + b), int32, THREADS, exclusive=True)

    def compact_rows(
        target: Ptr[label], row_indices: Ptr[int64], counted_targets: Ptr[int64], positions: Ptr[int64], count: Ptr[int64],
        rows: int64, target_stride: int64, ignore: int64,
    ) -> None:  # fmt: skip
        begin, found = int64(0), int64(0)
        while begin < rows:
            row = begin + cuda.threadIdx.x
            target_class = int64(ignore)
            if row < rows:
                target_class = int64(target[row * target_stride])
            counts = target_class != ignore
            rank, block_count = scan(int32(counts))
            if counts:
                row_indices[found + rank], counted_targets[found + rank] = row, target_class
            if row < rows:
                positions[row] = found + rank if counts else int64(-1)
            found += block_count
            begin += THREADS
        row = found + cuda.threadIdx.x
        while row < rows:
            row_indices[row], counted_targets[row] = int64(-1), int64(ignore)
            row += THREADS
        if cuda.threadIdx.x == 0:
            count[0] = found

    return compact_rows, lambda rows: (1, THREADS, 0)


@jit.kernel
def gather_values() -> Any:
    """``out[r] = values[places[r]]``, or −1 where that is no place. Bytes: rows places and values read, and written."""

    def gather_values(
        values: Ptr[int64], positions: Ptr[int64], out: Ptr[int64],
        rows: int64, out_stride: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            position = positions[row]
            out[row * out_stride] = values[position] if position >= 0 else int64(-1)

    return gather_values, lambda rows: (-(-rows // THREADS), THREADS, 0)


@jit.kernel
def mask_rows(
    *, value: str, label: str, vector: int,
    threads_per_block: int = Assign.threads_per_block, items_per_thread: int = Assign.items_per_thread,
) -> Any:  # fmt: skip
    """``y[r] = x[r]`` where a row's target counts, else 0: in a product, a row whose gradient is 0 must not hold NaN or infinities.

    ``parts`` blocks share a row, ``items_per_thread`` accesses a lane. Bytes: rows of x that count read, y written.
    """
    wide, narrow, kind = accumulator_type(value), conversions_of(value)[1], jit.SCALARS[value]
    load, store, size, vector_stride = LOAD[vector], STORE[vector], items_per_thread * vector, threads_per_block * vector

    def mask_rows(
        x: Ptr[value], target: Ptr[label], y: Ptr[value],
        columns: int64, blocks_per_row: int64, x_offset: int64, x_row_stride: int64, y_offset: int64, y_row_stride: int64,
        target_offset: int64, target_stride: int64, ignore: int64, classes: int64,
    ) -> None:  # fmt: skip
        values = cuda.local.array(size, kind)
        block = int64(cuda.blockIdx.x)
        row = block // blocks_per_row
        column = (block - row * blocks_per_row) * (items_per_thread * vector_stride) + cuda.threadIdx.x * vector
        for k in range(size):
            values[k] = narrow(wide(0))
        if target_class_of(target, target_offset + row * target_stride, ignore, classes) >= 0:
            for step in range(items_per_thread):
                if column + step * vector_stride < columns:
                    load(x, x_offset + row * x_row_stride + column + step * vector_stride, values, step * vector)
        for step in range(items_per_thread):
            if column + step * vector_stride < columns:
                store(y, y_offset + row * y_row_stride + column + step * vector_stride, values, step * vector)

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return rows * -(-columns // (items_per_thread * vector_stride)), threads_per_block, 0

    return mask_rows, launch_config
