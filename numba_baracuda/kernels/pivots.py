"""Functions of sums about a pivot that need Numba. Monoids name them; each gives a monoid's function for the state's type."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba.cuda.types import float32, int32

from ..device.bits import f32_as_i32, i32_as_f32
from ..device.numbers import exp2_approx, log2_approx, maximum, multiply_add, reciprocal_approx
from ..runtime import jit

_LOG2_E, _LN_2 = math.log2(math.e), math.log(2)
#: exponents (b, u) by the state's type: sizes from 2⁻ᵇ to 2ᵇ are squared unscaled. Larger ones are squared in units of 2ᵘ, smaller ones in units of
#: 2⁻ᵘ. No sum of 2³¹ such squares overflows
_BANDS = {"float32": (45, 88), "float64": (450, 600)}


@functools.cache
def _exponential(kind: Any) -> Any:
    """exp x of the state's type. Error in float32: 2 ulp and half an ulp of the exponent."""
    return jit.device(lambda x: exp2_approx(x * float32(_LOG2_E))) if kind == float32 else jit.device(lambda x: math.exp(x))


@functools.cache
def exponential_terms(kind: Any) -> Any:
    """``pivot_terms(x, pivot, one)``: exp(x − pivot), or exp x if the pivot is infinite. See :func:`_exponential` for its error."""
    power = _exponential(kind)

    @jit.device
    def pivot_terms(x: Any, pivot: Any, one: Any) -> Any:
        finite_pivot = pivot if abs(pivot) < math.inf else one - one
        return power(x - finite_pivot), one - one

    return pivot_terms


