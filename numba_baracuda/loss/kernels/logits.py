"""Logits as a loss takes them: the states that rows of them are folded into, and what is done to each."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda
from numba.cuda.types import float32, int32

from ...algebra import Monoid
from ...core.dtypes import BY_NAME
from ...device.numbers import exp2_approx, maximum, reciprocal_approx
from ...kernels.elements import accumulator_type
from ...runtime import jit

_LOG2_E = math.log2(math.e)
#: behind every class
NOWHERE = 0x7FFFFFFF


@functools.cache
def power_of(kind: Any) -> Any:
    """``power(z, top)`` = exp(z − top); in float32 by the machine's power of two, off by 2 ulp and 2^-24 of z − top.

    The difference is rounded before it is scaled, so the error does not grow with z itself, and no finite z and top overflow.
    """
    if kind == float32:
        return jit.device(lambda z, top: exp2_approx((z - top) * float32(_LOG2_E)))
    return jit.device(lambda z, top: math.exp(z - top))


@functools.cache
def floor_of(value: str) -> Any:
    """``floor(m)`` = max(m, the lowest finite number): what to take from logits whose greatest is m, which is −∞ where all of them are."""
    lowest = accumulator_type(value)(BY_NAME[BY_NAME[value].accumulator].limits[0])
    return jit.device(lambda m: maximum(m, lowest))


@functools.cache
def sums_of(value: str, ranked: bool) -> Monoid:
    """States (m, s) of some logits: the greatest, −∞ of none, and Σ exp(z − m); with ``ranked`` (m, s, c), where c is the first class that has m.

    After Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). NaN is greater than every number.
    """
    power, floor = power_of(accumulator_type(value)), floor_of(value)
    above = jit.device(lambda x, y: (x > y) | ((x != x) & (y == y)))

    @jit.device
    def join(a: Any, b: Any) -> Any:
        top = maximum(a[0], b[0])
        return top, a[1] * power(a[0], floor(top)) + b[1] * power(b[0], floor(top))

    def join_ranked(a: Any, b: Any) -> Any:
        top, total = join(a, b)
        first = above(a[0], b[0]) or (a[2] < b[2] and not above(b[0], a[0]))
        return top, total, a[2] if first else b[2]

    if ranked:
        return Monoid("ranked_softmax", (-math.inf, 0.0, NOWHERE), join_ranked)
    return Monoid("softmax", (-math.inf, 0.0), lambda a, b: join(a, b))


@functools.cache
def _tanh_of(value: str, sharp: bool) -> Any:
    """``tanh(x)``; unless ``sharp``, for halves by a power of two and a reciprocal of the machine, off by some 2^-22."""
    wide = accumulator_type(value)
    if sharp or BY_NAME[value].itemsize > 2:
        return jit.device(lambda x: wide(math.tanh(x)))
    return jit.device(lambda x: float32(1) - float32(2) * reciprocal_approx(float32(1) + exp2_approx(x * float32(2 * _LOG2_E))))


@functools.cache
def logits_of(value: str, scaled: bool, capped: bool, sharp: bool) -> tuple[Any, Any]:
    """``shape(x, scale, cap)``: a class's logit as the loss takes it; and ``slope(z, cap)``, what its gradient is to be multiplied by."""
    wide, tanh = accumulator_type(value), _tanh_of(value, sharp)

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


def absorbers_of(
    value: str, vector: int, steps: int, gap: int, logit: Any, weight_of: Any, weighted: bool, smoothed: bool, ranked: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """What adds logits to a lane's state: those of an access, of up to ``steps`` accesses that lie ``gap`` apart, and a single one.

    The state is (m, s, c) as of :func:`sums_of`, and (t, w): Σ wⱼ (zⱼ − m) and Σ wⱼ over the classes j that were added, of ``weight_of`` each.
    """
    wide = accumulator_type(value)
    power, floor = power_of(wide), floor_of(value)

    def absorber(steps: int) -> Any:
        size = steps * vector

        @jit.device
        def absorb(state: Any, raw: Any, column: Any, valid: Any, bias: Any, class_weight: Any, scale: Any, cap: Any) -> Any:
            """The state with logits of ``valid`` accesses, the first of class ``column``, the next ``gap`` classes on."""
            top, total, place, blend, mass = state
            before, z = top, cuda.local.array(size, wide)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        at = column + s * gap + k
                        z[s * vector + k] = logit(raw[s * vector + k], bias, at, scale, cap)
                        greatest = maximum(top, z[s * vector + k])
                        if ranked:
                            place = int32(at) if (greatest != top) & (top == top) else place
                        top = greatest
            base = floor(top)
            total *= power(before, base)
            if smoothed:
                blend += mass * floor(before - base)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        total += power(z[s * vector + k], base)
                        if smoothed:
                            weight = weight_of(class_weight, column + s * gap + k)
                            blend += weight * (z[s * vector + k] - base)
                            if weighted:
                                mass += weight
                    if smoothed and not weighted:
                        mass += wide(vector)
            return top, total, place, blend, mass

        return absorb

    @jit.device
    def absorb_one(state: Any, z: Any, column: Any, class_weight: Any) -> Any:
        before, total, place, blend, mass = state
        top = maximum(before, z)
        base = floor(top)
        total = total * power(before, base) + power(z, base)
        if ranked:
            place = int32(column) if (top != before) & (before == before) else place
        if smoothed:
            weight = weight_of(class_weight, column)
            blend, mass = blend + mass * floor(before - base) + weight * (z - base), mass + weight
        return top, total, place, blend, mass

    return absorber(1), absorber(steps), absorb_one
