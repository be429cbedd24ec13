"""Elements and places: from memory to the accumulator's type and back, and where a flat position lies in a strided array."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import Integer, float64, int32, int64

from ..algebra import ByType, Given
from ..core.dtypes import BY_NAME
from ..device.bits import bf16_to_f32, f32_to_bf16, i32_as_f32, i64_as_f64
from ..runtime import jit


def accumulator_of(value: str) -> Any:
    """The numba type that sums of ``value`` are kept in."""
    return jit.SCALARS[BY_NAME[value].accumulator]


@functools.cache
def conversions_of(value: str) -> tuple[Any, Any]:
    """``widen(x)`` from an element to the accumulator's type, and ``narrow(x)`` back with one rounding."""
    element, wide = jit.SCALARS[value], accumulator_of(value)
    if value == "bf16":
        return bf16_to_f32, jit.device(lambda x: f32_to_bf16(wide(x)))
    return jit.device(lambda x: wide(x)), jit.device(lambda x: element(x))


def of_type(function: Any, kind: Any) -> Any:
    """The function; of one :class:`~..algebra.ByType` that for the numba type, of one :class:`~..algebra.Given` what its adapter makes of it."""
    if isinstance(function, Given):
        return jit.device(function.adapter)(function.function, kind, function.width)
    return jit.device(function)(kind) if isinstance(function, ByType) else function


@functools.cache
def ordinary_of(value: str) -> Any:
    """``ordinary(x)``, of the accumulator's type: whether an element would hold it as a normal number."""
    wide, kind = accumulator_of(value), BY_NAME[value]
    least, greatest = float(kind.tiny), float(kind.limits[1])
    return jit.device(lambda x: wide(least) <= abs(x) <= wide(greatest))


@functools.cache
def origin_of(value: str) -> Any:
    """``origin(x)``: what all elements of a row are taken less where x is its first: x, or 0 where that is not finite."""
    widen, wide = conversions_of(value)[0], accumulator_of(value)

    @jit.device
    def origin(x: Any) -> Any:
        first = widen(x)
        return first if abs(first) < math.inf else wide(0)

    return origin


@functools.cache
def as_number_of(value: str) -> Any:
    """``as_number(position)``: a number of the accumulator's type; of floats that of its bits. They compare as positions do."""
    wide = accumulator_of(value)
    if isinstance(wide, Integer):
        return jit.device(lambda position: wide(position))
    if wide == float64:
        return jit.device(lambda position: i64_as_f64(int64(position)))
    return jit.device(lambda position: i32_as_f32(int32(position)))


@functools.cache
def place_of(dims: int) -> Any:
    """``place(column, shape, strides)``: the offset of a flat column among ``dims`` trailing dimensions."""
    if dims == 1:
        return jit.device(lambda column, shape, strides: column * strides[0])

    @jit.device
    def place(column: Any, shape: Any, strides: Any) -> Any:
        offset = int64(0)
        rest = int64(column)
        for back in range(dims):
            k = dims - 1 - back
            above = rest // shape[k]
            offset += (rest - above * shape[k]) * strides[k]
            rest = above
        return offset

    return place
