"""Mutations of kernels on their syntax trees: one barrier, fence, mask, guard or reset of shared memory fewer at a time."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

#: calls that make threads wait for each other, or for their copies; a removed vote returns the caller's own value
BARRIERS = {"syncthreads", "syncwarp", "grid_barrier"}
VOTES = {"syncthreads_or", "syncthreads_and", "syncthreads_count"}
FENCES = {"fence", "threadfence", "commit_copies", "await_copies"}
#: loads and stores with a memory order, and their relaxed forms; the same for the race detector's flags
WEAKER = {"load_acquire": "load_relaxed", "store_release": "store_relaxed", "fetch_add_acq_rel": "fetch_add", "_arrive": "fetch_add"}
ORDERS = {"acquire", "release", "acq_rel"}
ORDER_FLAGS = {"ACQUIRE", "RELEASE"}
ORDER_MAKERS = {"_load", "_store", "_fetch_add"}
#: functions that initialise shared memory
RESETS = {"clear", "put"}


def name_of(path: str) -> str:
    """A file's name in the tables: its path in the package, without the folder ``kernels`` of a family."""
    parts = Path(path).with_suffix("").parts[1:]
    return "/".join(part for k, part in enumerate(parts) if k == 0 or part != "kernels")


class Site(NamedTuple):
    """One mutation. ``text`` identifies it within its function without line numbers."""

    path: str  #: of the file, from the root
    function: str
    kind: str  #: barrier, fence, order, mask, guard or reset
    text: str
    line: int
    steps: tuple[tuple[str, int | None], ...]  #: from the module's tree to the node

    @property
    def file(self) -> str:
        """Its name in the tables."""
        return name_of(self.path)

    @property
    def key(self) -> str:
        return f"{self.function}: {self.kind}: {self.text}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.key}"


def _text(node: ast.AST) -> str:
    """The source of an expression, or the first line of a statement's."""
    return re.sub(r"^\(([^()=]*)\) = ", r"\1 = ", ast.unparse(node).splitlines()[0])  # Python 3.10 writes parentheses about several targets


