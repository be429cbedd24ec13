"""The tuning policies of the segment family.

All numbers were chosen by times on an H200 or H100 (sm_90, 132 multiprocessors, 50 MB of level 2 cache). Tiles, thresholds and vectors are the same
on every architecture, since no other was measured. ``min_blocks_per_multiprocessor`` is the most that compiles for sm_90 without a spill; other
architectures get fewer blocks where a function of ``policy_of.py`` says so, and thereby more registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.op import FRESH_BYTES
from ..core.policy import THREADS, Policy, chosen, compiled, fixed, multiple
from .costs import Times as Times
from .row_policy import VECTOR_BYTES as VECTOR_BYTES
from .row_policy import BroadcastFlat as BroadcastFlat
from .row_policy import BroadcastRuns as BroadcastRuns
from .row_policy import BroadcastToRows as BroadcastToRows
from .row_policy import Crowds as Crowds
from .row_policy import Elements as Elements
from .row_policy import FactorRows as FactorRows
from .row_policy import FillRows as FillRows
from .row_policy import FoldAndBroadcast as FoldAndBroadcast
from .row_policy import FoldAndBroadcastShort as FoldAndBroadcastShort
from .row_policy import FoldAndBroadcastStaged as FoldAndBroadcastStaged
from .row_policy import FoldAndBroadcastWide as FoldAndBroadcastWide
from .row_policy import FoldThenBroadcast as FoldThenBroadcast
from .row_policy import GatherFlat as GatherFlat
from .row_policy import GatherMeans as GatherMeans
from .row_policy import GatherRows as GatherRows
from .row_policy import GatherRuns as GatherRuns
from .row_policy import IdPasses as IdPasses
from .row_policy import PermutedRows as PermutedRows
from .row_policy import ScatterRows as ScatterRows


@dataclass(frozen=True)
class PerId(Policy):
    """Kernels with a thread for each id or segment."""

    threads_per_block: int = fixed(256)
    counted_per_thread: int = fixed(8)  #: ids of a thread that counts them


@dataclass(frozen=True)
class BoundShortSegments(Policy):
    """``bound_short_segments``: one pass over ids in order finds where segments begin. Computed, not timed."""

    items_per_thread: int = compiled(16, (4, 8, 16))  #: ids whose loads a thread issues before it uses the first; half as many of 8 bytes
    lane_gap: int = fixed(32)  #: segments of a gap that one thread fills
    warp_gap: int = fixed(1024)  #: the same for a warp; blocks of their own fill longer gaps
    max_id_bytes: int = 400  #: bytes that memory reads of ids for each segment at most: a search takes as long as to read so many
    max_pass_bytes: int = 24 << 20  #: bytes of all ids that take no longer than a search, whose loads wait for each other
    access_bytes: int = 32  #: bytes that memory reads of an id at most, where ids lie apart


@dataclass(frozen=True)
class CountIds(Policy):
    """``count_ids``: a warp walks ids, and adds the count of one of them in the end."""

    grid_blocks_per_multiprocessor: int = 6  #: blocks at most, of ``PerId.threads_per_block``: those that are resident at a time
    min_blocks_per_multiprocessor: int = 6


@dataclass(frozen=True)
class CountFewIds(Policy):
    """``count_few_ids``: a block counts the rows of a range of segments in shared memory, and adds to global memory in the end."""

    threads_per_block: int = compiled(512, THREADS)
    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: ids whose loads a thread issues before it uses the first
    grid_blocks_per_multiprocessor: int = 2  #: blocks at most: each adds to every segment of its range
    shared_bytes_per_block: int = 96 << 10  #: bytes of counts at most, 4 for each segment
    max_ranges: int = 4  #: all blocks of some rows read their ids, and count those of one range
    min_rows_per_segment: int = 64  #: least rows in the mean: 264 blocks then add at most 4 counts for each row, 32 neighbours in one access
    max_block_rows: int = 1 << 30  #: rows of a block at most, about, so that 32 bits can count them


@dataclass(frozen=True)
class FirstFault(Policy):
    """``first_fault``: a thread walks ids, 16 bytes at a time, until it has found a fault."""

    max_blocks: int = 8 * 132  #: of ``PerId.threads_per_block``: those that are resident on an H200 at a time. Computed, not timed.


@dataclass(frozen=True)
class RowWise(Policy):
    """Kernels that take rows one by one: those that gather, broadcast, scatter, fill and finish rows, and ``find_special``."""

    threads_per_block: int = compiled(256, THREADS)
    vector_bytes: int = chosen(16, *VECTOR_BYTES)  #: bytes of the widest load or store of a row, in all kernels of the family
    max_group_threads: int = chosen(128, 32, 64, 128)  #: threads that share a row


@dataclass(frozen=True)
class FinishFlat(Policy):
    """``finish_flat``: threads share the pieces of contiguous rows, wherever a row ends. Computed, not timed."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (1, 2, 4))  #: pieces of 16 bytes of results, all loads before the first store
    max_columns: int = 1 << 15  #: with more, a multiply and a shift do not divide a block's offsets exactly


