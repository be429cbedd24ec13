"""The tuning policies of the segment family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors, 50 MB of level 2 cache). Tiles, thresholds and accesses are the same on every
architecture, since nobody has measured others. ``min_blocks_per_multiprocessor`` is what compiled for sm_90 without a spill; where a function below
says so, other architectures get fewer blocks, so that their compilers may take more registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..algebra import KernelMonoid
from ..core.dtypes import BY_NAME
from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, compiled, fixed, multiple, tuned

#: bytes of an access that a kernel may be built for
ACCESSES = (2, 4, 8, 16)


@dataclass(frozen=True)
class PerId(Policy):
    """Kernels with a thread for each id or segment."""

    threads_per_block: int = fixed(256)


@dataclass(frozen=True)
class FirstFault(Policy):
    """``first_fault``: a thread walks ids, 16 bytes at a time, until it has found a fault."""

    max_blocks: int = 8 * 132  #: of ``PerId.threads_per_block``: those that are resident on an H200 at a time. Computed, not timed.


@dataclass(frozen=True)
class RowWise(Policy):
    """Kernels that take rows one by one: ``gather_rows``, ``gather_runs``, ``broadcast_to_rows``, ``scatter_rows``, ``fill_rows``, ``finish_rows``,
    ``find_special``.
    """

    threads_per_block: int = compiled(256, THREADS)
    vector_bytes: int = chosen(16, *ACCESSES)  #: of the widest access to a row, in all kernels of the family
    max_group_threads: int = chosen(128, 32, 64, 128)  #: threads that share a row


@dataclass(frozen=True)
class FoldTiles(Policy):
    """``fold_tiles``: a group of threads walks a tile of rows, each thread its own columns."""

    threads_per_block: int = compiled(128, THREADS)  # small, so that registers for the rows in flight leave room for many blocks
    items_per_thread: int = compiled(8, (4, 8, 16))  #: rows whose loads a thread issues before it uses the first
    max_tile_rows: int = multiple(192, 16)  #: rows that a group walks at most
    grid_blocks_per_multiprocessor: int = 2  #: full ones; tiles get shorter where there are fewer rows
    min_blocks_per_multiprocessor: int = 0
    max_group_threads: int = chosen(128, 32, 64, 128)  #: threads that share a row
    split_bytes: int = 8  #: an access of so many bytes is halved where a row has few: else a warp walks ten tiles, whose runs end at ten times
    split_accesses: int = 4  #: accesses of a row below which it has few
    guarded_columns: int = 4  #: columns of a thread at most in a fold behind a guard: of more the compiler unrolls none, and little of it ever runs


@dataclass(frozen=True)
class FoldNarrow(Policy):
    """``fold_narrow``: a warp walks a tile of contiguous rows, each thread its own rows."""

    threads_per_block: int = compiled(128, THREADS)
    items_per_thread: int = chosen(8, 8, 16)  #: neighbouring rows that a thread takes at a time, so that 16-byte accesses fit; 0 where rows are wider
    max_row_bytes: int = chosen(16, 2, 4, 8, 16)  #: of rows that are narrow
    long_segment_rows: int = 16  #: rows of a segment in the mean from which on a thread takes 16, as few runs end among them
    long_row_bytes: int = 4  #: of rows of which a thread takes 16 then
    max_state_scalars: int = 8  #: scalars of a row's state at most
    max_tile_steps: int = 16  #: times that a warp takes 32 · ``items_per_thread`` rows of its tile, at most
    grid_blocks_per_multiprocessor: int = 2
    min_blocks_per_multiprocessor: int = 0


@dataclass(frozen=True)
class FoldGaps(Policy):
    """Empty segments between two rows, in every fold over ids in order."""

    items_per_thread: int = fixed(64)  #: segments that the thread which finds them fills itself; longer gaps are filled by blocks of their own


@dataclass(frozen=True)
class FoldCarries(Policy):
    """``fold_carries``: a group of threads for each run that crosses row blocks."""

    threads_per_block: int = compiled(1024, THREADS)  # all that a block can have, since one block combines the longest run
    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: carries whose loads a thread issues before it uses the first
    vector_bytes: int = chosen(16, 4, 8, 16)  #: of the states that a thread has; a block of so many threads has few registers
    min_blocks_per_multiprocessor: int = 1
    max_group_threads: int = chosen(32, 8, 16, 32)
    grid_blocks_per_multiprocessor: int = 2  #: where only the device knows how many carries there are


@dataclass(frozen=True)
class FoldBins(Policy):
    """``fold_bins``: each thread has a state for every segment in shared memory."""

    threads_per_block: int = compiled(128, THREADS)
    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: rows whose loads a thread issues before it uses the first
    shared_bytes_per_block: int = 64 << 10  #: at most
    grid_blocks_per_multiprocessor: int = 3
    max_tile_rows: int = 1 << 24


@dataclass(frozen=True)
class FoldRanges(Policy):
    """``fold_ranges``: a block folds a split of the rows of one range of ids, in shared memory."""

    threads_per_block: int = fixed(PerId.threads_per_block)
    items_per_thread: int = fixed(8)  #: rows that a thread ranks at a time
    range_bits: int = fixed(9)  #: low bits of an id, which tell the segments of a range apart
    threads_per_search: int = fixed(16)  #: threads that look for the first row of a range together
    min_part_tiles: int = 4  #: tiles of ``threads_per_block · items_per_thread`` rows that a block folds at least
    grid_blocks_per_multiprocessor: int = 8
    max_state_bytes: int = 64 << 10  #: of shared memory for the states of a range
    min_blocks_per_multiprocessor: int = 2
    max_group_threads: int = chosen(32, 8, 16, 32)
    #: From how many rows in all and in a segment leaving bits out of the sort pays, and for rows of how many bytes. It saves 17 to 33 % of the time
    #: of ids drawn uniformly; where most rows are of few segments it takes 3 to 10 % more.
    min_rows: int = 8_000_000
    min_rows_one_range: int = 250_000  #: the same where all segments are one range
    min_rows_per_segment: int = 8
    min_row_bytes: int = 9  #: unless one pass of the sort is enough
    max_row_bytes: int = 64
    sort_pass_bits: int = 8  #: bits that a pass of the sort sorts by


@dataclass(frozen=True)
class FindSpecial(Policy):
    """``find_special``: looks for zeros, infinities and NaN."""

    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: rows


@dataclass(frozen=True)
class GatherRows(Policy):
    """``gather_rows``: a group of threads copies rows in the order of the ids."""

    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: rows, all loads before the first store
    indexed_row_bytes: int = 128  #: bytes of a row that are worth a walk in the order of an index


@dataclass(frozen=True)
class GatherRuns(Policy):
    """``gather_runs``: a group of threads copies neighbouring rows along ids in order."""

    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: rows


@dataclass(frozen=True)
class GatherFlat(Policy):
    """``gather_flat``: threads share out the 16-byte pieces of rows that are no multiples of that."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: pieces, all loads before the first store
    tile_elements: int = chosen(8192, 2048, 4096, 8192, 16384)  #: that a block writes, as near as whole rows allow
    max_columns: int = chosen(2048, 256, 512, 1024, 2048)  #: of more a product and a shift no longer divide a tile's offsets exactly


