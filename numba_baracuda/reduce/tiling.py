"""How lanes share elements and rows: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from dataclasses import replace

from ..core.axes import busy_lanes, ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.policy import tuned
from ..core.sizes import greatest, least
from .policy import (
    Block,
    BroadcastColumns,
    CombinePartials,
    FoldAndBroadcastColumns,
    FoldAndBroadcastRows,
    FoldColumns,
    FoldLines,
    FoldRows,
    FoldStagedRows,
    SinglePass,
)

#: threads in a block whose groups are no wider than a warp, and in one that walks down columns
THREADS = Block.threads_per_block
#: elements that a lane takes from shared memory at a time
STAGED_STEPS = FoldStagedRows.items_per_thread
#: bytes of a copy to shared memory that nobody waits for
ASYNC_BYTES = 16


def steps_of(value: str, vector: int) -> int:
    """Vectors of ``vector`` elements whose loads a lane issues before it uses the first; a power of two."""
    return max(1, min(Block.max_items_per_thread, Block.bytes_in_flight // (vector * BY_NAME[value].itemsize)))


def row_lanes(vectors: int, steps: int, rows: int, multiprocessors: int, max_warp_vectors: int = 0) -> int:
    """Lanes that share a row of so many vectors: some of a warp, or a block where one warp would take long and there are few rows.

    ``max_warp_vectors``: as of ``FoldRows``, unless it is 0.
    """
    policy = tuned(FoldRows())
    most = max_warp_vectors or policy.max_warp_vectors
    alone = vectors <= 32 * steps or (vectors <= most and rows >= policy.warp_rows_per_multiprocessor * multiprocessors)
    return min(32, power_of_two(vectors)) if alone else THREADS


def short_row(vectors: int, lanes: int, most: int) -> tuple[int, int]:
    """(vectors of a row for each lane, rows that its group takes at a time), up to ``most`` vectors; (0, 0) where a row has more, or none.

    The rows are a power of two.
    """
    steps = ceil_div(vectors, lanes)
    return (steps, power_of_two(most // steps + 1) // 2) if 0 < steps <= most else (0, 0)


def even_steps(vectors: int, lanes: int, most: int) -> int:
    """Vectors, at most ``most``, that each of ``lanes`` lanes takes of a row at a time, in batches as even as possible; at least 1."""
    own = max(1, ceil_div(vectors, lanes))
    return ceil_div(own, ceil_div(own, most))


def busy_row_lanes(vectors: int, lanes: int, most: int) -> int:
    """Lanes, at most ``lanes``, that share a row so that the fewest vectors of a batch, of ``most`` a lane, are none of the row's."""
    least = tuned(FoldAndBroadcastRows()).min_group_threads
    narrower = [lanes >> k for k in range(lanes.bit_length()) if lanes >> k >= least and (lanes >> k) * most >= vectors]
    return min(narrower, key=lambda each: each * ceil_div(vectors, each), default=lanes)


def few_rows(vectors: int, rows: int, steps: int) -> int:
    """Vectors of a row for each lane where a warp takes a whole row at once that a block would take otherwise; 0 where it does not.

    A warp does where a block has all rows in flight together.
    """
    own, most = ceil_div(vectors, 32), min(tuned(FoldRows()).few_rows_items * steps, Block.max_items_per_thread)
    return own if steps < own <= most and rows * vectors <= THREADS * steps else 0


def staged_lanes(row_bytes: int) -> int:
    """Lanes that share a row of so many bytes in shared memory; 0 where a block would have few rows there."""
    lanes, policy = 1, tuned(FoldStagedRows())
    while THREADS // lanes * row_bytes > policy.shared_bytes_per_block:
        lanes *= 2
    return lanes if lanes <= THREADS // policy.min_rows_per_block else 0


