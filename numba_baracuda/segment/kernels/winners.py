"""Gradients that few rows have: that of each segment is stored at the row that won."""

from typing import Any

from numba import cuda
from numba.cuda.types import float64, int64

from ...device.bits import f32_as_i32, f64_as_i64
from ...kernels.elements import accumulator_type, quotient
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..tiling import THREADS, Tiling


@jit.kernel
def scatter_to_winners(*, value: str) -> Any:
    """``output[folded[s, c], c] = source[s, c]`` for every segment s and column c where ``folded[s, c]`` is a row.

    ``folded`` [segments, columns] holds row indices as the bits of a number of the accumulator's type. ``output`` is contiguous, and so are the rows
    of ``source``. Bytes: segments · columns · (value + accumulator) read, segments · columns · value written, each in a sector of its own.

    Parameters as :mod:`.` lists them.
    """
    bits = f64_as_i64 if accumulator_type(value) == float64 else f32_as_i32

    def scatter_to_winners(
        source: Ptr[value], folded: Ptr[accumulator_type(value)], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, source_row: int64,
    ) -> None:  # fmt: skip
        place = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if place < segments * columns:
            row = bits(folded[place])
            if 0 <= row < rows:
                segment = quotient(place, columns)
                column = place - segment * columns
                output[row * columns + column] = source[segment * source_row + column]

    return scatter_to_winners, lambda segments, columns: Tiling.of_ids(segments * columns).launch
