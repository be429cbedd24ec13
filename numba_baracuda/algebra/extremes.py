"""Monoids of extremes that keep more than the value: the position of the first, or the number of equal ones."""

from __future__ import annotations

import math
from typing import Any

from .monoid import KernelMonoid

INF = math.inf


def _value_and_position(x: Any, position: Any, one: Any) -> Any:
    return x, position


def _position(state: Any, count: Any, one: Any) -> Any:
    return state[1]


def _first_greatest(a: Any, b: Any) -> Any:
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    b_wins = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (tied & (b[1] < a[1]))
    return b[0] if b_wins else a[0], b[1] if b_wins else a[1]


def _first_least(a: Any, b: Any) -> Any:
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    b_wins = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (tied & (b[1] < a[1]))
    return b[0] if b_wins else a[0], b[1] if b_wins else a[1]


def _append_greater(state: Any, x: Any, position: Any) -> Any:
    x_wins = (not x <= state[0]) & (state[0] == state[0])
    return x if x_wins else state[0], position if x_wins else state[1]


def _append_less(state: Any, x: Any, position: Any) -> Any:
    x_wins = (not x >= state[0]) & (state[0] == state[0])
    return x if x_wins else state[0], position if x_wins else state[1]


def value_and_one(x: Any, other: Any, one: Any) -> Any:
    return x, one


def _ties_of_greatest(a: Any, b: Any) -> Any:
    b_wins = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if b_wins else a[0], b[1] if b_wins else a[1] + b[1] if tied else a[1]


def _ties_of_least(a: Any, b: Any) -> Any:
    b_wins = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if b_wins else a[0], b[1] if b_wins else a[1] + b[1] if tied else a[1]


#: the position of the first NaN, or else of the first greatest element; the identity's position is greater than any
FIRST_MAX = KernelMonoid("first_max", (-INF, INF), _first_greatest, _value_and_position, _position, append=_append_greater, extreme="max")
FIRST_MIN = KernelMonoid("first_min", (INF, INF), _first_least, _value_and_position, _position, append=_append_less, extreme="min")
#: the greatest element, and the number of elements equal to it
TIED_MAX = KernelMonoid("tied_max", (-INF, 0.0), _ties_of_greatest, value_and_one, results=2)
TIED_MIN = KernelMonoid("tied_min", (INF, 0.0), _ties_of_least, value_and_one, results=2)
