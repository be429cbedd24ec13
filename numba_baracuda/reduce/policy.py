"""The tuning policies of the reduce family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors). They are the same on every architecture, since no other was measured;
grids follow the number of multiprocessors. Resident blocks are set where the compiler would take more registers than it needs without spills;
elsewhere it leaves enough of them by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import Policy, chosen, fixed

#: bytes of a vectorized load or store that a kernel may be compiled for
VECTOR_BYTES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Block(Policy):
    """Numbers that all kernels of the family share."""

    threads_per_block: int = fixed(256)
    vector_bytes: int = chosen(16, *VECTOR_BYTES)  #: bytes of the widest vectorized load or store
    bytes_in_flight: int = fixed(64)  #: bytes whose loads a thread issues before it uses the first
    max_items_per_thread: int = fixed(16)  #: the most vectors that make up ``bytes_in_flight``
    min_peeled_bytes: int = 1 << 10  #: longer misaligned lines are peeled: vectors for their aligned middle, single elements at both ends


@dataclass(frozen=True)
class FoldRows(Policy):
    """``fold_rows`` and ``fold_short_rows``: a group of threads, a warp or a block folds a row."""

    max_warp_vectors: int = 2048  #: longest row, in vectors, that one warp folds where there are many rows
    warp_rows_per_multiprocessor: int = 32  #: so many rows for each multiprocessor count as many
    few_rows_items: int = 2  #: factor on vectors in flight where one warp takes each of few rows; a block would wait longer for its warps
    grid_blocks_per_multiprocessor: int = 16  #: blocks for each multiprocessor that keep the memory busy; few rows are split to have as many
    min_split_batches: int = 4  #: least number of batches in a split of a row, which pay for the launch that combines the partials
    min_blocks_per_multiprocessor: int = 5  #: of vectors of rows along one axis that a block takes, of small states. Computed, not timed
    single_row_blocks: int = 4  #: blocks for each multiprocessor where there is one row
    max_single_row_bytes: int = 384 << 20  #: of that row's elements


@dataclass(frozen=True)
class FoldHeld(Policy):
    """``fold_held_rows`` and ``fold_held_columns``: a thread holds whole rows or columns."""

    max_extent: int = 16  #: the most elements of a row or column
    max_odd_loads: int = 6  #: of neighbouring rows of 4-byte elements or wider ones, no multiples of 16 bytes: L1 looks up a warp's lines for each
    max_stored_extent: int = 2  #: the most of a column of a gradient that only stores
    max_bytes: int = 128  #: of the neighbouring rows or columns that a thread holds
    bytes_in_flight: int = 64  #: of all elements that a thread holds, unless neighbouring ones are more
    column_bytes_in_flight: int = 32  #: the same of columns
    max_pieces: int = 8  #: the most places at which a thread has neighbouring rows or columns
    min_vector_bytes: int = 2  #: of a load
    min_bytes: int = 16 << 20  #: of elements; fewer would leave multiprocessors idle
    min_line_rows: int = 256 << 10  #: of several lines; fewer would leave them idle, too


@dataclass(frozen=True)
class FoldLines(Policy):
    """``fold_lines``: a group of threads folds a line of few columns as ``fold_rows`` does a row. Computed, not timed."""

    min_line_bytes: int = 3 << 10  #: of all elements of neighbouring columns; shorter lines have too few for each thread of a warp
    max_warp_vectors: int = 2048  #: for each column of a line: the longest that one warp folds where there are many. Lanes exchange states of each
    min_bytes: int = 32 << 20  #: of elements; fewer go in a single pass


@dataclass(frozen=True)
class FoldStagedRows(Policy):
    """``fold_staged_rows``: a block copies rows or columns without gaps to shared memory, where groups of threads fold them."""

    items_per_thread: int = fixed(8)  #: elements that a thread takes from shared memory at a time
    shared_bytes_per_block: int = 40 << 10
    max_vector_bytes: int = 8  #: rows that can be loaded by vectors of so many bytes are folded without shared memory, but for short ones of doubles
    min_rows_per_block: int = 16
    min_bytes_per_block: int = 16 << 10  #: of elements; a group takes several rows where its block would have fewer
    max_rows_per_group: int = 16
    max_column_lanes: int = chosen(32, 1, 2, 4, 8, 16, 32)  #: the most threads that share a column
    max_line_bytes: int = 128  #: of neighbouring columns at one position; more fill the lines of memory that a warp loads
    max_narrow_line_bytes: int = 32  #: the same of whole vectors that sums about a pivot would halve; of more, threads meet in banks of shared memory
    min_column_bytes: int = 16 << 20  #: of all columns; fewer would leave multiprocessors idle. Computed, not timed, as the three above


@dataclass(frozen=True)
class BroadcastStagedRows(Policy):
    """``broadcast_staged_rows``: gradients along short rows that a block copies to shared memory. Computed, not timed."""

    max_vector_bytes: int = 16  #: rows that can be loaded by vectors of so many bytes go without shared memory
    max_rows_per_group: int = 4  #: as of ``FoldStagedRows``; the terms of each row take shared memory, too


@dataclass(frozen=True)
class FoldColumns(Policy):
    """``fold_columns``: a block walks down columns; adjacent threads take adjacent vectors of a row."""

    contiguous_bytes: int = 512  #: contiguous bytes of a row that a block loads together
    max_idle_percent: int = 12  #: of the lanes that blocks have across: where more had no column, blocks load fewer contiguous bytes
    short_extent: int = 64  #: most elements of a column that one lane takes alone, without others below it, where there are many columns
    short_walk: int = 1024  #: the same of columns along two axes or more: each lane divides before its first load
    narrow_vectors: int = 32  #: of lines of fewer, each lane has ``narrow_batches`` of a column, where blocks are many: others would soon end
    narrow_batches: int = 4
    pivot_vector_bytes: int = chosen(8, *VECTOR_BYTES)  #: bytes of the widest load for sums about a pivot, so that pivots change less often
    grid_blocks_per_multiprocessor: int = 8
    even_blocks_per_multiprocessor: int = 16  #: so many finish more evenly; columns of short lines have them as far as ``min_state_share`` allows
    even_line_bytes: int = 8 << 10  #: of a line; of longer ones many blocks read far apart, up to 7 % more slowly
    min_state_share: int = 192  #: bytes of a column in a split for each byte of the state that it leaves
    min_blocks_per_multiprocessor: int = 3  #: of single elements of up to 4 bytes along two axes, whose offsets take many registers
    min_blocks_of_vectors: int = 4  #: of vectors of them along one axis, of small states. Computed, not timed
    min_blocks_with_two_terms: int = 4  #: of sums of two terms about a pivot along one axis, of halves
    min_blocks_with_one_term: int = 3  #: the same of one term, unless a pivot is chosen only where 1 does not do. Computed, not timed
    min_split_batches: int = 4


@dataclass(frozen=True)
class CombinePartials(Policy):
    """``combine_partials``: combines the partials of rows that are split."""

    items_per_thread: int = 4  #: partials that a thread combines before threads exchange states
    max_group_threads: int = chosen(32, 1, 2, 4, 8, 16, 32)  #: the most threads of a warp that share the partials of a row
    max_group_splits: int = 512  #: the most partials of a row that they share; a block takes those of a row that has more
    max_row_partials: int = 8192  #: the most that a block combines of all parts of a row; of more, several blocks do, or a launch for each part first
    blocks_per_multiprocessor: int = 1  #: that combine those of few rows
    parts: int = 64  #: the most blocks of a row


@dataclass(frozen=True)
class Passes(Policy):
    """Folds and gradients along axes that lie apart, or across lines that are no multiple of a vector: see ``passes``. Computed, not timed."""

    min_bytes: int = 32 << 20  #: of elements; less takes so short that the launches matter
    contiguous_bytes: int = 512  #: of a line; shorter lines of apart axes are walked in passes even where they are multiples of a vector
    min_positions: int = 16  #: along the axis that is walked; fewer would not pay for the terms, or the state, of each column
    many_positions: int = 64  #: so many are left where a walk takes more lines at a time than vectors need; then columns come before rows, too
    max_line_bytes: int = 8 << 10  #: of a line across one axis; of longer ones few are folded as they are, by loads of 4 bytes or more
    max_lines: int = 512  #: few of such lines
    min_share: int = 4  #: bytes of the elements of a column to those of the state that they leave
    max_state_bytes: int = 16 << 20  #: of all states, which the L2 cache holds
    narrow_percent: int = 50  #: of the elements' bytes, more states than these, written and read, that pay where rows are loaded by 2 bytes
    single_percent: int = 20  #: the same of rows loaded by 4 bytes, and of columns loaded by 2; wider loads lose less than states take
    direct_line_bytes: int = 128  #: of a line of elements of 4 bytes or more, of which single loads are as good as vectors that begin before it
    vectors_across: int = 128  #: vectors that a position should have
    gradient_vectors_across: int = 2048  #: the same of gradients, whose blocks are wide: of many, few have idle threads. Computed, not timed


@dataclass(frozen=True)
class SinglePass(Policy):
    """``fold_rows`` and ``fold_columns`` in a single pass: the last block of a row to finish combines the partials. Computed, not timed.

    A block that reads ``max_scalars`` takes about as long as a second launch, 3 µs: four times it waits for 16 loads of each thread.
    """

    grid_blocks_per_multiprocessor: int = 2  #: blocks for each multiprocessor, with ``bytes_in_flight`` of each thread, that keep the memory busy
    max_scalars: int = 17 << 10  #: the most scalars of states that a block combines
    items_per_thread: int = fixed(16)  #: scalars that a thread loads at a time
    max_bytes: int = 64 << 20  #: of elements; folds of more take so long that a launch matters little


@dataclass(frozen=True)
class BroadcastRows(Policy):
    """``broadcast_rows``: gradients along rows."""

    batches_per_thread: int = 2  #: batches that a thread writes in all


@dataclass(frozen=True)
class FoldAndBroadcastRows(Policy):
    """``fold_and_broadcast_rows`` and ``…_held_rows``: gradients of rows that a group folds itself, whose lanes exchange states."""

    items_per_thread: int = 8  #: vectors of a row that a lane should have
    min_bytes: int = 64 << 20  #: of elements; less was not timed
    min_group_threads: int = 2  #: of rows of several vectors
    max_read_bytes: int = 1 << 10  #: of a row that lanes read twice though they could hold it: L1 keeps those of all resident warps
    max_held_bytes: int = 384  #: of a longer row that a thread of a warp holds
    max_uneven_bytes: int = 288  #: the same of peeled rows, and of those of several lines
    max_uneven_elements: int = 96  #: of these, since halves may take a register each
    max_idle_percent: int = 40  #: of vectors that lanes hold of several lines, so many may be none of the line's
    max_block_held_bytes: int = 256  #: of a still longer row, or of few, that a thread of a block holds
    min_block_items: int = 3  #: vectors of a thread; of fewer, the lanes' exchange of states takes longer than to read twice
    min_blocks_per_multiprocessor: int = 2  #: of rows that are held


@dataclass(frozen=True)
class FoldAndBroadcastStagedLines(Policy):
    """``fold_and_broadcast_staged_lines``: gradients of rows or few neighbouring columns whose lines a block copies. Bytes on a line timed."""

    shared_bytes_per_block: int = 40 << 10  #: of lines
    min_bytes_per_block: int = 16 << 10  #: of lines; a block takes several neighbouring rows where it would have fewer
    min_line_bytes: int = 512  #: of the elements of a block on a line; fewer share lines of memory with those of other blocks
    whole_line_bytes: int = 768  #: of a row on a line; of shorter ones pieces at the ends take long, but of those within ``max_short_bytes``
    max_short_bytes: int = 64
    max_woven_elements: int = 5  #: for each lane, of rows that lanes would hold, and whose lines alternate in one range; more are as quick in place
    min_columns: int = 2  #: neighbouring columns at one position
    max_column_bytes: int = 32  #: of these; more fill the sectors that a warp loads
    max_wide_bytes: int = 64  #: the same where lines lie apart, and are more than lanes hold
    max_item_bytes: int = 4  #: of an element of these
    max_columns: int = 256  #: rows or columns of a block, whose terms take shared memory, too; half as many where terms are of 8 bytes
    max_block_columns: int = 2  #: of a block, so many that all threads fold each
    grid_blocks_per_multiprocessor: int = 8  #: fewer blocks leave multiprocessors idle
    min_bytes: int = 32 << 20  #: of elements; less takes so short that launches matter


@dataclass(frozen=True)
class FoldAndBroadcastColumns(Policy):
    """``fold_and_broadcast_columns``: gradients of columns so short that lanes hold them, or caches those that all blocks have at a time."""

    contiguous_bytes: int = 512  #: as of ``FoldColumns``; fewer where a block has more than ``wide_block_bytes``
    min_contiguous_bytes: int = 256
    max_idle_percent: int = 12  #: as of ``FoldColumns``
    short_extent: int = 16  #: as of ``FoldColumns``
    short_walk: int = 1  #: as of ``FoldColumns``
    min_held_bytes: int = 256  #: contiguous bytes of a row, of columns that several lanes hold
    min_line_bytes: int = 128  #: the same of lines across one axis, of elements of 4 bytes or more
    max_held_bytes: int = 192  #: of the elements of such columns that a lane holds
    max_held_elements: int = 56  #: the same; the compiler would not unroll loops over more
    wide_block_bytes: int = 64 << 10  #: of the columns of a block
    max_block_bytes: int = 256 << 10  #: columns of more go in launches of their own, which split them
    max_guarded_extent: int = 32  #: longer columns whose fold few need go so, too: to look at the results costs them little
    grid_blocks_per_multiprocessor: int = 8  #: fewer blocks go in launches of their own, which split columns


@dataclass(frozen=True)
class BroadcastDense(Policy):
    """``broadcast_dense``: gradients of dense operands in the order of memory."""

    items_per_thread: int = 4  #: vectors that a thread stores in all
    min_bytes: int = 64 << 20  #: of elements; less was not timed
    min_item_bytes: int = 4  #: of an element; smaller ones are more in a vector, and have instructions each
    min_near_vectors: int = 32  #: of a line of small elements; on shorter ones many vectors reach the next line, whose terms lie elsewhere
    max_line_bytes: int = 16 << 20  #: of kept elements that lie together; of more, caches may lose the terms before they are used again
    max_row_bytes: int = 2 << 10  #: longer rows of small elements go by rows where vectors are whole


@dataclass(frozen=True)
class BroadcastColumns(Policy):
    """``broadcast_columns``: gradients across rows."""

    contiguous_bytes: int = 4096  #: of a row, which a block stores together
    max_idle_percent: int = 100  #: as of ``FoldColumns``: narrower blocks store more slowly
    short_extent: int = 32  #: as of ``FoldColumns``
    short_walk: int = 1  #: as of ``FoldColumns``
    batches_per_thread: int = 4  #: batches that a thread writes in all, for which it loads the terms of its columns once
    quick_columns: int = 4  #: most columns of a thread that writes one batch, if it reads elements, and its terms take no division
    max_columns_with_terms: int = 4  #: neighbouring columns of a thread that have three terms or more, which take registers. Computed, not timed
