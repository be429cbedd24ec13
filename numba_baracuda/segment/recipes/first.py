"""The first row of each segment that has its greatest or least value, by exact atomics: one pass finds the values, and one the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...core.op import Clear, Layout, Op, Recipe, Slot, Step, Target
from ...core.policy import constants
from ...core.spec import Bits
from ..policy_of import scatter_rows
from .common import Rows, check_slots, checks, ids_step, only_checks, over_rows, scratch
from .scatter import updates

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

NO_ROW_BYTE = 0x7F  #: every byte of a position that no row has
_MOST_ROWS = int.from_bytes(bytes([NO_ROW_BYTE]) * 4, "little")


def unfit_for_atomics(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why atomics do not find positions."""
    if op.traits["ordered"] or not descriptor.bounded:
        return "is for ids in any order, below a number of segments"
    return None if descriptor.num_inputs < _MOST_ROWS else f"is for fewer than {_MOST_ROWS} rows"


def positions(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, monoid: str, name: str, element: str
) -> tuple[list[Step], list[Slot]]:
    """Makes ``name`` [segments, columns] of an element type, in whose bits are row indices, and the slots."""
    update, value = monoid_of(monoid).extreme, BY_NAME[descriptor.element]
    extremes, size = scratch(descriptor, layouts["input"]), descriptor.num_segments * descriptor.embedding_dim
    policy, position = scatter_rows(update), f"i{8 * BY_NAME[element].itemsize}"
    steps, slots = updates(descriptor, layouts, target, update, "extremes", extremes, value.limits[0 if update == "max" else 1])
    arguments = {
        "input": "input", "ids": "segment_ids", "extremes": "extremes", "positions": Bits(name) if element != position else name,
        "segments": descriptor.num_segments, "ids_step": ids_step(layouts),
    }  # fmt: skip
    rows = Rows(descriptor, layouts["input"]).within(value.accumulator)
    launch = over_rows(
        "scatter_positions", rows, ("input",), descriptor.num_inputs, policy.items_per_thread, arguments, update=update, value=value.name,
        index=descriptor.index, position=position, **constants(policy),
    )  # fmt: skip
    return [*steps, Clear(name, NO_ROW_BYTE), launch], [*slots, Slot("extremes", value.accumulator, size), Slot(name, element, size)]


def first_by_atomics(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The positions; then the results, which empty segments do not have."""
    segments, result = descriptor.num_segments, descriptor.result_of(op)
    if not segments * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    position = descriptor.row_index_type
    steps, slots = positions(descriptor, layouts, target, op.traits["monoid"], "positions", position)
    output = Rows(descriptor, layouts["output"])
    output.vector = 1
    arguments = {"positions": "positions", "output": "output", "empty": descriptor.empty_value(op)}
    finish = over_rows("finish_positions", output, ("output",), segments, 1, arguments, position=position, result=result)
    return Recipe((*checks(op, descriptor, layouts), *steps, finish), (*check_slots(descriptor), *slots))
