"""Matrices in place: scaled, converted, added to, or cleared."""

from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...device.vector import LOAD, STORE
from ...kernels.elements import accumulator_of, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import Assign


@jit.kernel
def assign(
    *, source: str, value: str, factor: str, vector: int, added: bool,
    threads_per_block: int = Assign.threads_per_block, items_per_thread: int = Assign.items_per_thread,
) -> Any:  # fmt: skip
    """``y[r, c] = factor · x[r, c]``, with ``added`` plus what y holds; one rounding. x may be y; where ``source`` is "" it is 1.

    The factor is ``number`` times what ``factor``, an element type or "", holds. ``parts`` blocks share a row, ``items_per_thread`` accesses a lane;
    rows lie ``x_row`` and ``y_row`` elements apart, columns ``x_column`` and ``y_column``, which are 1 where ``vector`` is more. Bytes: x read, y
    written.
    """
    wide, (y_widen, narrow) = accumulator_of(value), conversions_of(value)
    x_widen, factor_widen = conversions_of(source or value)[0], conversions_of(factor or value)[0]
    x_kind, y_kind, held, read = jit.SCALARS[source or value], jit.SCALARS[value], factor != "", source != ""
    load_x, load_y, store = LOAD[vector], LOAD[vector], STORE[vector]

    def assign(
        x: Ptr[source or value], by: Ptr[factor or wide], y: Ptr[value],
        number: Scalar[wide], columns: int64, parts: int64, x_row: int64, y_row: int64, x_column: int64, y_column: int64,
    ) -> None:  # fmt: skip
        raw, made = cuda.local.array(vector, x_kind), cuda.local.array(vector, y_kind)
        block = int64(cuda.blockIdx.x)
        row = block // parts
        first = (block - row * parts) * (threads_per_block * items_per_thread * vector) + cuda.threadIdx.x * vector
        scale = wide(number)
        if held:
            scale *= wide(factor_widen(by[0]))
        for step in range(items_per_thread):
            column = first + step * (threads_per_block * vector)
            if column < columns:
                if read:
                    load_x(x, row * x_row + column * x_column, raw, 0)
                if added:
                    load_y(y, row * y_row + column * y_column, made, 0)
                for k in range(vector):
                    found = scale
                    if read:
                        found *= wide(x_widen(raw[k]))
                    if added:
                        found += y_widen(made[k])
                    made[k] = narrow(found)
                store(y, row * y_row + column * y_column, made, 0)

    def launch_config(rows: int, columns: int) -> tuple[int, int, int]:
        return rows * -(-columns // (threads_per_block * items_per_thread * vector)), threads_per_block, 0

    return assign, launch_config
