"""Segments whose ids ascend along the rows of all ranks: only those on the seams between ranks have rows on several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..algebra import state_of
from ..arrays import allocation, arrays
from .communicator import part
from .segments import Lists, Rows, finished, left


class Owned(NamedTuple):
    """The segments from ``first`` to before ``end``, as numbers on the device: each belongs to the first rank that has rows of it, and each without
    rows to the first rank with rows of a later one, or to the last rank.
    """

    first: Any
    end: Any


def joined(rows: Rows) -> tuple[Lists, Owned]:
    """Of the segments that this rank has rows of, states and counts of the rows of all ranks; and the segments that it owns.

    A rank sends id, count and state of its first and of its last segment, and merges those of all ranks that have the id of one of its own. A segment
    more, behind the others and without rows, stands for ids out of range.
    """
    comm, segments, ids = rows.comm, rows.problem.num_segments, rows.views["segment_ids"].owner
    states, counts = left(rows, segments + 1, counted=True)
    entries = rows.empty((2, 2), "i64")
    entries[...] = -1
    for k in range(2 * bool(rows.problem.num_inputs)):
        entries[k, 0] = ids[-k]
    own = entries[:, 0]
    inside = (own >= 0) & (own < segments)
    at = own * inside + segments * ~inside
    entries[:, 1] = counts[at] * inside
    entries[1, 1] *= own[0] != own[1]
    pending = [comm.all_gather(entries, rows.stream)]
    if states is not None:
        pending.append(comm.all_gather(states.reshape(segments + 1, -1)[at], rows.stream))
    every, *gathered = (each.wait().reshape(2 * comm.size, -1) for each in pending)
    present = (own.reshape(2, 1) == every[:, 0]) * every[:, 1]
    counts[at] = present.sum(1)
    if states is not None:
        seam = replace(rows, fold=rows.fold._replace(monoid=state_of(rows.fold.monoid)))
        element = arrays.view(states, rows.op.name, "states").element
        for k in range(2):
            merged = finished(seam, Lists(gathered[0], present[k].reshape(-1, 1), 2 * comm.size, 1, 1), element)
            states.reshape(segments + 1, -1)[at[k : k + 1]] = merged.reshape(1, -1)
        states = states.reshape(1, -1)
    ends = (every[1::2, 0] + 1).clip(0, segments)
    owned = Owned(ends[: comm.rank].max() if comm.rank else 0, ends[: comm.rank + 1].max() if comm.rank < comm.size - 1 else segments)
    return Lists(states, counts.reshape(1, -1), 1, segments, segments + 1), owned


def shared(rows: Rows, y: Any, owned: Owned, sharded: bool) -> Any:
    """The results of all segments, or of this rank's part of them, from the rows of y that each rank owns: their bytes are added to zeros."""
    comm, segments, element = rows.comm, rows.problem.num_segments, arrays.view(y, rows.op.name, "output").element
    ones = rows.empty((segments,), "i64")
    ones[...] = 1
    at = ones.cumsum(0) - 1
    mine = allocation.as_element(y.reshape(segments, -1), "u8")
    mine *= ((at >= owned.first) & (at < owned.end)).reshape(-1, 1)
    if not sharded:
        comm.all_reduce(mine, rows.stream).wait()
        return y
    first, end = part(rows.op.name, comm, segments)
    most = -(-segments // comm.size)
    padded = rows.empty((comm.size * most, mine.shape[1]), "u8")
    padded[:segments], padded[segments:] = mine, 0
    own = comm.reduce_scatter(padded.reshape(comm.size, most, -1), rows.stream).wait()
    return allocation.as_element(own, element)[: end - first].reshape(end - first, *rows.trailing)
