"""What a lane keeps of the elements that it has folded so far, for any monoid over any type of elements."""

from __future__ import annotations

from typing import Any

from ..device.block import block_reduce
from ..device.warp import warp_reduce
from ..runtime import jit
from .batch import accessors, batch_of, monoid_on, states_on
from .transpose import transposed_fold


def over_lanes(monoid: str, value: str, lanes: int) -> Any:
    """``fold(state)`` over the lanes of a group, which is a block where there are more than 32; the same in all of them."""
    kinds = states_on(monoid, value).kinds
    reduce = warp_reduce if lanes <= 32 else block_reduce
    return reduce(monoid_on(monoid, value), kinds if len(kinds) > 1 else kinds[0], lanes)


class Tally:
    """A lane's tally is its state; where the monoid has sums about a pivot, it is (pivot, first, second), of ``width`` scalars.

    ``nothing()`` is the tally of no elements, ``state(tally, count, origin)`` the state of ``count``, of which the mean is taken less ``origin``.
    """

    def __init__(self, monoid: str, value: str) -> None:
        states = states_on(monoid, value)
        self._monoid, self._value = monoid, value
        self.kind: Any = states.kinds[0]
        self.width: int = len(states.kinds)
        self.state_width: int = len(states.kinds)
        self.nothing: Any = states.identity
        self.state: Any = jit.device(lambda tally, count, origin: tally)

    def batch(self, runs: int, run: int, step: int, gap: int) -> Any:
        """``take(tally, elements, at, position, valid, count)``: the tally with the first ``valid`` > 0 of ``runs`` runs of ``run`` elements.

        ``count`` elements are in it. Element k of run s is ``elements[at + (s · run + k) · step]``, and its place ``position + s · gap + k``.
        """
        batch, combine = batch_of(self._monoid, self._value, runs, run, step, gap), states_on(self._monoid, self._value).combine
        return jit.device(lambda tally, elements, at, position, valid, count: combine(tally, batch(elements, at, position, valid)))

    def beside(self, runs: int, columns: int, gap: int) -> Any:
        """``take(tallies, elements, position, valid, count)``: ``batch`` of one element a run for the tallies of ``columns``, one behind the other.

        Element k of a run belongs to column k.
        """
        return self._each(self.batch(runs, 1, columns, gap), columns)

    def _each(self, take: Any, columns: int) -> Any:
        (get, put), width = accessors(self.width), self.width

        @jit.device
        def take_each(tallies: Any, elements: Any, position: Any, valid: Any, count: Any) -> None:
            for v in range(columns):
                put(tallies, v * width, 1, take(get(tallies, v * width, 1), elements, v, position, valid, count))

        return take_each

    def over(self, lanes: int) -> Any:
        """``fold(tally, count, origin)``: the state of a group of lanes, which is a block where there are more than 32; the same in all of them."""
        reduce = over_lanes(self._monoid, self._value, lanes)
        return jit.device(lambda tally, count, origin: reduce(tally))

    def rows(self, runs: int, run: int, gap: int, lanes: int, height: int) -> Any:
        """``fold(elements, position, valid, lane, extent, out)``: states of ``height`` rows, each dealt to a group of ``lanes`` lanes.

        A lane has ``valid[h]`` of ``runs`` runs of row h, one row behind the other; ``out`` is as :func:`~.transpose.transposed_fold` leaves it.
        """
        batch, (_, put), width = batch_of(self._monoid, self._value, runs, run, 1, gap), accessors(self.width), self.width
        transposed, row_size = transposed_fold(states_on(self._monoid, self._value), lanes, height), runs * run

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            for h in range(height):
                put(out, h * width, 1, batch(elements, h * row_size, position, valid[h]))
            transposed(out, lane)

        return fold
