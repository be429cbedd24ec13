"""Segment ops: rows that share an id are folded into one, and gradients go the way back."""

from typing import Any

from .descriptor import SegmentDescriptor
from .index import SegmentIndex
from .ops import FUNCTIONS

__all__ = ["SegmentDescriptor", "SegmentIndex", *FUNCTIONS]


def __getattr__(name: str) -> Any:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
