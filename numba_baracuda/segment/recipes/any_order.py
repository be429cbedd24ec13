"""The fold that a gradient or a softmax needs, over ids in any order, where what follows takes the rows as they lie."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...algebra import monoid_of
from ...core.axes import c_strides, ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import Launch, Layout, Slot, Step, Target
from ...core.policy import tuned
from .. import times
from ..pairing import unpairable_by
from ..policy import FoldShortRuns, PermutedRows
from ..tiling import Tiling
from .common import Rows, kernel_spec
from .fold import fold_steps, pair_steps
from .order import Order
from .segment_fold import SegmentFold

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

LIFTED = "lifted"  #: the states of a fold of pairs


def lifted(descriptor: SegmentDescriptor, target: Target, fold: SegmentFold) -> tuple[SegmentDescriptor, SegmentFold, list[Step], list[Slot]]:
    """The fold of the states of pairs, which are made beforehand where that saves random accesses, with its descriptor; and what makes them.

    Else the fold as it is.
    """
    rows, state = Rows(descriptor, *fold.all_layouts), BY_NAME[descriptor.element].accumulator
    narrow = descriptor.embedding_dim * BY_NAME[state].itemsize <= tuned(FoldShortRuns()).max_lifted_bytes
    large = descriptor.num_inputs * descriptor.row_size > int(tuned(PermutedRows()).cache_share * target.l2_bytes)
    if not (fold.other and fold.monoid.lifted and narrow and large and rows.is_contiguous(0) and rows.is_contiguous(2)):
        return descriptor, fold, [], []
    elements, vector = descriptor.num_inputs * descriptor.embedding_dim, BY_NAME[descriptor.element].vector
    arguments = {"input": fold.source, "other": fold.other[0], "lifted": LIFTED, "elements": elements}
    spec = kernel_spec("lift_pairs", monoid=fold.monoid.name, value=descriptor.element)
    step = Launch(spec, Tiling.of_ids(ceil_div(elements, vector)).launch, arguments)
    layout = Layout(fold.layouts[0].shape, c_strides(fold.layouts[0].shape))
    of_states = replace(fold, monoid=monoid_of(fold.monoid.lifted), source=LIFTED, layouts=(layout, fold.layouts[1]), other=None)
    return replace(descriptor, element=state), of_states, [step], [Slot(LIFTED, state, elements)]


def fold_any_order(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, fold: SegmentFold, sorted_order: Order, given: Order
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The steps of the fold, and of the sort that it takes: of ids by ``sorted_order``, or of single elements along with ids."""
    single = descriptor.embedding_dim == 1 and descriptor.num_inputs > 0 and fold.other is None and unpairable_by(fold.monoid, descriptor) is None
    faster = times.paired_fold(descriptor) < times.permuted_fold(descriptor, fold.monoid.heavy)
    if single and faster and Rows(descriptor, *fold.all_layouts).is_contiguous(0):
        return pair_steps(descriptor, layouts, target, replace(fold, order=given))
    steps, slots = fold_steps(descriptor, target, replace(fold, order=sorted_order))
    return [*sorted_order.steps, *steps], [*sorted_order.slots, *slots]
