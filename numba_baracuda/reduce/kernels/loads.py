"""Which rows, and which split of them, a block has; and the vectorized loads that a lane issues before it uses the first."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.vector import LOAD_ONCE, LOAD_STREAM
from ...kernels.elements import strided_offset_of
from ...runtime import jit


@jit.device
def split_of_block(splits: Any) -> Any:
    """(index of the block's rows, index of their split): consecutive blocks have the ``splits`` splits of the same rows."""
    block = int64(cuda.blockIdx.x)
    row_block = int64(uint32(block) // uint32(splits))
    return row_block, block - row_block * splits


@jit.device
def lane_of_group(lanes: Any) -> Any:
    """(group, lane in the group) of this thread, where groups have ``lanes`` neighbouring lanes."""
    thread = uint32(cuda.threadIdx.x)
    group = thread // uint32(lanes)
    return int32(group), int32(thread - group * uint32(lanes))


@functools.cache
def vector_loads(value: str, vector: int, stride: int, dims: int, steps: int, reused: bool = False) -> tuple[Any, Any]:
    """(``fetch``, ``fetch_some``): a lane loads ``steps`` vectors of ``vector`` elements, ``stride`` positions from one to the next, into registers.

    ``fetch(x, base, position, shape, strides, batch, batch_offset)`` loads all of them to ``batch[batch_offset:]``. A position counts elements of a
    row, which begins at offset ``base`` of ``x`` and has extents ``shape`` [dims] and ``strides`` [dims], in elements.
    ``fetch_some(x, base, position, end, safe, …)`` loads the vectors that begin before position ``end`` and returns their number. Instead of
    the others it loads the vector at position ``safe``: the compiler would wait for a load inside a branch before it issues the next.
    ``reused``: the row is read once more, so the loads let the caches keep it.
    """
    load, offset_of = (LOAD_ONCE if reused else LOAD_STREAM)[vector], strided_offset_of(dims)

    @jit.device
    def fetch(x: Any, base: Any, position: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any) -> None:
        for s in range(steps):
            load(x, base + offset_of(position + s * stride, shape, strides), batch, batch_offset + s * vector)

    @jit.device
    def fetch_some(x: Any, base: Any, position: Any, end: Any, safe: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any) -> Any:
        valid = int32(0)
        for s in range(steps):
            inside = position + s * stride < end
            load(x, base + offset_of(position + s * stride if inside else safe, shape, strides), batch, batch_offset + s * vector)
            valid = int32(valid + int32(inside))
        return valid

    return fetch, fetch_some


@functools.cache
def peeled_loads(value: str, vector: int, stride: int, dims: int, steps: int) -> Any:
    """``fetch_each(x, base, low, high, position, end, shape, strides, batch)``: ``fetch_some`` across columns, element by element.

    The elements of a vector belong to the ``vector`` columns from offset ``base`` on. Only the columns ``low`` to ``high`` − 1 of them exist; the
    elements of the others are set to 0.
    """
    element, offset_of = jit.SCALARS[value], strided_offset_of(dims)

    @jit.device
    def fetch_each(x: Any, base: Any, low: Any, high: Any, position: Any, end: Any, shape: Any, strides: Any, batch: Any) -> Any:
        valid = int32(0)
        for s in range(steps):
            inside = position + s * stride < end
            offset = base + offset_of(position + s * stride if inside else position, shape, strides)
            for v in range(vector):
                batch[s * vector + v] = element(0)
                if low <= v < high:
                    batch[s * vector + v] = x[offset + v]
            valid = int32(valid + int32(inside))
        return valid

    return fetch_each
