"""The loss of one rank, chunk by chunk: statistics, their exchange, gradients; and rows that ranks have parts of."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..arrays import allocation, arrays, spans
from ..arrays.views import View
from ..core.axes import ceil_div
from ..core.errors import InvalidProblem
from ..core.op import Layout, Matrix, Op, Recipe, Step
from ..loss.calls import read
from ..loss.descriptor import FusedLinearCrossEntropyDescriptor
from ..loss.launches import assign
from ..loss.shards import ShardDescriptor, ShardForward, op_of_shards
from ..plans import plan
from ..plans.binding import check
from .communicator import Communicator, Pending, part

NAME = "distributed.fused_linear_cross_entropy"
#: operands and results with an element or a line for each row; dy is one with the reduction "none"
_BY_ROW = ("input", "target", "row_weight")
_ROW_RESULTS, _ROW_LOSSES = ("lse", "predicted", "entropy"), ("out", "z_loss", "accuracy")


def _view(given: Any, name: str) -> View:
    """The view of an array, or of a number where the operand may be one."""
    if name == "dy" and isinstance(given, numbers.Real) and not isinstance(given, bool):
        return View.of_number(float(given), name)
    return read(given, NAME, name)


def _checked(problem: ShardDescriptor, views: dict[str, View]) -> Op:
    """The op of these operands, once their shapes and dtypes are right."""
    op = problem.specialise(op_of_shards(NAME))
    op = replace(op, operands=tuple(each for each in op.operands if each.name in views))
    check(op, problem, [views[each.name] for each in op.operands])
    return op


def check_part(x: View, w: View, inputs: dict[str, Any], outputs: dict[str, Any], options: dict[str, Any]) -> None:
    """Raises for what is wrong with the arguments of this rank alone."""
    for view, wants in ((x, "[BT, H]"), (w, "[V, H]")):
        if len(view.shape) != 2:
            raise InvalidProblem(f"{NAME}: {view.name} has shape {list(view.shape)}, wants {wants}")
    if "target" not in inputs:
        raise InvalidProblem(f"{NAME}: target is None, wants an array of int64 or int32, [BT]")
    single = FusedLinearCrossEntropyDescriptor(x.shape[0], x.shape[1], max(w.shape[0], 1), x.element, **options)
    single.check(replace(op_of_shards(NAME)))
    views = {name: _view(each, name) for name, each in (inputs | outputs).items()}
    total = math.prod(views["class_weight"].shape) if "class_weight" in views else 0
    problem = ShardDescriptor(x.shape[0], x.shape[1], w.shape[0], x.element, **options, total_classes=total)
    op = _checked(problem, views)
    arrays.check_one_device(NAME, [each for each in views.values() if each.number is None])
    layouts = _layouts(views)
    if w.shape[0]:
        ShardForward(op, replace(problem, chunk=1), layouts, plan.target_of(x.device))


def _layouts(views: dict[str, View]) -> dict[str, Layout]:
    return {name: Layout(tuple(v.shape), tuple(v.strides), v.ptr & 15, v.element, v.number) for name, v in views.items()}


class Rows:
    """The rows of all ranks: the same on each, or parts in their order, each padded with ignored rows to the longest part."""

    def __init__(self, comm: Communicator, counts: list[int], sharded: bool, ignore_index: int, stream: int) -> None:
        self.comm, self.counts, self.sharded, self.ignore_index, self.stream = comm, counts, sharded, ignore_index, stream
        self.most = max(counts)
        self.total = comm.size * self.most if sharded else counts[0]

    def gathered(self, given: dict[str, Any], each: bool) -> dict[str, Any]:
        """The operands, with those of rows from all ranks; ``each``: whether the reduction is "none"."""
        if not self.sharded:
            return given
        names = (*_BY_ROW, "dy", "dy_entropy") if each else _BY_ROW
        return {name: self._gather(name, one) if name in names and not isinstance(one, numbers.Real) else one for name, one in given.items()}

    def _gather(self, name: str, given: Any) -> Any:
        view, own = read(given, NAME, name), self.counts[self.comm.rank]
        rest, padded = tuple(view.shape[1:]), given
        if own < self.most or not spans.is_contiguous(view):
            padded = allocation.empty(view, (self.most, *rest), view.element, self.stream)
            padded[:own] = given
            padded[own:] = self.ignore_index if name == "target" else 0
        return self.comm.all_gather(padded, self.stream).wait().reshape(self.total, *rest)

    def first(self, rows: int) -> int:
        """The first of this rank's rows, of so many of all."""
        return self.comm.rank * self.most if self.sharded else part(NAME, self.comm, rows)[0]

    def own(self, name: str, made: Any, problem: ShardDescriptor, reduce_grad_input: str | None) -> Any:
        """What of a result belongs to this rank."""
        rank = self.comm.rank
        if name == "grad_input" and reduce_grad_input == "reduce_scatter":
            first, end = (0, self.counts[rank]) if self.sharded else part(NAME, self.comm, problem.bt)
            return made[: end - first]
        if self.sharded and (name in _ROW_RESULTS or (problem.each and name in _ROW_LOSSES)):
            return made[rank * self.most : rank * self.most + self.counts[rank]]
        return made


