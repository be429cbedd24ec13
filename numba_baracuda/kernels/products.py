"""Products with an exponent of their own, so that no partial product leaves the range. Each function gives a monoid's function for the state's type.

A state is (m, k, kinds). The product of the finite elements other than 0 is m · uᵏ, with u a power of two and |m| from u^(−1/2) to u^(1/2). Zeros,
infinities and NaN contribute only their sign to m; the bits of ``kinds`` say which of the three occur, and which occur more than once.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32, float64, int32, int64

from ..device.bits import f32_as_i32, f64_as_i64, i32_as_f32, i64_as_f64
from ..device.build import ptx
from ..runtime import jit

#: log₂ u by the state's type: a product of two numbers below √u is in range, and so is every element times u or 1 / u
UNITS = {float32: 96, float64: 700}
#: bits of the kinds; the same bits, shifted by ``KIND_BITS``, say that a kind occurs more than once
_ZERO, _INFINITE, _NAN, _ALL, KIND_BITS = 1, 2, 4, 7, 3
#: the greatest |k| that :func:`finish_product` keeps: beyond it, a product without one element is out of range, too
_MAX_UNITS = 4


@functools.cache
def _casts(kind: Any) -> tuple[Any, Any, Any]:
    """(integer type of the same width, cast of bits to it, cast of bits from it)."""
    return (int32, f32_as_i32, i32_as_f32) if kind == float32 else (int64, f64_as_i64, i64_as_f64)


@functools.cache
def decompose(kind: Any) -> tuple[Any, Any]:
    """``normalize(x)`` = (m, k) with x = m · uᵏ, exactly, and ``classify(x)`` = (bit of x's kind or 0, factor that x contributes to m · uᵏ)."""
    exponent, (_, bits, _) = UNITS[kind], _casts(kind)
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
    """``lift``: (m, k, kinds) of an element."""
    (whole, _, number), (normalize, classify) = _casts(kind), decompose(kind)

    @jit.device
    def lift(x: Any, other: Any, one: Any) -> Any:
        which, entering = classify(x)
        m, k = normalize(entering)
        return m, k, number(whole(which))

    return lift


@functools.cache
def combine_products(kind: Any) -> Any:
    """``combine`` of two such states."""
    (whole, bits, number), (normalize, _) = _casts(kind), decompose(kind)

    @jit.device
    def combine(a: Any, b: Any) -> Any:
        m, k = normalize(a[0] * b[0])
        ours, theirs = bits(a[2]), bits(b[2])
        several = whole((ours & theirs & _ALL) << KIND_BITS)
        return m, a[1] + b[1] + k, number(whole(ours | theirs | several))

    return combine


@functools.cache
def finish_product(kind: Any) -> Any:
    """``finish``: m, and k and the kinds packed into one number, which is not negative."""
    _, bits, _ = _casts(kind)

    @jit.device
    def finish(state: Any, count: Any, one: Any) -> Any:
        k = int32(min(max(state[1], kind(-_MAX_UNITS)), kind(_MAX_UNITS))) + _MAX_UNITS
        return state[0], kind(int32(k << 2 * KIND_BITS) | int32(bits(state[2])))

    return finish


def _approximate_quotient(y: float, x: float) -> float:
    """In the emulator, where y is a normal number."""
    return y / x if x else math.copysign(math.inf, x) * y


quotient_approx = ptx(
    "quotient_approx", "div.full.f32 $0, $1, $2;", float32, (float32, float32), _approximate_quotient,
    "y / x in float32, with an error of at most 2 ulp, subnormal numbers included; some seven instructions, one of them MUFU.RCP.",
)  # fmt: skip


@functools.cache
def product_of_others(kind: Any) -> Any:
    """``vjp``: g times the product of all elements but x.

    Where q is −1, y is a normal number, and the product is y / x. Elsewhere p and q are the results of :func:`finish_product`.
    """
    return _product_of_others(kind, jit.device(lambda y, x: y / x))


@functools.cache
def rounded_product_of_others(kind: Any) -> Any:
    """:func:`product_of_others` that is rounded to a half type. Error of y / x, or of p / m: 2 ulp of float32."""
    return _product_of_others(kind, quotient_approx)


def _product_of_others(kind: Any, quotient: Any) -> Any:
    exponent, (normalize, classify) = UNITS[kind], decompose(kind)
    unit, inverse = kind(2.0**exponent), kind(2.0**-exponent)

    @jit.device
    def vjp(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
        if q < 0:
            return g * quotient(y, x)
        code, (which, entering) = int32(q), classify(x)
        others = int32(code >> KIND_BITS & _ALL | code & _ALL & ~which)
        m, k = normalize(entering)
        product, units = quotient(p, m), int32(int32(code >> 2 * KIND_BITS) - _MAX_UNITS - int32(k))
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
