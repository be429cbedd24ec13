"""Ids that are used more than once: they are sorted and counted a single time, for every op of the family, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import arrays, streams
from ..arrays.views import View
from ..core import html
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Layout, Recipe
from ..core.options import flag, whole
from ..plans import plan
from ..runtime import driver
from .descriptor import OrderedIds, SegmentDescriptor
from .index_calls import ascend, make
from .recipes.common import FAULT, NO_FAULT, faults

_WANTS = "int32 or int64"
#: the arrays besides the ids, in the order in which ops of torch give them
PARTS = ("sorted_ids", "permutation", "offsets", "counts")


class SegmentIndex(OrderedIds):
    """Segment ids put in order, bounded and counted once; accepted wherever ``segment_ids`` is, and ``num_segments`` may then be omitted.

    ``segment_ids`` [N] int32 or int64, in any order, strided or not; ``num_segments`` S. ``is_sorted`` says whether they ascend; None, the default,
    finds out by a pass that stops where they descend, for which alone the constructor waits for the device. Where they do not ascend as was said,
    what is kept is unspecified, but nothing outside the arrays is touched. Ids outside [0, S) belong to no segment. What is kept, as arrays of the
    caller's kind, which are not to be changed:

    ``sorted_ids`` [N]: the ids in order, those out of range as S, or as −1 in front where ids ascend; int32 where S allows. ``permutation`` [N]: row
    k in order is row ``permutation[k]``, equal ids in their order; None where ids ascend. ``offsets`` [S + 1]: segment s is ``offsets[s]`` to
    ``offsets[s + 1]`` − 1 in that order. ``counts`` [S]: its rows. All by a stable radix sort of the bits that S has, and a search for each segment,
    or a pass over the ids where segments are short.

    In a function that torch compiles, None sorts, which no host waits for.

    A notebook shows a histogram of the segments' lengths, for which it reads ``counts``: that waits for the device.

    Work is queued on ``stream``, by default the framework's current one; an op on another stream must be ordered behind it. An index can be copied
    and pickled where its arrays can. Raises ``InvalidProblem`` for what are no ids or no number of segments.
    """

    #: set by :mod:`numba_baracuda.torch`, in whose compiled functions an index is made by an op: whether such a function is being traced, and the op
    tracing: Callable[[], bool] = staticmethod(lambda: False)
    traced: Callable[..., tuple[Any, ...]]

    def __init__(self, segment_ids: Any, num_segments: int, is_sorted: bool | None = None, *, stream: Any = None) -> None:
        if SegmentIndex.tracing():
            self._trace(
                segment_ids, segment_ids.shape[0], num_segments, bool(is_sorted), SegmentIndex.traced(segment_ids, num_segments, bool(is_sorted))
            )
            return
        ids = _numbers(segment_ids, "SegmentIndex", "segment_ids")
        segments, rows = whole("SegmentIndex", "num_segments", num_segments, 0), ids.shape[0]
        if is_sorted is not None:
            is_sorted = flag("SegmentIndex", "is_sorted", is_sorted, "True, False or None")
        if is_sorted is None:
            is_sorted = rows == 0 or _ascend(ids, segments, stream)
        self._describe(rows, segments, is_sorted, make("keep" if is_sorted else "sort", ids, segments, stream))
        self._views["segment_ids"] = ids.named("segment_ids")  # its producer has been waited for

    @classmethod
    def from_offsets(cls, offsets: Any, num_inputs: int | None = None, *, check: bool = False, stream: Any = None) -> SegmentIndex:
        """The index of rows that lie segment by segment, from the S + 1 rows where segments begin and the last one ends (CSR).

        ``offsets`` int32 or int64, ascending. ``num_inputs`` is the number of rows, by default the last offset, which is read from the device: that
        waits. Rows before the first offset or from the last one on belong to no segment.

        Where offsets descend, which segment a row belongs to is unspecified, but each belongs to one or none, those of a segment lie together, and
        nothing outside the arrays is touched. ``check=True`` waits for the device and raises ``InvalidProblem`` at the first offset that is less
        than the one before, or outside [0, num_inputs].
        """
        where = "SegmentIndex.from_offsets"
        if SegmentIndex.tracing():
            self = cls.__new__(cls)
            self._trace(None, num_inputs, offsets.shape[0] - 1, True, SegmentIndex.traced(offsets, num_inputs, None))
            return self
        ends = _numbers(offsets, where, "offsets")
        ends.name = "bounds"
        if not ends.shape[0]:
            raise InvalidProblem(f"{where}: offsets has shape [0], wants one more than there are segments")
        check, handle = flag(where, "check", check), streams.stream_handle(stream, ends, where)
        streams.follow([ends], handle, ends.device)
        rows = whole(where, "num_inputs", _last(ends, handle) if num_inputs is None else num_inputs, 0)
        if check:
            _check_offsets(where, ends, rows, handle)
        self = cls.__new__(cls)
        self._describe(rows, ends.shape[0] - 1, True, make("expand", ends, rows, stream))
        ids = self._views["sorted_ids"]
        self._views["segment_ids"] = ids.named("segment_ids")
        return self

    def _describe(self, rows: int, segments: int, is_sorted: bool, made: dict[str, Any]) -> None:
        self.num_inputs, self.num_segments, self.is_sorted = rows, segments, is_sorted
        self.descriptor_form = "sorted" if is_sorted else "permuted"
        self._views = {name: arrays.view(array, "SegmentIndex", name) for name, array in made.items()}

    def _trace(self, ids: Any, rows: Any, segments: Any, is_sorted: bool, made: tuple[Any, ...]) -> None:
        """Keeps tensors that a compiler has made, whose addresses are not known yet."""
        self.num_inputs, self.num_segments, self.is_sorted = rows, segments, is_sorted
        self.descriptor_form = "sorted" if is_sorted else "permuted"
        named = dict(zip(PARTS, made, strict=True)) | {"segment_ids": made[0] if ids is None else ids}
        unknown: Any = None
        self._views = {name: View(0, (), (), unknown, tensor, name) for name, tensor in named.items()}

    def __getstate__(self) -> dict[str, Any]:
        """The arrays, without their addresses: a copy has others."""
        return {**self.__dict__, "_views": {name: view.owner for name, view in self._views.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._views = {name: arrays.view(array, "SegmentIndex", name) for name, array in state["_views"].items()}

    @property
    def segment_ids(self) -> Any:
        """The ids as they were given; those of offsets, in order."""
        return self._views["segment_ids"].owner

    @property
    def sorted_ids(self) -> Any:
        """[N], the ids in order."""
        return self._views["sorted_ids"].owner

    @property
    def permutation(self) -> Any:
        """[N], the row that comes k-th in order; None where ids ascend."""
        return None if self.is_sorted else self._views["permutation"].owner

    @property
    def offsets(self) -> Any:
        """[S + 1], where segments begin and end in order."""
        return self._views["offsets"].owner

    @property
    def counts(self) -> Any:
        """[S], the rows of each segment."""
        return self._views["counts"].owner

    def __repr__(self) -> str:
        return f"SegmentIndex({self.num_inputs} rows in {self.num_segments} segments, {self.descriptor_form})"

    def _repr_html_(self) -> str:
        counts = _read(self._views["counts"], "showing a SegmentIndex")
        bins = np.bincount(np.frexp(counts)[1])  # a length of 0, of 1, of 2 to 3, of 4 to 7 …
        labels = ["0", "1", *(f"{1 << k} to {(2 << k) - 1}" for k in range(1, len(bins)))][: len(bins)]
        facts = [("num_inputs", f"{self.num_inputs:,}"), ("num_segments", f"{self.num_segments:,}"), ("is_sorted", self.is_sorted)]
        if counts.size:
            facts.append(("rows a segment", f"{counts.min():,} to {counts.max():,}, {counts.mean():,.1f} in the mean"))
        return html.table((), facts, "SegmentIndex") + html.histogram(bins.tolist(), labels, "segments by their number of rows")

    def view_of(self, name: str) -> View:
        """One of the arrays, as plans read it."""
        view = self._views[name]
        if view.type is None:  # a compiled function has made it
            view = self._views[name] = arrays.view(view.owner, "SegmentIndex", name)
        return view


def _numbers(given: Any, where: str, name: str) -> View:
    """Ids or offsets as a view."""
    seen = arrays.view(given, where, name, _WANTS)
    if seen.element not in ("i32", "i64"):
        raise InvalidProblem(f"{where}: {name} is {BY_NAME[seen.element].numpy_name}, wants {_WANTS}")
    if len(seen.shape) != 1:
        raise InvalidProblem(f"{where}: {name} has shape {list(seen.shape)}, wants one axis")
    return seen.named(name, seen.producer)


def _ascend(ids: View, segments: int, stream: Any) -> bool:
    """Whether ids are in order, which waits for the device."""
    try:
        return ascend(ids, segments, stream)
    except Unsupported as error:
        raise Unsupported(f"SegmentIndex: finding out whether ids ascend waits for the device; is_sorted= tells it ({error})") from error


def _check_offsets(where: str, ends: View, rows: int, handle: int) -> None:
    """Raises for the first offset that is out of order or out of range, which waits for the device."""
    descriptor = SegmentDescriptor(where, ends.shape[0], 1, rows + 1, index=ends.element)

    def judge(fault: Sequence[int]) -> None:
        outside, descent = fault
        if descent < NO_FAULT:
            raise InvalidProblem(f"{where}: offsets[{descent}] is less than offsets[{descent - 1}], wants offsets in ascending order")
        if outside < NO_FAULT:
            raise InvalidProblem(f"{where}: offsets[{outside}] is outside [0, {rows}], wants every offset inside")

    offsets, layout = ends.named("segment_ids"), Layout(ends.shape, ends.strides, ends.ptr % 16)
    plan.queue(where, Recipe(tuple(faults(descriptor, layout, True, True, judge)), (FAULT,)), [offsets], handle)


def _read(array: View, reason: str) -> np.ndarray[Any, Any]:
    """A contiguous array as NumPy's, once the device has it."""
    if array.device < 0:
        return np.asarray(array.owner)
    handle = streams.stream_handle(None, array, reason)
    return np.array(driver.read_back(array.ptr, array.shape[0], handle, array.device, array.itemsize, reason), np.int64)


def _last(bounds: View, handle: int) -> int:
    """The last offset, once the device has it."""
    if bounds.device < 0:
        return int(bounds.owner[-1])
    address = bounds.ptr + (bounds.shape[0] - 1) * bounds.strides[0] * bounds.itemsize
    return driver.read_back(address, 1, handle, bounds.device, bounds.itemsize)[0]
