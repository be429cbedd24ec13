"""√Σ x² from sums at three scales, one of which neither overflows nor vanishes. Each function here gives a monoid's function for the state's type.

After Blue, "A portable Fortran program to find the Euclidean norm of a vector" (1978), who adds each element to the sum for its size. Here every
element is added to all three sums, so nothing is chosen before the end.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from ..runtime import jit

#: exponents (a, b, c, d) by the state's type: large elements are scaled by 2ᵃ, small ones by 2ᵇ. A sum of unscaled squares from 2ᶜ to 2ᵈ has lost
#: no digit to underflow. Where it is 2ᵈ or more, the sum of squares times 2²ᵃ has lost none; where it is less than 2ᶜ, that times 2²ᵇ is finite
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
    """``finish``: the root of the sum that is in range, its scale divided out."""
    large, small, least, most = _SCALES[str(kind)]
    from_large, from_small, low, high = (kind(2.0**power) for power in (-large, -small, least, most))

    @jit.device
    def finish(state: Any, count: Any, one: Any) -> Any:
        above, below = state[1] >= high, state[1] < low
        scale = from_large if above else from_small if below else kind(1)
        return math.sqrt(state[0] if above else state[2] if below else state[1]) * scale

    return finish
