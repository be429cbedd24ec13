"""A :class:`SegmentIndex` that is made inside of a compiled function: an op whose results are the tensors of the index."""

from __future__ import annotations

from typing import Any

import torch

from ..core.errors import InvalidProblem
from ..segment.index import PARTS, SegmentIndex
from .operators import define

_SCHEMA = "segment_index(Tensor given, SymInt size, bool? is_sorted) -> (Tensor sorted_ids, Tensor permutation, Tensor offsets, Tensor counts)"
_I32 = 1 << 31


def _run(given: Any, size: int, is_sorted: bool | None) -> tuple[Any, ...]:
    """The index of ids in ``size`` segments, or with None of the offsets of ``size`` rows; an empty permutation where ids ascend."""
    index = SegmentIndex.from_offsets(given, size) if is_sorted is None else SegmentIndex(given, size, is_sorted)
    return tuple(
        given.new_empty(0, dtype=index.counts.dtype) if name == "permutation" and index.is_sorted else getattr(index, name) for name in PARTS
    )


def _fake(given: Any, size: Any, is_sorted: bool | None) -> tuple[Any, ...]:
    rows, segments = (size, given.shape[0] - 1) if is_sorted is None else (given.shape[0], size)
    key, count = (torch.int32 if extent < limit else torch.int64 for extent, limit in ((segments, _I32 - 1), (rows, _I32)))
    extents = (rows, key), (0 if is_sorted in (None, True) else rows, count), (segments + 1, count), (segments, count)
    return tuple(given.new_empty((extent,), dtype=dtype) for extent, dtype in extents)


_overload = define(_SCHEMA, _run, _fake)[0]


def _traced(given: Any, size: Any, is_sorted: bool | None) -> tuple[Any, ...]:
    """What :class:`SegmentIndex` keeps of the op's results."""
    where, name, of = ("SegmentIndex.from_offsets", "offsets", "num_inputs") if is_sorted is None else ("SegmentIndex", "segment_ids", "num_segments")
    if not isinstance(given, torch.Tensor) or given.dtype not in (torch.int32, torch.int64) or given.dim() != 1:
        got = f"{given.dtype} of {given.dim()} axes" if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
        raise InvalidProblem(f"{where}: {name} is {got}, wants a torch tensor of int32 or int64 with one axis")
    if size is None:
        raise InvalidProblem(f"{where}: {of} is None in a compiled function, wants a number, as the device would have to be waited for")
    sorted_ids, permutation, offsets, counts = _overload(given, size, is_sorted)
    return sorted_ids, None if is_sorted is not False else permutation, offsets, counts


SegmentIndex.tracing, SegmentIndex.traced = staticmethod(torch.compiler.is_compiling), staticmethod(_traced)
