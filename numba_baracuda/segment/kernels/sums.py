"""The run that a lane is folding row by row as sums about pivots, which take no division for each element, and which kind of run a monoid has."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import float32, int32

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.numbers import reciprocal_approx
from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from .first_extremes import FirstExtremeRun
from .open_run import OpenRun, insider_of
from .states import RunStates, run_states_of


class ChosenPivotRun(OpenRun):
    """A run as states (pivot, sum about it), whose pivot the elements choose: a batch chooses one, and is then added up."""

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        super().__init__(states, monoid, value, vector)
        self._typed, self._kind, self._widen = typed_monoid(monoid, value), accumulator_type(value), conversions_of(value)[0]

    def append_batch(self, rows: int, indexed: bool, counted: bool = False, settled: bool = False) -> Any:
        typed, kind, widen, vector, is_inside = self._typed, self._kind, self._widen, self.vector, insider_of(counted)
        terms, rebase, choose = jit.device(typed.pivot_terms), jit.device(typed.rebase), jit.device(typed.choose_pivot)
        get, put = state_accessors(2)

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any, before: Any) -> None:
            for v in range(vector):
                old, total = get(run, 2 * v, 1)
                pivot = old
                for u in range(rows):
                    if is_inside(inside, u):
                        pivot = choose(pivot, widen(elements[u * vector + v]))
                total, _ = rebase(total, kind(0), kind(before), old, pivot, kind(1))
                for u in range(rows):
                    if is_inside(inside, u):
                        term, _ = terms(widen(elements[u * vector + v]), pivot, kind(1))
                        total += term
                put(run, 2 * v, 1, (pivot, total))

        return append


class PivotedRun(OpenRun):
    """A run as (pivot, first sum, second sum) of each column: the pivot is the mean of the rows so far, at least of those of the first batches.

    About the first element alone, which may lie far from all others, sums of few rows would lose four times as many digits.
    """

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        super().__init__(states, monoid, value, vector)
        typed, kind = typed_monoid(monoid, value), accumulator_type(value)
        terms, rebase, pivot_state = jit.device(typed.pivot_terms), jit.device(typed.rebase), jit.device(typed.pivot_state)
        widen, width = conversions_of(value)[0], typed.width
        (get, put), (_, put_state), scalars = state_accessors(3), state_accessors(width), 3 * vector

        @jit.device
        def begin(run: Any, position: Any) -> None:
            for k in range(scalars):
                run[k] = kind(0)

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, at: Any, position: Any, before: Any) -> None:
            for v in range(vector):
                x, (pivot, first, second) = widen(elements[at + v]), get(run, 3 * v, 1)
                if before == 0:
                    pivot = x
                if before == 1:
                    middle = pivot + (x - pivot) * kind(0.5)
                    first, second = terms(pivot, middle, kind(1))
                    pivot = middle
                one_term, other_term = terms(x, pivot, kind(1))
                put(run, 3 * v, 1, (pivot, first + one_term, second + other_term))

        @jit.device
        def recentre(run: Any, count: Any) -> None:
            share = kind(1) / kind(count)
            for v in range(vector):
                old, first, second = get(run, 3 * v, 1)
                pivot = old + first * share
                first, second = rebase(first, second, kind(count), old, pivot, kind(1))
                put(run, 3 * v, 1, (pivot, first, second))

        @jit.device
        def close(run: Any, count: Any, states: Any) -> None:
            # the sums of no rows, and their pivot, are 0; the first scalar of a state is its count
            for v in range(vector):
                pivot, first, second = get(run, 3 * v, 1)
                put_state(states, v * width, 1, pivot_state(pivot, first, second, kind(max(count, int32(1))), kind(1)))
                states[v * width] = kind(count)

        @jit.device
        def close_shared(run: Any, share: Any, shares: Any, own: Any, count: Any, states: Any) -> None:
            if shares > 1:
                for v in range(vector):
                    old, first, second = get(run, 3 * v, 1)
                    pivot = cuda.shfl_sync(-1, old, int32(cuda.laneid) - share)
                    if own > 0:
                        first, second = rebase(first, second, kind(own), old, pivot, kind(1))
                    put(run, 3 * v, 1, (pivot, first, second))
            distance = int32(1)
            while distance < shares:
                for v in range(vector):
                    pivot, first, second = get(run, 3 * v, 1)
                    first += cuda.shfl_down_sync(-1, first, distance)
                    second += cuda.shfl_down_sync(-1, second, distance)
                    put(run, 3 * v, 1, (pivot, first, second))
                distance = int32(opaque(distance + distance))
            close(run, count, states)

        @jit.device
        def resume(run: Any, earlier: Any) -> None:
            pass

        self.scalars, self.begin = scalars, begin
        self.append, self.recentre, self.close, self.close_shared = append, recentre, close, close_shared
        self.resume, self.join = resume, states.combine_left
        self._kind, self._widen, self._terms, self._rebase = kind, widen, terms, rebase

    def append_batch(self, rows: int, indexed: bool, counted: bool = False, settled: bool = False) -> Any:
        kind, widen, terms, rebase, vector, is_inside = self._kind, self._widen, self._terms, self._rebase, self.vector, insider_of(counted)
        get, put = state_accessors(3)

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any, before: Any) -> None:
            if not settled and before < rows:
                share = kind(1) / kind(before + cuda.popc(int32(inside)))
                for v in range(vector):
                    old, one_sum, other_sum = get(run, 3 * v, 1)
                    pivot = old + one_sum * share
                    for u in range(rows):
                        if is_inside(inside, u):
                            pivot += (widen(elements[u * vector + v]) - old) * share
                    one_sum, other_sum = rebase(one_sum, other_sum, kind(before), old, pivot, kind(1))
                    put(run, 3 * v, 1, (pivot, one_sum, other_sum))
            for v in range(vector):
                pivot, one_sum, other_sum = get(run, 3 * v, 1)
                for u in range(rows):
                    if is_inside(inside, u):
                        one_term, other_term = terms(widen(elements[u * vector + v]), pivot, kind(1))
                        one_sum += one_term
                        other_sum += other_term
                put(run, 3 * v, 1, (pivot, one_sum, other_sum))

        return append

    def begin_batch(self, rows: int, indexed: bool) -> Any:
        kind, widen, vector, append = self._kind, self._widen, self.vector, self.append_batch(rows, indexed, counted=True, settled=True)
        inverse = reciprocal_approx if kind == float32 else jit.device(lambda x: kind(1) / x)

        @jit.device
        def begin(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any) -> None:
            # any pivot near the mean will do, and of equal elements it is one of them
            share = inverse(kind(max(min(inside, int32(rows)), int32(1))))
            for v in range(vector):
                origin, distance = widen(elements[v]) if inside > 0 else kind(0), kind(0)
                for u in range(1, rows):
                    if u < inside:
                        distance += widen(elements[u * vector + v]) - origin
                run[3 * v], run[3 * v + 1], run[3 * v + 2] = origin + distance * share, kind(0), kind(0)
            append(run, elements, other_elements, indices, first, step, inside, int32(rows))

        return begin


@functools.cache
def open_run_of(monoid: str, value: str, vector: int, result: str, store_vector: int = 0, apart: int = 0) -> OpenRun:
    """The one :class:`OpenRun` for these, of the states of :func:`.states.run_states_of`."""
    typed = typed_monoid(monoid, value)
    chosen = typed.choose_pivot is not None and typed.pivot_state is KernelMonoid.pivot_state
    first = typed.extreme != "" and BY_NAME[value].itemsize == 2
    kind = PivotedRun if typed.any_pivot else ChosenPivotRun if chosen else FirstExtremeRun if first else OpenRun
    return kind(run_states_of(monoid, value, vector, result, store_vector, apart), monoid, value, vector)
