"""Thread accumulators of monoids that are sums about a pivot."""

from __future__ import annotations

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..algebra import SUM
from ..core.dtypes import BY_NAME
from ..device.block import join_warps
from ..device.warp import states_of
from ..runtime import jit
from .batch import state_accessors, state_functions, state_kind, typed_monoid
from .elements import conversions_of, origin_of
from .thread_accumulator import ThreadAccumulator
from .transpose import transposed_choice, transposed_fold

#: elements of a batch of a column whose first pivot is one of them: more may be the whole column
_MOST_SAMPLED = 8


class PivotAccumulator(ThreadAccumulator):
    """Accumulators (pivot, first sum, second sum): a batch changes the pivot where it has to; lanes agree on one before they add their sums."""

    def __init__(self, monoid: str, value: str) -> None:
        super().__init__(monoid, value)
        typed, kind, states = typed_monoid(monoid, value), jit.SCALARS[state_kind(monoid, value)], state_functions(monoid, value)
        pivot_state, initial_pivot, subtracts_origin = jit.device(typed.pivot_state), typed.identity[0], typed.subtracts_origin
        identity, cast = states.identity, states.cast

        @jit.device
        def nonempty_state(accumulator: Any, count: Any, origin: Any) -> Any:
            pivot = accumulator[0]
            if subtracts_origin:
                pivot -= origin
            return cast(pivot_state(pivot, accumulator[1], accumulator[2], kind(count), kind(1)))

        @jit.device
        def state(accumulator: Any, count: Any, origin: Any) -> Any:
            folded = nonempty_state(accumulator, count, origin)
            return folded if count > 0 else identity()

        self.width = 3
        self.empty = jit.device(lambda: (kind(initial_pivot), kind(0), kind(0)))
        self.state, self._nonempty_state = state, nonempty_state
        self._initial_pivot, self._subtracts_origin = initial_pivot, subtracts_origin
        self._widen, self._term_count, self._narrow = conversions_of(value)[0], typed.term_count, BY_NAME[value].itemsize == 2
        self._pivot_terms, self._rebase = jit.device(typed.pivot_terms), jit.device(typed.rebase)
        self._chooses, self._choose_pivot = typed.choose_pivot is not None, jit.device(typed.choose_pivot or _same_pivot)

    def _sampled_pivot(self, count: int, element_stride: int) -> Any:
        """``pivot(elements, offset)``: a middle one of four samples of the ``count`` elements from ``elements[offset]`` on, or of few the first."""
        widen, quarter = self._widen, count // 4 * element_stride

        @jit.device
        def pivot(elements: Any, offset: Any) -> Any:
            first = widen(elements[offset])
            if quarter == 0:
                return first
            second, third, fourth = widen(elements[offset + quarter]), widen(elements[offset + 2 * quarter]), widen(elements[offset + 3 * quarter])
            return max(min(first, second), min(third, fourth))

        return pivot

    def _mean_pivot(self, count: int, element_stride: int) -> Any:
        """``pivot(elements, offset)``: the mean of the ``count`` elements from ``elements[offset]`` on, or the first where that is not finite.

        Sums of a whole row about one of its elements may lose two bits, those about its mean lose none. Halves are rounded so much that it is one.
        """
        if self._narrow:
            return self._sampled_pivot(count, element_stride)
        kind, widen, share, infinity = self.kind, self._widen, 1 / count, math.inf

        @jit.device
        def pivot(elements: Any, offset: Any) -> Any:
            first, total = widen(elements[offset]), kind(0)
            for k in range(1, count):
                total += widen(elements[offset + k * element_stride]) - first
            mean = first + total * kind(share)
            return mean if abs(mean) < infinity else first

        return pivot

    def _over_vectors(self, vectors: int, vector: int, element_stride: int) -> tuple[Any, Any]:
        """(``choose_over``, ``add_terms``) for the first ``valid`` vectors of a batch.

        ``choose_over(pivot, elements, offset, valid)`` is the pivot chosen from ``pivot`` and the elements.
        ``add_terms(first, second, pivot, elements, offset, valid)`` is (first, second) and the terms of the elements about the pivot.
        """
        kind, widen, pivot_terms, choose_pivot = self.kind, self._widen, self._pivot_terms, self._choose_pivot

        @jit.device
        def choose_over(pivot: Any, elements: Any, offset: Any, valid: Any) -> Any:
            for s in range(vectors):
                if s < valid:
                    for k in range(vector):
                        pivot = choose_pivot(pivot, widen(elements[offset + (s * vector + k) * element_stride]))
            return pivot

        @jit.device
        def add_terms(first: Any, second: Any, pivot: Any, elements: Any, offset: Any, valid: Any) -> Any:
            for s in range(vectors):
                if s < valid:
                    for k in range(vector):
                        one_term, other_term = pivot_terms(widen(elements[offset + (s * vector + k) * element_stride]), pivot, kind(1))
                        first += one_term
                        second += other_term
            return first, second

        return choose_over, add_terms

    def add_batch(self, vectors: int, vector: int, element_stride: int, vector_stride: int) -> Any:
        kind, rebase, chooses = self.kind, self._rebase, self._chooses
        first_pivot = (self._mean_pivot if vector == 1 and vectors > _MOST_SAMPLED else self._sampled_pivot)(vectors * vector, element_stride)
        choose_over, add_terms = self._over_vectors(vectors, vector, element_stride)

        @jit.device
        def add(accumulator: Any, elements: Any, offset: Any, position: Any, valid: Any, count: Any) -> Any:
            pivot, first, second = accumulator
            if chooses:
                pivot = choose_over(pivot, elements, offset, valid)
            elif count == 0:
                pivot = first_pivot(elements, offset)
            elif count & (count - 1) == 0:
                pivot += first / kind(count)
            if pivot != accumulator[0]:
                first, second = rebase(first, second, kind(count), accumulator[0], pivot, kind(1))
            first, second = add_terms(first, second, pivot, elements, offset, valid)
            return pivot, first, second

        return add

    def reduce_lanes(self, lanes: int) -> Any:
        kind, state, two_terms = self.kind, self.state, self._term_count > 1
        rebase, chooses, choose_pivot = self._rebase, self._chooses, self._choose_pivot
        group = min(lanes, 32)
        levels, several_warps = group.bit_length() - 1, lanes > 32
        combine_warps = join_warps(state_functions(self._monoid, self._value), lanes)

        @jit.device
        def fold(accumulator: Any, count: Any, origin: Any) -> Any:
            pivot = accumulator[0]
            if chooses:
                for level in range(levels):
                    pivot = choose_pivot(pivot, cuda.shfl_xor_sync(-1, pivot, 1 << level))
            else:
                pivot = cuda.shfl_sync(-1, pivot, int32(cuda.laneid) & -group)
            first, second = rebase(accumulator[1], accumulator[2], kind(count), accumulator[0], pivot, kind(1))
            total = int32(count)
            for level in range(levels):
                first += cuda.shfl_xor_sync(-1, first, 1 << level)
                total = int32(total + cuda.shfl_xor_sync(-1, total, 1 << level))
                if two_terms:
                    second += cuda.shfl_xor_sync(-1, second, 1 << level)
            folded = state((pivot, first, second), total, origin)
            return combine_warps(folded) if several_warps else folded

        return fold

    def reduce_rows(self, vectors: int, vector: int, vector_stride: int, lanes: int, height: int) -> Any:
        kind, chooses, choose_pivot, state, two_terms = self.kind, self._chooses, self._choose_pivot, self._nonempty_state, self._term_count > 1
        levels, row_size, own_states = lanes.bit_length() - 1, vectors * vector, max(1, height // lanes)
        initial_pivot, subtracts_origin = self._initial_pivot, self._subtracts_origin
        first_pivot = (self._mean_pivot if lanes == 1 else self._sampled_pivot)(row_size, 1)
        choose_over, add_terms = self._over_vectors(vectors, vector, 1)
        add_up, choose_rows = transposed_fold(states_of(SUM, (kind,)), lanes, height), transposed_choice(lanes, height)
        (_, put), width, origin_from = state_accessors(self.state_width), self.state_width, origin_of(self._value)

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            leader = int32(cuda.laneid) & -lanes
            pivots = cuda.local.array(height, kind)
            origins = cuda.local.array(height, kind)
            firsts = cuda.local.array(height, kind)
            seconds = cuda.local.array(height, kind)
            for h in range(height):
                pivot, first, second = kind(initial_pivot), kind(0), kind(0)
                if not chooses:
                    pivot = first_pivot(elements, h * row_size)
                    if row_size < 4 <= lanes:
                        pivot = min(pivot, cuda.shfl_xor_sync(-1, pivot, 1))
                        pivot = max(pivot, cuda.shfl_xor_sync(-1, pivot, 2))
                    if levels > 0:
                        pivot = cuda.shfl_sync(-1, pivot, leader)
                origins[h] = kind(0)
                if subtracts_origin:
                    origins[h] = origin_from(elements[h * row_size])
                    if levels > 0:
                        origins[h] = cuda.shfl_sync(-1, origins[h], leader)
                if chooses:
                    pivot = choose_over(pivot, elements, h * row_size, valid[h])
                    for level in range(levels):
                        pivot = choose_pivot(pivot, cuda.shfl_xor_sync(-1, pivot, 1 << level))
                first, second = add_terms(first, second, pivot, elements, h * row_size, valid[h])
                pivots[h], firsts[h], seconds[h] = pivot, first, second
            add_up(firsts, lane)
            if two_terms:
                add_up(seconds, lane)
            choose_rows(pivots, lane)
            choose_rows(origins, lane)
            for h in range(own_states):
                put(out, h * width, 1, state((pivots[h], firsts[h], seconds[h]), int32(extent), origins[h]))

        return fold


class UnitPivotAccumulator(PivotAccumulator):
    """Tries the pivot 1 first, and chooses another pivot only where the sums about 1 do not suffice."""

    def __init__(self, monoid: str, value: str) -> None:
        super().__init__(monoid, value)
        self._unit_pivot_suffices = jit.device(typed_monoid(monoid, value).unit_pivot_suffices)

    def _trial(self, vectors: int, vector: int, element_stride: int) -> tuple[Any, Any]:
        """(``attempt``, ``accept``) of the sum of a batch about the pivot 1.

        ``attempt(accumulator, elements, offset, valid)`` is (that sum, whether it suffices).
        ``accept(accumulator, unit_sum, count)`` is the accumulator of ``count`` elements with that sum added.
        """
        kind, rebase, choose_pivot, unit_pivot_suffices = self.kind, self._rebase, self._choose_pivot, self._unit_pivot_suffices
        _, add_terms = self._over_vectors(vectors, vector, element_stride)

        @jit.device
        def attempt(accumulator: Any, elements: Any, offset: Any, valid: Any) -> Any:
            unit_sum, _ = add_terms(kind(0), kind(0), kind(1), elements, offset, valid)
            return unit_sum, unit_pivot_suffices(unit_sum, choose_pivot(accumulator[0], kind(1)), kind(1))

        @jit.device
        def accept(accumulator: Any, unit_sum: Any, count: Any) -> Any:
            pivot, first, second = choose_pivot(accumulator[0], kind(1)), accumulator[1], accumulator[2]
            if pivot != accumulator[0]:
                first, second = rebase(first, second, kind(count), accumulator[0], pivot, kind(1))
            return pivot, first + unit_sum, second

        return attempt, accept

    def add_batch(self, vectors: int, vector: int, element_stride: int, vector_stride: int) -> Any:
        attempt, accept = self._trial(vectors, vector, element_stride)
        add_about_chosen = super().add_batch(vectors, vector, element_stride, vector_stride)

        @jit.device
        def add(accumulator: Any, elements: Any, offset: Any, position: Any, valid: Any, count: Any) -> Any:
            unit_sum, suffices = attempt(accumulator, elements, offset, valid)
            return accept(accumulator, unit_sum, count) if suffices else add_about_chosen(accumulator, elements, offset, position, valid, count)

        return add

    def add_columns(self, vectors: int, columns: int, vector_stride: int) -> Any:
        """Tries all columns before it chooses a pivot for any: there is one branch, and the loops unroll."""
        attempt, accept = self._trial(vectors, 1, columns)
        add_about_chosen = self._add_each(super().add_batch(vectors, 1, columns, vector_stride), columns)
        (get, put), width, kind = state_accessors(self.width), self.width, self.kind

        @jit.device
        def add(accumulators: Any, elements: Any, position: Any, valid: Any, count: Any) -> None:
            sums = cuda.local.array(columns, kind)
            all_suffice = True
            for v in range(columns):
                sums[v], suffices = attempt(get(accumulators, v * width, 1), elements, v, valid)
                all_suffice &= suffices
            if all_suffice:
                for v in range(columns):
                    put(accumulators, v * width, 1, accept(get(accumulators, v * width, 1), sums[v], count))
            else:
                add_about_chosen(accumulators, elements, position, valid, count)

        return add

    def reduce_rows(self, vectors: int, vector: int, vector_stride: int, lanes: int, height: int) -> Any:
        """Tries all rows of a warp before it chooses a pivot for any."""
        kind, state, unit_pivot_suffices = self.kind, self._nonempty_state, self._unit_pivot_suffices
        fold_about_chosen = super().reduce_rows(vectors, vector, vector_stride, lanes, height)
        (_, add_terms), add_up = self._over_vectors(vectors, vector, 1), transposed_fold(states_of(SUM, (kind,)), lanes, height)
        (_, put), width, row_size, own_states = state_accessors(self.state_width), self.state_width, vectors * vector, max(1, height // lanes)

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            sums = cuda.local.array(height, kind)
            for h in range(height):
                sums[h], _ = add_terms(kind(0), kind(0), kind(1), elements, h * row_size, valid[h])
            add_up(sums, lane)
            all_suffice = True
            for h in range(own_states):
                all_suffice &= unit_pivot_suffices(sums[h], kind(1), kind(1))
            if cuda.all_sync(-1, all_suffice):
                for h in range(own_states):
                    put(out, h * width, 1, state((kind(1), sums[h], kind(0)), int32(extent), kind(0)))
            else:
                fold_about_chosen(elements, position, valid, lane, extent, out)

        return fold


def _same_pivot(pivot: Any, x: Any) -> Any:
    return pivot
