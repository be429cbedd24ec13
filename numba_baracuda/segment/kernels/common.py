"""Device functions that the segment kernels share."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import float64, int32, int64

from ...algebra import Monoid, monoid_of
from ...device.bits import bf16_to_f32, f32_to_bf16, i32_as_f32, i64_as_f64
from ...device.vector import STORE
from ...dtypes import BY_NAME
from ...runtime import jit


def accumulator_of(value: str) -> Any:
    """The numba type that sums of ``value`` are kept in."""
    return jit.SCALARS[BY_NAME[value].accumulator]


@functools.cache
def conversions_of(value: str) -> tuple[Any, Any]:
    """``widen(x)`` from an element to the accumulator's type, and ``narrow(x)`` back with one rounding."""
    element, wide = jit.SCALARS[value], accumulator_of(value)
    if value == "bf16":
        return bf16_to_f32, jit.device(lambda x: f32_to_bf16(wide(x)))
    return jit.device(lambda x: wide(x)), jit.device(lambda x: element(x))


@functools.cache
def as_number_of(value: str) -> Any:
    """``as_number(position)``: a number of the accumulator's type whose bits are the position, so that numbers compare as positions do."""
    if accumulator_of(value) == float64:
        return jit.device(lambda position: i64_as_f64(int64(position)))
    return jit.device(lambda position: i32_as_f32(int32(position)))


@jit.device
def clamp(identifier: Any, segments: Any) -> Any:
    """An id as int64, with everything below the range as −1 and everything above as ``segments``; order is kept."""
    wide = int64(identifier)
    if wide < 0:
        return int64(-1)
    return segments if wide > segments else wide


@jit.device
def first_at_least(numbers: Any, step: Any, first: Any, last: Any, wanted: Any) -> Any:
    """The first of the places first … last − 1 whose number is at least ``wanted``, else ``last``, for numbers in order, ``step`` elements apart."""
    low, high = int64(first), int64(last)
    while low < high:
        middle = (low + high) >> 1
        if int64(numbers[middle * step]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


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
    Results are of type ``result`` and lie side by side where there are several; ``access`` is the width of their stores, in elements.
    """

    def __init__(self, monoid: Monoid, value: str, vector: int, access: int, result: str) -> None:
        state_type = accumulator_of(value)
        width, scalars, results = monoid.width, monoid.width * vector, monoid.results
        lift, combine, finish = jit.device(monoid.lift), jit.device(monoid.combine), jit.device(monoid.finish)
        identity, correction = tuple(jit.number(state_type, each) for each in monoid.identity), monoid.correction
        paired, placed = monoid.pairs, monoid.places
        append: Any = jit.device(monoid.append) if monoid.append else None
        (widen, _), (_, narrow) = conversions_of(value), conversions_of(result)
        result_type, as_number, stored = jit.SCALARS[result], as_number_of(value), vector * results
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
                    put(states, v * width, append(get(states, v * width, 1), widen(elements[at + v]), as_number(position)))
                else:
                    other = state_type(1)
                    if paired:
                        other = widen(others[at + v])
                    put(states, v * width, combine(get(states, v * width, 1), lift(widen(elements[at + v]), other, state_type(1))))

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
            """Stores the results of ``count`` rows; ``at`` counts columns."""
            result = cuda.local.array(stored, result_type)
            for v in range(vector):
                found = finish(get(states, v * width, 1), state_type(count - correction), state_type(1))
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
    found = monoid_of(monoid)
    if result:
        access = min(BY_NAME[result].vector, vector * found.results & -(vector * found.results))
    return Fold(found, value, vector, access or vector, result or value)
