"""Element-wise assignment of matrices: set, scale, convert, add."""

from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...device.vector import LOAD, STORE
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import Assign


@jit.kernel
def assign(
    *, source: str, value: str, factor: str, vector: int, accumulate: bool,
    threads_per_block: int = Assign.threads_per_block, items_per_thread: int = Assign.items_per_thread,
) -> Any:  # fmt: skip
    """``y[r, c] = factor · x[r, c]``, plus the former y[r, c] with ``accumulate``; rounded once.

    Each block stores one part of a row of y, each thread up to ``items_per_thread`` vectors of it. Bytes: x read, y written, and read with
    ``accumulate``.

    Constants: ``source``: the element type of x, or "": x is 1 everywhere; ``value``: that of y; ``factor``: that of ``factor_value``, or ""; where
    ``vector`` > 1, both column strides are 1. Parameters: ``x`` [rows, columns], may be y; ``y`` [rows, columns]; the factor is ``number`` ·
    ``factor_value`` [1]; ``x_row_stride``, ``y_row_stride``: elements from one row to the next; ``x_column_stride``, ``y_column_stride``: from one
    column to the next. Others as :mod:`.` lists them.
    """
    wide, (y_widen, narrow) = accumulator_type(value), conversions_of(value)
    x_widen, factor_widen = conversions_of(source or value)[0], conversions_of(factor or value)[0]
    x_kind, y_kind, has_factor, reads_x = jit.SCALARS[source or value], jit.SCALARS[value], factor != "", source != ""
    load_x, load_y, store = LOAD[vector], LOAD[vector], STORE[vector]

    def assign(
        x: Ptr[source or value], factor_value: Ptr[factor or wide], y: Ptr[value],
        number: Scalar[wide], columns: int64, blocks_per_row: int64,
        x_row_stride: int64, y_row_stride: int64, x_column_stride: int64, y_column_stride: int64,
    ) -> None:  # fmt: skip
        x_values, y_values = cuda.local.array(vector, x_kind), cuda.local.array(vector, y_kind)
        block = int64(cuda.blockIdx.x)
        row = block // blocks_per_row
        begin = (block - row * blocks_per_row) * (threads_per_block * items_per_thread * vector) + cuda.threadIdx.x * vector
        scale = wide(number)
        if has_factor:
            scale *= wide(factor_widen(factor_value[0]))
        for step in range(items_per_thread):
            column = begin + step * (threads_per_block * vector)
            if column < columns:
                if reads_x:
                    load_x(x, row * x_row_stride + column * x_column_stride, x_values, 0)
                if accumulate:
                    load_y(y, row * y_row_stride + column * y_column_stride, y_values, 0)
                for k in range(vector):
                    result = scale
                    if reads_x:
                        result *= wide(x_widen(x_values[k]))
                    if accumulate:
                        result += y_widen(y_values[k])
                    y_values[k] = narrow(result)
                store(y, row * y_row_stride + column * y_column_stride, y_values, 0)

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return rows * -(-columns // (threads_per_block * items_per_thread * vector)), threads_per_block, 0

    return assign, launch_config
