"""The tuning policies of the scan family.

All numbers but those said to be computed were chosen by times on an H200 (sm_90, 132 multiprocessors). Tiles and thresholds are the same on every
architecture, since no other was measured. ``min_blocks_per_multiprocessor`` is the fastest value that compiles for sm_90 without a spill;
from sm_100 on, where kernels take more registers, long rows and affine maps of narrow long columns get one block fewer.

There are five classes of scans: ``"single"``, whose states are one number; ``"several"``, of several numbers; ``"runs"``, sums over the runs of equal
winners; ``"affine"``, whose states are affine maps, and ``"shares"``, affine maps of exponentials, whose transform is dear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, fixed, tuned

#: threads of a block that scans a tile of a long row or of long columns in the emulator, so that small problems have several tiles
EMULATED_THREADS = 64
#: bytes of a slab there, and of one that has whole columns
EMULATED_SLAB, EMULATED_WHOLE_SLAB = 6 << 10, 2 << 10
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
    prefetched_tiles_per_multiprocessor: int = 1  #: how far ahead a block prefetches to L2, in tiles for each multiprocessor


@dataclass(frozen=True)
class ScanColumns(Policy):
    """``scan_columns``: a block walks down columns; adjacent threads take adjacent vectors of a row."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    vector_bytes: int = chosen(16, *VECTOR_BYTES)  #: bytes of the widest load or store across rows, in ``scan_long_columns`` as well
    contiguous_bytes: int = 256  #: contiguous bytes of a row that a block loads or stores together, at least
    min_blocks_per_multiprocessor: int = 0
    alone_threads_per_block: int = chosen(256, *THREADS)  #: where each thread walks down whole columns
    alone_items_per_thread: int = 8  #: rows of which such a thread loads its columns at a time; the threads of a block stay together
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
    min_blocks_per_multiprocessor: int = 4
    tiles_per_multiprocessor: int = 4  #: slabs are smaller if there would not be so many for each multiprocessor
    bytes_per_status_byte: int = 40  #: least bytes of a slab for each byte of its status, twice as many of those that are smaller
    min_full_percent: int = 200  #: of a slab that a column fills, at least: blocks share columns of more than 100
    min_level_rows: int = 12  #: rows of a level at least
    whole_bytes: int = 48 << 10  #: bytes of the slab of a block at most that has whole columns, all inputs together
    whole_strip_columns: int = 128  #: columns of such a block at most, unless it has whole rows
    bytes_per_thread: int = 256  #: bytes of its slab for each thread
    least_threads: int = chosen(32, *THREADS)  #: of such a block
    min_whole_elements: int = 512  #: of its slab, which make up for what a block does besides
    whole_per_multiprocessor: int = 2  #: such blocks for each multiprocessor, at least


@dataclass(frozen=True)
class ScanSlices(Policy):
    """``scan_slices``: blocks bring whole slices of short columns to shared memory, where each thread walks down whole columns."""

    threads_per_block: int = chosen(128, *THREADS)
    bytes_per_thread: int = 64  #: bytes of each operand's tile for each thread
    max_extent: int = 64  #: elements of a column at most
    max_whole_extent: int = 8  #: elements of a column that a thread reads at once, in a kernel compiled for their number; computed, not timed
    max_row_bytes: int = 256  #: bytes of a row of at most ``max_extent`` elements, which is a slice of one column
    max_peeled_extent: int = 64  #: elements of a row at most that begins or ends inside a vector; above ``max_extent`` computed, not timed
    whole_columns: bool = True  #: whether to take columns that a thread of ``scan_columns`` holds in registers
    peeled_rows: bool = True  #: whether to take rows that begin or end inside a vector
    min_full_percent: int = 50  #: of a tile that slices fill, at least


