"""Several elements in registers become one state."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..algebra import Monoid, monoid_of
from ..device.block import block_reduce
from ..device.warp import States, states_of, warp_reduce
from ..dtypes import BY_NAME
from ..runtime import jit
from .elements import as_number_of, conversions_of


def state_kind(monoid: str, value: str) -> str:
    """Short name of the type of a state's scalars."""
    return monoid_of(monoid).kind or BY_NAME[value].accumulator


@functools.cache
def monoid_on(monoid: str, value: str) -> Monoid:
    """The monoid, its identity in the range of the state's type."""
    kind = jit.SCALARS[state_kind(monoid, value)]
    found = monoid_of(monoid)
    return replace(found, identity=tuple(jit.number(kind, each) for each in found.identity))


@functools.cache
def states_on(monoid: str, value: str) -> States:
    """Device functions on the states of a monoid over elements of a type."""
    found = monoid_on(monoid, value)
    return states_of(found, (jit.SCALARS[state_kind(monoid, value)],) * found.width)


@functools.cache
def accessors(width: int) -> tuple[Any, Any]:
    """``get(array, at, step)``, a state of so many scalars that lie ``step`` elements apart, and ``put(array, at, step, state)``."""
    if width == 1:
        get = jit.device(lambda array, at, step: array[at])
    elif width == 2:
        get = jit.device(lambda array, at, step: (array[at], array[at + step]))
    else:
        get = jit.device(lambda array, at, step: (array[at], array[at + step], array[at + step + step]))

    @jit.device
    def put(array: Any, at: Any, step: Any, state: Any) -> None:
        if width == 1:
            array[at] = state
        else:
            for w in range(width):
                array[at + w * step] = state[w]

    return get, put


def over_lanes(monoid: str, value: str, lanes: int) -> Any:
    """``fold(state)`` over the lanes of a group, which is a block where there are more than 32; the same in all of them."""
    kinds = states_on(monoid, value).kinds
    reduce = warp_reduce if lanes <= 32 else block_reduce
    return reduce(monoid_on(monoid, value), kinds if len(kinds) > 1 else kinds[0], lanes)


@functools.cache
def entering(monoid: str, value: str) -> Any:
    """``enter(x, origin)``: an element as memory holds it in the accumulator's type, less the origin of its row if the monoid shifts."""
    widen = conversions_of(value)[0]
    if monoid_of(monoid).shifts:
        return jit.device(lambda x, origin: widen(x) - origin)
    return jit.device(lambda x, origin: widen(x))