@dataclass(frozen=True)
class FoldTiles(Policy):
    """``fold_tiles``: a group of threads walks a tile of rows, each thread its own columns."""

    threads_per_block: int = compiled(128, THREADS)  # few, so that rows in flight leave registers for many blocks
    items_per_thread: int = compiled(8, (4, 8, 16))  #: rows whose loads a thread issues before it uses the first
    max_tile_rows: int = multiple(256, 16)  #: rows that a group walks, about, where blocks come in several waves
    #: With so many rows for each segment in the mean, tiles of states of several scalars are twice as long: few runs end. Those of contiguous halves,
    #: which are half as many bytes, are four times as long.
    long_segment_rows: int = 128
    #: With fewer, some segment may have most rows, and others runs of one row, which take longer than other rows: such tiles are half as long, so
    #: that blocks come in several waves and end together.
    mixed_segment_rows: int = 32
    #: The same with states of several scalars but extremes, unless elements are halves: in shorter tiles those took up to 17 % longer.
    mixed_heavy_rows: int = 8
    #: The same where runs may be short, each of which takes as long as many rows: a few longer tiles of them would end long after all others.
    short_tile_rows: int = multiple(64, 16)
    short_segment_rows: int = 3  #: with fewer rows for each segment in the mean, runs may be short; with four, shorter tiles took 13 % longer
    run_bytes: int = 3 << 20  #: that memory reads while a group folds a run of one row: where tiles end before all is read, they may be long
    carry_rows: int = 32  #: rows of a block at least for each scalar of a state that is as wide as an element: so carries move few bytes
    min_group_bytes: int = 256  #: of a row that a group has at least: of shorter pieces memory reads the pages one by one
    grid_blocks_per_multiprocessor: int = 2  #: blocks that a wave has at least: fewer rows make shorter tiles
    min_blocks_per_multiprocessor: int = 0
    max_blocks_per_multiprocessor: int = 8  #: blocks of a wave at most
    max_group_threads: int = chosen(128, 32, 64, 128)  #: threads that share a row
    split_bytes: int = 8  #: vectors of so many bytes are halved in short rows: else a warp has many tiles, whose runs end in different steps
    split_vectors: int = 4  #: rows of fewer vectors are short
    heavy_halves: int = chosen(4, 4, 8)  #: most columns of a thread of halves with states of several scalars, whose registers leave few blocks
    guarded_columns: int = 4  #: most columns of a thread in a guarded fold: the compiler unrolls no more, and the fold seldom runs
    columns_apart: int = chosen(4, 1, 2, 3, 4)  #: most columns of a thread where rows are no vectors
    heavy_columns_apart: int = chosen(3, 1, 2, 3, 4)  #: the same with states of several scalars
    min_group_apart: int = 11  #: least threads of a row whose columns lie apart: a warp of fewer has many tiles


@dataclass(frozen=True)
class FoldNarrow(Policy):
    """``fold_narrow``: a warp walks a tile of contiguous rows, each thread its own rows. The bytes of a row of pairs are those of both operands."""

    threads_per_block: int = compiled(128, THREADS)
    items_per_thread: int = chosen(8, 8, 16)  #: neighbouring rows that a thread takes at a time by 16-byte loads; 0 where rows are wider
    max_row_bytes: int = chosen(16, 2, 4, 8, 16)  #: bytes of a row up to which it is narrow
    long_segment_rows: int = 16  #: with so many rows for each segment or more, a thread takes 16 rows, among which few runs end
    long_row_bytes: int = 4  #: most bytes of a row of which a thread takes 16
    max_state_scalars: int = 8  #: scalars of a row's state at most
    max_tile_steps: int = 16  #: most steps of a tile, of 32 · ``items_per_thread`` rows each
    grid_blocks_per_multiprocessor: int = 2
    min_blocks_per_multiprocessor: int = 0


