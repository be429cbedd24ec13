"""How rows are shared among threads; nothing here needs numba."""

from __future__ import annotations

from typing import NamedTuple

from ..core.axes import power_of_two
from ..core.dtypes import BY_NAME
from ..core.op import Target
from .policy import CrossEntropyRows, Totals, cross_entropy_rows

#: places of ``factors``: what to multiply by the gradient of a row, a loss, a share of all targets, and the square of a logarithm on its own; within
#: a loss, what to multiply by the square and by all else; and the sum of the classes' weights
GRADIENT, LOSS, INVERSE_COUNT, Z_LOSS, LSE_SQUARE, CROSS_ENTROPY, CLASS_WEIGHTS = range(7)
FACTORS = 7
#: threads of a block that sums over all rows
TOTAL_THREADS = Totals.threads_per_block
#: a softcap above which the machine's own tanh, off by 2^-22, is not exact enough
LARGE_CAP = 1024.0
#: blocks that a multiprocessor holds, and bytes of its shared memory, by capability: CUDA programming guide, "Compute Capabilities"
_LIMITS = {
    (8, 0): (32, 164 << 10), (8, 6): (16, 100 << 10), (8, 7): (16, 164 << 10), (8, 9): (24, 100 << 10), (9, 0): (32, 228 << 10),
    (10, 0): (32, 228 << 10), (10, 3): (32, 228 << 10), (11, 0): (24, 228 << 10), (12, 0): (24, 100 << 10), (12, 1): (24, 100 << 10),
}  # fmt: skip
_LEAST_LIMITS = 16, 100 << 10
#: bytes of shared memory that a block takes beside what it holds of a row
_RESERVED = 3 << 9
#: in the emulator, so that small rows are already held in part
_EMULATED_SHARED = 112 << 10


class RowBlocks(NamedTuple):
    """How rows are dealt to blocks."""

    threads: int
    resident: int  #: blocks that a multiprocessor holds
    shared_classes: int  #: elements of a row, at most, that stay in shared memory until its gradient is made, in whole accesses of the block
    blocks: int


def block_per_row(rows: int, classes: int, value: str, target: Target) -> RowBlocks:
    """A block for each row, which holds nothing of it."""
    policy = cross_entropy_rows(value, target)
    max_threads = policy.max_threads_per_multiprocessor
    threads = _threads_for(policy, classes, value, max_threads)
    return RowBlocks(threads, policy.min_blocks_per_multiprocessor or min(max_threads // threads, _limits(target)[0]), 0, rows)


def persistent_blocks(rows: int, classes: int, value: str, target: Target) -> RowBlocks:
    """Blocks that take rows in turns, as many as the device holds; of large rows, as many as hold theirs whole, so that one reads while others fold.

    None waits for another, and any number makes the same of a row.
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
    """The size of the block that takes a row: a power of two, at least 32 and at most ``most``."""
    lanes = min(classes // BY_NAME[value].vector // policy.min_items_per_thread, max_threads)
    return policy.threads_per_block or max(power_of_two(lanes + 1) // 2, 32)


def _limits(target: Target) -> tuple[int, int]:
    """Blocks that a multiprocessor holds at most, and bytes of its shared memory."""
    blocks, shared_bytes = _LIMITS.get(target.capability, _LEAST_LIMITS)
    return blocks, _EMULATED_SHARED if target.emulated else shared_bytes
