"""Algorithms of the scan family; none of them names an op."""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .columns import scan_columns, scan_long_columns
from .rows import scan_long_rows, scan_rows

__all__ = ["scan_columns", "scan_long_columns", "scan_long_rows", "scan_rows"]