@dataclass(frozen=True)
class FoldShortRuns(FoldNarrow):
    """``fold_short_runs``: the same of narrow rows that are permuted, or in short runs."""

    items_per_thread: int = chosen(8, 4, 8, 16)  #: neighbouring rows that a thread takes at a time; 0 where rows are wider
    max_row_bytes: int = chosen(32, 2, 4, 8, 16, 32)  #: of permuted rows, which are narrow up to more bytes
    max_state_scalars: int = 16  #: of permuted rows
    wide_row_bytes: int = 16  #: of rows of more bytes a thread takes 4
    wide_state_bytes: int = 32  #: with states of more bytes a thread takes 4 rows
    max_segment_rows: float = 8.0  #: with so many rows for each segment or fewer, runs of contiguous rows are short
    max_shared_bytes: int = 48 << 10  #: what a kernel may have of shared memory whose size it knows
    max_lifted_bytes: int = 16  #: bytes of a row of states up to which those of pairs are made before rows are read in the order of their ids


@dataclass(frozen=True)
class FoldStaged(Policy):
    """``fold_staged``: a warp walks a tile of contiguous rows by way of shared memory.

    What a lane does once for each run of a stage takes long where a stage has few rows, so wide rows are not for it. Where runs are long, groups of
    threads are faster with some states.
    """

    threads_per_block: int = compiled(128, THREADS)
    #: Rows that a thread loads from shared memory before it uses the first; half as many, of 16 bytes each, with sums about any pivot, and of halves
    #: of many columns.
    items_per_thread: int = compiled(4, (2, 4, 8))
    columns_per_thread: int = chosen(4, 1, 2, 4)  #: most columns of a thread
    halves_per_thread: int = chosen(9, 4, 8, 9)  #: the same of halves whose states are one scalar, so that what is done once for a run is little
    #: Columns of a row up to which a thread has one where rows are no vectors, not several that lie apart; but of such halves it has several.
    few_columns: int = 16
    short_few_columns: int = 8  #: the same where runs are short, so that threads have much to do for each
    short_segment_rows: int = 8  #: rows of each segment in the mean up to which they are
    #: The same up to which several columns of a thread may lie apart with sums about any pivot, or states of more than two scalars, of elements of 4
    #: bytes, where rows have so many columns at most.
    heavy_apart_segment_rows: float = 6.0
    max_heavy_apart: int = 128
    wide_row_bytes: int = 256  #: rows of so many bytes are wide
    wide_halves_bytes: int = 128  #: the same of halves whose states are one scalar
    wide_odd_halves_bytes: int = 448  #: the same of these where rows are no vectors, or vectors of two, but of two not in long segments
    heavy_row_bytes: int = 128  #: bytes of a row from which states of several scalars are for short segments only
    heavy_columns_apart: int = 24  #: the same of columns, where they lie apart
    heavy_halves_apart: int = 56  #: the same of halves with sums about any pivot, unless segments are long
    #: Columns apart up to which extremes and their positions are for it, however many bytes a row has; and the same of halves.
    extreme_columns_apart: int = 48
    extreme_halves_apart: int = 64
    short_segment_bytes: int = 2560  #: bytes of rows of each segment in the mean up to which segments are short
    chosen_row_bytes: int = 64  #: bytes of a row up to which, with a pivot that rows choose, rows in long runs are for it, too
    chosen_halves_bytes: int = 16  #: the same of halves
    max_filling_lanes: int = 8  #: lanes of a row at most where a warp fills empty segments as ranges
    #: Rows for each segment in the mean up to which it does so with states of several scalars, where a lane has a row; and where several have a row.
    filled_segment_rows: float = 8.0
    few_filled_rows: float = 3.0
    max_vectors: int = 64  #: vectors of a wide row at most with sums about a pivot, or states of more than two scalars
    stage_bytes: int = 8192  #: bytes of rows that a warp has in shared memory at a time, with their ids and the numbers of heads, about
    max_tile_steps: int = 16  #: stages of a tile at most
    grid_blocks_per_multiprocessor: int = 16  #: blocks that there are before tiles have more than one stage
    #: With so many rows for each segment in the mean, or more, there may be fewer blocks, in fuller waves; else some take longer than others.
    even_segment_rows: int = 12
    least_blocks_per_multiprocessor: int = 2  #: blocks that there are before stages have as many rows as they may
    min_blocks_per_multiprocessor: int = 6


