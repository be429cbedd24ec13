"""The policy for each class of scans, whose kernels take different registers.

There are five classes of scans: ``"single"``, whose states are one number; ``"several"``, of several numbers; ``"runs"``, sums over the runs of equal
winners; ``"affine"``, whose states are affine maps, and ``"shares"``, affine maps of exponentials, whose transform is dear.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.op import Target
from ..core.policy import tuned
from .policy import ScanColumns, ScanLongColumns, ScanLongRows, ScanRows, ScanSlabs, ScanSlices

#: threads of a block that scans a tile of a long row or of long columns in the emulator, so that small problems have several tiles
EMULATED_THREADS = 64
#: bytes of a slab there, and of one that has whole columns
EMULATED_SLAB, EMULATED_WHOLE_SLAB = 6 << 10, 2 << 10

_ROWS = {
    "single": ScanRows(),
    "several": ScanRows(threads_per_block=128),
    "runs": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=7, adjacent_threads=2, min_full_percent=60),
    "affine": ScanRows(threads_per_block=128, bytes_per_thread=64, min_blocks_per_multiprocessor=6, min_full_percent=60),
}
_LONG_ROWS = {
    "single": ScanLongRows(min_blocks_per_multiprocessor=5),
    "several": ScanLongRows(min_blocks_per_multiprocessor=5),
    "runs": ScanLongRows(min_blocks_per_multiprocessor=3, prefetched_tiles_per_multiprocessor=1),
    "affine": ScanLongRows(bytes_per_thread=64, min_blocks_per_multiprocessor=4, prefetched_tiles_per_multiprocessor=1),
}
#: most resident blocks of long rows: with aggregates combined in order of arrival, for elements of 8 bytes, and for elements that are loaded one by
#: one, which takes more registers
_UNORDERED_BLOCKS, _DOUBLE_BLOCKS, _ELEMENT_BLOCKS = 4, 3, 2
#: the same of peeled rows that make affine maps
_PEELED_MAP_BLOCKS = 3
#: for elements of 4 bytes; for those of 8 bytes the compiler decides on the resident blocks
_COLUMNS = {
    "single": ScanColumns(grid_blocks_per_multiprocessor=1, narrow_items_per_thread=16),
    "several": ScanColumns(
        bytes_per_thread=64, contiguous_bytes=128, narrow_items_per_thread=16, max_alone_elements=16, min_blocks_per_multiprocessor=4
    ),
    "runs": ScanColumns(
        bytes_per_thread=32,
        contiguous_bytes=128,
        min_blocks_per_multiprocessor=3,
        vector_bytes=8,
        grid_blocks_per_multiprocessor=1,
        alone_items_per_thread=16,
        narrow_items_per_thread=16,
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
_SLABS = dict.fromkeys(
    ("affine", "shares"), ScanSlabs(threads_per_block=256, tile_bytes=70 << 10, whole_bytes=70 << 10, min_blocks_per_multiprocessor=3)
)
_SLABS["runs"] = ScanSlabs(
    tile_bytes=64 << 10, whole_bytes=64 << 10, min_blocks_per_multiprocessor=3, bytes_per_status_byte=28, min_full_percent=50, max_group_tiles=32
)
_SLABS["shares"] = replace(_SLABS["shares"], max_strip_threads=128)
#: exponentials keep more threads busy
_SLABS["several"] = ScanSlabs(threads_per_block=256)
#: of wider elements than halves a slab of shares has so few, and threads take so many registers, that a block has fewer threads
_WIDE_SHARE_THREADS = 128
#: most resident blocks from sm_100 on
_LATER_SLABS = 3
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
    """The policy for a class of scans of elements of ``size`` bytes, in vectors of ``vector``; aggregates are combined in order or as they come.

    Blocks of elements of 8 bytes are few, and prefetch.
    """
    policy = _LONG_ROWS[states]
    maps = peeled and states == "affine"
    limits = ((not ordered, _UNORDERED_BLOCKS), (size == 8, _DOUBLE_BLOCKS), (vector == 1, _ELEMENT_BLOCKS), (maps, _PEELED_MAP_BLOCKS))
    blocks = min([policy.min_blocks_per_multiprocessor, *[most for applies, most in limits if applies]])
    threads = EMULATED_THREADS if target.emulated else policy.threads_per_block
    fewer = 1 if target.capability >= (10, 0) else 0
    ahead = 1 if size == 8 else policy.prefetched_tiles_per_multiprocessor
    made = replace(policy, threads_per_block=threads, min_blocks_per_multiprocessor=blocks, fewer_blocks=fewer)
    return tuned(replace(made, prefetched_tiles_per_multiprocessor=ahead))


def scan_columns(states: str, size: int) -> ScanColumns:
    """The policy for a class of scans of elements of ``size`` bytes."""
    policy = (_HALF_COLUMNS if size == 2 else _COLUMNS)[states]
    if size not in (2, 4):
        alone = _DOUBLE_SHARES if states == "shares" else policy.max_alone_elements
        policy = replace(policy, min_blocks_per_multiprocessor=0, alone_items_per_thread=8, narrow_items_per_thread=8, max_alone_elements=alone)
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
    if states == "shares" and size > 2:
        policy = replace(policy, threads_per_block=_WIDE_SHARE_THREADS)
    if target.capability >= (10, 0):
        policy = replace(policy, min_blocks_per_multiprocessor=min(policy.min_blocks_per_multiprocessor, _LATER_SLABS))
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
