"""The launches that combine the carries of a ragged fold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Slot, Step, Target
from ...core.policy import constants
from .. import policy_of
from ..carries_tiling import carries_launch, carries_shape
from .common import Rows, kernel_spec, taken

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor
    from .segment_fold import SegmentFold


CARRY = "carry"  #: what the slots of carries are called by
JOINED = "joined"  #: the same of carries that are joined


def carry_arguments(several: bool, name: str = CARRY, kind: str = CARRY) -> dict[str, str]:
    """The arguments of a kernel for the slots of carries; NULL unless there are ``several`` row blocks. It calls them ``kind``."""
    return {f"{kind}_{each}": f"{name}_{each}" if several else NULL for each in ("ids", "counts", "states")}


def carry_slots(entries: int, scalars: int, state: str, name: str = CARRY) -> list[Slot]:
    """An id, a count and ``scalars`` scalars of states for every carry."""
    return [Slot(f"{name}_ids", "i64", entries), Slot(f"{name}_counts", "i64", entries), Slot(f"{name}_states", state, entries * scalars)]


def carries_steps(
    descriptor: SegmentDescriptor, rows: Rows, fold: SegmentFold, entries: int, most: int, target: Target
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The launches that combine ``entries`` carries, and the slots of ``most``, as many as there are with any layout; ``rows``: see below."""
    plan, scalars, state = policy_of.fold_carries(fold.monoid.hungry), descriptor.embedding_dim * fold.monoid.width, fold.state_of(descriptor.element)
    slots, steps, name = carry_slots(most, scalars, state), list[Step](), CARRY
    if most >= plan.most_at_once:
        joining = policy_of.fold_carries(fold.monoid.hungry, joins=True)
        least = joining.threads_per_block // joining.max_group_threads * joining.items_per_thread - 1
        slots += carry_slots(2 * ceil_div(most, least), scalars, state, JOINED)
    if entries >= plan.most_at_once:
        join, entries = _combine(descriptor, rows, fold, entries, target, joins=True)
        steps, name = [join], JOINED
    if entries:
        steps.append(_combine(descriptor, rows, fold, entries, target, name=name)[0])
    return steps, slots


def combine_carries(
    descriptor: SegmentDescriptor, rows: Rows, fold: SegmentFold, entries: int, target: Target, blank: bool = False, count: str = NULL
) -> Launch:  # fmt: skip
    """The launch that combines carries; ``rows`` are those of source and output.

    Where ``count`` is given, ``count[0]`` is the number of carries, at most ``entries``. Only the device knows it, so few blocks walk them.
    """
    return _combine(descriptor, rows, fold, entries, target, blank, count)[0]


def _combine(
    descriptor: SegmentDescriptor, rows: Rows, fold: SegmentFold, entries: int, target: Target, blank: bool = False, count: str = NULL,
    joins: bool = False, name: str = CARRY,
) -> tuple[Launch, int]:  # fmt: skip
    """The launch that combines the carries ``name``, or ``joins`` them, and how many it leaves then."""
    value, columns = descriptor.element, descriptor.embedding_dim
    state = fold.state_of(value)
    plan, most, counted = policy_of.fold_carries(fold.monoid.hungry, joins), rows.vector, count != NULL
    while most > 1 and most * fold.monoid.width * BY_NAME[state].itemsize > plan.vector_bytes:
        most //= 2
    vector, lanes, share = carries_shape(plan, entries, columns, most)
    (blocks, threads, shared), tile, chunks = carries_launch(entries, columns, vector, lanes, plan.threads_per_block, share, joins)
    options = {"threads_per_block": threads} if joins else {}
    spec = kernel_spec(
        "fold_carries", threads, plan.min_blocks_per_multiprocessor, monoid=fold.monoid.name, value=value, result=fold.result, vector=vector,
        lanes=lanes, blank=blank, guarded=fold.guarded, counted=counted, joins=joins, dims=rows.dims, **constants(plan) | options,
    )  # fmt: skip
    arguments = {
        **carry_arguments(True, name), **carry_arguments(joins, JOINED, JOINED), "guard": count if counted else fold.guard, "output": fold.output,
        "entries": entries, "columns": columns, "segments": descriptor.num_segments, "chunks": chunks, "tile": tile, "share": share,
        "empty": fold.empty, "correction": taken(descriptor, fold.monoid), "output_row": rows.steps[1], "shape": rows.shape,
        "output_strides": rows.strides[1],
    }  # fmt: skip
    blocks = min(blocks, plan.grid_blocks_per_multiprocessor * target.multiprocessors) if counted else blocks
    return Launch(spec, (blocks, threads, shared), arguments), 2 * ceil_div(entries, tile)
