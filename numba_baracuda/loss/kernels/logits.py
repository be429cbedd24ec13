"""Logits: how each is computed from what the product gives, and the softmax states that rows of them are folded into."""

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
#: the argmax of no logits; greater than every class
NO_CLASS = 0x7FFFFFFF


@functools.cache
def shifted_exp_of(kind: Any) -> Any:
    """``shifted_exp(z, greatest)`` = exp(z − greatest); in float32 by the hardware's exp2, off by 2 ulp and 2^-24 of z − greatest.

    The difference is rounded before it is scaled, so the error does not grow with z itself, and no finite arguments overflow.
    """
    if kind == float32:
        return jit.device(lambda z, greatest: exp2_approx((z - greatest) * float32(_LOG2_E)))
    return jit.device(lambda z, greatest: math.exp(z - greatest))


@functools.cache
def log_ratio_of(kind: Any) -> Any:
    """``log_ratio(z, greatest)`` = max(z − greatest, −1000): the log of shifted_exp(z, greatest), finite wherever that is 0."""
    return jit.device(lambda z, greatest: maximum(z - greatest, kind(-1000)))


@functools.cache
def finite_base_of(value: str) -> Any:
    """``finite_base(m)`` = max(m, the lowest finite number): what to subtract from logits whose maximum is m, also where m is −∞."""
    lowest = accumulator_type(value)(BY_NAME[BY_NAME[value].accumulator].limits[0])
    return jit.device(lambda m: maximum(m, lowest))


@functools.cache
def softmax_monoid_of(value: str, argmax: bool) -> Monoid:
    """The monoid of softmax states (m, s): the maximum of some logits, −∞ of none, and Σ exp(z − m).

    With ``argmax`` the states are (m, s, c), and c is the first class whose logit is m. NaN is greater than every number. After Milakov and
    Gimelshein, "Online normalizer calculation for softmax" (2018).
    """
    shifted_exp, finite_base = shifted_exp_of(accumulator_type(value)), finite_base_of(value)
    greater = jit.device(lambda x, y: (x > y) | ((x != x) & (y == y)))

    @jit.device
    def combine(a: Any, b: Any) -> Any:
        greatest = maximum(a[0], b[0])
        return greatest, a[1] * shifted_exp(a[0], finite_base(greatest)) + b[1] * shifted_exp(b[0], finite_base(greatest))

    def combine_argmax(a: Any, b: Any) -> Any:
        greatest, total = combine(a, b)
        a_wins = greater(a[0], b[0]) or (a[2] < b[2] and not greater(b[0], a[0]))
        return greatest, total, a[2] if a_wins else b[2]

    if argmax:
        return Monoid("softmax_argmax", (-math.inf, 0.0, NO_CLASS), combine_argmax)
    return Monoid("softmax", (-math.inf, 0.0), lambda a, b: combine(a, b))


@functools.cache
def _tanh_of(value: str, exact_tanh: bool) -> Any:
    """``tanh(x)``; for halves without ``exact_tanh`` by the hardware's exp2 and reciprocal, with an error of about 2^-22."""
    wide = accumulator_type(value)
    if exact_tanh or BY_NAME[value].itemsize > 2:
        return jit.device(lambda x: wide(math.tanh(x)))
    return jit.device(lambda x: float32(1) - float32(2) * reciprocal_approx(float32(1) + exp2_approx(x * float32(2 * _LOG2_E))))


@functools.cache
def logit_functions_of(value: str, scaled: bool, capped: bool, exact_tanh: bool) -> tuple[Any, Any]:
    """``adjust(x, scale, cap)``: the logit z of a product x, with cap = (c, 1 / c); ``slope(z, cap)``: the softcap's derivative dz / d(scale · x)."""
    wide, tanh = accumulator_type(value), _tanh_of(value, exact_tanh)

    @jit.device
    def adjust(x: Any, scale: Any, cap: Any) -> Any:
        z = x * scale if scaled else x
        return cap[0] * tanh(z * cap[1]) if capped else z

    @jit.device
    def slope(z: Any, cap: Any) -> Any:
        if not capped:
            return wide(1)
        fraction = z * cap[1]
        return (wide(1) - fraction) * (wide(1) + fraction)

    return adjust, slope


def state_updates_of(
    value: str, vector: int, steps: int, vector_stride: int, logit: Any, weight_of: Any, weighted: bool, smoothed: bool, argmax: bool, entropy: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(``add_vector``, ``add_vectors``, ``add_logit``): they fold one vector of logits, up to ``steps`` vectors, or one logit into a lane's state.

    The state is (m, s, c), as in :func:`softmax_monoid_of`, and (t, w, e): t = Σ wⱼ (zⱼ − m), w = Σ wⱼ and, with ``entropy``,
    e = Σ exp(zⱼ − m) (zⱼ − m) over the classes j so far, where wⱼ is ``weight_of`` class j. ``vector_stride``: classes from one vector to the next.
    """
    wide = accumulator_type(value)
    shifted_exp, log_ratio, finite_base = shifted_exp_of(wide), log_ratio_of(wide), finite_base_of(value)

    def adder(steps: int) -> Any:
        size = steps * vector

        @jit.device
        def add_vectors(state: Any, logits: Any, column: Any, valid: Any, bias: Any, class_weight: Any, scale: Any, cap: Any) -> Any:
            """The state after ``valid`` more vectors, of which the first begins at class ``column``."""
            greatest, total, best_class, weighted_sum, weight_sum, log_sum = state
            previous, z = greatest, cuda.local.array(size, wide)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        class_index = column + s * vector_stride + k
                        z[s * vector + k] = logit(logits[s * vector + k], bias, class_index, scale, cap)
                        raised = maximum(greatest, z[s * vector + k])
                        if argmax:
                            best_class = int32(class_index) if (raised != greatest) & (greatest == greatest) else best_class
                        greatest = raised
            base = finite_base(greatest)
            factor = shifted_exp(previous, base)
            if entropy:
                log_sum = (log_sum + total * log_ratio(previous, base)) * factor
            total *= factor
            if smoothed:
                weighted_sum += weight_sum * finite_base(previous - base)
            for s in range(steps):
                if s < valid:
                    for k in range(vector):
                        share = shifted_exp(z[s * vector + k], base)
                        total += share
                        if entropy:
                            log_sum += share * log_ratio(z[s * vector + k], base)
                        if smoothed:
                            weight = weight_of(class_weight, column + s * vector_stride + k)
                            weighted_sum += weight * (z[s * vector + k] - base)
                            if weighted:
                                weight_sum += weight
                    if smoothed and not weighted:
                        weight_sum += wide(vector)
            return greatest, total, best_class, weighted_sum, weight_sum, log_sum

        return add_vectors

    @jit.device
    def add_logit(state: Any, z: Any, column: Any, class_weight: Any) -> Any:
        previous, total, best_class, weighted_sum, weight_sum, log_sum = state
        greatest = maximum(previous, z)
        base = finite_base(greatest)
        if entropy:
            log_sum = (log_sum + total * log_ratio(previous, base)) * shifted_exp(previous, base) + shifted_exp(z, base) * log_ratio(z, base)
        total = total * shifted_exp(previous, base) + shifted_exp(z, base)
        if argmax:
            best_class = int32(column) if (greatest != previous) & (previous == previous) else best_class
        if smoothed:
            weight = weight_of(class_weight, column)
            weighted_sum, weight_sum = weighted_sum + weight_sum * finite_base(previous - base) + weight * (z - base), weight_sum + weight
        return greatest, total, best_class, weighted_sum, weight_sum, log_sum

    return adder(1), adder(steps), add_logit
