"""Monoids as plain functions of scalars: what a fold does, without an index or a dtype.

A user writes a :class:`Monoid`; kernels take a :class:`KernelMonoid`, by its name. A state is a scalar (``width`` 1) or a tuple of ``width`` scalars,
all of one type. ``lift(x, other, one)`` of a :class:`KernelMonoid` makes a state of an element, ``combine(a, b)`` joins two neighbouring states in
order, and ``finish(state, count, one)`` turns the state of ``count`` elements into the result. A kernel compiles these functions in, so they use only
arithmetic that numba knows, ``one`` instead of literals, which would pull float32 up to float64, and ``&`` and ``|`` instead of words that branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class ByType(str):
    """The name, ``"package.module:function"``, of what gives a function for the state's type."""


@dataclass(frozen=True)
class Given:
    """What a user gave, as a rule a function. ``adapter`` names what makes a function for kernels of it, of the state's type and its ``width``."""

    adapter: str
    function: Any
    width: int


def _element(x: Any, other: Any, one: Any) -> Any:
    return x


def _state(state: Any, count: Any, one: Any) -> Any:
    return state


def _around(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    return pivot, first


def _unmoved(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first, second


@dataclass(frozen=True)
class Monoid:
    """A fold of your own: an associative ``combine`` with its ``identity``, and how elements enter and results leave.

    ``segment_reduce``, ``reduce_axis`` and ``scan_axis`` take one, and so do the collectives of the device library. ``identity`` is a tuple of 1 to 4
    numbers, the state of no elements. A state is a scalar where that is one number, else a tuple of as many scalars. The functions are plain Python
    functions of scalars, or device functions of ``numba.cuda``; they are compiled into the kernels:

    * ``combine(a, b)`` joins two states. It is associative, and need not commute: the elements of ``a`` come before those of ``b``.
    * ``lift(x)`` makes a state of an element. Without it the element is the state, of one scalar.
    * ``finish(state)`` or ``finish(state, count)``, of the number of elements, makes the result. Without it the state is the result.

    ``kind``, ``"f32"``, ``"f64"``, ``"i32"`` or ``"i64"``, is the type of the scalars of a state and of ``x``; by default that in which sums of the
    elements are kept. An infinity in the identity of integers stands for the least or the greatest of them. With ``commutes=True`` elements are
    folded in an order that is faster to read, still the same in every run. The collectives look at ``identity`` and
    ``combine`` alone. See ``docs/monoids.md``.
    """

    name: str
    identity: tuple[float, ...]
    combine: Callable[[Any, Any], Any] | str
    lift: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None
    kind: str = field(default="", kw_only=True)
    commutes: bool = field(default=False, kw_only=True)

    @property
    def width(self) -> int:
        """Scalars in a state."""
        return len(self.identity)


@dataclass(frozen=True)
class KernelMonoid(Monoid):
    """A fold as kernels take it.

    Without ``lift`` an element is a state; without ``finish`` the state is the result. An infinity in the identity stands for the least or greatest
    integer where states are integers. What needs numba is named as ``"package.module:function"``, :class:`ByType` or :class:`Given`. ``lift`` is
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

    ``kind`` is the state's type where it is not the accumulator's; ``divides`` says that ``combine`` does. One that does not ``commute`` is folded
    in order. Of a ``foreign`` one, a user's, nobody knows how many registers its functions take. Where elements ``shift``, the mean in a
    state is taken less one of them.
    """

    combine: Any
    lift: Any = _element
    finish: Any = _state
    commutes: bool = field(default=True, kw_only=True)
    append: Callable[[Any, Any, Any], Any] | None = None
    pivot: Callable[[Any, Any], Any] | None = None
    about: Callable[[Any, Any, Any], Any] | str = ""
    moved: Callable[[Any, Any, Any, Any, Any, Any], Any] | str = _unmoved
    around: Callable[[Any, Any, Any, Any, Any], Any] | str = _around
    suits: Callable[[Any, Any, Any], Any] | str = ""
    terms: int = 1
    shifts: bool = False
    pairs: bool = False
    results: int = 1
    corrected: bool = False
    counts: bool = False
    divides: bool = False
    foreign: bool = False

    @property
    def places(self) -> bool:
        """Whether an element's position enters its state."""
        return self.append is not None

    @property
    def heavy(self) -> bool:
        """Whether a state is more than an element."""
        return self.width > 1 or self.pairs

    @property
    def hungry(self) -> bool:
        """Whether joining states may take many registers."""
        return self.heavy or self.foreign

    @property
    def lifts(self) -> bool:
        """Whether an element is not its own state."""
        return self.lift is not _element

    @property
    def finishes(self) -> bool:
        """Whether the result is more than the state."""
        return self.finish is not _state
