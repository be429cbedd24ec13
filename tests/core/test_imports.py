"""What importing costs in modules, and that every public name is where it is said to be."""

from __future__ import annotations

import ast
import importlib.util
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import names
import pytest

import numba_baracuda as nb
from numba_baracuda.core.registry import FAMILIES

PACKAGE = Path(nb.__file__).parent
HEAVY = ("numba", "llvmlite", "cupy", "torch", "ml_dtypes", "jax", "cuda.bindings", "cuda.core", "greenlet", "rich", "matplotlib")


def loaded_by(statements: str) -> set[str]:
    """The heavy packages that a fresh interpreter holds after these statements."""
    report = f"import json, sys; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{statements}\n{report}"]
    return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "statements",
    [
        "import numba_baracuda",
        "import numba_baracuda; dir(numba_baracuda); numba_baracuda.__version__",
        "from numba_baracuda import *",
        "import numba_baracuda as nb; list(nb.OPS); nb.SegmentDescriptor('segment_sum', 3, 4, 5); nb.segment_sum",
        "import numba_baracuda.segment",
        "from numba_baracuda.core.registry import kernel_specs; kernel_specs()",
    ],
)
def test_importing_loads_no_framework(statements: str) -> None:
    if "*" in statements:
        pytest.importorskip("numba")
        assert loaded_by(statements) <= {"numba", "llvmlite", "cuda.bindings", "cuda.core", "ml_dtypes"}  # the device library is numba's
    else:
        assert loaded_by(statements) == set()


def test_every_public_name_resolves() -> None:
    assert sorted(nb.__all__) == nb.__all__ and len(set(nb.__all__)) == len(nb.__all__)
    homes = nb._HOME_OF | {name: op.family for name, op in nb.OPS.items()}
    for name in nb.__all__:
        home = homes.get(name)
        assert getattr(nb, name) is (getattr(import_module(f"numba_baracuda.{home}"), name) if home else import_module(f"numba_baracuda.{name}"))
    assert set(nb.__all__) <= set(dir(nb))
    with pytest.raises(AttributeError, match="module 'numba_baracuda' has no attribute 'segment_summ'"):
        nb.segment_summ  # noqa: B018


def test_type_checkers_see_exactly_the_lazy_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom) and statement.level == 1
        for alias in statement.names:
            assert alias.asname == alias.name, f"{alias.name} is imported without `as`, so type checkers take it for private"
            seen[alias.name] = statement.module
    assert seen == nb._HOME_OF | {name: op.family for name, op in nb.OPS.items()}


@pytest.mark.parametrize("path", names.PATHS, ids=lambda path: path.parent.name)
def test_type_checkers_read_what_the_tables_say(path: Path) -> None:
    assert path.read_text() == names.renewed(path), "python -m tests.names renews it"


def test_every_op_is_a_public_function() -> None:
    for name, op in nb.OPS.items():
        assert name in nb.__all__
        assert getattr(nb, name) is getattr(import_module(f"numba_baracuda.{op.family}"), name)
    assert nb.segment.SegmentDescriptor is nb.SegmentDescriptor
    for family in {op.family for op in nb.OPS.values()}:
        module = import_module(f"numba_baracuda.{family}")
        assert {op.name for op in nb.OPS.values() if op.family == family} <= set(module.__all__)


def test_a_public_function_can_be_pickled() -> None:
    import pickle

    for name in nb.OPS:
        assert pickle.loads(pickle.dumps(getattr(nb, name))) is getattr(nb, name)


#: what a room may import, at run time, besides itself; a family, besides these, no other family
BELOW_FAMILIES = frozenset(("core", "runtime", "arrays", "algebra", "plans", "device", "kernels"))
ROOMS: dict[str, frozenset[str]] = {
    "core": frozenset(),
    "algebra": frozenset(("core",)),
    "runtime": frozenset(("core",)),
    "arrays": frozenset(("core", "runtime")),
    "emulator": frozenset(("core", "runtime", "arrays")),
    "plans": frozenset(("core", "runtime", "arrays", "emulator")),
    "device": frozenset(("core", "algebra", "runtime", "emulator")),
    "kernels": frozenset(("core", "algebra", "runtime", "device")),
    **dict.fromkeys(FAMILIES, BELOW_FAMILIES),
    "distributed": BELOW_FAMILIES | {*FAMILIES},
    "torch": BELOW_FAMILIES | {*FAMILIES, "distributed"},
}
ROOT = "the package's root"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from statements(node)


