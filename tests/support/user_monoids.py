"""Monoids as a user would write them."""

from __future__ import annotations

import math

import numba_baracuda as nb

#: the last element that is not 0: it does not commute
LAST = nb.Monoid("last", (0,), lambda a, b: b if b != 0 else a)
#: the greatest element less the smallest: states of two numbers
SIDE = nb.Monoid(
    "side", (-math.inf, math.inf), lambda a, b: (max(a[0], b[0]), min(a[1], b[1])), lambda x: (x, x), lambda state: state[0] - state[1],
    commutes=True,
)  # fmt: skip