@functools.cache
def exponential_rebase(kind: Any) -> Any:
    """``rebase(first, second, count, old, new, one)``: a sum of exponentials, now about the pivot ``new``. See :func:`_exponential` for its error."""
    power = _exponential(kind)

    @jit.device
    def rebase(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
        # no branch, which some lane of a warp would mostly take
        scaled = first * power(old - new)
        return first if old == new else scaled, second

    return rebase


#: powers of two are made 2⁶⁴ times as large, so that the hardware's is no subnormal number, which it would take for 0
_SHIFT = 64


@functools.cache
def prepared_share(kind: Any) -> Any:
    """``prepare`` of :func:`rounded_share`: q becomes 2⁻⁶⁴ · q."""
    inverse = kind(2.0**-_SHIFT)

    @jit.device
    def prepare(g: Any, y: Any, p: Any, q: Any, scale: Any, inverse_y: Any) -> Any:
        return g, y, p, q * inverse

    return prepare


@functools.cache
def rounded_share(kind: Any) -> Any:
    """``vjp`` of a softmax that is rounded to a half type: exp(x − p) · 2⁶⁴ · q.

    Error: 2 ulp and half an ulp of the exponent; subnormal numbers stay.
    """
    shift = kind(_SHIFT)

    @jit.device
    def vjp(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
        return exp2_approx((x - p) * float32(_LOG2_E) + shift) * q

    return vjp


@functools.cache
def settled_line(kind: Any) -> Any:
    """``settle(pivot, one)`` of :func:`settled_terms`: where the line of exponents begins, a multiple of the pivot that is rounded, and its slope.

    About the pivot it is 10. From pivots of 2¹⁷ on the slope is 1, and 0 is there: halves that are not the pivot are less by 512, for which the term
    is 0.
    """
    shift, far, rest = kind(10), kind(2.0**17), kind(_LOG2_E - 1)

    @jit.device
    def settle(pivot: Any, one: Any) -> Any:
        near = abs(pivot) < far
        slope = multiply_add(one if near else one - one, rest, one)
        return multiply_add(-slope, pivot, shift if near else one - one), slope

    return settle


@jit.device
def settled_terms(x: Any, start: Any, slope: Any) -> Any:
    """``pivot_terms``: exp(x − pivot) times a factor of its own for each pivot, about 2¹⁰, by its :func:`settled_line`. For halves, as float32.

    It takes a multiply-add and a power. Error: 2 ulp and half an ulp of the exponent, as long as sums about different pivots do not meet; subnormal
    results of halves stay.
    """
    return exp2_approx(multiply_add(x, slope, start)), slope


@functools.cache
def prepared_line(kind: Any) -> Any:
    """``prepare`` of :func:`settled_share`: the :func:`settled_line` of the pivot p instead of g and y."""
    settle, one = settled_line(kind), kind(1)

    @jit.device
    def prepare(g: Any, y: Any, p: Any, q: Any, scale: Any, inverse: Any) -> Any:
        start, slope = settle(p, one)
        return start, slope, p, q

    return prepare


@jit.device
def settled_share(x: Any, w: Any, g: Any, y: Any, p: Any, q: Any, zero: Any) -> Any:
    """``vjp`` of a softmax that is rounded to a half type, of a sum of :func:`settled_terms`: the element's term · q."""
    return settled_terms(x, g, y)[0] * q


@jit.device
def finite_pivot(pivot: Any, one: Any) -> Any:
    """``settle(pivot, one)``: 0 for an infinite pivot or NaN."""
    return (pivot if abs(pivot) < math.inf else one - one), one


@functools.cache
def accurate_terms(kind: Any) -> Any:
    """``pivot_terms(x, pivot, one)``: 2⁶⁴ · exp(x − pivot), for float32 and a finite x − pivot, or −∞.

    x − pivot is rounded; of that, the error is 2 ulp, as of the hardware's power of two, which gets what is less than a half away from an integer.
    Nothing is subnormal; for differences less than −130 it is exp −130, of which a share is 0. Not for NaN.
    """
    slope, rest, least = kind(_LOG2_E), kind(_LOG2_E - float(np.float32(_LOG2_E))), kind(-130)
    # the nearest integer is in the low bits of a sum with it, and 64 more
    whole = kind(3 * 2.0**22 + 64)

    @jit.device
    def pivot_terms(x: Any, pivot: Any, one: Any) -> Any:
        away = maximum(x - pivot, least)
        number = multiply_add(away, slope, whole)
        part = multiply_add(away, rest, multiply_add(away, slope, whole - number))
        return i32_as_f32(int32(f32_as_i32(exp2_approx(part)) + int32(f32_as_i32(number) << 23))), one - one

    return pivot_terms


@jit.device
def pivot_and_inverse(state: Any, count: Any, one: Any) -> Any:
    """``finish``: m and 1 / s of a float32 state (m, s), NaN where m is infinite. Error: 1 ulp."""
    return state[0], reciprocal_approx(state[1]) + (state[0] - state[0])


@jit.device
def pivot_and_accurate_inverse(state: Any, count: Any, one: Any) -> Any:
    """The same where 1 / s is no subnormal number. Error: little more than half an ulp, after a step of Newton's."""
    inverse = reciprocal_approx(state[1])
    return state[0], multiply_add(inverse, multiply_add(-state[1], inverse, one), inverse) + (state[0] - state[0])


@jit.device
def rounded_log_of_sum(state: Any, count: Any, one: Any) -> Any:
    """``finish``: m + log s of a float32 state (m, s), where s ≥ 1, or 0 of no elements. Error: about 2⁻²² and a rounding, as in s."""
    return state[0] + log2_approx(state[1]) * float32(_LN_2)


@functools.cache
def _units(kind: Any) -> tuple[Any, Any]:
    """``unit(pivot)``, a power of two in whose units the squares of elements up to the pivot stay in range, and ``inverse(pivot)``, 1 / unit."""
    bound, exponent = _BANDS[str(kind)]
    least, most, small, large = (kind(2.0**power) for power in (-bound, bound, -exponent, exponent))
    unit = jit.device(lambda pivot: large if pivot >= most else small if pivot < least else kind(1))
    inverse = jit.device(lambda pivot: small if pivot >= most else large if pivot < least else kind(1))
    return unit, inverse


@functools.cache
def squares_suffice(kind: Any) -> Any:
    """``unit_pivot_suffices(sum, pivot, one)``: whether unscaled squares up to the pivot stay in range, and those in the sum did not vanish."""
    bound, _ = _BANDS[str(kind)]
    least, most, greatest = kind(2.0 ** (-2 * bound)), kind(2.0 ** (2 * bound)), kind(2.0**bound)
    return jit.device(lambda sum, pivot, one: (least <= sum) & (sum < most) & (pivot < greatest))


@functools.cache
def scaled_square_terms(kind: Any) -> Any:
    """``pivot_terms(x, pivot, one)``: (x / unit)²."""
    _, inverse = _units(kind)

    @jit.device
    def pivot_terms(x: Any, pivot: Any, one: Any) -> Any:
        scaled = x * inverse(pivot)
        return scaled * scaled, one - one

    return pivot_terms


@functools.cache
def rescale_sum(kind: Any) -> Any:
    """``rebase(first, second, count, old, new, one)``: a sum of squares, now in the unit of the pivot ``new``."""
    unit, inverse = _units(kind)

    @jit.device
    def rebase(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
        ratio = unit(old) * inverse(new)
        return first * ratio * ratio, second

    return rebase


@functools.cache
def unit_and_sum(kind: Any) -> Any:
    """``pivot_state(pivot, first, second, count, one)``: (unit, sum of squares in that unit)."""
    unit, _ = _units(kind)
    return jit.device(lambda pivot, first, second, count, one: (unit(pivot), first))
