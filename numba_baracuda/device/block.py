"""Collectives of a block, for any monoid: reduction and scan by shuffles and one exchange through shared memory.

Factories as in :mod:`.warp`, with the size of the block as a constant. All ``threads`` threads of a 1-D block of that size call a collective
together, outside of branches that some of them do not take. Every collective owns its shared array: it can be called again and again, in loops too,
and beside others, without a barrier by the caller. The caller's own shared memory needs barriers of its own: in a block of one warp there are none
here.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..algebra import Monoid
from ..core.errors import InvalidProblem
from ..runtime import jit
from .warp import States, fold_of, kinds_of, scan_of, states_of


def _threads_of(where: str, threads: Any) -> int:
    """The size of a block, or :class:`InvalidProblem`."""
    if threads not in range(1, 1025):
        raise InvalidProblem(f"{where}: threads is {threads!r}, wants 1 to 1024")
    return int(threads)


@functools.cache
def reach_of(width: int) -> tuple[Any, Any]:
    """``get(arrays, at)`` and ``put(arrays, at, state)`` of states of so many scalars, whose scalars are the items ``at`` of the first arrays."""
    if width == 1:
        get = jit.device(lambda arrays, at: arrays[0][at])
    elif width == 2:
        get = jit.device(lambda arrays, at: (arrays[0][at], arrays[1][at]))
    elif width == 3:
        get = jit.device(lambda arrays, at: (arrays[0][at], arrays[1][at], arrays[2][at]))
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
            if width > 3:
                arrays[3][at] = state[3]

    return get, put


def _exchange(kinds: tuple[Any, ...], slots: int, read: Any) -> Any:
    """``exchange(gives, slot, state)``: threads that give put a state into shared memory, then all of them ``read(arrays)`` it.

    Each scalar of a state has an array of its own. The first barrier waits for the readers of an earlier call, the second for the writers.
    """
    width, (_, put) = len(kinds), reach_of(len(kinds))
    first, second, third, fourth = (*kinds, *kinds[:1] * 3)[:4]

    @jit.device
    def through(arrays: Any, gives: Any, slot: Any, state: Any) -> Any:
        cuda.syncthreads()
        if gives:
            put(arrays, slot, state)
        cuda.syncthreads()
        return read(arrays)

    @jit.device
    def exchange(gives: Any, slot: Any, state: Any) -> Any:
        a = cuda.shared.array(slots, first)
        if width == 1:
            return through((a,), gives, slot, state)
        b = cuda.shared.array(slots, second)
        if width == 2:
            return through((a, b), gives, slot, state)
        c = cuda.shared.array(slots, third)
        if width == 3:
            return through((a, b, c), gives, slot, state)
        return through((a, b, c, cuda.shared.array(slots, fourth)), gives, slot, state)

    return exchange


def _fold_to_lane_0(states: States, threads: int) -> Any:
    """``fold(state)``: the fold of the lanes that the caller's warp has in a block of ``threads``, in lane 0; other lanes get part of it."""
    combine, of_lane, of_upper = states.combine, states.of_lane, states.of_upper
    whole, steps = threads % 32 == 0, (min(threads, 32) - 1).bit_length()

    @jit.device
    def fold(state: Any) -> Any:
        lane = int32(cuda.laneid)
        present = int32(threads) - int32(cuda.threadIdx.x) + lane
        for k in range(steps):
            step = int32(1 << k)
            if whole:
                state = combine(state, of_upper(state, step))
            else:
                other = of_lane(state, lane + step if lane + step < present else lane)
                if lane + step < present:
                    state = combine(state, other)
        return state

    return fold


def block_reduce(monoid: Monoid, kind: Any, threads: int) -> Any:
    """``f(state)`` = state₀ ⊕ state₁ ⊕ … over the ``threads`` threads of a 1-D block, the same in every thread.

    Scope: the block; all its threads call it. ``threads`` is any of 1 … 1024; multiples of 32 are the fastest.
    Cost: log₂ 32 + log₂ warps shuffles a scalar (twice that for 64 bits), one state a warp in shared memory, and 2 barriers: one between writing and
    reading that memory, and one before, which lets the function be called again. A block of one warp needs no memory and no barrier.
    Order: a balanced tree over the threads; where ``threads`` is no multiple of 32, warps are combined from the left. It is fixed for a given
    ``threads``. NaN: the monoid's. Raises :class:`InvalidProblem` for a monoid, kind or ``threads`` that is none.
    """
    states = states_of(monoid, kinds_of("block_reduce", monoid, kind))
    return _block_reduce(states, _threads_of("block_reduce", threads))


