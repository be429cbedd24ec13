"""The loss of only the rows that count: lists them, gathers their inputs, and scatters their results back to all rows."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from ..arrays import allocation, arrays
from ..arrays.views import View
from ..core import registry
from ..core.axes import ceil_div
from ..core.op import Launch, Recipe
from ..core.policy import tuned
from ..plans import plan
from ..runtime import driver
from .geometry import TOTAL_THREADS
from .launches import kernel_spec
from .policy import Totals

#: results of one element or line for each row: with every reduction, and only with "none"
_ROW_RESULTS, _ROW_LOSSES = ("grad_input", "lse", "predicted", "entropy"), ("out", "z_loss", "accuracy")


def _launch(kernel: str, blocks: int, arguments: dict[str, Any], **constants: Any) -> Recipe:
    return Recipe((Launch(kernel_spec(kernel, TOTAL_THREADS, **constants), (blocks, TOTAL_THREADS, 0), arguments),))


class CountedRows:
    """The rows whose target is not ignored. The constructor waits for the device, which counts them."""

    def __init__(self, op: str, target: View, ignore_index: int, stream: int) -> None:
        rows = target.shape[0]
        made = {name: allocation.empty(target, (rows,), "i64", stream) for name in ("row_indices", "counted_targets", "positions")}
        made["count"] = allocation.empty(target, (1,), "i64", stream)
        views = [target, *(arrays.view(each, op, name) for name, each in made.items())]
        arguments = {"target": "target", **{name: name for name in made}, "rows": rows, "target_stride": target.strides[0], "ignore": ignore_index}
        plan.queue(op, _launch("compact_rows", 1, arguments, label=target.element), views, stream)
        count = views[-1]
        if count.device < 0:
            counted_rows = int(count.owner[0])
        else:
            counted_rows = driver.read_back(count.ptr, 1, stream, count.device, reason="skip_ignored=True")[0]
        multiple = tuned(Totals()).row_multiple
        self.op, self.stream, self.rows = op, stream, min(ceil_div(counted_rows, multiple) * multiple, rows)
        self.row_indices, self.target, self.positions = made["row_indices"][: self.rows], made["counted_targets"][: self.rows], made["positions"]

    def inputs(self, given: dict[str, Any], each: bool) -> dict[str, Any]:
        """The operands, those of rows for the rows that count alone; ``each``: whether the reduction is "none"."""
        by_row = ("input", "row_weight", "dy", "dy_entropy") if each else ("input", "row_weight")
        made = {name: self.gather(array) if name in by_row and not isinstance(array, numbers.Real) else array for name, array in given.items()}
        return made | {"target": self.target}

    def gather(self, each: Any) -> Any:
        """The lines of ``each`` [rows, …] that belong to rows that count, and zeros behind them."""
        return _gather(each, self.row_indices, self.stream, None)

    def scatter(self, each: Any, out: Any) -> None:
        """Stores ``each``, a line for each row that counts, to these lines of ``out``; other lines become 0, or −1 if they are integers."""
        values, result = arrays.view(each, self.op, "values"), arrays.view(out, self.op, "out")
        if result.element != "i64":
            _gather(each, self.positions, self.stream, out)
            return
        positions, rows = arrays.view(self.positions, self.op, "positions"), result.shape[0]
        arguments = {"values": "values", "positions": "positions", "out": "out", "rows": rows, "out_stride": result.strides[0]}
        plan.queue(self.op, _launch("gather_values", ceil_div(rows, TOTAL_THREADS), arguments), [values, positions, result], self.stream, inputs=2)


def _gather(rows: Any, positions: Any, stream: int, out: Any) -> Any:
    """``rows[positions]``, or 0 where a position is negative: the gradient of a sum over segments."""
    return registry.function("unsorted_segment_sum_backward")(rows, positions, out=out, stream=stream)


def run_compacted(
    counted: CountedRows, run: Callable[[dict[str, Any], dict[str, Any]], None], inputs: dict[str, Any], results: dict[str, Any], each: bool
) -> None:
    """Calls ``run`` with the rows that count and scatters its results for rows to ``results``; ``each``: whether the reduction is "none"."""
    given, compacted = counted.inputs(inputs, each), {}
    like = arrays.view(given["input"], counted.op, "input")
    for name in results_of_rows(each):
        if name in results:
            view = arrays.view(results[name], counted.op, name)
            compacted[name] = allocation.empty(like, (counted.rows, *view.shape[1:]), view.element, counted.stream)
    run(given, results | compacted)
    for name, array in compacted.items():
        counted.scatter(array, results[name])


def results_of_rows(each: bool) -> tuple[str, ...]:
    """Results of one element or line for each row; ``each``: whether the reduction is "none"."""
    return (*_ROW_RESULTS, *_ROW_LOSSES) if each else _ROW_RESULTS
