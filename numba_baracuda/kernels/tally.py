"""What a lane keeps of the elements that it has folded so far, for any monoid over any type of elements."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..algebra import SUM
from ..device.block import block_reduce, join_warps
from ..device.warp import states_of, warp_reduce
from ..runtime import jit
from .batch import accessors, batch_of, monoid_on, state_kind, states_on
from .elements import conversions_of
from .transpose import transposed_choice, transposed_fold


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


class _PivotTally(Tally):
    """Of sums about a pivot: a batch moves it where it has to, and lanes, or rows of a group at once, agree on one before they add up."""

    def __init__(self, monoid: str, value: str) -> None:
        super().__init__(monoid, value)
        found, kind, states = monoid_on(monoid, value), jit.SCALARS[state_kind(monoid, value)], states_on(monoid, value)
        around, start, shifts = _for_kind(found.around, kind), found.identity[0], found.shifts
        identity, cast = states.identity, states.cast

        @jit.device
        def state_of_some(tally: Any, count: Any, origin: Any) -> Any:
            pivot = tally[0]
            if shifts:
                pivot -= origin
            return cast(around(pivot, tally[1], tally[2], kind(count), kind(1)))

        @jit.device
        def state(tally: Any, count: Any, origin: Any) -> Any:
            made = state_of_some(tally, count, origin)
            return made if count > 0 else identity()

        self.width = 3
        self.nothing = jit.device(lambda: (kind(start), kind(0), kind(0)))
        self.state, self._state_of_some = state, state_of_some
        self._start, self._shifts, self._widen, self._terms = start, shifts, conversions_of(value)[0], found.terms
        self._about, self._moved = _for_kind(found.about, kind), _for_kind(found.moved, kind)
        self._chosen, self._choose = found.pivot is not None, jit.device(found.pivot or _first)
        self._tried, self._suits = bool(found.suits), _for_kind(found.suits or _never, kind)

    def _first_pivot(self, count: int, step: int) -> Any:
        """``pivot(elements, at)``: of ``count`` elements one that is neither the least nor the greatest, as far as four of them tell."""
        widen, apart = self._widen, count // 4 * step

        @jit.device
        def pivot(elements: Any, at: Any) -> Any:
            first = widen(elements[at])
            if apart == 0:
                return first
            second, third, fourth = widen(elements[at + apart]), widen(elements[at + 2 * apart]), widen(elements[at + 3 * apart])
            return max(min(first, second), min(third, fourth))

        return pivot

    def _over_runs(self, runs: int, run: int, step: int) -> tuple[Any, Any]:
        """``choose_all(pivot, elements, at, valid)``, the pivot of that and the runs, and ``add_all(first, second, pivot, …)``, with their terms."""
        kind, widen, about, choose = self.kind, self._widen, self._about, self._choose

        @jit.device
        def choose_all(pivot: Any, elements: Any, at: Any, valid: Any) -> Any:
            for s in range(runs):
                if s < valid:
                    for k in range(run):
                        pivot = choose(pivot, widen(elements[at + (s * run + k) * step]))
            return pivot

        @jit.device
        def add_all(first: Any, second: Any, pivot: Any, elements: Any, at: Any, valid: Any) -> Any:
            for s in range(runs):
                if s < valid:
                    for k in range(run):
                        one_term, other_term = about(widen(elements[at + (s * run + k) * step]), pivot, kind(1))
                        first += one_term
                        second += other_term
            return first, second

        return choose_all, add_all

    def _guarded(self, runs: int, run: int, step: int) -> Any:
        kind, moved, chosen, first_pivot = self.kind, self._moved, self._chosen, self._first_pivot(runs * run, step)
        choose_all, add_all = self._over_runs(runs, run, step)

        @jit.device
        def take(tally: Any, elements: Any, at: Any, position: Any, valid: Any, count: Any) -> Any:
            pivot, first, second = tally
            if chosen:
                pivot = choose_all(pivot, elements, at, valid)
            elif count == 0:
                pivot = first_pivot(elements, at)
            elif count & (count - 1) == 0:
                pivot += first / kind(count)
            if pivot != tally[0]:
                first, second = moved(first, second, kind(count), tally[0], pivot, kind(1))
            first, second = add_all(first, second, pivot, elements, at, valid)
            return pivot, first, second

        return take

    def _trial(self, runs: int, run: int, step: int) -> tuple[Any, Any]:
        """``attempt(tally, elements, at, valid)``: the sum about the pivot 1, and whether it suits; ``accept(tally, sum, count)``: with it."""
        kind, moved, choose, suits = self.kind, self._moved, self._choose, self._suits
        _, add_all = self._over_runs(runs, run, step)

        @jit.device
        def attempt(tally: Any, elements: Any, at: Any, valid: Any) -> Any:
            more, _ = add_all(kind(0), kind(0), kind(1), elements, at, valid)
            return more, suits(more, choose(tally[0], kind(1)), kind(1))

        @jit.device
        def accept(tally: Any, more: Any, count: Any) -> Any:
            pivot, first, second = choose(tally[0], kind(1)), tally[1], tally[2]
            if pivot != tally[0]:
                first, second = moved(first, second, kind(count), tally[0], pivot, kind(1))
            return pivot, first + more, second

        return attempt, accept

    def batch(self, runs: int, run: int, step: int, gap: int) -> Any:
        guarded = self._guarded(runs, run, step)
        if not self._tried:
            return guarded
        attempt, accept = self._trial(runs, run, step)

        @jit.device
        def take(tally: Any, elements: Any, at: Any, position: Any, valid: Any, count: Any) -> Any:
            more, suit = attempt(tally, elements, at, valid)
            return accept(tally, more, count) if suit else guarded(tally, elements, at, position, valid, count)

        return take

    def beside(self, runs: int, columns: int, gap: int) -> Any:
        """All columns are tried before any is guarded: one branch, and loops that unroll."""
        if not self._tried:
            return super().beside(runs, columns, gap)
        (attempt, accept), guarded = self._trial(runs, 1, columns), self._each(self._guarded(runs, 1, columns), columns)
        (get, put), width, kind = accessors(self.width), self.width, self.kind

        @jit.device
        def take_all(tallies: Any, elements: Any, position: Any, valid: Any, count: Any) -> None:
            sums = cuda.local.array(columns, kind)
            all_suit = True
            for v in range(columns):
                sums[v], suit = attempt(get(tallies, v * width, 1), elements, v, valid)
                all_suit &= suit
            if all_suit:
                for v in range(columns):
                    put(tallies, v * width, 1, accept(get(tallies, v * width, 1), sums[v], count))
            else:
                guarded(tallies, elements, position, valid, count)

        return take_all

    def over(self, lanes: int) -> Any:
        kind, moved, chosen, choose, state, two = self.kind, self._moved, self._chosen, self._choose, self.state, self._terms > 1
        group = min(lanes, 32)
        levels, several = group.bit_length() - 1, lanes > 32
        join = join_warps(states_on(self._monoid, self._value), lanes)

        @jit.device
        def fold(tally: Any, count: Any, origin: Any) -> Any:
            pivot = tally[0]
            if chosen:
                for level in range(levels):
                    pivot = choose(pivot, cuda.shfl_xor_sync(-1, pivot, 1 << level))
            else:
                pivot = cuda.shfl_sync(-1, pivot, int32(cuda.laneid) & -group)
            first, second = moved(tally[1], tally[2], kind(count), tally[0], pivot, kind(1))
            total = int32(count)
            for level in range(levels):
                first += cuda.shfl_xor_sync(-1, first, 1 << level)
                total += cuda.shfl_xor_sync(-1, total, 1 << level)
                if two:
                    second += cuda.shfl_xor_sync(-1, second, 1 << level)
            made = state((pivot, first, second), total, origin)
            return join(made) if several else made

        return fold

    def rows(self, runs: int, run: int, gap: int, lanes: int, height: int) -> Any:
        kind, widen, chosen, choose, state, two = self.kind, self._widen, self._chosen, self._choose, self._state_of_some, self._terms > 1
        levels, row_size, left, start, shifts = lanes.bit_length() - 1, runs * run, max(1, height // lanes), self._start, self._shifts
        first_pivot, (choose_all, add_all) = self._first_pivot(row_size, 1), self._over_runs(runs, run, 1)
        add_up, pick = transposed_fold(states_of(SUM, (kind,)), lanes, height), transposed_choice(lanes, height)
        (_, put), width = accessors(self.state_width), self.state_width
        tried, suits = self._tried, self._suits

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            leader = int32(cuda.laneid) & -lanes
            pivots = cuda.local.array(height, kind)
            origins = cuda.local.array(height, kind)
            firsts = cuda.local.array(height, kind)
            seconds = cuda.local.array(height, kind)
            if tried:
                for h in range(height):
                    firsts[h], seconds[h] = add_all(kind(0), kind(0), kind(1), elements, h * row_size, valid[h])
                add_up(firsts, lane)
                suit = True
                for h in range(left):
                    suit &= suits(firsts[h], kind(1), kind(1))
                if cuda.all_sync(-1, suit):
                    for h in range(left):
                        put(out, h * width, 1, state((kind(1), firsts[h], seconds[h]), int32(extent), kind(0)))
                    return
            for h in range(height):
                pivot, first, second = kind(start), kind(0), kind(0)
                if not chosen:
                    pivot = first_pivot(elements, h * row_size)
                    if row_size < 4 <= lanes:
                        pivot = min(pivot, cuda.shfl_xor_sync(-1, pivot, 1))
                        pivot = max(pivot, cuda.shfl_xor_sync(-1, pivot, 2))
                    if levels > 0:
                        pivot = cuda.shfl_sync(-1, pivot, leader)
                origins[h] = kind(0)
                if shifts:
                    origins[h] = widen(elements[h * row_size])
                    if levels > 0:
                        origins[h] = cuda.shfl_sync(-1, origins[h], leader)
                if chosen:
                    pivot = choose_all(pivot, elements, h * row_size, valid[h])
                    for level in range(levels):
                        pivot = choose(pivot, cuda.shfl_xor_sync(-1, pivot, 1 << level))
                first, second = add_all(first, second, pivot, elements, h * row_size, valid[h])
                pivots[h], firsts[h], seconds[h] = pivot, first, second
            add_up(firsts, lane)
            if two:
                add_up(seconds, lane)
            pick(pivots, lane)
            pick(origins, lane)
            for h in range(left):
                put(out, h * width, 1, state((pivots[h], firsts[h], seconds[h]), int32(extent), origins[h]))

        return fold


def _first(pivot: Any, x: Any) -> Any:
    return pivot


def _never(total: Any, pivot: Any, one: Any) -> Any:
    return False


def _for_kind(function: Any, kind: Any) -> Any:
    return jit.device(function)(kind) if isinstance(function, str) else jit.device(function)


@functools.cache
def tally_of(monoid: str, value: str) -> Tally:
    """The one :class:`Tally` for these, so that kernels share its functions."""
    return (_PivotTally if monoid_on(monoid, value).about else Tally)(monoid, value)
