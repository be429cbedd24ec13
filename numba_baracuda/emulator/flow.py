"""Basic blocks to one Python function: statements are joined where that is safe, and jumps become ``at``, the block to go to next."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

#: texts longer than this are not joined further: Python's parser has a limit on nesting
LONGEST = 400
_NAMES = re.compile(r"'[^']*'|\b(v\d+)\b")


class Line(NamedTuple):
    """``target = text``, or ``text`` alone; ``site`` is where in the kernel's source it comes from."""

    target: str
    text: str
    site: str

    @property
    def acts(self) -> bool:
        """Whether evaluating it has side effects: calls that take the lane, and iterators."""
        return "(lane," in self.text or "(lane)" in self.text or "next(" in self.text

    def __str__(self) -> str:
        return f"{self.target} = {self.text}  # {self.site}" if self.target else f"{self.text}  # {self.site}"


@dataclass
class Block:
    """Statements and what comes after them: a jump to ``targets[0]``, a branch on ``end`` to ``targets``, or a return of ``end``."""

    lines: list[Line] = field(default_factory=list)
    end: str = ""
    site: str = ""  #: of the jump, branch or return
    targets: tuple[int, ...] = ()


def _names(text: str) -> list[str]:
    return [name for name in _NAMES.findall(text) if name]


def join_lines(blocks: dict[int, Block]) -> None:
    """Inlines a value that is used once.

    A value that acts may move into the next statement only. One that does not may move down its block until a name that it reads is assigned again.
    """
    texts = [text for block in blocks.values() for text in (*(line.text for line in block.lines), block.end)]
    uses = Counter(name for text in texts for name in _names(text))
    definitions = Counter(line.target for block in blocks.values() for line in block.lines)
    for block in blocks.values():
        made: list[Line] = []
        waiting: dict[str, Line] = {}

        def write(names: list[str], made: list[Line] = made, waiting: dict[str, Line] = waiting) -> None:
            made.extend(waiting.pop(name) for name in names)

        for line in [*block.lines, Line("", block.end, "")]:
            read = _names(line.text)
            last = line.site == ""
            movable = uses[line.target] == definitions[line.target] == 1 and len(line.text) < LONGEST
            still = movable and not line.acts and not any(waiting[name].acts for name in read if name in waiting)
            if not still:
                write([name for name, each in waiting.items() if each.acts and name not in read])
            joined = _NAMES.sub(lambda m, waiting=waiting: waiting.pop(m[1]).text if m[1] in waiting else m[0], line.text)  # type: ignore[misc]
            write([name for name, each in waiting.items() if last or line.target in _names(each.text)])
            new = Line(line.target, joined, line.site)
            if last:
                block.end = joined
            elif movable:
                waiting[line.target] = new
            elif line.target and uses[line.target]:
                made.append(new)
            elif new.acts:
                made.append(Line("", joined, line.site))
        block.lines = made


def arrange(name: str, parameters: list[str], blocks: dict[int, Block], first: int) -> str:
    """The source of a function that starts at block ``first``. A block with one predecessor is inlined there."""
    entered = Counter(target for block in blocks.values() for target in block.targets)
    joins = sorted({label for label, count in entered.items() if count > 1} | ({first} & set(entered)))
    order = {label: k for k, label in enumerate(joins, 1)}

    def choose(labels: list[int], pad: str) -> list[str]:
        """A binary decision on ``at``."""
        if len(labels) == 1:
            return loop(labels[0], pad)
        middle = len(labels) // 2
        return [
            f"{pad}if at < {order[labels[middle]]}:", *choose(labels[:middle], pad + "    "), f"{pad}else:", *choose(labels[middle:], pad + "    "),
        ]  # fmt: skip

    def loop(label: int, pad: str) -> list[str]:
        """A block that jumps back to itself becomes a loop of its own."""
        body = write(label, pad + "    ", label)
        if label in joins and any(line.strip() == "continue" for line in body):
            return [f"{pad}while True:", *body]
        return write(label, pad, None)

    def write(label: int, pad: str, here: int | None) -> list[str]:
        """The block and those that only it leads to; ``here`` is the label of the innermost loop, None in the loop over ``at``."""
        block = blocks[label]

        def go(target: int, pad: str) -> list[str]:
            if target not in order:
                return write(target, pad, here)
            if target == here:
                return [f"{pad}continue"]
            return [f"{pad}at = {order[target]}", f"{pad}{'continue' if here is None else 'break'}"]

        lines = [f"{pad}{line}" for line in block.lines]
        if not block.targets:
            return [*lines, f"{pad}return {block.end}  # {block.site}"]
        if len(block.targets) == 1:
            return [*lines, *go(block.targets[0], pad)]
        return [*lines, f"{pad}if {block.end}:  # {block.site}", *go(block.targets[0], pad + "    "), *go(block.targets[1], pad)]

    head = f"def {name}({', '.join(parameters)}):"
    if not joins:
        return "\n".join([head, *write(first, "    ", None)])
    labels = joins if first in order else [first, *joins]
    return "\n".join([head, f"    at = {order.get(first, 0)}", "    while True:", *choose(labels, "        ")])
