"""Atomic updates of the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...algebra.gradients import Gradient
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Recipe, Slot, Step, Target, fresh_first
from ...core.policy import constants, tuned
from ...core.spec import Bits
from ..policy import FinishFlat
from ..policy_of import pass_bytes, sampled_rows, scatter_blocks, scatter_rows
from ..tiling import reciprocal_of
from .common import Rows, check_slots, checks, fill_rows, ids_step, kernel_spec, only_checks, over_rows, scratch
from .counts import count
from .passes import merged, passes

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

#: the atomic update of each monoid that has one
UPDATES = {"sum": "add", "mean": "add", "max": "max", "min": "min"}


def exact(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why atomics would not give the same bits in every order."""
    ordered = UPDATES[op.traits["monoid"]] in ("max", "min") or BY_NAME[descriptor.element].whole
    return None if ordered else "is for max, min and integers, which do not round"


def inexact(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why there is no need to give up determinism."""
    return "gives the same bits in every order, which atomic_exact says" if exact(op, descriptor) is None else None


def _floats(descriptor: SegmentDescriptor, update: str) -> bool:
    """Whether atomics update the bits of floats, as ``device.red_max`` and ``red_min`` encode them."""
    return update in ("max", "min") and not BY_NAME[descriptor.element].whole


def updates(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, update: str, name: str, destination: Layout, start: float,
    about: str = "", pivots: str = NULL, operands: tuple[str, ...] = ("input",), pairs: str = "",
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """In each pass the values that segments start with, which are still in L2 when the atomics begin, and the atomics; and the slots of the passes.

    Where ``about`` names a monoid, they add its terms about the ``pivots``; where ``pairs`` does, its states of the two ``operands``. The destination
    is of the accumulator's type, unless its layout names another.
    """
    n, value, state = descriptor.num_inputs, BY_NAME[descriptor.element], destination.element or BY_NAME[descriptor.element].accumulator
    floats, state_bytes = _floats(descriptor, update), BY_NAME[state].itemsize
    first, other = layouts[operands[0]], layouts[operands[-1]]
    rows, out = Rows(descriptor, first, other, destination), Rows(descriptor, destination).within(state)
    rows = rows.within(value.accumulator) if about or update != "add" else rows
    # floats start as the bits that no value reaches (``device.RED_MAX_FILL`` and ``RED_MIN_FILL``, as signed integers)
    unreached = -1 if update == "max" else (1 << (8 * state_bytes - 1)) - 1
    blocks = 0 if about else scatter_blocks(target, update, state_bytes, rows.vector, rows.dims)
    policy, size = scatter_rows(update, blocks), descriptor.embedding_dim * state_bytes
    made, steps, slots = passes(descriptor, layouts, target, size, pass_bytes(update, value.itemsize, descriptor.embedding_dim))
    sampled = sampled_rows(n, descriptor.row_size, update, target.multiprocessors)
    for each in made:
        common: dict[str, Any] = {"guard": each.guard, "output": name, "low": each.low}
        filled = common | {"output": Bits(name) if floats else name, "fill": unreached if floats else start}
        kind = f"i{8 * state_bytes}" if floats else state
        steps.append(fill_rows(out, each.high - each.low, filled, kind, each.guarded))
        given = common | {
            "input": operands[0], "other": operands[-1], "ids": "segment_ids", "pivots": pivots, "high": each.high, "crowd": policy.crowd_rows,
            "ids_step": ids_step(layouts),
        }  # fmt: skip
        steps.append(
            over_rows(
                "scatter_rows", rows, ("input", "other", "output"), n, policy.items_per_thread, given, policy, target.multiprocessors,
                update=update, value=value.name, index=descriptor.index, about=about, pairs=pairs, guarded=each.guarded, sampled=sampled,
                **constants(policy),
            )
        )  # fmt: skip
    return steps, slots


def sums(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, name: str) -> tuple[list[Step], list[Slot]]:
    """Makes ``name`` [segments, columns], the sums that a gradient reads, and its slot."""
    destination, accumulator = scratch(descriptor, layouts[gradient.over[0]]), BY_NAME[descriptor.element].accumulator
    pairs = gradient.fold if len(gradient.over) > 1 else ""
    steps, slots = updates(descriptor, layouts, target, "add", name, destination, 0, operands=gradient.over, pairs=pairs)
    return steps, [*slots, Slot(name, accumulator, descriptor.num_segments * descriptor.embedding_dim)]


def scatter(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Atomics, pass by pass; then the results, unless atomics leave them."""
    if not descriptor.num_segments * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    accumulator, update = BY_NAME[descriptor.element].accumulator, UPDATES[op.traits["monoid"]]
    floats = _floats(descriptor, update)
    #: halves are accumulated in a slot of the workspace, other types in the output itself
    in_output = accumulator == descriptor.element
    target_name, destination = ("output", layouts["output"]) if in_output else ("accumulated", scratch(descriptor, layouts["output"]))
    ends = Rows(descriptor, destination, layouts["output"]).within(accumulator)
    made, room = updates(descriptor, layouts, target, update, target_name, destination, descriptor.identity(op))
    steps, slots = [*checks(op, descriptor, layouts), *made], [*check_slots(descriptor), *room]
    if not in_output:
        slots.append(Slot("accumulated", accumulator, descriptor.num_segments * descriptor.embedding_dim))
    counted = not floats and (op.traits["monoid"] == "mean" or descriptor.counted(op))
    counts = NULL
    if counted:
        counts, more, room = count(op, descriptor, layouts, target)
        steps += more
        slots = merged(slots, room)
    if counted or floats or not in_output:
        steps.append(finish(op, descriptor, ends, (target_name, accumulator), "output", update if floats else "", counts))
    return fresh_first(steps, slots)


def finish(op: Op, descriptor: SegmentDescriptor, ends: Rows, source: tuple[str, str], output: str, coded: str, counts: str) -> Launch:
    """Results from what atomics have left, or quotients. ``ends`` are the rows of source and output; ``source`` is its name and element type.

    ``counts`` are :func:`~.counts.count`'s, or ``NULL`` where none are wanted.
    """
    value, segments, columns, flat = BY_NAME[descriptor.element], descriptor.num_segments, ends.columns, tuned(FinishFlat())
    arguments: dict[str, Any] = {
        "source": source[0], "counts": counts, "output": output, "empty": descriptor.empty_value(op),
    }  # fmt: skip
    common: dict[str, Any] = {"monoid": op.traits["monoid"], "value": value.name, "source_value": source[1], "coded": coded}
    counted = counts != NULL
    common |= {"count": descriptor.count_type if counted else "", "differences": counts == "offsets"}
    if not (ends.is_contiguous(0) and ends.is_contiguous(1) and 1 < columns <= flat.max_columns):
        return over_rows("finish_rows", ends, ("source", "output"), segments, 1, arguments, **common)
    span = 1 if not counted or columns % value.vector == 0 else 2 if columns >= value.vector else 3
    tile = flat.threads_per_block * flat.items_per_thread * value.vector
    spec = kernel_spec("finish_flat", flat.threads_per_block, vector=value.vector, span=span, **common, **constants(flat))
    arguments |= {"rows": segments, "columns": columns, "reciprocal": reciprocal_of(columns)}
    return Launch(spec, (ceil_div(segments * columns, tile), flat.threads_per_block, 0), arguments)
