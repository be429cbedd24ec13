"""The rule of a scan as device functions on elements of a type."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ...device.block import reach_of
from ...device.warp import States, states_of
from ...kernels.elements import accumulator_of, conversions_of, of_type
from ...runtime import jit
from ..rules import rule_of


class Law:
    """Types, states and functions of a rule from elements of type ``value`` to those of type ``result``, where ``place`` names the type of places.

    ``emit(before, after, p, r, place)`` and ``begin(initial, place)`` are those of the rule. ``note(made, at, a, b, c, near)`` writes what the rule
    makes of an element, p, q and r, to three arrays, and ``lift(made, at, place)`` gives its state. ``get`` and ``put`` are those of
    :func:`~...device.block.reach_of`.
    """

    def __init__(self, rule: str, value: str, result: str, exclusive: bool, place: str) -> None:
        found, placed = rule_of(rule, exclusive), jit.SCALARS[place]
        wide = jit.SCALARS[found.monoid.kind] if found.monoid.kind else accumulator_of(result)
        self.rule, self.exclusive, self.wide = found, exclusive, wide
        self.element: Any = jit.SCALARS["u8" if value == "bool" else value]
        self.result: Any = jit.SCALARS[result]
        self.widen, self.narrow = _widening(value, wide), conversions_of(result)[1]
        kinds = tuple(placed if letter == "p" else wide for letter in found.kinds)
        self.width = len(kinds)
        identity = tuple(map(jit.number, kinds, found.monoid.identity))
        self.states: States = states_of(replace(found.monoid, identity=identity, combine=of_type(found.monoid.combine, wide)), kinds)
        #: types of four arrays for states, the last repeated
        self.kinds = (*kinds, *[kinds[-1]] * 3)[:4]
        lift, emit, begin, prepare = (jit.device(of_type(each, wide)) for each in (found.lift, found.emit, found.begin, found.prepare))
        cast, items = self.states.cast, found.items

        @jit.device
        def note(made: Any, at: Any, a: Any, b: Any, c: Any, near: Any) -> None:
            p, q, r = prepare(a, b, c, near, wide(1))
            made[0][at] = p
            if items > 1:
                made[1][at] = q
            if items > 2:
                made[2][at] = r

        self.note = note
        self.lift = jit.device(lambda made, at, place: cast(lift(made[0][at], made[1][at] if items > 1 else made[0][at], placed(place), wide(1))))
        self.begin = jit.device(lambda initial, place: cast(begin(wide(initial), placed(place), wide(1))))
        self.emit = jit.device(lambda before, after, p, r, place: emit(before, after, p, r, placed(place), wide(1)))
        self.get, self.put = reach_of(self.width)

    def reported(self, reverse: bool, index: Any) -> Any:
        """``f(before, after, extent)``: the winner's place in memory as an index, −1 for none, of states before and after an element."""
        behind = self.exclusive

        @jit.device
        def reported(before: Any, after: Any, extent: Any) -> Any:
            winner = before[1] if behind else after[1]
            return index(extent - 1 - winner if reverse and winner >= 0 else max(winner, -1))

        return reported

    def sizes(self, count: int) -> tuple[int, int, int, int]:
        """Elements of four arrays for so many states."""
        return tuple(count if k < self.width else 1 for k in range(4))  # type: ignore[return-value]


def _widening(value: str, wide: Any) -> Any:
    """``widen(x)`` from an element to the type of states; whatever is not 0 is true."""
    if value == "bool":
        return jit.device(lambda x: wide(x != 0))
    widen = conversions_of(value)[0]
    return widen if wide == accumulator_of(value) else jit.device(lambda x: wide(widen(x)))


@functools.cache
def law_of(rule: str, value: str, result: str, exclusive: bool, place: str) -> Law:
    """The one :class:`Law` for these, so that kernels share its functions."""
    return Law(rule, value, result, exclusive, place)