def _called(node: ast.AST) -> str:
    """The last name of a call's function, "" for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _is_device(node: ast.AST, parents: list[ast.AST]) -> bool:
    """Whether a function runs on the device: one of ``jit.device``, or the kernel inside of a factory."""

    def marked(function: ast.AST, name: str) -> bool:
        return isinstance(function, ast.FunctionDef) and any(_text(each) == f"jit.{name}" for each in function.decorator_list)

    if isinstance(node, ast.Lambda):
        return bool(parents) and _called(parents[-1]) == "device"
    kernel = isinstance(node, ast.FunctionDef) and bool(parents) and marked(parents[-1], "kernel") and node.name == parents[-1].name  # type: ignore[attr-defined]
    return kernel or marked(node, "device")


def _arrays(function: ast.AST, space: str) -> set[str]:
    """Names of the arrays that a function makes in shared or local memory."""
    made: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and f"cuda.{space}.array" in ast.unparse(node.value):
            made |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return made


def _own_names(function: ast.AST) -> set[str]:
    """Names with run-time values: parameters, and names that the function assigns."""
    arguments = getattr(function, "args", None)
    names = {each.arg for each in arguments.args} if arguments else set()
    return names | {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _constant(node: ast.expr) -> bool:
    """Whether an expression is a number, or a number cast to a type."""
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords and _constant(node.args[0]))


def _at_run_time(node: ast.AST, own: set[str]) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in own) or _text(each).startswith("cuda.") for each in ast.walk(node) if isinstance(each, ast.expr)
    )


class _Finder:
    """Walks a module's tree and collects its sites."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path, self.found = path, []  # type: ignore[var-annotated]
        #: names of this module under which a fence is called
        self.fences = FENCES | {
            name.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and "await_copies(" in ast.unparse(node.value)
            for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
        }  # fmt: skip
        self.walk(tree, (), [], [])

    def keep(self, kind: str, text: str, node: ast.AST, steps: tuple[tuple[str, int | None], ...], functions: list[str]) -> None:
        self.found.append(Site(self.path, ".".join(functions) or "module", kind, text, getattr(node, "lineno", 0), steps))

    def walk(self, node: ast.AST, steps: tuple[tuple[str, int | None], ...], parents: list[ast.AST], functions: list[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda) and _is_device(node, parents):
            name = [*functions, node.name if isinstance(node, ast.FunctionDef) else "lambda"]
            self.shared, self.local, self.own = _arrays(node, "shared"), _arrays(node, "local"), _own_names(node)
            self.device(node, steps, name, [])
            return
        if _called(node) in ORDER_MAKERS and not functions:
            self.orders(node, steps)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            functions = [*functions, node.name]
        for child, step in _children(node):
            self.walk(child, (*steps, step), [*parents, node], functions)

    def orders(self, node: ast.AST, steps: tuple[tuple[str, int | None], ...]) -> None:
        for child, step in _children(node):
            if (isinstance(child, ast.Constant) and child.value in (*ORDERS, True)) or (isinstance(child, ast.Name) and child.id in ORDER_FLAGS):
                name = _text(node.args[0])  # type: ignore[attr-defined]
                self.keep("order", f"{_text(child)} of {name}", child, (*steps, step), [])

    def device(self, node: ast.AST, steps: tuple[tuple[str, int | None], ...], functions: list[str], parents: list[ast.AST]) -> None:
        name = _called(node)
        if isinstance(node, ast.Expr) and _called(node.value) in BARRIERS | self.fences:
            kind = "barrier" if _called(node.value) in BARRIERS else "fence"
            self.keep(kind, f"{_text(node)} {_behind(node, parents[-1])}", node, steps, functions)
        elif isinstance(node, ast.Expr | ast.Assign) and self._resets(node):
            self.keep("reset", _text(node), node, steps, functions)
        elif name in VOTES:
            self.keep("barrier", _text(node), node, steps, functions)
        elif name in WEAKER:
            self.keep("order", _text(node), node, steps, functions)
        elif name.endswith("_sync"):
            self.keep("mask", _text(node), node, steps, functions)
        elif isinstance(node, ast.Compare) and all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
            whole_loop = isinstance(parents[-1], ast.While)
            if _at_run_time(node, self.own) and not whole_loop:
                for k in range(len(node.ops)):
                    link = ast.Compare(node.left if k == 0 else node.comparators[k - 1], [node.ops[k]], [node.comparators[k]])
                    text = f"{_text(link)} in {_text(_statement(parents, node))}"
                    self.keep("guard", text, node, (*steps, ("link", k)), functions)
        for child, step in _children(node):
            if isinstance(child, ast.FunctionDef):
                self.walk(child, (*steps, step), [*parents, node], functions)
            else:
                self.device(child, (*steps, step), functions, [*parents, node])

    def _resets(self, node: ast.Expr | ast.Assign) -> bool:
        """Whether a statement initialises shared memory: by a store, by a call, or by a constant that is stored into an array parameter."""
        if isinstance(node, ast.Expr):
            return _called(node.value) in RESETS and any(isinstance(each, ast.Name) and each.id in self.shared for each in node.value.args)  # type: ignore[attr-defined]
        target = node.targets[0]
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            return False
        return target.value.id in self.shared or (target.value.id not in self.local and _constant(node.value))


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, tuple[str, int | None]]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield value, (field, None)
        elif isinstance(value, list):
            for k, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield each, (field, k)


def _statement(parents: list[ast.AST], node: ast.AST) -> ast.AST:
    return next((each for each in reversed(parents) if isinstance(each, ast.stmt | ast.Lambda)), node)


def _behind(node: ast.AST, parent: ast.AST) -> str:
    """The text of the statement after this one."""
    for body in (getattr(parent, "body", []), getattr(parent, "orelse", [])):
        if isinstance(body, list) and node in body:
            rest = body[body.index(node) + 1 :]
            return f"before {_text(rest[0])}" if rest else f"at the end of {_text(parent)}"
    return ""


