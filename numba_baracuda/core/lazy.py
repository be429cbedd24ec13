"""Imports at first use, from any number of threads at once, and what they and compilers leave to the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType


def load(name: str) -> ModuleType:
    """The module of a full dotted name; its packages are imported before it.

    Python locks ``a.b`` and then imports ``a``. Where ``a`` itself imports ``a.b``, a thread that begins at ``a.b`` and one that begins at ``a`` wait
    for each other, and Python ends that by giving one of them a module that is half made. All who begin at ``a`` take the locks in the same order.
    """
    package = name.rpartition(".")[0]
    if package:
        load(package)
    return import_module(name)


_lock = threading.Lock()
_inside = 0
_collecting = False


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Inside the block, of any thread, Python looks for no cycles: a compiler's objects come in hundred thousands, and each look walks them all."""
    global _inside, _collecting
    with _lock:
        if not _inside:
            _collecting = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _collecting:
                gc.enable()


def _forked() -> None:
    """The threads that were inside are not there."""
    global _lock, _inside
    _lock = threading.Lock()
    if _inside and _collecting:
        gc.enable()
    _inside = 0


os.register_at_fork(after_in_child=_forked)