class _Run:
    """One call: its operands as views, and the queue of its steps."""

    def __init__(self, problem: ShardDescriptor, inputs: dict[str, Any], results: dict[str, Any], stream: int) -> None:
        self.problem, self.stream = problem, stream
        self.inputs = {name: _view(each, name) for name, each in inputs.items()}
        self.outputs = {name: _view(each, name) for name, each in results.items()}
        views = self.inputs | self.outputs
        op = _checked(problem, views)
        if "class_weight" in inputs:
            shard = inputs["class_weight"][problem.first_class : problem.first_class + problem.v]
            self.inputs["shard_weight"] = _view(shard, "shard_weight")
        self.x = views["input"]
        self.forward = ShardForward(op, problem, _layouts(views | self.inputs), plan.target_of(self.x.device))
        self.arrays = {name: self.empty((slot.count,), slot.element) for name, slot in self.forward.held.items()}
        self.held = {name: _view(each, name) for name, each in self.arrays.items()}

    def empty(self, shape: tuple[int, ...], element: str) -> Any:
        """A new array."""
        return allocation.empty(self.x, shape, element, self.stream)

    def queue(self, phase: Any, steps: Callable[[], list[Step]], **more: Any) -> None:
        """Queues the steps of a phase of the call on the operands, the arrays that are held, and some more."""
        inputs, outputs = list(self.inputs.values()), self.outputs | self.held | {name: _view(each, name) for name, each in more.items()}
        views = [*inputs, *outputs.values()]
        key = phase, self.problem, tuple(view.name for view in views)
        plan.queue(NAME, lambda: Recipe(tuple(steps()), self.forward.product_scratch), views, self.stream, len(inputs), updated=True, key=key)


