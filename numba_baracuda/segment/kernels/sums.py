"""The run that a lane is folding row by row: as the states of its columns, or as sums about pivots, which take no division for each element."""

from __future__ import annotations

import functools
from typing import Any

from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from .states import RunStates, run_states_of


class OpenRun:
    """Device functions of one open run of ``vector`` columns a lane, which has it in a local array of ``scalars`` scalars.

    * ``begin(run, position)``: a run of no rows, whose first one is at ``position``
    * ``append(run, elements, other_elements, at, position, before)``: appends the row ``elements[at : at + vector]`` to ``before`` ones
    * ``recentre(run, count)``: after ``count`` rows, 1 at least; best called each time that their number has doubled
    * ``close(run, count, states)``: the states of ``count`` rows

    Here a run is the states themselves.
    """

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        scalars, append_row = states.scalars, states.append_row

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, at: Any, position: Any, before: Any) -> None:
            append_row(run, elements, other_elements, at, position)

        @jit.device
        def recentre(run: Any, count: Any) -> None:
            pass

        @jit.device
        def close(run: Any, count: Any, states: Any) -> None:
            for k in range(scalars):
                states[k] = run[k]

        self.scalars, self.begin = scalars, states.begin_run
        self.append, self.recentre, self.close = append, recentre, close


class PivotedRun(OpenRun):
    """A run as (pivot, first sum, second sum) of each column: the pivot is the first element, the mean of two, and later that of the rows so far.

    About the first element alone, which may lie far from all others, sums of few rows would lose four times as many digits.
    """

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        super().__init__(states, monoid, value, vector)
        typed, kind = typed_monoid(monoid, value), accumulator_type(value)
        terms, rebase, pivot_state = jit.device(typed.pivot_terms), jit.device(typed.rebase), jit.device(typed.pivot_state)
        widen, reset, width = conversions_of(value)[0], states.reset, typed.width
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
            reset(states)
            if count > 0:
                for v in range(vector):
                    pivot, first, second = get(run, 3 * v, 1)
                    put_state(states, v * width, 1, pivot_state(pivot, first, second, kind(count), kind(1)))

        self.scalars, self.begin = scalars, begin
        self.append, self.recentre, self.close = append, recentre, close


@functools.cache
def open_run_of(monoid: str, value: str, vector: int, result: str, store_vector: int = 0, apart: int = 0) -> OpenRun:
    """The one :class:`OpenRun` for these, of the states of :func:`.states.run_states_of`."""
    kind = PivotedRun if typed_monoid(monoid, value).any_pivot else OpenRun
    return kind(run_states_of(monoid, value, vector, result, store_vector, apart), monoid, value, vector)
