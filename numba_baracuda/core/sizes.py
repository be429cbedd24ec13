"""Numbers that record their arithmetic, so that the arithmetic of one problem's sizes can be replayed for others.

A :class:`~.trace.Trace` makes :class:`Size` objects of given sizes. Recipes compute with these as with integers. Arithmetic adds an expression to the
trace, a comparison a guard. What needs a plain integer, such as an index or a constant of a kernel, pins the size.

What is a multiple of another size plus a constant is a *line* of that size, its root: it is computed from the root at once, and bounds of one are
bounds of the other.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .bounds import Bounds, bounds

if TYPE_CHECKING:
    from .trace import Trace

_INFINITY = math.inf
Line = tuple[Any, int, int]  #: root, scale and offset: scale · root + offset. An integer has no root, and the scale 0.


class Traced:
    """A number of a trace. Guards and arithmetic bound it by ``low`` and ``high``, unless it is a line or a quotient, whose operand they bound."""

    __slots__ = ("high", "line", "low", "operands", "same", "symbol", "trace", "value")
    __hash__: Any = None  #: a memo would return it to a caller with another trace, or none

    def __init__(
        self, trace: Trace, symbol: str, operands: tuple[Any, ...], value: Any, within: Bounds = (-_INFINITY, _INFINITY), line: Line | None = None
    ) -> None:
        self.trace, self.symbol, self.operands, self.value, self.line = trace, symbol, operands, value, line
        self.low, self.high = within
        self.same: Traced | None = None  #: another that a guard compares as equal

    def plain(self) -> Any:
        """The value as a plain number, which pins it."""
        self.trace.equal(self, self.value)
        return self.value

    def __int__(self) -> int:
        return int(self.plain())

    def __float__(self) -> float:
        return float(self.plain())

    def __format__(self, spec: str) -> str:
        return format(self.plain(), spec)

    def __repr__(self) -> str:
        return repr(self.plain())

    def __bool__(self) -> bool:
        return not self.trace.equal(self, 0)

    def __eq__(self, other: object) -> Any:
        return self.trace.equal(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.trace.less(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return self.trace.less(other, self) if isinstance(other, _NUMBERS) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return not self.trace.less(other, self) if isinstance(other, _NUMBERS) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return not self.trace.less(self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def __neg__(self) -> Any:
        return self.trace.node("(-{})", operator.neg, self)

    def __abs__(self) -> Any:
        return self if range_of(self)[0] >= 0 else self.trace.node("abs({})", abs, self)


class Size(Traced):
    """A traced integer."""

    __slots__ = ()

    def __index__(self) -> int:
        return int(self.plain())

    def bit_length(self) -> Any:
        return self.trace.node("{}.bit_length()", int.bit_length, self)


class Ratio(Traced):
    """A traced float."""

    __slots__ = ()


numbers.Integral.register(Size)
numbers.Real.register(Ratio)
#: what counts as an integer where a recipe's numbers are checked
WHOLE = (int, Size)
_NUMBERS = (int, float, Size, Ratio)
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "/": operator.truediv,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip


def _define(symbol: str, function: Callable[[Any, Any], Any]) -> None:
    """The two methods of a binary operator."""
    text, name = f"({{}} {symbol} {{}})", function.__name__.strip("_")

    def forward(self: Traced, other: Any) -> Any:
        return self.trace.node(text, function, self, other) if isinstance(other, _NUMBERS) else NotImplemented

    def backward(self: Traced, other: Any) -> Any:
        return self.trace.node(text, function, other, self) if isinstance(other, _NUMBERS) else NotImplemented

    setattr(Traced, f"__{name}__", forward)
    setattr(Traced, f"__r{name}__", backward)


for _symbol, _function in _OPERATORS.items():
    _define(_symbol, _function)


def integer(given: Any) -> Any:
    """``int(given)``; a size stays a size."""
    return given if isinstance(given, Size) else int(given)


def plain(given: Any) -> Any:
    """A plain number; one of a trace is pinned."""
    return given.plain() if isinstance(given, Traced) else given


def apply(function: Callable[..., int], *given: Any) -> Any:
    """``function(*given)``; of sizes, each replay calls the function again."""
    trace = _trace_of(given)
    return trace.call(function, given) if trace else function(*given)


def least(a: Any, b: Any) -> Any:
    """The less of two numbers; of sizes, it adds no guard for which it is."""
    (low, high), (least, most) = range_of(a), range_of(b)
    return a if high <= least else b if most <= low else _one_of("<", min, a, b)


def greatest(a: Any, b: Any) -> Any:
    """The greater of two numbers; of sizes, it adds no guard for which it is."""
    (low, high), (least, most) = range_of(a), range_of(b)
    return a if most <= low else b if high <= least else _one_of(">", max, a, b)


def _one_of(symbol: str, function: Callable[[Any, Any], Any], *given: Any) -> Any:
    trace = _trace_of(given)
    # a call would take three times as long
    return trace.node(f"({{0}} if {{0}} {symbol} {{1}} else {{1}})", function, *given) if trace else function(*given)


def _trace_of(given: Sequence[Any]) -> Trace | None:
    """The trace of the first number that has one."""
    return next((each.trace for each in given if isinstance(each, Traced)), None)


QUOTIENT = "({} // {})"  #: the symbol of a quotient


def divisor_of(given: Any) -> int:
    """The divisor of a quotient by a positive integer; 0 of any other number."""
    divisor = given.operands[1] if isinstance(given, Size) and given.symbol == QUOTIENT else 0
    return divisor if type(divisor) is int and divisor > 0 else 0


def canonical(given: Any) -> Any:
    """The representative of all numbers that guards compare as equal; a plain number once pinned."""
    if not isinstance(given, Traced):
        return given
    while given.same is not None:
        given = given.same
    low, high = range_of(given)
    return given.value if low == high else given


def range_of(given: Any) -> Bounds:
    """The bounds of a number."""
    if not isinstance(given, Traced):
        return given, given
    if given.line is not None:
        root, scale, offset = line_of(given)
        ends = [scale * end + offset for end in range_of(root)] if scale else [offset, offset]
        return min(ends), max(ends)
    if divisor := divisor_of(given):
        return bounds(operator.floordiv, range_of(given.operands[0]), (divisor, divisor))
    return given.low, given.high


def line_of(given: Any) -> Line:
    """An integer as a line."""
    if not isinstance(given, Traced):
        return None, 0, given
    root, scale, offset = given.line or (given, 1, 0)
    same = canonical(root)
    if same is root:
        return root, scale, offset
    root, times, more = line_of(same)
    return root, scale * times, scale * more + offset


def reaches(given: Any, other: Traced) -> bool:
    """Whether a number is another, or computed from it."""
    found, left = set(), [given]
    while left:
        each = left.pop()
        if isinstance(each, Traced) and id(each) not in found:
            found.add(id(each))
            left += [*each.operands, each.same]
    return id(other) in found


def combined(function: Callable[..., Any], a: Line, b: Line = (None, 0, 0)) -> Line | None:
    """The result of an operator on two lines, if it is one."""
    (x, scale, offset), (y, times, more) = a, b
    if function is operator.neg:
        return x, -scale, -offset
    if function is operator.sub:
        function, times, more = operator.add, -times, -more
    if function is operator.add and (x is y or x is None or y is None):
        return (y if x is None else x) if scale + times else None, scale + times, offset + more
    if function is operator.mul and (x is None or y is None):
        root, scale, offset, factor = (y, times, more, offset) if x is None else (x, scale, offset, more)
        return root if factor else None, scale * factor, offset * factor
    if y is None and more > 0 and not scale % more:
        if function is operator.floordiv:
            return x, scale // more, offset // more
        if function is operator.mod:
            return None, 0, offset % more
    return None
