"""The tuning policies of the scan family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors). Tiles and thresholds are the same on every architecture, since nobody has
measured others. ``min_blocks_per_multiprocessor`` is what compiled for sm_90 without a spill and was fastest there; from sm_100 on, whose compilers
take more registers, long rows get one block fewer.

There are four classes of scans: ``"single"``, whose states are one number; ``"several"``, of several numbers; ``"runs"``, sums over the runs of equal
winners; ``"affine"``, whose states are affine maps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, fixed, tuned

#: threads of a block that scans a tile of a long row or of long columns in the emulator, so that small problems have several tiles
EMULATED_THREADS = 64
#: bytes of an access that a kernel may be built for
ACCESSES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Elements(Policy):
    """What all kernels of the family have in common."""

    vector_bytes: int = chosen(16, *ACCESSES)  #: of the widest access along rows
    result_vector_bytes: int = chosen(32, 4, 8, 16, 32)  #: of the results that such an access gives, in several accesses where they are more than 16
    max_items_per_thread: int = 16  #: vectors of a tile
    max_elements_per_thread: int = fixed(64)  #: elements of a tile: a thread marks them in a word of so many bits
    shared_bytes_per_thread: int = 256  #: of its part of a tile, all operands together
    min_peeled_bytes: int = 1 << 10  #: of a row above which its ends are taken one by one, so that what lies between goes by vectors
    line_bytes: int = fixed(128)  #: that memory is read by at most, where a tile had better begin


@dataclass(frozen=True)
class ScanRows(Policy):
    """``scan_rows``: some threads of a warp, or a block, scan a row."""

    threads_per_block: int = chosen(256, *THREADS)  #: at most where a block scans a row
    bytes_per_thread: int = 128  #: of each operand that a thread has of a tile
    min_blocks_per_multiprocessor: int = 0
    adjacent_threads: int = 8  #: threads that access a row side by side, if there are as many vectors, before a thread takes several


@dataclass(frozen=True)
class ScanLongRows(Policy):
    """``scan_long_rows``: blocks share out the tiles of a row, and get the prefixes of their tiles by decoupled look-back."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    min_blocks_per_multiprocessor: int = 4
    fewer_blocks: int = 0  #: fewer resident blocks than registers and shared memory hold
    shared_bytes_per_multiprocessor: int = 224 << 10  #: of all resident blocks
    busy_rows_per_multiprocessor: int = 4  #: rows for each multiprocessor that keep it busy, so that none is shared out
    min_tiles: int = 2  #: a row of no more tiles is not shared out
    group_tiles: int = 32  #: tiles of a row that are joined at once, where their order is fixed
    prefetched_tiles_per_multiprocessor: int = 1  #: tiles for each multiprocessor that a block calls up ahead of its own