@functools.cache
def _block_reduce(states: States, threads: int) -> Any:
    cast, fold, join = states.cast, _fold_to_lane_0(states, threads), join_warps(states, threads)
    return jit.device(lambda state: join(fold(cast(state))))


@functools.cache
def join_warps(states: States, threads: int) -> Any:
    """``join(state)``: the fold of the states in lane 0 of all warps of a block of ``threads``, the same in every thread."""
    identity, combine, of_lane = states.identity, states.combine, states.of_lane
    warps = -(-threads // 32)
    if warps == 1:
        return jit.device(lambda state: of_lane(state, 0))
    (get, _), whole = reach_of(len(states.kinds)), threads % 32 == 0
    slots = 1 << (warps - 1).bit_length()
    low_bits, fold_warps = slots - 1, fold_of(states, slots)

    @jit.device
    def read(totals: Any) -> Any:
        if whole:
            slot = int32(cuda.threadIdx.x & low_bits)
            return fold_warps(get(totals, slot) if slot < warps else identity())
        total = get(totals, 0)
        for warp in range(1, warps):
            total = combine(total, get(totals, warp))
        return total

    exchange = _exchange(states.kinds, warps, read)
    return jit.device(lambda state: exchange(cuda.threadIdx.x & 31 == 0, cuda.threadIdx.x >> 5, state))


@functools.cache
def scan_warps(states: States, threads: int) -> Any:
    """``scan(gives, state)`` = (fold of the warps before the caller's, fold of all), of the state that one thread of each warp gives."""
    identity, combine, warps, (get, _) = states.identity, states.combine, -(-threads // 32), reach_of(len(states.kinds))

    @jit.device
    def read(totals: Any) -> tuple[Any, Any]:
        before = identity()
        total = get(totals, 0)
        for warp in range(1, warps):
            if cuda.threadIdx.x >> 5 == warp:
                before = total
            total = combine(total, get(totals, warp))
        return before, total

    exchange = _exchange(states.kinds, warps, read)
    return jit.device(lambda gives, state: exchange(gives, cuda.threadIdx.x >> 5, state))


def block_scan(monoid: Monoid, kind: Any, threads: int, exclusive: bool = False) -> Any:
    """``f(state)`` = (state₀ ⊕ … ⊕ stateₖ, total) in thread k of a 1-D block; ``exclusive`` leaves stateₖ out: thread 0 has the identity.

    Scope: the block; all its threads call it. ``threads`` is any of 1 … 1024.
    Cost: 5 shuffles a scalar, one more if exclusive (twice that for 64 bits), one state a warp in shared memory, warps − 1 combinations in every
    thread, and 2 barriers: one between writing and reading that memory, and one before, which lets the function be called again. A block of one warp
    needs no memory and no barrier.
    Order: :func:`~.warp.warp_scan` in each warp, warps combined from the left; fixed for a given ``threads``. So the exclusive prefix of a thread
    is the inclusive one of the thread before it, and the total that of the last thread, to the last bit. NaN: the monoid's.
    After Hillis and Steele (1986) in the warp. Raises :class:`InvalidProblem` for a monoid, kind or ``threads`` that is none.
    """
    states = states_of(monoid, kinds_of("block_scan", monoid, kind))
    return _block_scan(states, _threads_of("block_scan", threads), bool(exclusive))


@functools.cache
def _block_scan(states: States, threads: int, exclusive: bool) -> Any:
    cast, identity, combine, of_lane, of_lower = states.cast, states.identity, states.combine, states.of_lane, states.of_lower
    last = threads - 1
    several = threads > 32
    scan, exchange = scan_of(states, 32 if several else 1 << last.bit_length()), scan_warps(states, threads)

    @jit.device
    def block_scan(state: Any) -> tuple[Any, Any]:
        prefix = scan(cast(state))
        lane = cuda.threadIdx.x & 31
        if several:
            before, total = exchange(lane == 31 or cuda.threadIdx.x == last, prefix)
        else:
            before, total = identity(), of_lane(prefix, int32(last))
        if exclusive:
            prefix = of_lower(prefix, int32(1))
            if lane == 0:
                prefix = before
        if cuda.threadIdx.x >= 32 and (lane > 0 or not exclusive):
            prefix = combine(before, prefix)
        return prefix, total

    return block_scan
