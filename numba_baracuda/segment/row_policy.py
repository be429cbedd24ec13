"""The tuning policies of the segment family's kernels that write rows: gathers, gradients, and updates by atomics. See :mod:`.policy`."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import THREADS, Policy, chosen, compiled, fixed, multiple

#: bytes of a vectorized load or store that a kernel may be compiled for
VECTOR_BYTES = (2, 4, 8, 16)


@dataclass(frozen=True)
class GatherRows(Policy):
    """``gather_rows``: a group of threads copies rows in the order of the ids."""

    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: rows, all loads before the first store


@dataclass(frozen=True)
class PermutedRows(Policy):
    """Where a launch that gathers rows of segments takes its own rows in the order of their ids, by a permutation, and not as they lie."""

    line_bytes: int = 128  #: rows that are no multiple of so many bytes share lines with neighbours, from which they are then far apart
    cache_share: float = 0.6  #: share of the level 2 cache that the rows of all segments must exceed


@dataclass(frozen=True)
class GatherRuns(Policy):
    """``gather_runs``: a group of threads copies neighbouring rows along ids in order."""

    items_per_thread: int = compiled(8, (2, 4, 8, 16))  #: rows
    min_row_bytes: int = 128  #: of rows that are not permuted; of shorter ones, that are neighbours, a thread would store each in a line of its own


@dataclass(frozen=True)
class GatherFlat(Policy):
    """``gather_flat``: blocks build rows that are no multiples of 16 bytes in shared memory, and store them in pieces of 16 bytes."""

    threads_per_block: int = compiled(256, THREADS)
    lane_vectors: int = fixed(8)  #: vectors of a row that a lane has at a time, at most
    registers_per_thread: int = fixed(16)  #: of rows whose loads a thread issues before it stores the first, about
    max_rows_per_thread: int = fixed(4)  #: such rows at most
    tile_bytes: int = multiple(32 << 10, 16 << 10)  #: bytes of a block's rows at most
    id_bytes: int = fixed(8 << 10)  #: bytes of their ids at most
    max_columns: int = chosen(2048, 256, 512, 1024, 2048)  #: of so few rows a block's bytes are a multiple of 16
    min_random_bytes: int = 16  #: of a row that ids in any order ask for; more loads of shorter ones are in flight where threads store them directly
    grid_blocks_per_multiprocessor: int = 8  #: blocks that there are at least before they have more than a few rows


@dataclass(frozen=True)
class GatherMeans(Policy):
    """``gather_means``: a warp divides by the lengths of the runs of its tile, where rows are single elements. Computed, not timed."""

    threads_per_block: int = compiled(128, (32, 64, 128))  #: few, since a block lists runs in shared memory whose size the kernel knows
    items_per_thread: int = compiled(2, (1, 2))  #: times 8 neighbouring rows
    max_segment_rows: int = 64  #: with more rows for each segment in the mean, to find and divide segments first takes less


@dataclass(frozen=True)
class Elements(Policy):
    """``gather_elements``, ``broadcast_to_elements`` and ``fill_elements``: single elements, which are contiguous."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(2, (1, 2, 4, 8))  #: pieces of 16 bytes


@dataclass(frozen=True)
class BroadcastToRows(Policy):
    """``broadcast_to_rows``: every row gets the result of its segment; a group of threads takes several rows in turn."""

    items_per_thread: int = chosen(1, 1, 2, 4)  #: rows, all loads before the first store
    columns_apart: int = chosen(4, 1, 2, 3, 4)  #: most columns of a thread where rows are no vectors
    rows_per_group: int = 32  #: rows of a group, or fewer where multiprocessors would be idle
    grid_blocks_per_multiprocessor: int = 8
    min_blocks_per_multiprocessor: int = 0
    #: Rows of at most so many bytes, of two operands that segments have, are put side by side before they are gathered for ids in any order.
    max_paired_bytes: int = 32
    winner_bytes: int = 64  #: what a gradient of max or min that is stored at a winner costs, as bytes that are read
    halves_saved: int = 3  #: of rows of halves, zeros save one byte of so many. Both computed from times of other launches.


@dataclass(frozen=True)
class BroadcastFlat(Policy):
    """``broadcast_flat``: threads share the pieces of contiguous rows, wherever a row ends."""

    threads_per_block: int = compiled(256, THREADS)
    ids_per_thread: int = compiled(4, (1, 2, 4, 8))  #: ids that a thread loads before it stores the first
    items_per_thread: int = chosen(1, 1, 2, 4)  #: pieces of 16 bytes or as many bytes of shorter ones, all loads before the first store
    #: Bytes of a piece that may meet several rows; wider ones, of one row, are taken where rows have them.
    vector_bytes: int = chosen(8, *VECTOR_BYTES)
    #: The same of halves that are no vectors, of so many columns or more, where two results of a fold are gathered: a load of neighbouring lanes then
    #: meets half as many lines, and lines are what takes time there.
    many_halves_bytes: int = chosen(4, *VECTOR_BYTES)
    many_columns: int = 96
    tile_elements: int = multiple(8192, 512)  #: elements of a block at most, or as many as it has in flight
    guarded_tiles: int = 2  #: so many times that where launches before have mostly done the work, as blocks that do nothing take time, too
    grid_blocks_per_multiprocessor: int = 8  #: blocks that there are at least before they have more than they have in flight
    min_blocks_per_multiprocessor: int = 0
    max_columns: int = 1 << 15  #: with more, a multiply and a shift do not divide a tile's offsets exactly
    #: Rows of each segment in the mean up to which means are divided as they are copied, not before; and of halves.
    max_divided_rows: int = 5
    max_divided_halves_rows: int = 2


