"""Monoids as plain functions of scalars: what a fold does, without an index or a dtype.

A state is a scalar (``width`` 1) or a tuple of ``width`` scalars, all of the accumulator's type. ``lift(x, other, one)`` makes a state of an element,
``combine(a, b)`` joins two neighbouring states in order, and ``finish(state, count, one)`` turns the state of ``count`` elements into the result. A
kernel compiles these functions in, so they use only arithmetic that numba knows, ``one`` instead of literals, which would pull float32 up to float64,
and ``&`` and ``|`` instead of words that branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class ByType(str):
    """The name, ``"package.module:function"``, of what gives a function for the state's type."""


def _element(x: Any, other: Any, one: Any) -> Any:
    return x


def _state(state: Any, count: Any, one: Any) -> Any:
    return state


def _pivot_and_sum(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    return pivot, first


def _same_sums(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first, second


@dataclass(frozen=True)
class Monoid:
    """A fold: an associative ``combine`` with an ``identity``, and how elements enter and results leave.

    Without ``lift`` an element is a state; without ``finish`` the state is the result. An infinity in the identity stands for the least or greatest
    integer where states are integers. What needs numba is named as ``"package.module:function"``, or :class:`ByType`. ``lift`` is
    given as ``other`` with ``pairs`` the element of a second array, and where states hold ``places`` the element's position (of floats the one with
    its bits, so that they compare as positions do). Such monoids have ``append(state, x, position)``, which folds in an element that lies behind all
    of the state's; a run of elements begins with the identity, its last scalar replaced by the position of the first of them. ``finish`` is given
    the count, of a ``corrected`` monoid less the correction that a caller chose, and with several ``results`` gives a tuple; ``counts`` says that it
    looks at the count, and an identity of one scalar is otherwise its own result.

    Some are sums about a pivot: ``about(x, pivot, one)`` gives the ``terms`` of an element, one or two, to add up, ``moved(first, second, count, old,
    new, one)`` the sums about another pivot, and ``around(pivot, first, second, count, one)`` the state. The pivot is the last of ``pivot(a, x)``
    over the elements, which may pass over a NaN, since the sums do not; without that one of the first elements, and later their mean. Where there is
    ``suits(sum, pivot, one)``, the sum of some elements, of one term each, about the pivot 1 is tried first: it says whether that will do, 1 and the
    pivot of those before having become ``pivot``.

    ``kind`` is the state's type where it is not the accumulator's; ``divides`` says that ``combine`` does. Where elements ``shift``, the mean in a
    state is taken less one of them.
    """

    name: str
    identity: tuple[float, ...]
    combine: Callable[[Any, Any], Any] | str
    lift: Callable[[Any, Any, Any], Any] | str = _element
    finish: Callable[[Any, Any, Any], Any] | str = _state
    append: Callable[[Any, Any, Any], Any] | None = None
    choose_pivot: Callable[[Any, Any], Any] | None = None
    pivot_terms: Callable[[Any, Any, Any], Any] | str = ""
    rebase: Callable[[Any, Any, Any, Any, Any, Any], Any] | str = _same_sums
    pivot_state: Callable[[Any, Any, Any, Any, Any], Any] | str = _pivot_and_sum
    unit_pivot_suffices: Callable[[Any, Any, Any], Any] | str = ""
    term_count: int = 1
    kind: str = ""
    subtracts_origin: bool = False
    pairs: bool = False
    results: int = 1
    corrected: bool = False
    counts: bool = False
    divides: bool = False

    @property
    def uses_positions(self) -> bool:
        """Whether an element's position enters its state."""
        return self.append is not None

    @property
    def width(self) -> int:
        """Scalars in a state."""
        return len(self.identity)

    @property
    def heavy(self) -> bool:
        """Whether a state is more than an element."""
        return self.width > 1 or self.pairs

    @property
    def lifts(self) -> bool:
        """Whether an element is not its own state."""
        return self.lift is not _element

    @property
    def finishes(self) -> bool:
        """Whether the result is more than the state."""
        return self.finish is not _state
