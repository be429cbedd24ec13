"""How blocks share a problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.policy import tuned
from .policy import (
    Block,
    BroadcastColumns,
    BroadcastRows,
    FoldAndBroadcastColumns,
    FoldAndBroadcastRows,
    FoldColumns,
    FoldLines,
    FoldRows,
    SinglePass,
)
from .problem import Problem
from .tiling import (
    THREADS,
    alternates,
    busy_row_lanes,
    column_lanes,
    column_steps,
    even_splits,
    even_steps,
    few_rows,
    held_column_block,
    narrow_lanes,
    row_lanes,
    short_row,
    splits_for,
    steps_of,
)


@dataclass(frozen=True)
class Geometry:
    """``blocks`` for all rows, times ``splits`` of about ``chunk`` elements; ``lanes`` share a row, or take adjacent columns."""

    lanes: int
    blocks: int
    splits: int
    chunk: int
    steps: int = 0  #: vectors of a short row, or of a gradient's row, that a lane loads; of columns, those that it loads before it uses the first
    height: int = 0  #: short rows at a time
    held: bool = False  #: whether lanes hold all elements of their columns
    inner: int = 0  #: neighbouring columns of a line that lanes share

    @classmethod
    def of(
        cls, problem: Problem, multiprocessors: int, value: str, commutes: bool = True, at_most: bool = False, state_bytes: int = 0
    ) -> Geometry:  # fmt: skip
        """For a fold: rows that belong to a warp stay whole, others are split if there are few.

        Where elements are folded in order a row belongs to whole warps, unless each lane has one vector of it. ``at_most``: columns are split to
        no more blocks than the policy wants, which are resident in whole waves. ``state_bytes``: those of the state of a column.
        """
        columns, size = tuned(FoldColumns()), BY_NAME[value].itemsize
        lanes, blocks, step, steps = _block_shape(problem, multiprocessors, value, columns)
        if not problem.row_contiguous:
            splits, line = splits_for(columns, blocks, problem.extent, step, multiprocessors, at_most), (problem.kept_shape or (1,))[-1] * size
            if splits[0] > 1 and not at_most and line < columns.even_line_bytes:
                splits = max(splits, even_splits(blocks, problem.extent, step, multiprocessors, state_bytes / size))
            return cls(lanes, blocks, *splits, steps)
        if lanes == THREADS:
            policy = tuned(FoldRows())
            if problem.rows == 1 and problem.extent * size <= policy.max_single_row_bytes:
                policy = replace(policy, grid_blocks_per_multiprocessor=policy.single_row_blocks)
            return cls(lanes, blocks, *splits_for(policy, blocks, problem.extent, step, multiprocessors))
        vectors = ceil_div(problem.extent, problem.vector)
        short = (0, 0) if problem.peeled else short_row(vectors, lanes, steps_of(value, problem.vector))
        if commutes or short[0] == 1:
            return cls(lanes, blocks, 1, problem.extent, *short)
        return cls(32, ceil_div(problem.rows, THREADS // 32), 1, problem.extent)

    @classmethod
    def of_lines(cls, problem: Problem, multiprocessors: int, value: str) -> Geometry | None:
        """For a fold of columns of which a vector has several positions; None for others, short and few ones."""
        size, inner = BY_NAME[value].itemsize, problem.kept_shape[-1] if problem.kept_shape else 1
        if problem.row_contiguous or problem.staged or problem.ragged or problem.full_reduced[0] != (inner,) or problem.full_kept[0][-1] != 1:
            return None
        if not alternates(problem.extent, inner, size) or problem.rows * problem.extent * size < tuned(FoldLines()).min_bytes:
            return None
        line = replace(problem, kept_shape=problem.kept_shape[:-1], shape=(problem.extent * inner,), row_contiguous=True, peeled=True)
        line = replace(line, vector=tuned(Block()).vector_bytes // size)
        vectors, steps, most = ceil_div(line.extent, line.vector), steps_of(value, line.vector), tuned(FoldLines()).max_warp_vectors * inner
        lanes = max(32, row_lanes(vectors, steps, line.rows, multiprocessors, most))
        own = cls.of(line, multiprocessors, value) if lanes == THREADS else cls(lanes, ceil_div(line.rows, THREADS // lanes), 1, line.extent)
        return replace(own, inner=inner)

    @classmethod
    def of_few(cls, problem: Problem, value: str) -> Geometry | None:
        """For a fold of so few short rows that there is little to read, a warp each; None for others."""
        if not problem.row_contiguous or problem.peeled:
            return None
        steps = few_rows(ceil_div(problem.extent, problem.vector), problem.rows, steps_of(value, problem.vector))
        return cls(32, 1, 1, problem.extent, steps, 1) if steps else None

    def single_pass(self, problem: Problem, multiprocessors: int, value: str, scalars: int) -> Geometry | None:
        """With fewer splits, which the last block of each row combines; None where a second launch is as fast. ``scalars`` are those of a state."""
        policy, own = tuned(SinglePass()), tuned(FoldRows()) if problem.row_contiguous else tuned(FoldColumns())
        if self.splits == 1 or problem.rows * problem.extent * BY_NAME[value].itemsize > policy.max_bytes:
            return None
        few = replace(own, grid_blocks_per_multiprocessor=min(policy.grid_blocks_per_multiprocessor, own.grid_blocks_per_multiprocessor))
        step = _block_shape(problem, multiprocessors, value, tuned(FoldColumns()))[2]
        splits, chunk = splits_for(few, self.blocks, problem.extent, step, multiprocessors)
        made = replace(self, splits=splits, chunk=chunk)
        return made if splits > 1 and splits * made.states(problem) * scalars <= policy.max_scalars else None

    @classmethod
    def of_fused(cls, problem: Problem, multiprocessors: int, value: str, holds: bool) -> Geometry:
        """For a gradient that folds its rows itself: fewer lanes share a row, since they exchange states that are wide.

        ``holds``: a warp or a block may hold a long row.
        """
        own, policy = cls.of(problem, multiprocessors, value), tuned(FoldAndBroadcastRows())
        if not problem.row_contiguous:
            return own
        vectors, most, lanes = ceil_div(problem.extent, problem.vector), steps_of(value, problem.vector), own.lanes
        size = BY_NAME[value].itemsize
        if lanes < THREADS and problem.rows * problem.extent * size >= policy.min_bytes:
            lanes = min(lanes, max(policy.min_group_threads, power_of_two(ceil_div(vectors, policy.items_per_thread))))
        held = _held(problem, size, own.lanes, lanes) if holds and own.splits == 1 else None
        if held:
            width, each = held
            return cls(width, ceil_div(problem.rows, THREADS // width), 1, problem.extent, each, held=True)
        return replace(own, lanes=lanes, blocks=ceil_div(problem.rows, THREADS // lanes), steps=most)

    @classmethod
    def of_fused_columns(cls, problem: Problem, multiprocessors: int, value: str, holds: bool, guarded: bool) -> Geometry | None:
        """For a gradient of short columns that blocks fold themselves; None where columns are too long for the caches, or few.

        ``holds``: lanes may hold their elements; ``guarded``: few columns need their fold.
        """
        policy, size, shared = tuned(FoldAndBroadcastColumns()), BY_NAME[value].itemsize, (0, 0)
        nbytes = problem.vector * problem.extent * size
        held = holds and problem.extent <= steps_of(value, problem.vector)
        lanes, steps, narrow = THREADS, problem.extent, policy
        # slices of narrow lines across one axis are short pieces of memory, which caches hold
        short = len(problem.shape) == 1 and size >= 4 and problem.adjacent_vectors * problem.vector * size < policy.min_line_bytes
        if holds and not held and not short:
            shared = held_column_block(problem.adjacent_vectors, problem.vector, problem.extent, size)
        if shared[0]:
            (lanes, steps), held = shared, True
        if not held:
            lanes, _, _, steps = _block_shape(problem, multiprocessors, value, policy)
            while lanes * nbytes > policy.wide_block_bytes and narrow.contiguous_bytes > policy.min_contiguous_bytes:
                narrow = replace(narrow, contiguous_bytes=narrow.contiguous_bytes // 2)
                lanes, _, _, steps = _block_shape(problem, multiprocessors, value, narrow)
        blocks = ceil_div(problem.rows, lanes * problem.vector)
        long = problem.extent > policy.max_guarded_extent if guarded else lanes * nbytes > policy.max_block_bytes
        if long or blocks < policy.grid_blocks_per_multiprocessor * multiprocessors:
            return None
        return cls(lanes, blocks, 1, problem.extent, steps, held=held)

    def states(self, problem: Problem) -> int:
        """States that a block of a split fold has in the end."""
        return 1 if problem.row_contiguous else self.lanes * problem.vector

    @classmethod
    def of_gradient(cls, problem: Problem, multiprocessors: int, value: str, divides: bool = False, quick: bool = False) -> Geometry:
        """For a gradient, which folds nothing: small splits, so that loads and stores overlap.

        ``divides``: instructions take longer than the memory, and those for vectors that are none of a row's most of all. ``quick``: the terms of a
        column are soon loaded, beside its elements.
        """
        lanes, blocks, step, steps = _block_shape(problem, multiprocessors, value, tuned(BroadcastColumns()))
        if divides and problem.row_contiguous and lanes < THREADS and not problem.peeled:
            vectors = ceil_div(problem.extent, problem.vector)
            lanes = busy_row_lanes(vectors, lanes, steps)
            steps = even_steps(vectors, lanes, steps)
            blocks, step = ceil_div(problem.rows, THREADS // lanes), lanes * steps * problem.vector
        columns = tuned(BroadcastColumns())
        batches = tuned(BroadcastRows()).batches_per_thread if problem.row_contiguous else columns.batches_per_thread
        if quick and not problem.row_contiguous and problem.vector <= columns.quick_columns:
            batches = 1
        chunk = step * batches
        return cls(lanes, blocks, ceil_div(problem.extent, chunk), chunk, steps)

    @property
    def launch(self) -> tuple[int, int, int]:
        return self.blocks * self.splits, THREADS, 0


def _held(problem: Problem, size: int, lanes: int, least: int) -> tuple[int, int] | None:
    """(lanes that hold a row, vectors of each of its lines that a lane has); None where they do not.

    ``lanes`` would fold it, and ``least`` read it twice.
    """
    policy, (*outer, line), wide = tuned(FoldAndBroadcastRows()), problem.shape, tuned(Block()).vector_bytes
    vectors, vector_bytes, lines, alone = ceil_div(line, problem.vector), problem.vector * size, math.prod(outer), lanes < THREADS

    def fits(width: int) -> bool:
        each = ceil_div(vectors, width)
        held, slots, uneven = lines * each, each * width, bool(outer) or problem.peeled
        if uneven and held * problem.vector > policy.max_uneven_elements:
            return False
        if width == THREADS:
            return held * vector_bytes <= policy.max_block_held_bytes and not (alone and held < policy.min_block_items)
        if outer and 100 * (slots - vectors) > policy.max_idle_percent * slots:
            return False
        return held * max(vector_bytes, 4) <= (policy.max_uneven_bytes if uneven else policy.max_held_bytes)

    if outer:
        apart = len(outer) == 1 and all(strides[-1] == 1 for strides in problem.full_reduced)
        widths = [lanes >> k for k in range(lanes.bit_length())] if apart and alone else []
    else:
        short = problem.extent * size <= policy.max_read_bytes or vector_bytes < wide
        widths = [] if short else [least, THREADS] if alone else [THREADS]
    return next(((width, ceil_div(vectors, width)) for width in widths if fits(width)), None)


def _block_shape(
    problem: Problem, multiprocessors: int, value: str, policy: FoldColumns | BroadcastColumns | FoldAndBroadcastColumns
) -> tuple[int, int, int, int]:
    """(lanes, blocks for all rows, elements of a row that a block takes at a time, vectors that a lane does)."""
    vector, steps = problem.vector, steps_of(value, problem.vector)
    if problem.row_contiguous:
        lanes = row_lanes(ceil_div(problem.extent, vector), steps, problem.rows, multiprocessors)
        return lanes, ceil_div(problem.rows, THREADS // lanes), lanes * steps * vector, steps
    lanes = column_lanes(problem.adjacent_vectors, vector * BY_NAME[value].itemsize, problem.extent, steps, policy)
    if isinstance(policy, FoldColumns):
        lanes = narrow_lanes(lanes, problem.adjacent_vectors, problem.extent, steps, problem.rows // vector, multiprocessors)
    many = tuned(FoldColumns()).grid_blocks_per_multiprocessor * multiprocessors * THREADS * vector
    walks, wide = len(problem.shape) > 1, problem.adjacent_vectors >= THREADS
    if problem.rows >= many and ((wide and problem.extent <= policy.short_extent) or (walks and problem.extent <= policy.short_walk)):
        lanes = THREADS
    columns = problem.rows + (vector - 1) * problem.peeled  #: the first vector may begin before the first column
    steps = column_steps(problem.extent, THREADS // lanes, steps, policy.short_extent)
    return lanes, ceil_div(columns, lanes * vector), THREADS // lanes * steps, steps