@dataclass(frozen=True)
class BroadcastRuns(Policy):
    """``broadcast_runs``: a thread has the same columns of every row that it takes, and keeps what these are given while the id stays."""

    threads_per_block: int = compiled(64, THREADS)  # few, so that blocks read memory in order
    items_per_thread: int = compiled(4, (2, 4))  #: rows, all loads before the first store
    #: Rows for each segment in the mean, at least, for each row that a block takes at a time. With two it is faster where lengths are about equal.
    min_segment_turns: float = 4.0
    max_turns: int = 2  #: rows of a thread at most, in units of ``items_per_thread``: with more, blocks read the memory in too many places
    grid_blocks_per_multiprocessor: int = 32  #: blocks that there are at least before threads have more than ``items_per_thread`` rows
    min_blocks_per_multiprocessor: int = 0


@dataclass(frozen=True)
class FoldThenBroadcast(Policy):
    """``fold_then_broadcast``: some blocks fold, and later ones wait for them."""

    max_bytes: int = 64 << 20  #: of an operand, which the level 2 cache about holds
    most_blocks_per_multiprocessor: int = 6  #: for which the compiler leaves registers, at most, as the two parts together need more than a fold
    items_per_thread: int = chosen(4, 1, 2, 4)  #: times those of ``BroadcastFlat``, as fewer threads broadcast than in a launch of their own


@dataclass(frozen=True)
class FoldAndBroadcast(Policy):
    """``fold_and_broadcast_runs``: a block folds segments that fit into shared memory, and stores what becomes of their rows."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (2, 4, 8))  #: rows that a thread loads from shared memory before it uses the first
    held_bytes: int = 52 << 10  #: bytes of rows, of all operands, that a block holds
    most_held_bytes: int = 96 << 10  #: the same where segments are too long for ``held_bytes``
    held_segments: int = 3  #: segments of as many rows as the mean that a block holds at least
    wanted_segments: int = 3  #: such segments for which ``held_bytes`` may be exceeded
    long_bytes: int = 512 << 10  #: with an id of so many bytes of rows, or twice as many, a block would take too long, and other launches do the work
    narrow_row_bytes: int = 96  #: bytes of a row, of all operands, up to which it is narrow
    held_halves_bytes: int = 40 << 10  #: ``held_bytes`` of halves that are replaced in shared memory, of which more blocks are faster
    most_held_halves_bytes: int = 60 << 10  #: ``most_held_bytes`` of these
    held_halves_segments: int = 4  #: ``held_segments`` of these
    wanted_halves_segments: int = 6  #: ``wanted_segments`` of these
    narrow_halves_bytes: int = 64  #: ``narrow_row_bytes`` of these
    narrow_odd_bytes: int = 256  #: ``narrow_row_bytes`` of rows that are no vectors
    min_odd_segment_rows: float = 3.0  #: with fewer of these for each segment in the mean, blocks have all rows of a tile
    vector_bytes: int = chosen(8, 4, 8, 16)  #: of a vector of a thread at most
    min_blocks_per_multiprocessor: int = 0
    min_bytes: int = 32 << 20  #: of an operand: the launches that do nothing take some microseconds
    grid_blocks_per_multiprocessor: int = 128  #: blocks that there are before one has a longer tile: those that do nothing take time, too
    grid_lookers_per_multiprocessor: int = 8  #: blocks that look for a long segment, at most; fewer than 2 ** 16 in all


@dataclass(frozen=True)
class FoldAndBroadcastStaged(Policy):
    """``fold_and_broadcast_staged``: a block does so with all rows of a tile at a time, where they are narrow, no vectors, or in short segments."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (2, 4, 8))  #: rows that a thread loads from shared memory before it uses the first
    min_segment_rows: float = 2.0  #: with fewer rows for each segment in the mean, what a lane does once for a run takes longer than a fold
    stage_bytes: int = 36 << 10  #: bytes of a tile's rows, of all operands, about
    min_row_bytes: int = 8  #: bytes of a row of one operand at least: with fewer, what each row and run takes besides is more
    min_position_bytes: int = 12  #: the same of rows in which positions are found
    min_lanes: int = 72  #: lanes that have runs of a tile in the mean, at least: with fewer, most threads are idle
    max_row_bytes: int = 128  #: bytes of a row of all operands at most: rows behind a tile have room, too
    odd_row_bytes: int = 256  #: the same of rows that are no vectors, of which positions are stored, or in short segments
    vectors_rows: float = 4.5  #: with so many rows for each segment in the mean, or fewer, segments of rows that are vectors are short
    pivoted_vectors_rows: float = 8.0  #: the same with sums about a pivot
    columns_per_thread: int = chosen(3, 1, 2, 3)  #: most columns of a thread
    min_blocks_per_multiprocessor: int = 0
    #: With an id of twice as many rows, or fewer but more than so many, other launches do the work; behind a tile is room for twice as many.
    long_rows: int = chosen(64, 16, 32, 64, 128)
    max_segment_rows: float = 24.0  #: with more rows for each segment in the mean, a fold and a broadcast are faster
    shared_bytes_per_block: int = 96 << 10  #: bytes at most
    min_tile_rows: int = 1  #: rows of a tile at least


