"""The tuning policies of the scan family.

All numbers but those said to be computed were chosen by times on an H200 (sm_90, 132 multiprocessors). Tiles and thresholds are the same on every
architecture, since no other was measured. ``min_blocks_per_multiprocessor`` is the fastest value that compiles for sm_90 without a spill;
from sm_100 on, where kernels take more registers, long rows, slabs and affine maps of narrow long columns get one block fewer.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import THREADS, Policy, chosen, fixed

#: bytes of a vectorized load or store that a kernel may be compiled for
VECTOR_BYTES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Elements(Policy):
    """Numbers that all kernels of the family share."""

    vector_bytes: int = chosen(16, *VECTOR_BYTES)  #: bytes of the widest vectorized load or store along rows
    result_vector_bytes: int = chosen(32, 4, 8, 16, 32)  #: bytes of the results of one vector at most, in several stores where they are more than 16
    max_items_per_thread: int = 16  #: the most vectors of a tile for each thread
    max_elements_per_thread: int = fixed(64)  #: the most elements of a tile for each thread, which has a bit mask of as many bits
    shared_bytes_per_thread: int = 256  #: bytes of a thread's part of a tile, all operands together
    min_peeled_bytes: int = 1 << 10  #: longer misaligned rows are peeled, and all gapless ones: vectors for their middle, elements at both ends
    dense_row_bytes: int = 32  #: dense columns of rows of up to so many bytes are staged in shared memory, though vectors of each lane are aligned
    line_bytes: int = fixed(128)  #: bytes of a cache line; tiles begin at a multiple of them


@dataclass(frozen=True)
class ScanRows(Policy):
    """``scan_rows``: some threads of a warp, or a block, scan a row; a warp scans several that are short and odd."""

    threads_per_block: int = chosen(256, *THREADS)  #: the most threads where a block scans a row
    bytes_per_thread: int = 128  #: bytes of each operand's tile for each thread
    min_blocks_per_multiprocessor: int = 0
    adjacent_threads: int = 8  #: adjacent threads on a row, one vector each, before a thread takes several
    min_full_percent: int = 0  #: of the tile of a block that has a row: where a row fills less of it, threads have half as many vectors; computed


@dataclass(frozen=True)
class ScanLongRows(Policy):
    """``scan_long_rows``: blocks share the tiles of a row, and get the prefixes of their tiles by decoupled look-back."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    min_blocks_per_multiprocessor: int = 4
    fewer_blocks: int = 0  #: subtracted from the resident blocks
    shared_bytes_per_multiprocessor: int = 224 << 10  #: bytes of all resident blocks together
    busy_rows_per_multiprocessor: int = 4  #: with so many rows for each multiprocessor, no row is shared by blocks
    min_tiles: int = 2  #: blocks share a row of more tiles than this
    group_tiles: int = 32  #: tiles of a row whose aggregates are combined at once, in fixed order
    prefetched_tiles_per_multiprocessor: int = 0  #: how far ahead a block prefetches to L2, in tiles for each multiprocessor, if at all


@dataclass(frozen=True)
class ScanColumns(Policy):
    """``scan_columns``: a block walks down columns; adjacent threads take adjacent vectors of a row."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    vector_bytes: int = chosen(16, *VECTOR_BYTES)  #: bytes of the widest load or store across rows, in ``scan_long_columns`` as well
    contiguous_bytes: int = 256  #: contiguous bytes of a row that a block loads or stores together, at least
    astride_bytes: int = 256  #: the same of rows that begin inside sectors, of which two blocks then share some; computed, not timed
    min_blocks_per_multiprocessor: int = 0
    alone_threads_per_block: int = chosen(256, *THREADS)  #: where each thread walks down whole columns
    alone_items_per_thread: int = 8  #: rows of which such a thread loads its columns at a time; the threads of a block stay together
    narrow_items_per_thread: int = 8  #: the same where loads are narrow; above 8 computed, not timed
    max_alone_elements: int = 32  #: the most elements of these, which are in registers
    grid_blocks_per_multiprocessor: int = 2  #: least blocks of such threads for each element of a vector, up to ``enough_blocks_per_multiprocessor``
    enough_blocks_per_multiprocessor: int = 4
    min_alone_elements: int = 1  #: of a column; where it has fewer, as many blocks as are enough are needed
    dense_threads_per_block: int = chosen(64, *THREADS)  #: of a block that scans one slice of dense columns; more where slices are few
    dense_threads_per_multiprocessor: int = 768  #: fewer than so many are few


@dataclass(frozen=True)
class ScanLongColumns(Policy):
    """``scan_long_columns``: blocks share the tiles of columns, and get their prefixes by decoupled look-back."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    contiguous_bytes: int = 128
    narrow_bytes: int = 128  #: contiguous bytes where loads and stores are narrow and begin anywhere in a sector; computed, not timed
    max_narrow_items: int = 32  #: the most narrow elements of a batch for each thread
    narrow_tile_bytes: int = 0  #: the same where loads and stores are narrow
    few_strips: int = 4  #: of so many blocks side by side; of more, a tile has the smaller part of these bytes
    narrow_tiles_per_multiprocessor: int = 4  #: fewer bytes if there would not be so many tiles; computed, not timed
    max_idle_percent: int = 25  #: of such lanes: where more had no column, blocks load fewer contiguous bytes, down to ``contiguous_bytes``
    min_blocks_per_multiprocessor: int = 4
    cached: bool = True  #: whether a tile that is read twice is cached in L1
    max_row_bytes_per_multiprocessor: int = 192  #: blocks share columns of rows of up to so many bytes; above 128 computed, not timed
    min_tiles: int = 2  #: blocks share columns of more tiles than this
    bytes_per_status_byte: int = 100  #: least bytes of a tile for each byte of its status
    concurrent_tiles: int = 64  #: tiles of all strips that run while one group of tiles waits for the prefix of the group before it
    min_group_tiles: int = 8  #: tiles of a strip whose aggregates are combined at once, in fixed order
    max_group_tiles: int = 64


