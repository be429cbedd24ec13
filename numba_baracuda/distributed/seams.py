"""Segments whose ids ascend along the rows of all ranks: only those on the seams between ranks have rows on several."""

from __future__ import annotations

from typing import Any

from ..algebra import state_of
from ..arrays import allocation, arrays
from ..core.dtypes import BY_NAME
from ..core.op import Recipe
from ..plans import plan
from ..segment import shards
from .communicator import part
from .segments import Lists, Rows, adds, left

#: bytes of the ids and counts that a rank sends, in front of its states
_ENTRIES = 32


def joined(rows: Rows) -> tuple[Lists, Any]:
    """Of the segments that this rank has rows of, states and counts of the rows of all ranks; and [2]: the first segment that it owns, and their end.

    A rank sends id, count and states of its first and of its last segment in one gather, and merges those of all ranks that have the id of one of its
    own.
    """
    comm, problem, op, ids = rows.comm, rows.problem, rows.op, rows.views["segment_ids"]
    states, counts = left(rows, problem.num_segments, rows.fold.counted or not adds(rows.fold))
    monoid, width = state_of(rows.fold.monoid or "sum"), 0 if states is None else rows.width
    kind = "f32" if states is None else arrays.view(states, op.name, "states").element
    used = _ENTRIES + 2 * width * BY_NAME[kind].itemsize
    nbytes = -(-used // 8) * 8
    packed = rows.empty((nbytes,), "u8")
    own = {"states": states, "counts": counts}
    sent = {"entries": allocation.as_element(packed[:_ENTRIES], "i64"), "sent": allocation.as_element(packed[_ENTRIES:used], kind)}

    def views(given: dict[str, Any]) -> list[Any]:
        return [arrays.view(each, op.name, name) for name, each in given.items() if each is not None]

    def take() -> Recipe:
        return shards.take(problem, ids, kind, width, counts is not None)

    inputs = [ids, *views(own)]
    plan.queue(op.name, take, [*inputs, *views(sent)], rows.stream, len(inputs), key=("take", problem, kind, width))
    every, owned = comm.all_gather(packed, rows.stream).wait().reshape(-1), rows.empty((2,), "i64")
    read = {"entries": allocation.as_element(every, "i64"), "gathered": allocation.as_element(every[_ENTRIES:], kind)}

    def merge() -> Recipe:
        return shards.merge(problem, monoid, width, counts is not None, comm.rank, comm.size, nbytes, BY_NAME[kind].itemsize)

    key = "merge", problem, monoid, width, comm.rank, comm.size
    plan.queue(op.name, merge, views(read | own | {"owned": owned}), rows.stream, len(read), updated=True, key=key)
    states, counts = (None if each is None else each.reshape(1, -1) for each in (states, counts))
    return Lists(states, counts, 1, problem.num_segments, problem.num_segments), owned


def shared(rows: Rows, y: Any, owned: Any, sharded: bool) -> Any:
    """The results of all segments, or of this rank's part of them, from the rows of y that each rank owns: their bytes are added to zeros."""
    comm, segments, name = rows.comm, rows.problem.num_segments, rows.op.name
    view = arrays.view(y, name, "output")
    plan.queue(name, lambda: shards.clear(view), [arrays.view(owned, name, "owned"), view], rows.stream, updated=True, key="clear")
    flat = y.reshape(segments, -1)
    words = "i32" if flat.shape[1] * BY_NAME[view.element].itemsize % 4 == 0 else "u8"
    mine = allocation.as_element(flat, words)
    if not sharded:
        comm.all_reduce(mine, rows.stream).wait()
        return y
    first, end = part(name, comm, segments)
    most = -(-segments // comm.size)
    padded = rows.empty((comm.size * most, mine.shape[1]), words)
    padded[:segments], padded[segments:] = mine, 0
    own = comm.reduce_scatter(padded.reshape(comm.size, most, -1), rows.stream).wait()
    return allocation.as_element(own, view.element)[: end - first].reshape(end - first, *rows.trailing)
