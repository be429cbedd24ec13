"""Prefix scans along an axis."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .descriptor import ScanDescriptor
from .ops import FUNCTIONS

if TYPE_CHECKING:  # the functions are made from the table, which type checkers do not run
    cummax: Callable[..., Any]
    cummin: Callable[..., Any]
    cumprod: Callable[..., Any]
    cumsum: Callable[..., Any]
    logcumsumexp: Callable[..., Any]

__all__ = ["ScanDescriptor", *FUNCTIONS]
globals().update(FUNCTIONS)
