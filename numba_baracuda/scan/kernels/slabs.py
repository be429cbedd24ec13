"""Scans across memory of long columns: a block brings a slab of rows to shared memory once, and gets its prefix by look-back."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.order import start_number
from ...kernels.elements import coordinates_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from .levels import levels_of
from .lookback import lookback_of, packing_of
from .operator_functions import functions_of
from .slab_runs import slab_runs_of
from .slab_tile import slab_tile_of
from .slab_walk import BATCH, slab_walk_of

#: statuses that a lane reads before it waits for the first; where a column has few lanes for its statuses, which are one number each; columns of
#: runs, of which more leave registers for one
_READ_AHEAD, _FEW_LANES, _MORE_AHEAD, _RUN_COLUMNS = 4, 2, 6, 32


@jit.kernel
def scan_slabs(
    *, operator: str, value: str, lanes: int, levels: int, room: int, pitch: int, grain: int, threads: int, reverse: bool, exclusive: bool,
    position: str, kept: int, group_tiles: int, whole: bool = False, carried: bool = False,
) -> Any:  # fmt: skip
    """:func:`scan_long_columns` of slices whose columns are one contiguous range of memory; a block has a *slab* of adjacent rows of a strip.

    A slab goes to shared memory in vectors of 16 bytes, past the registers. There the ``levels`` of the block, each a thread a column, fold
    ``level_rows`` consecutive rows each, and after the look-back scan them; results take the place of the first input, and are stored in vectors.
    Order: fixed by the constants, ``height`` and ``level_rows``; ``group_tiles`` 0 combines slabs in the order in which they are done.
    Slabs that are ``whole`` have all rows of their columns: nothing is looked back for, and one level folds nothing.
    Where an operator scatters, winners of a slab are left out of its stores if a later one takes over behind it, whose block stores their numbers.
    Bytes: every operand once, and 16 for each 64-bit piece of a column's state in a slab, written once and polled.

    Constants and parameters as :mod:`.` lists them; results are of the inputs' type. ``lanes``: a power of two, at least the columns of a strip;
    ``levels``: as :func:`~..tiling.block_levels` says;
    ``room``: elements of shared memory for each input, a multiple of a vector; ``pitch`` and ``grain`` as :class:`~.slab_tile.SlabTile` says.
    ``columns``: the number of columns; ``width``: those of a slice; ``strip_width``: those of a strip, of which a slice may leave the last unfilled;
    ``strips``: of all slices; ``height``: rows of a slab; ``level_rows``: height / levels. The slices of all operands begin equally far from a
    multiple of a vector. ``tile_status`` is not used where slabs are ``whole``.
    """
    functions = functions_of(operator, value, value, exclusive, position)
    slab = slab_tile_of(functions.element, room, threads, pitch, grain, lanes)
    scatters = functions.operator.scatters
    walk: Any = slab_runs_of(functions, slab, reverse, whole) if scatters else slab_walk_of(functions, slab, reverse)
    states, wide, vector, inputs = functions.states, functions.wide, slab.vector, len(functions.operator.inputs)
    initial_state, combine, identity, get, put = functions.initial_state, states.combine, states.identity, functions.get, functions.put
    slots, (_, offset), (coordinates, _) = lanes + 1, coordinates_of(kept), coordinates_of(max(kept - 1, 1))
    pieces, few_lanes = packing_of(states.kinds)[0], threads // lanes <= _FEW_LANES
    read_ahead = _MORE_AHEAD if few_lanes and functions.width == 1 else _READ_AHEAD
    if scatters and lanes > _RUN_COLUMNS:
        read_ahead = 1
    lookback = lookback_of(states, group_tiles, lanes, threads, read_ahead * pieces)
    look_back, lookback_lanes, lookback_threads = lookback.look_back, lookback.lanes, lanes * lookback.lanes
    scans = levels_of(functions, levels, lanes, threads, slots)
    scan_levels, begin_copy, end_copy, write, folds = scans.scan, slab.begin_copy, slab.end_copy, slab.write, levels > 1 or not whole
    places, neighbour_of, fold, scan = walk.places, walk.neighbour_of, walk.fold, walk.scan
    store_runs: Any = walk.store if scatters else None
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = functions.sizes(levels * slots if folds else 1), functions.kinds
    prefixes_0, prefixes_1, prefixes_2, prefixes_3 = functions.sizes(1 if whole else lanes)

    def scan_slabs(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[value], initials: Ptr[wide],
        tile_status: Ptr[int64],
        columns: int64, extent: int64, initial: Scalar[wide], initial_position: int64, tiles: int64, strips: int64,
        width: int64, strip_width: int64, height: int64, level_rows: int64,
        kept_shape: Extents[kept], a_strides: Extents[kept], b_strides: Extents[kept], c_strides: Extents[kept], output_strides: Extents[kept],
    ) -> None:  # fmt: skip
        shared_states = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        tile_prefixes = (
            cuda.shared.array(prefixes_0, kind_0), cuda.shared.array(prefixes_1, kind_1), cuda.shared.array(prefixes_2, kind_2),
            cuda.shared.array(prefixes_3, kind_3),
        )  # fmt: skip
        open_places = cuda.shared.array(lanes if scatters else 1, int32)
        corner, offsets, place = cuda.shared.array(3, int64), cuda.local.array(BATCH, int32), cuda.local.array(kept, int64)
        thread = int32(cuda.threadIdx.x)
        tile, slice_number, strip_begin = int64(0), int64(cuda.blockIdx.x), int64(0)
        if not whole or pitch > 0:
            if thread == 0:
                number = uint32(start_number())
                tile_number, slice_strips = number // uint32(strips), uint32(width + strip_width - 1) // uint32(strip_width)
                strip = uint32(number - tile_number * uint32(strips))
                strip_slice = strip // slice_strips
                corner[0], corner[1] = tile_number, strip_slice
                corner[2] = uint32(strip - strip_slice * slice_strips) * strip_width
            cuda.syncthreads()
            tile, slice_number, strip_begin = corner[0], corner[1], corner[2]
        first_column, own = slice_number * width + strip_begin, int32(min(strip_width, width - strip_begin))
        coordinates(slice_number, kept_shape, place)
        place[kept - 1] = strip_begin
        start = tile * height
        rows = int32(min(height, extent - start))
        # the slab's first row in memory, and the elements from there to the end of the slice
        first_row = extent - start - rows if reverse else start
        above, limit = first_row * width, int32(min((extent - first_row) * width - strip_begin, int64(1 << 30)))
        first, first_output, first_c = offset(place, a_strides) + above, offset(place, output_strides) + above, offset(place, c_strides) + above
        shift = int32(first & (vector - 1))
        begin_copy(a, first, shift, rows, width, own, limit, 0)
        if inputs > 1:
            begin_copy(b, offset(place, b_strides) + above, shift, rows, width, own, limit, 1)
        if inputs > 2:
            begin_copy(c, first_c, shift, rows, width, own, limit, 2)
        if folds:  # also for the columns that the strip does not have
            for first_level in range(0, levels, threads // lanes):
                own_level = first_level + thread // lanes
                if own_level < levels:
                    put(shared_states, int32(own_level * slots + thread % lanes), identity())
        level = int32(uint32(thread) // uint32(strip_width))
        column, top = int32(thread - level * int32(strip_width)), int32(level * int32(level_rows))
        active, own_rows = level < levels and column < own, int32(max(min(rows - top, int32(level_rows)), 0))
        slot = int32(level * slots + column)
        at, advance = places(column, top, rows, width, shift, offsets)
        end_copy()
        cuda.syncthreads()
        neighbour, extreme = wide(0), wide(0)
        if active:
            neighbour = neighbour_of(c, first_c + column, column, top, own_rows, rows, width, shift, start, extent, initial)
            if folds:
                folded = fold(at, advance, offsets, own_rows, start + top, neighbour)
                put(shared_states, slot, folded)
                if scatters:
                    extreme = folded[0]
        if folds:
            cuda.syncthreads()
        aggregate, number = identity(), int32(thread // lookback_lanes)
        own_column = first_column + (number if folds else column)
        state = initial_state(initials[min(own_column, int64(columns - 1))] if carried else initial, initial_position)
        if folds:
            if thread < lookback_threads:
                aggregate = scan_levels(shared_states, number, state if whole else identity())
            if whole:
                cuda.syncthreads()
            else:
                look_back(tile_status, tile * columns + own_column, columns, tile, tiles, number < own, state, aggregate, tile_prefixes)
            if active:
                state = get(shared_states, slot) if whole else combine(get(tile_prefixes, column), get(shared_states, slot))
        if scatters:
            store_runs(
                output, first_output, column, at, advance, offsets, top, own_rows, rows, width, shift, own, start, extent, active, extreme, state,
                open_places,
            )  # fmt: skip
        else:
            if active:
                scan(at, advance, offsets, own_rows, start + top, neighbour, state)
            cuda.syncthreads()
            write(output, first_output, shift, rows, width, own)

    shared_bytes = (inputs * room + (threads if scatters else 0)) * functions.element.bitwidth // 8
    return scan_slabs, lambda strips, tiles: (strips * tiles, threads, shared_bytes)
