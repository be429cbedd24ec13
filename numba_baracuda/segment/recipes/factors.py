"""The fold of a gradient of products, for ids in any order: by atomics on integers, which give the same bits in every order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...algebra.gradients import Gradient
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Slot, Step, Target
from ...core.policy import constants, tuned
from ..policy import FactorRows
from ..policy_of import sampled_rows, scatter_rows
from ..tiling import Tiling
from .common import Rows, fill_rows, ids_step, kernel_spec, over_rows, scratch

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def factors_pay(descriptor: SegmentDescriptor, gradient: Gradient) -> bool:
    """Whether a guarded fold of products is made without a sort: for narrow rows of factors that fit in float32."""
    narrow = descriptor.row_size <= tuned(FactorRows()).max_row_bytes
    return gradient.fold == "scaled_prod" and BY_NAME[descriptor.element].accumulator == "f32" and narrow and not descriptor.indexed


def products(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, guard: str, name: str
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """Makes ``name`` [segments, columns, 2], p and q of the gradient, where the guard says so; and its slots, without that of ``guard``."""
    segments, columns, policy = descriptor.num_segments, descriptor.embedding_dim, scatter_rows("factor")
    pairs = replace(descriptor, embedding_dim=2 * columns, element="i64")
    blank = Rows(pairs, scratch(pairs, Layout((segments, 2 * columns), (2 * columns, 1))))
    rows = Rows(descriptor, layouts["input"], layouts["input"], scratch(descriptor, layouts["input"]))
    fill = fill_rows(blank, segments, {"guard": guard, "output": "sums", "low": 0, "fill": 0}, "i64", guarded=True)
    arguments = {
        "input": "input", "other": NULL, "ids": "segment_ids", "pivots": NULL, "guard": guard, "output": "sums", "low": 0, "high": segments,
        "crowd": policy.crowd_rows, "ids_step": ids_step(layouts),
    }  # fmt: skip
    scatter = over_rows(
        "scatter_rows", rows, ("input", "other", "output"), descriptor.num_inputs, policy.items_per_thread, arguments, policy,
        target.multiprocessors, update="factor", value=descriptor.element, index=descriptor.index, about="", pairs="", guarded=True,
        sampled=sampled_rows(descriptor.num_inputs, descriptor.row_size, "factor", target.multiprocessors), **constants(policy),
    )  # fmt: skip
    elements = segments * columns
    given = {"sums": "sums", "guard": guard, "folded": name, "elements": elements, "terms": descriptor.num_inputs}
    finish = Launch(kernel_spec("finish_factors"), Tiling.of_counted(elements).launch, given)
    return [fill, scatter, finish], [Slot("sums", "i64", 2 * elements), Slot(name, "f32", 2 * elements)]
