"""Reductions, softmax and gradients of segments whose rows are divided among ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..arrays import arrays, streams
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Op
from ..core.options import choice
from ..core.registry import OPS
from ..plans import signatures
from ..segment.calls import DEFAULTS, number_of_segments
from ..segment.descriptor import OrderedIds, SegmentDescriptor, part_names
from ..segment.shards import Fold
from .agreement import Call, agree
from .axis import read_part
from .communicator import communicator
from .seams import joined, shared
from .segments import Rows, exchanged, finished, results_are_sums, spread

_RESULTS = ("replicated", "sharded")


def _described(op: Op, views: dict[str, View], index: OrderedIds | None, segments: Any, options: dict[str, Any]) -> SegmentDescriptor:
    """The problem of this rank's rows; raises where operands contradict each other."""
    *values, _ = op.operands[:-1]
    if index is not None:
        segments = number_of_segments(op, None if values[0].axes[0] == "num_segments" else segments, index)
    if segments is None:
        raise InvalidProblem(f"{op.name}: num_segments is None, wants the number of segments, or for segment_ids a SegmentIndex, which has it")
    if index is not None and op.traits["ordered"] and index.descriptor_form != "sorted":
        raise InvalidProblem(f"{op.name}: segment_ids is a {index.descriptor_form} SegmentIndex, wants a sorted one, as ids ascend along all ranks")
    ids, first = views["segment_ids"], views[values[0].name]
    rows, trailing = next(views[each.name].shape[:1] for each in (*values, op.operands[-2]) if each.axes[0] == "num_inputs"), first.shape[1:]
    if tuple(ids.shape) != tuple(rows):
        raise InvalidProblem(f"{op.name}: segment_ids has shape {list(ids.shape)}, wants {list(rows)}, an id for each row of input")
    known = {"empty": options.get("empty"), "correction": options.get("correction", 1), "ties": options.get("ties", "first")}
    problem = SegmentDescriptor(
        op.name, ids.shape[0], math.prod(trailing), segments, first.element, ids.element, result=options.get("dtype") or "",
        indexed="" if index is None else index.descriptor_form, **known,
    )  # fmt: skip
    problem.check(op)
    for operand in values:
        wants, view = [getattr(problem, operand.axes[0]), *trailing], views[operand.name]
        if (list(view.shape), view.element) != (wants, first.element):
            raise InvalidProblem(f"{op.name}: {operand.name} is {view.element}{list(view.shape)}, wants {first.element}{wants}")
    return problem


def _check_all(op: Op, problem: SegmentDescriptor, every: list[int], to_rows: bool) -> None:
    """Raises where the rows of all ranks are too many."""
    whole = replace(problem, num_inputs=sum(every))
    whole.check(op)
    reason = op.variants[0].refuses(op, whole) if to_rows else None
    if reason:
        raise Unsupported(f"{op.name}: {reason}")


