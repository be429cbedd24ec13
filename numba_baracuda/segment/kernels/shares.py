"""Runs in the shared memory of a block: each group folds its share of the rows, and what crosses shares is combined over the groups."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD_SHARED, STORE
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type
from ...runtime import jit
from .states import run_states_of
from .vjp import element_vjp_of


@jit.device
def next_head(words: Any, at: Any, row: Any, end: Any) -> Any:
    """The first row behind ``row`` whose bit is set in the words from ``words[at]`` on, at most ``end``."""
    found = int32(row + 1)
    while found < end:
        bits = int32(uint32(words[at + (found >> 5)]) >> uint32(found & 31))
        if bits != 0:
            return min(int32(found + cuda.ffs(bits) - 1), int32(end))
        found = int32((found | 31) + 1)
    return int32(end)


@jit.device
def has_bit(words: Any, at: Any, row: Any) -> Any:
    """Whether the bit of a row is set in the words from ``words[at]`` on."""
    return int32(words[at + (row >> 5)]) >> (row & 31) & 1 != 0


@jit.device
def find_bounds(words: Any, at: Any, tile: Any, count: Any) -> Any:
    """Of the heads behind row 0: the first, the last before row ``tile``, and the first from there on; without one ``count``, 0 and ``count``.

    Row r < ``count`` is a head where bit r of the words from ``words[at]`` on is set. All threads call it; each warp looks through all words.
    """
    first, before, end = int32(count), int32(0), int32(count)
    begin = int32(cuda.laneid * 32)
    while begin < count:
        bits = int32(words[at + (begin >> 5)])
        if begin == 0:
            bits = int32(bits & -2)
        inside = int32(min(max(tile - begin, 0), 32))
        lower = bits if inside == 32 else int32(bits & ((1 << inside) - 1))
        upper = int32(bits & ~lower)
        if bits != 0:
            first = int32(min(first, begin + cuda.ffs(bits) - 1))
        if lower != 0:
            before = int32(begin + 31 - cuda.clz(lower))
        if upper != 0:
            end = int32(min(end, begin + cuda.ffs(upper) - 1))
        begin = int32(begin + 1024)
    for distance in (1, 2, 4, 8, 16):
        first = min(first, cuda.shfl_xor_sync(-1, first, distance))
        before = max(before, cuda.shfl_xor_sync(-1, before, distance))
        end = min(end, cuda.shfl_xor_sync(-1, end, distance))
    return first, before, end


class Shares:
    """Device functions of one gradient on one element type, for ``lanes`` lanes of ``vector`` columns each that have a share of rows.

    Rows are contiguous in shared memory, x from element ``at`` of ``staged`` on and w from ``other_at``. ``items`` rows are loaded before the first
    is used. States are those of the gradient's fold, as :class:`~.states.RunStates` holds them.
    """

    def __init__(self, gradient: str, value: str, vector: int, lanes: int, threads: int, items: int) -> None:
        grad, element, wide = GRADIENTS[gradient], jit.SCALARS[value], accumulator_type(value)
        monoid = typed_monoid(grad.fold, value)
        run_states = run_states_of(grad.fold, value, vector, BY_NAME[value].accumulator)
        add_row, reset, combine_left, combine_right = run_states.add_row, run_states.reset, run_states.combine_left, run_states.combine_right
        scalars, width, results, paired = run_states.scalars, monoid.width, monoid.results, monoid.pairs
        accumulator = thread_accumulator_of(grad.fold, value)
        acc_width, empty, acc_state = accumulator.width, accumulator.empty, accumulator.state
        add_columns = accumulator.add_columns(items, vector, 1)
        (get, put), (get_acc, put_acc) = state_accessors(width), state_accessors(acc_width)
        finish, element_vjp = jit.device(monoid.finish), element_vjp_of(gradient, value)
        second_folded, has_w = grad.over[0] != grad.rows[0], len(grad.rows) > 1
        load, store = LOAD_SHARED[vector], STORE[vector]
        batch_size, acc_size, folded_size, groups = items * vector, acc_width * vector, items * vector * results, threads // lanes

        @jit.device
        def fold_rows(states: Any, staged: Any, at: Any, other_at: Any, columns: Any, count: Any) -> None:
            """The states of ``count`` rows."""
            batch = cuda.local.array(batch_size, element)
            others = cuda.local.array(batch_size, element)
            accumulators = cuda.local.array(acc_size, wide)
            reset(states)
            if not paired:
                for v in range(vector):
                    put_acc(accumulators, v * acc_width, 1, empty())
            source, other, row = int32(other_at if second_folded else at), int32(other_at), int32(0)
            while int32(row + items) <= count:
                for u in range(items):
                    load(staged, int32(source + int32(u * columns)), batch, u * vector)
                    if paired:
                        load(staged, int32(other + int32(u * columns)), others, u * vector)
                if paired:
                    for u in range(items):
                        add_row(states, batch, others, u * vector, 0)
                else:
                    add_columns(accumulators, batch, 0, items, row)
                row = int32(opaque(int32(row + items)))
                source, other = int32(source + int32(items * columns)), int32(other + int32(items * columns))
            if row < count:
                valid = int32(count - row)
                for u in range(items):
                    # behind the end the last row stands in, so that no load waits for a branch
                    behind = int32(min(int32(u), int32(valid - 1)) * columns)
                    load(staged, int32(source + behind), batch, u * vector)
                    if paired:
                        load(staged, int32(other + behind), others, u * vector)
                if paired:
                    for u in range(items):
                        if u < valid:
                            add_row(states, batch, others, u * vector, 0)
                else:
                    add_columns(accumulators, batch, 0, valid, row)
            if not paired and count > 0:
                for v in range(vector):
                    put(states, v * width, 1, acc_state(get_acc(accumulators, v * acc_width, 1), count, wide(0)))

        @jit.device
        def broadcast_rows(states: Any, staged: Any, at: Any, other_at: Any, columns: Any, count: Any, inside: Any) -> None:
            """Replaces ``count`` rows of x by what the gradient makes of them and of the states of their run, or by 0 unless it is ``inside``."""
            batch = cuda.local.array(batch_size, element)
            others = cuda.local.array(batch_size, element)
            folded = cuda.local.array(folded_size, wide)
            for v in range(vector):
                finished = finish(get(states, v * width, 1), wide(1), wide(1))
                for u in range(items):
                    if results == 1:
                        folded[u * vector + v] = finished
                    else:
                        for k in range(results):
                            folded[(u * vector + v) * results + k] = finished[k]
            row, source, other = int32(0), int32(at), int32(other_at)
            while inside and int32(row + items) <= count:
                for u in range(items):
                    load(staged, int32(source + int32(u * columns)), batch, u * vector)
                    if has_w:
                        load(staged, int32(other + int32(u * columns)), others, u * vector)
                for k in range(batch_size):
                    batch[k] = element_vjp(batch, others, others, others, k, folded, folded, 0, 0)
                for u in range(items):
                    store(staged, int32(source + int32(u * columns)), batch, u * vector)
                row = int32(opaque(int32(row + items)))
                source, other = int32(source + int32(items * columns)), int32(other + int32(items * columns))
            while row < count:
                load(staged, source, batch, 0)
                if has_w:
                    load(staged, other, others, 0)
                for v in range(vector):
                    batch[v] = element_vjp(batch, others, others, others, v, folded, folded, 0, 0) if inside else element(0)
                store(staged, source, batch, 0)
                row, source, other = int32(opaque(int32(row + 1))), int32(source + columns), int32(other + columns)

        @jit.device
        def scan_shares(states: Any, neighbour: Any, saved: Any, opens: Any, group: Any, goes_on: Any, whole: Any, step: Any) -> None:
            """A segmented scan over the groups, against ``step``, which is 1 or −1: states of a share become those of its run up to there.

            A run ``goes_on`` into the share of group − step; it comes from there where it has the ``whole`` share. ``neighbour`` gets the states of
            group − step, where the run goes on. All threads call it. Steps of the scan end when no run is open.
            """
            thread, has_share = int32(cuda.threadIdx.x), group < groups
            leads = has_share and thread == group * lanes
            is_open, distance = int32(has_share and goes_on and whole), int32(lanes * step)
            for k in range(scalars):
                saved[k * threads + thread] = states[k]
            if leads:
                opens[group] = is_open
            reach = int32(step)
            while cuda.syncthreads_or(is_open):
                was_open = int32(0)
                if is_open:
                    was_open = opens[group - reach]
                    for k in range(scalars):
                        neighbour[k] = saved[k * threads + thread - distance]
                cuda.syncthreads()
                if is_open:
                    if step > 0:
                        combine_left(states, neighbour)
                    else:
                        combine_right(states, neighbour, 0, 1)
                    for k in range(scalars):
                        saved[k * threads + thread] = states[k]
                    if leads:
                        opens[group] = was_open
                is_open = was_open
                distance, reach = int32(opaque(distance + distance)), int32(reach + reach)
            if has_share and goes_on:
                for k in range(scalars):
                    neighbour[k] = saved[k * threads + thread - lanes * step]
            cuda.syncthreads()

        self.fold_rows, self.broadcast_rows, self.scan_shares = fold_rows, broadcast_rows, scan_shares
        self.combine_left, self.combine_right, self.reset = combine_left, combine_right, reset
        self.scalars, self.width, self.state_type, self.results = scalars, width, wide, results


@functools.cache
def shares_of(gradient: str, value: str, vector: int, lanes: int, threads: int, items: int) -> Shares:
    """The one :class:`Shares` for these."""
    return Shares(gradient, value, vector, lanes, threads, items)
