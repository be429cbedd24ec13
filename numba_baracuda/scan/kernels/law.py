"""The rule of a scan as device functions on elements of a type."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ...device.warp import States, states_of
from ...kernels.elements import accumulator_of, conversions_of
from ...runtime import jit
from ..rules import ByType, rule_of


class Law:
    """Types, states and functions of a rule; ``place`` is the type of places.

    ``lift(p, q, place)``, ``emit(before, after, p, r)``, ``begin(initial, place)`` and ``prepare(a, b, c, near)`` are those of the rule, ``get``
    and ``put`` those of :func:`reach_of`.
    """

    def __init__(self, rule: str, value: str, exclusive: bool, place: str) -> None:
        found, wide, placed = rule_of(rule, exclusive), accumulator_of(value), jit.SCALARS[place]
        self.rule, self.exclusive, self.wide, self.place = found, exclusive, wide, placed
        self.element: Any = jit.SCALARS[value]
        self.widen, self.narrow = conversions_of(value)
        kinds = tuple(placed if letter == "p" else wide for letter in found.kinds)
        self.width = len(kinds)
        combine = found.monoid.combine
        self.states: States = states_of(
            replace(found.monoid, combine=_for_kind(combine, wide)) if isinstance(combine, ByType) else found.monoid, kinds
        )
        #: types of four arrays for states, the last repeated
        self.kinds = (*kinds, *[kinds[-1]] * 3)[:4]
        lift, emit, begin, prepare = (_for_kind(each, wide) for each in (found.lift, found.emit, found.begin, found.prepare))
        cast = self.states.cast
        self.lift = jit.device(lambda p, q, place: cast(lift(p, q, placed(place), wide(1))))
        self.begin = jit.device(lambda initial, place: cast(begin(wide(initial), placed(place), wide(1))))
        self.emit = jit.device(lambda before, after, p, r: emit(before, after, p, r, wide(1)))
        self.prepare = jit.device(lambda a, b, c, near: prepare(a, b, c, near, wide(1)))
        self.get, self.put = reach_of(self.width)

    def sizes(self, count: int) -> tuple[int, int, int, int]:
        """Elements of four arrays for so many states."""
        return tuple(count if k < self.width else 1 for k in range(4))  # type: ignore[return-value]


def _for_kind(function: Any, kind: Any) -> Any:
    """The device function; for one :class:`~..rules.ByType` that of the type."""
    return jit.device(function)(kind) if isinstance(function, ByType) else jit.device(function)


@functools.cache
def reach_of(width: int) -> tuple[Any, Any]:
    """``get(arrays, at)`` and ``put(arrays, at, state)`` of states of so many scalars, each in an array of its own, four for all."""
    if width == 1:
        get = jit.device(lambda arrays, at: arrays[0][at])
    elif width == 2:
        get = jit.device(lambda arrays, at: (arrays[0][at], arrays[1][at]))
    else:
        get = jit.device(lambda arrays, at: (arrays[0][at], arrays[1][at], arrays[2][at], arrays[3][at]))

    @jit.device
    def put(arrays: Any, at: Any, state: Any) -> None:
        if width == 1:
            arrays[0][at] = state
        else:
            arrays[0][at] = state[0]
            arrays[1][at] = state[1]
            if width > 2:
                arrays[2][at] = state[2]
                arrays[3][at] = state[3]

    return get, put


@functools.cache
def law_of(rule: str, value: str, exclusive: bool, place: str) -> Law:
    """The one :class:`Law` for these, so that kernels share its functions."""
    return Law(rule, value, exclusive, place)
