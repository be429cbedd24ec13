"""Prefix scans along an axis, and their gradients."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .descriptor import ScanBackwardDescriptor, ScanDescriptor
from .monoids import ScanAxisDescriptor, scan_axis
from .ops import FUNCTIONS

if TYPE_CHECKING:  # the functions are made from the table, which type checkers do not run
    cummax: Callable[..., Any]
    cummax_backward: Callable[..., Any]
    cummin: Callable[..., Any]
    cummin_backward: Callable[..., Any]
    cumprod: Callable[..., Any]
    cumprod_backward: Callable[..., Any]
    cumsum: Callable[..., Any]
    cumsum_backward: Callable[..., Any]
    logcumsumexp: Callable[..., Any]
    logcumsumexp_backward: Callable[..., Any]

__all__ = ["ScanAxisDescriptor", "ScanBackwardDescriptor", "ScanDescriptor", "scan_axis", *FUNCTIONS]
globals().update(FUNCTIONS)
