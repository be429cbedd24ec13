"""The states of segments whose rows are divided among ranks: what a rank leaves, what ranks exchange, and the results of all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..algebra import SUM, monoid_of
from ..arrays import allocation, arrays
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.op import Op, Recipe
from ..core.registry import function
from ..plans import plan
from ..reduce.shards import States
from ..segment.descriptor import OrderedIds, SegmentDescriptor
from ..segment.shards import Fold, leave
from .axis import layout_of, merged, place, queue_first
from .communicator import Communicator, part


@dataclass(frozen=True)
class Rows:
    """The rows of this rank and the call that they are given to; ``views`` are of what is given, and of the parts of an index.

    ``every`` has the number of rows of each rank.
    """

    op: Op
    problem: SegmentDescriptor
    fold: Fold
    comm: Communicator
    given: dict[str, Any]
    views: dict[str, View]
    every: list[int]
    stream: int

    @property
    def before(self) -> int:
        """Rows of the ranks before this one."""
        return sum(self.every[: self.comm.rank])

    @property
    def trailing(self) -> tuple[int, ...]:
        """The trailing axes."""
        return tuple(self.views[self.op.operands[0].name].shape[1:])

    @property
    def width(self) -> int:
        """Scalars that a segment has of states."""
        return self.problem.embedding_dim * monoid_of(self.fold.monoid).width

    @property
    def ordered_ids(self) -> list[View]:
        """The ids, and what an index has of their order."""
        return [self.views[name] for name in ("segment_ids", "sorted_ids", "permutation") if name in self.views]

    def empty(self, shape: tuple[int, ...], element: str) -> Any:
        """A new array of the kind of the operands."""
        return allocation.empty(self.views["segment_ids"], shape, element, self.stream)

    def sum(self, input: Any, element: str, room: int) -> Any:
        """The sums of this rank's segments, in the dtype of ``input``, and zeros up to ``room``."""
        made, segments = self.empty((room, *input.shape[1:]), element), self.problem.num_segments
        made[segments:] = 0
        run = function("segment_sum" if self.op.traits["ordered"] else "unsorted_segment_sum")
        run(input, self.given["segment_ids"], segments, out=made[:segments])
        return made

    def counts(self, room: int) -> Any:
        """How many rows this rank has of each segment, and zeros up to ``room``."""
        ids, segments = self.given["segment_ids"], self.problem.num_segments
        if isinstance(ids, OrderedIds):
            made = self.empty((room,), "i64")
            made[:segments], made[segments:] = ids.view_of("counts").owner, 0
            return made
        ones = self.empty((self.problem.num_inputs,), "i64")
        ones[...] = 1
        return self.sum(ones, "i64", room)


class Lists(NamedTuple):
    """What ``ranks`` ranks have of ``segments`` neighbours: states [ranks, ≥ segments · width], counts [ranks, ≥ segments], or one of both.

    ``pitch`` segments lie between the beginnings of the lists of two ranks.
    """

    states: Any
    counts: Any
    ranks: int
    segments: int
    pitch: int


def adds(fold: Fold) -> bool:
    """Whether states of several ranks are added up."""
    return not fold.monoid or monoid_of(fold.monoid).combine is SUM.combine


def results_are_sums(rows: Rows) -> bool:
    """Whether the sum of what ranks leave is the result, bit for bit: states are sums of elements, in the result's type, and none counts rows."""
    fold, element = rows.fold, rows.problem.element
    plain = fold.monoid == SUM.name and not fold.counted
    return plain and element == rows.problem.result_of(rows.op) == States(fold.monoid, element, 1).element