@dataclass(frozen=True)
class FoldAndBroadcastWide(FoldAndBroadcastStaged):
    """The same of these of more bytes than ``odd_row_bytes``, in short segments: the shorter, the less room behind a tile."""

    min_segment_rows: float = 1.0
    stage_bytes: int = 48 << 10
    max_row_bytes: int = 2 << 10
    long_rows: int = chosen(32, 16, 32)
    short_segment_rows: float = 4.0  #: with so many rows for each segment in the mean, or fewer, ``long_rows`` are half as many
    max_segment_rows: float = 10.0
    min_tile_rows: int = 16


@dataclass(frozen=True)
class FoldAndBroadcastShort(Policy):
    """``fold_and_broadcast_short``: a thread does so with neighbouring rows of few bytes, which it has in registers."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = chosen(8, 4, 8, 16)  #: rows of a thread
    max_row_bytes: int = 8  #: bytes of a row of one operand at most
    max_columns: int = 2  #: columns at most: a thread has those of all its rows
    max_segment_rows: float = 24.0  #: with more rows for each segment in the mean, a fold and a broadcast are faster
    #: The same about a pivot that rows choose: in longer segments less is won than is lost where one turns out to be too long.
    max_pivoted_rows: float = 8.0
    #: With an id of so many rows, or half as many, other launches do the work; a block reads so many rows before and behind its own. A warp has more.
    long_rows: int = multiple(128, 16)
    max_tile_steps: int = 8  #: times that a block takes as many rows as its threads have, at most: blocks that do nothing take time, too
    grid_blocks_per_multiprocessor: int = 24  #: blocks that there are before one takes as many several times
    min_blocks_per_multiprocessor: int = 0


@dataclass(frozen=True)
class ScatterRows(Policy):
    """``scatter_rows``: atomic updates of the output, pass by pass for as many segments as the level 2 cache holds."""

    items_per_thread: int = compiled(2, (1, 2, 4, 8))  #: rows, all loads before the first update
    rows_per_group: int = 64  #: rows of a group, or fewer where multiprocessors would be idle
    grid_blocks_per_multiprocessor: int = 8
    min_blocks_per_multiprocessor: int = 0
    crowd_rows: int = 3  #: rows of one id among the first 32 of a block that the block folds before it updates
    #: bytes of what a row updates, times passes, at most: rows of few bytes are soon read again
    pass_bytes: int = 128
    extreme_pass_bytes: int = 32  #: the same of extremes, which seldom update what they have loaded


@dataclass(frozen=True)
class Crowds(Policy):
    """Ids that crowd, whose sums or counts blocks of ``scatter_rows`` and ``count_ids`` keep in shared memory until they end."""

    most_sampled: int = chosen(8, 2, 4, 8)  #: rows of a thread, at most, among which a block looks for such ids
    rows_for_each: int = 8  #: rows of a thread for each of these, if there are more than two
    threads_for_each: int = fixed(8)  #: where fewer than one of so many threads has found a row of such an id, the block does without
    sums_bytes: int = fixed(16 << 10)  #: shared memory of a block's sums
    min_input_bytes: int = 4 << 20  #: of fewer bytes of rows a block has few, and would look for long
    max_row_bytes: int = 1024  #: rows of more bytes are so few that updates hardly wait


@dataclass(frozen=True)
class FillRows(Policy):
    """``fill_rows``: a group of threads stores one number in some rows."""

    items_per_thread: int = compiled(8, (1, 2, 4, 8, 16))  #: rows


@dataclass(frozen=True)
class IdPasses(Policy):
    """Passes over ids in any order, each for a range of segments."""

    cache_share: float = 0.6  #: share of the level 2 cache that what a pass updates may fill
    max_passes: int = 8
    crowd_share: float = 0.1  #: share of the rows with one id of which one pass over all segments is faster
    ascending_share: float = 0.9  #: share of the rows with no lesser id than that of one before, among a few that lie apart, of which it is faster


@dataclass(frozen=True)
class FactorRows(Policy):
    """Where the gradient of a product is made without a sort of ids, whose fold products seldom need."""

    max_row_bytes: int = 128  #: bytes of a row. Of wider ones there are few, whose ids are sorted in no time.
