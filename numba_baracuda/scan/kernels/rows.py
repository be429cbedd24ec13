"""Scans along the axis of the smallest stride: lanes share the elements of a row."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.block import scan_warps
from ...device.build import opaque
from ...device.order import start_number
from ...device.vector import prefetch
from ...kernels.elements import strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import LINE_BYTES, STATUS_SPREAD
from .lookback import lookback_of
from .operator_functions import functions_of
from .warp_tile import warp_tile_of


@jit.kernel
def scan_rows(
    *, operator: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    peeled: bool, segmented: bool, position: str, kept: int, carried: bool = False,
) -> Any:  # fmt: skip
    """``output[r, i] = emit(initial ⊕ lift(a[r, 0]) ⊕ … ⊕ lift(a[r, i]))`` for each row r: a group of lanes scans it tile by tile.

    Each lane folds consecutive elements of a tile. Shuffles scan the lanes of a warp; where a row has a block, shared memory carries the aggregates
    of warps to the others. ``tile_prefix`` is the fold of all that comes before a tile. Rows too short for vectors of their own are segments: a warp
    loads, scans and stores several that lie one after the other as one row, whose vectors need not begin or end with a segment; the scan begins anew
    at each segment. Order: fixed by the constants. Bytes: every operand once.

    Constants and parameters as :mod:`.` lists them, and: ``lanes``: lanes a row, a power of two; more than 32 are the whole block. ``steps``: vectors
    that a lane has of a tile. ``peeled``: whether rows begin or end inside a vector, whose elements outside the row are left alone. ``segmented``:
    whether a group of lanes, then a warp, has ``group_rows`` rows, which fit its tile; the rows are contiguous as a whole, and there are elements
    for two vectors. ``rows``: the number of rows. ``group_rows``: 1 if not ``segmented``. ``misalignment``: elements from the last aligned vector's
    address to that of ``a``, as far as its layout tells.
    """
    functions = functions_of(operator, value, result, exclusive, position)
    warp_tile = warp_tile_of(functions, vector, lanes, steps, threads, reverse, peeled, False, segmented, index)
    peel, load, fold, store, size = warp_tile.peel, warp_tile.load, warp_tile.fold, warp_tile.store, warp_tile.size
    states, initial_state, element, wide = warp_tile.states, warp_tile.initial_state, functions.element, functions.wide
    combine = states.combine
    group_lanes, groups, whole_block = min(lanes, 32), threads // lanes, lanes > 32
    over_warps, row_of, contiguous, tile_size = scan_warps(states, threads), strided_offset_of(kept), vector > 1, lanes * size
    index_type, result_type = jit.SCALARS[index or "i32"], functions.result

    def scan_rows(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[result], indices: Ptr[index or result],
        initials: Ptr[wide],
        rows: int64, extent: int64, initial: Scalar[wide], initial_position: int64, misalignment: int64, group_rows: int64,
        kept_shape: Extents[kept], a_strides: Extents[kept], b_strides: Extents[kept], c_strides: Extents[kept], output_strides: Extents[kept],
        indices_strides: Extents[kept], axis_strides: Extents[5],
    ) -> None:  # fmt: skip
        shared, shared_indices = cuda.shared.array(0, element, 16), cuda.shared.array(0, index_type, 16)
        shared_results = cuda.shared.array(0, result_type, 16)
        thread = uint32(cuda.threadIdx.x)
        lane, warp = int32(thread % uint32(group_lanes)), int32(thread % uint32(lanes) // uint32(32))
        row = (int64(cuda.blockIdx.x) * groups + int32(thread // uint32(lanes))) * (group_rows if segmented else int64(1))
        active = row < rows
        row = min(row, int64(rows - 1))
        end = min(int64(group_rows), rows - row) * extent if segmented else int64(extent)
        bases = row_of(row, kept_shape, a_strides), row_of(row, kept_shape, b_strides), row_of(row, kept_shape, c_strides)
        output_base, indices_base = row_of(row, kept_shape, output_strides), row_of(row, kept_shape, indices_strides)
        strides = (int64(1), int64(1), int64(1)) if contiguous else (axis_strides[0], axis_strides[1], axis_strides[2])
        output_stride, indices_stride = (int64(1), int64(1)) if contiguous else (axis_strides[3], axis_strides[4])
        tile_prefix, tile_start, safe = initial_state(initials[row] if carried else initial, initial_position), int64(0), int64(0)
        shape = int64(extent), tile_prefix, initial_position
        if peeled:
            skipped, safe = peel(bases[0], end, misalignment)
            tile_start = -skipped
            if segmented and end < safe + vector:
                first = (-misalignment & vector - 1) - row * extent
                safe = end - vector - first if reverse else first
        while tile_start < end:
            warp_start = tile_start + warp * (size * group_lanes)
            neighbour = load((a, b, c), bases, strides, warp_start, lane, end, safe, shared)
            lane_prefix, aggregate = fold(shared, warp_start, lane, end, shape, initial, neighbour)
            prefix = tile_prefix
            if whole_block:
                warp_prefix, aggregate = over_warps(lane == 0, aggregate)
                prefix = combine(tile_prefix, warp_prefix)
            if lane > 0:
                prefix = combine(prefix, lane_prefix)
            store(
                output, indices, output_base, indices_base, output_stride, indices_stride, active, warp_start, lane, end, shape, initial, neighbour,
                prefix, shared, shared_results, shared_indices,
            )  # fmt: skip
            tile_prefix = combine(tile_prefix, aggregate)
            tile_start = opaque(tile_start + tile_size)

    return scan_rows, lambda rows, group_rows: (-(-rows // (groups * group_rows)), threads, warp_tile.shared_bytes)


@jit.kernel
def scan_long_rows(
    *, operator: str, value: str, result: str, index: str, vector: int, steps: int, threads: int, reverse: bool, exclusive: bool, peeled: bool,
    position: str, kept: int, group_tiles: int, prefetches: bool = False, carried: bool = False,
) -> Any:  # fmt: skip
    """:func:`scan_rows` where rows are few and long: each block scans one tile and gets the prefix of the tiles before it by decoupled look-back.

    Blocks have the tiles in the order in which they start, row by row, so each tile that a block waits for is running or done. Order: fixed by the
    constants; ``group_tiles`` 0 combines tiles in the order in which they are done. Bytes: every operand once, and 16 a tile for each 64-bit piece of
    its state, which is written once and polled.

    Where blocks are few and their tiles dear, a block first prefetches to L2 the tile that will be due when its own is done.

    Constants and parameters as :mod:`.` lists them, and: ``steps``: vectors that a lane has of a tile. ``peeled``: whether rows begin or end inside a
    line of 128 bytes; tiles then begin with a line. ``rows``: the number of rows. ``misalignment``: elements from the last aligned vector's address
    to that of ``a``, as far as its layout tells. ``prefetches``: whether a block prefetches the tile ``prefetch_distance`` tiles behind its own.
    """
    functions = functions_of(operator, value, result, exclusive, position)
    warp_tile, states = warp_tile_of(functions, vector, 32, steps, threads, reverse, peeled, True, False, index), functions.states
    peel, load, fold, store, size = warp_tile.peel, warp_tile.load, warp_tile.fold, warp_tile.store, warp_tile.size
    initial_state, combine, element, wide = functions.initial_state, states.combine, functions.element, functions.wide
    over_warps, row_of, contiguous, tile_size = scan_warps(states, threads), strided_offset_of(kept), vector > 1, threads * size
    lookback, get = lookback_of(states, group_tiles, 1, threads), functions.get
    look_back, fetch = lookback.look_back, lookback.fetch
    index_type, result_type = jit.SCALARS[index or "i32"], functions.result
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = functions.sizes(1), functions.kinds
    inputs, line = len(functions.operator.inputs), 8 * LINE_BYTES // element.bitwidth

    @jit.device
    def prefetch_tile(arrays: Any, row: Any, tile: Any, extent: Any, kept_shape: Any, a_strides: Any, b_strides: Any, c_strides: Any) -> None:
        """Prefetches a tile of each input: each thread takes one line of 128 bytes."""
        offset = min(tile * tile_size + int32(cuda.threadIdx.x) * line, int64(extent - 1))
        if int32(cuda.threadIdx.x) * line < tile_size:
            offset = extent - 1 - offset if reverse else offset
            prefetch(arrays[0], row_of(row, kept_shape, a_strides) + offset)
            if inputs > 1:
                prefetch(arrays[1], row_of(row, kept_shape, b_strides) + offset)
            if inputs > 2:
                prefetch(arrays[2], row_of(row, kept_shape, c_strides) + offset)

    @jit.device
    def place_of(number: Any, tiles: Any) -> tuple[Any, Any]:
        """(row, tile) of the tile with this number."""
        return int64(number // uint32(tiles)), int64(number % uint32(tiles))

    def scan_long_rows(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[result], indices: Ptr[index or result], initials: Ptr[wide],
        tile_status: Ptr[int64],
        rows: int64, extent: int64, initial: Scalar[wide], initial_position: int64, misalignment: int64, tiles: int64,
        prefetch_distance: int64,
        kept_shape: Extents[kept], a_strides: Extents[kept], b_strides: Extents[kept], c_strides: Extents[kept], output_strides: Extents[kept],
        indices_strides: Extents[kept], axis_strides: Extents[5],
    ) -> None:  # fmt: skip
        shared, shared_indices = cuda.shared.array(0, element, 16), cuda.shared.array(0, index_type, 16)
        shared_results = cuda.shared.array(0, result_type, 16)
        tile_prefixes = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        thread, number = int32(cuda.threadIdx.x), uint32(start_number())
        lane, warp = int32(cuda.laneid), thread >> 5
        row, tile = place_of(number, tiles)
        bases = row_of(row, kept_shape, a_strides), row_of(row, kept_shape, b_strides), row_of(row, kept_shape, c_strides)
        output_base, indices_base = row_of(row, kept_shape, output_strides), row_of(row, kept_shape, indices_strides)
        strides = (int64(1), int64(1), int64(1)) if contiguous else (axis_strides[0], axis_strides[1], axis_strides[2])
        output_stride, indices_stride = (int64(1), int64(1)) if contiguous else (axis_strides[3], axis_strides[4])
        if thread == 0:
            fetch(tile_status, (row * tiles + tile) * STATUS_SPREAD)
        if prefetches and contiguous:
            later_row, later_tile = place_of(uint32(number + uint32(prefetch_distance)), tiles)
            if later_row < rows:
                prefetch_tile((a, b, c), later_row, later_tile, extent, kept_shape, a_strides, b_strides, c_strides)
        tile_start, safe, end = tile * tile_size, int64(0), int64(extent)
        first_state = initial_state(initials[row] if carried else initial, initial_position)
        shape = int64(extent), first_state, initial_position
        if peeled:
            skipped, safe = peel(bases[0], extent, misalignment)
            tile_start -= skipped
        warp_start = tile_start + warp * (size * 32)
        neighbour = load((a, b, c), bases, strides, warp_start, lane, end, safe, shared)
        lane_prefix, aggregate = fold(shared, warp_start, lane, end, shape, initial, neighbour)
        warp_prefix, aggregate = over_warps(lane == 0, aggregate)
        look_back(tile_status, (row * tiles + tile) * STATUS_SPREAD, STATUS_SPREAD, tile, tiles, True, first_state, aggregate, tile_prefixes)
        prefix = combine(get(tile_prefixes, 0), warp_prefix)
        if lane > 0:
            prefix = combine(prefix, lane_prefix)
        store(
            output, indices, output_base, indices_base, output_stride, indices_stride, True, warp_start, lane, end, shape, initial, neighbour,
            prefix, shared, shared_results, shared_indices,
        )  # fmt: skip

    return scan_long_rows, lambda rows, tiles: (rows * tiles, threads, warp_tile.shared_bytes)
