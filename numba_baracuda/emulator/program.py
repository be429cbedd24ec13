"""Kernels as Python functions of a lane and their arguments: lowered once for each tuple of argument types."""

from __future__ import annotations

import itertools
import linecache
import os
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from ..runtime import jit
from . import builtins as _builtins  # noqa: F401 - gives the names of numba.cuda their meaning
from . import lowering, scalars

_scope: dict[str, Any] = {name: getattr(scalars, name) for name in scalars.__all__}
_lowered: dict[Any, tuple[str, Any]] = {}
_numbers = itertools.count()
_lock = threading.RLock()
# A fork waits for the lock: in the child, nobody would release one that another thread has. Numba's own lock is only taken inside this one.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def lower(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> tuple[str, Any]:
    """The name of a lowered kernel or device function, and its return type."""
    key = function, argument_types
    with _lock:
        if key not in _lowered:
            name = f"{function.__name__.strip('<>')}_{next(_numbers)}"
            typed = jit.infer(function, argument_types)
            write(name, typed)
            _lowered[key] = name, typed[-1]
        return _lowered[key]


def write(name: str, typed: Any) -> None:
    """Compiles typed IR to a Python function of this name, which generated source calls."""
    made = lowering.Lowering(typed, lambda dispatcher, types: lower(dispatcher.py_func, types), name)
    text = made.source(name)
    filename = f"<emulated {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    _scope.update(made.constants)
    exec(compile(text, filename, "exec"), _scope)


def entry_of(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> Callable[..., Any]:
    """The kernel as a Python function of a lane and its arguments."""
    made: Callable[..., Any] = _scope[lower(function, argument_types)[0]]
    return made


def site_of(positions: Iterable[tuple[FrameType, int]]) -> str:
    """The kernel's source line of the first of these frames that runs generated source."""
    for frame, line in positions:
        filename = frame.f_code.co_filename
        if filename.startswith("<emulated "):
            return linecache.getline(filename, line).rpartition("  # ")[2].strip()
    return "?"
