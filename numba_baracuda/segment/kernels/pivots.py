"""Results of sums about pivots, which atomics have found and added up for ids in any order."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.atomics import RED_MAX_FILL, red_max_value
from ...device.bits import recast
from ...device.vector import LOAD, STORE
from ...kernels.batch import typed_monoid
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import RowWise
from .common import coded_type
from .rows import position_of, rows_launch


@jit.kernel
def finish_pivots(
    *, monoid: str, value: str, vector: int, lanes: int, cut: bool, dims: int, threads_per_block: int = RowWise.threads_per_block
) -> Any:  # fmt: skip
    """``output[s] = finish((pivots[s], sums[s]))``, or ``empty`` where no row has a pivot. Bytes: segments · columns · (2 · accumulator + value).

    Constants and parameters as :mod:`.` lists them, where ``rows`` are segments, and ``pivots``, ``sums`` [segments, columns]: what
    :func:`scatter_rows` has left, of the accumulator's type, contiguous; ``pivots`` are encoded as in ``device.red_max``.
    """
    element, wide = jit.SCALARS[value], accumulator_type(value)
    coded, nothing = coded_type(value), RED_MAX_FILL[str(wide)]
    finish, narrow = jit.device(typed_monoid(monoid, value).finish), conversions_of(value)[1]
    load, store, offset_of = LOAD[vector], STORE[vector], strided_offset_of(dims)
    group_position = position_of(threads_per_block, lanes, vector, 1, cut)

    def finish_pivots(
        pivots: Ptr[wide], sums: Ptr[wide], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, empty: Scalar[wide], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        words = cuda.local.array(vector, coded)
        totals = cuda.local.array(vector, wide)
        results = cuda.local.array(vector, element)
        row, column = group_position(columns, chunks)
        if column < columns and row < rows:
            load(recast(pivots, coded), row * columns + column, words, 0)
            load(sums, row * columns + column, totals, 0)
            for v in range(vector):
                result = finish((red_max_value(words[v], wide(0)), totals[v]), int32(1), wide(1))
                results[v] = narrow(empty if words[v] == coded(nothing) else result)
            store(output, row * output_row + offset_of(column, shape, output_strides), results, 0)

    return finish_pivots, rows_launch(threads_per_block, vector, 1)
