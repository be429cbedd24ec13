"""A :class:`SegmentIndex` as a group of tensors."""

from __future__ import annotations

from typing import Any

from ..arrays import arrays
from ..arrays.views import View
from ..segment.descriptor import OrderedIds

#: what ops read of an index besides the ids
IDS = ("sorted_ids", "permutation", "counts")


class IndexTensors(OrderedIds):
    """The tensors of an index, which ops take for it."""

    def __init__(self, segment_ids: Any, sorted_ids: Any, permutation: Any, counts: Any) -> None:
        self.segment_ids, self.sorted_ids, self.permutation, self.counts = segment_ids, sorted_ids, permutation, counts
        self.descriptor_form = "sorted" if permutation is None else "permuted"

    def view_of(self, name: str) -> View:
        """One of the tensors, as plans read it."""
        return arrays.view(getattr(self, name), "SegmentIndex", name)


def parts_of(ids: Any) -> tuple[Any, ...]:
    """Ids, or an index, as the arguments of a schema."""
    return tuple(getattr(ids, name) for name in ("segment_ids", *IDS)) if isinstance(ids, OrderedIds) else (ids, *[None] * len(IDS))


def index_of(segment_ids: Any, *parts: Any) -> Any:
    """Ids, or an index whose number of segments is to be set, of the arguments of a schema."""
    return segment_ids if parts[0] is None else IndexTensors(segment_ids, *parts)
