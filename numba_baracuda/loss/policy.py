"""The tuning policies of the loss family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors). The row kernel fills a multiprocessor with as many threads as every card has
registers for. ``geometry.py`` has the resident blocks and shared memory of a multiprocessor by architecture; an unknown one counts as the smallest.
The tiles of products are those of cuBLAS on a Hopper card; on others the results are the same, but the chunks may not be the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, compiled, fixed, tuned


@dataclass(frozen=True)
class CrossEntropyRows(Policy):
    """``cross_entropy_rows``: a block for each row of logits, or persistent blocks."""

    threads_per_block: int = chosen(0, 0, *THREADS)  #: 0: chosen by the classes, so that each thread has ``min_items_per_thread`` vectors
    min_blocks_per_multiprocessor: int = 0  #: 0: as many as a multiprocessor holds with their rows in shared memory
    items_per_thread: int = 2  #: vectors that a thread loads to registers before it uses the first
    prefetched_items_per_thread: int = 2  #: vectors that a thread copies to shared memory ahead of their use
    min_items_per_thread: int = 7  #: least number of a row's vectors for each thread
    max_threads_per_multiprocessor: int = 1024  #: threads whose registers fill a multiprocessor; every card holds as many
    large_rows: int = 4  #: a row is large where shared memory holds fewer of them; each block then keeps its whole row there
    grid_blocks: int = 0  #: the most persistent blocks; 0: as many as are resident


#: persistent blocks in the emulator, so that a block takes several rows of a small problem
_EMULATED_BLOCKS = 2


@dataclass(frozen=True)
class Totals(Policy):
    """``total_targets``, ``fold_losses``, ``compact_rows`` and ``gather_values``: one block, or a thread for each row."""

    threads_per_block: int = fixed(1024)
    row_multiple: int = 128  #: without ignored rows, the number of rows is rounded up to a multiple of this, so that few plans serve all counts


@dataclass(frozen=True)
class MergeStatistics(Policy):
    """``merge_statistics``: a thread for each row."""

    threads_per_block: int = fixed(128)


@dataclass(frozen=True)
class Assign(Policy):
    """``assign`` and ``mask_rows``: elementwise over a matrix."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: vectors that a thread takes at a time


@dataclass(frozen=True)
class Chunks(Policy):
    """How many rows of logits exist at a time, which sets the sizes of the matrix products."""

    logits_bytes: int = 512 << 20  #: bytes of a chunk's logits by default
    workspace_bytes: int = (32 << 20) + 256  #: bytes of cuBLAS's workspace, with those that align it
    row_elements: int = 64  #: the stride between rows of logits is a multiple of so many elements: other products are slow
    row_multiple: int = 128  #: the rows of a chunk are a multiple of this, if it has as many
    product_tiles: tuple[tuple[int, int], ...] = fixed(((128, 256), (192, 192)))  #: (rows, columns) of cuBLAS's tiles for products of few rows
    concurrent_tiles: int = 132  #: tiles of a product that run at a time
    update_cost: int = 100  #: time to read and write one element of a weight's gradient once more, in multiply-adds


def cross_entropy_rows(value: str, target: Target) -> CrossEntropyRows:
    """The policy for logits of an element type. float64 takes twice the registers, so half the threads."""
    threads = 512 if value == "f64" else CrossEntropyRows.max_threads_per_multiprocessor
    return tuned(CrossEntropyRows(max_threads_per_multiprocessor=threads, grid_blocks=_EMULATED_BLOCKS if target.emulated else 0))