def staged_height(row_bytes: int, lanes: int, max_rows_per_group: int) -> int:
    """Rows of so many bytes that each group of ``lanes`` lanes takes from shared memory; a power of two."""
    height, policy = 1, tuned(FoldStagedRows())
    while height < max_rows_per_group and THREADS // lanes * height * row_bytes < policy.min_bytes_per_block:
        height *= 2
    return height


def staged_column_block(extent: int, inner: int, size: int) -> tuple[int, int]:
    """(lanes that share a column, columns that each group of lanes takes) for ``inner`` neighbouring columns in shared memory.

    (0, 0) where the columns of a block do not fit there. ``extent``: elements of a column; ``size``: bytes of one.
    """
    policy = tuned(FoldStagedRows())
    most, lanes = policy.shared_bytes_per_block // (extent * inner * size), 1
    while lanes < policy.max_column_lanes and THREADS // lanes // inner > most:
        lanes *= 2
    groups, height = THREADS // lanes, ceil_div(inner, THREADS // lanes)
    if groups * height // inner > most:
        return 0, 0
    while height < policy.max_rows_per_group and groups * height * extent * size < policy.min_bytes_per_block:
        height *= 2
    return lanes, height


def alternates(extent: int, inner: int, size: int) -> bool:
    """Whether groups fold long lines of ``inner`` neighbouring columns: few enough for a vector to have several positions of them."""
    few = 1 < inner * size < tuned(Block()).vector_bytes and inner == power_of_two(inner) > 1
    return few and extent * inner * size >= tuned(FoldLines()).min_line_bytes


def stages_columns(extent: int, inner: int, columns: int, size: int, vector: int) -> bool:
    """Whether blocks copy such columns to shared memory: few neighbouring ones, of which a position is no whole vectors, or is loaded by narrow ones.

    ``vector``: elements of such a load.
    """
    policy, wanted = tuned(FoldStagedRows()), tuned(Block()).vector_bytes
    narrow = inner * size % wanted > 0 or (vector * size < wanted and inner * size <= policy.max_narrow_line_bytes)
    few = inner > 1 and inner * size < policy.max_line_bytes and narrow
    large = columns * extent * size >= policy.min_column_bytes
    return few and large and extent > 1 and not alternates(extent, inner, size) and staged_column_block(extent, inner, size)[0] > 0


def combine_lanes(splits: int) -> int:
    """Lanes that share the partials of a row."""
    policy = tuned(CombinePartials())
    if splits > policy.max_group_splits:
        return THREADS
    return min(policy.max_group_threads, power_of_two(ceil_div(splits, policy.items_per_thread)))


