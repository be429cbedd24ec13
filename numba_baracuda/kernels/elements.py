"""Conversions of elements and positions to the accumulator's type and back, and offsets in strided arrays."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import Integer, float32, float64, int32, int64, uint32, uint64

from ..algebra import ByType, Given
from ..algebra.gradients import LARGE, SMALL
from ..core.dtypes import BY_NAME
from ..device.bits import bf16_to_f32, f32_as_u32, f32_to_bf16, f64_as_i64, i32_as_f32, i64_as_f64, u32_as_f32
from ..device.numbers import reciprocal_approx
from ..runtime import jit


def accumulator_type(value: str) -> Any:
    """The Numba type in which elements of type ``value`` are added up."""
    return jit.SCALARS[BY_NAME[value].accumulator]


@functools.cache
def conversions_of(value: str) -> tuple[Any, Any]:
    """``widen(x)`` from an element to the accumulator's type, and ``narrow(x)`` back with one rounding."""
    element, wide = jit.SCALARS[value], accumulator_type(value)
    if value == "bf16":
        return bf16_to_f32, jit.device(lambda x: f32_to_bf16(wide(x)))
    return jit.device(lambda x: wide(x)), jit.device(lambda x: element(x))


@functools.cache
def bit_casts(kind: Any) -> tuple[Any, Any]:
    """Functions from the type to the low bits of an int64, and back."""
    if kind == float32:
        return jit.device(lambda x: int64(f32_as_u32(x))), jit.device(lambda bits: u32_as_f32(uint32(bits)))
    if kind == float64:
        return jit.device(lambda x: f64_as_i64(x)), jit.device(lambda bits: i64_as_f64(bits))
    if kind == int32:
        return jit.device(lambda x: int64(uint32(x))), jit.device(lambda bits: int32(bits))
    return jit.device(lambda x: int64(x)), jit.device(lambda bits: int64(bits))


def of_type(function: Any, kind: Any) -> Any:
    """The function itself, or what a :class:`~..algebra.ByType` gives for the Numba type ``kind``, or the adapter of a :class:`~..algebra.Given`."""
    if isinstance(function, Given):
        return jit.device(function.adapter)(function.function, kind, function.width)
    return jit.device(function)(kind) if isinstance(function, ByType) else function


@functools.cache
def is_normal_of(value: str) -> Any:
    """``is_normal(x)``: whether ``x``, of the accumulator's type, is a normal number in the element type: no zero, subnormal, infinity or NaN."""
    wide, kind = accumulator_type(value), BY_NAME[value]
    least, greatest = float(kind.tiny), float(kind.limits[1])
    return jit.device(lambda x: wide(least) <= abs(x) <= wide(greatest))


@functools.cache
def origin_of(value: str) -> Any:
    """``origin(x)``: the number that is subtracted from all elements of a row whose first is ``x``: ``x``, or 0 if it is not finite."""
    widen, wide = conversions_of(value)[0], accumulator_type(value)

    @jit.device
    def origin(x: Any) -> Any:
        first = widen(x)
        return first if abs(first) < math.inf else wide(0)

    return origin


@functools.cache
def inverse_of(value: str) -> Any:
    """``scaled_inverse(y)``: the scale and the inverse of y that gradients want, in float32 with an error of 1 ulp."""
    wide = accumulator_type(value)
    large, small, one = wide(LARGE), wide(SMALL), wide(1)
    reciprocal = reciprocal_approx if wide == float32 else jit.device(lambda x: one / x)

    @jit.device
    def scaled_inverse(y: Any) -> Any:
        scale = large if y < small else small
        return scale, reciprocal(scale * y) if y != 0 else y

    return scaled_inverse


@functools.cache
def position_code_of(value: str) -> Any:
    """``position_code(position)``: a position as a number of the accumulator's type, a float by its bits. Such numbers compare as positions do."""
    wide = accumulator_type(value)
    if isinstance(wide, Integer):
        return jit.device(lambda position: wide(position))
    if wide == float64:
        return jit.device(lambda position: i64_as_f64(int64(position)))
    return jit.device(lambda position: i32_as_f32(int32(position)))


@jit.device
def quotient(index: Any, extent: Any) -> Any:
    """``index // extent`` of numbers that are not negative, as int64: without a sign, so that numbers of 32 bits are divided as such."""
    return int64(uint64(index) // uint64(extent))


@functools.cache
def strided_offset_of(dims: int, contiguous: bool = False) -> Any:
    """``strided_offset(index, shape, strides)``: the offset of the element number ``index``, in C order, of ``dims`` axes; strides in elements.

    ``contiguous`` says that there is one axis, of stride 1.
    """
    if contiguous:
        return jit.device(lambda index, shape, strides: index)
    if dims == 1:
        return jit.device(lambda index, shape, strides: index * strides[0])

    @jit.device
    def strided_offset(index: Any, shape: Any, strides: Any) -> Any:
        offset = int64(0)
        remaining = int64(index)
        for back in range(dims - 1):
            k = dims - 1 - back
            outer = quotient(remaining, shape[k])
            offset += (remaining - outer * shape[k]) * strides[k]
            remaining = outer
        return offset + remaining * strides[0]

    return strided_offset


@functools.cache
def coordinates_of(dims: int) -> tuple[Any, Any]:
    """``coordinates(index, shape, found)``: into ``found``, int64 [dims], the coordinates of the element number ``index``, in C order, of ``dims``
    axes; and ``offset(found, strides)``, theirs. For several operands of one shape this divides once, where :func:`strided_offset_of` does for each.
    """

    @jit.device
    def coordinates(index: Any, shape: Any, found: Any) -> None:
        found[0] = int64(index)
        for back in range(dims - 1):
            k = dims - 1 - back
            outer = quotient(found[0], shape[k])
            found[k] = found[0] - outer * shape[k]
            found[0] = outer

    @jit.device
    def offset(found: Any, strides: Any) -> Any:
        total = found[0] * strides[0]
        for k in range(1, dims):
            total += found[k] * strides[k]
        return total

    return coordinates, offset


@functools.cache
def next_coordinates_of(dims: int, outer: int = 0, around: bool = False) -> Any:
    """``advance(found, shape)``: makes coordinates those of the next element in C order, without a division; see :func:`coordinates_of`.

    With ``around`` the first ``outer`` coordinates stay: behind the last element of all others comes the first.
    """
    carries, last = dims - 1 - outer, 1 if around else 0

    @jit.device
    def advance(found: Any, shape: Any) -> None:
        found[dims - 1] += 1
        for back in range(carries):
            k = dims - 1 - back
            if found[k] == shape[k]:
                found[k] = 0
                found[k - 1] += 1
        for _ in range(last):
            if found[outer] == shape[outer]:
                found[outer] = 0

    return advance
