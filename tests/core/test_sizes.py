"""Traced arithmetic: a replay gives what the same function gives of other integers, or nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from numba_baracuda.core.sizes import Ratio, Size, apply, greatest, integer, least, plain
from numba_baracuda.core.trace import Trace

_BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b if b else a, lambda a, b: a % b if b else b, lambda a, b: a & b,
    lambda a, b: a | b, lambda a, b: a ^ b, max, min, lambda a, b: a if a < b else b - a, lambda a, b: a if a == b else 7,
    lambda a, b: a if a <= 9 else b,
    lambda a, b: b if a != 3 else a, lambda a, b: a if b / 3 > 2.5 else b, lambda a, b: -a if b >= a else abs(b), lambda a, b: (b - a) >> 1,
    lambda a, b: a.bit_length() + b, lambda a, b: 1 << (a % 20), lambda a, b: -(-a // 8), lambda a, b: integer(a) + 1, lambda a, b: a if b else -b,
    lambda a, b: -(-a // 48) * 6 + b, lambda a, b: (a * 6 - b * 3) // 4, lambda a, b: (a << 3) - (b >> 2), lambda a, b: a // 6 // 4 * 2 - a,
    lambda a, b: a if (b * -6 + 5) // 4 < 20 else -b, lambda a, b: b if a // 16 == 2 else a, lambda a, b: b if a * 3 - b == a * 2 + 4 else a,
    lambda a, b: a if -(-a // 5) * 4 >= b + 2.5 else b, lambda a, b: (a * 8 + 3) % 4 + b, lambda a, b: apply(math.gcd, a, b),
    lambda a, b: a if a > -math.inf and not b > math.inf else b, lambda a, b: 0 * a + 1 * b, least,
    greatest,
]  # fmt: skip


def formula(draw: random.Random) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
    """A function of three integers, of some operations and comparisons."""
    steps = [(draw.choice(_BINARY), draw.randrange(5 + k), draw.randrange(5 + k)) for k in range(draw.randrange(1, 12))]

    def compute(*given: Any) -> tuple[Any, ...]:
        numbers = [*given, 1, 64]
        for function, a, b in steps:
            numbers.append(function(numbers[a], numbers[b]))
        return (numbers[-1], (numbers[-2], 0.5 * numbers[-1], "name"), -0.0, math.inf)

    return compute


@pytest.mark.parametrize("seed", range(6))
def test_replays_of_formulas(seed: int) -> None:
    draw, served = random.Random(seed), 0
    for _ in range(150):
        compute, trace = formula(draw), Trace()
        (a, b), (c,) = trace.sizes([draw.randrange(40), draw.randrange(1 << 20)], 0), trace.sizes([draw.randrange(-30, 30)])
        replay = trace.compile(compute(a, b, c))
        for _ in range(40):
            sizes = draw.randrange(40), draw.choice([5, draw.randrange(1 << 20)]), draw.randrange(-30, 30)
            found = replay(sizes[:2], sizes[2:])
            if found is not None:
                served += 1
                assert repr(found) == repr(compute(*sizes))
        first = a.value, b.value
        assert repr(replay(first, (c.value,))) == repr(compute(*first, c.value))
    assert served > 1000


def test_what_pins_a_size() -> None:
    for use in (range, lambda n: [0] * 9 if [0, 1, 2, 3][n] else 0, int, float, str, "{:d}".format, plain, repr):
        trace = Trace()
        (size,) = trace.sizes([3])
        use(size)
        replay = trace.compile((size,))
        assert replay((3,)) == (3,) and replay((4,)) is None


def test_sizes_that_others_share_are_pinned() -> None:
    trace = Trace()
    n, columns, m = trace.sizes([3, 64, 5], 0, (4, 64, 6))
    assert type(columns) is int and isinstance(n, Size) and isinstance(m, Size)
    replay = trace.compile((n * columns, m))
    assert replay((9, 64, 7)) == (576, 7) and replay((9, 65, 7)) is None
    assert all(isinstance(size, Size) for size in Trace().sizes([3, 64]))


def test_what_does_not() -> None:
    trace = Trace()
    (n, m) = trace.sizes([3, 5], 0)
    assert n >= 0 and n < math.inf and n + 1 > n * 0 and n != "3" and n is not None and abs(n) is n
    assert isinstance(n, Size) and isinstance(n / 2, Ratio) and n * 1 is n and n + 0 is n and (n + m) is (n + m)
    replay = trace.compile((n, m, least(n, m), greatest(n, m)))
    assert [replay(sizes) for sizes in ((0, 0), (7, 1))] == [(0, 0, 0, 0), (7, 1, 1, 7)]


def test_a_size_is_never_found_in_a_memo() -> None:
    (size,) = Trace().sizes([3])
    with pytest.raises(TypeError, match="unhashable"):
        hash(size)


def test_equal_sizes_are_one() -> None:
    trace = Trace()
    (a, b) = trace.sizes([6, 6], 0)
    assert a == b and a + 1 == b + 1 and not a < b
    replay = trace.compile((a * 2, b * 2))
    assert replay((9, 9)) == (18, 18) and replay((9, 8)) is None


def test_multiples_and_quotients_take_one_step() -> None:
    (n, m) = Trace().sizes([1000, 7], 0)
    assert n * 4 * 2 + 6 is (n + 1) * 8 - 2 and 0 - (-n) is n and n - (n - 3) == 3 and n * 3 - n is 2 * n and (n + m) * 2 - (n + m) is n + m
    assert n << 3 is n * 8 and n >> 3 is n // 8 and (n * 6 + 3) // 3 is n * 2 + 1 and (n * 6 + 5) % 3 == 2
    assert n // 4 // 8 is n // 32 and (n // 4 + 1) // 8 is (n + 4) // 32 and (n * 6 + 5) // 4 is (n * 3 + 2) // 2


@pytest.mark.parametrize("scale", [-3, -1, 1, 4])
def test_guards_of_multiples_and_quotients_hold_where_decisions_are_the_same(scale: int) -> None:
    def decide(n: Any, most: int) -> tuple[bool, ...]:
        line = (n * scale + 2) // 5 * 3 - 1
        return line < most, line == most, -(-n // 8) >= most + 0.5, line * 2 <= n + line * 2 - most

    for most in range(-40, 40, 3):
        trace = Trace()
        (n,) = trace.sizes([17])
        decided = decide(n, most)
        replay = trace.compile(decided)
        for other in range(-60, 60):
            assert replay((other,)) == (decided if decide(other, most) == decided else None)


def test_bounds_reach_what_was_known_before() -> None:
    """A bound of an extent decides comparisons of what was computed of it, and one of the result those of the extent."""
    trace = Trace()
    (n,) = trace.sizes([100], 0)
    blocks = -(-n // 64)
    assert blocks * 4 <= 40 and n <= 640 and not n > 700 and blocks < 11
    assert trace.compile((blocks,))((640,)) == (10,) and len(trace._guards) == 1


def test_equal_sizes_of_which_one_is_computed_from_the_other() -> None:
    trace = Trace()
    (n, m) = trace.sizes([5, 10], 0)
    assert (n + 1) // 3 * 3 - 1 == n and n // 2 * 5 == m and m // 2 == n and n * 2 == m and n + m < 99
    replay = trace.compile((n * 2, m + 1))
    assert replay((5, 10)) == (10, 11) and replay((5, 11)) is None and replay((6, 12)) is None
