"""Device functions that the segment kernels share."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...core.dtypes import BY_NAME
from ...device.build import opaque, ptx
from ...device.vector import LOAD_ONCE
from ...runtime import jit
from ..tiling import Tiling

#: the id of what lies behind the last row or carry, and before the first
NOTHING = -2


@jit.device
def clamp(identifier: Any, segments: Any) -> Any:
    """An id as int64: −1 for all ids below 0, ``segments`` for all ids of ``segments`` or more. The order of ids stays."""
    wide = int64(identifier)
    if wide < 0:
        return int64(-1)
    return segments if wide > segments else wide


@jit.device
def first_at_least(sorted_numbers: Any, step: Any, first: Any, last: Any, least_number: Any) -> Any:
    """The first index in [first, last) whose number is at least ``least_number``, or ``last``.

    ``sorted_numbers`` ascend; ``step`` is the number of elements from one to the next.
    """
    low, high = int64(first), int64(last)
    while low < high:
        middle = (low + high) >> 1
        if int64(sorted_numbers[middle * step]) < least_number:
            low = middle + 1
        else:
            high = middle
    return low


@jit.device
def frequent_of_warp(identifier: Any) -> Any:
    """The id that most lanes of the warp hold."""
    crowd = int32(cuda.popc(cuda.match_any_sync(-1, identifier))) * int32(32) + cuda.laneid
    for step in (16, 8, 4, 2, 1):
        crowd = max(crowd, int32(cuda.shfl_xor_sync(-1, crowd, step)))
    return cuda.shfl_sync(-1, identifier, crowd & 31)


@functools.cache
def clearer_of(threads: int) -> Any:
    """``clear(array, count, zero)``: sets ``count`` elements of shared memory. All ``threads`` threads of the block call it, and find it done."""

    @jit.device
    def clear(array: Any, count: Any, zero: Any) -> None:
        k = int32(cuda.threadIdx.x)
        while k < count:
            array[k] = zero
            k = int32(opaque(k + threads))
        cuda.syncthreads()

    return clear


def ids_launch(rows: int) -> tuple[int, int, int]:
    """The launch of a thread for each id."""
    return Tiling.of_ids(rows).launch


@jit.device
def from_below(value: Any, held: Any) -> tuple[Any, Any]:
    """(Value of the lane below, in lane 0 ``held``; what lane 0 has as ``held`` next: the last lane's). All lanes of a warp call it."""
    neighbour = cuda.shfl_sync(-1, value, int32(cuda.laneid) + 31 & 31)
    # opaque, or the compiler would make branches of the loop around, of which each has the shuffles
    return held if int32(opaque(int32(cuda.laneid))) == 0 else neighbour, neighbour


@functools.cache
def count_of(differences: bool) -> Any:
    """``count(counts, segment)``: its rows; ``differences``: whether ``counts`` are offsets, whose differences counts are."""

    @jit.device
    def count(counts: Any, segment: Any) -> Any:
        return counts[segment + 1] - counts[segment] if differences else counts[segment]

    return count


@jit.device
def part_of(block: Any, blocks: Any, early: Any) -> Any:
    """Which of ``blocks`` parts of the rows is the block's, in an order that begins with the last ``early`` parts.

    Where ids are sorted by frequency, short runs and gaps crowd at one end. Blocks that meet them take longest and should not start last.
    """
    part = block + blocks - early
    return part if part < blocks else part - blocks


multiply_high = ptx(
    "multiply_high", "mul.hi.u32 $0, $1, $2;", uint32, (uint32, uint32), lambda x, y: x * y >> 32,
    "The upper 32 bits of x · y, by one instruction.",
)  # fmt: skip
multiply_high_wide = ptx(
    "multiply_high_wide", "mul.hi.u64 $0, $1, $2;", uint64, (uint64, uint64), lambda x, y: x * y >> 64, "The upper 64 bits of x · y.",
)  # fmt: skip


@jit.device
def first_row_of(offset: Any, reciprocal: Any) -> Any:
    """The row of the element ``offset``; ``reciprocal`` is :func:`~..tiling.reciprocal_of` the columns.

    A kernel that divides by an unknown number of 64 bits calls a function, and loads the descriptor of global memory anew for each access.
    """
    return int64(multiply_high_wide(uint64(offset) << uint64(1), uint64(reciprocal)))


@jit.device
def short_reciprocal(reciprocal: Any) -> Any:
    """⌊2^32 / columns⌋ + 1, from :func:`~..tiling.reciprocal_of` the columns."""
    return uint32((reciprocal - 1 >> 31) + 1)


@jit.device
def row_of(offset: Any, reciprocal: Any) -> Any:
    """The row of the element ``offset`` of a tile; ``reciprocal`` is :func:`short_reciprocal` of its columns, which are two or more."""
    return int32(multiply_high(uint32(offset), reciprocal))


@jit.device
def half_row_of(offset: Any, reciprocal: Any) -> Any:
    """:func:`row_of` where ``reciprocal`` is :func:`~..tiling.half_reciprocal_of` the columns, of which there may be one."""
    return int32(multiply_high(uint32(offset) << uint32(1), uint32(reciprocal)))


@functools.cache
def lane_ids_loader_of(index: str, share: int) -> Any:
    """``load(ids, first, mine, alike, current, batch_ids)``: ``share`` ids of a lane, of rows ``first`` + ``mine`` on.

    If those of the warp are all ``alike``, the id is ``current``, and none is loaded.
    """
    vector = BY_NAME[index].vector
    load_vector = LOAD_ONCE[vector]

    @jit.device
    def load(ids: Any, first: Any, mine: Any, alike: Any, current: Any, batch_ids: Any) -> None:
        if alike:
            for u in range(share):
                batch_ids[u] = current
        else:
            for k in range(share // vector):
                load_vector(ids, first + mine + k * vector, batch_ids, k * vector)

    return load


def coded_type(value: str) -> Any:
    """The type of the words in which ``device.red_max`` and ``red_min`` encode floats of an element's accumulator."""
    return jit.SCALARS[f"u{8 * BY_NAME[BY_NAME[value].accumulator].itemsize}"]


@functools.cache
def last_id_of(index: str) -> Any:
    """``last_id(segments)``: the greatest id that names a segment, in the type of ids."""
    index_type = jit.SCALARS[index]
    greatest = index_type.maxval

    @jit.device
    def last_id(segments: Any) -> Any:
        return index_type(min(segments - 1, greatest))

    return last_id
