"""Numbers that record their arithmetic, so that the arithmetic of one problem's sizes can be replayed for others.

A :class:`Trace` makes :class:`Size` objects of given sizes. Recipes compute with these as with integers. Arithmetic adds an expression to the trace.
A comparison is decided by the sizes at hand, and adds a *guard*: the condition under which it is decided alike. What needs a plain integer,
such as an index or a constant of a kernel, pins the size: the guard is then equality. :meth:`Trace.compile` makes a Python function of other sizes,
which returns the same results for them, or None where a guard fails.
"""

from __future__ import annotations

import itertools
import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .bounds import Bounds, bounds
from .replay import Writer

_INFINITY = math.inf


class Traced:
    """A number of a trace. Guards and arithmetic bound it by ``low`` and ``high``."""

    __slots__ = ("high", "low", "operands", "same", "symbol", "trace", "value")
    __hash__: Any = None  #: a memo would return it to a caller with another trace, or none

    def __init__(self, trace: Trace, symbol: str, operands: tuple[Any, ...], value: Any, within: Bounds = (-_INFINITY, _INFINITY)) -> None:
        self.trace, self.symbol, self.operands, self.value = trace, symbol, operands, value
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
        return self if self.low >= 0 else self.trace.node("abs({})", abs, self)


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
    return _one_of("<", min, a, b) if _range(b)[0] < _range(a)[1] else a


def greatest(a: Any, b: Any) -> Any:
    """The greater of two numbers; of sizes, it adds no guard for which it is."""
    return _one_of(">", max, a, b) if _range(a)[0] < _range(b)[1] else a


def _one_of(symbol: str, function: Callable[[Any, Any], Any], *given: Any) -> Any:
    trace = _trace_of(given)
    # a call would take three times as long
    return trace.node(f"({{0}} if {{0}} {symbol} {{1}} else {{1}})", function, *given) if trace else function(*given)


def _trace_of(given: Sequence[Any]) -> Trace | None:
    """The trace of the first number that has one."""
    return next((each.trace for each in given if isinstance(each, Traced)), None)


