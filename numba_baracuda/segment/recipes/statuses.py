"""The statuses of folds whose blocks look back."""

from __future__ import annotations

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...core.op import FRESH_BYTES, Slot
from ...core.policy import tuned
from ...core.sizes import plain
from ..policy import FoldLookback
from ..statuses import STATUS_ROWS, most_blocks, status_words, statuses_of

#: the slot of statuses
STATUS = "run_status"


def status_slot(rows: int, row_blocks: int, lanes: int, vector: int, monoid: KernelMonoid, state: str) -> Slot | None:
    """The slot of the statuses that ``lanes`` lanes of each row block publish, for ``vector`` columns each.

    None where one block has all rows, or where statuses would not fit the memory that a stream keeps, which need not be cleared first.
    """
    itemsize = BY_NAME[state].itemsize
    words = lanes * status_words(plain(vector) * monoid.width, itemsize)
    most = most_blocks(min(tuned(FoldLookback()).max_status_bytes, FRESH_BYTES) // (16 * words))
    if not 1 < row_blocks <= most or (monoid.counts and itemsize == 4 and rows >= STATUS_ROWS):
        return None
    return Slot(STATUS, "i64", 2 * words * statuses_of(row_blocks))
