"""Arrays of every element, by NumPy or CuPy. bfloat16 is handled as bits, since CuPy need not compute with it."""

from __future__ import annotations

from typing import Any

from numba_baracuda.core.dtypes import numpy_dtype

BF16 = numpy_dtype("bf16")


def empty(xp: Any, shape: tuple[int, ...], element: str) -> Any:
    return xp.empty(shape, xp.uint16).view(BF16) if element == "bf16" else xp.empty(shape, numpy_dtype(element))


def cast(xp: Any, array: Any, element: str) -> Any:
    """To another element, to nearest even; an array that has it already is returned as it is."""
    if element != "bf16":
        return array.astype(numpy_dtype(element), copy=False)
    bits = array.astype(xp.float32, copy=False).view(xp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(xp.uint16).view(BF16)


def wide(xp: Any, array: Any) -> Any:
    """As float64."""
    if array.dtype == BF16:
        array = (array.view(xp.uint16).astype(xp.uint32) << 16).view(xp.float32)
    return array.astype(xp.float64)


def duplicate(xp: Any, array: Any) -> Any:
    """A copy with the array's strides, gaps included."""
    if array.flags.c_contiguous:
        return array.view("u1").copy().view(array.dtype)
    reach = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)) // array.itemsize + 1
    made = xp.lib.stride_tricks.as_strided(xp.empty(reach, array.dtype), array.shape, array.strides)
    made[...] = array
    return made


def poison(array: Any) -> None:
    """Fills an array with a value that no result has: NaN, or a number far below 0; truth values with false, which few results are."""
    array.view("u1")[...] = {"i": 0xFE, "b": 0}.get(array.dtype.kind, 0xFF)


def uniform(xp: Any, rng: Any, shape: tuple[int, ...], element: str) -> Any:
    """Uniform in [−½, ½), or the whole numbers of [−100, 100), or truth values."""
    values = rng.random(shape, dtype=xp.float64 if element == "f64" else xp.float32)
    values -= 0.5
    if element == "bool":
        return values < 0
    return cast(xp, xp.floor(200 * values) if element[0] == "i" else values, element)


def factors(xp: Any, rng: Any, shape: tuple[int, ...], element: str, most: int) -> Any:
    """Numbers of either sign of which any ``most`` have a product that neither overflows nor underflows.

    Those of halves are rounded up or down at random so that logarithms are right in the mean: a product of many would drift. Such roundings add about
    spread · eps to the variance of a logarithm, so the spread is smaller where they would outweigh the numbers' own.
    """
    range_, eps = (2, 2.0**-10) if element == "f16" else (20, 2.0**-7 if element == "bf16" else 0.0)
    spread = min(0.3, range_ / max(most, 1) ** 0.5, range_**2 / (max(most, 1) * eps) if eps else 0.3)
    values = rng.random(shape, dtype=xp.float64 if element == "f64" else xp.float32)
    sign = xp.where(values < 0.5, -1, 1).astype(values.dtype)
    values *= 2  # both halves of [0, 1) become a whole one
    values %= 1
    logarithms = spread * (2 * values - 1)
    if not eps:
        return cast(xp, sign * xp.exp(logarithms), element)
    step = xp.uint32(round(eps * 2**23))  # between numbers of the element, as bits of float32
    below = xp.exp(logarithms).view(xp.uint32) & ~(step - xp.uint32(1))
    low, high = (xp.log(each.view(xp.float32).astype(xp.float64)) for each in (below, below + step))
    up = rng.random(shape, dtype=xp.float32) * (high - low) < logarithms - low
    return cast(xp, sign * (below + step * up.astype(xp.uint32)).view(xp.float32), element)
