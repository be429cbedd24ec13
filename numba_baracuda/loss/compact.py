"""A loss of nothing but the rows that count: they are found, gathered, and what they give goes back to where they were."""

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

#: what there is for each row, by whether the reduction is "none"
_ALWAYS, _EACH = ("grad_input", "lse", "predicted"), ("out", "z_loss", "accuracy")


def _launch(kernel: str, blocks: int, arguments: dict[str, Any], **constants: Any) -> Recipe:
    return Recipe((Launch(kernel_spec(kernel, TOTAL_THREADS, **constants), (blocks, TOTAL_THREADS, 0), arguments),))


class Kept:
    """Which rows have a target that is not ignored; finding out how many waits for the device."""

    def __init__(self, op: str, target: View, ignore_index: int, stream: int) -> None:
        rows = target.shape[0]
        made = {name: allocation.empty(target, (rows,), "i64", stream) for name in ("order", "kept", "places")}
        made["count"] = allocation.empty(target, (1,), "i64", stream)
        views = [target, *(arrays.view(each, op, name) for name, each in made.items())]
        arguments = {"target": "target", **{name: name for name in made}, "rows": rows, "stride": target.strides[0], "ignore": ignore_index}
        plan.queue(op, _launch("compact_rows", 1, arguments, label=target.element), views, stream)
        count = views[-1]
        found = int(count.owner[0]) if count.device < 0 else driver.read_back(count.ptr, 1, stream, count.device, reason="skip_ignored=True")[0]
        step = tuned(Totals()).row_multiple
        self.op, self.stream, self.rows = op, stream, min(ceil_div(found, step) * step, rows)
        self.order, self.target, self.places = made["order"][: self.rows], made["kept"][: self.rows], made["places"]

    def gather(self, each: Any) -> Any:
        """The rows that count of what there is for each row, 0 behind them."""
        return _gathered(each, self.order, self.stream, None)

    def spread(self, each: Any, out: Any) -> None:
        """What the rows that count have, to all rows: 0 for the others, −1 if it is integers."""
        values, target = arrays.view(each, self.op, "values"), arrays.view(out, self.op, "out")
        if target.element != "i64":
            _gathered(each, self.places, self.stream, out)
            return
        places, rows = arrays.view(self.places, self.op, "places"), target.shape[0]
        arguments = {"values": "values", "places": "places", "out": "out", "rows": rows, "stride": target.strides[0]}
        plan.queue(self.op, _launch("take_places", ceil_div(rows, TOTAL_THREADS), arguments), [values, places, target], self.stream, inputs=2)


def _gathered(rows: Any, places: Any, stream: int, out: Any) -> Any:
    """``rows[places]``, 0 where that is no place, which is what the gradient of a sum over segments does."""
    return registry.function("unsorted_segment_sum_backward")(rows, places, out=out, stream=stream)


def run_kept(kept: Kept, run: Callable[[dict[str, Any], dict[str, Any]], None], inputs: dict[str, Any], results: dict[str, Any], each: bool) -> None:
    """``run(inputs, results)`` for the rows that count, and what it writes by row to all rows of ``results``; ``each``: "none" is the reduction."""
    by_row = ("input", "row_weight", "dy") if each else ("input", "row_weight")
    given = {name: kept.gather(array) if name in by_row and not isinstance(array, numbers.Real) else array for name, array in inputs.items()}
    given["target"], like, made = kept.target, arrays.view(given["input"], kept.op, "input"), {}
    for name in (*_ALWAYS, *_EACH) if each else _ALWAYS:
        if name in results:
            view = arrays.view(results[name], kept.op, name)
            made[name] = allocation.empty(like, (kept.rows, *view.shape[1:]), view.element, kept.stream)
    run(given, results | made)
    for name, array in made.items():
        kept.spread(array, results[name])
