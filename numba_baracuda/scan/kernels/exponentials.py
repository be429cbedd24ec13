"""Sums of exponentials as exp(m) · s, where m is the greatest exponent: functions that scan operators want for the accumulator's type.

In float32, powers and logarithms are the machine's, to base 2: off by 2 ulp, and by half an ulp of the exponent. In float64 they are those of
:mod:`~numba_baracuda.device.doubles`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba.cuda.types import float32

from ...device import doubles
from ...device.numbers import exp2_approx, log2_approx, maximum, minimum
from ...runtime import jit

_LOG2_E, _LN_2 = math.log2(math.e), math.log(2)
#: exp(−x) is 0 in float32 from such x on
_UNDERFLOW = 200.0
#: how far elements may lie above the greatest before them where sums are scaled by that
_ABOVE = 1.0
#: how far sums of exponentials, as logarithms, may lie from the last of several that are scaled by that
_SPREAD = 8.0


@functools.cache
def _exp_and_log(kind: Any) -> tuple[Any, Any]:
    """exp and log for the accumulator's type."""
    if kind == float32:
        return jit.device(lambda x: exp2_approx(x * float32(_LOG2_E))), jit.device(lambda x: log2_approx(x) * float32(_LN_2))
    return doubles.exp, doubles.log


@functools.cache
def add_exponentials(kind: Any) -> Any:
    """``combine(a, b)`` after Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).

    The distance of equal infinities is NaN, which ``min`` passes over: they count as far apart, and their sum is the greater one. NaN stays in m.
    """
    power, _ = _exp_and_log(kind)
    underflow = kind(_UNDERFLOW)

    @jit.device
    def combine(a: Any, b: Any) -> Any:
        distance = a[0] - b[0]
        greater, lesser = a[1] if distance > 0 else b[1], b[1] if distance > 0 else a[1]
        return maximum(a[0], b[0]), greater + lesser * power(-min(abs(distance), underflow))

    @jit.device
    def combine_doubles(a: Any, b: Any) -> Any:
        """The same with fewer instructions: the sum of equal infinities is their maximum, and of NaN too; the sign of a maximum of 0 is any."""
        distance = a[0] - b[0]
        greater, lesser = a[1] if distance > 0 else b[1], b[1] if distance > 0 else a[1]
        other = a[0] + b[0]
        other = b[0] if distance <= 0 else other
        return a[0] if distance > 0 else other, greater + lesser * doubles.small_exp(-abs(distance))

    return combine if kind == float32 else combine_doubles


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


def _together(kind: Any, before: bool) -> Any:
    """``make(count)``: (fold, fits, scan) of the ``count`` numbers x of an array.

    ``fold(state, numbers)`` is the state with x more. All are scaled by the greatest at once, as in a softmax; it counts as 1, and the sum is
    more than that only if it is finite, else NaN, which ``max`` passes over. ``scan(state, numbers)`` puts the result of each x in its place, and
    returns the same; it scales by the m of the state, if this ``fits(state, numbers)``: m is finite, and no x so far above it that sums about m
    lose digits.
    """
    power, log = _exp_and_log(kind)
    one, above, infinity = kind(1), kind(_ABOVE), kind(math.inf)

    def make(count: int) -> Any:
        @jit.device
        def fold(state: Any, numbers: Any) -> Any:
            greatest = state[0]
            for k in range(0, count, 2):
                greatest = maximum(greatest, maximum(numbers[k], numbers[min(k + 1, count - 1)]))
            total = state[1] * power(state[0] - greatest)
            for k in range(count):
                total += power(numbers[k] - greatest)
            return greatest, max(total, one)

        @jit.device
        def fits(state: Any, numbers: Any) -> Any:
            found, limit = abs(state[0]) < infinity, state[0] + above
            for k in range(count):
                found = found & (numbers[k] <= limit)
            return found

        @jit.device
        def scan(state: Any, numbers: Any) -> Any:
            total = state[1]
            for k in range(count):
                after = total + power(numbers[k] - state[0])
                numbers[k] = state[0] + log(total if before else after)
                total = after
            return state[0], total

        return fold, fits, scan

    return make


@functools.cache
def together_after(kind: Any) -> Any:
    """:func:`_together` of an inclusive scan."""
    return _together(kind, False)


@functools.cache
def together_before(kind: Any) -> Any:
    """:func:`_together` of an exclusive scan."""
    return _together(kind, True)


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
def shares_together(kind: Any) -> Any:
    """``make(count)``: (fold, fits, scan) of ``count`` elements of an inclusive scan's gradient: numbers are arrays of a, b and c.

    Factors of maps that follow one another make one exponential: exp(c₁ − c₀) · exp(c₂ − c₁) = exp(c₂ − c₀). All terms are relative to the last c,
    the least of all, from which the first, the greatest, is not far where numbers ``fit``: all are finite then. ``following`` is the c after that.
    ``fold(state, numbers, following)`` is the map with these elements more; ``scan`` puts results in the place of a, and returns the map, of whose
    scalars only the second is used.
    """
    power, _ = _exp_and_log(kind)
    share, one, spread = _share(kind), kind(1), kind(_SPREAD)

    def make(count: int) -> Any:
        last = count - 1

        @jit.device
        def fits(numbers: Any) -> Any:
            return abs(numbers[2][0] - numbers[2][last]) <= spread

        @jit.device
        def fold(state: Any, numbers: Any, following: Any) -> Any:
            reference, total = numbers[2][last], numbers[0][last]
            for k in range(last):
                total += numbers[0][k] * power(reference - numbers[2][k])
            factor = share(following, numbers[2][0], one)
            return state[0] * factor, share(following, reference, one) * total + factor * state[1]

        @jit.device
        def scan(state: Any, numbers: Any, following: Any) -> Any:
            reference = numbers[2][last]
            total = share(reference, numbers[2][0], one) * state[1]
            for k in range(count):
                total += numbers[0][k] * power(reference - numbers[2][k])
                numbers[0][k] = power(minimum(numbers[1][k], numbers[2][k]) - reference) * total
            return state[0], share(following, reference, one) * total

        return fold, fits, scan

    return make


@functools.cache
def shares_exclusive(kind: Any) -> Any:
    """The same of an exclusive scan: c is the logarithm of the sum without the element, ``neighbour`` that with it."""
    share, weight = _share(kind), _weight(kind)
    return jit.device(lambda a, b, c, neighbour, one: (a, share(c, neighbour, one), weight(b, neighbour, one)))
