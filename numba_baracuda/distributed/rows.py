"""Reductions of segments whose rows are divided among ranks: states of each segment, added up or merged in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..arrays import allocation, arrays, streams
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from ..core.op import Op, Recipe, contiguous
from ..core.options import choice
from ..core.registry import OPS, function
from ..plans import plan
from ..plans.signatures import guarded
from ..reduce.shards import States, merge
from ..segment.descriptor import SegmentDescriptor
from ..segment.shards import leave
from .agreement import Call, agree
from .axis import layout_of
from .communicator import communicator, part

_STEMS = ("sum", "mean", "max", "min", "prod", "logsumexp", "norm2", "var", "std")
#: monoids whose states of several ranks are added up
_ADDED = ("sum", "mean")
_RESULTS = ("replicated", "sharded")


def _sums_or_states(op: Op, problem: SegmentDescriptor, input: Any, segment_ids: Any, states: States, padded: int, stream: int) -> Any:
    """The states of this rank's rows; where they are sums of the input's own dtype, by the fastest op for these."""
    if states.monoid in _ADDED and states.element == problem.element:
        return function("unsorted_segment_sum")(input, segment_ids, padded).reshape(-1)
    x, ids = (arrays.read(each, (op.name, name, "")) for name, each in (("input", input), ("segment_ids", segment_ids)))
    made = allocation.empty(x, (states.scalars,), states.element, stream)
    made[...] = 0
    recipe = leave(op, problem, {each.name: layout_of(each) for each in (x, ids)}, plan.target_of(x.device))
    plan.queue(op.name, recipe, [x, ids, arrays.view(made, op.name, "states")], stream, 2, updated=True)
    return made


def _segments(op: Op) -> Callable[..., Any]:
    """The function of a reduction of segments."""
    corrected = "correction" in op.traits["keywords"]

    def run(
        input: Any, segment_ids: Any, num_segments: int, *, group: Any, result: str = "replicated", empty: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        correction = options.pop("correction", 1)
        if options or (correction != 1 and not corrected):
            raise InvalidProblem(f"{op.name}: got unknown options {', '.join(options) or 'correction'}")
        x, ids = (arrays.read(each, (op.name, name, "")) for name, each in (("input", input), ("segment_ids", segment_ids)))
        comm, trailing = communicator(op.name, group), tuple(x.shape[1:])

        def described() -> SegmentDescriptor:
            choice(op.name, "result", result, _RESULTS)
            if tuple(ids.shape) != tuple(x.shape[:1]):
                raise InvalidProblem(f"{op.name}: segment_ids has shape {list(ids.shape)}, wants {list(x.shape[:1])}, an id for each row of input")
            made = SegmentDescriptor(op.name, x.shape[0], math.prod(trailing), num_segments, x.element, ids.element, empty, correction=correction)
            made.check(op)
            return made

        def describe() -> Call:
            made = described()
            same = {"dtype": BY_NAME[x.element].numpy_name, "trailing axes": list(trailing), "num_segments": made.num_segments}
            return Call(same | {"result": result, "empty": str(empty), "correction": correction})

        agree(op.name, comm, (tuple(x.shape), x.element, ids.element, num_segments, result, repr((empty, correction))), describe)
        problem, handle = described(), streams.stream_handle(None, x, op.name)
        sharded, first, end, padded = result == "sharded", 0, num_segments, num_segments
        if sharded:
            (first, end), padded = part(op.name, comm, num_segments), -(-num_segments // comm.size) * comm.size
        states = States(problem.monoid(op).name, x.element, padded * problem.embedding_dim)
        added, value = states.monoid in _ADDED, problem.empty_value(op)
        columns = 0 if states.monoid == "sum" and value == 0 else problem.embedding_dim  # 0: nobody asks for counts
        left = [_sums_or_states(op, problem, input, segment_ids, states, padded, handle)]
        if columns:
            ones = allocation.empty(x, (x.shape[0],), "i64", handle)
            ones[...] = 1
            left.append(function("unsorted_segment_sum")(ones, segment_ids, padded))
        ranks, width = comm.size, states.scalars // max(states.rows, 1) * problem.embedding_dim
        if added and sharded:
            pending = [comm.reduce_scatter(each.reshape(comm.size, -1), handle) for each in left]
            ranks, padded, first, end = 1, padded // comm.size, 0, end - first
        elif added:
            pending, ranks = [comm.all_reduce(each, handle) for each in left], 1
        else:
            pending = [comm.all_gather(each, handle) for each in left]
        gathered = [each.wait().reshape(ranks, -1) for each in pending]
        shape = end - first, *trailing
        y = allocation.empty(x, shape, x.element, handle)
        local = States(states.monoid, x.element, math.prod(shape))
        known = {"correction": correction, "columns": columns, "empty": value, "rank_stride": padded * width, "count_stride": padded}
        steps = merge(local, shape, contiguous(shape), x.element, ranks, **known)
        inputs = [arrays.view(gathered[0][:, first * width :], op.name, "gathered")]
        inputs += [arrays.view(each[:, first:], op.name, "counts") for each in gathered[1:]]
        plan.queue(op.name, Recipe(tuple(steps)), [*inputs, arrays.view(y, op.name, "y")], handle, len(inputs))
        return y

    run.__name__ = run.__qualname__ = op.name
    run.__doc__ = _DOC.format(formula=op.formula, name=op.name, more=", ``correction``" if corrected else "")
    return guarded(run)


_DOC = """{formula}

over the rows of all ranks of ``group``: :func:`numba_baracuda.{name}` of the ranks' ``input`` [N, …] and ``segment_ids`` [N], one after another. N
may differ, and be 0. ``result``: "replicated", every rank gets [``num_segments``, …]; or "sharded", the ``rank``-th ⌈num_segments / size⌉ segments.
``empty``{more} are as there. States of segments, in the accumulator's type, are added up by ``all_reduce`` or ``reduce_scatter`` for sums and means;
others are gathered and merged in the order of ranks.

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, trailing axes, num_segments or options.
"""
FUNCTIONS = {f"unsorted_segment_{stem}": _segments(OPS[f"unsorted_segment_{stem}"]) for stem in _STEMS}
