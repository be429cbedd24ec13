"""Σ x² at three scales side by side, one of which is in the range: functions that give what the monoid wants for the state's type.

After Blue, "A portable Fortran program to find the Euclidean norm of a vector" (1978), who tells the sizes of elements apart. Here all three sums
take every element, so that there is nothing to choose before the end.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ..runtime import jit

#: exponents a and b of the scales of large and of small elements, and c and d: a sum of plain squares from 2ᶜ to 2ᵈ has lost nothing that counts
#: by underflow; above it that of squares times 2²ᵃ has not either, and below it that of squares times 2²ᵇ does not overflow
_SCALES = {"float32": (-65, 88, -60, 100), "float64": (-520, 600, -400, 700)}


@functools.cache
def squares(kind: Any) -> Any:
    """``lift``: the square of x · 2ᵃ, of x, and of x · 2ᵇ."""
    large, small, *_ = (kind(2.0**power) for power in _SCALES[str(kind)])

    @jit.device
    def lift(x: Any, other: Any, one: Any) -> Any:
        lowered, raised = x * large, x * small
        return lowered * lowered, x * x, raised * raised

    return lift


@functools.cache
def root(kind: Any) -> Any:
    """``finish``: the root of the sum that is in the range."""
    large, small, least, most = _SCALES[str(kind)]
    from_large, from_small, low, high = (kind(2.0**power) for power in (-large, -small, least, most))

    @jit.device
    def finish(state: Any, count: Any, one: Any) -> Any:
        above, below = state[1] >= high, state[1] < low
        scale = from_large if above else from_small if below else kind(1)
        return math.sqrt(state[0] if above else state[2] if below else state[1]) * scale

    return finish
