"""Monoids of extremes that keep more than their value: where the first one is, or how many there are."""

from __future__ import annotations

import math
from typing import Any

from .monoid import KernelMonoid

INF = math.inf


def _at(x: Any, position: Any, one: Any) -> Any:
    return x, position


def _position(state: Any, count: Any, one: Any) -> Any:
    return state[1]


def _first_greatest(a: Any, b: Any) -> Any:
    alike = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    later = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (alike & (b[1] < a[1]))
    return b[0] if later else a[0], b[1] if later else a[1]


def _first_least(a: Any, b: Any) -> Any:
    alike = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    later = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0])) | (alike & (b[1] < a[1]))
    return b[0] if later else a[0], b[1] if later else a[1]


def _greater_behind(state: Any, x: Any, position: Any) -> Any:
    later = (not x <= state[0]) & (state[0] == state[0])
    return x if later else state[0], position if later else state[1]


def _less_behind(state: Any, x: Any, position: Any) -> Any:
    later = (not x >= state[0]) & (state[0] == state[0])
    return x if later else state[0], position if later else state[1]


def once(x: Any, other: Any, one: Any) -> Any:
    return x, one


def _ties_of_greatest(a: Any, b: Any) -> Any:
    later = (b[0] > a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if later else a[0], b[1] if later else a[1] + b[1] if tied else a[1]


def _ties_of_least(a: Any, b: Any) -> Any:
    later = (b[0] < a[0]) | ((b[0] != b[0]) & (a[0] == a[0]))
    tied = (b[0] == a[0]) | ((b[0] != b[0]) & (a[0] != a[0]))
    return b[0] if later else a[0], b[1] if later else a[1] + b[1] if tied else a[1]


#: the position of the first NaN, else of the first greatest element: no position is as far as the identity's
FIRST_MAX = KernelMonoid("first_max", (-INF, INF), _first_greatest, _at, _position, _greater_behind)
FIRST_MIN = KernelMonoid("first_min", (INF, INF), _first_least, _at, _position, _less_behind)
#: the greatest element, and how many elements are equal to it
TIED_MAX = KernelMonoid("tied_max", (-INF, 0.0), _ties_of_greatest, once, results=2)
TIED_MIN = KernelMonoid("tied_min", (INF, 0.0), _ties_of_least, once, results=2)
