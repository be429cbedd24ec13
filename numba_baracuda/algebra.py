"""Monoids as plain functions of scalars: what a fold does, without an index or a dtype.

A state is a scalar (``width`` 1) or a tuple of ``width`` scalars, all of the accumulator's type. ``lift`` makes a state of an element, ``combine``
joins two neighbouring states in order, and ``finish`` turns the state of ``count`` elements into the result. A kernel compiles these functions in, so
they use only arithmetic that numba knows, and no bare float literal: a literal would pull float32 up to float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _element(x: Any) -> Any:
    return x


def _state(state: Any, count: Any) -> Any:
    return state


def _add(a: Any, b: Any) -> Any:
    return a + b


def _average(state: Any, count: Any) -> Any:
    return state / count


@dataclass(frozen=True)
class Monoid:
    """A fold: an associative ``combine`` with an ``identity``, and how elements enter and results leave.

    Without ``lift`` an element is a state; without ``finish`` the state is the result.
    """

    name: str
    identity: tuple[float, ...]
    combine: Callable[[Any, Any], Any]
    lift: Callable[[Any], Any] = _element
    finish: Callable[[Any, Any], Any] = _state

    @property
    def width(self) -> int:
        """Scalars in a state."""
        return len(self.identity)

    @property
    def finishes(self) -> bool:
        """Whether the result is more than the state."""
        return self.finish is not _state


SUM = Monoid("sum", (0.0,), _add)
MEAN = Monoid("mean", (0.0,), _add, finish=_average)

MONOIDS = {monoid.name: monoid for monoid in (SUM, MEAN)}
