"""The first row of each segment that has its greatest or least value, by exact atomics.

One pass finds values and rows together, unless elements have 64 bits: then one finds the values, and one the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...core.op import Clear, Launch, Layout, Op, Recipe, Slot, Step, Target
from ...core.policy import constants
from ...core.spec import Bits
from ..first_rows import NO_CANDIDATE, NO_ROW, NO_ROW_BYTE
from ..policy_of import scatter_rows
from .common import Rows, check_slots, checks, ids_step, only_checks, over_rows, scratch
from .scatter import updates

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

FOUND = "found"  #: candidates, or positions


def unfit_for_atomics(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why atomics do not find positions."""
    if op.traits["ordered"] or not descriptor.bounded:
        return "is for ids in any order, below a number of segments"
    return None if descriptor.num_inputs < NO_ROW else f"is for fewer than {NO_ROW} rows"


def positions(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, monoid: str, output: str | Bits, destination: Layout, empty: float
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """Makes ``output`` [segments, columns], the positions, ``empty`` where segments have no rows; and the slots. Its layout names its element."""
    value, size = BY_NAME[descriptor.element], descriptor.num_segments * descriptor.embedding_dim
    like, update = scratch(descriptor, layouts["input"]), monoid_of(monoid).extreme
    at_once = descriptor.finds_first_at_once
    if at_once:
        steps, slots = updates(descriptor, layouts, target, f"first_{update}", FOUND, replace(like, element="i64"), NO_CANDIDATE)
        slots.append(Slot(FOUND, "i64", size))
    else:
        steps, slots = updates(descriptor, layouts, target, update, "extremes", like, value.limits[0 if update == "max" else 1])
        steps += [Clear(FOUND, NO_ROW_BYTE), _positions_of_extremes(descriptor, layouts, update)]
        slots += [Slot("extremes", value.accumulator, size), Slot(FOUND, "i32", size)]
    rows = Rows(descriptor, destination)
    rows.vector = 1
    arguments = {"positions": FOUND, "output": output, "empty": empty}
    finish = over_rows(
        "finish_positions", rows, ("output",), descriptor.num_segments, 1, arguments, candidates=at_once, result=destination.element
    )  # fmt: skip
    return [*steps, finish], slots


def _positions_of_extremes(descriptor: SegmentDescriptor, layouts: dict[str, Layout], update: str) -> Launch:
    """The launch that finds the first row of each of the extremes, which have been found."""
    policy, value = scatter_rows(update), BY_NAME[descriptor.element]
    arguments = {
        "input": "input", "ids": "segment_ids", "extremes": "extremes", "positions": FOUND, "segments": descriptor.num_segments,
        "ids_step": ids_step(layouts),
    }  # fmt: skip
    rows = Rows(descriptor, layouts["input"]).within(value.accumulator)
    return over_rows(
        "scatter_positions", rows, ("input",), descriptor.num_inputs, policy.items_per_thread, arguments, update=update, value=value.name,
        index=descriptor.index, **constants(policy),
    )  # fmt: skip


def first_by_atomics(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The positions are the results, but of empty segments."""
    if not descriptor.num_segments * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    output = replace(layouts["output"], element=descriptor.result_of(op))
    steps, slots = positions(descriptor, layouts, target, op.traits["monoid"], "output", output, descriptor.empty_value(op))
    return Recipe((*checks(op, descriptor, layouts), *steps), (*check_slots(descriptor), *slots))
