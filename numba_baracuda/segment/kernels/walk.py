"""How a lane folds rows that lie in shared memory or in global memory, batch by batch."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, LOAD_SHARED, load_halves
from ...runtime import jit
from .sums import open_run_of


@functools.cache
def staged_loader(vector: int, apart: bool, shared: bool = True, loose: bool = False) -> Any:
    """``load(staged, at, distance, reach, batch, k)``: ``vector`` elements of ``shared`` memory, neighbours or ``distance`` elements ``apart``.

    If the last one is more than ``reach`` elements from the first one, the one at ``reach`` is loaded instead; no other may be. ``loose``:
    neighbours of 16 bits that are no vector; those behind the one at ``reach`` become any number. Memory that is not shared is global, and no thread
    may write it during the kernel.
    """
    load_vector = load_halves(vector) if loose else (LOAD_SHARED if shared else LOAD_ONCE)[1 if apart else vector]

    @jit.device
    def load(staged: Any, at: Any, distance: Any, reach: Any, batch: Any, k: Any) -> None:
        if loose:
            load_vector(staged, at, batch, k, reach + 1)
        elif apart:
            # of 64 bits, so that a constant distance is part of the instruction
            for v in range(vector - 1):
                load_vector(staged, int64(at) + v * distance, batch, k + v)
            load_vector(staged, int64(at) + min(int32((vector - 1) * distance), reach), batch, k + vector - 1)
        else:
            load_vector(staged, at, batch, k)

    return load


@functools.cache
def run_walker_of(
    monoid: str, value: str, vector: int, result: str, rows: int, operands: int = 1, apart: bool = False, shared: bool = True, loose: bool = False
) -> Any:  # fmt: skip
    """``walk(run, staged, other, at, other_at, distance, reach, row_step, left, here, level)`` makes a run of ``left`` rows.

    A row has ``vector`` elements from ``staged[at]`` on, and of two ``operands`` as many from ``other[other_at]`` on: neighbours, or ``distance``
    elements ``apart``, or ``loose``, the last at ``reach`` at most; see :func:`staged_loader`. Rows are ``row_step`` elements and 2^``level``
    positions apart, from position ``here`` on. A lane loads ``rows`` rows, a power of two, before it uses the first; where fewer are left, it loads
    the last one again. So it loads the first one even if none is left. Fewer are left in the first batch, so that lanes with runs of other lengths
    all have whole ones behind it; but in the last batch with sums about any pivot, since the more rows the first one has, the better a pivot is its
    mean.
    """
    open_run, paired = open_run_of(monoid, value, vector, result), operands > 1
    few_last = monoid_of(monoid).any_pivot
    recentre, begin_rows = open_run.recentre, open_run.begin_batch(rows, indexed=False)
    append_whole = open_run.append_batch(rows, indexed=False, settled=True)
    append_some = open_run.append_batch(rows - 1, indexed=False, counted=True, settled=True)
    load, element, whole, batch_size = staged_loader(vector, apart, shared, loose), jit.SCALARS[value], (1 << rows) - 1, rows * vector
    others_size = batch_size if paired else 1

    @jit.device
    def walk(
        run: Any, staged: Any, other: Any, at: Any, other_at: Any, distance: Any, reach: Any, row_step: Any, left: Any, here: Any, level: Any
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        others = cuda.local.array(others_size, element)
        indices = cuda.local.array(1, int64)
        position_step, length, begun = int32(1 << level), left, int32(rows)
        if not few_last:
            # 0 of no rows
            begun = int32((int32(left - 1) & (rows - 1)) + 1) if left > 0 else int32(0)
        for u in range(rows):
            ahead = int32(max(min(int32(u), int32((left if few_last else begun) - 1)), int32(0)) * row_step)
            load(staged, at + ahead, distance, reach, batch, u * vector)
            if paired:
                load(other, other_at + ahead, distance, reach, others, u * vector)
        begin_rows(run, batch, others, indices, here, position_step, left if few_last else begun)
        left, mark = int32(left - begun), int32(length - 8 * rows)
        at, other_at, here = int32(at + begun * row_step), int32(other_at + begun * row_step), here + begun * position_step
        while left > 0:
            if few_last and left < rows:
                for u in range(rows - 1):
                    ahead = int32(min(int32(u), int32(left - 1)) * row_step)
                    load(staged, at + ahead, distance, reach, batch, u * vector)
                    if paired:
                        load(other, other_at + ahead, distance, reach, others, u * vector)
                append_some(run, batch, others, indices, here, position_step, left, rows)
            else:
                for u in range(rows):
                    load(staged, at + u * row_step, distance, reach, batch, u * vector)
                    if paired:
                        load(other, other_at + u * row_step, distance, reach, others, u * vector)
                # each time that the number of rows has doubled
                if left == mark:
                    recentre(run, int32(length - left))
                    mark = int32(left + left - length)
                append_whole(run, batch, others, indices, here, position_step, whole, rows)
            at, other_at, here = int32(at + rows * row_step), int32(other_at + rows * row_step), here + rows * position_step
            left = int32(opaque(left - rows))

    return walk
