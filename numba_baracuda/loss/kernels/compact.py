"""Rows that count: a list of them, what the list has for a row, and copies without the other rows."""

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
    """The target at offset ``at``; −1 where it is ``ignore`` or no class."""
    target_class = int64(target[at])
    return target_class if target_class != ignore and 0 <= target_class < classes else int64(-1)


@jit.kernel
def compact_rows(*, label: str) -> Any:
    """Lists the rows that count, in their order: ``row_indices[k]`` = the k-th such row r, ``counted_targets[k]`` its target, ``positions[r]`` = k.

    One block scans the rows, ``THREADS`` at a time. Bytes: rows · label read, 3 · rows · int64 written.

    Parameters: ``row_indices`` [rows]: −1 behind the last row that counts; ``counted_targets`` [rows]: ``ignore`` there; ``positions`` [rows]: −1 for
    rows that do not count; ``count`` [1]: how many count. Others as :mod:`.` lists them.
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
    """``out[r] = values[positions[r]]``, or −1 where the position is negative. Bytes: 2 · rows · int64 read, rows · int64 written.

    Parameters: ``values`` [rows that count]; ``positions`` [rows]: indices of values; ``out`` [rows]; ``out_stride``: elements of out from one row to
    the next. Others as :mod:`.` lists them.
    """

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
    """``y[r] = x[r]`` for rows with a gradient, else 0: in a product, NaN or infinities of other rows would spread even if their gradient is 0.

    Each block copies one part of a row, each thread up to ``items_per_thread`` vectors of it. Bytes: those rows of x read, y written.

    Parameters: ``x``, ``y`` [rows, columns]; ``x_offset``, ``y_offset``: elements before the first row; ``x_row_stride``, ``y_row_stride``: elements
    from one row to the next; ``target_offset``: elements before the first row's target. Others as :mod:`.` lists them.
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
