"""Recipes: from a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from .bins import bins, many
from .fold import movable, moved, ragged
from .gather import gather
from .ranges import ranges, too_few, unfit
from .scatter import exact, inexact, scatter, sorting_pays
from .spread import spread, too_many

__all__ = [
    "bins", "exact", "gather", "inexact", "many", "movable", "moved", "ragged", "ranges", "scatter", "sorting_pays", "spread", "too_few", "too_many",
    "unfit",
]  # fmt: skip
