"""Products that keep an exponent of their own, so that no factor takes them out of the range on the way: functions that give what is wanted by type.

A product of finite elements that are not zeros is m · uᵏ, with u a power of two and |m| from u^(−1/2) to u^(1/2). Zeros, infinities and NaN only
give their sign to m; a set of bits says which of the three kinds there are.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32, float64, int32, int64

from ..device.bits import f32_as_i32, f64_as_i64, i32_as_f32, i64_as_f64
from ..runtime import jit

#: log₂ u: a product of two numbers below √u is in the range, and so is every element times u or 1 / u
_UNITS = {float32: 96, float64: 700}
#: bits of the kinds; three places higher the same bits say that there are several
_ZERO, _INFINITE, _NAN, _ALL, _KIND_BITS = 1, 2, 4, 7, 3
#: most units by which a product differs from another whose quotient with an element is in the range
_MAX_UNITS = 4


@functools.cache
def _casts(kind: Any) -> tuple[Any, Any, Any]:
    """An integer type as wide as the type, and casts of bits to and from it."""
    return (int32, f32_as_i32, i32_as_f32) if kind == float32 else (int64, f64_as_i64, i64_as_f64)


@functools.cache
def _decompose(kind: Any) -> tuple[Any, Any]:
    """``reduced(x)`` = (m, k) with x = m · uᵏ, exactly, and ``taken(x)``: the bit of x's kind, and what enters the product."""
    exponent, (_, bits, _) = _UNITS[kind], _casts(kind)
    unit, inverse, most, least = (kind(2.0**power) for power in (exponent, -exponent, exponent // 2, -(exponent // 2)))

    @jit.device
    def normalize(x: Any) -> Any:
        large, small = abs(x) >= most, abs(x) < least
        factor = inverse if large else unit if small else kind(1)
        return x * factor, kind(1) if large else kind(-1) if small else kind(0)

    @jit.device
    def classify(x: Any) -> Any:
        which = int32(_ZERO) if x == 0 else int32(_NAN) if x != x else int32(_INFINITE) if abs(x) == math.inf else int32(0)
        sign = kind(-1) if bits(x) < 0 else kind(1)
        return which, x if which == 0 else sign

    return normalize, classify


@functools.cache
def lift_factor(kind: Any) -> Any:
    """``lift``: (m, k, the element's kind)."""
    (whole, _, number), (normalize, classify) = _casts(kind), _decompose(kind)

    @jit.device
    def lift(x: Any, other: Any, one: Any) -> Any:
        which, entering = classify(x)
        m, k = normalize(entering)
        return m, k, number(whole(which))

    return lift


@functools.cache
def combine_products(kind: Any) -> Any:
    """``combine`` of two such states."""
    (whole, bits, number), (normalize, _) = _casts(kind), _decompose(kind)

    @jit.device
    def combine(a: Any, b: Any) -> Any:
        m, k = normalize(a[0] * b[0])
        ours, theirs = bits(a[2]), bits(b[2])
        several = whole((ours & theirs & _ALL) << _KIND_BITS)
        return m, a[1] + b[1] + k, number(whole(ours | theirs | several))

    return combine


@functools.cache
def finish_product(kind: Any) -> Any:
    """``finish``: m, and k and the bits in one number of at least 0."""
    _, bits, _ = _casts(kind)

    @jit.device
    def finish(state: Any, count: Any, one: Any) -> Any:
        k = int32(min(max(state[1], kind(-_MAX_UNITS)), kind(_MAX_UNITS))) + _MAX_UNITS
        return state[0], kind(int32(k << 2 * _KIND_BITS) | int32(bits(state[2])))

    return finish


@functools.cache
def product_of_others(kind: Any) -> Any:
    """``pull``: g times the product of all elements but x.

    That is y / x where q is −1. Where y is no ordinary number, p and q are those of :func:`packed`.
    """
    exponent, (normalize, classify) = _UNITS[kind], _decompose(kind)
    unit, inverse = kind(2.0**exponent), kind(2.0**-exponent)

    @jit.device
    def vjp(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
        if q < 0:
            return g * (y / x)
        code, (which, entering) = int32(q), classify(x)
        others = int32(code >> _KIND_BITS & _ALL | code & _ALL & ~which)
        m, k = normalize(entering)
        product, units = p / m, int32(int32(code >> 2 * _KIND_BITS) - _MAX_UNITS - int32(k))
        if others == 0:
            step = unit if units > 0 else inverse
            for n in range(3):
                product *= step if abs(units) > n else kind(1)
        if others & _ZERO:
            product *= zero
        if others & _INFINITE:
            product *= kind(math.inf)
        if others & _NAN:
            product = kind(math.nan)
        return g * product

    return vjp
