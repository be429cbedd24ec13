"""Pivots that want more than arithmetic, for the monoids that name them."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32

from ..device.numbers import exp2_approx, maximum
from ..runtime import jit

_LOG2_E = math.log2(math.e)


@jit.device
def greater_size(a: Any, b: Any) -> Any:
    """The greater absolute value; NaN wins."""
    return maximum(abs(a), abs(b))


@functools.cache
def exponential(kind: Any) -> Any:
    """``about(x, pivot, one)``: exp(x − pivot), or exp x where the pivot is no number; in float32 off by 2 ulp and half an ulp of the exponent."""
    power = jit.device(lambda x: exp2_approx(x * float32(_LOG2_E))) if kind == float32 else jit.device(lambda x: math.exp(x))

    @jit.device
    def about(x: Any, pivot: Any, one: Any) -> Any:
        return power(x - pivot if abs(pivot) < math.inf else x), one

    return about


@functools.cache
def _unit(kind: Any) -> Any:
    """``unit(pivot, one)``: a number about the size of the pivot that has a reciprocal; 1 where the pivot is 0, infinite or NaN."""
    shift = kind(2.0**60)

    @jit.device
    def unit(pivot: Any, one: Any) -> Any:
        if not 0 < pivot < math.inf:
            return one
        return pivot if one / pivot < math.inf else pivot * shift

    return unit


@functools.cache
def scaled_square(kind: Any) -> Any:
    unit = _unit(kind)

    @jit.device
    def about(x: Any, pivot: Any, one: Any) -> Any:
        scaled = x * (one / unit(pivot, one))
        return scaled * scaled, one

    return about


@functools.cache
def scaled_sum(kind: Any) -> Any:
    unit = _unit(kind)
    return jit.device(lambda pivot, first, second, count, one: (unit(pivot, one), first))
