"""How many threads and blocks process rows of logits, and which part of a row stays in shared memory; nothing here needs numba."""

from __future__ import annotations

from typing import NamedTuple

from ..core.axes import power_of_two
from ..core.dtypes import BY_NAME
from ..core.op import Target
from .policy import CrossEntropyRows, MergeStatistics, Totals, cross_entropy_rows

#: indices of ``factors``: the factors of gradients, of the loss, of the number of hits, and of the sum of lse² on its own; within the loss of a row,
#: those of lse² and of all else; and the sum of the classes' weights
GRADIENT, LOSS, INVERSE_COUNT, Z_LOSS, LSE_SQUARE, CROSS_ENTROPY, CLASS_WEIGHTS = range(7)
FACTORS = 7
#: numbers of a row that the gradients of its logits are made of, where classes are divided among ranks
ROW_TERMS = 5
#: threads of a block that sums over all rows
TOTAL_THREADS = Totals.threads_per_block
#: threads of a block that merges statistics
MERGE_THREADS = MergeStatistics.threads_per_block
#: a softcap above which the hardware's tanh, with an error of 2^-22, is not exact enough
LARGE_CAP = 1024.0
#: resident blocks and bytes of shared memory of a multiprocessor, by capability: CUDA programming guide, "Compute Capabilities"
_LIMITS = {
    (8, 0): (32, 164 << 10), (8, 6): (16, 100 << 10), (8, 7): (16, 164 << 10), (8, 9): (24, 100 << 10), (9, 0): (32, 228 << 10),
    (10, 0): (32, 228 << 10), (10, 3): (32, 228 << 10), (11, 0): (24, 228 << 10), (12, 0): (24, 100 << 10), (12, 1): (24, 100 << 10),
}  # fmt: skip
_LEAST_LIMITS = 16, 100 << 10
#: bytes of shared memory that each block needs besides the classes of a row
_RESERVED = 3 << 9
#: in the emulator, so that even small rows do not fit in shared memory
_EMULATED_SHARED = 112 << 10


def statistics_width(argmax: bool, smoothed: bool, entropy: bool) -> int:
    """Numbers that ranks exchange of a row."""
    return 3 + argmax + entropy + 2 * smoothed


class RowBlocks(NamedTuple):
    """The launch of the row kernel."""

    threads: int
    resident: int  #: blocks of a multiprocessor
    shared_classes: int  #: classes of a row, at most, that stay in shared memory for its gradients; whole vectors of all threads
    blocks: int


def block_per_row(rows: int, classes: int, value: str, target: Target) -> RowBlocks:
    """A block for each row, without a copy in shared memory: for losses without gradients."""
    policy = cross_entropy_rows(value, target)
    max_threads = policy.max_threads_per_multiprocessor
    threads = _threads_for(policy, classes, value, max_threads)
    return RowBlocks(threads, policy.min_blocks_per_multiprocessor or min(max_threads // threads, _limits(target)[0]), 0, rows)


def persistent_blocks(rows: int, classes: int, value: str, target: Target) -> RowBlocks:
    """Persistent blocks, as many as are resident; of large rows, as many as have a whole row in shared memory: one loads while others compute.

    No block waits for another, and the results do not depend on their number.
    """
    dtype, policy, (max_blocks, shared_bytes) = BY_NAME[value], cross_entropy_rows(value, target), _limits(target)
    max_threads, large = policy.max_threads_per_multiprocessor, policy.large_rows
    resident_rows = max(shared_bytes // (classes * dtype.itemsize + _RESERVED), 1)
    threads = _threads_for(policy, classes, value, max_threads // min(resident_rows, large))
    resident = min(max_threads // threads, max_blocks)
    if not target.emulated:
        resident = min(resident, max(resident_rows, large - 1))
    resident = policy.min_blocks_per_multiprocessor or resident
    block_elements = threads * dtype.vector
    shared_classes = (shared_bytes // resident - _RESERVED) // dtype.itemsize // block_elements * block_elements
    return RowBlocks(threads, resident, shared_classes, min(rows, policy.grid_blocks or target.multiprocessors * resident))


def _threads_for(policy: CrossEntropyRows, classes: int, value: str, max_threads: int) -> int:
    """Threads of the block of a row: a power of two from 32 to ``max_threads``."""
    lanes = min(classes // BY_NAME[value].vector // policy.min_items_per_thread, max_threads)
    return policy.threads_per_block or max(power_of_two(lanes + 1) // 2, 32)


def _limits(target: Target) -> tuple[int, int]:
    """The most resident blocks of a multiprocessor, and bytes of its shared memory."""
    blocks, shared_bytes = _LIMITS.get(target.capability, _LEAST_LIMITS)
    return blocks, _EMULATED_SHARED if target.emulated else shared_bytes
