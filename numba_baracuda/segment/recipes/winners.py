"""Gradients of max and min that are stored only at the rows that get one, over zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...algebra.gradients import Gradient
from ...core.dtypes import BY_NAME
from ...core.op import Launch, Layout, Step
from ...core.policy import tuned
from ..policy import BroadcastToRows
from ..tiling import Tiling
from .common import Rows, fill_elements, kernel_spec
from .segment_fold import SegmentFold, narrow_plan

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def few_win(descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, index: str) -> bool:
    """Whether the gradient is stored only at the few rows that get one, over zeros, so that ids and results are not read again for each row.

    A store at a winner takes what it takes to move ``winner_bytes``. It saves the ids, and of halves, which are broadcast more slowly than zeros are
    stored, a part of each row.
    """
    plan, columns, value = tuned(BroadcastToRows()), descriptor.embedding_dim, BY_NAME[descriptor.element]
    saved = BY_NAME[index].itemsize + (descriptor.row_size // plan.halves_saved if value.itemsize == 2 else 0)
    few = descriptor.num_inputs * saved >= plan.winner_bytes * columns * descriptor.num_segments
    if not (gradient.uses_positions and few and Rows(descriptor, layouts["d_input"]).is_contiguous(0)):
        return False
    return columns == 1 or Rows(descriptor, layouts["d_output"]).strides[0] == (1,)


def scatters(descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, fold: SegmentFold, of_input: bool) -> bool:
    """The same after a fold over ids in order. Its positions must be rows ``of_input``, not of the order of ids; those of single elements are."""
    if not few_win(descriptor, layouts, gradient, fold.order.index):
        return False
    return narrow_plan(descriptor, fold) is not None if descriptor.embedding_dim == 1 else of_input and not fold.guarded


def store_at_winners(descriptor: SegmentDescriptor, layouts: dict[str, Layout], output: str, cleared: bool) -> list[Step]:
    """Stores zeros, unless the output is ``cleared``, and gradients at the positions that have been folded.

    Zeros are not stored before positions are found: they would be on their way from the level 2 cache to memory while rows are read.
    """
    value, segments, columns = descriptor.element, descriptor.num_segments, descriptor.embedding_dim
    spec, source_row = kernel_spec("scatter_to_winners", value=value), layouts["d_output"].strides[0]
    arguments = {
        "source": "d_output", "folded": "folded", "output": output, "rows": descriptor.num_inputs, "columns": columns, "segments": segments,
        "source_row": source_row,
    }  # fmt: skip
    store = Launch(spec, Tiling.of_ids(segments * columns).launch, arguments)
    return [store] if cleared else [fill_elements(output, descriptor.num_inputs * columns, value), store]
