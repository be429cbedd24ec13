"""Atomic sums in the output."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...dtypes import BY_NAME
from ...op import Layout, Op, Recipe, Slot, Step, Target
from ..tiling import SUMS, ceil_div
from .common import Rows, check_slots, checks, count, ids_step, only_checks, over_rows

if TYPE_CHECKING:
    from ..family import SegmentDescriptor

#: share of L2 that the rows which one pass adds to may fill, rows too short to be left out in whole sectors, and most passes
L2_SHARE, SECTOR, PASSES = 0.6, 32, 4


def _passes(descriptor: SegmentDescriptor, target: Target) -> int:
    """How often the ids are walked, each time for a range of segments that fits into L2: an atomic there is much faster than one that misses."""
    row_size = descriptor.embedding_dim * BY_NAME[descriptor.element].itemsize
    wanted = ceil_div(descriptor.num_segments * row_size, int(L2_SHARE * target.l2_bytes))
    return min(wanted, PASSES) if row_size >= SECTOR else 1


def sorting_pays(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why atomics are not for a problem of many wide rows: sorting the ids and folding takes no longer, whatever the ids, and is deterministic.

    By microseconds on an H200: 0.48 an MB added by atomics to ids drawn uniformly (seven times as many where ids crowd) against 0.27 an MB folded,
    and 50 + 62 a million ids sorted.
    """
    rows = descriptor.num_inputs
    megabytes = rows * descriptor.embedding_dim * BY_NAME[descriptor.element].itemsize / 1e6
    return "is slower than sorting for so many rows of this width" if (0.48 - 0.27) * megabytes > 50 + 62e-6 * rows else None


def scatter(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Pass by pass zeros, still in L2 when the atomic sums begin; then counts where the op or ``empty`` asks for them."""
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not segments * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    value, index, empty = descriptor.element, descriptor.index, descriptor.empty_value(op)
    both, out = Rows(descriptor, layouts["input"], layouts["output"]), Rows(descriptor, layouts["output"])
    state = BY_NAME[value].accumulator
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    fill = f"*{value} i64 i64 i64 i64 {state} i64 {out.tuples} {out.tuples}"
    add = f"*{value} *{index} *{value} i64 i64 i64 i64 i64 i64 i64 i64 {both.tuples} {both.tuples} {both.tuples}"
    passes = _passes(descriptor, target)
    bounds = [segments * k // passes for k in range(passes + 1)]
    for low, high in itertools.pairwise(bounds):
        scalars = (low, high, ids_step(layouts))
        steps.append(over_rows("fill_rows", out, high - low, 1, fill, ("output",), (low, 0.0), value=value))
        steps.append(over_rows("scatter_rows", both, n, SUMS, add, ("input", "segment_ids", "output"), scalars, value=value, index=index))
    slots = list(check_slots(descriptor))
    if op.traits["counts"] or empty != 0.0:
        held = descriptor.count_type
        slots.append(Slot("counts", held, segments))
        steps += count(descriptor, layouts)
        signature = f"*{value} *{held} i64 i64 i64 {state} i64 {out.tuples} {out.tuples}"
        steps.append(
            over_rows(
                "finish_rows", out, segments, 1, signature, ("output", "counts"), (empty,),
                monoid=op.traits["monoid"].name, value=value, count=held,
            )
        )  # fmt: skip
    return Recipe(tuple(steps), tuple(slots))
