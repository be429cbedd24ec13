"""The statuses of folds whose blocks look back."""

from __future__ import annotations

from collections.abc import Sequence

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...core.op import NULL, TWIN_BYTES, Clear, Recipe, Slot, Step
from ...core.policy import tuned
from ...core.sizes import plain
from ..policy import FoldLookback
from ..statuses import STATUS_ROWS, most_blocks, status_words, statuses_of

#: the slots of statuses, and of those that a call blanks for the next one
STATUS, STALE = "run_status", "stale_status"


def status_slots(rows: int, row_blocks: int, lanes: int, vector: int, monoid: KernelMonoid, state: str) -> list[Slot]:
    """The slots of the statuses that ``lanes`` lanes of each row block publish, for ``vector`` columns each.

    There are none where one block has all rows, or where statuses would not fit the memory that a stream keeps, which need not be cleared first.
    """
    itemsize = BY_NAME[state].itemsize
    words = lanes * status_words(plain(vector) * monoid.width, itemsize)
    most = most_blocks(min(tuned(FoldLookback()).max_status_bytes, TWIN_BYTES) // (16 * words))
    if not 1 < row_blocks <= most or (monoid.counts and itemsize == 4 and rows >= STATUS_ROWS):
        return []
    return [Slot(name, "i64", 2 * words * statuses_of(row_blocks)) for name in (STATUS, STALE)]


def status_arguments(slots: Sequence[Slot]) -> dict[str, str]:
    """The arguments of a kernel for these slots; NULL where there are none."""
    return dict.fromkeys((STATUS, STALE), NULL) | {slot.name: slot.name for slot in slots}


def in_turn(steps: Sequence[Step], slots: Sequence[Slot]) -> Recipe:
    """The recipe of these steps and slots; slots that take turns, and the step that clears one of them, come before all others."""
    first = [step for step in steps if isinstance(step, Clear) and step.twin]
    named = [name for step in first for name in (step.slot, step.twin)]
    apart = [slot for slot in slots if slot.name in named]
    return Recipe((*first, *[step for step in steps if step not in first]), (*apart, *[slot for slot in slots if slot not in apart]))
