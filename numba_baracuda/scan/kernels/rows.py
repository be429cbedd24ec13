"""Scans along the axis on which neighbours lie side by side: lanes share out the elements of a row."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.block import scan_warps
from ...device.build import opaque
from ...device.order import fetch_add
from ...device.vector import prefetch
from ...kernels.elements import strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import LINE_BYTES
from .chain import chain_of
from .law import law_of
from .part import part_of


@jit.kernel
def scan_rows(
    *, rule: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    peeled: bool, place: str, kept: int,
) -> Any:  # fmt: skip
    """``y[o, r] = emit(initial ⊕ lift(x[o, 0]) ⊕ … ⊕ lift(x[o, r]))``; a, b, c are what the rule reads, z takes the places of winners.

    A group of ``lanes`` lanes, which is a block where there are more than 32, walks its row in tiles of ``steps`` accesses a lane. Every lane folds
    neighbouring elements, the lanes of a warp are scanned by shuffles, and warps through shared memory; the tiles follow each other with a carry.
    The order is fixed by the geometry. Bytes: every operand once.
    """
    law = law_of(rule, value, result, exclusive, place)
    part, states = part_of(law, vector, lanes, steps, threads, reverse, peeled, False, index), law.states
    edge, read, fold, give, size = part.edge, part.read, part.fold, part.give, part.size
    begin, combine, element, wide = law.begin, states.combine, law.element, law.wide
    group_lanes, groups, whole_block = min(lanes, 32), threads // lanes, lanes > 32
    over_warps, row_of, gapless, tile = scan_warps(states, threads), strided_offset_of(kept), vector > 1, lanes * size
    kind_of_places, kind_of_results = jit.SCALARS[index or "i32"], law.result

    def scan_rows(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], y: Ptr[result], z: Ptr[index or result],
        rows: int64, extent: int64, initial: Scalar[wide], origin: int64, skew: int64,
        kept_shape: Extents[kept], a_rows: Extents[kept], b_rows: Extents[kept], c_rows: Extents[kept], y_rows: Extents[kept],
        z_rows: Extents[kept], gaps: Extents[5],
    ) -> None:  # fmt: skip
        shared, places = cuda.shared.array(0, element, 16), cuda.shared.array(0, kind_of_places, 16)
        results = cuda.shared.array(0, kind_of_results, 16)
        thread = uint32(cuda.threadIdx.x)
        lane, warp = int32(thread % uint32(group_lanes)), int32(thread % uint32(lanes) // uint32(32))
        row = int64(cuda.blockIdx.x) * groups + int32(thread // uint32(lanes))
        there = row < rows
        row = min(row, int64(rows - 1))
        bases = row_of(row, kept_shape, a_rows), row_of(row, kept_shape, b_rows), row_of(row, kept_shape, c_rows)
        to_y, to_z = row_of(row, kept_shape, y_rows), row_of(row, kept_shape, z_rows)
        apart = (int64(1), int64(1), int64(1)) if gapless else (gaps[0], gaps[1], gaps[2])
        y_gap, z_gap = (int64(1), int64(1)) if gapless else (gaps[3], gaps[4])
        carry, first, spare, end = begin(initial, origin), int64(0), int64(0), int64(extent)
        if peeled:
            skipped, spare = edge(bases[0], extent, skew)
            first = -skipped
        while first < end:
            at = first + warp * (size * group_lanes)
            beside = read((a, b, c), bases, apart, at, lane, end, spare, shared)
            below, total = fold(shared, at, lane, end, initial, beside)
            own = carry
            if whole_block:
                behind, total = over_warps(lane == 0, total)
                own = combine(carry, behind)
            if lane > 0:
                own = combine(own, below)
            give(y, z, to_y, to_z, y_gap, z_gap, there, at, lane, end, initial, beside, own, shared, results, places)
            carry = combine(carry, total)
            first = opaque(first + tile)

    return scan_rows, lambda rows: (-(-rows // groups), threads, part.nbytes)


@jit.kernel
def scan_long_rows(
    *, rule: str, value: str, result: str, index: str, vector: int, steps: int, threads: int, reverse: bool, exclusive: bool, peeled: bool,
    place: str, kept: int, group: int,
) -> Any:  # fmt: skip
    """``scan_rows`` where there are few rows: a block scans one tile of a row, and learns from other blocks what comes before it.

    The ``tiles`` tiles of each row are handed out by the first of ``words``; the others are those of the chain, all zero before the launch. With a
    ``group`` of tiles, the order of every fold is fixed by the geometry, with 0 tiles are joined as they come. A block first calls up the tile that
    is ``ahead`` of its own, which will be due when it is done. Bytes: every operand once, and 16 a tile for each piece of its state, written and read
    some times. Peeled rows begin inside of a line of 128 bytes.
    """
    law = law_of(rule, value, result, exclusive, place)
    part, states = part_of(law, vector, 32, steps, threads, reverse, peeled, True, index), law.states
    edge, read, fold, give, size = part.edge, part.read, part.fold, part.give, part.size
    begin, combine, element, wide = law.begin, states.combine, law.element, law.wide
    over_warps, row_of, gapless, tile_size = scan_warps(states, threads), strided_offset_of(kept), vector > 1, threads * size
    before, get = chain_of(states, group, 1, threads).before, law.get
    kind_of_places, kind_of_results = jit.SCALARS[index or "i32"], law.result
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = law.sizes(1), law.kinds
    reads, line = len(law.rule.reads), 8 * LINE_BYTES // element.bitwidth

    @jit.device
    def call_up(arrays: Any, row: Any, tile: Any, extent: Any, kept_shape: Any, a_rows: Any, b_rows: Any, c_rows: Any) -> None:
        """Prefetches a tile, a line of 128 bytes of each array by each thread."""
        at = min(tile * tile_size + int32(cuda.threadIdx.x) * line, int64(extent - 1))
        if int32(cuda.threadIdx.x) * line < tile_size:
            at = extent - 1 - at if reverse else at
            prefetch(arrays[0], row_of(row, kept_shape, a_rows) + at)
            if reads > 1:
                prefetch(arrays[1], row_of(row, kept_shape, b_rows) + at)
            if reads > 2:
                prefetch(arrays[2], row_of(row, kept_shape, c_rows) + at)

    def scan_long_rows(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], y: Ptr[result], z: Ptr[index or result], words: Ptr[int64],
        rows: int64, extent: int64, initial: Scalar[wide], origin: int64, skew: int64, tiles: int64, ahead: int64,
        kept_shape: Extents[kept], a_rows: Extents[kept], b_rows: Extents[kept], c_rows: Extents[kept], y_rows: Extents[kept],
        z_rows: Extents[kept], gaps: Extents[5],
    ) -> None:  # fmt: skip
        shared, places = cuda.shared.array(0, element, 16), cuda.shared.array(0, kind_of_places, 16)
        results = cuda.shared.array(0, kind_of_results, 16)
        told = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        ticket = cuda.shared.array(2, int64)
        thread = int32(cuda.threadIdx.x)
        lane, warp = int32(cuda.laneid), thread >> 5
        if thread == 0:
            number = uint32(fetch_add(words, 0, int64(1)))
            ticket[0] = number // uint32(tiles)
            ticket[1] = number % uint32(tiles)
        cuda.syncthreads()
        row, tile = ticket[0], ticket[1]
        bases = row_of(row, kept_shape, a_rows), row_of(row, kept_shape, b_rows), row_of(row, kept_shape, c_rows)
        to_y, to_z = row_of(row, kept_shape, y_rows), row_of(row, kept_shape, z_rows)
        apart = (int64(1), int64(1), int64(1)) if gapless else (gaps[0], gaps[1], gaps[2])
        y_gap, z_gap = (int64(1), int64(1)) if gapless else (gaps[3], gaps[4])
        if gapless and (tile + ahead < tiles or row + 1 < rows):
            called = tile + ahead < tiles
            call_up((a, b, c), row if called else row + 1, tile + ahead - (0 if called else tiles), extent, kept_shape, a_rows, b_rows, c_rows)
        first, spare, end = tile * tile_size, int64(0), int64(extent)
        if peeled:
            skipped, spare = edge(bases[0], extent, skew)
            first -= skipped
        at = first + warp * (size * 32)
        beside = read((a, b, c), bases, apart, at, lane, end, spare, shared)
        below, total = fold(shared, at, lane, end, initial, beside)
        behind, total = over_warps(lane == 0, total)
        before(words, row * tiles + tile, 1, tile, tiles, True, begin(initial, origin), total, told)
        own = combine(get(told, 0), behind)
        if lane > 0:
            own = combine(own, below)
        give(y, z, to_y, to_z, y_gap, z_gap, True, at, lane, end, initial, beside, own, shared, results, places)

    return scan_long_rows, lambda rows, tiles: (rows * tiles, threads, part.nbytes)
