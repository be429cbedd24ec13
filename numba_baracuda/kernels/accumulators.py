"""Which tally a monoid has."""

from __future__ import annotations

import functools

from .batch import typed_monoid
from .pivot_accumulator import PivotAccumulator, UnitPivotAccumulator
from .thread_accumulator import ThreadAccumulator


@functools.cache
def thread_accumulator_of(monoid: str, value: str) -> ThreadAccumulator:
    """The one :class:`ThreadAccumulator` for these, so that kernels share its functions."""
    typed = typed_monoid(monoid, value)
    return (UnitPivotAccumulator if typed.unit_pivot_suffices else PivotAccumulator if typed.pivot_terms else ThreadAccumulator)(monoid, value)
