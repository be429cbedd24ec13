"""Device functions that the segment kernels share."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...algebra import MONOIDS, Monoid
from ...device.vector import STORE
from ...dtypes import BY_NAME
from ...runtime import jit


def accumulator_of(value: str) -> Any:
    """The numba type that sums of ``value`` are kept in."""
    return jit.SCALARS[BY_NAME[value].accumulator]


@jit.device
def clamp(identifier: Any, segments: Any) -> Any:
    """An id as int64, with everything below the range as −1 and everything above as ``segments``; order is kept."""
    wide = int64(identifier)
    if wide < 0:
        return int64(-1)
    return segments if wide > segments else wide


@jit.device
def ends_first(block: Any, blocks: Any) -> Any:
    """The blocks in turn, from the last eighth on.

    Where ids are sorted by frequency, short runs and gaps crowd at one end; blocks that meet them take longest and should not start last.
    """
    turned = block + blocks - (blocks >> 3)
    return turned if turned < blocks else turned - blocks


@functools.cache
def ids_of(index: str) -> tuple[Any, Any]:
    """``last_id(segments)``, the greatest id that names a segment, and ``adjoin(a, b)``, whether b = a + 1; both without leaving the ids' width."""
    index_type = jit.SCALARS[index]
    unsigned, greatest = jit.SCALARS["u" + index[1:]], index_type.maxval

    @jit.device
    def last_id(segments: Any) -> Any:
        return index_type(min(segments - 1, greatest))

    @jit.device
    def adjoin(a: Any, b: Any) -> Any:
        # b − a = 1 modulo 2^32 where b is the least integer and a the greatest, too: that is no gap either
        return unsigned(b - a) == unsigned(1)

    return last_id, adjoin


@functools.cache
def place_of(dims: int) -> Any:
    """``place(column, shape, strides)``: the offset of a flat column among ``dims`` trailing dimensions."""
    if dims == 1:
        return jit.device(lambda column, shape, strides: column * strides[0])

    @jit.device
    def place(column: Any, shape: Any, strides: Any) -> Any:
        offset = int64(0)
        rest = int64(column)
        for back in range(dims):
            k = dims - 1 - back
            above = rest // shape[k]
            offset += (rest - above * shape[k]) * strides[k]
            rest = above
        return offset

    return place


class Fold:
    """Device functions of one monoid on one element type, for ``vector`` columns a lane.

    A lane keeps its states in a local array, column by column. In the arrays of edges and carries the scalars of a lane lie ``step`` elements apart.
    """

    def __init__(self, monoid: Monoid, value: str, vector: int, access: int) -> None:
        element, state_type = jit.SCALARS[value], accumulator_of(value)
        width, scalars = monoid.width, monoid.width * vector
        lift, combine, finish = jit.device(monoid.lift), jit.device(monoid.combine), jit.device(monoid.finish)
        identity = monoid.identity
        store = STORE[access]
        self.state_type, self.scalars = state_type, scalars

        if width == 1:
            get = jit.device(lambda array, at, step: array[at])
        elif width == 2:
            get = jit.device(lambda array, at, step: (array[at], array[at + step]))
        else:
            get = jit.device(lambda array, at, step: (array[at], array[at + step], array[at + step + step]))

        @jit.device
        def put(array: Any, at: Any, state: Any) -> None:
            if width == 1:
                array[at] = state
            else:
                for w in range(width):
                    array[at + w] = state[w]

        @jit.device
        def reset(states: Any) -> None:
            """Every column's state becomes the identity."""
            for v in range(vector):
                for w in range(width):
                    states[v * width + w] = state_type(identity[w])

        @jit.device
        def take(states: Any, elements: Any, at: Any) -> None:
            """Folds one row, ``elements[at : at + vector]``, into the states."""
            for v in range(vector):
                put(states, v * width, combine(get(states, v * width, 1), lift(state_type(elements[at + v]))))

        @jit.device
        def join(states: Any, others: Any, base: Any, step: Any) -> None:
            """Folds states kept elsewhere into these, from the right."""
            for v in range(vector):
                put(states, v * width, combine(get(states, v * width, 1), get(others, base + v * width * step, step)))

        @jit.device
        def precede(states: Any, others: Any) -> None:
            """Folds other states into these, from the left."""
            for v in range(vector):
                put(states, v * width, combine(get(others, v * width, 1), get(states, v * width, 1)))

        @jit.device
        def write(output: Any, at: Any, states: Any, count: Any) -> None:
            """Stores the results of ``count`` rows."""
            result = cuda.local.array(vector, element)
            for v in range(vector):
                result[v] = element(finish(get(states, v * width, 1), state_type(count)))
            for v in range(0, vector, access):
                store(output, at + v, result, v)

        @jit.device
        def park(ids: Any, counts: Any, kept: Any, entry: Any, base: Any, step: Any, leads: Any, identifier: Any, count: Any, states: Any) -> None:
            """Keeps a run: its states from every lane, its id and count from the one that leads."""
            for k in range(scalars):
                kept[base + k * step] = states[k]
            if leads:
                ids[entry] = identifier
                counts[entry] = count

        self.reset, self.take, self.join, self.precede, self.write, self.park = reset, take, join, precede, write, park


@functools.cache
def fold_of(monoid: str, value: str, vector: int, access: int = 0) -> Fold:
    """The one :class:`Fold` for these, so that kernels share its functions. ``access`` is the width of its stores, by default ``vector``."""
    return Fold(MONOIDS[monoid], value, vector, access or vector)
