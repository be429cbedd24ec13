"""Algorithms of the reduce family; none of them names an op.

Every factory takes keywords: short element names, a monoid's or gradient's name, and the geometry of :mod:`..tiling`. A row is what becomes one
element: its places lie over ``dims`` axes, rows over ``kept`` axes, both addressed as Σ coordinate · stride in elements, so any view works; vectors
longer than 1 need unit stride. ``launch_config`` gives blocks, threads and dynamic shared bytes.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .broadcast import broadcast_columns, broadcast_rows, find_special_results, fold_and_broadcast_rows
from .columns import fold_columns
from .results import combine_partials
from .rows import fold_rows
from .short import fold_short_rows, fold_staged_rows

__all__ = [
    "broadcast_columns",
    "broadcast_rows",
    "combine_partials",
    "find_special_results",
    "fold_and_broadcast_rows",
    "fold_columns",
    "fold_rows",
    "fold_short_rows",
    "fold_staged_rows",
]
