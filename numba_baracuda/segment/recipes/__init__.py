"""Recipes: from a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from .bins import bins, many
from .fold import movable, moved, ragged
from .gather import gather
from .scatter import exact, inexact, scatter, sorting_pays
from .spread import spread, too_many

__all__ = ["bins", "exact", "gather", "inexact", "many", "movable", "moved", "ragged", "scatter", "sorting_pays", "spread", "too_many"]
