"""What calls keep of one another: dictionaries that are emptied together."""

from __future__ import annotations

from typing import Any

_memos: list[dict[Any, Any]] = []


def memo() -> dict[Any, Any]:
    """An empty dictionary of what was settled, by what settled it, until :func:`forget`."""
    _memos.append({})
    return _memos[-1]


def forget() -> None:
    """Empties all memos: what :func:`~.plan.select` and the functions of ops keep."""
    for each in _memos:
        each.clear()