def imported_rooms(source: str, module: str) -> set[str]:
    """The rooms that a module of the package imports, wherever in its source; a name that is no room comes from the package's root."""
    found = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name + ".").split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = module.split(".")[: -node.level] if node.level else []
            base = [*home, *(node.module.split(".") if node.module else [])]
            found += [[*base, alias.name] for alias in node.names]
    return {parts[1] if parts[1] in ROOMS else ROOT for parts in found if parts[0] == "numba_baracuda"}


def test_every_folder_and_family_is_a_room() -> None:
    assert set(FAMILIES) == {op.family for op in nb.OPS.values()}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {*ROOMS, "demo"}
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "cli", "machine"}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_lies_below(room: str) -> None:
    """Families do not import each other, nor what is above them; nobody imports public names, which may come from any room."""
    paths = sorted((PACKAGE / room).rglob("*.py"))
    assert len(paths) > 1
    for path in paths:
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        assert imported_rooms(path.read_text(), module) <= {room, *ROOMS[room]}, path


@pytest.mark.parametrize(
    ("source", "room"),
    [
        ("import numba_baracuda as nb", ROOT),
        ("import numba_baracuda.scan.ops", "scan"),
        ("from numba_baracuda import segment_sum", ROOT),
        ("from numba_baracuda import scan", "scan"),
        ("from numba_baracuda.scan import cumsum", "scan"),
        ("from ... import segment_sum", ROOT),
        ("from ... import scan as s", "scan"),
        ("from ...scan.ops import FUNCTIONS", "scan"),
        ("def f():\n    from ... import segment_sum", ROOT),
        ("class C:\n    if x:\n        import numba_baracuda", ROOT),
        ("from ..recipes import common", "loss"),
    ],
)
def test_every_way_to_import_a_room_is_seen(source: str, room: str) -> None:
    assert imported_rooms(source, "numba_baracuda.loss.kernels.rows") == {room}
    assert imported_rooms(f"if TYPE_CHECKING:\n    {source.splitlines()[-1].strip()}", "numba_baracuda.loss.kernels.rows") == set()


MODULES = [module.name for module in pkgutil.walk_packages(nb.__path__, "numba_baracuda.") if not module.name.endswith("__main__")]


def test_core_loads_nothing_else_of_the_package() -> None:
    core = [name for name in MODULES if name.split(".")[1] == "core"]
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import {', '.join(core)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert len(core) > 8 and {name for name in loaded if name.startswith("numba_baracuda")} == {"numba_baracuda", *core}


#: imports what the package builds on, then one module of the package first in a child of its own for each; prints those that cannot be
EACH_FIRST = """
import os, sys, traceback
import numpy, numba, numba.cuda
failed = []
for name in sys.argv[2:]:
    child = os.fork()
    if not child:
        try:
            sys.path.insert(0, sys.argv[1])
            __import__(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(" ".join(failed) or 0)
"""


def test_modules_can_be_imported_in_any_order(request: pytest.FixtureRequest) -> None:
    """No cycle of imports depends on who comes first. Without --full, one module of four comes first."""
    modules = [name for name in MODULES if not {"device", "kernels"} & set(name.split(".")[:-1])]
    if importlib.util.find_spec("torch") is None:
        modules = [name for name in modules if name.split(".")[1] != "torch"]
    if importlib.util.find_spec("torch_geometric") is None:
        modules = [name for name in modules if name != "numba_baracuda.torch.pyg"]
    modules = modules if request.config.getoption("--full") else modules[::4]
    command = [sys.executable, "-c", EACH_FIRST, str(PACKAGE.parent)]
    done = subprocess.run([*command, *modules], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([*command, "numba_baracuda.nonesuch"], capture_output=True, text=True, timeout=120).returncode == 1
