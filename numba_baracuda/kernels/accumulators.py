"""The thread accumulator of a monoid."""

from __future__ import annotations

import functools

from .batch import typed_monoid
from .pivot_accumulator import PivotAccumulator, UnitPivotAccumulator
from .thread_accumulator import ThreadAccumulator


@functools.cache
def thread_accumulator_of(monoid: str, value: str) -> ThreadAccumulator:
    """The :class:`ThreadAccumulator` of a monoid over elements of a type; one for all kernels, so that each of its functions is compiled once."""
    typed = typed_monoid(monoid, value)
    return (UnitPivotAccumulator if typed.unit_pivot_suffices else PivotAccumulator if typed.pivot_terms else ThreadAccumulator)(monoid, value)