@dataclass(frozen=True)
class ScanColumns(Policy):
    """``scan_columns``: a block walks down columns, some of its threads side by side."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    vector_bytes: int = chosen(16, *ACCESSES)  #: of the widest access across rows, in ``scan_long_columns`` as well
    contiguous_bytes: int = 256  #: that a block accesses side by side across rows
    min_blocks_per_multiprocessor: int = 0


@dataclass(frozen=True)
class ScanLongColumns(Policy):
    """``scan_long_columns``: blocks share out columns tile by tile."""

    threads_per_block: int = chosen(256, *THREADS)
    bytes_per_thread: int = 128
    contiguous_bytes: int = 128
    min_blocks_per_multiprocessor: int = 4
    cached: bool = True  #: whether what a block reads twice is kept in the level 1 cache
    max_row_bytes_per_multiprocessor: int = 128  #: bytes of a row, for each multiprocessor, up to which columns are shared out to blocks
    min_tiles: int = 2  #: columns of no more tiles are not shared out
    bytes_per_status_byte: int = 100  #: bytes of a tile for each byte of its status, at least
    concurrent_tiles: int = 64  #: tiles of all strips that pass while a group of one's hears from that before
    min_group_tiles: int = 8  #: tiles of a strip that are joined at once, where their order is fixed
    max_group_tiles: int = 64


_ROWS = {
    "single": ScanRows(),
    "several": ScanRows(threads_per_block=128),
    "runs": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=7),
    "affine": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=6),
}
_LONG_ROWS = {
    "single": ScanLongRows(min_blocks_per_multiprocessor=4),
    "several": ScanLongRows(min_blocks_per_multiprocessor=5),
    "runs": ScanLongRows(min_blocks_per_multiprocessor=3),
    "affine": ScanLongRows(bytes_per_thread=64, min_blocks_per_multiprocessor=4),
}
#: most resident blocks of long rows: where tiles are joined as they come, of elements of 8 bytes, and of elements that are accessed one by one,
#: which takes more registers
_UNORDERED_BLOCKS, _DOUBLE_BLOCKS, _ELEMENT_BLOCKS = 4, 3, 2
#: of elements of 4 bytes; those of 8 bytes leave the resident blocks to the compiler
_COLUMNS = {
    "single": ScanColumns(),
    "several": ScanColumns(bytes_per_thread=64, contiguous_bytes=128, min_blocks_per_multiprocessor=4),
    "runs": ScanColumns(bytes_per_thread=32, contiguous_bytes=128, min_blocks_per_multiprocessor=4, vector_bytes=8),
    "affine": ScanColumns(bytes_per_thread=32, contiguous_bytes=128),
}
_HALF_COLUMNS = {
    "single": ScanColumns(vector_bytes=8, contiguous_bytes=128),
    "several": ScanColumns(bytes_per_thread=64, vector_bytes=8, contiguous_bytes=64, min_blocks_per_multiprocessor=4),
    "runs": ScanColumns(bytes_per_thread=32, vector_bytes=8, contiguous_bytes=128),
    "affine": ScanColumns(bytes_per_thread=32, vector_bytes=8, contiguous_bytes=128),
}
#: of elements of 4 bytes; of those of 8 bytes ``_DOUBLE_STRIPS`` blocks are resident
_LONG_COLUMNS = {
    "single": ScanLongColumns(bytes_per_thread=128, contiguous_bytes=64, min_blocks_per_multiprocessor=3),
    "several": ScanLongColumns(bytes_per_thread=64),
    "runs": ScanLongColumns(bytes_per_thread=32, cached=False),
    "affine": ScanLongColumns(bytes_per_thread=32),
}
_DOUBLE_STRIPS = 2


def scan_rows(states: str, size: int, vector: int) -> ScanRows:
    """The policy for a class of scans of elements of ``size`` bytes, ``vector`` of them an access.

    Where they are not of 4 bytes, or are accessed one by one, the compiler decides on the resident blocks.
    """
    policy = _ROWS[states]
    return tuned(policy if size == 4 and vector > 1 else replace(policy, min_blocks_per_multiprocessor=0))


def scan_long_rows(states: str, size: int, vector: int, ordered: bool, target: Target) -> ScanLongRows:
    """The policy for a class of scans of elements of ``size`` bytes, ``vector`` of them an access; tiles are joined in order or as they come."""
    policy = _LONG_ROWS[states]
    limits = ((not ordered, _UNORDERED_BLOCKS), (size == 8, _DOUBLE_BLOCKS), (vector == 1, _ELEMENT_BLOCKS))
    blocks = min([policy.min_blocks_per_multiprocessor, *[most for applies, most in limits if applies]])
    threads = EMULATED_THREADS if target.emulated else policy.threads_per_block
    fewer = 1 if target.capability >= (10, 0) else 0
    return tuned(replace(policy, threads_per_block=threads, min_blocks_per_multiprocessor=blocks, fewer_blocks=fewer))


def scan_columns(states: str, size: int) -> ScanColumns:
    """The policy for a class of scans of elements of ``size`` bytes."""
    policy = (_HALF_COLUMNS if size == 2 else _COLUMNS)[states]
    return tuned(policy if size in (2, 4) else replace(policy, min_blocks_per_multiprocessor=0))


def scan_long_columns(states: str, size: int, target: Target) -> ScanLongColumns:
    """The policy for a class of scans of elements of ``size`` bytes."""
    policy = _LONG_COLUMNS[states]
    blocks = {4: policy.min_blocks_per_multiprocessor, 8: _DOUBLE_STRIPS}.get(size, 0)
    threads = EMULATED_THREADS if target.emulated else policy.threads_per_block
    return tuned(replace(policy, threads_per_block=threads, min_blocks_per_multiprocessor=blocks))