@functools.cache
def single_of(monoid: str, value: str) -> Any:
    """``single(x, position, origin)``: the state of one element as memory holds it."""
    found, enter, kind = monoid_on(monoid, value), entering(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    lift, placed, cast = jit.device(found.lift), found.places, states_on(monoid, value).cast
    as_number = as_number_of(value)
    if placed:
        return jit.device(lambda x, position, origin: cast(lift(enter(x, origin), as_number(position), kind(1))))
    return jit.device(lambda x, position, origin: cast(lift(enter(x, origin), kind(1), kind(1))))


@functools.cache
def batch_of(monoid: str, value: str, runs: int, run: int, step: int, gap: int) -> Any:
    """``batch(elements, at, position, valid, origin)``: the state of the first ``valid`` of ``runs`` runs of ``run`` elements in registers.

    Element k of run s is ``elements[at + (s · run + k) · step]``, and its place is ``position + s · gap + k``.
    """
    found, states, single = monoid_on(monoid, value), states_on(monoid, value), single_of(monoid, value)
    identity, combine = states.identity, states.combine
    if found.pivot:
        return _about_a_pivot(monoid, value, runs, run, step)
    if found.append:
        return _with_places(monoid, value, runs, run, step, gap)

    @jit.device
    def batch(elements: Any, at: Any, position: Any, valid: Any, origin: Any) -> Any:
        state = identity()
        for s in range(runs):
            if s < valid:
                for k in range(run):
                    state = combine(state, single(elements[at + (s * run + k) * step], position + s * gap + k, origin))
        return state

    return batch


def _with_places(monoid: str, value: str, runs: int, run: int, step: int, gap: int) -> Any:
    found, states, enter, as_number = monoid_on(monoid, value), states_on(monoid, value), entering(monoid, value), as_number_of(value)
    given: Any = found.append
    append, identity, cast = jit.device(given), states.identity, states.cast

    @jit.device
    def batch(elements: Any, at: Any, position: Any, valid: Any, origin: Any) -> Any:
        state = cast((identity()[0], as_number(position)))
        for s in range(runs):
            if s < valid:
                for k in range(run):
                    state = append(state, enter(elements[at + (s * run + k) * step], origin), as_number(position + s * gap + k))
        return state if valid > 0 else identity()

    return batch


class _Pivot:
    """Runs in registers about a pivot: ``choose(elements, at, valid, origin, middle)`` is that of ``middle`` and the elements.

    ``add_up(elements, at, valid, origin, middle)`` gives Σ of both terms, ``state(middle, first, second, count)`` what they are of so many elements.
    """

    def __init__(self, monoid: str, value: str, runs: int, run: int, step: int) -> None:
        found, states, enter, kind = (
            monoid_on(monoid, value),
            states_on(monoid, value),
            entering(monoid, value),
            jit.SCALARS[state_kind(monoid, value)],
        )
        pivot, about, around = jit.device(found.pivot), _for_kind(found.about, kind), _for_kind(found.around, kind)
        identity, cast = states.identity, states.cast

        @jit.device
        def choose(elements: Any, at: Any, valid: Any, origin: Any, middle: Any) -> Any:
            for s in range(runs):
                if s < valid:
                    for k in range(run):
                        middle = pivot(middle, enter(elements[at + (s * run + k) * step], origin))
            return middle

        @jit.device
        def add_up(elements: Any, at: Any, valid: Any, origin: Any, middle: Any) -> Any:
            first, second = kind(0), kind(0)
            for s in range(runs):
                if s < valid:
                    for k in range(run):
                        one_term, other_term = about(enter(elements[at + (s * run + k) * step], origin), middle, kind(1))
                        first += one_term
                        second += other_term
            return first, second

        @jit.device
        def state(middle: Any, first: Any, second: Any, count: Any) -> Any:
            return cast(around(middle, first, second, kind(count), kind(1))) if count > 0 else identity()

        self.pivot, self.enter, self.choose, self.add_up, self.state = pivot, enter, choose, add_up, state


def _about_a_pivot(monoid: str, value: str, runs: int, run: int, step: int) -> Any:
    parts = _Pivot(monoid, value, runs, run, step)
    enter, choose, add_up, state = parts.enter, parts.choose, parts.add_up, parts.state

    @jit.device
    def batch(elements: Any, at: Any, position: Any, valid: Any, origin: Any) -> Any:
        middle = choose(elements, at, valid, origin, enter(elements[at], origin))
        first, second = add_up(elements, at, valid, origin, middle)
        return state(middle, first, second, valid * run)

    return batch


@functools.cache
def row_of_group(monoid: str, value: str, runs: int, run: int, lanes: int) -> Any:
    """``row(elements, at, valid, origin, extent)``: the state of a row of ``extent`` elements, of which each lane of a group has ``valid`` runs.

    For monoids with a pivot, and the same in every lane: first a pivot of the whole row, then the terms about it. Elements lie as in ``batch_of``.
    """
    parts, levels = _Pivot(monoid, value, runs, run, 1), lanes.bit_length() - 1
    pivot, enter, choose, add_up, state = parts.pivot, parts.enter, parts.choose, parts.add_up, parts.state

    @jit.device
    def row(elements: Any, at: Any, valid: Any, origin: Any, extent: Any) -> Any:
        lane = int32(cuda.laneid)
        # from an element of the first lane on, which has one if any has
        middle = choose(elements, at, valid, origin, cuda.shfl_sync(-1, enter(elements[at], origin), lane & -lanes))
        for level in range(levels):
            other = cuda.shfl_xor_sync(-1, middle, 1 << level)
            middle = pivot(other, middle) if lane >> level & 1 else pivot(middle, other)
        first, second = add_up(elements, at, valid, origin, middle)
        for level in range(levels):
            first += cuda.shfl_xor_sync(-1, first, 1 << level)
            second += cuda.shfl_xor_sync(-1, second, 1 << level)
        return state(middle, first, second, extent)

    return row


def _for_kind(function: Any, kind: Any) -> Any:
    return jit.device(function)(kind) if isinstance(function, str) else jit.device(function)
