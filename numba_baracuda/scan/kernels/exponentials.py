"""Sums of exponentials as exp(m) · s, where m is the greatest exponent: functions that scan operators want for the accumulator's type.

In float32, powers and logarithms are the machine's, to base 2: off by 2 ulp, and by half an ulp of the exponent. In float64 they are the library's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32

from ...device.numbers import exp2_approx, log2_approx, maximum
from ...runtime import jit

_LOG2_E, _LN_2 = math.log2(math.e), math.log(2)
#: exp(−x) is 0 from such x on
_UNDERFLOW = {"float32": 200.0, "float64": 2000.0}


@functools.cache
def _exp_and_log(kind: Any) -> tuple[Any, Any]:
    """exp and log for the accumulator's type."""
    if kind == float32:
        return jit.device(lambda x: exp2_approx(x * float32(_LOG2_E))), jit.device(lambda x: log2_approx(x) * float32(_LN_2))
    return jit.device(lambda x: math.exp(x)), jit.device(lambda x: math.log(x))


@functools.cache
def add_exponentials(kind: Any) -> Any:
    """``combine(a, b)`` after Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).

    The distance of equal infinities is NaN, which ``min`` passes over: they count as far apart, and their sum is the greater one. NaN stays in m.
    """
    power, _ = _exp_and_log(kind)
    underflow = kind(_UNDERFLOW[str(kind)])

    @jit.device
    def combine(a: Any, b: Any) -> Any:
        distance = a[0] - b[0]
        greater, lesser = a[1] if distance > 0 else b[1], b[1] if distance > 0 else a[1]
        return maximum(a[0], b[0]), greater + lesser * power(-min(abs(distance), underflow))

    return combine


@functools.cache
def fold_together(kind: Any) -> Any:
    """``make(count, step)``: ``fold(state, numbers, at)``, the state with ``count`` elements more, which are items ``at``, ``at + step``, … .

    All are scaled by the greatest at once, as a sum over blocks of a softmax is. The greatest itself counts as 1, and more than 1 only if it is
    finite.
    """
    power, _ = _exp_and_log(kind)
    underflow, one = kind(_UNDERFLOW[str(kind)]), kind(1)

    def make(count: int, step: int) -> Any:
        @jit.device
        def fold(state: Any, numbers: Any, at: Any) -> Any:
            greatest = state[0]
            for k in range(count):
                greatest = maximum(greatest, numbers[at + k * step])
            total = state[1] * power(-min(greatest - state[0], underflow))
            for k in range(count):
                total += power(-min(greatest - numbers[at + k * step], underflow))
            return greatest, max(total, one)

        return fold

    return make


@functools.cache
def _scan_together(kind: Any, before: bool) -> Any:
    """``make(count, step)``: ``scan(state, numbers, at)``, as :func:`fold_together`, which replaces each element by its result.

    Sums scaled by the greatest have enough digits if the greatest number up to the first result is near it. Else elements are added one by one.
    """
    (power, log), combine, logarithm = _exp_and_log(kind), add_exponentials(kind), _logarithm(kind)
    underflow, one = kind(_UNDERFLOW[str(kind)]), kind(1)

    def make(count: int, step: int) -> Any:
        @jit.device
        def scan(state: Any, numbers: Any, at: Any) -> Any:
            greatest = state[0]
            for k in range(count):
                greatest = maximum(greatest, numbers[at + k * step])
            if greatest - (state[0] if before else maximum(state[0], numbers[at])) < one:
                total = state[1] * power(-min(greatest - state[0], underflow))
                for k in range(count):
                    after = total + power(numbers[at + k * step] - greatest)
                    numbers[at + k * step] = greatest + log(total if before else after)
                    total = after
                return greatest, total
            for k in range(count):
                after_one = combine(state, (numbers[at + k * step], one))
                numbers[at + k * step] = logarithm(state if before else after_one)
                state = after_one
            return state

        return scan

    return make


@functools.cache
def scan_together_after(kind: Any) -> Any:
    """:func:`_scan_together` of an inclusive scan."""
    return _scan_together(kind, False)


@functools.cache
def scan_together_before(kind: Any) -> Any:
    """:func:`_scan_together` of an exclusive scan."""
    return _scan_together(kind, True)


@functools.cache
def _logarithm(kind: Any) -> Any:
    _, log = _exp_and_log(kind)
    return jit.device(lambda state: state[0] + log(state[1]))


@functools.cache
def logarithm_after(kind: Any) -> Any:
    """``emit`` of an inclusive scan: log Σ exp x up to the element."""
    log = _logarithm(kind)
    return jit.device(lambda before, after, p, r, position, one: log(after))


@functools.cache
def logarithm_before(kind: Any) -> Any:
    """``emit`` of an exclusive scan: log Σ exp x before the element."""
    log = _logarithm(kind)
    return jit.device(lambda before, after, p, r, position, one: log(before))


@functools.cache
def _share(kind: Any) -> Any:
    """``share(part, whole)`` = exp(part − whole) for part ≤ whole, 1 for equal infinities.

    A scan multiplies millions of shares near 1, and the machine's power is off by a part of an ulp to one side, which would add up: in float32 these
    are the first terms of the series, rounded correctly in nearly all cases.
    """
    power, _ = _exp_and_log(kind)
    if kind != float32:
        return jit.device(lambda part, whole, one: power(one - one if part == whole else part - whole))
    near, a, b, c, d = (kind(number) for number in (-0.125, 1 / 2, 1 / 6, 1 / 24, 1 / 120))

    @jit.device
    def share(part: Any, whole: Any, one: Any) -> Any:
        x = one - one if part == whole else part - whole
        return one + x * (one + x * (a + x * (b + x * (c + x * d)))) if x > near else power(x)

    return share


@functools.cache
def _weight(kind: Any) -> Any:
    """``weight(x, whole)`` = exp(x − whole), at most 1; 0 where whole is −∞, the logarithm of nothing."""
    power, _ = _exp_and_log(kind)

    @jit.device
    def weight(x: Any, whole: Any, one: Any) -> Any:
        distance = x - whole
        share = power(one - one if distance > 0 else distance)
        return one - one if whole == -math.inf else share

    return weight


@functools.cache
def shares_inclusive(kind: Any) -> Any:
    """``transform`` of an inclusive scan: q is the share of the sum without the element, r that of the element.

    c is the logarithm of the sum with the element, ``neighbour`` that without it.
    """
    share, weight = _share(kind), _weight(kind)
    return jit.device(lambda a, b, c, neighbour, one: (a, share(neighbour, c, one), weight(b, c, one)))


@functools.cache
def shares_exclusive(kind: Any) -> Any:
    """The same of an exclusive scan: c is the logarithm of the sum without the element, ``neighbour`` that with it."""
    share, weight = _share(kind), _weight(kind)
    return jit.device(lambda a, b, c, neighbour, one: (a, share(c, neighbour, one), weight(b, neighbour, one)))
