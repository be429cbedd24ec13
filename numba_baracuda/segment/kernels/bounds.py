"""Kernels that find where segments, or ranges of them, begin among ids in order, and how ranges are cut."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import SUM
from ...device.block import block_reduce, block_scan
from ...device.build import opaque
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import BoundShortSegments
from ..tiling import LANE_GAP, RANGE_BITS, SEARCHERS, THREADS, WARP_GAP, bounded_ids, bounded_launch
from .common import first_at_least, from_below, ids_launch


@jit.device
def _first_of_half(sorted_numbers: Any, step: Any, rows: Any, least_number: Any, mask: Any) -> Any:
    """``first_at_least`` of all ``rows`` numbers, whose bits outside ``mask`` are left out. The lanes of half a warp look at 16 indices at a time."""
    low, high = int64(0), int64(rows)
    lane = int32(cuda.laneid & 15)
    half = int32(cuda.laneid - lane)
    while cuda.ballot_sync(-1, low < high) != 0:
        probe = low + ((high - low) * lane >> 4)
        less = cuda.ballot_sync(-1, low < high and (int64(sorted_numbers[probe * step]) & mask) < least_number)
        less_count = int32(cuda.popc(int32(less >> half) & 0xFFFF))
        before, behind = cuda.shfl_sync(-1, probe, half + max(less_count - 1, 0)), cuda.shfl_sync(-1, probe, half + min(less_count, 15))
        if less_count > 0:
            low = before + 1
        if less_count < 16:
            high = behind
    return low


@jit.kernel
def bound_segments(*, key: str, count: str) -> Any:
    """``offsets[s]`` = the first row of segment s among ids in order, for s up to ``segments``.

    The halves of a warp find the ends of its 32 segments, between which each lane makes a binary search. Bytes: segments · count written.

    Constants and parameters as :mod:`.` lists them; ``ids`` are of type ``key``, ``offsets`` of type ``count``.
    """
    count_type = jit.SCALARS[count]

    def bound_segments(
        ids: Ptr[key], offsets: Ptr[count],
        rows: int64, segments: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        thread = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        segment, lane = min(thread, int64(segments)), int32(cuda.laneid)
        end = _first_of_half(ids, ids_step, rows, min(thread - lane + (32 if lane >= 16 else 0), int64(segments)), int64(-1))
        low, high = cuda.shfl_sync(-1, end, 0), cuda.shfl_sync(-1, end, 31)
        first = first_at_least(ids, ids_step, low, high, segment)
        if thread <= segments:
            offsets[segment] = count_type(first)

    return bound_segments, ids_launch


@functools.cache
def _gap_filler(count: str) -> Any:
    """``fill_gaps(offsets, begin, length, row)`` has the warp store ``row`` from ``offsets[begin]`` on, ``length`` times, for each lane in turn."""
    count_type = jit.SCALARS[count]

    @jit.device
    def fill_gaps(offsets: Any, begin: Any, length: Any, row: Any) -> None:
        found = cuda.ballot_sync(-1, length > 0)
        while found != 0:
            owner = cuda.ffs(found) - 1
            found = int32(found & (found - 1))
            first, most = cuda.shfl_sync(-1, int64(begin), owner), cuda.shfl_sync(-1, int32(length), owner)
            value, k = count_type(cuda.shfl_sync(-1, count_type(row), owner)), int32(cuda.laneid)
            while k < most:
                offsets[first + k] = value
                k = int32(opaque(k + 32))

    return fill_gaps


@jit.kernel
def bound_short_segments(*, key: str, count: str, items_per_thread: int = BoundShortSegments.items_per_thread) -> Any:
    """:func:`bound_segments` by one pass over the ids: where id a is followed by b, that row is stored as ``offsets[a + 1]`` to ``offsets[b]``.

    A warp has 32 · ``items_per_thread`` neighbouring ids, half as many of 8 bytes, and a lane of it every 32nd, so that stores of neighbouring lanes
    meet. First each lane stores ``offsets[b]``. Only where a warp has found a gap are those before it stored: up to ``LANE_GAP`` by the lane, up to
    ``WARP_GAP`` by the warp. Longer gaps are shared out among ``gap_blocks`` blocks, the first of the grid: half a warp searches for each multiple
    of ``WARP_GAP``, and the warp fills what lies around it. Rows behind the last have the greatest id. Where ids are not in order, some offsets may
    stay as they were. Bytes: rows · key read, segments · count written.

    Constants and parameters as :mod:`.` lists them; ``ids`` are of type ``key``, ``offsets`` of type ``count``, and ``segments`` is less than the
    greatest id. ``gap_blocks``: :func:`~..tiling.bounded_launch` says how many.
    """
    key_type, unsigned, count_type, rounds = jit.SCALARS[key], jit.SCALARS["u" + key[1:]], jit.SCALARS[count], bounded_ids(items_per_thread, key)
    greatest, fill_gaps = key_type.maxval, _gap_filler(count)

    @jit.device
    def fill_long_gaps(ids: Any, offsets: Any, rows: Any, segments: Any, ids_step: Any) -> None:
        probe = ((int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) // SEARCHERS + 1) * WARP_GAP
        row = _first_of_half(ids, ids_step, rows, min(probe, int64(segments)), int64(-1))
        first = max(int64(ids[(row - 1) * ids_step]), int64(-1)) + 1 if row > 0 else int64(0)
        end = min(int64(ids[row * ids_step]), segments + 1) if row < rows else int64(segments + 1)
        mine = end - first > WARP_GAP and cuda.laneid % SEARCHERS == 0
        begin = probe if first <= probe - WARP_GAP and probe > WARP_GAP else first  # the latter unless the probe before is in the gap
        fill_gaps(offsets, begin, int32(min(end, probe + WARP_GAP) - begin) if mine else int32(0), row)

    @jit.device
    def gap_behind(before: Any, after: Any, behind: Any) -> Any:
        """Segments between two ids, of which ``behind`` and those above it are one behind the last; 0 where they are more than ``WARP_GAP``."""
        length = unsigned(min(max(after, key_type(-1)), behind) - max(before, key_type(-1)) - 1)
        return int32(length) if unsigned(length - unsigned(1)) < unsigned(WARP_GAP) else int32(0)

    def bound_short_segments(
        ids: Ptr[key], offsets: Ptr[count],
        rows: int64, segments: int64, ids_step: int64, gap_blocks: int64,
    ) -> None:  # fmt: skip
        if cuda.blockIdx.x < gap_blocks:
            fill_long_gaps(ids, offsets, rows, segments, ids_step)
            return
        batch = cuda.local.array(rounds, key_type)
        before = cuda.local.array(rounds, key_type)
        lane, most, behind = int32(cuda.laneid), unsigned(segments), key_type(segments + 1)
        first = ((int64(cuda.blockIdx.x) - gap_blocks) * THREADS + cuda.threadIdx.x - lane) * rounds
        if first > rows:
            return
        row = first + lane
        held = ids[(first - 1) * ids_step] if first > 0 else key_type(-1)
        if ids_step == 1 and first + 32 * rounds <= rows:
            for u in range(rounds):
                batch[u] = ids[row + u * 32]
        else:
            for u in range(rounds):
                batch[u] = ids[(row + u * 32) * ids_step] if row + u * 32 < rows else key_type(greatest)
        gaps = False
        for u in range(rounds):
            before[u], held = from_below(batch[u], held)
            if before[u] != batch[u] and unsigned(batch[u]) <= most:
                offsets[int64(batch[u])] = count_type(row + u * 32)
            gaps |= unsigned(batch[u] - before[u]) > unsigned(1)
        if cuda.ballot_sync(-1, gaps) == 0:
            return
        length = cuda.local.array(rounds, int32)
        many = False
        for u in range(rounds):
            length[u] = gap_behind(before[u], batch[u], behind)
            many |= length[u] > LANE_GAP
            at = max(before[u], key_type(-1))
            end = key_type(at + (length[u] if length[u] <= LANE_GAP else int32(0)))
            while at < end:
                at = key_type(opaque(at + 1))
                offsets[int64(at)] = count_type(row + u * 32)
        if cuda.ballot_sync(-1, many) != 0:
            for u in range(rounds):
                begin = int64(max(before[u], key_type(-1))) + 1
                fill_gaps(offsets, begin, length[u] if length[u] > LANE_GAP else int32(0), row + u * 32)

    return bound_short_segments, lambda rows, segments: bounded_launch(items_per_thread, key, rows, segments)[0]


@jit.kernel
def count_bounded(*, count: str) -> Any:
    """``counts[s] = offsets[s + 1] − offsets[s]``. Bytes: segments · 2 · count.

    Constants and parameters as :mod:`.` lists them.
    """

    def count_bounded(
        offsets: Ptr[count], counts: Ptr[count],
        segments: int64,
    ) -> None:  # fmt: skip
        segment = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if segment < segments:
            counts[segment] = offsets[segment + 1] - offsets[segment]

    return count_bounded, ids_launch


@jit.kernel
def bound_ranges(*, key: str) -> Any:
    """``begins[g]`` = the first row of range g, for g up to ``ranges``, among ids that are sorted by range. Half a warp finds each.

    Bytes: ranges · 4 written.

    Constants and parameters as :mod:`.` lists them, and ``begins`` [ranges + 1]; ``ranges``: their number; ``bits``, ``top``: bits ``bits`` to
    ``top`` − 1 of an id are its range.
    """

    def bound_ranges(
        ids: Ptr[key], begins: Ptr[int32],
        rows: int64, ranges: int64, bits: int64, top: int64,
    ) -> None:  # fmt: skip
        thread = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        range_index = thread // SEARCHERS
        first = _first_of_half(ids, 1, rows, min(range_index, int64(ranges)) << bits, (int64(1) << top) - 1)
        if range_index <= ranges and thread % SEARCHERS == 0:
            begins[range_index] = int32(first)

    return bound_ranges


@jit.kernel
def split_ranges() -> Any:
    """Cuts the rows of each range into splits of at most ``split_rows`` rows; one thread for each range. Bytes: ranges · 4 read by every block.

    Parameters: ``begins`` [ranges + 1]: the first row of each range, and the end of the last; ``split_offsets`` [ranges + 1]: the first split of each
    range, which has one at least, and the number of splits; ``range_of_split`` [splits]: the range of each split; ``carry_offsets`` [ranges]: splits
    of earlier ranges that have several; ``carry_count`` [1]: carries of all ranges that have several splits; ``ranges``: their number;
    ``split_rows``: rows.
    """
    total, scan = block_reduce(SUM, int32, THREADS), block_scan(SUM, int32, THREADS, exclusive=True)

    @jit.device
    def splits_of(begins: Any, range_index: Any, split_rows: Any) -> Any:
        return max(int32(uint32(begins[range_index + 1] - begins[range_index] + split_rows - 1) // uint32(split_rows)), int32(1))

    def split_ranges(
        begins: Ptr[int32], split_offsets: Ptr[int32], carry_offsets: Ptr[int32], range_of_split: Ptr[int32], carry_count: Ptr[int32],
        ranges: int64, segments: int64, split_rows: int64,
    ) -> None:  # fmt: skip
        ends = cuda.shared.array(THREADS, int32)
        thread = int32(cuda.threadIdx.x)
        first = int32(cuda.blockIdx.x * THREADS)
        splits_before, carries_before = int32(0), int32(0)
        earlier_range = thread
        while earlier_range < first:
            range_splits = splits_of(begins, earlier_range, split_rows)
            splits_before, carries_before = int32(splits_before + range_splits), int32(carries_before + (range_splits if range_splits > 1 else 0))
            earlier_range = int32(opaque(earlier_range + THREADS))
        splits_before, carries_before = total(splits_before), total(carries_before)
        range_index = int32(first + thread)
        range_splits = splits_of(begins, range_index, split_rows) if range_index < ranges else int32(0)
        splits_in_block, block_splits = scan(range_splits)
        carries_in_block = scan(range_splits if range_splits > 1 else int32(0))[0]
        if range_index < ranges:
            split_offsets[range_index] = int32(splits_before + splits_in_block)
            carry_offsets[range_index] = int32(carries_before + carries_in_block)
            if range_index == ranges - 1:
                split_offsets[ranges] = int32(splits_before + block_splits)
                carry_count[0] = int32(
                    ((carries_before + carries_in_block) << RANGE_BITS)
                    + (range_splits * (segments - (int64(range_index) << RANGE_BITS)) if range_splits > 1 else 0)
                )
        ends[thread] = int32(splits_in_block + range_splits)
        cuda.syncthreads()
        slot = thread
        while slot < block_splits:
            range_of_split[splits_before + slot] = int32(first + first_at_least(ends, 1, 0, THREADS - 1, slot + 1))
            slot = int32(opaque(slot + THREADS))

    return split_ranges
