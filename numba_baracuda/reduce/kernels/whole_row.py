"""One long row that all blocks share: folds, and gradients in one launch with their folds. Copies to shared memory run ahead of what uses them."""

import functools
from typing import Any, NamedTuple

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.order import fetch_add, fetch_add_acq_rel, load_acquire, store_relaxed
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, STORE_STREAM
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.arrivals import last_to_arrive
from ...kernels.batch import state_accessors, state_kind, typed_monoid
from ...kernels.elements import accumulator_type, origin_of
from ...kernels.thread_accumulator import group_reduce
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..tiling import THREADS
from .results import result_stores, splits_fold
from .vjp import ROW_TERMS, terms_at, vjp_of

#: words of ``counters``: the shares that blocks have begun, those that are folded, and the blocks that have left
BEGUN, FOLDED, LEFT, WORDS = 0, 1, 2, 3


class Shares(NamedTuple):
    """Device functions of a block's share of a row: every ``shares``-th round of ``items · THREADS`` vectors, of which a thread has ``items``.

    A thread copies its vectors of a round past its registers to shared memory, where it has room for ``groups`` rounds.

    * ``first_vector(share, shares, number)``: this thread's first vector of a round; it has every ``THREADS``-th from there on
    * ``room_of(number)``: where that is in shared memory
    * ``begin_round(x, staged, share, shares, number, head, vectors)`` starts to copy a round, if there is one with this number
    * ``await_round()`` waits until no more than ``groups`` − 1 rounds are on their way
    * ``single_of(share, head, vectors, extent)``: which of the elements before and behind all vectors is this thread's; ``extent`` or more if none
    * ``fold(x, staged, share, shares, rounds, head, vectors, extent)``: (accumulator, number of elements) of this thread; the last rounds are left
      in shared memory
    """

    first_vector: Any
    room_of: Any
    begin_round: Any
    await_round: Any
    single_of: Any
    fold: Any


@functools.cache
def shares_of(monoid: str, value: str, vector: int, items: int, groups: int) -> Shares:
    """The :class:`Shares` of a row of elements of a type, folded by a monoid."""
    element, load, round_vectors, size, accumulator = (
        jit.SCALARS[value],
        LOAD[vector],
        items * THREADS,
        items * vector,
        thread_accumulator_of(monoid, value),
    )
    add, add_vector = accumulator.add_batch(items, vector, 1, THREADS * vector), accumulator.add_batch(1, vector, 1, 0)
    add_one, empty, await_round = accumulator.add_batch(1, 1, 1, 0), accumulator.empty, await_copies(groups - 1)

    @jit.device
    def first_vector(share: Any, shares: Any, number: Any) -> Any:
        return (int64(number) * shares + share) * round_vectors + cuda.threadIdx.x

    @jit.device
    def room_of(number: Any) -> Any:
        return int32(number % groups) * round_vectors + int32(cuda.threadIdx.x)

    @jit.device
    def begin_round(x: Any, staged: Any, share: Any, shares: Any, number: Any, head: Any, vectors: Any) -> None:
        if number >= 0:
            own, room = first_vector(share, shares, number), room_of(number)
            for k in range(items):
                if own + k * THREADS < vectors:
                    copy_async(x, head + (own + k * THREADS) * vector, staged, (room + k * THREADS) * vector)
        commit_copies()

    @jit.device
    def single_of(share: Any, head: Any, vectors: Any, extent: Any) -> Any:
        thread = int64(cuda.threadIdx.x)
        position = thread if thread < head else thread + vectors * vector
        return position if share == 0 else int64(extent)

    @jit.device
    def fold(x: Any, staged: Any, share: Any, shares: Any, rounds: Any, head: Any, vectors: Any, extent: Any) -> Any:
        batch, single = cuda.local.array(size, element), cuda.local.array(1, element)
        acc, count = empty(), int32(0)
        for number in range(groups):
            begin_round(x, staged, share, shares, int64(number), head, vectors)
        number = int64(0)
        while number < rounds:
            await_round()
            first, room = first_vector(share, shares, number), room_of(number)
            if first + (items - 1) * THREADS < vectors:
                for k in range(items):
                    load(staged, (room + k * THREADS) * vector, batch, k * vector)
                acc = add(acc, batch, 0, head + first * vector, items, count)
                count = int32(count + size)
            elif items > 1:
                for k in range(items - 1):
                    if first + k * THREADS < vectors:
                        load(staged, (room + k * THREADS) * vector, batch, 0)
                        acc = add_vector(acc, batch, 0, head + (first + k * THREADS) * vector, 1, count)
                        count = int32(count + vector)
            following = number + groups
            begin_round(x, staged, share, shares, following, head, vectors)
            number += 1
        position = single_of(share, head, vectors, extent)
        if position < extent:
            single[0] = x[position]
            acc = add_one(acc, single, 0, position, 1, count)
            count = int32(count + 1)
        return acc, count

    return Shares(first_vector, room_of, begin_round, await_round, single_of, fold)


