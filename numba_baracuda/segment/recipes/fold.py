"""The ragged fold: tiles of rows, then the runs that cross them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.dtypes import BY_NAME
from ...core.op import Clear, Layout, Op, Recipe, Slot, Step, Target, fresh_first
from ...core.policy import tuned
from ...core.spec import KernelSpec
from ..policy import FoldGaps
from .carries import carries_steps
from .common import Rows, check_slots, checks, fill_elements, only_checks
from .fold_launches import fold_launch, most_entries
from .order import Order, as_given, key_slots, keys, order_of, scratch_slot, sort
from .segment_fold import SegmentFold, narrow_plan
from .statuses import STATUS

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def fold_steps(descriptor: SegmentDescriptor, target: Target, fold: SegmentFold) -> tuple[list[Step], list[Slot]]:
    """The launches of a fold over ids in order, and the slot of their statuses, which is fresh, or the slots of the carries between them."""
    plan, rows = narrow_plan(descriptor, fold), Rows(descriptor, *fold.all_layouts)
    launch, tiling, status = fold_launch(descriptor, target, rows, plan, fold)
    if fold.fills and rows.is_dense(1) and _mostly_empty(descriptor, fold, launch.spec):
        blank = fill_elements(fold.output, descriptor.num_segments * descriptor.embedding_dim, fold.result, fold.empty, rows.addresses[1] == 0)
        steps, slots = fold_steps(descriptor, target, replace(fold, fills=False))
        return [blank, *steps], slots
    if status:
        return [Clear(STATUS, fresh=True), launch], [status]
    # whether permuted rows are narrow depends on their layout, and the workspace must do for every layout
    exact = plan is not None and not fold.order.row_index
    most = tiling.entries if exact else most_entries(descriptor, target, fold.monoid)
    if most <= 2:
        return [launch], []
    combine, slots = carries_steps(descriptor, rows, fold, tiling.entries if tiling.row_blocks > 1 else 0, most, target)
    return [launch, *combine], slots


def _mostly_empty(descriptor: SegmentDescriptor, fold: SegmentFold, spec: KernelSpec) -> bool:
    """Whether it is faster to fill all of the output first than to have this kernel find the gaps between few segments."""
    plan, options, size = tuned(FoldGaps()), dict(spec.constants), descriptor.embedding_dim * BY_NAME[fold.result].itemsize
    least = plan.sparse_segments
    if options.get("fill_vector"):
        least = plan.sparse_range_segments
    elif spec.kernel == "fold_tiles" and options["apart"]:
        least = plan.sparse_apart_segments
    return bool(descriptor.num_segments >= least * descriptor.num_inputs and descriptor.num_segments * size >= plan.sparse_bytes)


def ragged(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The ragged fold over ids in order. A sort or an index may have put them in order."""
    if not descriptor.embedding_dim * descriptor.num_segments:
        return only_checks(op, descriptor, layouts)
    order = order_of(op, descriptor, layouts, target)
    steps, slots = fold_steps(descriptor, target, SegmentFold.of(op, descriptor, layouts, order))
    return fresh_first((*checks(op, descriptor, layouts), *order.steps, *steps), (*check_slots(descriptor), *order.slots, *slots))


def sorted_pairs(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A sort of (id, row) pairs, then the ragged fold over the sorted rows.

    Rows that are not contiguous are folded through a permutation.
    """
    rows, source = descriptor.num_inputs, Rows(descriptor, layouts["input"])
    if not rows * descriptor.embedding_dim * descriptor.num_segments or not source.is_contiguous(0):
        return ragged(op, descriptor, layouts, target)
    steps, slots = pair_steps(descriptor, layouts, target, SegmentFold.of(op, descriptor, layouts, as_given(descriptor, layouts)))
    return fresh_first((*checks(op, descriptor, layouts), *steps), (*check_slots(descriptor), *slots))


def pair_steps(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, fold: SegmentFold
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The sort of (id, row) pairs and the ragged fold, and their slots. The rows that ``fold`` folds are contiguous."""
    by_id = sort(descriptor, fold.source, descriptor.row_size, "sorted_rows")
    room = Slot("sorted_rows", descriptor.element, descriptor.num_inputs * descriptor.embedding_dim)
    steps, slots = fold_steps(descriptor, target, replace(fold, order=Order("sorted_ids", descriptor.key_type, 1, True), source="sorted_rows"))
    return [keys(descriptor, layouts, ""), by_id, *steps], [*key_slots(descriptor), room, scratch_slot(by_id, target), *slots]
