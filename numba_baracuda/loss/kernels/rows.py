"""Rows of logits: the loss of each, and the gradient of the loss in their place."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda
from numba.cuda.types import float32, int32, int64

from ...algebra import Monoid
from ...device.block import block_reduce
from ...device.build import opaque
from ...device.numbers import exp2_approx, maximum, reciprocal_approx
from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...dtypes import BY_NAME
from ...kernels.elements import accumulator_of, conversions_of
from ...runtime import jit
from ..geometry import GRADIENT, SQUARE, WEIGHTS

_LOG2_E = math.log2(math.e)
#: behind every class
_NOWHERE = 0x7FFFFFFF


@functools.cache
def power_of(kind: Any) -> Any:
    """``power(z, top)`` = exp(z − top); in float32 by the machine's power of two, off by 2 ulp and an ulp of the exponent of z."""
    if kind == float32:
        return jit.device(lambda z, top: exp2_approx(z * float32(_LOG2_E) - top * float32(_LOG2_E)))
    return jit.device(lambda z, top: math.exp(z - top))


@functools.cache
def sums_of(value: str) -> Monoid:
    """States (m, s, t, c) of some logits: the greatest, Σ exp(z − m), a weighted sum, and the first class that has m.

    After Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). m is finite where no logit is.
    """
    power, lowest = power_of(accumulator_of(value)), BY_NAME[BY_NAME[value].accumulator].limits[0] / 2

    def combine(a: Any, b: Any) -> Any:
        top = maximum(a[0], b[0])
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[3] < b[3]))
        return top, a[1] * power(a[0], top) + b[1] * power(b[0], top), a[2] + b[2], a[3] if first else b[3]

    return Monoid("softmax", (lowest, 0.0, 0.0, _NOWHERE), combine)


@functools.cache
def _tanh_of(value: str) -> Any:
    """``tanh(x)``; for halves by a power of two and a reciprocal of the machine, off by some 2^-22."""
    wide = accumulator_of(value)
    if BY_NAME[value].itemsize > 2:
        return jit.device(lambda x: wide(math.tanh(x)))
    return jit.device(lambda x: float32(1) - float32(2) * reciprocal_approx(float32(1) + exp2_approx(x * float32(2 * _LOG2_E))))


@functools.cache
def _logits_of(value: str, scaled: bool, capped: bool) -> tuple[Any, Any]:
    """``shape(x, scale, cap)``: a class's logit as the loss takes it; and ``slope(z, cap)``, what its gradient is to be multiplied by."""
    wide, tanh = accumulator_of(value), _tanh_of(value)

    @jit.device
    def shape(x: Any, scale: Any, cap: Any) -> Any:
        z = x * scale if scaled else x
        return cap[0] * tanh(z * cap[1]) if capped else z

    @jit.device
    def slope(z: Any, cap: Any) -> Any:
        if not capped:
            return wide(1)
        share = z * cap[1]
        return (wide(1) - share) * (wide(1) + share)

    return shape, slope


