"""Recipes: from a descriptor and layouts to launches. They are pure functions, and importing them imports no Numba."""

from .bins import bins, many
from .broadcast import broadcast, broadcast_sums, too_many, unbounded
from .first import first_by_atomics, unfit_for_atomics
from .fold import ragged, sorted_pairs
from .gather import gather
from .pivots import scatter_about_greatest
from .ranges import ranges, unfit
from .scatter import exact, inexact, scatter

__all__ = [
    "bins",
    "broadcast",
    "broadcast_sums",
    "exact",
    "first_by_atomics",
    "gather",
    "inexact",
    "many",
    "ragged",
    "ranges",
    "scatter",
    "scatter_about_greatest",
    "sorted_pairs",
    "too_many",
    "unbounded",
    "unfit",
    "unfit_for_atomics",
]  # fmt: skip
