"""Docstrings: what ``help`` shows of every public name."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import pydoc
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pages
import pytest
import samples
from references import stem
from samples import OPS

import numba_baracuda as nb

PACKAGE = Path(nb.__file__).parent
MODULES = [module.name for module in pkgutil.walk_packages(nb.__path__, "numba_baracuda.") if not (module.ispkg or module.name.endswith("__main__"))]


@pytest.mark.parametrize("name", OPS)
def test_functions_say_formula_shapes_and_errors(name: str) -> None:
    op, function = OPS[name], getattr(nb, name)
    doc = inspect.getdoc(function)
    assert doc is not None and doc.splitlines()[0] == op.formula
    for operand in op.operands:
        assert f"``{operand.name}`` [" in doc
    for dtype in ("float16", "bfloat16", "float32", "float64", "int32", "int64"):
        assert dtype in doc
    for word in ("Shapes:", "Raises", "InvalidProblem", "Unsupported", "check_ids", "out=", "stream=", "workspace=", "outside [0, S)", "Variants:"):
        assert word in doc
    for variant in op.variants:
        assert f"``{variant.name}``" in doc
    if samples.takes_empty(op):
        assert "mpty segments" in doc and "NaN" in doc


@pytest.mark.parametrize("name", OPS)
def test_functions_have_signatures(name: str) -> None:
    op, function = OPS[name], getattr(nb, name)
    parameters = inspect.signature(function).parameters
    inputs = [operand.name for operand in op.operands[:-1]]
    assert list(parameters)[: len(inputs)] == inputs
    keywords = {name for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY}
    assert {"out", "stream", "workspace", "check_ids", "deterministic"} <= keywords
    assert ("num_segments" in parameters) == samples.takes_segments(op)
    assert ("empty" in keywords) == samples.takes_empty(op)
    assert ("ties" in keywords) == (op.traits["backward"] and stem(name) in ("max", "min"))
    assert ("dtype" in keywords) == bool(op.traits["results"])
    assert ("correction" in keywords) == (stem(name) in ("var", "std"))
    defaults = {"empty": None, "check_ids": False, "deterministic": True, "ties": "first", "correction": 1, "num_segments": None, "dtype": None}
    assert all(parameter.default == defaults[name] for name, parameter in parameters.items() if name in defaults)
    assert function.__name__ == function.__qualname__ == name
    assert function.__module__ == f"numba_baracuda.{op.family}"
    assert op.formula in pydoc.plain(pydoc.render_doc(function))


@pytest.mark.parametrize("name", [name for name in nb.__all__ if not inspect.ismodule(getattr(nb, name))])
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(nb, name)
    doc = inspect.getdoc(value if callable(value) else type(value))
    assert doc and len(doc) > 10
    if inspect.isclass(value):
        assert value.__doc__ != f"{name}()" and not value.__doc__.startswith(f"{name}("), "dataclass wrote this docstring"
        for method, function in vars(value).items():
            if not method.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                function = function.fget if isinstance(function, property) else function
                if name not in ("SegmentDescriptor",) or method not in ("element_name", "index_name"):
                    assert function.__doc__, f"{name}.{method}"


@pytest.mark.parametrize("name", OPS)
def test_formulas_name_the_operands(name: str) -> None:
    op = OPS[name]
    for operand in op.operands:
        assert operand.name in op.formula, f"{operand.name} is missing in {op.formula!r}"


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_they_are_for(module: str) -> None:
    if module == "numba_baracuda.torch.pyg":
        pytest.importorskip("torch_geometric")
    assert import_module(module).__doc__


#: families whose kernels describe their parameters
DESCRIBED = ("loss", "reduce", "scan", "segment")


def kernels(family: str) -> Iterator[tuple[str, str, list[str]]]:
    """Each kernel's name, its docstring behind that of its family's kernels, and the names of its constants and parameters."""
    package = import_module(f"numba_baracuda.{family}.kernels")
    for path in sorted((PACKAGE / family / "kernels").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and "jit.kernel" in map(ast.unparse, node.decorator_list):
                (kernel,) = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == node.name)
                yield node.name, f"{package.__doc__}{ast.get_docstring(node)}", [each.arg for each in (*node.args.kwonlyargs, *kernel.args.args)]


@pytest.mark.parametrize("family", DESCRIBED)
def test_kernels_say_what_their_parameters_are(family: str) -> None:
    found = list(kernels(family))
    assert {name for name, _, _ in found} == set(import_module(f"numba_baracuda.{family}.kernels").__all__)
    assert {name: missing for name, said, names in found if (missing := [each for each in names if f"``{each}``" not in said])} == {}


#: words that have a plainer one in CUDA, CUB, NumPy and PyTorch
PLAINER = {
    "brings along": "brings",
    "ids or places": "ids or indices",
    "share out": "share",
    "settled at the door": "cast on load",
    "elements side by side": "contiguous elements",
    "wide accesses": "vectorized loads and stores",
    "tiles are joined": "aggregates of tiles are combined",
}


@pytest.mark.parametrize("word", PLAINER)
def test_the_plainer_word_is_used(word: str) -> None:
    texts = {path.as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")} | pages.TEXTS
    assert len(texts) > 100
    assert not [path for path, text in texts.items() if word in " ".join(text.split())], f"say: {PLAINER[word]}"


def test_the_architecture_names_what_there_is() -> None:
    """Files and rooms by their paths, and no word that the code does not use."""
    text = pages.TEXTS["docs/architecture.md"]
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 40 and not [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)]
    assert not [path for path in files if path.endswith("/__init__.py") and path.count("/") == 1 and f"{Path(path).parent}/" not in text]
    _, _, table = text.partition("## Words\n")
    words = re.findall(r"^\| ([\w ]+) \|", table, re.M)[1:]
    sources = "\n".join(files.values())
    assert len(words) > 30 and words == sorted(words, key=str.lower)
    assert not [word for word in words if not re.search(rf"\b{word}", sources, re.I)]
