"""States of a monoid over elements of a type, and several elements in registers that become one."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ..algebra import KernelMonoid, monoid_of
from ..core.dtypes import BY_NAME
from ..device.warp import States, states_of
from ..runtime import jit
from .elements import as_number_of, conversions_of, of_type

#: what a monoid may have by type
_BY_TYPE = ("lift", "combine", "finish", "about", "moved", "around", "suits")


def state_kind(monoid: str, value: str) -> str:
    """Short name of the type of a state's scalars."""
    return monoid_of(monoid).kind or BY_NAME[value].accumulator


@functools.cache
def monoid_on(monoid: str, value: str) -> KernelMonoid:
    """The monoid, its identity in the range of the state's type, and its functions for that type."""
    kind = jit.SCALARS[state_kind(monoid, value)]
    found = monoid_of(monoid)
    functions: dict[str, Any] = {name: of_type(getattr(found, name), kind) for name in _BY_TYPE}
    return replace(found, identity=tuple(jit.number(kind, each) for each in found.identity), **functions)


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
    elif width == 3:
        get = jit.device(lambda array, at, step: (array[at], array[at + step], array[at + step + step]))
    else:
        get = jit.device(lambda array, at, step: (array[at], array[at + step], array[at + 2 * step], array[at + 3 * step]))

    @jit.device
    def put(array: Any, at: Any, step: Any, state: Any) -> None:
        if width == 1:
            array[at] = state
        else:
            for w in range(width):
                array[at + w * step] = state[w]

    return get, put


@functools.cache
def single_of(monoid: str, value: str) -> Any:
    """``single(x, position)``: the state of one element as memory holds it."""
    found, widen, kind = monoid_on(monoid, value), conversions_of(value)[0], jit.SCALARS[state_kind(monoid, value)]
    lift, placed, cast = jit.device(found.lift), found.places, states_on(monoid, value).cast
    as_number = as_number_of(value)
    if placed:
        return jit.device(lambda x, position: cast(lift(widen(x), as_number(position), kind(1))))
    return jit.device(lambda x, position: cast(lift(widen(x), kind(1), kind(1))))


@functools.cache
def batch_of(monoid: str, value: str, runs: int, run: int, step: int, gap: int) -> Any:
    """``batch(elements, at, position, valid)``: the state of the first ``valid`` of ``runs`` runs of ``run`` elements in registers.

    Element k of run s is ``elements[at + (s · run + k) · step]``, and its place is ``position + s · gap + k``.
    """
    found, states, single = monoid_on(monoid, value), states_on(monoid, value), single_of(monoid, value)
    identity, combine = states.identity, states.combine
    if found.append:
        return _with_places(monoid, value, runs, run, step, gap)

    @jit.device
    def batch(elements: Any, at: Any, position: Any, valid: Any) -> Any:
        state = identity()
        for s in range(runs):
            if s < valid:
                for k in range(run):
                    state = combine(state, single(elements[at + (s * run + k) * step], position + s * gap + k))
        return state

    return batch


def _with_places(monoid: str, value: str, runs: int, run: int, step: int, gap: int) -> Any:
    found, states, widen, as_number = monoid_on(monoid, value), states_on(monoid, value), conversions_of(value)[0], as_number_of(value)
    given: Any = found.append
    append, identity, cast = jit.device(given), states.identity, states.cast

    @jit.device
    def batch(elements: Any, at: Any, position: Any, valid: Any) -> Any:
        state = cast((identity()[0], as_number(position)))
        for s in range(runs):
            if s < valid:
                for k in range(run):
                    state = append(state, widen(elements[at + (s * run + k) * step]), as_number(position + s * gap + k))
        return state if valid > 0 else identity()

    return batch
