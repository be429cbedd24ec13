"""The Python source of a trace: straight-line arithmetic of sizes between guards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any


class Writer:
    """The source of a trace's function. An expression that is used once is inlined."""

    def __init__(self, inputs: Sequence[tuple[Any, ...]], arguments: Sequence[str]) -> None:
        self._lines = [f"def replay({', '.join(f'g{k}' for k in range(len(arguments)))}):"]
        names = iter([f"({''.join(f'{each.symbol}, ' for each in group)})" for group in inputs])
        self._lines += [f" {each.format(*itertools.islice(names, each.count('{}')))} = g{k}" for k, each in enumerate(arguments)]
        self._conditions: list[str] = []
        self._names = {id(each): each.symbol for group in inputs for each in group}
        self._uses: dict[int, int] = {}

    def count(self, given: Any) -> None:
        """Counts the uses of what a guard or the results are made of."""
        if isinstance(given, tuple):
            for each in given:
                self.count(each)
        elif hasattr(given, "operands"):
            self._uses[id(given)] = self._uses.get(id(given), 0) + 1
            if self._uses[id(given)] == 1:
                self.count(given.operands)

    def text(self, given: Any) -> str:
        """The text of an expression; adds the lines that must come before it."""
        if isinstance(given, tuple):
            return f"({''.join(f'{self.text(each)}, ' for each in given)})"
        if not hasattr(given, "operands"):
            return f"({given!r})" if isinstance(given, int | float) and given < 0 else repr(given)
        name = self._names.get(id(given))
        if name is None:
            texts = list(map(self.text, given.operands))
            if "{0}" in given.symbol:  # more than once
                texts = [text if text.isidentifier() or text.isdigit() else self._named(text) for text in texts]
            name = given.symbol.format(*texts)
            if self._uses[id(given)] > 1:
                name = self._names[id(given)] = self._named(name)
        return name

    def _named(self, text: str) -> str:
        """A variable that a line of its own sets to an expression."""
        self._flush()
        self._lines.append(f" t{len(self._lines)} = {text}")
        return f"t{len(self._lines) - 1}"

    def guard(self, condition: str) -> None:
        self._conditions.append(condition)

    def between(self, size: Any, low: float, high: float) -> None:
        """Adds the guard that a size lies from ``low`` to ``high``."""
        text = self.text(size)
        if low == high:
            self.guard(f"{text} == {low}")
        elif high == math.inf:
            self.guard(f"{text} >= {low}")
        else:
            self.guard(f"{text} <= {high}" if low == -math.inf else f"{low} <= {text} <= {high}")

    def _flush(self) -> None:
        if self._conditions:
            self._lines.append(f" if not ({' and '.join(self._conditions)}): return None")
            self._conditions.clear()

    def source(self, results: Any) -> str:
        found = self.text(results)
        self._flush()
        return "\n".join([*self._lines, f" return {found}"])