def run_shard(
    comm: Communicator, data: Communicator, problem: ShardDescriptor, inputs: dict[str, Any], wanted: dict[str, Any], returned: list[str],
    reduce_grad_input: str | None, stream: int,
) -> dict[str, Any]:  # fmt: skip
    """The results by name.

    Statistics of a chunk are exchanged while the logits of the next are multiplied, and its part of grad_input while that of grad_weight is.
    """
    x, scatter = read(inputs["input"], NAME, "input"), reduce_grad_input == "reduce_scatter"
    total, wide = problem.row_shape if problem.each else (), problem.accumulator
    kinds = {"out": (total, wide), "lse": (problem.row_shape, wide), "z_loss": (total, wide), "accuracy": (total, wide)}
    padded = ceil_div(problem.bt, comm.size) * comm.size
    kinds |= {"grad_weight": (problem.weight_shape, x.element), "grad_bias": (problem.class_shape, x.element)}
    kinds |= {"predicted": (problem.row_shape, "i64"), "entropy": (problem.row_shape, wide)}
    kinds |= {"grad_input": ((padded if scatter else problem.bt, problem.h), x.element)}
    given = {name: each for name, each in wanted.items() if each is not True}
    results = {name: given.get(name) for name in ("out", *wanted, *returned)}
    results = {name: allocation.empty(x, *kinds[name], stream) if each is None else each for name, each in results.items()}
    whole = results.get("grad_input")
    if scatter and whole is not None:
        results["grad_input"] = whole[: problem.bt]
    run = _Run(problem, inputs, results, stream)
    forward, sums = run.forward, run.arrays.get("input_sums")
    if data.size > 1:
        counted = run.empty((2,), wide)
        run.queue("count", lambda: [forward.totals("count")], sums=counted)
        data.all_reduce(counted, stream).wait()
        run.queue("factors", lambda: [forward.totals("factors"), *forward.begin()[1:]], sums=counted)
    elif problem.bt:
        run.queue("begin", forward.begin)
    if problem.bt:
        reduced = _chunks(run, comm, whole if sums is None else sums.reshape(-1, problem.h), reduce_grad_input == "all_reduce")
        for each in reduced:
            each.wait()
        rounds = sums is not None and not scatter
        run.queue(("finish", rounds), lambda: [*forward.finish(), *([forward.narrowed()] if rounds else [])])
    else:
        run.queue("nothing", forward.nothing)
    if data.size > 1 and not problem.each:
        for name in ("out", "z_loss", "accuracy"):
            if name in results:
                data.all_reduce(results[name], stream).wait()
    if scatter and whole is not None and problem.bt:
        results["grad_input"] = _scattered(run, comm, whole if sums is None else sums, padded)
    return results


def _chunks(run: _Run, comm: Communicator, parts: Any, all_reduce: bool) -> list[Pending]:
    """Queues all chunks; returns the sums of ``parts`` over ranks, the gradient of the input, that have begun."""
    problem, forward, stream = run.problem, run.forward, run.stream
    firsts = range(0, problem.bt, problem.chunk_size)
    logits = [run.arrays.pop("logits"), *([run.empty((forward.held["logits"].count,), problem.element)] if len(firsts) > 1 else [])]
    del run.held["logits"]
    begun: list[Pending] = []

    def exchange(k: int) -> Pending:
        rows = min(problem.chunk_size, problem.bt - firsts[k])
        statistics = run.empty((rows, forward.width), problem.accumulator)
        run.queue(("before", k), lambda: forward.before(firsts[k], rows), logits=logits[k % 2], statistics=statistics)
        return comm.all_gather(statistics, stream, beside=True)

    coming = exchange(0)
    for k, first in enumerate(firsts):
        rows, arrived = min(problem.chunk_size, problem.bt - first), coming
        if k + 1 < len(firsts):
            coming = exchange(k + 1)
        run.queue(("after", k), functools.partial(forward.after, first, rows), logits=logits[k % 2], gathered=arrived.wait())
        if all_reduce and parts is not None and "grad_input" in forward.gradients and comm.size > 1:
            begun.append(comm.all_reduce(parts[first : first + rows], stream, beside=True))
        if forward.gradients:
            run.queue(("last", k), functools.partial(forward.last, first, rows), logits=logits[k % 2])
    return begun


def _scattered(run: _Run, comm: Communicator, parts: Any, padded: int) -> Any:
    """This rank's rows of the sum of ``parts`` over ranks, rounded."""
    problem = run.problem
    own = comm.reduce_scatter(parts.reshape(comm.size, padded // comm.size, problem.h), run.stream).wait()
    if "input_sums" not in run.arrays:
        return own
    made, (rows, columns) = run.empty(tuple(own.shape), problem.element), own.shape
    step = assign(Matrix("rounded", problem.element, rows, columns, columns), x=Matrix("own", problem.accumulator, rows, columns, columns))
    plan.queue(NAME, Recipe((step,)), [_view(own, "own"), _view(made, "rounded")], run.stream)
    return made
