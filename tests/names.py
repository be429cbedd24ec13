"""The names that type checkers read, since they do not run the tables: ``python -m tests.names`` writes it, and tests/core/test_imports.py compares.

It is the block ``if TYPE_CHECKING:`` of the package, and of each family whose functions are made from its table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numba_baracuda as nb
from numba_baracuda.core.vocabulary import Named

PACKAGE = Path(nb.__file__).parent
#: the lines of the block below its first
_BLOCK = re.compile(r"(?<=^if TYPE_CHECKING:)(?P<comment>[^\n]*\n)(?:(?: {4}[^\n]*)?\n)*?(?=\n*^\S)", re.MULTILINE)


def _imports() -> Iterator[str]:
    """An import of every public name, in the order of isort: constants, classes, functions."""
    homes = nb._HOME_OF | {name: op.family for name, op in nb.OPS.items()}

    def place(name: str) -> tuple[str, bool, bool, str]:
        return homes[name], not name.isupper(), name.islower(), name

    yield from (f"from .{homes[name]} import {name} as {name}" for name in sorted(homes, key=place))


def _family(name: str) -> Iterator[str]:
    """Every class of kinds with its members, and every function."""
    for each, kinds in vars(import_module(f"numba_baracuda.{name}")).items():
        if isinstance(kinds, type) and issubclass(kinds, Named) and each == kinds.__name__:
            yield from ("from ..core.vocabulary import Named", "", f"class {each}(Named):")
            yield from (f"    {member.name} = {int(member)}" for member in kinds)
            yield ""
    yield from (f"{op}: Callable[..., Any]" for op in sorted(nb.OPS) if nb.OPS[op].family == name)


def renewed(path: Path) -> str:
    """The source of a module with its block by the tables."""
    lines = _imports() if path.parent == PACKAGE else _family(path.parent.name)
    block = "".join(f"    {line}\n" if line else "\n" for line in lines)
    made, count = _BLOCK.subn(lambda found: found["comment"] + block, path.read_text())
    assert count == 1, f"{path} has {count} blocks for type checkers, wants one"
    return made


PATHS = [PACKAGE / "__init__.py", *[PACKAGE / family / "__init__.py" for family in ("segment", "reduce", "scan")]]

if __name__ == "__main__":
    for path in PATHS:
        path.write_text(renewed(path))
