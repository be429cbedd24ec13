"""How a :class:`..index.SegmentIndex` is made: by ops that only it calls, so the registry does not list them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.op import Launch, Layout, Op, Operand, Recipe, Slot, Target, Variant
from ..core.vocabulary import OpCategory
from ..plans.calls import Calls, Problem, Results
from ..plans.preference import PlanPreference
from .descriptor import SegmentDescriptor
from .recipes.common import FAULT, NO_FAULT, faults, kernel_spec
from .recipes.counts import bounds, counts_of
from .recipes.order import keys, scratch_slot, sort
from .tiling import Tiling

_IDS = Operand("segment_ids", ("num_inputs",), index=True)
_BOUNDS = Operand("bounds", ("num_bounds",), index=True)
#: what is made, in the order of the results, and the type of each as a field of the descriptor
_TYPES = {"permutation": "row_index_type", "sorted_ids": "key_type", "offsets": "count_type", "counts": "count_type"}
_PERMUTATION, *_ARRAYS = (
    Operand(name, (axis,), output=True, element="i32 i64")
    for name, axis in (("permutation", "num_inputs"), ("sorted_ids", "num_inputs"), ("offsets", "num_bounds"), ("counts", "num_segments"))
)


@dataclass(frozen=True, eq=False)
class IndexDescriptor(SegmentDescriptor):
    """Ids or offsets, and the op that is to be done with them."""

    step: str = ""

    @property
    def num_bounds(self) -> int:
        """Where each segment begins, and the last one ends."""
        return self.num_segments + 1

    def find_op(self) -> Op:
        """The op of that name."""
        return _OPS[self.step]


class _Found(threading.local):
    """What a thread has found out last."""

    ascending = True

    def judge(self, fault: Sequence[int]) -> None:
        self.ascending = fault[1] >= NO_FAULT


_found = _Found()


def _look(op: Op, descriptor: IndexDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    return Recipe(tuple(faults(descriptor, layouts["segment_ids"], False, True, _found.judge, sizeless=True)), (FAULT,))


def _keep(op: Op, descriptor: IndexDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    return Recipe((keys(descriptor, layouts, "", ordered=True, to="sorted_ids"), *_bounds(descriptor)))


def _sort(op: Op, descriptor: IndexDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    rows, key, row_index = descriptor.num_inputs, descriptor.key_type, descriptor.row_index_type
    if not rows:
        return _keep(op, descriptor, layouts, target)
    by_id = sort(descriptor, "row_indices", BY_NAME[row_index].itemsize, "permutation")
    slots = Slot("keys", key, rows), Slot("row_indices", row_index, rows), scratch_slot(by_id, target)
    return Recipe((keys(descriptor, layouts, row_index), by_id, *_bounds(descriptor)), slots)


def _expand(op: Op, descriptor: IndexDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    rows, segments, key = descriptor.num_inputs, descriptor.num_segments, descriptor.key_type
    spec = kernel_spec("expand_offsets", offset=descriptor.index, index=key)
    arguments = {"offsets": "bounds", "ids": "sorted_ids", "rows": rows, "segments": segments, "offsets_step": layouts["bounds"].strides[0]}
    return Recipe((Launch(spec, Tiling.of_ids(rows).launch, arguments), *_bounds(descriptor)))


def _bounds(descriptor: IndexDescriptor) -> tuple[Launch, Launch]:
    return bounds(descriptor, "sorted_ids", descriptor.key_type, 1), counts_of(descriptor)


def _op(name: str, formula: str, given: Operand, made: Sequence[Operand], recipe: Callable[[Op, Any, dict[str, Layout], Target], Recipe]) -> Op:
    category, variants, traits = OpCategory.INDEXING, (Variant("index", True, recipe),), {"results": ()}
    return Op(name, category, category, "segment", formula, (given, *made), variants, ("f32",), ("i32", "i64"), traits=traits)


_OPS = {
    "look": _op("SegmentIndex", "whether ids ascend", _IDS, (), _look),
    "keep": _op("SegmentIndex", "ids that ascend, bounded and counted", _IDS, _ARRAYS, _keep),
    "sort": _op("SegmentIndex", "ids in any order, sorted, bounded and counted", _IDS, (_PERMUTATION, *_ARRAYS), _sort),
    "expand": _op("SegmentIndex.from_offsets", "ids from offsets", _BOUNDS, _ARRAYS, _expand),
}


_OUTPUTS = {step: [operand.name for operand in op.operands if operand.output] for step, op in _OPS.items()}


def _results(descriptor: IndexDescriptor, views: list[View], step: str) -> Results:
    outputs = [operand for operand in _OPS[step].operands if operand.output]
    return tuple(((getattr(descriptor, operand.axes[0]),), getattr(descriptor, _TYPES[operand.name])) for operand in outputs)


def _of_ids(views: list[View], sizes: tuple[int, ...], step: str) -> Problem:
    ids, (segments,) = views[0], sizes
    return IndexDescriptor(_OPS[step].name, ids.shape[0], 1, segments, index=ids.element, step=step), PlanPreference()


def _of_offsets(views: list[View], sizes: tuple[int, ...], step: str) -> Problem:
    ends, (rows,) = views[0], sizes
    return IndexDescriptor(_OPS[step].name, rows, 1, ends.shape[0] - 1, index=ends.element, step=step), PlanPreference()


_CALLS = {step: Calls(op, [op.operands[0].name], _OUTPUTS[step], _of_offsets if step == "expand" else _of_ids, _results) for step, op in _OPS.items()}


def ascend(ids: View, segments: int, stream: Any) -> bool:
    """Whether ids are in order, which waits for the device."""
    _CALLS["look"]((ids,), (segments,), None, "look", None, stream, None)
    return _found.ascending


def make(step: str, given: View, size: int, stream: Any) -> dict[str, Any]:
    """The arrays of an index, by name.

    ``step``: ``"keep"`` or ``"sort"`` of ids in so many segments, or ``"expand"`` of the offsets of so many rows.
    """
    made = _CALLS[step]((given,), (size,), None, step, None, stream, None)
    return dict(zip(_OUTPUTS[step], made, strict=True))
