"""Kernels that read ids alone and count the rows of each segment: in global memory, or first in the shared memory of each block."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.atomics import red_add
from ...device.build import opaque
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import CountFewIds, PerId
from ..tiling import THREADS, Tiling
from .common import clearer_of, frequent_of_warp, last_id_of
from .crowds import SLOTS, sector_shift, table_of


@jit.kernel
def count_ids(*, index: str, count: str, guarded: bool = False, sampled: int = 0, shares: bool = True) -> Any:
    """Adds to ``counts[s]`` the number of rows whose id is s, if that is in [low, high).

    The grid walks the ids in order: a warp has some neighbouring ids at a time, and loads all before it counts the first. Lanes that hold the same id
    share one addition. A warp adds only once, in the end, for the id that most of its first 32 rows have, and a block for other ids that crowd
    (:mod:`.crowds`), since additions to one address wait for each other. Counts are integers, so they are exact in any order. Bytes: rows · index
    read, and one atomic for each distinct id of 32 rows.

    Constants and parameters as :mod:`.` lists them, and ``sampled``: rows of a thread among which a block looks for ids that crowd, 0
    where it does not look; ``shares``: whether lanes share additions, or each makes its own; ``low``, ``high``: ids, the bounds of this pass.
    """
    index_type, count_type, rounds = jit.SCALARS[index], jit.SCALARS[count], PerId.counted_per_thread
    last_id, greatest, shift = last_id_of(index), index_type.maxval, sector_shift(count_type.bitwidth // 8)
    find_crowds, place_of = table_of(index, THREADS, sampled, SLOTS, shift)
    clear = clearer_of(THREADS)
    tabled = sampled > 0
    slots = SLOTS if tabled else 1
    slots_and_one, places = slots + 1, slots << shift

    @jit.device
    def add(counts: Any, keys: Any, numbers: Any, own_counts: Any, keeps: Any, identifier: Any, times: Any) -> None:
        place = place_of(keys, numbers, identifier) if keeps else int32(-1)
        if place >= 0:
            cuda.atomic.add(own_counts, place, int32(times))
        else:
            red_add(counts, int64(identifier), count_type(times))

    def count_ids(
        ids: Ptr[index], guard: Ptr[int32], counts: Ptr[count],
        rows: int64, low: int64, high: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        keys = cuda.shared.array(slots, index_type)
        numbers = cuda.shared.array(slots_and_one, int32)
        own_counts = cuda.shared.array(places, int32)
        batch_ids = cuda.local.array(rounds, index_type)
        lane, thread, times = int32(cuda.laneid), int32(cuda.threadIdx.x), count_type(0)
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x - lane) * rounds
        least = index_type(min(low, greatest))
        last = last_id(high) if low <= greatest else index_type(-1)
        frequent, keeps = index_type(-1), False
        if shares:
            frequent = frequent_of_warp(ids[(first + lane) * ids_step] if first + lane < rows else index_type(-1))
        if tabled:
            keeps = find_crowds(ids, first + lane, int32(32), rows, ids_step, least, last, frequent, keys, numbers)
            if keeps:
                clear(own_counts, places, int32(0))
        while first < rows:
            for u in range(rounds):
                row = first + u * 32 + lane
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
            for u in range(rounds):
                identifier = batch_ids[u]
                if shares:
                    times += count_type(cuda.popc(cuda.ballot_sync(-1, identifier == frequent)))
                    same = cuda.match_any_sync(-1, identifier)
                    if identifier != frequent and cuda.ffs(same) - 1 == lane and least <= identifier <= last:
                        add(counts, keys, numbers, own_counts, keeps, identifier, cuda.popc(same))
                elif least <= identifier <= last:
                    add(counts, keys, numbers, own_counts, keeps, identifier, int32(1))
            first = opaque(first + int64(cuda.gridDim.x) * (THREADS * rounds))
        if shares and lane == 0 and least <= frequent <= last:
            red_add(counts, int64(frequent), times)
        if keeps:
            cuda.syncthreads()
            place = thread
            while place < places:
                slot = int32(place >> shift)
                found = own_counts[numbers[slot] << shift | place & (1 << shift) - 1]
                if keys[slot] >= 0 and found > 0:
                    red_add(counts, (int64(keys[slot]) << shift) + (place & (1 << shift) - 1), count_type(found))
                place = int32(opaque(place + THREADS))

    return count_ids, lambda rows: Tiling.of_counted(rows).launch


@jit.kernel
def choose_passes(*, index: str) -> Any:
    """``once[0]`` = 1 and ``by_range[0]`` = 0 where one pass over all segments is faster than a pass for each range of them; else 0 and 1.

    So it is where an id crowds, and where ids ascend: then little is updated at random. One block looks at as many rows as it has threads, which lie
    evenly apart. The id is the one that most of the first warp's rows have.

    Constants and parameters as :mod:`.` lists them, and ``once``, ``by_range``: guards of other launches; ``crowd``: how many of these rows make a
    crowd; ``ascents``: how many must have an id that is no less than that of the one before.
    """
    index_type = jit.SCALARS[index]

    def choose_passes(
        ids: Ptr[index], once: Ptr[int32], by_range: Ptr[int32],
        rows: int64, crowd: int64, ascents: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(THREADS, index_type)
        thread = int32(cuda.threadIdx.x)
        # neighbouring lanes have rows from all parts
        place = int32((thread & 31) * (THREADS // 32) + (thread >> 5))
        identifier = ids[int64(place) * rows // THREADS * ids_step]
        shared[place] = identifier
        frequent = frequent_of_warp(identifier)
        cuda.syncthreads()
        ascending = cuda.syncthreads_count(int32(shared[place] >= shared[max(int32(place - 1), int32(0))]))
        if thread == 0:
            shared[0] = frequent
        cuda.syncthreads()
        found = cuda.syncthreads_count(int32(identifier == shared[0]))
        if thread == 0:
            once[0] = int32(found >= crowd or ascending >= ascents)
            by_range[0] = int32(1 - once[0])

    return choose_passes, lambda rows: (1, THREADS, 0)


@jit.kernel
def count_few_ids(
    *, index: str, count: str,
    threads_per_block: int = CountFewIds.threads_per_block, items_per_thread: int = CountFewIds.items_per_thread,
) -> Any:  # fmt: skip
    """Adds to ``counts[s]`` the number of rows whose id is s, where segments are few: each block counts its rows in shared memory first.

    A block counts the ids of one of ``ranges`` ranges of ``width`` segments, and ignores others; blocks of the same rows are neighbours. In the end
    it adds its counts that are not 0 to those in global memory, ``threads_per_block`` neighbours at a time; blocks begin at segments that lie apart,
    so that few of them meet. Counts are integers, so they are exact in any order. Grids are so large that a block has fewer than 2^31 rows, which 32
    bits can count. Dynamic shared memory: 4 · width bytes. Bytes: rows · index read, by each range, and at most one atomic for each segment and block
    of its range.

    Constants and parameters as :mod:`.` lists them.
    """
    index_type, unsigned, count_type = jit.SCALARS[index], jit.SCALARS["u" + index[1:]], jit.SCALARS[count]
    threads, rounds, clear = threads_per_block, items_per_thread, clearer_of(threads_per_block)

    def count_few_ids(
        ids: Ptr[index], counts: Ptr[count],
        rows: int64, segments: int64, ids_step: int64, width: int64, ranges: int64,
    ) -> None:  # fmt: skip
        block_counts = cuda.shared.array(0, int32)
        batch_ids = cuda.local.array(rounds, index_type)
        thread, part = int32(cuda.threadIdx.x), int32(uint32(cuda.blockIdx.x) // uint32(ranges))
        low, parts = (cuda.blockIdx.x - part * ranges) * width, int32(uint32(cuda.gridDim.x) // uint32(ranges))
        few, lowest = int32(min(width, segments - low)), index_type(low)
        clear(block_counts, few, int32(0))
        row, step = int64(part) * (threads * rounds) + thread, threads * ids_step
        while row < rows:
            if row + (rounds - 1) * threads < rows:
                for u in range(rounds):
                    batch_ids[u] = ids[row * ids_step + u * step]
            else:
                for u in range(rounds):
                    batch_ids[u] = ids[row * ids_step + u * step] if row + u * threads < rows else index_type(-1)
            for u in range(rounds):
                at = unsigned(batch_ids[u] - lowest)
                if at < unsigned(few):
                    cuda.atomic.add(block_counts, int32(at), int32(1))
            row = opaque(row + int64(parts) * (threads * rounds))
        cuda.syncthreads()
        start = int32(uint32(int64(part) * few) // uint32(parts)) & int32(-32)
        place = thread
        while place < few:
            segment = int32(start + place)
            segment = int32(segment - few if segment >= few else segment)
            counted = block_counts[segment]
            if counted > 0:
                red_add(counts, low + segment, count_type(counted))
            place = int32(opaque(place + threads))

    return count_few_ids