class Trace:
    """The arithmetic of one problem's sizes. A trace belongs to one thread."""

    def __init__(self) -> None:
        self._inputs: list[tuple[Size, ...]] = []
        self._known: dict[Any, Traced] = {}  #: expression -> its number
        self._decided: dict[Any, bool] = {}
        self._asked: dict[int, tuple[Traced, Bounds]] = {}  #: bounds that guards ask for
        self._guards: list[tuple[str, Any, Any]] = []
        self._functions: list[Callable[..., Any]] = []

    def sizes(self, values: Sequence[int], low: float = -_INFINITY, pinned: Sequence[int] = ()) -> tuple[Any, ...]:
        """Sizes, the compiled function's next argument; the caller knows that all are ``low`` or more. Those equal to ``pinned`` ones are pinned."""
        made = tuple([Size(self, f"s{len(self._inputs)}_{k}", (), value, (low, _INFINITY)) for k, value in enumerate(values)])
        self._inputs.append(made)
        return tuple([plain(size) if size.value == value else size for size, value in itertools.zip_longest(made, pinned[: len(made)])])

    def node(self, text: str, function: Callable[..., Any], *given: Any) -> Any:
        """The result of ``function``, as a number of the trace, or a plain one where all arguments are pinned."""
        operands = tuple(map(_canonical, given))
        if not any(isinstance(each, Traced) for each in operands):
            return function(*operands)
        if len(operands) == 2 and (short := _shortened(text, *operands)) is not None:
            return short
        key = (text, *[id(each) if isinstance(each, Traced) else (type(each), each) for each in operands])
        found = self._known.get(key)
        if found is None:
            value = function(*[each.value if isinstance(each, Traced) else each for each in operands])
            found = self._known[key] = (
                Ratio(self, text, operands, value)
                if isinstance(value, float)
                else Size(self, text, operands, value, bounds(function, *map(_range, operands)))
            )
        return _canonical(found)

    def call(self, function: Callable[..., int], given: tuple[Any, ...]) -> Any:
        """The result of a function that replays call."""
        if function not in self._functions:
            self._functions.append(function)
        blanks = ", ".join("{}" for _ in given)
        return self.node(f"f{self._functions.index(function)}({blanks})", function, *given)

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two numbers are equal; adds a guard."""
        a, b = _canonical(a), _canonical(b)
        if a is b or not isinstance(a, Traced):
            return a is b or (self.equal(b, a) if isinstance(b, Traced) else a == b)
        low, high = _range(b)
        if a.high < low or high < a.low or b != b:
            return False
        if isinstance(b, Traced) or isinstance(a, Ratio):
            alike = self._decide("==", a, b, operator.eq)
            if alike and isinstance(b, Traced):
                a.low, a.high, b.same = max(a.low, b.low), min(a.high, b.high), a
            return alike
        if a.value == b:
            self._narrow(a, a.value, a.value)
        elif b in (a.low, a.high):
            self._narrow(a, a.low + (b == a.low), a.high - (b == a.high))
        elif b == b // 1:
            self._decide("==", a, b, operator.eq)
        return bool(a.value == b)

    def less(self, a: Any, b: Any) -> bool:
        """Whether a number is less than another; adds a guard."""
        a, b = _canonical(a), _canonical(b)
        (a_low, a_high), (b_low, b_high) = _range(a), _range(b)
        if a is b or a_low >= b_high or a_low == _INFINITY or b_high == -_INFINITY:
            return False
        if a_high < b_low or b_low == _INFINITY or a_high == -_INFINITY:
            return True
        if isinstance(a, Size) and not isinstance(b, Traced):
            within = a.value < b
            self._narrow(a, *((a.low, math.ceil(b) - 1) if within else (math.ceil(b), a.high)))
            return bool(within)
        if isinstance(b, Size) and not isinstance(a, Traced):
            beyond = a < b.value
            self._narrow(b, *((math.floor(a) + 1, b.high) if beyond else (b.low, math.floor(a))))
            return bool(beyond)
        return self._decide("<", a, b, operator.lt)

    def _decide(self, symbol: str, a: Any, b: Any, function: Callable[[Any, Any], bool]) -> bool:
        key = symbol, *[id(each) if isinstance(each, Traced) else each for each in (a, b)]
        found = self._decided.get(key)
        if found is None:
            found = self._decided[key] = bool(function(*[each.value if isinstance(each, Traced) else each for each in (a, b)]))
            self._guards.append((f"{{}} {symbol} {{}}" if found else f"not {{}} {symbol} {{}}", a, b))
        return found

    def _narrow(self, size: Traced, low: float, high: float) -> None:
        least, most = self._asked.get(id(size), (size, (-_INFINITY, _INFINITY)))[1]
        if id(size) not in self._asked:
            self._guards.append(("", size, None))
        least, most = max(least, low if low > size.low else least), min(most, high if high < size.high else most)
        self._asked[id(size)] = size, ((low, high) if low == high else (least, most))
        size.low, size.high = low, high

    def compile(self, results: Any, arguments: Sequence[str] = ()) -> Callable[..., Any]:
        """A function of tuples of sizes: the results, nested tuples of numbers and strings, for other sizes, or None where a guard fails.

        ``arguments`` are patterns of its arguments where these are more than one tuple each: ``(_, {}, {})`` has two behind something else.
        """
        results = _canonical_all(results)
        writer = Writer(self._inputs, arguments or ["{}"] * len(self._inputs))
        for _, a, b in self._guards:
            writer.count(a)
            writer.count(b)
        writer.count(results)
        for text, a, b in self._guards:
            if text:
                writer.guard(text.format(writer.text(a), writer.text(b)))
            else:
                writer.between(a, *self._asked[id(a)][1])
        names: dict[str, Any] = {"inf": _INFINITY, "nan": math.nan} | {f"f{k}": function for k, function in enumerate(self._functions)}
        exec(compile(writer.source(results), "<sizes>", "exec"), names)
        made: Callable[..., Any] = names["replay"]
        return made


def _canonical(given: Any) -> Any:
    """The representative of all numbers that guards compare as equal; a plain number once pinned."""
    if not isinstance(given, Traced):
        return given
    while given.same is not None:
        given = given.same
    return given.value if given.low == given.high else given


def _canonical_all(given: Any) -> Any:
    return tuple(map(_canonical_all, given)) if isinstance(given, tuple) else _canonical(given)


def _range(given: Any) -> Bounds:
    """The bounds of a number."""
    return (given.low, given.high) if isinstance(given, Traced) else (given, given)


def _shortened(text: str, a: Any, b: Any) -> Any:
    """a + 0, a · 1 and the like, or None."""
    if text in ("({} + {})", "({} * {})") and not isinstance(a, Traced):
        a, b = b, a
    if type(b) is not int or isinstance(a, Ratio) or not isinstance(a, Traced):
        return None
    if text == "({} * {})" and b == 0:
        return 0
    return a if b == {"({} + {})": 0, "({} - {})": 0, "({} * {})": 1, "({} // {})": 1}.get(text) else None