@dataclass(frozen=True)
class FoldGaps(Policy):
    """Empty segments between two rows, in every fold over sorted ids."""

    items_per_thread: int = fixed(64)  #: segments of a gap that one thread fills; blocks of their own fill longer gaps
    range_bytes: int = 16 << 10  #: bytes of a gap, about, that a warp fills as a range, if these are more segments
    #: Segments for each row from which all of a contiguous output is filled before rows are folded; the same where groups of threads fold rows that
    #: are no vectors, and where warps fill ranges. The output has so many bytes at least.
    sparse_segments: float = 2.0
    sparse_apart_segments: float = 1.0
    sparse_range_segments: float = 48.0
    sparse_bytes: int = 4 << 20
    warps: int = fixed(256)  #: warps that share longer gaps, 32 pieces for each warp at most: the blocks are so few that they may begin first


@dataclass(frozen=True)
class FoldCarries(Policy):
    """``fold_carries``: blocks combine tiles of carries, of which a group of threads has a few neighbours."""

    threads_per_block: int = compiled(512, THREADS)
    items_per_thread: int = compiled(4, (2, 4, 8, 16))  #: carries whose loads a thread issues before it uses the first
    vector_bytes: int = chosen(16, 4, 8, 16)  #: bytes of the states of a thread at most, which has few registers
    min_blocks_per_multiprocessor: int = 1
    max_group_threads: int = chosen(8, 1, 2, 4, 8, 16, 32)  #: threads that share a carry
    wide_blocks: int = 256  #: where there are so many blocks, threads have as wide states and groups as they may
    #: Else so many blocks share the columns of wide rows, or half as many: so groups are many, and a long run has few tiles. Where there would be
    #: more blocks, threads have twice as many carries if one tile then has all.
    chunks: int = 128
    grid_blocks_per_multiprocessor: int = 2  #: where the host does not know the number of carries
    most_at_once: int = 8192  #: so many carries or more are joined first, by blocks of ``join_threads`` threads: one block takes 2 ns for a carry
    join_threads: int = 128


@dataclass(frozen=True)
class FoldLookback(Policy):
    """Folds whose blocks look back for what comes before their first run, where carries would take a second launch."""

    max_status_bytes: int = FRESH_BYTES  #: bytes of statuses at most; more than ``FRESH_BYTES`` would have to be cleared first


@dataclass(frozen=True)
class FoldBins(Policy):
    """``fold_bins``: each thread has a state for every segment in shared memory."""

    threads_per_block: int = compiled(128, THREADS)
    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: rows whose loads a thread issues before it uses the first
    shared_bytes_per_block: int = 64 << 10  #: bytes at most
    grid_blocks_per_multiprocessor: int = 3
    max_tile_rows: int = 1 << 24


@dataclass(frozen=True)
class FoldRanges(Policy):
    """``fold_ranges``: a block folds a split of the rows of one range of ids, in shared memory."""

    threads_per_block: int = fixed(PerId.threads_per_block)
    items_per_thread: int = fixed(8)  #: rows that a thread ranks at a time
    range_bits: int = fixed(9)  #: low bits of an id, its number within the range
    threads_per_search: int = fixed(16)  #: threads that search for the first row of a range together
    min_part_tiles: int = 4  #: least tiles of ``threads_per_block · items_per_thread`` rows for a block
    grid_blocks_per_multiprocessor: int = 8
    max_state_bytes: int = 64 << 10  #: bytes of shared memory for the states of a range
    min_blocks_per_multiprocessor: int = 2
    max_group_threads: int = chosen(32, 8, 16, 32)
    #: Rows of more bytes are not sorted by range, which leaves out the low bits of ids: it would save nothing.
    max_row_bytes: int = 64
    sort_pass_bits: int = 8  #: bits that a pass of the sort sorts by


@dataclass(frozen=True)
class FindSpecial(Policy):
    """``find_special``: looks for zeros, infinities and NaN."""

    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: rows
