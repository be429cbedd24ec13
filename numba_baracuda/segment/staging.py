"""The tuning policies of kernels that keep runs in shared memory. None was measured: sizes follow from the bytes that a multiprocessor has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.axes import ceil_div
from ..core.op import Target
from ..core.policy import THREADS, Policy, chosen, compiled, tuned

#: bytes of shared memory of a multiprocessor on these architectures, and on others: CUDA programming guide, "Compute Capabilities"
_LARGE, _LARGE_SHARED, _LEAST_SHARED = ((9, 0), (10, 0), (10, 3), (11, 0)), 228 << 10, 100 << 10


@dataclass(frozen=True)
class BroadcastStaged(Policy):
    """``broadcast_staged``: a block keeps the rows of the runs that begin in its tile in shared memory."""

    threads_per_block: int = compiled(256, THREADS)
    items_per_thread: int = compiled(4, (2, 4, 8))  #: rows that a thread loads from shared memory before it uses the first
    min_blocks_per_multiprocessor: int = chosen(4, 1, 2, 4)  #: they share the multiprocessor's shared memory
    shared_bytes_per_block: int = 0  #: 0 for the block's share of the multiprocessor's
    reserved_bytes: int = 6 << 10  #: bytes for each block of 256 threads besides the stage, for states and for the driver
    reach_share: float = 0.25  #: of the rows in shared memory, those behind the tile
    least_rows: int = 16  #: rows that shared memory holds, at least


@dataclass(frozen=True)
class BroadcastLongRuns(Policy):
    """``broadcast_long_runs``: the rows of runs that no block has as a whole."""

    threads_per_block: int = compiled(256, THREADS)
    grid_blocks_per_multiprocessor: int = 16  #: they walk the carries that there are, whose number the host does not know


@dataclass(frozen=True)
class Stage:
    """The rows that a block keeps: those of its tile, and up to ``reach`` behind it."""

    policy: BroadcastStaged
    tile: int
    reach: int
    row_bytes: int

    @classmethod
    def of(cls, policy: BroadcastStaged, row_bytes: int, target: Target) -> Stage:
        """For rows of ``row_bytes``, those of all operands together. Two bits for each row lie behind them."""
        total = _LARGE_SHARED if target.capability in _LARGE else _LEAST_SHARED
        blocks, reserved = policy.min_blocks_per_multiprocessor, policy.reserved_bytes * policy.threads_per_block // 256
        most = policy.shared_bytes_per_block or total // blocks - reserved
        held = 4 * (most - 16) // (4 * row_bytes + 1)
        tile = max(8, int(held * (1 - policy.reach_share)) // 8 * 8)
        return cls(policy, tile, max(0, held - tile) // 8 * 8, row_bytes)

    @property
    def rows(self) -> int:
        return self.tile + self.reach

    @property
    def shared_bytes(self) -> int:
        return self.rows * self.row_bytes + 8 * ceil_div(self.rows, 32)

    @property
    def fits(self) -> bool:
        return self.reach > 0 and self.rows >= self.policy.least_rows


def stage_of(target: Target, row_bytes: int, rows: int, segments: int) -> Stage | None:
    """The stage for ``rows`` of so many bytes in so many segments: long enough for twice the mean segment, or, where none is, for few rows again.

    More blocks overlap their copies with arithmetic; fewer hold longer segments. None where rows are too wide.
    """
    usual = BroadcastStaged()
    several = replace(usual, threads_per_block=512, min_blocks_per_multiprocessor=2, reach_share=0.5)
    alone = replace(several, threads_per_block=1024, min_blocks_per_multiprocessor=1, reach_share=0.65)
    # long segments leave two carries for each tile
    long = replace(several, reach_share=0.25)
    found = None
    for policy, share in ((usual, 2), (several, 2), (alone, 1), (long, 0)):
        stage = Stage.of(tuned(policy), row_bytes, target)
        if stage.fits and (found is None or share == 0):
            found = stage
        if stage.fits and rows * share <= stage.reach * segments:
            return stage
    return found
