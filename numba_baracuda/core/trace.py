"""The trace of one problem's sizes, of which a function of other sizes is made.

A comparison is decided by the sizes at hand, and adds a *guard*: the condition under which it is decided alike. What needs a plain integer, such as
an index or a constant of a kernel, pins a size: the guard is then equality. :meth:`Trace.compile` makes a Python function of other sizes, which
returns the same results for them, or None where a guard fails.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from .bounds import Bounds, bounds, quotient
from .replay import Writer
from .sizes import QUOTIENT, Line, Ratio, Size, Traced, canonical, combined, divisor_of, line_of, plain, range_of, reaches

_INFINITY = math.inf
_ANY = (-_INFINITY, _INFINITY)
_BY_POWERS = {"({} << {})": ("({} * {})", operator.mul), "({} >> {})": (QUOTIENT, operator.floordiv)}  #: what shifts are instead


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
        operands = tuple(map(canonical, given))
        if not any(isinstance(each, Traced) for each in operands):
            return function(*operands)
        if text in _BY_POWERS and type(operands[1]) is int and operands[1] >= 0:
            text, function = _BY_POWERS[text]
            operands = operands[0], 1 << operands[1]
        if all(isinstance(each, Size) or type(each) is int for each in operands):
            line = combined(function, *map(line_of, operands)) if len(operands) < 3 else None
            if line is not None:
                return self._at(line)
            if function is operator.floordiv and type(operands[1]) is int and operands[1] > 0:
                return self._quotient(line_of(operands[0]), operands[1])
        return self._number(text, function, operands)

    def _number(self, text: str, function: Callable[..., Any], operands: tuple[Any, ...], line: Line | None = None) -> Any:
        """The one number of an expression."""
        key = (text, *[id(each) if isinstance(each, Traced) else (type(each), each) for each in operands])
        found = self._known.get(key)
        if found is None:
            value = function(*[each.value if isinstance(each, Traced) else each for each in operands])
            if isinstance(value, float):
                found = Ratio(self, text, operands, value)
            else:
                found = Size(self, text, operands, value, _ANY if line else bounds(function, *map(range_of, operands)), line)
            self._known[key] = found
        return canonical(found)

    def _at(self, line: Line) -> Any:
        """The number of a line."""
        root, scale, offset = line
        if root is None or (scale, offset) == (1, 0):
            return offset if root is None else root
        if scale == -1:
            text = f"({offset} - {{}})" if offset else "(-{})"
        else:
            times, more = f" * {scale}" if scale != 1 else "", f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""
            text = f"({{}}{times}{more})"
        return self._number(text, lambda value: scale * value + offset, (root,), line)

    def _quotient(self, line: Line, divisor: int) -> Any:
        """A line divided by a positive integer, without what both are multiples of; a quotient is divided by the product instead."""
        root, scale, offset = line
        common = math.gcd(scale, divisor)
        scale, offset, divisor = scale // common, offset // common, divisor // common
        inner = divisor_of(root)
        if scale == 1 and inner:
            return self.node(QUOTIENT, operator.floordiv, root.operands[0] + inner * offset, inner * divisor)
        return self._number(QUOTIENT, operator.floordiv, (self._at((root, scale, offset)), divisor))

    def call(self, function: Callable[..., int], given: tuple[Any, ...]) -> Any:
        """The result of a function that replays call."""
        if function not in self._functions:
            self._functions.append(function)
        blanks = ", ".join("{}" for _ in given)
        return self.node(f"f{self._functions.index(function)}({blanks})", function, *given)

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two numbers are equal; adds a guard."""
        a, b = canonical(a), canonical(b)
        if a is b or not (isinstance(a, Traced) or isinstance(b, Traced)):
            return a is b or bool(a == b)
        (low, high), (least, most) = range_of(a), range_of(b)
        if not (low <= most and least <= high):  # also of NaN
            return False
        if isinstance(a, Ratio) or isinstance(b, Ratio):
            return self._decide("==", a, b, operator.eq)
        if any(each % 1 or abs(each) == _INFINITY for each in (a, b) if isinstance(each, float)):
            return False
        line = self._apart(a, b)
        if line is None:
            alike = self._decide("==", a, b, operator.eq)
            if alike:
                self._unite(a, b)
            return alike
        root, scale, offset = line
        if root is None or offset % scale:
            return root is None and not offset
        value = -offset // scale
        low, high = range_of(root)
        if root.value == value:
            self._bound((root, 1, 0), value, value)
        elif value == low:
            self._bound((root, 1, 0), value + 1, _INFINITY)
        elif value == high:
            self._bound((root, 1, 0), -_INFINITY, value - 1)
        elif low < value < high:
            self._decide("==", root, value, operator.eq)
        return bool(root.value == value)

    def less(self, a: Any, b: Any) -> bool:
        """Whether a number is less than another; adds a guard."""
        a, b = canonical(a), canonical(b)
        (a_low, a_high), (b_low, b_high) = range_of(a), range_of(b)
        if a is b or a_low >= b_high or a_low == _INFINITY or b_high == -_INFINITY:
            return False
        if a_high < b_low or b_low == _INFINITY or a_high == -_INFINITY:
            return True
        if isinstance(a, Ratio) or isinstance(b, Ratio):
            return self._decide("<", a, b, operator.lt)
        line = self._apart(math.floor(a) if isinstance(a, float) else a, math.ceil(b) if isinstance(b, float) else b)
        if line is None:
            return self._decide("<", a, b, operator.lt)
        root, scale, offset = line
        within = offset < 0 if root is None else scale * root.value + offset < 0
        self._bound(line, *((-_INFINITY, -1) if within else (0, _INFINITY)))
        return bool(within)

    def _apart(self, a: Any, b: Any) -> Line | None:
        """The difference of two integers, if it is a line."""
        return combined(operator.sub, line_of(a), line_of(b if isinstance(b, Size) else int(b)))

    def _decide(self, symbol: str, a: Any, b: Any, function: Callable[[Any, Any], bool]) -> bool:
        key = symbol, *[id(each) if isinstance(each, Traced) else each for each in (a, b)]
        found = self._decided.get(key)
        if found is None:
            found = self._decided[key] = bool(function(*[each.value if isinstance(each, Traced) else each for each in (a, b)]))
            self._guards.append((f"{{}} {symbol} {{}}" if found else f"not {{}} {symbol} {{}}", a, b))
        return found

    def _unite(self, a: Size, b: Size) -> None:
        """Makes one size stand for another that a guard compares as equal, unless it is computed from that."""
        if reaches(a, b):
            a, b = b, a
        if not reaches(a, b):
            self._bound(line_of(a), *range_of(b), ask=False)
            b.same = a

    def _bound(self, line: Line, low: float, high: float, ask: bool = True) -> None:
        """Bounds what a line is made of such that it lies from ``low`` to ``high``, for which a guard asks."""
        root, scale, offset = line
        if root is None:
            return
        low, high = low - offset, high - offset
        if scale < 0:
            scale, low, high = -scale, -high, -low
        low, high = -quotient(-low, scale), quotient(high, scale)
        if divisor := divisor_of(root):
            self._bound(line_of(root.operands[0]), low * divisor, high * divisor + divisor - 1, ask)
            return
        before, root.low, root.high = (root.low, root.high), max(root.low, low), min(root.high, high)
        if ask:
            if id(root) not in self._asked:
                self._guards.append(("", root, None))
            least, most = self._asked.get(id(root), (root, _ANY))[1]
            asked = (low if low > before[0] else least), (high if high < before[1] else most)
            self._asked[id(root)] = root, ((root.low, root.high) if root.low == root.high else asked)

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
        for text, a, b in sorted(self._guards, key=self._order):
            if text:
                writer.guard(text.format(writer.text(a), writer.text(b)))
            else:
                writer.between(a, *self._asked[id(a)][1])
        names: dict[str, Any] = {"inf": _INFINITY, "nan": math.nan} | {f"f{k}": function for k, function in enumerate(self._functions)}
        exec(compile(writer.source(results), "<sizes>", "exec"), names)
        made: Callable[..., Any] = names["replay"]
        return made

    def _order(self, guard: tuple[str, Any, Any]) -> int:
        """Bounds of what is given come first: most often programs differ in these, and they need no arithmetic."""
        text, size, _ = guard
        if text or size.operands:
            return 2
        low, high = self._asked[id(size)][1]
        return int(low == high)


def _canonical_all(given: Any) -> Any:
    return tuple(map(_canonical_all, given)) if isinstance(given, tuple) else canonical(given)
