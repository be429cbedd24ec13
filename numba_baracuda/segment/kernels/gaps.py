"""Empty segments: which lanes store them, and how long gaps are found."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.build import opaque
from ...device.vector import STORE
from ...kernels.elements import conversions_of, strided_offset_of
from ...runtime import jit
from ..tiling import GAP, GAP_WARPS
from .columns import columns_storer
from .common import clamp, first_at_least

#: blocks that look for gaps, so few that they begin first
FEW_BLOCKS = 64


@functools.cache
def blank_writer(value: str, vector: int, store_vector: int = 0, apart: int = 0, many: bool = False) -> Any:
    """``write_empty(output, first, count, row_stride, offset, left, empty)`` stores ``empty`` in ``vector`` columns of ``count`` segments.

    These are ``first`` and those behind it. Rows have ``left`` columns from ``offset`` on. The columns are neighbours, or ``apart`` columns apart
    where that is not 0. ``many``: whether gaps may be most of the work, as between single rows: then stores overlap; else they take few registers.
    """
    element, width = jit.SCALARS[value], store_vector or vector
    store, (_, narrow) = columns_storer(STORE[width], width, vector, apart), conversions_of(value)

    @jit.device
    def write_empty(output: Any, first: Any, count: Any, row_stride: Any, offset: Any, left: Any, empty: Any) -> None:
        blank = cuda.local.array(vector, element)
        for v in range(vector):
            blank[v] = narrow(empty)
        segment, end, at, rest = int64(first), int64(first) + count, int64(first) * row_stride + offset, int32(count)
        while many and segment < end:  # the compiler unrolls this loop, and not the other
            store(output, segment * row_stride + offset, blank, 0, left)
            segment = opaque(segment + 1)
        while not many and rest > 0:
            store(output, at, blank, 0, left)
            at, rest = at + row_stride, int32(opaque(rest - 1))

    return write_empty


@functools.cache
def gap_finder(index: str) -> Any:
    """``gap_between(before, after, last)``: the first segment between two ids of type ``index``, and the one behind the last, both unsigned.

    ``last`` is :func:`~.common.last_id_of` the segments.
    """
    index_type, unsigned = jit.SCALARS[index], jit.SCALARS["u" + index[1:]]

    @jit.device
    def gap_between(before: Any, after: Any, last: Any) -> Any:
        # without a sign there are numbers for all segments and one behind them, and one beyond ``end`` makes a long gap
        first = unsigned(unsigned(max(before, index_type(-1))) + unsigned(1))
        return first, unsigned(unsigned(last) + unsigned(1)) if after > last else unsigned(max(after, index_type(0)))

    return gap_between


@functools.cache
def short_gap_fillers(
    index: str, value: str, vector: int, store_vector: int = 0, apart: int = 0, fills: bool = True, many: bool = False, longest: int = GAP
) -> tuple[Any, Any]:  # fmt: skip
    """``fill_between(output, before, after, last, row_stride, offset, left, empty)`` fills the empty segments between two ids of type ``index``;
    ``last`` is :func:`~.common.last_id_of` them. ``fill_short_gap`` without ``last`` does so between two clamped ids.

    Gaps are of at most ``longest`` segments; both do nothing unless they ``fill``. ``many`` as in :func:`blank_writer`.
    """
    write_empty, gap_between, unsigned = blank_writer(value, vector, store_vector, apart, many), gap_finder(index), jit.SCALARS["u" + index[1:]]

    @jit.device
    def fill_between(output: Any, before: Any, after: Any, last: Any, row_stride: Any, offset: Any, left: Any, empty: Any) -> None:
        if fills and unsigned(after - before) != unsigned(1):
            first, end = gap_between(before, after, last)
            count = unsigned(end - first)
            if unsigned(count - unsigned(1)) < unsigned(longest):
                write_empty(output, first, count, row_stride, offset, left, empty)

    @jit.device
    def fill_short_gap(output: Any, before: Any, after: Any, row_stride: Any, offset: Any, left: Any, empty: Any) -> None:
        if fills and 0 < after - before - 1 <= longest:
            write_empty(output, before + 1, after - before - 1, row_stride, offset, left, empty)

    return fill_short_gap, fill_between


@functools.cache
def range_filler(value: str, vector: int) -> Any:
    """``fill_range(output, begin, end, empty)``: a warp stores ``empty`` in elements from ``begin`` up to ``end``, ``vector`` at a time."""
    element, store, (_, narrow) = jit.SCALARS[value], STORE[vector], conversions_of(value)

    @jit.device
    def fill_range(output: Any, begin: Any, end: Any, empty: Any) -> None:
        blank = cuda.local.array(vector, element)
        for v in range(vector):
            blank[v] = narrow(empty)
        # whole vectors, and what lies before and behind them
        whole, behind, lane = (begin + vector - 1) & int64(-vector), end & int64(-vector), int32(cuda.laneid)
        at, left = whole + lane * vector, int32(behind - whole - lane * vector)
        while left > 0:
            store(output, at, blank, 0)
            at, left = at + 32 * vector, int32(opaque(left - 32 * vector))
        if vector > 1:
            if begin + lane < min(whole, end):
                output[begin + lane] = blank[0]
            if max(behind, whole) <= behind + lane < end:
                output[behind + lane] = blank[0]

    return fill_range


@functools.cache
def flat_gap_filler(index: str, value: str, vector: int, longest: int) -> Any:
    """``fill_flat(output, owns, before, after, last, columns, empty)``: a warp fills the gaps that its lanes ``own``, each between two ids.

    Gaps ascend with the lanes, and rows are contiguous. Gaps of more than ``longest`` segments stay as they are. Where there is none, rows between
    gaps become ``empty``, too. Results may be stored after it.
    """
    gap_between, fill_range, unsigned = gap_finder(index), range_filler(value, vector), jit.SCALARS["u" + index[1:]]

    @jit.device
    def fill_flat(output: Any, owns: Any, before: Any, after: Any, last: Any, columns: Any, empty: Any) -> None:
        first, end = gap_between(before, after, last)
        count = unsigned(end - first)
        found = int32(cuda.ballot_sync(-1, owns and unsigned(count - unsigned(1)) < unsigned(longest)))
        together = cuda.ballot_sync(-1, owns and count > unsigned(longest)) == 0
        while found != 0:
            owner, final = int32(cuda.ffs(found) - 1), int32(31 - cuda.clz(found))
            final = final if together else owner
            begin = cuda.shfl_sync(-1, int64(first), owner) * columns
            fill_range(output, begin, cuda.shfl_sync(-1, int64(end), final) * columns, empty)
            found = int32(0) if together else int32(found & (found - 1))
        cuda.syncwarp()

    return fill_flat


@jit.device
def share_blocks(row_blocks: Any, number: Any) -> Any:
    """(Whether block ``number`` looks for long gaps, its index among those that do or among the ``row_blocks``).

    The former begin first if they are few, and search ids and store while the latter come and go; many have the device to themselves at the end.
    """
    blocks = int64(cuda.gridDim.x)
    block = int64(number) + (row_blocks if blocks - row_blocks <= FEW_BLOCKS else int64(0))
    block = block if block < blocks else block - blocks
    return block >= row_blocks, block if block < row_blocks else block - row_blocks


@functools.cache
def gap_filler(
    value: str, vector: int, dims: int, threads: int, store_vector: int = 0, many: bool = False, fill_vector: int = 0, longest: int = GAP
) -> Any:  # fmt: skip
    """``fill_long_gaps`` fills gaps of more than ``longest`` segments: some lanes of a warp look at one segment each, whose id is a multiple of it.

    They are as many as :func:`~..tiling.gap_blocks` has probes for. A block has ``threads``. With a ``fill_vector`` rows are contiguous, and gaps are
    filled as ranges of elements, so many at a time.
    """
    offset_of, write_empty = strided_offset_of(dims), blank_writer(value, vector, store_vector, many=many)
    fill_range = range_filler(value, fill_vector or 1)

    @jit.device
    def fill_long_gaps(
        ids: Any, ids_step: Any, output: Any, rows: Any, columns: Any, segments: Any, block: Any,
        row_stride: Any, shape: Any, strides: Any, empty: Any,
    ) -> None:  # fmt: skip
        bits, shift = int32(0), int32(5)  # of the lanes that have a row, and of the rows that a warp has
        while bits < 5 and vector << bits < columns:
            bits, shift = int32(bits + 1), int32(shift - 1)
        lane, group, groups = int32(cuda.laneid & (1 << bits) - 1), int32(cuda.laneid >> bits), int32(1 << shift)
        probes = min((segments + (longest * GAP_WARPS - 1)) // (longest * GAP_WARPS), int64(32))
        probe = ((block * (threads // 32) + (cuda.threadIdx.x >> 5)) * probes + cuda.laneid) * longest
        first, last = int64(0), int64(0)
        if cuda.laneid < probes and probe < segments:
            row = first_at_least(ids, ids_step, 0, rows, probe)
            before = clamp(ids[(row - 1) * ids_step], segments) if row > 0 else int64(-1)
            after = clamp(ids[row * ids_step], segments) if row < rows else int64(segments)
            if before < probe < after and (after - before - 1 > longest or rows == 0):
                first = before + 1 if before >= probe - longest else probe
                last = min(after, probe + longest)
        found = cuda.ballot_sync(-1, first < last)
        while found != 0:
            owner = cuda.ffs(found) - 1
            found = int32(found & (found - 1))
            if fill_vector:
                fill_range(output, cuda.shfl_sync(-1, first, owner) * columns, cuda.shfl_sync(-1, last, owner) * columns, empty)
                continue
            begin = cuda.shfl_sync(-1, first, owner) + group
            count = int32(cuda.shfl_sync(-1, last, owner) - begin + groups - 1) >> shift
            column = int64(lane * vector)
            while column < columns:
                offset = begin * row_stride + offset_of(column, shape, strides)
                write_empty(output, 0, count, groups * row_stride, offset, columns - column, empty)
                column = opaque(column + (vector << bits))

    return fill_long_gaps