_ROWS = {
    "single": ScanRows(),
    "several": ScanRows(threads_per_block=128),
    "runs": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=7, adjacent_threads=2),
    "affine": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=6),
}
_LONG_ROWS = {
    "single": ScanLongRows(min_blocks_per_multiprocessor=4),
    "several": ScanLongRows(min_blocks_per_multiprocessor=5),
    "runs": ScanLongRows(min_blocks_per_multiprocessor=3),
    "affine": ScanLongRows(bytes_per_thread=64, min_blocks_per_multiprocessor=4),
}
#: most resident blocks of long rows: with aggregates combined in order of arrival, for elements of 8 bytes, and for elements that are loaded one by
#: one, which takes more registers
_UNORDERED_BLOCKS, _DOUBLE_BLOCKS, _ELEMENT_BLOCKS = 4, 3, 2
#: the same of peeled rows that make affine maps
_PEELED_MAP_BLOCKS = 3
#: for elements of 4 bytes; for those of 8 bytes the compiler decides on the resident blocks
_COLUMNS = {
    "single": ScanColumns(grid_blocks_per_multiprocessor=1),
    "several": ScanColumns(bytes_per_thread=64, contiguous_bytes=128, max_alone_elements=16, min_blocks_per_multiprocessor=4),
    "runs": ScanColumns(
        bytes_per_thread=32,
        contiguous_bytes=128,
        min_blocks_per_multiprocessor=3,
        vector_bytes=8,
        grid_blocks_per_multiprocessor=1,
        alone_items_per_thread=16,
        max_alone_elements=16,
        min_alone_elements=256,
    ),
    "affine": ScanColumns(bytes_per_thread=32, contiguous_bytes=128, max_alone_elements=16),
}
_HALVES = ScanColumns(bytes_per_thread=32, vector_bytes=8, contiguous_bytes=128, grid_blocks_per_multiprocessor=1, enough_blocks_per_multiprocessor=1)
_HALF_COLUMNS = {
    "single": replace(_HALVES, bytes_per_thread=128),
    "several": ScanColumns(bytes_per_thread=64, vector_bytes=8, contiguous_bytes=64, min_blocks_per_multiprocessor=4),
    "runs": _HALVES,
    "affine": replace(_HALVES, max_alone_elements=16, min_blocks_per_multiprocessor=3),
}
#: for elements of 4 bytes; for those of 8 bytes, and for narrow loads and stores, fewer blocks are resident
_LONG_COLUMNS = {
    "single": ScanLongColumns(bytes_per_thread=128, contiguous_bytes=64, min_blocks_per_multiprocessor=3, max_row_bytes_per_multiprocessor=384),
    "several": ScanLongColumns(bytes_per_thread=64),
    "runs": ScanLongColumns(bytes_per_thread=32, narrow_tile_bytes=144 << 10, cached=False),
    "affine": ScanLongColumns(bytes_per_thread=32, narrow_tile_bytes=144 << 10),
}
_SLICES = {
    "single": ScanSlices(max_row_bytes=1),
    "several": ScanSlices(max_peeled_extent=128),
    "runs": ScanSlices(whole_columns=False, max_peeled_extent=128),
    "affine": ScanSlices(max_extent=32, max_peeled_extent=32, whole_columns=False, peeled_rows=False),
}
#: of three inputs, and of large states
_SLABS = dict.fromkeys(("affine", "shares"), ScanSlabs(tile_bytes=70 << 10, whole_bytes=70 << 10, min_blocks_per_multiprocessor=3))
#: exponentials, and products of three inputs, keep more threads busy
_SLABS |= {"several": ScanSlabs(threads_per_block=256), "affine": replace(_SLABS["affine"], threads_per_block=256)}
_SLABS["runs"] = ScanSlabs(tile_bytes=66 << 10, whole_bytes=66 << 10, min_blocks_per_multiprocessor=3, bytes_per_status_byte=28, min_full_percent=50)
#: of runs: bytes of a row of a strip at most, and of a slab of elements of 8 bytes, of which registers admit two blocks
_RUN_STRIP_BYTES, _DOUBLE_RUN_SLAB = 128, 84 << 10
_DOUBLE_STRIPS, _NARROW_STRIPS = 2, 2
#: threads of a block where loads and stores are narrow: few rows of a tile would make the statuses many, and a tile of many batches leaves the
#: caches before it is read again; computed, not timed
_NARROW_THREADS = 512
#: bytes of a row, for each multiprocessor, up to which blocks share columns: of halves, and of wider elements with narrow loads that make affine maps
_HALF_ROW_BYTES, _MAP_ROW_BYTES = 192, 384
#: resident threads of a multiprocessor that scan dense columns, for elements of 8 bytes and others
_DENSE_DOUBLES, _DENSE_THREADS = 512, 768
#: resident threads of a multiprocessor that scan peeled rows
_PEELED_THREADS = {"single": 768, "several": 896, "runs": 896, "affine": 640, "shares": 640}
#: for users' monoids, which take an unknown number of registers: two resident blocks, or the compiler decides
for _usual in ("single", "several"):
    _name = f"foreign_{_usual}"
    _ROWS[_name] = _ROWS[_usual]
    _LONG_ROWS[_name] = replace(_LONG_ROWS[_usual], min_blocks_per_multiprocessor=2)
    _COLUMNS[_name] = replace(_COLUMNS[_usual], min_blocks_per_multiprocessor=0)
    _HALF_COLUMNS[_name] = replace(_HALF_COLUMNS[_usual], min_blocks_per_multiprocessor=0)
    _LONG_COLUMNS[_name] = replace(_LONG_COLUMNS[_usual], min_blocks_per_multiprocessor=2)


