"""Prefetches to L2 of the logits that a block loads next."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...core.dtypes import BY_NAME
from ...device.vector import prefetch
from ...runtime import jit

#: bytes that one prefetch instruction loads to L2
_LINE_BYTES = 128


@functools.cache
def prefetch_of(value: str, vector: int, vector_stride: int, count: int) -> Any:
    """``prefetch_vectors(x, base, next_base, shared_end, vector_end, k)`` loads to L2 ``count`` vectors of each lane of a warp.

    They are those of the row at offset ``base`` from the lane's k-th vector after class ``shared_end`` on, ``vector_stride`` classes apart. Beyond
    class ``vector_end`` they are the first vectors of the row at offset ``next_base``, unless that is negative: no row follows.
    """
    vectors_per_line = _LINE_BYTES // (vector * BY_NAME[value].itemsize)
    lines_per_warp = 32 // vectors_per_line

    @jit.device
    def prefetch_vectors(x: Any, base: Any, next_base: Any, shared_end: Any, vector_end: Any, k: Any) -> None:
        warp_lane = int32(cuda.threadIdx.x % 32)
        if warp_lane < count * lines_per_warp:
            column = (
                shared_end + (k + warp_lane // lines_per_warp) * vector_stride
                + (cuda.threadIdx.x - warp_lane + warp_lane % lines_per_warp * vectors_per_line) * vector
            )  # fmt: skip
            sweep_end = shared_end + (vector_end - shared_end + vector_stride - 1) // vector_stride * vector_stride
            if column < vector_end:
                prefetch(x, base + column)
            elif next_base >= 0 and 0 <= column - sweep_end < vector_end:
                prefetch(x, next_base + column - sweep_end)

    return prefetch_vectors
