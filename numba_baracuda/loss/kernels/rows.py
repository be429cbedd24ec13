"""Rows of logits: the loss of each, and the gradient of the loss in their place."""

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...core.dtypes import BY_NAME
from ...device.block import block_reduce
from ...device.build import opaque, opaque_pointer
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, LOAD_SHARED, LOAD_STREAM, STORE_STREAM, prefetch
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar, Tuple
from ..geometry import GRADIENT, PLAIN, SQUARE, WEIGHTS
from .compact import class_of
from .logits import NOWHERE, absorbers_of, floor_of, logits_of, power_of, sums_of

_SUM = Monoid("sum", (0,), lambda a, b: a + b)
#: bytes that one instruction brings to L2
_LINE = 128


@jit.kernel
def cross_entropy_rows(
    *, value: str, label: str, upstream: str, vector: int, steps: int, ahead: int, threads: int, held: int, gradient: bool, smoothed: bool,
    squared: bool, scaled: bool, capped: bool, sharp: bool, biased: bool, weighted: bool, row_weighted: bool, ranked: bool,
) -> Any:  # fmt: skip
    """``losses[r] = log Σⱼ exp z[r, j] − z[r, target[r]]`` of rows in a slab, and ``x[r, j] = (softmax(z[r])ⱼ − 1[j = target[r]]) · factor``.

    A block takes row after row, ``gridDim`` apart. The first ``held`` classes of a row are copied to shared memory, and their greatest logit and sum
    folded ``ahead`` accesses a lane later; the gradient is made of what stays there, and each place it has used is filled with the next row's logits
    at once, so that memory is read and written at all times. A place belongs to one lane, which needs no barrier for it. The classes behind are read
    last, ``steps`` accesses a lane in flight, and once more right after, while they are in L2. A row whose target is left out, or is no class, has
    loss and gradient 0 and is not read. The element at the target is made in the accumulator's type, by the lane that wrote the elements around it,
    and rounded once like all others. z = x + bias; ``scaled``, ``scale`` times that; ``capped``, cap · tanh(z / cap), where ``cap`` holds the cap and
    its inverse; ``sharp``, by a tanh without an error of its own, which a large cap would multiply.

    ``smoothed``: (1 − a) of the loss above and a / classes of Σⱼ wⱼ (log Σ − zⱼ), wⱼ = 1 or the class's weight. ``squared``: plus ``square`` ·
    (log Σ)². ``weighted``: the loss above times its class's weight; ``row_weighted``, all of it times the row's. ``upstream`` is the element type of
    a factor ``dy`` of each row's gradient, or "". ``ranked``: the first greatest class to ``predicted``, and whether it is the target to ``hits``.
    Bytes: rows · classes · value read once, and those behind ``held`` twice, and written.
    """
    wide, (widen, narrow), element = accumulator_type(value), conversions_of(value), jit.SCALARS[value]
    monoid, power, floor, (shape, slope) = sums_of(value, ranked), power_of(wide), floor_of(value), logits_of(value, scaled, capped, sharp)
    infinite, size, gap, line = wide(math.inf), steps * vector, threads * vector, _LINE // (vector * BY_NAME[value].itemsize)
    fold, add = block_reduce(monoid, (wide, wide, int32)[: monoid.width], threads), block_reduce(_SUM, wide, threads)
    load, load_last, load_kept, store, until_ahead = LOAD[vector], LOAD_STREAM[vector], LOAD_SHARED[vector], STORE_STREAM[vector], await_copies(ahead)
    dy_widen = conversions_of(upstream or value)[0]

    @jit.device
    def logit(x: Any, bias: Any, column: Any, scale: Any, cap: Any) -> Any:
        return shape(widen(x) + widen(bias[column]) if biased else widen(x), scale, cap)

    @jit.device
    def weight_of(class_weight: Any, column: Any) -> Any:
        return class_weight[column] if weighted else wide(1)

    absorb, absorb_several, absorb_one = absorbers_of(value, vector, steps, gap, logit, weight_of, weighted, smoothed, ranked)

    @jit.device
    def pulled(x: Any, column: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, pull: Any) -> Any:
        """The gradient at a class that is not the target; ``pull`` is the greatest logit, the factor of the softmax and what is taken from it."""
        z = logit(x, bias, column, scale, cap)
        found = pull[1] * power(z, pull[0])
        if smoothed:
            found -= pull[2] * weight_of(class_weight, column)
        return narrow(found * slope(z, cap) if capped else found)

    def caller(count: int) -> Any:
        """``call_up(…, k)`` brings to L2 ``count`` accesses, from the ``k``-th behind those that are held, or what is to be the next row's first."""
        lines = 32 // line

        @jit.device
        def call_up(x: Any, base: Any, following: Any, limit: Any, end: Any, k: Any) -> None:
            part = int32(cuda.threadIdx.x % 32)
            if part < count * lines:
                at = limit + (k + part // lines) * gap + (cuda.threadIdx.x - part + part % lines * line) * vector
                behind = limit + (end - limit + gap - 1) // gap * gap
                if at < end:
                    prefetch(x, base + at)
                elif following >= 0 and 0 <= at - behind < end:
                    prefetch(x, following + at - behind)

        return call_up

    call_up, call_up_several = caller(1), caller(steps)

    @jit.device
    def give(x: Any, old: Any, pull: Any, column: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, shared: Any, raw: Any) -> None:
        """The gradient of an access of what is held."""
        load_kept(shared, column, raw, 0)
        for k in range(vector):
            raw[k] = pulled(raw[k], column + k, bias, class_weight, scale, cap, pull)
        store(x, old + column, raw, 0)

    @jit.device
    def arrive(state: Any, back: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, shared: Any, raw: Any) -> Any:
        """Ends a group of copies, and gives the state with the access that was copied ``ahead`` groups before."""
        commit_copies()
        until_ahead()
        load_kept(shared, back, raw, 0)
        return absorb(state, raw, back, int32(1), bias, class_weight, scale, cap)

    @jit.device
    def turn(
        x: Any, giving: Any, old: Any, pull: Any, taking: Any, base: Any, following: Any, limit: Any, end: Any, bias: Any, class_weight: Any,
        scale: Any, cap: Any, shared: Any,
    ) -> Any:  # fmt: skip
        """Makes the gradient of the held part of one row while the next takes its places; gives the state of a lane's part of the latter."""
        raw = cuda.local.array(vector, element)
        state = -infinite, wide(0), int32(NOWHERE), wide(0), wide(0)
        column, back, soon = int32(cuda.threadIdx.x * vector), int32(cuda.threadIdx.x * vector), int32(0)
        if not taking:
            while giving and column < limit:
                give(x, old, pull, column, bias, class_weight, scale, cap, shared, raw)
                column = int32(opaque(column + gap))
            return state
        while soon < ahead:  # nothing has arrived
            if column < limit:
                if giving:
                    give(x, old, pull, column, bias, class_weight, scale, cap, shared, raw)
                copy_async(x, base + column, shared, column)
            commit_copies()
            column, soon = int32(opaque(column + gap)), int32(soon + 1)
        while column < limit:
            if giving:
                give(x, old, pull, column, bias, class_weight, scale, cap, shared, raw)
            copy_async(x, base + column, shared, column)
            state = arrive(state, back, bias, class_weight, scale, cap, shared, raw)
            column, back = int32(opaque(column + gap)), int32(back + gap)
        soon = int32(0)
        while back < limit:  # nothing is to be copied any more
            call_up(x, base, following, limit, end, soon)
            state = arrive(state, back, bias, class_weight, scale, cap, shared, raw)
            back, soon = int32(opaque(back + gap)), int32(soon + 1)
        return state

    @jit.device
    def fold_behind(
        state: Any, x: Any, base: Any, following: Any, limit: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any,
    ) -> Any:  # fmt: skip
        """The state with a lane's part of the classes behind those that are held."""
        raw = cuda.local.array(size, element)
        end = classes // vector * vector
        column, soon = limit + int64(cuda.threadIdx.x) * vector, int32(ahead)
        while column < end:
            valid = int32(0)
            for s in range(steps):
                inside = column + s * gap < end
                load(x, base + (column + s * gap if inside else column), raw, s * vector)
                valid = int32(valid + int32(inside))
            if gradient:
                call_up_several(x, base, following, limit, end, soon)
                soon = int32(soon + steps)
            state = absorb_several(state, raw, column, valid, bias, class_weight, scale, cap)
            column = opaque(column + steps * gap)
        last = end + cuda.threadIdx.x
        if last < classes:
            state = absorb_one(state, logit(x[base + last], bias, last, scale, cap), last, class_weight)
        return state

    @jit.device
    def give_behind(x: Any, base: Any, pull: Any, limit: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any) -> None:
        """The gradient of a lane's part of them; the last come first, as the caches hold what was read last."""
        raw = cuda.local.array(size, element)
        end = classes // vector * vector
        last = end + cuda.threadIdx.x
        if last < classes:
            x[base + last] = pulled(x[base + last], last, bias, class_weight, scale, cap, pull)
        first = limit + int64(cuda.threadIdx.x) * vector
        batches = (max(end - first, int64(0)) + steps * gap - 1) // (steps * gap)
        while batches > 0:
            batches -= 1
            column = first + batches * (steps * gap)
            for s in range(steps):
                load_last(x, base + (column + s * gap if column + s * gap < end else first), raw, s * vector)
            for s in range(steps):
                if column + s * gap < end:
                    for k in range(vector):
                        raw[s * vector + k] = pulled(raw[s * vector + k], column + s * gap + k, bias, class_weight, scale, cap, pull)
                    store(x, base + column + s * gap, raw, s * vector)

    @jit.device
    def folded(state: Any) -> Any:
        """The greatest logit of the block's lanes, the sum of their powers and the first class that has it."""
        if ranked:
            return fold((state[0], state[1], state[2]))
        top, total = fold((state[0], state[1]))
        return top, total, state[2]

    @jit.device
    def clear(x: Any, base: Any, classes: Any) -> None:
        zeros = cuda.local.array(vector, element)
        for k in range(vector):
            zeros[k] = narrow(wide(0))
        end = classes // vector * vector
        column = int64(cuda.threadIdx.x) * vector
        while column < end:
            store(x, base + column, zeros, 0)
            column += gap
        if end + cuda.threadIdx.x < classes:
            x[base + end + cuda.threadIdx.x] = zeros[0]

    def cross_entropy_rows(
        x: Ptr[value], target: Ptr[label], bias: Ptr[value], class_weight: Ptr[wide], row_weight: Ptr[wide],
        dy: Ptr[upstream or wide], factors: Ptr[wide], losses: Ptr[wide],
        squares: Ptr[wide], hits: Ptr[wide], lse: Ptr[wide], predicted: Ptr[int64],
        first: int64, rows: int64, classes: int64, stride: int64, ignore: int64, smoothing: Scalar[wide],
        square: Scalar[wide], scale: Scalar[wide], cap: Tuple[wide, 2],
        strides: Extents[5],
    ) -> None:  # fmt: skip
        shared = opaque_pointer(cuda.shared.array(0, element, 16))
        lane, step, end = int32(cuda.threadIdx.x), int64(cuda.gridDim.x), classes // vector * vector
        limit = int32(min(end, int64(held)))
        goal, old, mine, aimed, pull = int64(-1), int64(0), False, wide(0), (wide(0), wide(0), wide(0))  # of the row before
        index = int64(cuda.blockIdx.x)
        while index < (rows + step if gradient else rows):
            row, base = first + index, index * stride
            which = class_of(target, row * strides[0], ignore, classes) if index < rows else int64(-1)
            state = -infinite, wide(0), int32(NOWHERE), wide(0), wide(0)
            following = base + step * stride if index + step < rows else int64(-1)
            if gradient:
                if goal >= 0:
                    give_behind(x, old, pull, limit, classes, bias, class_weight, scale, cap)
                state = turn(x, goal >= 0, old, pull, which >= 0, base, following, limit, end, bias, class_weight, scale, cap, shared)
                if goal >= 0 and mine:
                    x[old + goal] = narrow(aimed)
            if which >= 0:
                state = fold_behind(state, x, base, following, limit, classes, bias, class_weight, scale, cap)
                top, total, place = folded(state)
                mine, level = lane == (which // vector % threads if which < end else which - end), wide(0)
                if smoothed or squared or mine:
                    level = wide(math.log(total))
                whole = top + level if top < infinite else top
                pick = weight_of(class_weight, which) * (wide(1) - smoothing if smoothed else wide(1))
                even = smoothing / wide(classes) if smoothed else wide(0)
                if weighted:
                    pick, even = pick * factors[PLAIN], even * factors[PLAIN]
                factor = row_weight[row * strides[1]] if row_weighted else wide(1)
                more = square * factors[SQUARE] * whole if squared else wide(0)
                spread = wide(0)
                if smoothed:
                    spread = add(state[4] * level - (state[3] + state[4] * floor(state[0] - floor(top))))
                aim = wide(0)
                if mine:
                    aim = logit(x[base + which], bias, which, scale, cap)
                    loss = pick * ((top - aim) + level)
                    if smoothed:
                        loss += even * spread
                    if squared:
                        loss += more * whole
                        squares[row] = factor * square * whole * whole
                    losses[row] = factor * loss
                    if ranked:
                        found = int64(place) if place < NOWHERE else int64(0)  # nothing but −∞
                        hits[row], predicted[row * strides[4]] = wide(int32(found == which)), found
                    lse[row * strides[3]] = whole
                if gradient:
                    factor *= factors[GRADIENT]
                    if upstream != "":
                        factor *= wide(dy_widen(dy[row * strides[2]]))
                    share, part = pick, factor / total
                    if smoothed:
                        share += even * factors[WEIGHTS]
                    if squared:
                        share += wide(2) * more
                    pull = top, share * part, factor * even
                    if mine:  # differences of what is nearly equal come first
                        own = power(aim, top)
                        aimed = pick * (own - total)
                        if smoothed:
                            aimed += even * (factors[WEIGHTS] * own - weight_of(class_weight, which) * total)
                        if squared:
                            aimed += wide(2) * more * own
                        aimed *= part * slope(aim, cap)
            elif index < rows:
                if gradient:
                    clear(x, base, classes)
                if lane == 0:
                    losses[row] = wide(0)
                    if squared:
                        squares[row] = wide(0)
                    if ranked:
                        hits[row], predicted[row * strides[4]] = wide(0), int64(-1)
                    lse[row * strides[3]] = wide(0)
            goal, old = which, base
            index += step

    return cross_entropy_rows, lambda rows: (rows, threads, held * BY_NAME[value].itemsize)
