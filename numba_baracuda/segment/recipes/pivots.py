"""Sums about the greatest element of each segment, by atomics: one pass finds these, and one adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.dtypes import BY_NAME
from ...core.op import Layout, Op, Recipe, Slot, Target
from .common import Rows, check_slots, checks, only_checks, over_rows, scratch
from .passes import merged
from .scatter import updates

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def scatter_about_greatest(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The greatest elements, then the sums of what elements are about them, then the results."""
    segments, value, monoid = descriptor.num_segments, BY_NAME[descriptor.element], descriptor.monoid(op)
    size = segments * descriptor.embedding_dim
    if not size:
        return only_checks(op, descriptor, layouts)
    of_segments = scratch(descriptor, layouts["input"])
    steps, room = updates(descriptor, layouts, target, "max", "pivots", of_segments, 0)
    more, needed = updates(descriptor, layouts, target, "add", "sums", of_segments, 0, monoid.name, "pivots")
    arguments = {"pivots": "pivots", "sums": "sums", "output": "output", "empty": descriptor.empty_value(op)}
    output = Rows(descriptor, layouts["output"]).within(value.accumulator)
    finish = over_rows("finish_pivots", output, ("output",), segments, 1, arguments, monoid=monoid.name, value=value.name)
    slots = (*check_slots(descriptor), *merged(room, needed), Slot("pivots", value.accumulator, size), Slot("sums", value.accumulator, size))
    return Recipe((*checks(op, descriptor, layouts), *steps, *more, finish), slots)
