"""The greatest or least element so far, with its position. A later element takes over if it is beyond, or is the first NaN; of zeros, −0 < +0."""

from __future__ import annotations

from typing import Any

from ...device.numbers import maximum, minimum
from ...runtime import jit
from ..operators import NOTHING


@jit.device
def greatest_with_position(a: Any, b: Any) -> Any:
    later = ((not b[0] <= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return maximum(a[0], b[0]), b[1] if later else a[1]


@jit.device
def least_with_position(a: Any, b: Any) -> Any:
    later = ((not b[0] >= a[0]) & (a[0] == a[0])) | (a[1] == NOTHING)
    return minimum(a[0], b[0]), b[1] if later else a[1]