@dataclass(frozen=True)
class ScanSlabs(Policy):
    """``scan_slabs``: blocks bring slabs of rows to shared memory, and get their prefixes by look-back. Computed, not timed.

    A thread has many elements, since what it does besides takes as many instructions as some dozens of them.
    """

    threads_per_block: int = chosen(128, *THREADS)
    tile_bytes: int = 48 << 10  #: bytes of a slab at most, all inputs together
    whole_columns: int = 76  #: columns of a slice at most for a block to have whole rows
    strip_columns: int = 64  #: columns of a block at most otherwise
    max_strip_threads: int = chosen(256, *THREADS)  #: of a block then
    min_blocks_per_multiprocessor: int = 4
    tiles_per_multiprocessor: int = 4  #: slabs are smaller if there would not be so many for each multiprocessor
    bytes_per_status_byte: int = 40  #: least bytes of a slab for each byte of its status, twice as many of those that are smaller
    min_full_percent: int = 100  #: of a slab that a column fills, at least, where blocks share columns
    min_level_rows: int = 12  #: rows of a level at least
    max_group_tiles: int = 64  #: slabs of a strip at most whose aggregates are combined at once, in fixed order
    whole_bytes: int = 72 << 10  #: bytes of the slab of a block at most that has whole columns, all inputs together
    whole_strip_columns: int = 128  #: columns of such a block at most, unless it has whole rows
    bytes_per_thread: int = 256  #: bytes of its slab for each thread
    shared_bytes_per_multiprocessor: int = 224 << 10  #: bytes of all resident blocks of this kind together
    least_threads: int = chosen(32, *THREADS)  #: of such a block
    min_whole_elements: int = 512  #: of its slab, which make up for what a block does besides
    whole_per_multiprocessor: int = 2  #: such blocks for each multiprocessor, at least
    min_grain_bytes: int = 8  #: at multiples of which rows begin of which such blocks have more than ``whole_columns`` columns
    min_padded_bytes: int = 64  #: of such a column, at least


@dataclass(frozen=True)
class ScanSlices(Policy):
    """``scan_slices``: blocks bring whole slices of short columns to shared memory, where each thread walks down whole columns."""

    threads_per_block: int = chosen(128, *THREADS)
    bytes_per_thread: int = 64  #: bytes of each operand's tile for each thread
    max_extent: int = 64  #: elements of a column at most
    max_long_elements: int = 512  #: elements of a slice at most whose columns are longer; computed, not timed
    long_per_multiprocessor: int = 2  #: blocks of such slices for each multiprocessor, at least
    max_whole_extent: int = 8  #: elements of a column that a thread reads at once, in a kernel compiled for their number; computed, not timed
    max_row_bytes: int = 256  #: bytes of a row of at most ``max_extent`` elements, which is a slice of one column
    max_peeled_extent: int = 64  #: elements of a row at most that begins or ends inside a vector; above ``max_extent`` computed, not timed
    whole_columns: bool = True  #: whether to take columns that a thread of ``scan_columns`` holds in registers
    peeled_rows: bool = True  #: whether to take rows that begin or end inside a vector
    min_full_percent: int = 50  #: of a tile that slices fill, at least
