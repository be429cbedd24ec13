"""Options of ops: checks that return an option in its one form or raise an error with op and option, and keys for memos."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import registry
from .dtypes import BY_NAME
from .errors import InvalidProblem, Unsupported
from .op import Op
from .sizes import integer

_PLAIN = frozenset((int, str, bool, type(None)))
_BEYOND = 1 << 63  #: the first whole number that int64 does not hold


def key_of(*given: Any) -> tuple[Any, ...]:
    """A key that options share only if they are of the same types and bits: True, 1 and 1.0 are three, −0.0 and 0.0 two, and NaN is one."""
    kinds = tuple(map(type, given))
    return kinds, given if _PLAIN.issuperset(kinds) else tuple(map(_bits, given))


def _bits(given: Any) -> Any:
    """An option in a key: lists and arrays by their items; an object without a hash equals none."""
    if type(given) is float:
        return repr(given)
    if isinstance(given, list | tuple):
        return key_of(*given)
    if isinstance(given, np.ndarray | np.generic):
        return given.dtype.str, given.shape, given.tobytes()
    try:
        hash(given)
    except TypeError:
        return object()
    return given


class Described:
    """What descriptors, frozen dataclasses, have in common: they are equal where their fields are of the same types and bits."""

    op_name: Any
    family = ""  #: the family of their ops
    extents: tuple[str, ...] = ()  #: further fields that are extents, although no operand has them

    def find_op(self) -> Op:
        """The op that the problem is for."""
        return registry.find(self.op_name, self.family)

    def part(self, op: Op, given: Any, name: str) -> Any:
        """The view of an operand that a bundle brings; a family without bundles raises."""
        raise InvalidProblem(f"{op.name}: {name} is of type {type(given).__name__}, wants an array")

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return key_of(*[getattr(self, each.name) for each in dataclasses.fields(self)])  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


def refusal(where: str, name: str, given: Any, wants: str) -> InvalidProblem:
    """The error for an option; the text of a long value is cut short."""
    text = f"of type {type(given).__name__}" if getattr(given, "shape", ()) else repr(given)
    return InvalidProblem(f"{where}: {name} is {text if len(text) <= 100 else text[:97] + '...'}, wants {wants}")


def flag(where: str, name: str, given: Any, wants: str = "True or False") -> bool:
    """A bool, of Python or NumPy."""
    if isinstance(given, bool | np.bool_):
        return bool(given)
    raise refusal(where, name, given, wants)


def whole(where: str, name: str, given: Any, least: int | None = None, wants: str = "") -> int:
    """A whole number that int64 holds; an array or a tensor of one element is refused, as reading it may wait for the device."""
    wants = wants or ("a whole number" if least is None else f"a whole number, {least} or more")
    if not _is_whole(given):
        raise refusal(where, name, given, f"{wants}, which int64 holds" if isinstance(given, int) and not isinstance(given, bool) else wants)
    found: int = integer(given)
    if least is not None and found < least:
        raise refusal(where, name, given, wants)
    return found


def _is_whole(given: Any) -> bool:
    if type(given) is int:
        return -_BEYOND <= given < _BEYOND
    return isinstance(given, numbers.Integral) and not isinstance(given, bool) and -_BEYOND <= integer(given) < _BEYOND


def number(where: str, name: str, given: Any, wants: str = "a finite number") -> float:
    """A finite number."""
    found = _float(given)
    if found is None or not math.isfinite(found):
        raise refusal(where, name, given, wants)
    return found


def _float(given: Any) -> float | None:
    """A number, infinite where float64 holds nothing as large; None for what is no number."""
    if not isinstance(given, numbers.Real) or isinstance(given, bool):
        return None
    with contextlib.suppress(OverflowError):
        return float(given)
    return math.inf


def correction(where: str, given: Any) -> float:
    """The number that is subtracted from counts, 2⁶⁴ at most: every count is less than that."""
    found = _float(given)
    if found is None or not 0 <= found < math.inf:
        raise refusal(where, "correction", given, "a finite number, 0 or more")
    return min(found, 2.0**64) + 0.0  # −0 is 0


def representable(where: str, name: str, given: Any, element: str, wants: str) -> float:
    """A number that an element type can represent: an int for integer types; for floats, infinities and NaN are numbers, too."""
    kind, found = BY_NAME[element], _float(given)
    if found is None:
        raise refusal(where, name, given, wants)
    fits = kind.limits[0] <= given <= kind.limits[1]
    if not (fits and given == int(given) if kind.whole else fits or given != given or given in (math.inf, -math.inf)):
        raise refusal(where, name, given, f"a number that {element} holds")
    return int(given) if kind.whole else found


def choice(where: str, name: str, given: Any, among: Sequence[str]) -> str:
    """One of some names."""
    if isinstance(given, str) and given in among:
        return str(given)
    raise refusal(where, name, given, f"one of {', '.join(map(repr, among))}")


def shape(where: str, name: str, given: Any) -> tuple[int, ...]:
    """Extents as a tuple, of any sign: the op checks that later."""
    several = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(several, Sequence) or isinstance(several, str | bytes | bytearray):
        raise refusal(where, name, given, "a tuple of whole numbers")
    for each in several:
        if not _is_whole(each):
            raise refusal(where, name, given, "whole numbers, which int64 holds")
    return tuple(map(integer, several))


def axis(where: str, given: Any, rank: int) -> int:
    """An axis, counted from the front; a 0-d array in host memory counts as a number."""
    within = f"a number from {-rank} to {rank - 1} for {rank} axes" if rank else "an array of at least one axis"
    return _axis(where, given, given, rank, "a whole number", within)


def axes(where: str, given: Any, rank: int) -> tuple[int, ...]:
    """Axes in ascending order: a number, several, or None for all; negative ones count from the end."""
    if given is None:
        return tuple(range(rank))
    several = (isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray)) or (isinstance(given, np.ndarray) and given.ndim > 0)
    wants, within = "a whole number, several, or None", f"numbers from {-rank} to {rank - 1} for {rank} axes"
    found = {_axis(where, each, given, rank, wants, within) for each in (given if several else [given])}
    if several and len(found) < len(given):
        raise refusal(where, "axis", given, "each axis once")
    return tuple(sorted(found))


def _axis(where: str, one: Any, given: Any, rank: int, wants: str, within: str) -> int:
    """One of the axes that were given."""
    named = one[()] if isinstance(one, np.ndarray) and not one.shape else one
    if not _is_whole(named):
        raise refusal(where, "axis", given, wants)
    found = int(named)
    if not -rank <= found < rank:
        raise refusal(where, "axis", given, within)
    return found % rank


def check_element(op: Op, name: str) -> None:
    """Raises :class:`~numba_baracuda.core.errors.Unsupported` for an element that an op does not have."""
    if name not in op.elements:
        operands = " and ".join(operand.name for operand in op.operands if not (operand.index or operand.element or operand.optional))
        raise Unsupported(f"{op.name}: element is {name}, wants one of {', '.join(op.elements)} for {operands}")