@dataclass(frozen=True)
class Elements(Policy):
    """``gather_elements`` and ``broadcast_to_elements``: rows are single elements, which are contiguous."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(2, (1, 2, 4, 8))  #: pieces of 16 bytes


@dataclass(frozen=True)
class BroadcastToRows(Policy):
    """``broadcast_to_rows``: every row gets what its segment was folded into; groups of threads take several rows, one after the other."""

    items_per_thread: int = chosen(1, 1, 2, 4)  #: rows, all loads before the first store
    rows_per_group: int = 32  #: rows that a group takes in all, or fewer where multiprocessors would be idle
    grid_blocks_per_multiprocessor: int = 8
    min_blocks_per_multiprocessor: int = 0
    min_rows_per_segment: int = 16  #: rows of a segment that one is written for where all ids would be read again else


@dataclass(frozen=True)
class ScatterRows(Policy):
    """``scatter_rows``: atomic updates of the output, pass by pass for as many segments as the level 2 cache holds."""

    items_per_thread: int = compiled(2, (1, 2, 4, 8))  #: rows, all loads before the first update
    cache_share: float = 0.6  #: share of the level 2 cache that the rows of a pass may fill
    min_row_bytes: int = 32  #: rows that are shorter than a sector cannot be left out, so that they take one pass
    max_passes: int = 4


@dataclass(frozen=True)
class SortCosts(Policy):
    """Microseconds on an H200, by which atomics are compared with a sort and a fold, for ids drawn uniformly."""

    atomic_per_megabyte: float = 0.48  #: that one instruction an element updates; seven times as much where ids crowd
    loop_per_megabyte: float = 3.8  #: that a loop of compare-and-swap updates
    same_line: float = 0.0025  #: for each access to the same 128 bytes, where there are few of these
    fold_per_megabyte: float = 0.27
    sort: float = 60.0
    sort_per_id: float = 27e-6


@dataclass(frozen=True)
class Residency:
    """Blocks of 128 threads that a multiprocessor holds without a spill, and how many fewer for each thing that takes registers."""

    blocks: int
    wide_items: int = 0  #: 16 rows in a thread
    wide_ids: int = 0  #: ids of 8 bytes
    wide_states: int = 0  #: states of 8 bytes
    permutation: int = 0  #: rows that lie anywhere
    lift: int = 0  #: states that are more than an element
    finish: int = 0  #: results that are more than a state
    long_row: int = 0  #: rows of more than 8 bytes
    longest_row: int = 0  #: rows of more than 12 bytes
    widening: int = 0  #: states of several scalars, or of halves
    scalars: float = 0  #: each scalar of a row's states
    beyond_sm_90: int = 0  #: architectures on which nobody has looked for spills
    least: int = 1

    def left(self, **times: int) -> int:
        """Blocks that are left where each of these things is there so many times."""
        return max(self.least, self.blocks - int(sum(getattr(self, name) * count for name, count in times.items())))


#: of ``fold_tiles`` where accesses are shorter than 16 bytes
TILES = Residency(8, wide_states=1, permutation=2, lift=1, finish=1, beyond_sm_90=1)
#: of ``fold_narrow``, and where it has states of several scalars or halves
NARROW = Residency(8, wide_items=2, wide_ids=1, long_row=1, longest_row=1, finish=1, beyond_sm_90=1)
NARROW_HEAVY = Residency(8, wide_items=2, wide_ids=1, wide_states=2, widening=1, scalars=0.5, least=2)


def narrow_items(row_bytes: int, rows: int, segments: int) -> int:
    """Neighbouring rows of ``row_bytes`` that a thread of ``fold_narrow`` takes; 0 where rows are wider.

    More of single elements, unless segments are so short that many runs end among the rows of a thread.
    """
    policy = tuned(FoldNarrow())
    if row_bytes > policy.max_row_bytes:
        return 0
    long = row_bytes <= policy.long_row_bytes and rows >= policy.long_segment_rows * segments
    return tuned(FoldNarrow(items_per_thread=16 if long else 8)).items_per_thread


def fold_narrow(target: Target, value: str, index: str, columns: int, monoid: KernelMonoid, items: int) -> FoldNarrow:
    """The policy for rows of so many columns of which a thread takes ``items``."""
    itemsize = BY_NAME[value].itemsize
    row_bytes, common = columns * itemsize, {"wide_items": items == 16, "wide_ids": index == "i64"}
    if monoid.foreign:
        blocks = 0
    elif monoid.width > 1 or itemsize == 2:
        blocks = NARROW_HEAVY.left(**common, widening=1, scalars=columns * monoid.width, wide_states=value == "f64")
    else:
        rows = {"long_row": row_bytes > 8, "longest_row": row_bytes > 12}
        blocks = NARROW.left(**common, **rows, finish=monoid.finishes, beyond_sm_90=_beyond(target))
    return tuned(FoldNarrow(items_per_thread=items, min_blocks_per_multiprocessor=blocks))


def fold_items(load_bytes: int, index_bytes: int, vector: int, monoid: KernelMonoid) -> int:
    """Rows that a thread of a fold has in flight, each a load of ``load_bytes``. More where both loads are short.

    Fewer where states are more than an element, unless all ``vector`` states of a thread have few scalars: the compiler unrolls no more code than
    that. A division takes as much code, and registers, as one more scalar of each state.
    """
    usual = FoldTiles.items_per_thread
    if monoid.heavy:
        return usual if load_bytes == 16 and vector * (monoid.width + monoid.divides) <= usual else usual // 2
    return 2 * usual if load_bytes <= 4 and index_bytes == 4 else usual


#: what a thread of ``fold_tiles`` takes of the 65536 registers of a multiprocessor: by itself, for each scalar of 4 bytes in a state, and for each
#: 4 bytes and each index of a row in flight
_REGISTERS, _OWN, _PER_SCALAR, _MOST_BLOCKS = 65536, 72, 3, 5


def fold_tiles(
    target: Target, value: str, index: str, vector: int, monoid: KernelMonoid, *, dims: int = 1, permuted: bool = False, paired: bool = False
) -> FoldTiles:
    """The policy for rows of ``dims`` axes, ``vector`` elements an access; ``permuted`` rows lie anywhere, ``paired`` ones are of two operands.

    Of 16-byte accesses 5 blocks are resident, 4 where the result is more than the state, or where wide rows are permuted. Of states of several
    scalars, and of halves, as many as the registers hold; of rows that have several axes 4. Of a user's monoid the compiler decides.
    """
    element = BY_NAME[value]
    wide, load_bytes = element.accumulator in ("f64", "i64"), vector * element.itemsize
    items = fold_items(load_bytes, BY_NAME[index].itemsize, vector, monoid)
    if monoid.foreign:
        blocks = 0
    elif dims > 1:
        blocks = 4
    elif monoid.heavy or element.itemsize == 2:
        in_flight = items * max(load_bytes, 4) // 4 * (2 if paired else 1) + (items if permuted else 0)
        registers = _OWN + in_flight + _PER_SCALAR * vector * monoid.width * (2 if wide else 1)
        blocks = max(1, min(_MOST_BLOCKS, _REGISTERS // FoldTiles.threads_per_block // registers))
    elif load_bytes == 16:
        blocks = 4 if monoid.finishes or (wide and permuted) else 5
    else:
        blocks = TILES.left(wide_states=wide, permutation=permuted, lift=monoid.lifts, finish=monoid.finishes, beyond_sm_90=_beyond(target))
    return tuned(FoldTiles(items_per_thread=items, min_blocks_per_multiprocessor=blocks))


def _beyond(target: Target) -> bool:
    """Whether nobody has looked for spills: on all architectures but sm_90."""
    return target.capability[0] != 9


def fold_carries(heavy: bool) -> FoldCarries:
    """States that are more than an element want more registers: fewer threads, with less in flight."""
    return tuned(FoldCarries(threads_per_block=256, items_per_thread=4, vector_bytes=8) if heavy else FoldCarries())


def fold_ranges(state_bytes: int, group_threads: int) -> FoldRanges:
    """The policy for scalars of ``state_bytes`` in rows that so many threads share."""
    return tuned(FoldRanges(min_blocks_per_multiprocessor=3 if group_threads > 1 and state_bytes == 4 else 2))


def broadcast_to_rows(target: Target, itemsize: int, dims: int, operands: int, divides: bool) -> BroadcastToRows:
    """The policy for a gradient of so many ``operands`` in rows of ``dims`` axes.

    Two rows where each has few operands, or where it ``divides`` and waits for that. As many blocks as fit without a spill and made it faster on
    sm_90; how many fit is not known of other architectures, nor of rows of several axes, where the compiler decides.
    """
    items, blocks = 1, {2: 4, 4: 5, 8: 3}[itemsize] - (operands > 4)
    if operands <= 2:
        items, blocks = 2, {2: 4, 4: 6, 8: 5}[itemsize]
    elif divides and operands == 3 and itemsize > 2:
        items, blocks = 2, {4: 4, 8: 3}[itemsize]
    return tuned(BroadcastToRows(items_per_thread=items, min_blocks_per_multiprocessor=0 if dims > 1 or _beyond(target) else blocks))
