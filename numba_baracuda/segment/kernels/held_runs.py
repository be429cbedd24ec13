"""How lanes fold a run and store what becomes of it, and how a block stores the rows of runs that it holds."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, LOAD_SHARED, STORE_STREAM
from ...kernels.batch import state_accessors
from ...kernels.elements import accumulator_type
from ...runtime import jit
from .columns import FAR
from .common import half_row_of
from .in_place import pivot_folder_of
from .states import run_states_of
from .sums import open_run_of
from .vjp import vjp_parts_of
from .walk import run_walker_of

#: the run of a row whose id is out of range
NO_RUN = 0xFFFF


@functools.cache
def run_folder_of(gradient: str, value: str, vector: int, rows: int, shared: bool, about_pivots: bool = False, spread: bool = False) -> Any:
    """``fold_run(x, w, at, w_at, apart, row_size, share, level, length, here, segment, g, y, place, correction, given)``.

    Folds ``vector`` columns of a run of ``length`` rows, from ``x[at]`` and ``w[w_at]`` on, both in ``shared`` or in global memory, and sets
    ``given[4 · v]`` and the three behind it to what elements of column v are given; or does not, if the ``segment`` is out of range, which is −1.
    2^``level`` neighbouring lanes share the rows, of which this one has every 2^``level``-th, from number ``share`` on. All lanes of the warp call
    it, those without a run with a ``length`` of 0. A lane loads ``rows`` rows before it uses the first. The first row is at position ``here``; what
    its segment has begins at ``g[place]`` and ``y[place]``. ``about_pivots``: rows of shared memory are walked twice, see
    :func:`~.in_place.pivot_folder_of`, of columns that are ``apart`` where they are ``spread``.
    """
    element, wide, grad, state = jit.SCALARS[value], accumulator_type(value), GRADIENTS[gradient], BY_NAME[value].accumulator
    fold, open_run = run_states_of(grad.fold, value, vector, state), open_run_of(grad.fold, value, vector, state)
    walk = run_walker_of(grad.fold, value, vector, state, rows, len(grad.over), shared=shared)
    fold_about_pivots: Any = pivot_folder_of(grad.fold, value, vector, rows, spread, grad.from_terms) if about_pivots else None
    begin_run, close_shared, finish_states = open_run.begin, open_run.close_shared, fold.finish_states
    run_scalars, scalars, results, results_size = open_run.scalars, fold.scalars, grad.results, vector * grad.results
    prepare, put = vjp_parts_of(gradient, value).prepare, state_accessors(4)[1]
    has_g, has_y, swapped = len(grad.segments) > 0, len(grad.segments) > 1, grad.over[0] != grad.rows[0]

    @jit.device
    def fold_run(
        x: Any, w: Any, at: Any, w_at: Any, apart: Any, row_size: Any, share: Any, level: Any, length: Any, here: Any, segment: Any,
        g: Any, y: Any, place: Any, correction: Any, given: Any,
    ) -> None:  # fmt: skip
        run, states = cuda.local.array(run_scalars, wide), cuda.local.array(scalars, wide)
        folded, some_g, some_y = cuda.local.array(results_size, wide), cuda.local.array(vector, element), cuda.local.array(vector, element)
        shares = int32(1 << level)
        left, row_step = int32(uint32(length + shares - 1 - share) >> uint32(level)), int32(row_size << level)
        if has_g and segment >= 0:
            for v in range(vector):
                some_g[v] = g[place + v]
                if has_y:
                    some_y[v] = y[place + v]
        at, w_at = int32(at + share * row_size), int32(w_at + share * row_size)
        if about_pivots:
            fold_about_pivots(x, at, apart, row_step, left, level, states)
        else:
            begin_run(run, here)
            if left > 0:
                if swapped:
                    walk(run, w, x, w_at, at, 0, FAR, row_step, left, here + share, level)
                else:
                    walk(run, x, w, at, w_at, 0, FAR, row_step, left, here + share, level)
            close_shared(run, share, shares, left, length, states)
        finish_states(states, length, correction, folded)
        if level > 0 and not about_pivots:
            for k in range(results_size):
                folded[k] = cuda.shfl_sync(-1, folded[k], int32(cuda.laneid) - share)
        # whatever the segment, where that costs no load: what was given before need not be kept
        if not has_g or segment >= 0:
            for v in range(vector):
                q = folded[v * results + 1] if results > 1 else wide(0)
                put(given, 4 * v, 1, prepare(some_g, some_y, v, folded[v * results], q))

    return fold_run


@functools.cache
def far_storer_of(gradient: str, value: str, vector: int, rows: int) -> Any:
    """``store_far(x, w, output, at, row_step, left, known, given)``: ``left`` rows of a lane, ``row_step`` elements apart, in global memory.

    Columns and ``given`` as in :func:`run_folder_of`. Stores zeros unless the segment is ``known``.
    """
    element, grad, apply, get = jit.SCALARS[value], GRADIENTS[gradient], vjp_parts_of(gradient, value).apply, state_accessors(4)[0]
    load, store, has_w, size = LOAD_ONCE[vector], STORE_STREAM[vector], len(grad.rows) > 1, rows * vector

    @jit.device
    def store_far(x: Any, w: Any, output: Any, at: Any, row_step: Any, left: Any, known: Any, given: Any) -> None:
        batch, others = cuda.local.array(size, element), cuda.local.array(size, element)
        while left > 0:
            for u in range(rows):
                ahead = int32(min(int32(u), int32(left - 1)) * row_step)
                load(x, at + ahead, batch, u * vector)
                if has_w:
                    load(w, at + ahead, others, u * vector)
            for u in range(rows):
                if u < left:
                    for v in range(vector):
                        k = u * vector + v
                        batch[k] = apply(batch, others, k, int64(0), get(given, 4 * v, 1)) if known else element(0)
                    store(output, int32(at + u * row_step), batch, u * vector)
            at, left = int32(at + rows * row_step), int32(opaque(left - rows))

    return store_far


@functools.cache
def held_given_of(gradient: str, value: str, vector: int, unit: int, threads: int) -> tuple[Any, Any]:
    """``keep(held, at, step, given)`` and ``store_held(staged, at, w_at, held, held_at, step, runs, pitch, reciprocal, count, output, base,
    thread)``.

    The first puts what the elements of a lane's columns are given into shared memory: number k of what is used from ``held[at + k · step]`` on.
    With the second a block of ``threads`` stores what becomes of ``count`` elements from ``staged[at]`` and ``staged[w_at]`` on, from
    ``output[base]`` on, ``unit`` at a time, which are elements of one row. ``runs`` has the number of the run of each row of ``pitch`` elements, or
    ``NO_RUN``, whose elements are zeros; ``reciprocal``: :func:`~..tiling.half_reciprocal_of` them.
    """
    element, wide, apply, has_w = jit.SCALARS[value], accumulator_type(value), vjp_parts_of(gradient, value).apply, len(GRADIENTS[gradient].rows) > 1
    used, width = GRADIENTS[gradient].given, min(unit, 128 // accumulator_type(value).bitwidth)
    count_used, size, get = len(used), 4 * unit, state_accessors(4)[0]
    load, load_given, store = LOAD_SHARED[unit], LOAD_SHARED[width], STORE_STREAM[unit]
    place_of = (*used, *[0] * (4 - len(used)))

    @jit.device
    def keep(held: Any, at: Any, step: Any, given: Any) -> None:
        for k in range(count_used):
            for v in range(vector):
                held[uint32(at + k * step + v)] = given[4 * v + place_of[k]]

    @jit.device
    def store_held(
        staged: Any, at: Any, w_at: Any, held: Any, held_at: Any, step: Any, runs: Any, pitch: Any, reciprocal: Any, count: Any, output: Any,
        base: Any, thread: Any,
    ) -> None:  # fmt: skip
        batch, others, given = cuda.local.array(unit, element), cuda.local.array(unit, element), cuda.local.array(size, wide)
        k = int32(thread * unit)
        for each in range(size):
            given[each] = wide(0)
        while k < count:
            row = half_row_of(k, reciprocal)
            run = int32(runs[uint32(row)])
            load(staged, at + k, batch, 0)
            if has_w:
                load(staged, w_at + k, others, 0)
            if run != NO_RUN:
                place = int32(held_at + int32(run - row) * pitch + k)
                for each in range(count_used):
                    for v in range(0, unit, width):
                        load_given(held, place + each * step + v, given, place_of[each] * unit + v)
                for v in range(unit):
                    batch[v] = apply(batch, others, v, int64(0), get(given, v, unit))
            else:
                for v in range(unit):
                    batch[v] = element(0)
            store(output, base + k, batch, 0)
            k = int32(opaque(k + threads * unit))

    return keep, store_held
