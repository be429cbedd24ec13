"""Bounds of the integers that arithmetic makes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

Bounds = tuple[float, float]  #: the least and the greatest, perhaps infinite


def bounds(function: Callable[..., Any], a: Bounds, b: Bounds = (0, 0), *more: Bounds) -> Bounds:
    """The bounds of an operator's integer result, by the bounds of its operands; infinite where no simple rule gives them."""
    (low, high), (least, most) = a, b
    if function is operator.add:
        return low + least, high + most
    if function is operator.sub:
        return low - most, high - least
    if function is operator.neg:
        return -high, -low
    if function in (min, max):
        return function(low, least), function(high, most)
    if function is operator.floordiv and least > 0:
        return quotient(low, most if low >= 0 else least), quotient(high, least if high >= 0 else most)
    if function is operator.mod and least > 0:
        return 0, most - 1
    if low >= 0 and least >= 0:
        if function is operator.mul:
            return (low * least if low and least else 0), (high * most if high and most else 0)
        if function is operator.lshift:
            return low, math.inf
        if function is int.bit_length:
            return int(low).bit_length(), (int(high).bit_length() if high < math.inf else math.inf)
    return -math.inf, math.inf


def quotient(a: float, b: float) -> float:
    """a // b for a positive b, either of which may be infinite."""
    if abs(a) == math.inf:
        return a
    return (0 if a >= 0 else -1) if b == math.inf else a // b
