"""Gradients of folds, and softmax, of rows of few bytes in short runs in one launch: a thread has neighbouring rows in registers, and stores them."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import SUM, Monoid
from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.order import start_number
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...device.warp import segmented_scan_of, states_of
from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import FoldAndBroadcastShort
from .long_runs import FOUND, all_looked, begin_looked, looker_of
from .states import heads_behind, run_states_of
from .vjp import vjp_parts_of


@functools.cache
def run_totals_of(monoid: Monoid, kind: Any, share: int, threads: int) -> Any:
    """``totals(values, heads, headed, tails, ends)``: each of a thread's ``share`` values becomes what the monoid, of one scalar, makes of its run.

    All threads of the block call it, with rows that follow one another. Bit u of ``heads`` is set where a run begins at row u; ``headed`` are the
    lanes of the warp that have some. A segmented scan over the lanes and a step over the warps carry runs on, so a run has rows of two neighbouring
    warps at most; the thread in which it ends gives its total to the others. ``tails`` and ``ends`` are shared memory, an element for each warp. What
    runs are that have rows outside the block is undefined.
    """
    warps, states = threads // 32, states_of(monoid, (kind,))
    identity, combine, scan = states.identity, states.combine, segmented_scan_of(states, 32)

    @jit.device
    def totals(values: Any, heads: Any, headed: Any, tails: Any, ends: Any) -> None:
        lane, warp, tail = int32(cuda.laneid), int32(cuda.threadIdx.x >> 5), identity()
        for u in range(share):
            tail = values[u] if heads >> u & 1 else combine(tail, values[u])
        upto, later = int32(headed & int32((2 << lane) - 1)), int32(headed & int32(-2 << lane))
        tail = scan(tail, int32(lane - max(int32(31 - cuda.clz(upto)), int32(0))))
        if lane == 31:
            tails[warp] = tail
        cuda.syncthreads()
        carry_in = tails[max(int32(warp - 1), int32(0))]
        tail = combine(carry_in, tail) if upto == 0 else tail
        carry = cuda.shfl_up_sync(-1, tail, 1)
        carry = carry_in if lane == 0 else carry
        ended = carry
        for u in range(share):
            ended = carry if int32(heads & -heads) == int32(1 << u) else ended
            carry = values[u] if heads >> u & 1 else combine(carry, values[u])
            values[u] = carry
        if lane == int32(max(int32(cuda.ffs(headed) - 1), int32(0))):
            ends[warp] = ended
        total = cuda.shfl_sync(-1, ended, int32(max(int32(cuda.ffs(later) - 1), int32(0))))
        cuda.syncthreads()
        total = ends[min(int32(warp + 1), int32(warps - 1))] if later == 0 else total
        for k in range(share):
            u = share - 1 - k
            total = values[u] if heads >> u + 1 & 1 else total
            values[u] = total

    return totals


@functools.cache
def states_folder_of(monoid: str, value: str, share: int, threads: int) -> Any:
    """``fold(batch, others, at, step, heads, headed, states, tails, ends)``: of a thread's ``share`` rows the states of their runs.

    ``states[u · width]`` and those behind it are the state of the run of row u, whose element is ``batch[at + u · step]``, by
    :func:`run_totals_of`. A state is one scalar, or a pivot that the elements choose, and the sum about it.
    """
    typed, kind, widen = typed_monoid(monoid, value), accumulator_type(value), conversions_of(value)[0]
    lift, settle, paired = jit.device(typed.lift), jit.device(typed.settle), typed.pairs
    put, choose, pivoted = state_accessors(2)[1], typed.choose_pivot, typed.choose_pivot is not None
    combine_all = run_totals_of(typed if choose is None else Monoid("pivot", typed.identity[:1], choose), kind, share, threads)
    add_up = run_totals_of(SUM, kind, share, threads)
    terms: Any = jit.device(typed.pivot_terms) if pivoted else None

    @jit.device
    def fold(batch: Any, others: Any, at: Any, step: Any, heads: Any, headed: Any, states: Any, tails: Any, ends: Any) -> None:
        if pivoted:
            pivots, sums = cuda.local.array(share, kind), cuda.local.array(share, kind)
            for u in range(share):
                pivots[u] = widen(batch[at + u * step])
            combine_all(pivots, heads, headed, tails, ends)
            for u in range(share):
                settled, scale = settle(pivots[u], kind(1))
                sums[u] = terms(widen(batch[at + u * step]), settled, scale)[0]
            add_up(sums, heads, headed, tails, ends)
            for u in range(share):
                put(states, 2 * u, 1, (pivots[u], sums[u]))
        else:
            for u in range(share):
                states[u] = lift(widen(batch[at + u * step]), widen(others[at + u * step]) if paired else kind(1), kind(1))
            combine_all(states, heads, headed, tails, ends)

    return fold


@jit.kernel
def fold_and_broadcast_short(
    *, gradient: str, value: str, index: str, columns: int, share: int, threads_per_block: int = FoldAndBroadcastShort.threads_per_block
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_runs` of rows of few bytes in short runs.

    A thread has ``share`` neighbouring rows in registers. Segmented scans over lanes and warps give each row the state of its run, see
    :func:`run_totals_of`, and the thread stores what becomes of the rows. A block stores some rows at a time, of the ``tile`` rows that are its own,
    and reads ``halo`` rows before and behind them, too, so that it has all of each run. The first ``lookers`` blocks look for runs of ``span`` rows
    or twice as many, which is at most ``halo``, as those of :func:`fold_and_broadcast_runs` do. Bytes: as :func:`fold_and_broadcast_runs`, and those
    before and behind once more from the caches. Method: segmented scan as in Sengupta, Harris, Zhang and Owens, "Scan primitives for GPU computing"
    (Graphics Hardware 2007).

    Constants and parameters as :mod:`.` lists them, but ``columns`` is a constant; ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`, all
    contiguous; and

    * ``gradient``: the settled one, where there is one
    * ``share``: rows of a thread, which are multiples of 16 bytes in each operand, as are their ids; ``tile`` and ``halo`` are multiples of it
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, state, threads = GRADIENTS[gradient], BY_NAME[value].accumulator, threads_per_block
    monoid, widen, unsigned = typed_monoid(grad.fold, value), conversions_of(value)[0], jit.SCALARS["u" + index[1:]]
    finish_states = run_states_of(grad.fold, value, 1, state).finish_states
    fold, width, from_terms = states_folder_of(grad.fold, value, share, threads), monoid.width, grad.from_terms
    parts, settle = vjp_parts_of(gradient, value), jit.device(monoid.settle)
    prepare, apply = parts.prepare, parts.apply
    terms: Any = jit.device(monoid.pivot_terms) if from_terms else None
    has_w, has_g, has_y, results = len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1, grad.results
    swapped, wide_rows, wide_ids, warps = grad.over[0] != grad.rows[0], BY_NAME[value].vector, BY_NAME[index].vector, threads // 32
    load, load_ids, store = LOAD_STREAM[wide_rows], LOAD_STREAM[wide_ids], STORE_STREAM[wide_rows]
    heads_among, look, batch_size, states_size = heads_behind(share), looker_of(threads), share * columns, share * width

    def fold_and_broadcast_short(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32], output: Ptr[value],
        rows: int64, segments: int64, tile: int64, halo: int64, lookers: int64, span: int64,
    ) -> None:  # fmt: skip
        tails, ends = cuda.shared.array(warps, wide), cuda.shared.array(warps, wide)
        batch, others = cuda.local.array(batch_size, element), cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(share, index_type)
        states, one_state = cuda.local.array(states_size, wide), cuda.local.array(width, wide)
        folded, some_g, some_y = cuda.local.array(results, wide), cuda.local.array(1, element), cuda.local.array(1, element)
        started = int64(start_number())
        if started < lookers:
            look(started, lookers, ids, rows, span, guard)
            return
        # most blocks begin after a long run was found, and do nothing
        looked = begin_looked(guard)
        if cuda.syncthreads_or(int32(looked >= FOUND)):
            return
        own_first, mine, own = (started - lookers) * tile, int32(cuda.threadIdx.x * share), int32(threads * share - 2 * halo)
        stop = min(own_first + tile, rows)
        while own_first < stop:
            first = max(own_first - halo, int64(0)) + mine
            valid = int32(min(max(rows - first, int64(0)), int64(share)))
            if valid == share:
                for k in range(0, share, wide_ids):
                    load_ids(ids, first + k, batch_ids, k)
                for k in range(0, batch_size, wide_rows):
                    load(x, first * columns + k, batch, k)
                    if has_w:
                        load(w, first * columns + k, others, k)
            else:
                for u in range(share):
                    row = min(first + u, rows - 1)
                    batch_ids[u] = ids[row]
                    for v in range(columns):
                        batch[u * columns + v] = x[row * columns + v]
                        if has_w:
                            others[u * columns + v] = w[row * columns + v]
            previous = cuda.shfl_up_sync(-1, batch_ids[share - 1], 1)
            if cuda.laneid == 0:
                previous = ids[min(first, rows) - 1] if first > 0 else index_type(batch_ids[0] ^ index_type(1))
            # a run ends with the last row
            heads = int32(heads_among(batch_ids, previous) | (1 << valid if valid < share else 0))
            headed = int32(cuda.ballot_sync(-1, heads != 0))
            for v in range(columns):
                if swapped:
                    fold(others, batch, v, columns, heads, headed, states, tails, ends)
                else:
                    fold(batch, others, v, columns, heads, headed, states, tails, ends)
                for u in range(share):
                    at, identifier = u * columns + v, batch_ids[u]
                    if unsigned(identifier) < unsigned(segments):
                        place = int64(identifier) * columns + v
                        if has_g:
                            some_g[0] = g[place]
                        if has_y:
                            some_y[0] = y[place]
                        for k in range(width):
                            one_state[k] = states[u * width + k]
                        if from_terms:
                            settled, scale = settle(one_state[0], wide(1))
                            batch[at] = terms(widen(batch[at]), settled, scale)[0]
                        finish_states(one_state, 0, wide(0), folded)
                        q = folded[1] if results > 1 else wide(0)
                        batch[at] = apply(batch, others, at, int64(0), prepare(some_g, some_y, 0, folded[0], q))
                    else:
                        batch[at] = element(0)
            looked = all_looked(looked, int32(lookers), guard)
            if cuda.syncthreads_or(int32(looked >= FOUND)):
                return
            if own_first <= first < own_first + own:
                if valid == share:
                    for k in range(0, batch_size, wide_rows):
                        store(output, first * columns + k, batch, k)
                else:
                    for u in range(share):
                        if u < valid:
                            for v in range(columns):
                                output[(first + u) * columns + v] = batch[u * columns + v]
            own_first = opaque(own_first + own)

    return fold_and_broadcast_short