def splits_in_flight(scalars: int) -> int:
    """Splits that a lane of the last block loads at a time, so many scalars of each."""
    return max(1, SinglePass.items_per_thread // scalars)


def narrow_lanes(lanes: int, vectors: int, extent: int, steps: int, columns: int, multiprocessors: int) -> int:
    """``lanes`` across columns of ``extent`` elements, or more where lines have few ``vectors``, so that each has several batches of a column.

    ``columns``: vectors of all columns, which leave blocks for all multiprocessors.
    """
    policy = tuned(FoldColumns())
    most = columns // (policy.grid_blocks_per_multiprocessor * multiprocessors)
    while vectors < policy.narrow_vectors and lanes < THREADS and 2 * lanes <= most and THREADS // lanes * steps * policy.narrow_batches > extent:
        lanes *= 2
    return lanes


def column_lanes(vectors: int, nbytes: int, extent: int, steps: int, policy: FoldColumns | BroadcastColumns | FoldAndBroadcastColumns) -> int:
    """Adjacent lanes for rows of ``vectors`` contiguous vectors of ``nbytes``, and columns of ``extent`` elements.

    They cover the policy's ``contiguous_bytes``, or fewer where more than its ``max_idle_percent`` of all lanes would have no column. They are so
    many that each lane has ``steps`` elements of a column.
    """
    lanes = min(max(32, policy.contiguous_bytes // nbytes), power_of_two(vectors), THREADS)
    lanes = busy_lanes(vectors, lanes, 32, policy.max_idle_percent)
    while lanes < THREADS and THREADS // lanes * steps > extent:
        lanes *= 2
    return lanes


def held_column_block(vectors: int, vector: int, extent: int, size: int) -> tuple[int, int]:
    """(adjacent lanes, vectors of a lane) for columns that the lanes below each other hold together, of lines of ``vectors`` vectors.

    As few lanes below each other as hold the columns: a whole block across long lines, or at least the policy's contiguous bytes; (0, 0) where these
    are too few. Where several share a column, a lane may have fewer vectors than these, so that there are few kernels.
    """
    policy, nbytes = tuned(FoldAndBroadcastColumns()), vector * size
    wanted = max(1, policy.max_held_bytes // (2 * nbytes))
    lanes = THREADS if vectors >= 4 * THREADS else column_lanes(vectors, nbytes, extent, wanted, policy)

    def held(lanes: int) -> int:
        own = ceil_div(extent, THREADS // lanes)
        step = 1 if lanes == THREADS else 2 if own <= Block.max_items_per_thread else 4
        steps = ceil_div(own, step) * step
        return steps if steps * nbytes <= policy.max_held_bytes and steps * vector <= policy.max_held_elements else 0

    while lanes * nbytes > policy.min_held_bytes and not held(lanes):
        lanes //= 2
    wide = lanes * nbytes >= policy.min_held_bytes
    return (lanes, held(lanes)) if wide and lanes * extent >= THREADS and held(lanes) else (0, 0)


def sure_steps(steps: int, lanes: int) -> int:
    """Of ``steps`` vectors that :func:`held_column_block` gives a lane, those that each lane has."""
    return steps if lanes == THREADS else max(1, steps - (2 if steps <= Block.max_items_per_thread else 4))


def column_steps(extent: int, depth: int, most: int, short_extent: int) -> int:
    """Vectors, at most ``most``, that each of ``depth`` lanes loads of a column of ``extent`` elements before it uses the first.

    A lane that has a column of at most ``short_extent`` alone takes batches as even as possible: only full ones go without bounds.
    """
    if depth == 1 and 0 < extent <= short_extent:
        return ceil_div(extent, ceil_div(extent, most))
    return min(most, power_of_two(max(1, ceil_div(extent, depth))))


def splits_for(policy: FoldRows | FoldColumns, blocks: int, extent: int, step: int, multiprocessors: int, at_most: bool = False) -> tuple[int, int]:
    """(splits of each row, elements of a split), a multiple of ``step``: enough for the policy's grid, as far as rows are long enough.

    ``at_most``: of several splits, as many as the policy's grid has at most, half of which are resident; blocks of which up to a third would be left
    for a second wave are halved.
    """
    wanted_blocks = multiprocessors * policy.grid_blocks_per_multiprocessor
    wanted = max(1, wanted_blocks // max(blocks, 1)) if at_most else ceil_div(wanted_blocks, max(blocks, 1))
    if at_most and wanted_blocks // 2 < blocks <= 3 * wanted_blocks // 4:
        wanted = 2
    most = greatest(1, extent // (policy.min_split_batches * step))
    chunk = ceil_div(ceil_div(extent, least(wanted, most)), step) * step
    return (ceil_div(extent, chunk), chunk) if 0 < chunk < extent else (1, extent)


def even_splits(blocks: int, extent: int, step: int, multiprocessors: int, state_elements: float) -> tuple[int, int]:
    """``splits_for`` columns with so many blocks that all multiprocessors finish together, as far as their states are few bytes of all.

    ``state_elements``: bytes of a state to those of an element.
    """
    policy = tuned(FoldColumns())
    batches = max(policy.min_split_batches, int(policy.min_state_share * state_elements) // step)
    many = replace(policy, grid_blocks_per_multiprocessor=policy.even_blocks_per_multiprocessor, min_split_batches=batches)
    return splits_for(many, blocks, extent, step, multiprocessors)
