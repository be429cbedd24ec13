"""Which part of which rows a block takes, and the accesses that a lane has in flight."""

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
    """(block of rows, part of these rows) of this block; the parts of the same rows follow one another."""
    block = int64(cuda.blockIdx.x)
    row_block = int64(uint32(block) // uint32(splits))
    return row_block, block - row_block * splits


@jit.device
def lane_of_group(lanes: Any) -> Any:
    """(group, lane in it) of this thread."""
    thread = uint32(cuda.threadIdx.x)
    group = thread // uint32(lanes)
    return int32(group), int32(thread - group * uint32(lanes))


@functools.cache
def vector_loads(value: str, vector: int, stride: int, dims: int, steps: int, reused: bool = False) -> tuple[Any, Any]:
    """``fetch(x, base, position, shape, strides, batch, at)``: ``steps`` accesses of ``vector`` elements, ``gap`` places apart, to ``batch[at:]``.

    And ``fetch_some(x, base, position, last, spare, …)`` of those that begin before ``last``; how many there are. The others read ``spare``: a load
    in a branch would be waited for before the next is issued. ``again`` says that they will be wanted once more.
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
    """``fetch_each(x, column, low, high, position, last, shape, strides, batch)``: ``fetch_some`` element by element.

    Of the ``vector`` columns from ``column`` on only those from the ``low``-th to the one before the ``high``-th are there; others are made 0.
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
