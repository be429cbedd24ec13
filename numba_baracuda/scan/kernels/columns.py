"""Scans across memory: adjacent lanes have adjacent columns, and each walks down its own."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.build import opaque
from ...device.order import start_number
from ...kernels.elements import coordinates_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import MAX_VECTOR_BYTES
from .column_tile import column_tile_of
from .levels import levels_of
from .lookback import lookback_of
from .operator_functions import functions_of


@jit.kernel
def scan_columns(
    *, operator: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    whole: bool, dense: int, position: str, kept: int, carried: bool = False,
) -> Any:  # fmt: skip
    """:func:`scan_rows` where the scanned axis is not the one of the smallest stride: rows are called columns here.

    ``lanes`` adjacent lanes have ``vector`` columns each. A block has threads / lanes such *levels* below each other; a tile is ``steps`` consecutive
    positions a level. Each lane folds its part of each column. Some threads a column turn these aggregates, in shared memory, into the prefixes of
    the levels, and keep the prefix of the next tile. A block of one level needs neither: each thread walks down whole columns, beside the others. It
    leaves lines in L1 if its vectors have less than 16 bytes, since neighbours then share sectors. Order and bytes as :func:`scan_rows`.

    Constants and parameters as :mod:`.` lists them, and: ``lanes``: adjacent lanes of a block, a power of two; threads / lanes is 1, or at least
    ``vector``. ``steps``: consecutive positions that a lane has of a tile. ``whole``: whether these are all that a column has; its elements are then
    loaded without a condition. ``dense``: elements of a vector that is staged in shared memory, 0 for none: a block then has the dense columns of
    one slice. ``columns``: the number of columns.
    """
    functions, alone = functions_of(operator, value, result, exclusive, position), lanes == threads
    l1_cached = alone and vector * functions.element.bitwidth < 8 * MAX_VECTOR_BYTES
    column_tile = column_tile_of(functions, vector, lanes, steps, reverse, index, l1_cached, dense, alone, whole and alone)
    states, wide, load, fold, store = functions.states, functions.wide, column_tile.load, column_tile.fold, column_tile.store
    initial_state, combine, get, put = functions.initial_state, states.combine, functions.get, functions.put
    levels, block_columns, (coordinates, offset), size = threads // lanes, lanes * vector, coordinates_of(kept), column_tile.size
    pitch, tile_extent = block_columns + (lanes if lanes < 32 else 0), levels * steps
    scans = levels_of(functions, levels, block_columns, threads, pitch)
    scan_levels, column_lanes, scanning_threads = scans.scan, scans.lanes, block_columns * scans.lanes
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = functions.sizes(1 if alone else levels * pitch), functions.kinds
    local_0, local_1, local_2, local_3 = functions.sizes(vector)
    size_q, size_r = size if functions.operator.distinct > 1 else 1, size if functions.operator.distinct > 2 else 1

    def scan_columns(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[result], indices: Ptr[index or result],
        initials: Ptr[wide],
        columns: int64, extent: int64, initial: Scalar[wide], initial_position: int64,
        kept_shape: Extents[kept], a_strides: Extents[kept], b_strides: Extents[kept], c_strides: Extents[kept], output_strides: Extents[kept],
        indices_strides: Extents[kept], axis_strides: Extents[5],
    ) -> None:  # fmt: skip
        transformed = (cuda.local.array(size, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        shared_states = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        prefixes = (
            cuda.local.array(local_0, kind_0), cuda.local.array(local_1, kind_1), cuda.local.array(local_2, kind_2),
            cuda.local.array(local_3, kind_3),
        )  # fmt: skip
        thread = uint32(cuda.threadIdx.x)
        level, lane = int32(0 if alone else thread // uint32(lanes)), int32(thread if alone else thread % uint32(lanes))
        column = (int64(cuda.blockIdx.x) * lanes + lane) * vector
        active = column < columns
        column = min(column, int64(columns - vector))
        if dense:
            active = lane < axis_strides[0]
            column = cuda.blockIdx.x * axis_strides[0] + min(int64(lane), axis_strides[0] - 1)
        place = cuda.local.array(kept, int64)
        coordinates(column, kept_shape, place)
        bases = offset(place, a_strides), offset(place, b_strides), offset(place, c_strides)
        output_base, indices_base = offset(place, output_strides), offset(place, indices_strides)
        tile_prefix, tile_start, slot = initial_state(initial, initial_position), int64(0), level * pitch + lane
        end = int64(steps if whole else extent)
        number = int32(thread // uint32(column_lanes))
        if carried and not alone:  # below, a thread has the column whose states are in the slots of this number
            own_lane = int64(number % lanes)
            own_column = min((int64(cuda.blockIdx.x) * lanes + own_lane) * vector, int64(columns - vector))
            if dense:
                own_column = cuda.blockIdx.x * axis_strides[0] + min(own_lane, axis_strides[0] - 1)
            tile_prefix = initial_state(initials[min(own_column + number // lanes, int64(columns - 1))], initial_position)
        for v in range(vector):
            put(prefixes, v, initial_state(initials[column + v], initial_position) if carried else tile_prefix)
        while tile_start < end:
            start = tile_start + level * steps
            if alone and not whole:
                cuda.syncthreads()  # so that warps side by side read the same rows at a time, and memory whole pages
            load((a, b, c), bases, axis_strides, start, end, initial, transformed)
            if not alone:
                for v in range(vector):
                    put(shared_states, slot + v * lanes, fold(transformed, v, start, end))
                cuda.syncthreads()
                if thread < scanning_threads:
                    tile_prefix = combine(tile_prefix, scan_levels(shared_states, number, tile_prefix))
                cuda.syncthreads()
                # no barrier after this: a thread reads only the slots that it alone overwrites with the next tile's aggregates
                for v in range(vector):
                    put(prefixes, v, get(shared_states, slot + v * lanes))
            store(output, indices, output_base, indices_base, axis_strides[3], axis_strides[4], transformed, start, end, prefixes, active)
            tile_start = end if whole else opaque(tile_start + tile_extent)

    return scan_columns, lambda columns: (-(-columns // block_columns), threads, 0)


@jit.kernel
def scan_long_columns(
    *, operator: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    position: str, kept: int, group_tiles: int, batches: int, l1_cached: bool, carried: bool = False,
) -> Any:  # fmt: skip
    """:func:`scan_columns` where columns are few and long: each block scans one tile, and gets the prefixes before it by decoupled look-back.

    A *strip* is the columns of one block. Blocks have tiles in the order in which they start, those of all strips at one height first. A lane has
    ``batches`` batches of ``steps`` consecutive positions of a tile. It folds them all, and loads them again for the results unless there is only
    one. Order: fixed by the constants; ``group_tiles`` 0 combines tiles in the order in which they are done. Bytes: every operand once; with several
    batches the inputs twice, the second time from the caches as far as these hold them; and 16 for each 64-bit piece of a column's state in a tile,
    written once and polled.

    Constants and parameters as :mod:`.` lists them, and: ``lanes``: adjacent lanes of a block, a power of two up to 32. ``steps``: consecutive
    positions of a batch. ``batches``: batches that a lane has of a tile. ``l1_cached``: whether loads leave the inputs in L1 for the second reading.
    ``columns``: the number of columns. ``strips``: the number of strips, ⌈columns / (lanes · vector)⌉.
    """
    functions = functions_of(operator, value, result, exclusive, position)
    column_tile = column_tile_of(functions, vector, lanes, steps, reverse, index, l1_cached, 0, False, False)
    states, wide, load, fold, store = functions.states, functions.wide, column_tile.load, column_tile.fold, column_tile.store
    initial_state, combine, identity, get, put = functions.initial_state, states.combine, states.identity, functions.get, functions.put
    levels, block_columns, column_of, size = threads // lanes, lanes * vector, strided_offset_of(kept), column_tile.size
    pitch, level_extent, tile_extent = block_columns + (lanes if lanes < 32 else 0), batches * steps, levels * batches * steps
    lookback = lookback_of(states, group_tiles, block_columns, threads)
    look_back, lookback_lanes = lookback.look_back, lookback.lanes
    scan_levels, lookback_threads = levels_of(functions, levels, block_columns, threads, pitch).scan, block_columns * lookback_lanes
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = functions.sizes(levels * pitch), functions.kinds
    (prefixes_0, prefixes_1, prefixes_2, prefixes_3), (local_0, local_1, local_2, local_3) = functions.sizes(block_columns), functions.sizes(vector)
    size_q, size_r = size if functions.operator.distinct > 1 else 1, size if functions.operator.distinct > 2 else 1

    def scan_long_columns(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[result], indices: Ptr[index or result], initials: Ptr[wide],
        tile_status: Ptr[int64],
        columns: int64, extent: int64, initial: Scalar[wide], initial_position: int64, tiles: int64, strips: int64,
        kept_shape: Extents[kept], a_strides: Extents[kept], b_strides: Extents[kept], c_strides: Extents[kept], output_strides: Extents[kept],
        indices_strides: Extents[kept], axis_strides: Extents[5],
    ) -> None:  # fmt: skip
        transformed = (cuda.local.array(size, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        shared_states = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        tile_prefixes = (
            cuda.shared.array(prefixes_0, kind_0), cuda.shared.array(prefixes_1, kind_1), cuda.shared.array(prefixes_2, kind_2),
            cuda.shared.array(prefixes_3, kind_3),
        )  # fmt: skip
        prefixes = (
            cuda.local.array(local_0, kind_0), cuda.local.array(local_1, kind_1), cuda.local.array(local_2, kind_2),
            cuda.local.array(local_3, kind_3),
        )  # fmt: skip
        corner = cuda.shared.array(2, int64)
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            number = int64(start_number())
            corner[0] = number // strips
            corner[1] = (number - corner[0] * strips) * block_columns
        cuda.syncthreads()
        tile, first_column = corner[0], corner[1]
        level, lane = int32(uint32(thread) // uint32(lanes)), int32(uint32(thread) % uint32(lanes))
        column, end_column = first_column + lane * vector, int64(columns)
        active = column < end_column
        column = min(column, int64(end_column - vector))
        bases = column_of(column, kept_shape, a_strides), column_of(column, kept_shape, b_strides), column_of(column, kept_shape, c_strides)
        output_base, indices_base = column_of(column, kept_shape, output_strides), column_of(column, kept_shape, indices_strides)
        end, slot = int64(extent), level * pitch + lane
        level_start = tile * tile_extent + level * level_extent
        for v in range(vector):
            put(prefixes, v, identity())
        start = level_start
        while start < level_start + level_extent:
            load((a, b, c), bases, axis_strides, start, end, initial, transformed)
            for v in range(vector):
                put(prefixes, v, combine(get(prefixes, v), fold(transformed, v, start, end)))
            start = opaque(start + steps)
        for v in range(vector):
            put(shared_states, slot + v * lanes, get(prefixes, v))
        cuda.syncthreads()
        aggregate, lookback_column = identity(), int64(0)
        if thread < lookback_threads:
            number = thread // lookback_lanes
            aggregate = scan_levels(shared_states, number, identity())
            lookback_column = first_column + number % lanes * vector + number // lanes
        initial_prefix, looking = (
            initial_state(initials[min(lookback_column, int64(columns - 1))] if carried else initial, initial_position),
            lookback_column < end_column,
        )
        look_back(tile_status, tile * columns + lookback_column, columns, tile, tiles, looking, initial_prefix, aggregate, tile_prefixes)
        for v in range(vector):
            put(prefixes, v, combine(get(tile_prefixes, lane + v * lanes), get(shared_states, slot + v * lanes)))
        start = level_start
        while start < level_start + level_extent:
            if batches > 1:
                load((a, b, c), bases, axis_strides, start, end, initial, transformed)
            store(output, indices, output_base, indices_base, axis_strides[3], axis_strides[4], transformed, start, end, prefixes, active)
            start = opaque(start + steps)

    return scan_long_columns, lambda strips, tiles: (strips * tiles, threads, 0)
