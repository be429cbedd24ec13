"""Logits as a loss takes them: the states that rows of them are folded into, and what is done to each."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda
from numba.cuda.types import float32, int32

from ...algebra import Monoid
from ...device.numbers import exp2_approx, maximum, reciprocal_approx
from ...dtypes import BY_NAME
from ...kernels.elements import accumulator_of
from ...runtime import jit

_LOG2_E = math.log2(math.e)
#: behind every class
NOWHERE = 0x7FFFFFFF


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

    return Monoid("softmax", (lowest, 0.0, 0.0, NOWHERE), combine)


@functools.cache
def _tanh_of(value: str) -> Any:
    """``tanh(x)``; for halves by a power of two and a reciprocal of the machine, off by some 2^-22."""
    wide = accumulator_of(value)
    if BY_NAME[value].itemsize > 2:
        return jit.device(lambda x: wide(math.tanh(x)))
    return jit.device(lambda x: float32(1) - float32(2) * reciprocal_approx(float32(1) + exp2_approx(x * float32(2 * _LOG2_E))))


@functools.cache
def logits_of(value: str, scaled: bool, capped: bool) -> tuple[Any, Any]:
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


def absorbers_of(value: str, vector: int, steps: int, gap: int, logit: Any, weight_of: Any, smoothed: bool, ranked: bool) -> tuple[Any, Any, Any]:
    """What adds logits to a state of :func:`sums_of`: those of an access, of up to ``steps`` accesses that lie ``gap`` apart, and a single one."""
    wide = accumulator_of(value)
    power = power_of(wide)

    def absorber(steps: int) -> Any:
        size = steps * vector

        @jit.device
        def absorb(state: Any, raw: Any, column: Any, valid: Any, bias: Any, class_weight: Any, scale: Any, cap: Any) -> Any:
            """The state with logits of ``valid`` accesses, the first of class ``column``, the next ``gap`` classes on."""
            top, total, blend, place = state
            before, z = top, cuda.local.array(size, wide)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        at = column + s * gap + k
                        z[s * vector + k] = logit(raw[s * vector + k], bias, at, scale, cap)
                        if ranked:
                            place = int32(at) if z[s * vector + k] > top else place
                        top = maximum(top, z[s * vector + k])
            total *= power(before, top)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        total += power(z[s * vector + k], top)
                        if smoothed:
                            blend += weight_of(class_weight, column + s * gap + k) * z[s * vector + k]
            return top, total, blend, place

        return absorb

    @jit.device
    def absorb_one(state: Any, z: Any, column: Any, class_weight: Any) -> Any:
        top = maximum(state[0], z)
        total = state[1] * power(state[0], top) + power(z, top)
        blend = state[2] + weight_of(class_weight, column) * z if smoothed else state[2]
        return top, total, blend, int32(column) if ranked and z > state[0] else state[3]

    return absorber(1), absorber(steps), absorb_one
