"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.policy import tuned
from .policy import Block, CombinePartials, FoldColumns, FoldRows, FoldStagedRows

#: threads in a block whose groups are no wider than a warp, and in one that walks down columns
THREADS = Block.threads_per_block
#: elements that a lane takes from shared memory at a time
STAGED_STEPS = FoldStagedRows.items_per_thread


def steps_of(value: str, vector: int) -> int:
    """Accesses of so many elements whose loads a lane issues before it uses the first; a power of two."""
    return max(1, min(Block.max_items_per_thread, Block.bytes_in_flight // (vector * BY_NAME[value].itemsize)))


def row_lanes(accesses: int, steps: int, rows: int, multiprocessors: int) -> int:
    """Lanes that share out a row of so many accesses: some of a warp, or a block where a warp would take long and other warps have no rows."""
    policy = tuned(FoldRows())
    alone = accesses <= 32 * steps or (accesses <= policy.max_warp_vectors and rows >= policy.warp_rows_per_multiprocessor * multiprocessors)
    return min(32, power_of_two(accesses)) if alone else THREADS


def short_row(accesses: int, lanes: int, most: int) -> tuple[int, int]:
    """(accesses of a lane to each row, rows that its group takes at a time), up to ``most``; (0, 0) where a row takes more, or none.

    The rows are a power of two.
    """
    steps = ceil_div(accesses, lanes)
    return (steps, power_of_two(most // steps + 1) // 2) if 0 < steps <= most else (0, 0)


def few_rows(accesses: int, rows: int, steps: int) -> int:
    """Accesses of a lane to each row where a warp takes a whole row at once that a block would take otherwise; 0 where it does not.

    It does where all rows together are no more than a block has in flight.
    """
    own, most = ceil_div(accesses, 32), min(tuned(FoldRows()).few_rows_items * steps, Block.max_items_per_thread)
    return own if steps < own <= most and rows * accesses <= THREADS * steps else 0


def staged_lanes(row_bytes: int) -> int:
    """Lanes that share out a row of so many bytes from shared memory; 0 where a block would keep few rows."""
    lanes, policy = 1, tuned(FoldStagedRows())
    while THREADS // lanes * row_bytes > policy.shared_bytes_per_block:
        lanes *= 2
    return lanes if lanes <= THREADS // policy.min_rows_per_block else 0


def join_lanes(splits: int) -> int:
    """Lanes that share out the parts of a row."""
    policy = tuned(CombinePartials())
    return min(policy.max_group_threads, power_of_two(ceil_div(splits, policy.items_per_thread)))


def column_lanes(accesses: int, nbytes: int, extent: int, steps: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous and columns of ``extent`` places.

    At least as many as lie beside each other in the bytes of the policy; and so many that each lane has ``steps`` places.
    """
    lanes = min(max(32, tuned(FoldColumns()).contiguous_bytes // nbytes), power_of_two(accesses), THREADS)
    while lanes < THREADS and THREADS // lanes * steps > extent:
        lanes *= 2
    return lanes


def splits_for(policy: FoldRows | FoldColumns, blocks: int, extent: int, step: int, multiprocessors: int) -> tuple[int, int]:
    """(parts of each row, places of a part), a multiple of ``step``: enough for as many blocks as are wanted, as far as rows are long enough."""
    wanted_blocks = multiprocessors * policy.grid_blocks_per_multiprocessor
    wanted = ceil_div(wanted_blocks, max(blocks, 1))
    most = max(1, extent // (policy.min_split_batches * step))
    chunk = ceil_div(ceil_div(extent, min(wanted, most)), step) * step
    return (ceil_div(extent, chunk), chunk) if 0 < chunk < extent else (1, extent)
