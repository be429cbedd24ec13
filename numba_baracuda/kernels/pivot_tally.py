"""The tally of sums about a pivot."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..algebra import SUM
from ..device.block import join_warps
from ..device.warp import states_of
from ..runtime import jit
from .batch import accessors, monoid_on, state_kind, states_on
from .elements import conversions_of, origin_of
from .tally import Tally
from .transpose import transposed_choice, transposed_fold


class PivotTally(Tally):
    """Of sums about a pivot: a batch moves it where it has to, and lanes, or rows of a group at once, agree on one before they add up."""

    def __init__(self, monoid: str, value: str) -> None:
        super().__init__(monoid, value)
        found, kind, states = monoid_on(monoid, value), jit.SCALARS[state_kind(monoid, value)], states_on(monoid, value)
        around, start, shifts = jit.device(found.around), found.identity[0], found.shifts
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
        self._about, self._moved = jit.device(found.about), jit.device(found.moved)
        self._chosen, self._choose = found.pivot is not None, jit.device(found.pivot or _first)

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

    def batch(self, runs: int, run: int, step: int, gap: int) -> Any:
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
        kind, chosen, choose, state, two = self.kind, self._chosen, self._choose, self._state_of_some, self._terms > 1
        levels, row_size, left, start, shifts = lanes.bit_length() - 1, runs * run, max(1, height // lanes), self._start, self._shifts
        first_pivot, (choose_all, add_all) = self._first_pivot(row_size, 1), self._over_runs(runs, run, 1)
        add_up, pick = transposed_fold(states_of(SUM, (kind,)), lanes, height), transposed_choice(lanes, height)
        (_, put), width, first_of = accessors(self.state_width), self.state_width, origin_of(self._value)

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            leader = int32(cuda.laneid) & -lanes
            pivots = cuda.local.array(height, kind)
            origins = cuda.local.array(height, kind)
            firsts = cuda.local.array(height, kind)
            seconds = cuda.local.array(height, kind)
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
                    origins[h] = first_of(elements[h * row_size])
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


class TriedTally(PivotTally):
    """Of sums that the pivot 1 suits as a rule: those about it are tried first, and the pivot is chosen only where they do not suit."""

    def __init__(self, monoid: str, value: str) -> None:
        super().__init__(monoid, value)
        self._suits = jit.device(monoid_on(monoid, value).suits)

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
        (attempt, accept), chosen = self._trial(runs, run, step), super().batch(runs, run, step, gap)

        @jit.device
        def take(tally: Any, elements: Any, at: Any, position: Any, valid: Any, count: Any) -> Any:
            more, suit = attempt(tally, elements, at, valid)
            return accept(tally, more, count) if suit else chosen(tally, elements, at, position, valid, count)

        return take

    def beside(self, runs: int, columns: int, gap: int) -> Any:
        """All columns are tried before a pivot is chosen for any: one branch, and loops that unroll."""
        (attempt, accept), chosen = self._trial(runs, 1, columns), self._each(super().batch(runs, 1, columns, gap), columns)
        (get, put), width, kind = accessors(self.width), self.width, self.kind

        @jit.device
        def take(tallies: Any, elements: Any, position: Any, valid: Any, count: Any) -> None:
            sums = cuda.local.array(columns, kind)
            all_suit = True
            for v in range(columns):
                sums[v], suit = attempt(get(tallies, v * width, 1), elements, v, valid)
                all_suit &= suit
            if all_suit:
                for v in range(columns):
                    put(tallies, v * width, 1, accept(get(tallies, v * width, 1), sums[v], count))
            else:
                chosen(tallies, elements, position, valid, count)

        return take

    def rows(self, runs: int, run: int, gap: int, lanes: int, height: int) -> Any:
        """All rows of a warp are tried before a pivot is chosen for any."""
        kind, state, suits, chosen = self.kind, self._state_of_some, self._suits, super().rows(runs, run, gap, lanes, height)
        (_, add_all), add_up = self._over_runs(runs, run, 1), transposed_fold(states_of(SUM, (kind,)), lanes, height)
        (_, put), width, row_size, left = accessors(self.state_width), self.state_width, runs * run, max(1, height // lanes)

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            sums = cuda.local.array(height, kind)
            for h in range(height):
                sums[h], _ = add_all(kind(0), kind(0), kind(1), elements, h * row_size, valid[h])
            add_up(sums, lane)
            all_suit = True
            for h in range(left):
                all_suit &= suits(sums[h], kind(1), kind(1))
            if cuda.all_sync(-1, all_suit):
                for h in range(left):
                    put(out, h * width, 1, state((kind(1), sums[h], kind(0)), int32(extent), kind(0)))
            else:
                chosen(elements, position, valid, lane, extent, out)

        return fold


def _first(pivot: Any, x: Any) -> Any:
    return pivot
