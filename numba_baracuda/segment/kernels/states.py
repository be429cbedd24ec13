"""States of a fold in a lane's registers, and where they are kept between lanes and launches."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...device.vector import STORE
from ...kernels.batch import accessors, monoid_on
from ...kernels.elements import accumulator_of, as_number_of, conversions_of
from ...runtime import jit


class Fold:
    """Device functions of one monoid on one element type, for ``vector`` columns a lane.

    A lane keeps its states in a local array, column by column. In the arrays of edges and carries the scalars of a lane lie ``step`` elements apart.
    Results are of type ``result`` and lie side by side where there are several; ``access`` is the width of their stores, in elements.
    """

    def __init__(self, monoid: KernelMonoid, value: str, vector: int, access: int, result: str) -> None:
        state_type = jit.SCALARS[monoid.kind] if monoid.kind else accumulator_of(value)
        width, scalars, results = monoid.width, monoid.width * vector, monoid.results
        lift, combine, finish = jit.device(monoid.lift), jit.device(monoid.combine), jit.device(monoid.finish)
        identity, corrected = tuple(jit.number(state_type, each) for each in monoid.identity), monoid.corrected
        paired, placed = monoid.pairs, monoid.places
        append: Any = jit.device(monoid.append) if monoid.append else None
        (widen, _), (_, narrow) = conversions_of(value), conversions_of(result)
        result_type, as_number, stored = jit.SCALARS[result], as_number_of(value), vector * results
        store = STORE[access]
        self.state_type, self.scalars = state_type, scalars

        get, put = accessors(width)

        @jit.device
        def reset(states: Any) -> None:
            """Every column's state becomes the identity."""
            for v in range(vector):
                for w in range(width):
                    states[v * width + w] = state_type(identity[w])

        @jit.device
        def begin(states: Any, position: Any) -> None:
            """Every column's state becomes that of a run whose first row has this place."""
            reset(states)
            if placed:
                for v in range(vector):
                    states[v * width + width - 1] = as_number(position)

        @jit.device
        def take(states: Any, elements: Any, others: Any, at: Any, position: Any) -> None:
            """Folds the next row, ``elements[at : at + vector]``, into the states; ``others`` is its second array, or any, ``position`` its place."""
            for v in range(vector):
                if placed:
                    put(states, v * width, 1, append(get(states, v * width, 1), widen(elements[at + v]), as_number(position)))
                else:
                    other = state_type(1)
                    if paired:
                        other = widen(others[at + v])
                    put(states, v * width, 1, combine(get(states, v * width, 1), lift(widen(elements[at + v]), other, state_type(1))))

        @jit.device
        def join(states: Any, others: Any, base: Any, step: Any) -> None:
            """Folds states kept elsewhere into these, from the right."""
            for v in range(vector):
                put(states, v * width, 1, combine(get(states, v * width, 1), get(others, base + v * width * step, step)))

        @jit.device
        def precede(states: Any, others: Any) -> None:
            """Folds other states into these, from the left."""
            for v in range(vector):
                put(states, v * width, 1, combine(get(others, v * width, 1), get(states, v * width, 1)))

        @jit.device
        def write(output: Any, at: Any, states: Any, count: Any, correction: Any) -> None:
            """Stores the results of ``count`` rows, from which a corrected monoid takes the correction; ``at`` counts columns."""
            result = cuda.local.array(stored, result_type)
            left = state_type(count)
            if corrected:
                left = state_type(left - correction)
            for v in range(vector):
                found = finish(get(states, v * width, 1), left, state_type(1))
                if results == 1:
                    result[v] = narrow(found)
                else:
                    for w in range(results):
                        result[v * results + w] = narrow(found[w])
            for v in range(0, stored, access):
                store(output, at * results + v, result, v)

        @jit.device
        def park(ids: Any, counts: Any, kept: Any, entry: Any, base: Any, step: Any, leads: Any, identifier: Any, count: Any, states: Any) -> None:
            """Keeps a run: its states from every lane, its id and count from the one that leads."""
            for k in range(scalars):
                kept[base + k * step] = states[k]
            if leads:
                ids[entry] = identifier
                counts[entry] = count

        self.reset, self.begin, self.take, self.join, self.precede, self.write, self.park = reset, begin, take, join, precede, write, park


@functools.cache
def fold_of(monoid: str, value: str, vector: int, access: int = 0, result: str = "") -> Fold:
    """The one :class:`Fold` for these, so that kernels share its functions.

    ``result`` is by default ``value``, and ``access`` then ``vector``; for a type of its own the results lie in memory that is the package's.
    """
    found = monoid_on(monoid, value)
    if result:
        access = min(BY_NAME[result].vector, vector * found.results & -(vector * found.results))
    return Fold(found, value, vector, access or vector, result or value)
