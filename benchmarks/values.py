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
    """Numbers of either sign of which any ``most`` have a product that neither overflows nor underflows."""
    spread = min(0.3, (2 if element == "f16" else 20) / max(most, 1) ** 0.5)
    values = rng.random(shape, dtype=xp.float64 if element == "f64" else xp.float32)
    sign = xp.where(values < 0.5, -1, 1).astype(values.dtype)
    values *= 2  # both halves of [0, 1) become a whole one
    values %= 1
    return cast(xp, sign * xp.exp(spread * (2 * values - 1)), element)
