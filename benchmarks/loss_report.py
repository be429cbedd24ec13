"""Results of losses as text: records for a file, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from .loss_cases import LESS_EXACT, Errors, LossCase
from .loss_contestants import PRODUCTS, Contestant
from .results import OURS, RIGHT, Record
from .timing import Timing

_SHOWN = (
    "who", "chunk", "median_ms", "low_ms", "high_ms", "vs_products", "share_of_floor", "tflop_s", "share_of_copy", "peak_mib", "loss_error",
    "grad_input_error", "grad_weight_error", "checked",
)  # fmt: skip
_LEFT = ("case", "who", "checked", "best peer")


@dataclass
class Entry:
    """A contestant and its results: times, peak memory beyond its operands, and errors, each where it was measured."""

    contestant: Contestant
    timing: Timing | None = None
    peak: int | None = None
    errors: Errors | None = None
    checked: str = ""
    note: str = ""

    @property
    def ours(self) -> bool:
        return self.contestant.who.startswith(OURS)


def records(case: LossCase, entries: Sequence[Entry]) -> list[Record]:
    """``vs_products``: median of the time over that of three whole products in the same round.

    ``share_of_floor``: the time that the case's products take at the rate of a large square one, over its own; ``share_of_copy``: of the rate of a
    copy. The rates are of the same rounds.
    """
    timed = {entry.contestant.who: entry.timing for entry in entries if entry.timing}
    copy = next((entry for entry in entries if entry.contestant.who == "copy" and entry.timing), None)
    square = next((entry for entry in entries if not entry.contestant.loss and entry.contestant.flops not in (0, case.flops) and entry.timing), None)
    return [_record(case, entry, timed.get(PRODUCTS), _rate(square), _rate(copy)) for entry in entries]


def _rate(entry: Entry | None) -> float:
    """Operations or bytes per microsecond."""
    if entry is None or entry.timing is None:
        return 0.0
    return (entry.contestant.flops or entry.contestant.nbytes) / entry.timing.median


def _record(case: LossCase, entry: Entry, products: Timing | None, most_flops: float, most_bytes: float) -> Record:
    contestant, timing, errors = entry.contestant, entry.timing, entry.errors
    names = ("median_ms", "low_ms", "high_ms", "samples", "vs_products", "share_of_floor", "tflop_s", "bytes", "gb_s", "share_of_copy", "peak_mib")
    found = {"case": case.id, "who": contestant.who, "chunk": str(contestant.chunk or ""), **dict.fromkeys(names, "")}
    found |= dict.fromkeys(("loss_error", "grad_input_error", "grad_weight_error"), "")
    if timing:
        found |= {"median_ms": f"{timing.median / 1e3:.4f}", "low_ms": f"{timing.low / 1e3:.4f}", "high_ms": f"{timing.high / 1e3:.4f}"}
        found["samples"] = str(len(timing.samples))
        if contestant.flops:
            found["tflop_s"] = f"{contestant.flops / timing.median / 1e6:.1f}"
        if contestant.flops == case.flops:
            found["share_of_floor"] = f"{case.flops / most_flops / timing.median:.4f}" if most_flops else ""
            pairs = zip(timing.samples, products.samples, strict=True) if products else ()
            found["vs_products"] = f"{statistics.median(mine / other for mine, other in pairs):.4f}" if products else ""
        if contestant.nbytes:
            found |= {"bytes": str(contestant.nbytes), "gb_s": f"{contestant.nbytes / timing.median / 1e3:.1f}"}
            found["share_of_copy"] = f"{contestant.nbytes / timing.median / most_bytes:.4f}" if most_bytes else ""
    if entry.peak is not None:
        found["peak_mib"] = f"{entry.peak / (1 << 20):.1f}"
    if errors:
        found |= {
            "loss_error": f"{errors.loss:.3g}",
            "grad_input_error": f"{errors.grad_input:.3g}",
            "grad_weight_error": f"{errors.grad_weight:.3g}",
        }
    dry = ["the queue ran dry: host time may be included"] if timing and timing.dry else []
    return {**found, "checked": entry.checked, "note": "; ".join([*filter(None, (contestant.note, entry.note)), *dry])}


def _table(title: str, names: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="left" if name in _LEFT else "right")
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _percent(share: str) -> str:
    return f"{float(share):.1%}" if share else ""


def case_table(case: LossCase, rows: Sequence[Record]) -> Table:
    """Every contestant of one case."""
    lines = []
    for row in rows:
        remark = row["checked"] + (f" ({row['note']})" if row["note"] else "")
        cells = {**row, **{name: _percent(row[name]) for name in ("share_of_floor", "share_of_copy")}, "checked": remark}
        lines.append([cells[name] for name in _SHOWN])
    return _table(f"{case.id}, {case.flops / 1e12:.2f} TFLOP, gradients {case.gradient_bytes / (1 << 20):,.1f} MiB", _SHOWN, lines)


def _best(rows: Sequence[Record], case: str) -> Record | None:
    """The fastest peer of a case that is not wrong."""
    timed = [
        row
        for row in rows
        if row["case"] == case and row["median_ms"] and row["checked"].startswith((RIGHT, LESS_EXACT)) and not row["who"].startswith(OURS)
    ]
    return min(timed, key=lambda row: float(row["median_ms"]), default=None)


def summary(rows: Sequence[Record], title: str) -> Table:
    """A line for each of ours that computes the loss, and the fastest peer that is not wrong."""
    lines = []
    for row in rows:
        if row["who"].startswith(OURS) and row["checked"]:
            best = _best(rows, row["case"])
            faster = f"{float(best['median_ms']) / float(row['median_ms']):.2f}" if best and row["median_ms"] else ""
            cells = [row["case"], row["who"], row["median_ms"], row["vs_products"], _percent(row["share_of_floor"]), row["peak_mib"]]
            lines.append([*cells, best["who"] if best else "", best["median_ms"] if best else "", faster, row["checked"]])
    names = ("case", "who", "ms", "vs products", "of floor", "peak MiB", "best peer", "its ms", "times as fast", "checked")
    return _table(title, names, lines)
