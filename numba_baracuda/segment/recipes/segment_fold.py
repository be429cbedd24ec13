"""A fold over ids in order, as recipes describe it to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Layout, Op
from ...core.policy import tuned
from .. import policy, policy_of
from .common import Rows
from .order import Order

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


@dataclass(frozen=True)
class SegmentFold:
    """A fold over ids in order: its operands by name, their layouts and its options. The layout of the output names its element."""

    monoid: KernelMonoid
    order: Order
    source: str
    output: str
    layouts: tuple[Layout, Layout]
    other: tuple[str, Layout] | None = None  #: the second array of a monoid of pairs
    guard: str = NULL
    cleared: str = NULL  #: what becomes 0 on the way, if rows are narrow: as the source in its layout
    fills: bool = True  #: whether empty segments are written, with ``empty``
    empty: float = 0
    input_positions: bool = False  #: whether positions are rows of the input, or else in the order of the ids

    @classmethod
    def of(cls, op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], order: Order, source: str = "input") -> SegmentFold:
        """The fold of a forward op; ``source`` has the input's rows."""
        monoid, output = descriptor.monoid(op), replace(layouts["output"], element=descriptor.result_of(op))
        positions, empty = monoid.uses_positions and order.row_index != "", descriptor.empty_value(op)
        return cls(monoid, order, source, "output", (layouts["input"], output), empty=empty, input_positions=positions)

    @property
    def all_layouts(self) -> tuple[Layout, ...]:
        """The layouts of source and output, and of the second array if there is one."""
        return (*self.layouts, self.other[1]) if self.other else self.layouts

    @property
    def guarded(self) -> bool:
        return self.guard != NULL

    @property
    def result(self) -> str:
        return self.layouts[1].element

    def state_of(self, value: str) -> str:
        """The type of a state's scalars, of elements of type ``value``."""
        return self.monoid.kind or BY_NAME[value].accumulator


def narrow_plan(descriptor: SegmentDescriptor, fold: SegmentFold) -> policy.FoldNarrow | None:
    """The policy of :func:`~..kernels.fold_short_runs`, if rows are narrow, and permuted or in short runs; of :func:`~..kernels.fold_narrow` if
    they are narrow and contiguous; else None.
    """
    rows, order, permuted = Rows(descriptor, *fold.all_layouts), fold.order, fold.order.row_index != ""
    operands, scalars = [k for k in range(len(fold.all_layouts)) if k != 1], descriptor.embedding_dim * fold.monoid.width
    row_bytes, n, segments = descriptor.row_size * len(operands), descriptor.num_inputs, descriptor.num_segments
    short, share = tuned(policy.FoldShortRuns()), 0
    if not order.packed or not all(strides == (1,) for strides in rows.strides):
        return None
    if not permuted and scalars <= tuned(policy.FoldNarrow()).max_state_scalars and all(rows.is_contiguous(k) for k in operands):
        share = policy_of.narrow_items(row_bytes, n, segments)
    if permuted or (share and n <= short.max_segment_rows * segments):
        state = BY_NAME[fold.state_of(descriptor.element)]
        items = policy_of.short_run_items(row_bytes, scalars, state.itemsize, order.index, n, segments)
        if items and (permuted or items * descriptor.row_size % 16 == 0):
            return policy.FoldShortRuns(items_per_thread=items)
    return policy.FoldNarrow(items_per_thread=share) if share else None
