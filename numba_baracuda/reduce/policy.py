"""The tuning policies of the reduce family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors). They are the same on every architecture, since nobody has measured others;
grids follow the number of multiprocessors. No kernel asks for resident blocks: compilers have left room for enough of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import Policy, chosen, fixed

#: bytes of an access that a kernel may be built for
ACCESSES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Block(Policy):
    """What all kernels of the family have in common."""

    threads_per_block: int = fixed(256)
    vector_bytes: int = chosen(16, *ACCESSES)  #: of the widest access
    bytes_in_flight: int = fixed(64)  #: bytes whose loads a thread issues before it uses the first
    max_items_per_thread: int = fixed(16)  #: vectors for them at most
    min_peeled_bytes: int = 1 << 10  #: of a line of neighbours above which its ends are taken one by one, so that what lies between goes by vectors


@dataclass(frozen=True)
class FoldRows(Policy):
    """``fold_rows`` and ``fold_short_rows``: a group of threads, a warp or a block folds a row."""

    max_warp_vectors: int = 2048  #: vectors of a row that a warp folds where there are many rows, however long that takes
    warp_rows_per_multiprocessor: int = 32  #: rows for each multiprocessor that are many
    few_rows_items: int = 2  #: times as many vectors in flight where there is so little to read that a block would wait longer for its warps
    grid_blocks_per_multiprocessor: int = 16  #: that keep the memory busy, where each has more to do in the end; rows are split to have them
    min_split_batches: int = 4  #: batches in flight of each part of a row that is split, which make up for the launch that joins the parts


@dataclass(frozen=True)
class FoldStagedRows(Policy):
    """``fold_staged_rows``: a block copies rows without gaps to shared memory, where groups of threads fold them."""

    items_per_thread: int = fixed(8)  #: elements that a thread takes from shared memory at a time
    shared_bytes_per_block: int = 40 << 10
    max_vector_bytes: int = 8  #: rows whose own vectors have as many bytes are folded without shared memory
    min_rows_per_block: int = 16


@dataclass(frozen=True)
class FoldColumns(Policy):
    """``fold_columns``: a block walks down columns, some of its threads side by side."""

    contiguous_bytes: int = 512  #: that a block reads side by side
    pivot_vector_bytes: int = chosen(8, *ACCESSES)  #: of sums about a pivot, two elements at most: few rows at a time, so that pivots move less often
    grid_blocks_per_multiprocessor: int = 8
    min_split_batches: int = 4


@dataclass(frozen=True)
class CombinePartials(Policy):
    """``combine_partials``: combines the partials of rows that are split."""

    items_per_thread: int = 4  #: partials that a thread combines for itself
    max_group_threads: int = chosen(32, 1, 2, 4, 8, 16, 32)  #: that share the partials of a row


@dataclass(frozen=True)
class BroadcastRows(Policy):
    """``broadcast_rows``: gradients along rows."""

    batches_per_thread: int = 2  #: batches in flight that a thread writes in all


@dataclass(frozen=True)
class BroadcastColumns(Policy):
    """``broadcast_columns``: gradients across rows."""

    batches_per_thread: int = 4  #: batches in flight that a thread writes in all
