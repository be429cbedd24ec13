"""Kernels that read ids alone and count the rows of each segment: in global memory, or first in the shared memory of each block."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.atomics import red_add
from ...device.build import opaque
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import CountFewIds, PerId
from ..tiling import THREADS, Tiling


@jit.device
def frequent_of_warp(identifier: Any) -> Any:
    """The id that most lanes of the warp hold."""
    crowd = int32(cuda.popc(cuda.match_any_sync(-1, identifier))) * int32(32) + cuda.laneid
    for step in (16, 8, 4, 2, 1):
        crowd = max(crowd, int32(cuda.shfl_xor_sync(-1, crowd, step)))
    return cuda.shfl_sync(-1, identifier, crowd & 31)


@functools.cache
def counting_walk(index: str, count: str, threads: int, rounds: int, add: Any) -> Any:
    """``walk(ids, counts, rows, segments, ids_step, first, frequent)``: the grid walks the ids in order, and calls ``add(counts, segment, times)``.

    A warp has 32 · ``rounds`` neighbouring ids at a time, from row ``first`` on, and loads all before it counts the first. Lanes that hold the same
    id share one addition. The count of the id ``frequent``, of type ``count``, is added once, in the end.
    """
    index_type, count_type = jit.SCALARS[index], jit.SCALARS[count]

    @jit.device
    def walk(ids: Any, counts: Any, rows: Any, segments: Any, ids_step: Any, first: Any, frequent: Any) -> None:
        batch_ids = cuda.local.array(rounds, index_type)
        lane, times = int32(cuda.laneid), count_type(0)
        while first < rows:
            for u in range(rounds):
                row = first + u * 32 + lane
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(rounds):
                identifier = batch_ids[u]
                times += count_type(cuda.popc(cuda.ballot_sync(-1, identifier == frequent)))
                same = cuda.match_any_sync(-1, identifier)
                if identifier != frequent and cuda.ffs(same) - 1 == lane and 0 <= identifier < segments:
                    add(counts, identifier, count_type(cuda.popc(same)))
            first = opaque(first + int64(cuda.gridDim.x) * (threads * rounds))
        if lane == 0 and 0 <= frequent < segments:
            add(counts, frequent, times)

    return walk


@jit.device
def add_to_memory(counts: Any, segment: Any, times: Any) -> None:
    """Adds to the count of a segment in global memory."""
    red_add(counts, int64(segment), times)


@jit.device
def add_to_block(counts: Any, segment: Any, times: Any) -> None:
    """Adds to the count of a segment in the memory that a block shares."""
    cuda.atomic.add(counts, int32(segment), times)


@jit.kernel
def count_ids(*, index: str, count: str) -> Any:
    """Adds to ``counts[s]`` the number of rows whose id is s, by :func:`counting_walk` of warps.

    A warp adds only once, in the end, for the id that most of its first 32 rows have, since additions to one address wait for each other. Counts are
    integers, so they are exact in any order. Bytes: rows · index read, and one atomic for each distinct id of 32 rows.

    Constants and parameters as :mod:`.` lists them.
    """
    index_type, rounds = jit.SCALARS[index], PerId.counted_per_thread
    walk = counting_walk(index, count, THREADS, rounds, add_to_memory)

    def count_ids(
        ids: Ptr[index], counts: Ptr[count],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        lane = int32(cuda.laneid)
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x - lane) * rounds
        frequent = frequent_of_warp(ids[(first + lane) * ids_step] if first + lane < rows else index_type(-1))
        walk(ids, counts, rows, segments, ids_step, first, frequent)

    return count_ids, lambda rows: Tiling.of_counted(rows).launch


@jit.kernel
def count_few_ids(
    *, index: str, count: str,
    threads_per_block: int = CountFewIds.threads_per_block, items_per_thread: int = CountFewIds.items_per_thread,
) -> Any:  # fmt: skip
    """Adds to ``counts[s]`` the number of rows whose id is s, where segments are few: each block counts its rows in shared memory first.

    Warps walk the ids as in :func:`count_ids`. In the end a block adds its counts that are not 0 to those in global memory, ``threads_per_block``
    neighbours at a time; blocks begin at segments that lie apart, so that few of them meet. Counts are integers, so they are exact in any order.
    Grids are so large that a block has fewer than 2^31 rows, which 32 bits can count. Dynamic shared memory: 4 · segments bytes. Bytes: rows · index
    read, and at most one atomic for each segment and block.

    Constants and parameters as :mod:`.` lists them.
    """
    index_type, count_type = jit.SCALARS[index], jit.SCALARS[count]
    threads, rounds = threads_per_block, items_per_thread
    walk = counting_walk(index, "i32", threads, rounds, add_to_block)

    def count_few_ids(
        ids: Ptr[index], counts: Ptr[count],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        block_counts = cuda.shared.array(0, int32)
        lane, thread, few = int32(cuda.laneid), int32(cuda.threadIdx.x), int32(segments)
        first = (int64(cuda.blockIdx.x) * threads + thread - lane) * rounds
        identifier = ids[(first + lane) * ids_step] if first + lane < rows else index_type(-1)
        segment = thread
        while segment < few:
            block_counts[segment] = int32(0)
            segment = int32(opaque(segment + threads))
        cuda.syncthreads()
        walk(ids, block_counts, rows, segments, ids_step, first, frequent_of_warp(identifier))
        cuda.syncthreads()
        start = int32(uint32(int64(cuda.blockIdx.x) * segments) // uint32(cuda.gridDim.x)) & int32(-32)
        place = thread
        while place < few:
            segment = int32(start + place)
            segment = int32(segment - few if segment >= few else segment)
            counted = block_counts[segment]
            if counted > 0:
                red_add(counts, int64(segment), count_type(counted))
            place = int32(opaque(place + threads))

    return count_few_ids
