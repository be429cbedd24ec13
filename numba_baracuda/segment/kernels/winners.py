"""Gradients that few rows have: zeros for all, then the gradient of each segment at the row that won."""

from typing import Any

from numba import cuda
from numba.cuda.types import float64, int32, int64

from ...core.dtypes import BY_NAME
from ...device.bits import f32_as_i32, f64_as_i64
from ...device.vector import STORE_STREAM
from ...kernels.elements import accumulator_type, quotient
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import Elements
from ..tiling import THREADS, Tiling, elements_launch


@jit.kernel
def clear_elements(
    *, value: str, threads_per_block: int = Elements.threads_per_block, items_per_thread: int = Elements.items_per_thread
) -> Any:  # fmt: skip
    """``output[e] = 0`` for every element, which are contiguous. Bytes: elements · value written.

    Constants and parameters as :mod:`.` lists them, and ``items_per_thread``: pieces of 16 bytes; ``elements``: their number.
    """
    element, vector, threads = jit.SCALARS[value], BY_NAME[value].vector, threads_per_block
    store, tile = STORE_STREAM[vector], threads_per_block * items_per_thread * vector

    def clear_elements(
        output: Ptr[value],
        elements: int64,
    ) -> None:  # fmt: skip
        zeros = cuda.local.array(vector, element)
        for v in range(vector):
            zeros[v] = element(0)
        begin = int64(cuda.blockIdx.x) * tile
        length = int32(min(int64(tile), elements - begin))
        for u in range(items_per_thread):
            first = int32((u * threads + cuda.threadIdx.x) * vector)
            if first + vector <= length:
                store(output, begin + first, zeros, 0)
            else:
                for v in range(vector):
                    if first + v < length:
                        output[begin + first + v] = element(0)

    return clear_elements, lambda elements: elements_launch(elements, vector, threads, items_per_thread)


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
