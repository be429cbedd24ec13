"""How lanes share elements and rows: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..core.axes import busy_lanes, ceil_div, power_of_two
from ..core.policy import tuned
from .policy import Elements, ScanColumns, ScanLongColumns, ScanLongRows, ScanRows, ScanSlabs, ScanSlices

#: bytes of a cache line; tiles begin at a multiple of them
LINE_BYTES = Elements.line_bytes
#: bytes of a line that memory moves at once: columns of rows that begin inside one are read twice by blocks that are not at the same rows
SECTOR_BYTES = 32
#: bytes of the widest vectorized load or store
MAX_VECTOR_BYTES = 16
#: lanes of a warp
WARP = 32
#: rows for each element of a vector from which on a warp leaves some of those that fit its tile to the next
MIN_WHOLE_VECTORS = 8
#: places from a tile's status to the next one's of a long row: many blocks poll it, and are slower where statuses share a cache line
STATUS_SPREAD = 8


def steps_of(nbytes: int, vector: int, size: int, max_items: int = 0) -> int:
    """Vectors of ``vector`` elements of ``size`` bytes that make up ``nbytes`` of a lane's tile, a power of two.

    They are as many as the policy allows at most, or as ``max_items`` if that is given.
    """
    policy = tuned(Elements())
    most = min(min(nbytes // size, policy.max_elements_per_thread) // vector, max_items or policy.max_items_per_thread)
    return max(1, power_of_two(most + 1) // 2)


def element_steps(nbytes: int, size: int, max_items: int = 0) -> int:
    """Elements, one by one, that make up ``nbytes`` of a lane's tile; of 2 bytes no more than of 4, for each is widened to a register."""
    return steps_of(nbytes * min(size, 4) // 4, 1, size, max_items)


def row_config(policy: ScanRows, vectors: int, steps: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for rows of so many vectors: some lanes of a warp where these need few steps, else a block with few idle warps."""
    threads = policy.threads_per_block
    if vectors <= WARP * steps:
        steps = max(1, min(steps, power_of_two(vectors) // policy.adjacent_threads))
        return power_of_two(ceil_div(vectors, steps)), steps, threads
    warps = ceil_div(vectors, WARP * steps)
    if steps > 1 and 100 * vectors < policy.min_full_percent * WARP * steps * warps:
        steps //= 2
        warps = ceil_div(vectors, WARP * steps)
    threads = WARP * ceil_div(warps, ceil_div(warps, threads // WARP))
    return threads, steps, threads


def segments_of(extent: int, vector: int, steps: int) -> int:
    """Rows of ``extent`` elements, one after the other, that a warp scans as segments; 1 where they are too long for two.

    They fill the warp's tile of ``steps`` vectors a lane, which begins with a vector that the first row may share. Where many fit, their number is a
    multiple of ``vector``, so that aligned rows begin and end with one.
    """
    fitting = max(1, (WARP * steps * vector - vector + 1) // extent)
    return fitting - (fitting % vector if fitting >= MIN_WHOLE_VECTORS * vector else 0)


def narrow_lanes(policy: ScanLongColumns, vectors: int, nbytes: int, size: int) -> int:
    """Adjacent lanes for narrow vectors of ``nbytes``: they cover no more than a warp does by elements of ``size`` bytes, and few are idle."""
    widest, least = (column_lanes(vectors, nbytes, contiguous) for contiguous in (min(policy.narrow_bytes, WARP * size), policy.contiguous_bytes))
    return busy_lanes(vectors, widest, least, policy.max_idle_percent)


def column_lanes(vectors: int, nbytes: int, contiguous_bytes: int) -> int:
    """Adjacent lanes for rows of ``vectors`` contiguous vectors of ``nbytes``: they cover ``contiguous_bytes`` if a row has as many."""
    return max(1, min(32, contiguous_bytes // nbytes, power_of_two(vectors)))


def is_narrow(vector: int, size: int) -> bool:
    """Whether loads and stores of ``vector`` elements of ``size`` bytes are so narrow that their number limits a kernel."""
    return vector == 1 or vector * size <= 4


def slices_of(policy: ScanSlices, elements: int, vector: int, tile: int) -> int:
    """Slices of so many ``elements`` that a block's tile holds, a multiple of a vector together; 0 where they would leave much of it empty."""
    unit = vector // math.gcd(vector, elements)
    fitting = tile // (elements * unit) * unit
    return fitting if 100 * fitting * elements >= policy.min_full_percent * tile else 0


def slices_bytes(inputs: int, tile: int, size: int, padded: bool, own: int) -> int:
    """Bytes of shared memory for the tiles of so many ``inputs``, where a vector's room may follow each line, and ``own`` elements of threads."""
    return inputs * (tile * size + (tile * size // LINE_BYTES * MAX_VECTOR_BYTES if padded else 0)) + own * size


def slices_padded(width: int, elements: int, size: int) -> bool:
    """Whether room after each line of shared memory spreads ``width`` columns of each of the slices of so many ``elements`` over more banks.

    A warp's lanes access elements of one row of adjacent columns, of a slice for every ``width`` lanes. Slices of a multiple of a power of two begin
    in as few banks as this leaves of a line; that two of them share some is as good as none. One shape in twenty has other conflicts.
    """
    nbytes = elements * size
    return ceil_div(WARP, width) * min(nbytes & -nbytes, LINE_BYTES) > 2 * LINE_BYTES


class Slab(NamedTuple):
    """How the blocks of ``scan_slabs``, of so many threads, share rows and columns, as the kernel's constants and parameters of these names say."""

    threads: int
    lanes: int
    levels: int
    room: int
    pitch: int
    strip_width: int
    height: int
    level_rows: int


def block_levels(threads: int, lanes: int, columns: int) -> int:
    """Levels of a block of so many ``threads`` on ``columns``, of at most ``lanes``: half as many more where a third of the threads had no column."""
    levels = threads // lanes
    return levels * 3 // 2 if 3 * columns <= 2 * lanes else levels


def slab_of(
    policy: ScanSlabs, bits: Sequence[int], inputs: int, size: int, width: int, grain: int, slices: int, extent: int, multiprocessors: int
) -> Slab | None:  # fmt: skip
    """The slabs of ``slices`` [extent, width] of elements of ``size`` bytes, whose rows begin at multiples of ``grain``, of each of the ``inputs``.

    Rows are whole if they are short enough for their statuses to be small compared to the slab's elements; otherwise strips are whole vectors
    wide. None where statuses would be large even so, or levels low, or slices too small for their slabs, or small and few. A level of whole rows has
    an odd number of them, since levels then lie in different banks for most widths; a multiple of 8 rows, or one more, makes whole batches.
    """
    vector, threads = MAX_VECTOR_BYTES // size, policy.threads_per_block
    room = policy.tile_bytes // (inputs * size) // vector * vector
    least = ceil_div(policy.bytes_per_status_byte * 16 * (pieces_of(bits)[-1][0] + 1), inputs * size)
    whole = (room - vector) // width >= least and width <= min(policy.whole_columns, threads)
    strip_width = width if whole else ceil_div(ceil_div(width, ceil_div(width, policy.strip_columns)), vector) * vector
    pitch = 0 if whole else ceil_div(strip_width + vector - grain, vector) * vector
    threads = threads if whole else min(threads, policy.max_strip_threads)
    lanes, most = power_of_two(strip_width), (room - vector) // width if whole else room // pitch
    share = ceil_div(slices * extent * ceil_div(width, strip_width), policy.tiles_per_multiprocessor * multiprocessors)
    levels = block_levels(threads, lanes, strip_width)
    each = min(most, max(2 * least, share)) // levels
    unit = 8 if each > 32 else 2 if whole else 1
    each = (each - 1) // unit * unit + 1 if whole else each // unit * unit
    if 100 * extent <= policy.min_full_percent * most or most < least or each < policy.min_level_rows:
        return None
    if extent <= 2 * most:  # one slab, or two or three of one height, if that makes one for each multiprocessor
        if slices * ceil_div(width, strip_width) < multiprocessors:
            return None
        share = ceil_div(extent, ceil_div(extent, levels * each) * levels)
        each = min(each, ceil_div(share - 1, unit) * unit + 1 if whole else ceil_div(share, unit) * unit)
    return Slab(threads, lanes, levels, room, pitch, strip_width, levels * each, each)


def whole_slab_of(policy: ScanSlabs, inputs: int, size: int, width: int, grain: int, slices: int, extent: int, multiprocessors: int) -> Slab | None:
    """The same of slabs that have whole columns, a block each; None where one does not hold them, or they are few.

    A block has the fewer threads the smaller its slab is, so that a multiprocessor holds several, and room for as much as they take. So there are few
    kernels, which are compiled for it.
    """
    vector = MAX_VECTOR_BYTES // size
    most = policy.whole_bytes // (inputs * size) // vector * vector
    flat, columns = width <= policy.whole_columns, policy.whole_strip_columns
    while not flat and columns > policy.strip_columns and extent * (columns + vector) > most:
        columns //= 2
    strip_width = width if flat else ceil_div(ceil_div(width, ceil_div(width, columns)), vector) * vector
    pitch = 0 if flat else ceil_div(strip_width + vector - grain, vector) * vector
    lanes, strips, held = power_of_two(strip_width), slices * ceil_div(width, strip_width), extent * (pitch or width) + (vector if flat else 0)
    if not policy.min_whole_elements <= held <= most or strips < policy.whole_per_multiprocessor * multiprocessors:
        return None
    threads = min(max(power_of_two(ceil_div(held * inputs * size, policy.bytes_per_thread)), policy.least_threads, lanes), policy.threads_per_block)
    rooms = [nbytes // (inputs * size) // vector * vector for nbytes in (threads * policy.bytes_per_thread, policy.tile_bytes)]
    room = next((room for room in rooms if held <= room), most)
    levels = block_levels(threads, lanes, strip_width)
    each = ceil_div(extent, levels)
    if levels > 1:
        unit = 8 if each > 16 else 2 if flat else 1
        each = ceil_div(each - 1, unit) * unit + 1 if flat else ceil_div(each, unit) * unit
    return Slab(threads, lanes, levels, room, pitch, strip_width, extent, each)


def dense_pitch(lanes: int, steps: int, size: int) -> int:
    """Elements of ``size`` bytes of shared memory from one level's part to the next where ``lanes`` columns lie densely."""
    return lanes * steps + max(lanes, MAX_VECTOR_BYTES // size)


def dense_threads(policy: ScanColumns, slices: int, width: int, steps: int, extent: int, multiprocessors: int) -> int:
    """Threads of a block for ``width`` dense columns of ``extent`` elements, from two warps on; 0 if most of two warps were idle.

    A block has more of them where ``slices`` are so few that smaller blocks would leave multiprocessors idle.
    """
    busy = power_of_two(ceil_div(policy.dense_threads_per_multiprocessor * multiprocessors, slices))
    most = min(policy.threads_per_block, max(policy.dense_threads_per_block, busy))
    needed = power_of_two(width) * ceil_div(extent, steps)
    return min(most, max(2 * WARP, power_of_two(needed))) if needed > WARP else 0


def walks_alone(policy: ScanColumns, rows: int, width: int, vector: int, size: int, extent: int, multiprocessors: int) -> bool:
    """Whether each thread should walk down ``vector`` whole columns of ``extent`` elements.

    All ``rows`` columns then keep the device busy, and the ``width`` that lie side by side fill lines of the cache.
    """
    least = policy.enough_blocks_per_multiprocessor
    if extent >= policy.min_alone_elements:
        least = min(policy.grid_blocks_per_multiprocessor * vector, least)
    return ceil_div(rows, policy.alone_threads_per_block * vector) >= least * multiprocessors and width * size >= LINE_BYTES


def column_config(policy: ScanColumns, lanes: int, vector: int, steps: int, extent: int, alone_steps: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for columns of ``extent`` elements, ``vector`` columns a lane, by at least ``lanes`` adjacent lanes.

    All threads of a block are adjacent if columns are alone, enough to keep the device busy so, in ``alone_steps`` at a time, or 0 if they are not;
    or if they have at most so many elements, which are then the steps. Otherwise a tile has as many levels as the columns fill.
    """
    threads = policy.threads_per_block
    if extent <= max(steps, alone_steps):
        return threads, extent, threads
    if alone_steps:
        return policy.alone_threads_per_block, alone_steps, policy.alone_threads_per_block
    return threads // min(threads // lanes, max(vector, power_of_two(ceil_div(extent, steps)))), steps, threads


def pieces_of(bits: Sequence[int]) -> list[tuple[int, int]]:
    """(number of a 64-bit piece, shift in it) for each scalar of a state, of so many bits; two of 32 that follow one another share one."""
    found: list[tuple[int, int]] = []
    for each in bits:
        piece, shift = found[-1] if found else (-1, 32)
        found.append((piece, 32) if each == 32 and shift == 0 and bits[len(found) - 1] == 32 else (piece + 1, 0))
    return found


def resident_blocks(policy: ScanLongRows, tile_bytes: int) -> int:
    """Blocks that a multiprocessor should hold, each with a tile of so many bytes in shared memory."""
    return max(1, min(policy.min_blocks_per_multiprocessor, policy.shared_bytes_per_multiprocessor // tile_bytes) - policy.fewer_blocks)


def narrow_tile_bytes(policy: ScanLongColumns, strips: int, nbytes: int, multiprocessors: int) -> int:
    """Least bytes of a tile of narrow columns in so many ``strips`` of ``nbytes`` together, which leave tiles for each multiprocessor."""
    return min(policy.narrow_tile_bytes // ceil_div(strips, policy.few_strips), nbytes // (policy.narrow_tiles_per_multiprocessor * multiprocessors))


def tall_tile(policy: ScanLongColumns, bits: Sequence[int], height: int, nbytes: int, columns: int, least: int) -> tuple[int, int]:
    """(batches of ``height`` rows, rows) of a tile of ``columns``: enough that its status is small compared to its elements of ``nbytes``.

    It has ``least`` bytes at least, so that the loads of resident blocks hide its look-back.
    """
    status = policy.bytes_per_status_byte * 16 * (pieces_of(bits)[-1][0] + 1)
    times = max(ceil_div(status, height * nbytes), ceil_div(least, height * nbytes * columns))
    return times, times * height


def group_of(policy: ScanLongColumns, strips: int) -> int:
    """Tiles of a strip whose aggregates are combined at once."""
    return max(policy.min_group_tiles, min(policy.max_group_tiles, power_of_two(ceil_div(policy.concurrent_tiles, strips))))


def status_words(bits: Sequence[int], items: int) -> int:
    """64-bit words of workspace that hold the statuses of ``items`` states."""
    return 2 * items * (pieces_of(bits)[-1][0] + 1)
