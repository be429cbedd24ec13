"""The import graph of the running interpreter's standard library: a small, real graph that every machine has."""

from __future__ import annotations

import ast
import sys
import sysconfig
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SKIPPED = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})


@dataclass(frozen=True)
class ImportGraph:
    """Edge ``i`` says that module ``names[sources[i]]`` imports module ``names[targets[i]]``, somewhere in its source; no edge occurs twice."""

    names: tuple[str, ...]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    parsed: int  #: files read
    unparsed: int  #: files left out because they do not parse


@dataclass(frozen=True)
class Module:
    """One source file of the tree."""

    name: str
    path: Path
    is_package: bool

    @property
    def package(self) -> str:
        """What one leading dot stands for in this file; empty for a top-level module."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def find_modules(root: Path, prefix: str = "") -> Iterator[Module]:
    """Every module below ``root``, by name; a folder counts if it has ``__init__.py`` and holds neither tests nor installed packages."""
    for path in sorted(root.iterdir()):
        name = prefix + path.stem
        if path.suffix == ".py" and path.stem.isidentifier() and path.stem != "__init__":
            yield Module(name, path, is_package=False)
        elif path.name.isidentifier() and path.name not in _SKIPPED and (path / "__init__.py").is_file():
            yield Module(name, path / "__init__.py", is_package=True)
            yield from find_modules(path, name + ".")


def imports_of(tree: ast.Module, package: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Pairs (absolute module name, names taken from it) for each import statement, functions and branches included; no names for a plain import."""
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".") if package else []
                if node.level > len(parents):
                    continue
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            yield base, tuple(alias.name for alias in node.names)
        else:  # only statements hold statements: expressions need not be walked
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                children = getattr(node, field, None)
                if isinstance(children, list):
                    pending.extend(children)


def resolve(base: str, taken: tuple[str, ...], known: Collection[str]) -> Iterator[str]:
    """The known modules that ``from base import taken`` (or ``import base``) refers to: each taken submodule, otherwise the nearest known parent."""
    parent = base
    while parent and parent not in known:
        parent = parent.rpartition(".")[0]
    if not parent:
        return
    submodules = [f"{base}.{name}" for name in taken if f"{base}.{name}" in known]
    yield from submodules
    if len(submodules) < len(taken) or not taken:
        yield parent


def build_graph(root: Path, built_in: Collection[str] = (), on_file: Callable[[int, int], None] = lambda done, total: None) -> ImportGraph:
    """Read every module below ``root``; ``built_in`` names further modules, which have no source there and become nodes when something imports them.

    ``on_file`` is told the number of files done and the number of all files.
    """
    modules = list(find_modules(root))
    known = {module.name for module in modules} | set(built_in)
    edges: dict[tuple[str, str], None] = {}
    unparsed = 0
    readable = []
    for done, module in enumerate(modules, start=1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in somebody else's strings
                tree = ast.parse(module.path.read_bytes(), filename=str(module.path))
        except (SyntaxError, ValueError, RecursionError, OSError):
            unparsed += 1
        else:
            readable.append(module.name)
            for base, taken in imports_of(tree, module.package):
                edges.update(dict.fromkeys((module.name, target) for target in resolve(base, taken, known) if target != module.name))
        on_file(done, len(modules))
    names = tuple(sorted({*readable, *(target for _, target in edges)}))
    number = {name: i for i, name in enumerate(names)}
    return ImportGraph(
        names=names,
        sources=np.array([number[source] for source, _ in edges], dtype=np.int32),
        targets=np.array([number[target] for _, target in edges], dtype=np.int32),
        parsed=len(readable),
        unparsed=unparsed,
    )


def standard_library(on_file: Callable[[int, int], None] = lambda done, total: None) -> ImportGraph:
    """The graph of the interpreter that runs this, modules written in C included."""
    return build_graph(Path(sysconfig.get_paths()["stdlib"]), sys.stdlib_module_names - _SKIPPED, on_file)
