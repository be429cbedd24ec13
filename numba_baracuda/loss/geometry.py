"""How rows are shared among threads; nothing here needs numba."""

from __future__ import annotations

from ..axes import power_of_two
from ..dtypes import BY_NAME
from ..op import Target

#: places of ``factors``: what to multiply by the gradient of a row, a loss, a share of all targets, the square of a logarithm on its own and beside
#: a loss; and the sum of the classes' weights
GRADIENT, LOSS, SHARE, SQUARES, SQUARE, WEIGHTS = range(6)
FACTORS = 6
#: threads of a block that sums over all rows, and of one that assigns; accesses of a lane that assigns
TOTAL_THREADS, ASSIGN_THREADS, ASSIGN_STEPS = 1024, 256, 4
#: accesses of a lane in flight where they go to registers, those on their way to shared memory, and those that it has of a row at least
ROW_STEPS, ROW_AHEAD, ROW_ACCESSES = 2, 3, 7
#: threads whose registers fill a multiprocessor; no card holds fewer at a time
_RESIDENT = {"f64": 512}
_MOST_RESIDENT = 1024
#: blocks that a multiprocessor holds, and bytes of its shared memory, by capability: CUDA programming guide, "Compute Capabilities"
_HOLDS = {
    (8, 0): (32, 164 << 10), (8, 6): (16, 100 << 10), (8, 7): (16, 164 << 10), (8, 9): (24, 100 << 10), (9, 0): (32, 228 << 10),
    (10, 0): (32, 228 << 10), (10, 3): (32, 228 << 10), (11, 0): (24, 228 << 10), (12, 0): (24, 100 << 10), (12, 1): (24, 100 << 10),
}  # fmt: skip
_HOLDS_AT_LEAST = 16, 100 << 10
#: bytes of shared memory that a block takes beside what it holds of a row
_BESIDE = 3 << 9
#: in the emulator, so that small rows are already held in part, and few rows already more than one a block
_EMULATED_SHARED, _EMULATED_BLOCKS = 112 << 10, 2


def threads_for(classes: int, value: str) -> int:
    """The size of the block that takes a row: a power of two from 32 to 1024, or to 512 in float64, which takes more registers."""
    lanes = classes // BY_NAME[value].vector // ROW_ACCESSES
    return min(max(power_of_two(lanes + 1) // 2, 32), _RESIDENT.get(value, _MOST_RESIDENT))


def blocks_for(value: str, threads: int, target: Target) -> int:
    """Blocks that a multiprocessor holds."""
    return min(_RESIDENT.get(value, _MOST_RESIDENT) // threads, _HOLDS.get(target.capability, _HOLDS_AT_LEAST)[0])


def grid_for(rows: int, value: str, threads: int, target: Target) -> int:
    """Blocks that take rows in turns: as many as the device holds at a time, though none waits for another and any number makes the same of a row."""
    return min(rows, target.multiprocessors * (_EMULATED_BLOCKS if target.emulated else blocks_for(value, threads, target)))


def held_by(value: str, threads: int, target: Target) -> int:
    """The elements of a row, at most, that stay in shared memory until its gradient is made, in whole accesses of the block."""
    kind = BY_NAME[value]
    once = threads * kind.vector
    shared = _EMULATED_SHARED if target.emulated else _HOLDS.get(target.capability, _HOLDS_AT_LEAST)[1]
    return (shared // blocks_for(value, threads, target) - _BESIDE) // kind.itemsize // once * once
