"""The lines of kernels that have run under the race detector, and those that never have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutations import device_functions

from numba_baracuda.emulator import flow, lowering

_sites: list[frozenset[tuple[str, int]]] = []
_ran: set[int] = set()


def watch() -> None:
    """From now on, basic blocks of lowered kernels record that they run in checked mode."""
    real = lowering.Lowering._block

    def note(lane: Any, number: int) -> None:
        if lane.checked:
            _ran.add(number)

    def block(self: Any, given: Any) -> Any:
        made = real(self, given)
        _sites.append(frozenset((stmt.loc.filename, stmt.loc.line) for stmt in given.body))
        made.lines.insert(0, flow.Line("", f"{self._constant(note)}(lane, {len(_sites) - 1})", made.site))
        return made

    lowering.Lowering._block = block  # type: ignore[method-assign]


def ran() -> set[tuple[str, int]]:
    """(path, line) of the lines that have run."""
    return {place for number in _ran for place in _sites[number]}


def _statements(function: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a device function, without its docstring, inner functions, and statements without code."""
    body = getattr(function, "body", [])
    for part in (body if isinstance(body, list) else [], getattr(function, "orelse", [])):
        for stmt in part:
            if isinstance(stmt, ast.FunctionDef | ast.Pass) or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)):
                continue
            yield stmt
            if isinstance(stmt, ast.If | ast.While | ast.For):
                yield from _statements(stmt)


def missing(root: Path, paths: list[Path]) -> list[tuple[str, str, str]]:
    """(path, function, statement) of kernels' statements that no checked run has reached."""
    seen: dict[str, set[int]] = {}
    for filename, line in ran():
        seen.setdefault(filename, set()).add(line)
    found = []
    for path in paths:
        lines = seen.get(str(path), set())
        for name, function in device_functions(ast.parse(path.read_text())):
            for stmt in _statements(function):
                end = stmt.body[0].lineno - 1 if isinstance(stmt, ast.If | ast.While | ast.For) else stmt.end_lineno
                if not any(line in lines for line in range(stmt.lineno, max(end or 0, stmt.lineno) + 1)):
                    found.append((path.relative_to(root).as_posix(), name, ast.unparse(stmt).splitlines()[0]))
    return found