@jit.kernel
def cross_entropy_rows(
    *, value: str, upstream: str, vector: int, steps: int, threads: int, held: int, gradient: bool, smoothed: bool, squared: bool, scaled: bool,
    capped: bool, biased: bool, weighted: bool, row_weighted: bool, ranked: bool,
) -> Any:  # fmt: skip
    """``losses[r] = log Σⱼ exp z[r, j] − z[r, target[r]]`` of rows in a slab, and ``x[r, j] = (softmax(z[r])ⱼ − 1[j = target[r]]) · factor``.

    A block takes a row, ``steps`` accesses a lane in flight: it folds greatest logit and sum in one read, and makes the gradient in a second, of
    which the first ``held`` elements come from shared memory. A row whose target is left out, or is no class, has loss and gradient 0 and is not
    read. The element at the target is made in the accumulator's type, by the lane that wrote the elements around it, and rounded once like all
    others. z = x + bias; ``scaled``, ``scale`` times that; ``capped``, cap · tanh(z / cap), where ``cap`` holds the cap and its inverse.

    ``smoothed``: (1 − a) of the loss above and a / classes of Σⱼ wⱼ (log Σ − zⱼ), wⱼ = 1 or the class's weight. ``squared``: plus ``square`` ·
    (log Σ)². ``weighted``: the loss above times its class's weight; ``row_weighted``, all of it times the row's. ``upstream`` is the element type of
    a factor ``dy`` of each row's gradient, or "". ``ranked``: the first greatest class to ``predicted``, and whether it is the target to ``hits``.
    Bytes: rows · classes · value read once or twice, and written.
    """
    wide, (widen, narrow), element = accumulator_of(value), conversions_of(value), jit.SCALARS[value]
    monoid, power, (shape, slope) = sums_of(value), power_of(accumulator_of(value)), _logits_of(value, scaled, capped)
    lowest, size, gap = wide(monoid.identity[0]), steps * vector, threads * vector
    fold = block_reduce(monoid, (wide, wide, wide, int32), threads)
    load, load_last, store, load_kept, store_kept = LOAD[vector], LOAD_STREAM[vector], STORE_STREAM[vector], LOAD[vector], STORE[vector]
    dy_widen = conversions_of(upstream or value)[0]

    @jit.device
    def logit(x: Any, bias: Any, column: Any, scale: Any, cap: Any) -> Any:
        return shape(widen(x) + widen(bias[column]) if biased else widen(x), scale, cap)

    @jit.device
    def weight_of(class_weight: Any, column: Any) -> Any:
        return class_weight[column] if weighted else wide(1)

    @jit.device
    def absorb(state: Any, z: Any, column: Any, valid: Any, class_weight: Any) -> Any:
        """The state with logits of ``valid`` accesses, the first of class ``column``, the next ``gap`` classes on."""
        top, total, blend, place = state
        before = top
        for s in range(steps):
            if s < valid:
                for k in range(vector):
                    if ranked:
                        place = int32(column + s * gap + k) if z[s * vector + k] > top else place
                    top = maximum(top, z[s * vector + k])
        total *= power(before, top)
        for s in range(steps):
            if s < valid:
                for k in range(vector):
                    total += power(z[s * vector + k], top)
                    if smoothed:
                        blend += weight_of(class_weight, column + s * gap + k) * z[s * vector + k]
        return top, total, blend, place

    @jit.device
    def absorb_one(state: Any, z: Any, column: Any, class_weight: Any) -> Any:
        top = maximum(state[0], z)
        total = state[1] * power(state[0], top) + power(z, top)
        blend = state[2] + weight_of(class_weight, column) * z if smoothed else state[2]
        return top, total, blend, int32(column) if ranked and z > state[0] else state[3]

    @jit.device
    def folded(x: Any, base: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, shared: Any) -> Any:
        """The state of a lane's part of a row."""
        raw, z = cuda.local.array(size, element), cuda.local.array(size, wide)
        state = lowest, wide(0), wide(0), int32(_NOWHERE)
        end = classes // vector * vector
        column = int64(cuda.threadIdx.x) * vector
        while column < end:
            valid = int32(0)
            for s in range(steps):
                inside = column + s * gap < end
                load(x, base + (column + s * gap if inside else column), raw, s * vector)
                valid = int32(valid + int32(inside))
            for s in range(steps):
                if s < valid:
                    if column + s * gap < held:
                        store_kept(shared, column + s * gap, raw, s * vector)
                    for k in range(vector):
                        z[s * vector + k] = logit(raw[s * vector + k], bias, column + s * gap + k, scale, cap)
            state = absorb(state, z, column, valid, class_weight)
            column = opaque(column + steps * gap)
        if end + cuda.threadIdx.x < classes:
            last = end + cuda.threadIdx.x
            state = absorb_one(state, logit(x[base + last], bias, last, scale, cap), last, class_weight)
        return state

    @jit.device
    def pulled(z: Any, column: Any, class_weight: Any, top: Any, share: Any, spread: Any, cap: Any) -> Any:
        """The gradient at a class that is not the target."""
        found = share * power(z, top)
        if smoothed:
            found -= spread * weight_of(class_weight, column)
        return found * slope(z, cap) if capped else found

    def giver(kept: bool) -> Any:
        """``give(…, begin, end)``: a lane's part of the gradient of some classes, of logits that are kept in shared memory or read again.

        The last classes come first: the caches hold what was read last.
        """

        @jit.device
        def give(
            x: Any, base: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, shared: Any, top: Any, share: Any, spread: Any,
            begin: Any, end: Any,
        ) -> None:  # fmt: skip
            raw = cuda.local.array(size, element)
            first = begin + int64(cuda.threadIdx.x) * vector
            batches = (max(end - first, int64(0)) + steps * gap - 1) // (steps * gap)
            while batches > 0:
                batches -= 1
                column = first + batches * (steps * gap)
                for s in range(steps):
                    at = column + s * gap if column + s * gap < end else first
                    if kept:
                        load_kept(shared, at, raw, s * vector)
                    else:
                        load_last(x, base + at, raw, s * vector)
                for s in range(steps):
                    if column + s * gap < end:
                        for k in range(vector):
                            at = column + s * gap + k
                            z = logit(raw[s * vector + k], bias, at, scale, cap)
                            raw[s * vector + k] = narrow(pulled(z, at, class_weight, top, share, spread, cap))
                        store(x, base + column + s * gap, raw, s * vector)

        return give

    give_kept, give_rest = giver(True), giver(False)

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
        x: Any, target: Any, bias: Any, class_weight: Any, row_weight: Any, dy: Any, factors: Any, losses: Any, squares: Any, hits: Any, lse: Any,
        predicted: Any, first: Any, classes: Any, stride: Any, ignore: Any, smoothing: Any, square: Any, scale: Any, cap: Any, strides: Any,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(0, element, 16)
        row = first + cuda.blockIdx.x
        base, lane = int64(cuda.blockIdx.x) * stride, int32(cuda.threadIdx.x)
        which = int64(target[row * strides[0]])
        there = which != ignore and 0 <= which < classes
        if not there:
            if gradient:
                clear(x, base, classes)
            if lane == 0:
                losses[row] = wide(0)
                if squared:
                    squares[row] = wide(0)
                if ranked:
                    hits[row], predicted[row * strides[4]] = wide(0), int64(-1)
                lse[row * strides[3]] = wide(0)
            return
        end = classes // vector * vector
        aim = logit(x[base + which], bias, which, scale, cap)
        state = fold(folded(x, base, classes, bias, class_weight, scale, cap, shared))
        top, total = state[0], state[1]
        whole = top + wide(math.log(total))
        even = smoothing / wide(classes) if smoothed else wide(0)
        pick = weight_of(class_weight, which) * (wide(1) - smoothing if smoothed else wide(1))
        factor = row_weight[row * strides[1]] if row_weighted else wide(1)
        more = square * factors[SQUARE] * whole if squared else wide(0)
        if lane == 0:
            loss = pick * ((top - aim) + wide(math.log(total)))
            if smoothed:
                loss += even * (factors[WEIGHTS] * whole - state[2])
            if squared:
                loss += more * whole
                squares[row] = factor * square * whole * whole
            losses[row] = factor * loss
            if ranked:
                place = int64(state[3]) if state[3] < _NOWHERE else int64(0)  # nothing but −∞
                hits[row], predicted[row * strides[4]] = wide(int32(place == which)), place
            lse[row * strides[3]] = whole
        if gradient:
            factor *= factors[GRADIENT]
            if upstream != "":
                factor *= wide(dy_widen(dy[row * strides[2]]))
            share = pick
            if smoothed:
                share += even * factors[WEIGHTS]
            if squared:
                share += wide(2) * more
            share *= factor / total
            spread = factor * even
            if held > 0:
                give_kept(x, base, bias, class_weight, scale, cap, shared, top, share, spread, int64(0), min(end, int64(held)))
            give_rest(x, base, bias, class_weight, scale, cap, shared, top, share, spread, int64(held), end)
            if end + lane < classes:
                last = end + lane
                z = logit(x[base + last], bias, last, scale, cap)
                x[base + last] = narrow(pulled(z, last, class_weight, top, share, spread, cap))
            if lane == (which // vector % threads if which < end else which - end):
                at = share * power(aim, top) - factor * pick
                if smoothed:
                    at -= spread * weight_of(class_weight, which)
                x[base + which] = narrow(at * slope(aim, cap))

    return cross_entropy_rows, lambda rows: (rows, threads, held * BY_NAME[value].itemsize)
