"""Algorithms of the loss family; none of them names an op.

Every factory takes keywords: short element names and geometry. Rows of logits lie ``stride`` elements apart in a slab, and become rows of gradients.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .assign import assign
from .compact import compact_rows, gather_values, mask_rows
from .rows import cross_entropy_rows
from .totals import fold_losses, total_targets

__all__ = ["assign", "compact_rows", "cross_entropy_rows", "fold_losses", "gather_values", "mask_rows", "total_targets"]
