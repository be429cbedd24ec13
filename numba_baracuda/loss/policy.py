"""The tuning policies of the loss family.

All numbers were chosen by times on an H200 (sm_90, 132 multiprocessors). The row kernel fills a multiprocessor with as many threads as any card has
registers for. The blocks and the shared memory that a multiprocessor has are in ``geometry.py``, by architecture; one that is not there is taken to
have the least of all. The tiles of products are those of cuBLAS on a Hopper card; on others the chunks are as right, but may not be the best.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, compiled, fixed, tuned


@dataclass(frozen=True)
class CrossEntropyRows(Policy):
    """``cross_entropy_rows``: a block for each row of logits, or persistent blocks."""

    threads_per_block: int = chosen(0, 0, *THREADS)  #: 0: by the classes, so that each thread has ``min_items_per_thread`` vectors
    min_blocks_per_multiprocessor: int = 0  #: 0: as many as fill a multiprocessor, with their rows in shared memory
    items_per_thread: int = 2  #: vectors that a thread has in flight to registers
    prefetched_items_per_thread: int = 2  #: vectors that a thread has in flight to shared memory
    min_items_per_thread: int = 7  #: vectors of a row that a thread has at least
    max_threads_per_multiprocessor: int = 1024  #: whose registers fill a multiprocessor; no card holds fewer at a time
    large_rows: int = 4  #: a row is large where a multiprocessor holds fewer in shared memory; of these each block holds its own whole
    grid_blocks: int = 0  #: persistent blocks, at most; 0: as many as are resident


#: in the emulator, so that few rows are already more than one a block
_EMULATED_BLOCKS = 2


@dataclass(frozen=True)
class Totals(Policy):
    """``total_targets``, ``fold_losses``, ``compact_rows`` and ``gather_values``: one block, or a thread for each row."""

    threads_per_block: int = fixed(1024)
    row_multiple: int = 128  #: rows that count are made a multiple of this: few plans serve all counts, and products have even extents


@dataclass(frozen=True)
class Assign(Policy):
    """``assign`` and ``mask_rows``: elements of a matrix, one to one."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (1, 2, 4, 8))  #: vectors


@dataclass(frozen=True)
class Chunks(Policy):
    """How many rows of logits exist at a time, which decides on the products of cuBLAS."""

    logits_bytes: int = 512 << 20  #: where nothing else is said
    workspace_bytes: int = (32 << 20) + 256  #: that cuBLAS may use, wherever they begin
    row_elements: int = 64  #: that the distance between rows of logits is a multiple of: products are slow where it is not
    row_multiple: int = 128  #: rows of a chunk, if it has as many
    product_tiles: tuple[tuple[int, int], ...] = fixed(((128, 256), (192, 192)))  #: rows and columns of the tiles of a product of few rows
    concurrent_tiles: int = 132  #: tiles of a product at a time
    update_cost: int = 100  #: multiply-adds in the time in which one element of a weight's gradient is read and written once more


def cross_entropy_rows(value: str, target: Target) -> CrossEntropyRows:
    """The policy for logits of an element type: float64 takes twice the registers."""
    threads = 512 if value == "f64" else CrossEntropyRows.max_threads_per_multiprocessor
    return tuned(CrossEntropyRows(max_threads_per_multiprocessor=threads, grid_blocks=_EMULATED_BLOCKS if target.emulated else 0))