_ROWS["shares"], _LONG_ROWS["shares"] = _ROWS["affine"], _LONG_ROWS["affine"]
_LONG_COLUMNS["shares"], _SLICES["shares"] = _LONG_COLUMNS["affine"], _SLICES["affine"]
#: a thread has 8 elements at a time: the compiler unrolls the transform of 16 not always
_COLUMNS["shares"] = _COLUMNS["affine"]
_HALF_COLUMNS["shares"] = replace(_HALVES, bytes_per_thread=16, vector_bytes=4, max_alone_elements=8)
#: the most elements of such a thread of 8 bytes each, which walks down whole columns
_DOUBLE_SHARES = 8
_MAPS = ("affine", "shares")


def scan_rows(states: str, size: int, vector: int) -> ScanRows:
    """The policy for a class of scans of elements of ``size`` bytes, in vectors of ``vector``.

    For elements that have not 4 bytes or are loaded one by one, the compiler decides on the resident blocks.
    """
    policy = _ROWS[states]
    return tuned(policy if size == 4 and vector > 1 else replace(policy, min_blocks_per_multiprocessor=0))


def scan_long_rows(states: str, size: int, vector: int, ordered: bool, peeled: bool, target: Target) -> ScanLongRows:
    """The policy for a class of scans of elements of ``size`` bytes, in vectors of ``vector``; aggregates are combined in order or as they come."""
    policy = _LONG_ROWS[states]
    maps = peeled and states == "affine"
    limits = ((not ordered, _UNORDERED_BLOCKS), (size == 8, _DOUBLE_BLOCKS), (vector == 1, _ELEMENT_BLOCKS), (maps, _PEELED_MAP_BLOCKS))
    blocks = min([policy.min_blocks_per_multiprocessor, *[most for applies, most in limits if applies]])
    threads = EMULATED_THREADS if target.emulated else policy.threads_per_block
    fewer = 1 if target.capability >= (10, 0) else 0
    return tuned(replace(policy, threads_per_block=threads, min_blocks_per_multiprocessor=blocks, fewer_blocks=fewer))


