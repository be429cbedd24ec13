"""Monoids as plain functions of scalars: what a fold does, without an index or a dtype.

A user writes a :class:`Monoid`; kernels take a :class:`KernelMonoid`, by its name.

A state is a scalar (``width`` 1) or a tuple of ``width`` scalars, all of the accumulator's type. ``lift(x, other, one)`` makes a state of an element,
``combine(a, b)`` combines two neighbouring states in order, and ``finish(state, count, one)`` turns the state of ``count`` elements into the result.
Kernels compile these functions. So they use only arithmetic that Numba knows; ``one`` instead of literals, which would promote float32 to float64;
and ``&`` and ``|`` instead of ``and`` and ``or``, which branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class ByType(str):
    """The name, ``"package.module:function"``, of a function that takes the state's type and gives the function for it."""


@dataclass(frozen=True)
class Given:
    """A function of a user's monoid. ``adapter`` names the function that adapts it for kernels, given the state's type and ``width``."""

    adapter: str
    function: Any
    width: int


def _element(x: Any, other: Any, one: Any) -> Any:
    return x


def _state(state: Any, count: Any, one: Any) -> Any:
    return state


def _pivot_and_sum(pivot: Any, first: Any, second: Any, count: Any, one: Any) -> Any:
    return pivot, first


def _pivot_and_one(pivot: Any, one: Any) -> Any:
    return pivot, one


def _same_sums(first: Any, second: Any, count: Any, old: Any, new: Any, one: Any) -> Any:
    return first, second


@dataclass(frozen=True)
class Monoid:
    """A fold of your own: an associative ``combine`` with its ``identity``, a ``lift`` of elements to states and a ``finish`` of states to results.

    ``segment_reduce``, ``reduce_axis`` and ``scan_axis`` take one, and so do the collectives of the device library. ``identity`` is a tuple of 1 to 4
    numbers, the state of no elements. A state is a scalar where that is one number, else a tuple of as many scalars. The functions are plain Python
    functions of scalars, or device functions of ``numba.cuda``; they are compiled into the kernels:

    * ``combine(a, b)`` combines two states. It is associative, and need not commute: the elements of ``a`` come before those of ``b``.
    * ``lift(x)`` makes a state of an element. Without it the element is the state, of one scalar.
    * ``finish(state)`` or ``finish(state, count)`` makes the result; ``count`` is the number of elements. Without it the state is the result.

    ``kind``, ``"f32"``, ``"f64"``, ``"i32"`` or ``"i64"``, is the type of the scalars of a state and of ``x``; by default that of the accumulator. An
    infinity in the identity of integers stands for the least or the greatest of them. With ``commutes=True`` elements are folded in an order that is
    faster to read, still the same in every run. The collectives use ``identity`` and ``combine`` alone. See ``docs/monoids.md``.
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
    """A fold as kernels take it: an associative ``combine`` with an ``identity``, a ``lift`` and a ``finish``.

    Without ``lift`` an element is its own state; without ``finish`` the state is the result. An infinity in the identity stands for the least or
    greatest integer where states are integers. A function that needs Numba is given by its name, ``"package.module:function"``, or as a
    :class:`ByType`.

    * ``kind``: the element type of states, where it is not the accumulator's
    * ``pairs``: ``lift`` gets the element of a second array as ``other``
    * ``lifted``: the name of the monoid that folds what ``lift`` makes, where that is an element for it
    * ``append(state, x, position)``: the state after one more element. Monoids whose states hold positions have it; ``lift`` then gets the
      position as ``other``. A float state holds a position as the float of its bits, so positions compare as numbers do. Appending starts from the
      identity with its last scalar replaced by the position of the first element
    * ``extreme``: ``"max"`` or ``"min"`` where a state is the extreme of the elements, NaN if there is one, and the position of the first that equals
      it, or of the first NaN
    * ``results``: how many results ``finish`` gives; several are a tuple
    * ``counts``: ``finish`` uses the count. Otherwise an identity of one scalar is its own result
    * ``corrected``: the count that ``finish`` gets is less the correction that a caller chose
    * ``divides``: ``combine`` divides
    * ``commutes``: states may be combined in any order; otherwise elements are folded in the order of their positions
    * ``foreign``: a user's monoid, whose functions take an unknown number of registers

    Some monoids are also sums about a pivot, which lose fewer digits or cost less:

    * ``pivot_terms(x, pivot, one)``: the ``term_count`` terms, one or two, of an element, to be added up
    * ``settle(pivot, one)``: what ``pivot_terms`` gets for the pivot and for ``one`` where the pivot is known before elements are added up
    * ``rebase(first, second, count, old, new, one)``: the sums about ``old`` of ``count`` elements, as sums about ``new``
    * ``pivot_state(pivot, first, second, count, one)``: the state
    * ``choose_pivot(a, x)``: the pivot after element ``x``, ``a`` being the pivot before it; it may ignore NaN, since the sums do not. Without it the
      pivot is one of the first elements, and later their mean
    * ``packed_choice``: the arithmetic on two halves in a word, as :mod:`~..device.bits` names it, that chooses as ``choose_pivot``, but for NaN
    * ``unit_pivot_suffices(sum, pivot, one)``: whether the sum of some elements about the pivot 1 is good enough, ``pivot`` being chosen from 1 and
      the pivot so far. Monoids of one term may have it; the pivot 1 is then tried first
    * ``subtracts_origin``: the mean in a state is less the row's origin, which is its first element, or 0 if that is not finite
    """

    lift: Any = _element
    finish: Any = _state
    commutes: bool = field(default=True, kw_only=True)
    append: Callable[[Any, Any, Any], Any] | None = None
    extreme: str = ""
    choose_pivot: Callable[[Any, Any], Any] | str | None = None
    packed_choice: str = ""
    pivot_terms: Callable[[Any, Any, Any], Any] | str = ""
    settle: Callable[[Any, Any], Any] | str = _pivot_and_one
    rebase: Callable[[Any, Any, Any, Any, Any, Any], Any] | str = _same_sums
    pivot_state: Callable[[Any, Any, Any, Any, Any], Any] | str = _pivot_and_sum
    unit_pivot_suffices: Callable[[Any, Any, Any], Any] | str = ""
    term_count: int = 1
    subtracts_origin: bool = False
    pairs: bool = False
    lifted: str = ""
    results: int = 1
    corrected: bool = False
    counts: bool = False
    divides: bool = False
    foreign: bool = False

    @property
    def uses_positions(self) -> bool:
        """Whether states hold positions."""
        return self.append is not None

    @property
    def any_pivot(self) -> bool:
        """Whether a state is sums about a pivot that may be any element."""
        return self.pivot_terms != "" and self.choose_pivot is None

    @property
    def heavy(self) -> bool:
        """Whether a state takes more than one element of one array."""
        return self.width > 1 or self.pairs

    @property
    def hungry(self) -> bool:
        """Whether combining states may take many registers."""
        return self.heavy or self.foreign

    @property
    def lifts(self) -> bool:
        """Whether an element is not its own state."""
        return self.lift is not _element

    @property
    def finishes(self) -> bool:
        """Whether the result is more than the state."""
        return self.finish is not _state
