"""Imports at first use, from any number of threads at once."""

from __future__ import annotations

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
