"""From a segment problem to launches: which kernel, with which constants, over which grid."""

from .fold import fold_permuted, fold_sorted
from .gather import gather
from .scatter import scatter, sorting_pays

__all__ = ["fold_permuted", "fold_sorted", "gather", "scatter", "sorting_pays"]