def sites_of(path: Path, root: Path) -> list[Site]:
    """All sites of a file; equal ones of a function are numbered."""
    found = _Finder(path.relative_to(root).as_posix(), ast.parse(path.read_text())).found
    times, seen = Counter(site.key for site in found), Counter[str]()
    made = []
    for site in found:
        seen[site.key] += 1
        made.append(site._replace(text=f"{site.text} ({seen[site.key]})") if times[site.key] > 1 else site)
    return made


def mutant(site: Site, source: str) -> ast.Module:
    """The module's tree with one site changed."""
    tree = ast.parse(source)
    steps = list(site.steps)
    link = steps.pop()[1] if steps[-1][0] == "link" else None
    parent: ast.AST = tree
    for field, k in steps[:-1]:
        parent = getattr(parent, field) if k is None else getattr(parent, field)[k]
    field, k = steps[-1]
    node = getattr(parent, field) if k is None else getattr(parent, field)[k]
    changed = ast.copy_location(_changed(node, site.kind, link), node)
    if k is None:
        setattr(parent, field, changed)
    else:
        getattr(parent, field)[k] = changed
    _keep_names(tree, source, steps)
    if site.kind == "order":  # the weaker function, which the module may not import
        for weaker in sorted({each.id for each in ast.walk(changed) if isinstance(each, ast.Name)} & set(WEAKER.values())):
            if not site.path.endswith("device/order.py"):
                tree.body.insert(1, ast.parse(f"from numba_baracuda.device.order import {weaker}").body[0])
    return ast.fix_missing_locations(tree)


def _keep_names(tree: ast.Module, source: str, steps: list[tuple[str, int | None]]) -> None:
    """Adds unreachable uses of the names that the device function around a site captured, so that its changed code captures the same."""
    here: Any = tree
    before: Any = ast.parse(source)
    function, whole = None, None
    for field, k in steps:
        if isinstance(here, ast.FunctionDef | ast.Lambda):
            function, whole = here, before
        here, before = (getattr(each, field) if k is None else getattr(each, field)[k] for each in (here, before))
    if function is None or whole is None:
        return
    body = whole.body if isinstance(whole, ast.FunctionDef) else [whole.body]
    names = sorted({each.id for part in body for each in ast.walk(part) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)})
    mention = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
    if isinstance(function, ast.FunctionDef):
        function.body.append(ast.If(ast.Constant(False), [ast.Expr(mention)], []))
    else:
        function.body = ast.IfExp(ast.Constant(True), function.body, mention)


def _changed(node: ast.AST, kind: str, link: int | None) -> ast.AST:
    made = copy.deepcopy(node)
    if isinstance(made, ast.stmt):
        return ast.Pass()
    if isinstance(made, ast.Compare) and link is not None:  # without one of its comparisons
        links = [ast.Compare(([made.left, *made.comparators][k]), [op], [made.comparators[k]]) for k, op in enumerate(made.ops) if k != link]
        values: list[ast.expr] = [*links] or [ast.Constant(True)]
        return values[0] if len(values) == 1 else ast.BoolOp(ast.And(), values)
    if isinstance(made, ast.Call):
        if kind == "mask":
            made.args[0] = ast.Constant(0xFFFF)
            return made
        if kind == "order":
            made.func = ast.Name(WEAKER[_called(made)], ast.Load())
            return made
        return made.args[0]
    if isinstance(made, ast.Constant):
        return ast.Constant("relaxed" if isinstance(made.value, str) else False)
    return ast.Constant(0)  # a flag


def device_functions(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """Names and nodes of a module's functions that run on the device."""
    found: list[tuple[str, ast.AST]] = []

    def walk(node: ast.AST, parents: list[ast.AST], names: list[str]) -> None:
        if isinstance(node, ast.FunctionDef | ast.Lambda) and _is_device(node, parents):
            found.append((".".join([*names, getattr(node, "name", "lambda")]), node))
        names = [*names, node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else names
        for child, _ in _children(node):
            walk(child, [*parents, node], names)

    walk(tree, [], [])
    return found