def _function(op: Op) -> Callable[..., Any]:
    """The function of an op of segments: a rank's operands in order, then the number of segments unless an operand has it."""
    *inputs, output = op.operands
    from_input = any(operand.axes[0] == "num_segments" for operand in inputs)
    to_rows = output.axes[0] == "num_inputs"
    positional = dict.fromkeys((each.name for each in inputs), signatures.NEEDED) | ({} if from_input else {"num_segments": None})
    keywords = {"group": signatures.NEEDED} | ({} if to_rows else {"result": "replicated", "empty": None})
    signature = signatures.signature_of(positional, keywords | {name: DEFAULTS[name] for name in op.traits["keywords"]})

    def run(*given: Any, **named: Any) -> Any:
        given, options = signatures.bound(op.name, signature, given, named)
        operands = dict(zip([each.name for each in inputs], given, strict=False))
        index = operands["segment_ids"] if isinstance(operands["segment_ids"], OrderedIds) else None
        form, comm = "" if index is None else index.descriptor_form, communicator(op.name, options.pop("group"))
        views = {name: read_part(op.name, comm, each, name) for name, each in operands.items() if each is not index}
        if index is not None:
            views |= {name: index.view_of(name) for name in ("segment_ids", *part_names(op, form))}
        sharded = options.get("result") == "sharded"
        segments = views[inputs[0].name].shape[0] if from_input else given[-1]

        def describe() -> Call:
            choice(op.name, "result", options.get("result", _RESULTS[0]), _RESULTS)
            made, first = _described(op, views, index, segments, options), inputs[0].name
            arrays.check_one_device(op.name, list(views.values()))
            same: dict[str, Any] = {f"dtype of {first}": BY_NAME[made.element].numpy_name, f"trailing axes of {first}": list(views[first].shape[1:])}
            same |= {"segment_ids": "an array" if index is None else "a SegmentIndex", "num_segments": made.num_segments}
            same |= {name: str(made.correction if name == "correction" else each) for name, each in options.items()}
            return Call(same, made.num_inputs)

        forms = tuple((view.shape, view.element, view.device) for view in (views[each.name] for each in inputs))
        known = index is not None and (index.num_segments, op.traits["ordered"] and form)  # a rank's ids may be in order now and then
        every = agree(op.name, comm, (forms, segments, known, repr(options)), describe)
        problem = _described(op, views, index, segments, options)
        _check_all(op, problem, every, to_rows)
        stream = streams.stream_handle(None, views["segment_ids"], op.name)
        rows = Rows(op, problem, Fold.of(op, problem), comm, operands, views, every, stream)
        anything = problem.num_segments * problem.embedding_dim
        if to_rows:
            folds = anything and (rows.fold.monoid or rows.fold.counted)
            lists = None if not folds else joined(rows)[0] if op.traits["ordered"] else exchanged(rows, False)
            return spread(rows, lists)
        value, element = problem.empty_value(op), problem.result_of(op)
        if not (op.traits["ordered"] and anything) or results_are_sums(rows):
            return finished(rows, exchanged(rows, sharded), element, value)
        lists, owned = joined(rows)
        return shared(rows, finished(rows, lists, element, value), owned, sharded)

    doc = (_DOC if not to_rows else _TO_ROWS).format(formula=op.formula, name=op.name, more=_ORDERED if op.traits["ordered"] else _ANY)
    dressed = signatures.dressed(run, op, signature, doc)
    dressed.__module__ = __name__
    return dressed


_INDEXED = """
For ids, each rank may give a{form} ``SegmentIndex`` of its own rows, made once for many calls, and leave out ``num_segments``."""
_ORDERED = """Ids ascend along the rows of all ranks, one rank after another. A rank folds its own rows; states and counts of its first and last
segment alone are gathered and merged in the order of ranks. Sums whose states are their results are added up by
``all_reduce`` or ``reduce_scatter`` instead.""" + _INDEXED.format(form=" sorted")  # fmt: skip
_ANY = """Ids are in any order. States of segments, in the accumulator's type, are added up by ``all_reduce`` or ``reduce_scatter`` where a state is a
sum; others are gathered and merged in the order of ranks.""" + _INDEXED.format(form="")  # fmt: skip
_DOC = """{formula}

over the rows of all ranks of ``group``: :func:`numba_baracuda.{name}` of the ranks' ``input`` [N, …] and ``segment_ids`` [N], one after another. N
may differ, and be 0. ``result``: "replicated", every rank gets [``num_segments``, …]; or "sharded", the ``rank``-th ⌈num_segments / size⌉ segments.
Other options, ties, NaN and what empty segments get are as there; rows are numbered along all ranks. {more}

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, trailing axes, num_segments or options, where one gives ids and another an
index, and where operands of one contradict each other.
"""
_TO_ROWS = """{formula}

over the rows of all ranks of ``group``: :func:`numba_baracuda.{name}` of the ranks' rows, one after another. A rank gives operands of N rows, and
gets those of the result; N may differ, and be 0. Operands of a row for each segment are the same on all ranks. Options, ties and NaN are as there.
{more}

Raises ``InvalidProblem`` on every rank where ranks disagree on dtype, trailing axes, num_segments or options, where one gives ids and another an
index, and where operands of one contradict each other.
"""
FUNCTIONS = {name: _function(op) for name, op in OPS.items() if op.family == "segment"}
