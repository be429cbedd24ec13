"""Which tally a monoid has."""

from __future__ import annotations

import functools

from .batch import monoid_on
from .pivot_tally import PivotTally, TriedTally
from .tally import Tally


@functools.cache
def tally_of(monoid: str, value: str) -> Tally:
    """The one :class:`Tally` for these, so that kernels share its functions."""
    found = monoid_on(monoid, value)
    return (TriedTally if found.suits else PivotTally if found.about else Tally)(monoid, value)
