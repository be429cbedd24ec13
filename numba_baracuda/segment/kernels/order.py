"""Ids put in order, and what a :class:`..index.SegmentIndex` keeps of them."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.axes import ceil_div
from ...device.vector import LOAD_ONCE, STORE
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..tiling import SEARCHERS, THREADS, Tiling
from .common import first_at_least


def _ids_launch(rows: int) -> tuple[int, int, int]:
    return Tiling.of_ids(rows).launch


@jit.kernel
def sort_keys(*, index: str, key: str, place: str, ordered: bool, vector: int) -> Any:
    """``keys[r]`` = the id of row r, or ``segments`` where it is outside ``[0, segments)``, and ``places[r] = r`` unless ``place`` is "".

    Keys need only as many bits as ``segments`` has. Of ``ordered`` ids those below the range become −1, so that they stay in order. A thread takes
    ``vector`` neighbouring ids, which lie side by side if these are several. Bytes: rows · (index + key + place).
    """
    key_type, placed, index_type = jit.SCALARS[key], place != "", jit.SCALARS[index]
    place_type = jit.SCALARS[place or "i32"]
    load, store = LOAD_ONCE[vector], STORE[vector]

    @jit.device
    def key_of(identifier: Any, segments: Any) -> Any:
        if ordered and identifier < 0:
            return key_type(-1)
        return key_type(identifier if 0 <= identifier < segments else segments)

    def sort_keys(
        ids: Ptr[index], keys: Ptr[key], places: Ptr[place or int32],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, index_type)
        found = cuda.local.array(vector, key_type)
        row = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        if vector > 1 and row + vector <= rows:
            load(ids, row, batch, 0)
            for k in range(vector):
                found[k] = key_of(int64(batch[k]), segments)
            store(keys, row, found, 0)
            if placed:
                numbers = cuda.local.array(vector, place_type)
                for k in range(vector):
                    numbers[k] = place_type(row + k)
                store(places, row, numbers, 0)
        else:
            for k in range(vector):
                if row + k < rows:
                    keys[row + k] = key_of(int64(ids[(row + k) * ids_step]), segments)
                    if placed:
                        places[row + k] = place_type(row + k)

    return sort_keys, lambda rows: _ids_launch(ceil_div(rows, vector))


@jit.device
def _first_of_half(numbers: Any, step: Any, rows: Any, wanted: Any, mask: Any) -> Any:
    """``first_at_least`` of all ``rows`` numbers' bits in ``mask``, for one that half a warp wants: its lanes look at 16 places at a time."""
    low, high = int64(0), int64(rows)
    lane = int32(cuda.laneid & 15)
    half = int32(cuda.laneid - lane)
    while cuda.ballot_sync(-1, low < high) != 0:
        place = low + ((high - low) * lane >> 4)
        less = cuda.ballot_sync(-1, low < high and (int64(numbers[place * step]) & mask) < wanted)
        number = int32(cuda.popc(int32(less >> half) & 0xFFFF))
        before, behind = cuda.shfl_sync(-1, place, half + max(number - 1, 0)), cuda.shfl_sync(-1, place, half + min(number, 15))
        if number > 0:
            low = before + 1
        if number < 16:
            high = behind
    return low


@jit.kernel
def bound_segments(*, key: str, count: str) -> Any:
    """``offsets[s]`` = the first row of segment s among ids in order, for s up to ``segments``, and ``counts[s]`` = its rows.

    The halves of a warp find the ends of its 32 segments, between which every lane makes a binary search. Bytes: segments · 2 · count written.
    """
    count_type = jit.SCALARS[count]

    def bound_segments(
        ids: Ptr[key], offsets: Ptr[count], counts: Ptr[count],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        thread = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        segment, lane = min(thread, int64(segments)), int32(cuda.laneid)
        end = _first_of_half(ids, ids_step, rows, min(thread - lane + (32 if lane >= 16 else 0), int64(segments)), int64(-1))
        low, high = cuda.shfl_sync(-1, end, 0), cuda.shfl_sync(-1, end, 31)
        first = first_at_least(ids, ids_step, low, high, segment)
        after = cuda.shfl_down_sync(-1, first, 1)
        if lane == 31:
            after = high
        if thread <= segments:
            offsets[segment] = count_type(first)
        if thread < segments:
            counts[segment] = count_type(after - first)

    return bound_segments, _ids_launch


@jit.kernel
def bound_ranges(*, key: str) -> Any:
    """``begins[g]`` = the first row of range g, for g up to ``ranges``, among ids sorted by range: bits ``bits`` to ``top`` − 1 of an id are g.

    Half a warp finds each. Bytes: ranges · 4 written.
    """

    def bound_ranges(
        ids: Ptr[key], begins: Ptr[int32],
        rows: int64, ranges: int64, bits: int64, top: int64,
    ) -> None:  # fmt: skip
        thread = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        mine = thread // SEARCHERS
        first = _first_of_half(ids, 1, rows, min(mine, int64(ranges)) << bits, (int64(1) << top) - 1)
        if mine <= ranges and thread % SEARCHERS == 0:
            begins[mine] = int32(first)

    return bound_ranges


@jit.kernel
def number_rows(*, place: str, vector: int) -> Any:
    """``places[r] = r``, ``vector`` neighbouring ones by a thread. Bytes: rows · place written."""
    place_type, store = jit.SCALARS[place], STORE[vector]

    def number_rows(
        places: Ptr[place],
        rows: int64,
    ) -> None:  # fmt: skip
        numbers = cuda.local.array(vector, place_type)
        row = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        for k in range(vector):
            numbers[k] = place_type(row + k)
        if row + vector <= rows:
            store(places, row, numbers, 0)
        else:
            for k in range(vector):
                if row + k < rows:
                    places[row + k] = numbers[k]

    return number_rows, lambda rows: _ids_launch(ceil_div(rows, vector))


@jit.kernel
def expand_offsets(*, offset: str, index: str) -> Any:
    """``ids[r]`` = the segment s with ``offsets[s] ≤ r < offsets[s + 1]``; −1 before the first offset, ``segments`` from the last one on.

    A binary search each. Bytes: rows · index written.
    """
    index_type = jit.SCALARS[index]

    def expand_offsets(
        offsets: Ptr[offset], ids: Ptr[index],
        rows: int64, segments: int64, offsets_step: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            ids[row] = index_type(first_at_least(offsets, offsets_step, 0, segments + 1, row + 1) - 1)

    return expand_offsets, _ids_launch


@jit.kernel
def first_rows(*, index: str, place: str) -> Any:
    """``firsts[r]`` = the first row that has the id of row r, for ids in order; −1 where that is below 0, ``rows`` where it is ``limit`` or more.

    A binary search each. Bytes: rows · (index + place).
    """
    place_type = jit.SCALARS[place]

    def first_rows(
        ids: Ptr[index], firsts: Ptr[place],
        rows: int64, limit: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            identifier = int64(ids[row * ids_step])
            first = first_at_least(ids, ids_step, 0, row, identifier)
            if identifier < 0:
                first = int64(-1)
            elif identifier >= limit:
                first = int64(rows)
            firsts[row] = place_type(first)

    return first_rows, _ids_launch
