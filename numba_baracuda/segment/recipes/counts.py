"""The rows of each segment, and where segments begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import BY_NAME
from ...core.op import FRESH_BYTES, Clear, Launch, Layout, Op, Slot, Step, Target
from ...core.policy import constants, tuned
from ..policy import BoundShortSegments, CountFewIds, CountIds
from ..policy_of import pass_bytes, sampled_rows
from ..tiling import Tiling, bounded_launch, counted_launch, few_counted_launch
from .common import ids_step, kernel_spec
from .passes import passes

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


def count(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> tuple[str, list[Step], list[Slot]]:
    """Makes ``"counts"`` [segments], the rows of each segment, unless an index or the caller brings them; of ids in order, ``"offsets"``, whose
    differences they are. Returns which.

    Ids in any order are counted in shared memory where the counts fit there, in a few ranges, and a segment has enough rows in the mean.
    """
    if descriptor.indexed or "counts" in layouts:
        return "counts", [], []
    n, segments, index, count = descriptor.num_inputs, descriptor.num_segments, descriptor.index, descriptor.count_type
    if descriptor.in_order(op):
        return "offsets", [bounds(descriptor, "segment_ids", index, ids_step(layouts))], [Slot("offsets", count, segments + 1)]
    slots = [Slot("counts", count, segments)]
    clear = Clear("counts", fresh=slots[0].nbytes <= FRESH_BYTES)
    arguments: dict[str, Any] = {"ids": "segment_ids", "counts": "counts", "rows": n, "ids_step": ids_step(layouts)}
    few, usual = tuned(CountFewIds()), tuned(CountIds())
    if 0 < 4 * segments <= few.max_ranges * few.shared_bytes_per_block and n >= few.min_rows_per_segment * segments:
        spec = kernel_spec("count_few_ids", few.threads_per_block, index=index, count=count, **constants(few))
        launch, width, ranges = few_counted_launch(few, n, segments, target.multiprocessors)
        return "counts", [clear, Launch(spec, launch, arguments | {"segments": segments, "width": width, "ranges": ranges})], slots
    made, steps, room = passes(descriptor, layouts, target, BY_NAME[count].itemsize, pass_bytes("add", BY_NAME[count].itemsize, 1))
    sampled = sampled_rows(n, BY_NAME[index].itemsize, "add", target.multiprocessors)
    blocks, launch = usual.min_blocks_per_multiprocessor, counted_launch(n, target.multiprocessors)
    for each in made:
        given = arguments | {"guard": each.guard, "low": each.low, "high": each.high}
        common: dict[str, Any] = {"guarded": each.guarded, "sampled": sampled, "shares": not each.by_range}
        steps.append(Launch(kernel_spec("count_ids", min_blocks=blocks, index=index, count=count, **common), launch, given))
    return "counts", [clear, *steps], [*slots, *room]


def bounds(descriptor: SegmentDescriptor, ids: str, index: str, step: int) -> Launch:
    """Makes ``offsets`` from ids in order, of type ``index``, with ``step`` elements from one to the next: by one pass where segments are short."""
    rows, segments, policy, key = descriptor.num_inputs, descriptor.num_segments, tuned(BoundShortSegments()), BY_NAME[index]
    common: dict[str, Any] = {"key": index, "count": descriptor.count_type}
    arguments = {"ids": ids, "offsets": "offsets", "rows": rows, "segments": segments, "ids_step": step}
    read = min(policy.access_bytes, abs(step) * key.itemsize)
    searches = rows * read > policy.max_pass_bytes and rows * read > segments * policy.max_id_bytes
    if searches or segments >= key.limits[1]:
        return Launch(kernel_spec("bound_segments", **common), Tiling.of_ids(segments + 1).launch, arguments)
    launch, gap_blocks = bounded_launch(policy.items_per_thread, index, rows, segments)
    return Launch(kernel_spec("bound_short_segments", **common, **constants(policy)), launch, {**arguments, "gap_blocks": gap_blocks})


def counts_of(descriptor: SegmentDescriptor) -> Launch:
    """Makes ``counts`` from ``offsets``."""
    segments = descriptor.num_segments
    spec = kernel_spec("count_bounded", count=descriptor.count_type)
    return Launch(spec, Tiling.of_ids(segments).launch, {"offsets": "offsets", "counts": "counts", "segments": segments})
