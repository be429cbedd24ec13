"""Memos of plans and calls: dictionaries that are emptied together."""

from __future__ import annotations

from typing import Any

_memos: list[dict[Any, Any]] = []


def memo() -> dict[Any, Any]:
    """An empty dictionary that :func:`forget` empties again."""
    _memos.append({})
    return _memos[-1]


def forget() -> None:
    """Empties all memos: those of :func:`~.plan.select` and of the functions of ops."""
    for each in _memos:
        each.clear()