def scan_columns(states: str, size: int) -> ScanColumns:
    """The policy for a class of scans of elements of ``size`` bytes."""
    policy = (_HALF_COLUMNS if size == 2 else _COLUMNS)[states]
    if size not in (2, 4):
        alone = _DOUBLE_SHARES if states == "shares" else policy.max_alone_elements
        policy = replace(policy, min_blocks_per_multiprocessor=0, alone_items_per_thread=8, max_alone_elements=alone)
    return tuned(policy)


def scan_slices(states: str, size: int) -> ScanSlices:
    """The policy for a class of scans of elements of ``size`` bytes.

    Of peeled rows that make affine maps, those of halves are served, and those that a thread reads at once where it need not read the third input.
    """
    policy = _SLICES.get(states, _SLICES["single"])
    if states in _MAPS and size == 2:
        policy = replace(policy, peeled_rows=True)
    elif states == "affine":
        policy = replace(policy, peeled_rows=True, max_peeled_extent=policy.max_whole_extent)
    return tuned(policy)


def scan_long_columns(states: str, size: int, index_size: int, narrow: bool, target: Target) -> ScanLongColumns:
    """The policy for a class of scans of elements of ``size`` bytes, and indices of ``index_size`` or 0; loads and stores may be ``narrow``.

    Narrow ones of elements of 8 bytes or with such indices, and of users' monoids, take too many registers for blocks of more threads.
    """
    policy = _LONG_COLUMNS[states]
    tall = narrow and max(size, index_size) <= 4 and not states.startswith("foreign_")
    few = (_NARROW_STRIPS - (states in _MAPS and target.capability >= (10, 0))) if narrow else 0
    blocks = {2: few if tall else 0, 4: few or policy.min_blocks_per_multiprocessor, 8: _DOUBLE_STRIPS}.get(size, 0)
    threads = EMULATED_THREADS if target.emulated else _NARROW_THREADS if tall else policy.threads_per_block
    row_bytes = _MAP_ROW_BYTES if narrow and states in _MAPS else policy.max_row_bytes_per_multiprocessor
    row_bytes = min(row_bytes, _HALF_ROW_BYTES) if size == 2 else row_bytes
    made = replace(policy, threads_per_block=threads, min_blocks_per_multiprocessor=blocks, max_row_bytes_per_multiprocessor=row_bytes)
    return tuned(replace(made, cached=policy.cached or narrow))


def scan_slabs(states: str, size: int, target: Target) -> ScanSlabs:
    """The policy for a class of scans of elements of ``size`` bytes; slabs are small in the emulator, so that small problems have several."""
    policy = _SLABS.get(states, ScanSlabs())
    if states == "runs":
        slab = _DOUBLE_RUN_SLAB if size == 8 else policy.tile_bytes
        policy = replace(policy, strip_columns=_RUN_STRIP_BYTES // size, tile_bytes=slab, whole_bytes=slab)
    if target.emulated:
        policy = replace(
            policy, threads_per_block=EMULATED_THREADS, tile_bytes=EMULATED_SLAB, whole_bytes=EMULATED_WHOLE_SLAB, bytes_per_status_byte=1,
            min_level_rows=1,
        )  # fmt: skip
    return tuned(policy if size < 8 and not states.startswith("foreign_") else replace(policy, min_blocks_per_multiprocessor=0))


def dense_blocks(states: str, size: int, threads: int) -> int:
    """Resident blocks of ``threads`` that scan dense columns; of users' monoids the compiler decides on them. Compiled without a spill, not timed."""
    if states.startswith("foreign_"):
        return 0
    return (_DENSE_DOUBLES if size == 8 else _DENSE_THREADS) // threads


def peeled_blocks(states: str, size: int, threads: int) -> int:
    """Resident blocks of ``threads`` that scan peeled rows; of users' monoids, and of elements of 8 bytes, the compiler decides on them.

    Compiled without a spill, not timed.
    """
    return 0 if size == 8 else _PEELED_THREADS.get(states, 0) // threads
