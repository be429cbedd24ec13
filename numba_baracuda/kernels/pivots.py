"""What sums about a pivot want beyond arithmetic, for the monoids that name it: functions that give it for the state's type."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32

from ..device.numbers import exp2_approx, log2_approx
from ..runtime import jit

_LOG2_E, _LN_2 = math.log2(math.e), math.log(2)
#: for each type of a state, exponents b and u: what is below 2ᵇ is squared as it is, and beyond in units of 2ᵘ no sum of 2³¹ squares overflows
_BANDS = {"float32": (45, 88), "float64": (450, 600)}


@functools.cache
def exponential_terms(kind: Any) -> Any:
    """``about(x, pivot, one)``: exp(x − pivot), or exp x where the pivot is infinite; in float32 off by 2 ulp and half an ulp of the exponent."""
    power = jit.device(lambda x: exp2_approx(x * float32(_LOG2_E))) if kind == float32 else jit.device(lambda x: math.exp(x))

    @jit.device
    def pivot_terms(x: Any, pivot: Any, one: Any) -> Any:
        finite_pivot = pivot if abs(pivot) < math.inf else one - one
        return power(x - finite_pivot), one - one

    return pivot_terms


@jit.device
def rounded_log_of_sum(state: Any, count: Any, one: Any) -> Any:
    """m + log s of a float32 state (m, s), where s ≥ 1, or 0 of nothing: off by some 2⁻²² and a rounding, about what the powers in s are off by."""
    return state[0] + log2_approx(state[1]) * float32(_LN_2)


@functools.cache
def _units(kind: Any) -> tuple[Any, Any]:
    """``unit(pivot)``, a power of two in which the squares of elements up to the pivot stay in range, and ``inverse(pivot)``, one over it."""
    bound, exponent = _BANDS[str(kind)]
    least, most, small, large = (kind(2.0**power) for power in (-bound, bound, -exponent, exponent))
    unit = jit.device(lambda pivot: large if pivot >= most else small if pivot < least else kind(1))
    inverse = jit.device(lambda pivot: small if pivot >= most else large if pivot < least else kind(1))
    return unit, inverse


@functools.cache
def squares_suffice(kind: Any) -> Any:
    """``suits(sum, pivot, one)``: whether unscaled squares of elements up to the pivot stay in range, and those in the sum did not vanish."""
    bound, _ = _BANDS[str(kind)]
    least, most, greatest = kind(2.0 ** (-2 * bound)), kind(2.0 ** (2 * bound)), kind(2.0**bound)
    return jit.device(lambda sum, pivot, one: (least <= sum) & (sum < most) & (pivot < greatest))


@functools.cache
def scaled_square_terms(kind: Any) -> Any:
    """``about(x, pivot, one)``: (x / unit)²."""
    _, inverse = _units(kind)

    @jit.device
    def pivot_terms(x: Any, pivot: Any, one: Any) -> Any:
        scaled = x * inverse(pivot)
        return scaled * scaled, one - one

    return pivot_terms


@functools.cache
def rescale_sum(kind: Any) -> Any:
    """``moved(first, second, count, old, new, one)``: a sum of squares in the unit of another pivot."""
    unit, inverse = _units(kind)

    @jit.device
    def rebase(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
        ratio = unit(old) * inverse(new)
        return first * ratio * ratio, second

    return rebase


@functools.cache
def unit_and_sum(kind: Any) -> Any:
    """``around(pivot, first, second, count, one)``: the unit and the sum."""
    unit, _ = _units(kind)
    return jit.device(lambda pivot, first, second, count, one: (unit(pivot), first))