@jit.kernel
def fold_whole_row(*, monoid: str, value: str, result: str, vector: int, items: int, groups: int) -> Any:
    """:func:`fold_rows` for one contiguous row that is divided into ``shares``, one for each block; the last block combines their states.

    Copies of the rounds of a share to shared memory run ahead of what uses them. Order: fixed by the constants and ``shares``. Dynamic shared memory:
    ``groups · items · THREADS`` vectors. Bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``items``, ``groups``. ``arrivals`` [1]: 0 before and after; ``partials`` [shares, scalars
    of a state]; ``head``: elements before the first aligned vector; ``rounds``: how often a block takes ``items · THREADS`` vectors, the last time
    perhaps fewer.
    """
    element, wide, accumulator = jit.SCALARS[value], accumulator_type(value), thread_accumulator_of(monoid, value)
    own, origin_from, subtracts_origin = shares_of(monoid, value, vector, items, groups), origin_of(value), monoid_of(monoid).subtracts_origin
    fold_share, reduce_lanes, (store_result, store_partial) = own.fold, accumulator.reduce_lanes(THREADS), result_stores(monoid, value, result)
    fold_shares, reduce_warp = splits_fold(monoid, value, 1, 1, 32), group_reduce(monoid, value, 32)
    (get, _), width, kind = state_accessors(accumulator.state_width), accumulator.state_width, jit.SCALARS[state_kind(monoid, value)]

    def fold_whole_row(
        x: Ptr[value], arrivals: Ptr[int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        shares: int64, rounds: int64, extent: int64, head: int64, corrected_count: Scalar[state_kind(monoid, value)],
    ) -> None:  # fmt: skip
        staged, folded = cuda.shared.array(0, element), cuda.local.array(width, kind)
        share, origin = int32(cuda.blockIdx.x), wide(0)
        acc, count = fold_share(x, staged, share, shares, rounds, head, (extent - head) // vector, extent)
        if subtracts_origin:
            origin = origin_from(x[0])
        state = reduce_lanes(acc, count, origin)
        if cuda.threadIdx.x == 0:
            store_partial(partials, share, state)
        if not last_to_arrive(arrivals, 0, shares) or cuda.threadIdx.x >= 32:
            return
        fold_shares(partials, 0, shares, int32(cuda.threadIdx.x), 0, folded, int64(1), int64(0))
        state = reduce_warp(get(folded, 0, 1))
        if cuda.threadIdx.x == 0:
            store_result(y, 0, state, corrected_count)

    return fold_whole_row, lambda shares: (shares, THREADS, groups * items * THREADS * 16)


@jit.kernel
def fold_and_broadcast_whole_row(*, gradient: str, monoid: str, value: str, vector: int, items: int, groups: int) -> Any:
    """:func:`fold_and_broadcast_rows` for one contiguous row that is divided into ``shares``, about as many as there are resident blocks.

    A block takes the next share, folds it, and leaves its state in the workspace. When all shares are folded, each warp combines their states, and
    the block stores the gradient of its share, the last elements first. Each thread copies its ``items`` vectors of a round past its registers to
    shared memory, where it has room for ``groups`` rounds: the last ones stay there for the gradient, and L2 has others. A block waits only for
    shares that blocks have begun, so any number of resident blocks will do; one that begins late may find no share, and one that is early takes a
    second, whose elements it reads again. Order: fixed by the constants and ``shares``. Dynamic shared memory: ``groups · items · THREADS`` vectors.
    Bytes: extent · value read and written, and read once more less what blocks hold.

    Constants and parameters as :mod:`.` lists them, and: ``items``, ``groups``. ``counters`` [3]: 0 before and after; ``before`` [shares]: the share
    that the block of each share had before it, or −1; ``partials`` [shares, scalars of a state]; ``head``: elements before the first aligned
    vector, of x as of dx; ``rounds``: how often a block takes ``items · THREADS`` vectors, the last time perhaps fewer.
    """
    element, wide, row_vjp = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value)
    load, store, origin_from, subtracts_origin = LOAD[vector], STORE_STREAM[vector], origin_of(value), monoid_of(monoid).subtracts_origin
    accumulator, typed = thread_accumulator_of(monoid, value), typed_monoid(monoid, value)
    first_vector, room_of, begin_round, await_round, single_of, fold_share = shares_of(monoid, value, vector, items, groups)
    reduce_lanes, (_, store_partial) = accumulator.reduce_lanes(THREADS), result_stores(monoid, value, value)
    fold_shares, reduce_warp, finish = splits_fold(monoid, value, 1, 1, 32), group_reduce(monoid, value, 32), jit.device(typed.finish)
    (get, _), width, kind, results = state_accessors(typed.width), typed.width, jit.SCALARS[state_kind(monoid, value)], typed.results
    load_row_terms, element_vjp = row_vjp.load_row_terms, row_vjp.element_vjp

    @jit.device
    def next_share(counters: Any, box: Any) -> Any:
        """The share that the block takes next; those from the number of shares on do not exist. Calls are a barrier apart."""
        if cuda.threadIdx.x == 0:
            box[0] = fetch_add(counters, BEGUN, int32(1))
        cuda.syncthreads()
        return box[0]

    def fold_and_broadcast_whole_row(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value], counters: Ptr[int32], before: Ptr[int32],
        partials: Ptr[state_kind(monoid, value)],
        shares: int64, rounds: int64, extent: int64, head: int64, corrected_count: Scalar[wide], inverse_extent: Scalar[wide],
    ) -> None:  # fmt: skip
        staged, box = cuda.shared.array(0, element), cuda.shared.array(1, int32)
        batch, folded = cuda.local.array(vector, element), cuda.local.array(width, kind)
        row_terms = cuda.local.array(ROW_TERMS, wide)
        vectors, own = (extent - head) // vector, int32(-1)
        share = next_share(counters, box)
        while share < shares:
            origin = wide(0)
            acc, count = fold_share(x, staged, share, shares, rounds, head, vectors, extent)
            if subtracts_origin:
                origin = origin_from(x[0])
            state = reduce_lanes(acc, count, origin)
            if cuda.threadIdx.x == 0:
                store_partial(partials, share, state)
                before[share] = own
                fetch_add_acq_rel(counters, FOLDED, int32(1))
            own = share
            share = next_share(counters, box)
        if own >= 0:
            if cuda.threadIdx.x == 0:
                while load_acquire(counters, FOLDED) < shares:
                    pass
            cuda.syncthreads()
            fold_shares(partials, 0, shares, int32(cuda.laneid), 0, folded, int64(1), int64(0))
            finished = finish(reduce_warp(get(folded, 0, 1)), wide(corrected_count), kind(1))
            p_q = (finished, wide(0)) if results == 1 else finished
            load_row_terms(row_terms, 0, x, dy, y, int64(0), int64(0), int64(0), p_q)
        held = True
        while own >= 0:
            number = rounds - 1
            if not held:
                for back in range(groups):
                    begin_round(x, staged, own, shares, number - back, head, vectors)
            while number >= 0:
                await_round()
                first, room = first_vector(own, shares, number), room_of(number)
                for k in range(items):
                    if first + k * THREADS < vectors:
                        position = head + (first + k * THREADS) * vector
                        load(staged, (room + k * THREADS) * vector, batch, 0)
                        for v in range(vector):
                            batch[v] = element_vjp(batch[v], position + v, inverse_extent, terms_at(row_terms, 0))
                        store(dx, position, batch, 0)
                preceding = number - groups
                begin_round(x, staged, own, shares, preceding, head, vectors)
                number -= 1
            position = single_of(own, head, vectors, extent)
            if position < extent:
                dx[position] = element_vjp(x[position], position, inverse_extent, terms_at(row_terms, 0))
            own, held = before[own], False
        if cuda.threadIdx.x == 0 and fetch_add(counters, LEFT, int32(1)) == cuda.gridDim.x - 1:
            for k in range(WORDS):
                store_relaxed(counters, k, int32(0))

    return fold_and_broadcast_whole_row, lambda shares: (shares, THREADS, groups * items * THREADS * 16)
