"""float16 and bfloat16 as the emulator computes them: bit patterns, one rounding to nearest even, and the NaN that a GPU makes.

PTX ISA, "Half Precision Floating Point Instructions": an operation that makes a NaN gives the canonical one, all ones but the sign.
"""

from __future__ import annotations

import functools
import math
import struct

import numpy as np

__all__ = ["NAN", "bf16_bits", "bf16_value", "exact_sum", "f16_bits", "f16_value"]

_double, _single = memoryview(bytearray(8)), memoryview(bytearray(4))
_f64, _u64, _f32, _u32 = _double.cast("d"), _double.cast("Q"), _single.cast("f"), _single.cast("I")


#: the canonical NaN, of any width once it is stored
NAN: float = struct.unpack("d", struct.pack("Q", 0x7FFFFFFFFFFFFFFF))[0]


@functools.cache
def _f16_values() -> list[float]:
    """The value of every float16 pattern; a NaN keeps its bits, which conversions in hardware need not."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = patterns.view(np.float16).astype(np.float64)
    wide = patterns.astype(np.uint64)
    kept = (wide >> 15 << 63) | (0x7FF << 52) | ((wide & 0x3FF) << 42)
    return np.where(np.isnan(values), kept.view(np.float64), values).tolist()  # type: ignore[no-any-return]


def f16_value(bits: int) -> float:
    return _f16_values()[bits]


def bf16_value(bits: int) -> float:
    _u32[0] = bits << 16
    return _f32[0]


def _round(value: float, digits: int, least: int) -> float:
    """``value`` rounded to nearest even at ``digits`` binary digits, in steps of no less than 2**least."""
    step = max(math.frexp(value)[1] - digits, least)
    return math.copysign(math.ldexp(round(math.ldexp(value, -step)), step), value)


def f16_bits(value: float) -> int:
    """A double rounded once to float16."""
    if value != value:
        return 0x7FFF
    rounded = _round(value, 11, -24) if math.isfinite(value) else value
    if abs(rounded) >= 65536.0:
        return 0x7C00 if value > 0 else 0xFC00
    return int(struct.unpack("H", struct.pack("e", rounded))[0])


def bf16_bits(value: float) -> int:
    """A double rounded once to bfloat16."""
    if value != value:
        return 0x7FFF
    rounded = _round(value, 8, -133) if math.isfinite(value) else value
    if abs(rounded) >= 2.0**128:
        return 0x7F80 if value > 0 else 0xFF80
    _f32[0] = rounded
    return _u32[0] >> 16


def exact_sum(a: float, b: float) -> float:
    """a + b rounded to odd, which a later rounding to 51 or fewer digits cannot tell from the exact sum.

    After Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd" (IEEE TC 2008): the error of
    the sum is found by Knuth's TwoSum.
    """
    total = a + b
    if not math.isfinite(total):
        return total
    part = total - a
    error = (a - (total - part)) + (b - part)
    _f64[0] = total
    if error and not _u64[0] & 1:
        return math.nextafter(total, math.copysign(math.inf, error))
    return total
