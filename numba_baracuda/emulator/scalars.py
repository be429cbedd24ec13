"""Arithmetic of a GPU's scalars on Python numbers: the helpers that generated source calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["divide", "f16", "f32", "float_to_int", "floor_divide", "int_to_float", "item_of", "modulo", "shift_left", "shift_right", "wrap"]

_EXACT = 1 << 53
_single = memoryview(bytearray(4)).cast("f")


class ScalarFault(ArithmeticError):
    """Arithmetic whose result a GPU does not define."""


def wrap(value: int, bits: int, signed: bool = True) -> int:
    """The integer of this width with the same low bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def f32(value: float) -> float:
    """Rounds to float32.

    A sum, product, quotient or root of float32 numbers that is computed in double is then rounded as if once: double has more than 2·24 + 1 bits.
    """
    _single[0] = value
    return _single[0]


def f16(value: float) -> float:
    """Rounds to float16."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def int_to_float(value: int, bits: int) -> float:
    """Converts with one rounding."""
    if bits == 64:
        return float(value)
    if bits == 16:
        return f16(value)
    if abs(value) > _EXACT:
        return float(np.float32(np.uint64(value) if value > 0 else np.int64(value)))
    return f32(value)


def float_to_int(value: float, bits: int, signed: bool) -> int:
    """Truncates; a value that does not fit is undefined in LLVM and therefore a fault."""
    if math.isfinite(value):
        whole = int(value)
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        if low <= whole <= high:
            return whole
    raise ScalarFault(f"{value} does not fit {'int' if signed else 'uint'}{bits}")


def divide(a: float, b: float, _bits: int) -> float:
    """IEEE division."""
    if b:
        return a / b
    if a != a or b != b or a == 0:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def floor_divide(a: int, b: int, bits: int) -> int:
    """Rounds towards −∞; numba gives 0 where the quotient does not fit."""
    if b == 0:
        raise ScalarFault(f"{a} // 0")
    return 0 if b == -1 and a == -1 << (bits - 1) else a // b


def modulo(a: int, b: int, _bits: int) -> int:
    if b == 0:
        raise ScalarFault(f"{a} % 0")
    return a % b


def shift_left(a: int, count: int, bits: int) -> int:
    if not 0 <= count < bits:
        raise ScalarFault(f"a shift by {count} of {bits} bits")
    return a << count


def shift_right(a: int, count: int, bits: int) -> int:
    if not 0 <= count < bits:
        raise ScalarFault(f"a shift by {count} of {bits} bits")
    return a >> count


def item_of(values: tuple[Any, ...], index: int, site: str) -> Any:
    if not 0 <= index < len(values):
        raise IndexError(f"{site}: item {index} of a tuple of {len(values)}")
    return values[index]
