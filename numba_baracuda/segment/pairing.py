"""Which rows are sorted along with their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algebra import KernelMonoid
from ..core.op import Op

if TYPE_CHECKING:
    from .descriptor import SegmentDescriptor


def unpairable(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why rows are not sorted along with their ids."""
    return unpairable_by(descriptor.monoid(op), descriptor)


def unpairable_by(monoid: KernelMonoid, descriptor: SegmentDescriptor) -> str | None:
    """Why rows that are folded by a monoid are not sorted along with their ids."""
    if monoid.uses_positions:
        return "sorts rows along with their ids, and so loses where they were"
    return None if descriptor.row_size in (0, 2, 4, 8) else f"is for rows of 2, 4 or 8 bytes, not {descriptor.row_size}"