def left(rows: Rows, room: int, counted: bool) -> tuple[Any, Any]:
    """The states [room · width] that this rank's rows leave, 0 where a segment has none, and counts [room]; None for what is not asked."""
    fold, problem, counts, states = rows.fold, rows.problem, rows.counts(room) if counted else None, None
    if fold.monoid:
        made = States(fold.monoid, problem.element, room * problem.embedding_dim)
        if adds(fold) and not monoid_of(fold.monoid).lifts and made.element == problem.element:
            return rows.sum(rows.given[fold.over[0]], made.element, room).reshape(-1), counts
        states = rows.empty((made.scalars,), made.element)
        states[...] = 0
        inputs = [*(rows.views[name] for name in fold.over), *rows.ordered_ids]

        def recipe() -> Recipe:
            return leave(rows.op, problem, fold, {each.name: layout_of(each) for each in inputs}, plan.target_of(inputs[0].device))

        outputs = [arrays.view(states, rows.op.name, "states")]
        plan.queue(rows.op.name, recipe, [*inputs, *outputs], rows.stream, len(inputs), updated=True, key=(problem, fold))
        place(states, fold.monoid, made.element, rows.before)
    return states, counts


def exchanged(rows: Rows, sharded: bool) -> Lists:
    """What all ranks have of the segments, or of this rank's part of them."""
    comm, segments, added = rows.comm, rows.problem.num_segments, adds(rows.fold)
    first, end = part(rows.op.name, comm, segments) if sharded else (0, segments)
    padded = -(-segments // comm.size) * comm.size if sharded else segments
    made = left(rows, padded, rows.fold.counted or not added)
    ranks, pitch = (1, padded // comm.size if sharded else padded) if added else (comm.size, padded)

    def collected(each: Any) -> Any:
        if added and sharded:
            return comm.reduce_scatter(each.reshape(comm.size, -1), rows.stream)
        return (comm.all_reduce if added else comm.all_gather)(each, rows.stream)

    pending = [None if each is None else collected(each) for each in made]
    states, counts = (None if each is None else each.wait().reshape(ranks, -1) for each in pending)
    skip = 0 if added else first
    states, counts = states if states is None else states[:, skip * rows.width :], counts if counts is None else counts[:, skip:]
    return Lists(states, counts, ranks, end - first, pitch)


def finished(rows: Rows, lists: Lists, result: str, empty: float = 0) -> Any:
    """The results of the fold for the segments of the lists, merged in the order of ranks: [segments, …], and an axis more if there are several."""
    if lists.ranks == 1 and lists.counts is None and results_are_sums(rows):
        return lists.states[0, : lists.segments * rows.width].reshape(lists.segments, *rows.trailing)
    shape, results, columns = (lists.segments, *rows.trailing), monoid_of(rows.fold.monoid).results, rows.problem.embedding_dim
    y = rows.empty(shape if results == 1 else (*shape, results), result)
    states = States(rows.fold.monoid, rows.problem.element, math.prod(shape))
    counted, pitch = lists.counts is not None, lists.pitch
    merged(
        rows.op.name, lists.states, y, states, shape, result, lists.ranks, rows.stream, lists.counts, correction=rows.problem.correction,
        columns=columns * counted, empty=empty, rank_stride=pitch * rows.width, count_stride=pitch,
    )  # fmt: skip
    return y


def spread(rows: Rows, lists: Lists | None) -> Any:
    """The results for this rank's rows, of the fold's results for the segments, or of their counts alone."""
    op, problem, output = rows.op, rows.problem, rows.op.operands[-1].name
    inputs = [*(rows.views[operand.name] for operand in op.operands[:-2]), *rows.ordered_ids]
    if lists is not None and rows.fold.monoid:
        wide = BY_NAME[problem.element].accumulator
        folded = finished(rows, lists, wide)
        place(folded, rows.fold.monoid, wide, -rows.before, 1)
        inputs.append(arrays.view(folded, op.name, "folded"))
    elif lists is not None:
        counts = rows.empty((lists.segments,), problem.count_type)
        counts[...] = lists.counts[0, : lists.segments]
        inputs.append(arrays.view(counts, op.name, "counts"))
    made = rows.empty((problem.num_inputs, *rows.trailing), problem.element)
    queue_first(op, problem, [*inputs, arrays.view(made, op.name, output)], rows.stream)
    return made
