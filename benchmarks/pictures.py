"""The plots of README.md and of the site: which numbers of the results they show, and how. ``python -m benchmarks.report`` draws them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numba_baracuda import OPS

from . import drawing, peers, scaling, surface_report, sweep
from .loss_cases import WRONG
from .results import OURS, RIGHT, Record, read_csv

LIBRARIES = (OURS, *peers.NAMES)
UNSORTED = "unsorted_"
#: share of the copy rate above which no memory was written: a view of the operand
VIEW = 2.0
_RATIO = "times as fast as the library's fastest right function"
_SHARE = "% of the rate of a copy on the device"


@dataclass(frozen=True)
class Cell:
    """An op and a case. By library, for the fastest right function of each: its share of the copy rate, and how many times as fast ours is."""

    op: str
    case: str
    shares: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)  #: functions that returned a view

    @property
    def family(self) -> str:
        if self.op not in OPS:
            return "others"
        return f"{OPS[self.op].family}, unsorted" if self.op.startswith(UNSORTED) else OPS[self.op].family


@dataclass(frozen=True)
class Picture:
    """One plot: what it shows, and how it is drawn."""

    numbers: Any
    paint: drawing.Paint
    size: tuple[float, float]


def files(folder: Path) -> list[tuple[Record, list[Record]]]:
    """Header and rows of the result files, the oldest first."""
    return sorted((read_csv(path) for path in sorted(folder.glob("*.csv"))), key=lambda read: read[0].get("date", ""))


def cells(found: Sequence[tuple[Record, list[Record]]]) -> list[Cell]:
    """Every op and case of the files of ``benchmarks.run``. The newest file counts, for peers the newest that has any; a ratio is within one file."""
    made: dict[tuple[str, str], Cell] = {}
    for _, rows in found:
        if not rows or not {"op", "case", "who", "share_of_copy"} <= rows[0].keys() or {"cell", "panel"} & rows[0].keys():
            continue
        best: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}  # µs and share by library
        for row in rows:
            library, key = row["who"].split()[0], (row["op"], row["case"])
            if library not in LIBRARIES or row["checked"] != RIGHT or not row["median_us"]:
                continue
            time = float(row["median_us"]), float(row["share_of_copy"])
            if time[1] > VIEW:
                made.setdefault(key, Cell(*key)).views.append(row["who"])
                continue
            of_case = best.setdefault(key, {})
            of_case[library] = min(time, of_case.get(library, time))
        for key, each in best.items():
            cell = made.setdefault(key, Cell(*key))
            if each.keys() != {OURS}:
                cell.shares.clear()
                cell.ratios.clear()
            cell.shares.update({library: share for library, (_, share) in each.items()})
            if OURS in each:
                cell.ratios.update({library: us / each[OURS][0] for library, (us, _) in each.items() if library != OURS})
    return list(made.values())


def peers_numbers(found: Sequence[Cell], by: Callable[[Cell], str]) -> dict[str, Any]:
    """For each group of cells, in order of name: shares in per cent and ratios by library, and the cell where ours is slowest beside a peer."""
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        groups.setdefault(by(cell), []).append(cell)
    made: dict[str, Any] = {}
    for name, group in sorted(groups.items()):
        shares = {each: sorted(100 * cell.shares[each] for cell in group if each in cell.shares) for each in LIBRARIES}
        ratios = {each: sorted(cell.ratios[each] for cell in group if each in cell.ratios) for each in LIBRARIES}
        beside = sorted((min(cell.ratios.values()), cell.op, cell.case) for cell in group if cell.ratios)
        made[name] = {
            "shares": {each: values for each, values in shares.items() if values},
            "ratios": {each: values for each, values in ratios.items() if values},
            "cells": len(group),
            "compared": len(beside),
            "slower": sum(ratio < 1 for ratio, _, _ in beside),
            "slowest": list(beside[0]) if beside else None,
            "views": sum(len(cell.views) for cell in group),
        }
    return made


def paint_peers(figure: Any, numbers: dict[str, Any], colours: Mapping[str, str]) -> None:
    """A row for each group: a dot for each case and library, a line at the median; left shares, right ratios, with those below 1 counted."""
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": (1, 1)})
    for axes, what in ((left, "shares"), (right, "ratios")):
        for place, group in enumerate(numbers.values()):
            for library, values in group[what].items():
                y = place + 0.14 * (LIBRARIES.index(library) - 2.5)
                axes.scatter(values, [y] * len(values), s=12, alpha=0.5, color=colours[library], linewidths=0)
                axes.plot([values[len(values) // 2]] * 2, [y - 0.08, y + 0.08], color=colours[library], linewidth=2)
        axes.grid(axis="x")
    right.axvline(1, color="grey", linewidth=1)
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}")
    left.axvline(100, color="grey", linewidth=1)
    left.set_xlim(left=0)
    left.set_xlabel(_SHARE)
    right.set_xlabel(_RATIO)
    left.set_yticks(range(len(numbers)), [f"{name}\n{_count(group)}" for name, group in numbers.items()])
    left.set_ylim(len(numbers) - 0.5, -0.5)
    shown = [library for library in LIBRARIES if any(library in group["shares"] for group in numbers.values())]
    figure.legend([left.scatter([], [], color=colours[each]) for each in shown], shown, loc="outside upper center", ncols=len(shown), frameon=False)
    slowest = min((group["slowest"] for group in numbers.values() if group["slowest"]), default=None)
    if slowest:
        right.set_title("slowest beside a peer: {1} {2}, {0:.2f} x".format(*slowest), fontsize=7, loc="right")
    views = sum(group["views"] for group in numbers.values())
    if views:
        left.set_title(f"not shown: {views} results of peers that are views and write no memory", fontsize=7, loc="left")


def _count(group: Mapping[str, Any]) -> str:
    return f"{group['slower']} of {group['compared']} slower" if group["compared"] else f"{group['cells']} alone"


#: contestants of losses: library, and marker
_MARKS = {
    f"{OURS} auto": (OURS, "o"), f"{OURS} lean": (OURS, "v"), f"{OURS} 1 GiB": (OURS, "s"), f"{OURS} 2 GiB": (OURS, "D"),
    f"{OURS} auto, f32 sums": (OURS, "^"), "torch eager": ("torch", "o"), "torch.compile": ("torch", "s"), "liger": ("cupy", "o"),
    "cut-cross-entropy": ("jax", "o"),
}  # fmt: skip


def loss_numbers(rows: Sequence[Record]) -> dict[str, Any]:
    """For each case: milliseconds, MiB and verdict of each contestant of which all three are known, and the time of the three products."""
    made: dict[str, Any] = {}
    for row in rows:
        case = made.setdefault(row["case"], {"contestants": {}, "products": None})
        if row["median_ms"] and row["peak_mib"]:
            case["contestants"][row["who"]] = [float(row["median_ms"]), float(row["peak_mib"]), row["checked"].partition(":")[0]]
        elif row["who"] == "torch, three whole products" and row["median_ms"]:
            case["products"] = float(row["median_ms"])
    return {name: case for name, case in made.items() if case["contestants"]}


def paint_loss(figure: Any, numbers: dict[str, Any], colours: Mapping[str, str]) -> None:
    """A panel for each case, time over memory. A filled mark is right, a hollow one less exact, a cross wrong."""
    ticker, columns, shown = importlib.import_module("matplotlib.ticker"), 3, dict[str, Any]()
    panels = figure.subplots(-(-len(numbers) // columns), columns, squeeze=False).ravel()
    for axes in panels[len(numbers) :]:
        axes.set_axis_off()
    for axes, (name, case) in zip(panels, numbers.items(), strict=False):
        for who, (ms, mib, checked) in case["contestants"].items():
            library, marker = _MARKS.get(who, ("", "h"))
            colour = colours.get(library, "grey")
            look = {"linestyle": "", "marker": marker, "color": colour, "markersize": 6}
            if checked == WRONG:
                axes.plot([mib], [ms], **{**look, "marker": "x"})
            else:
                axes.plot([mib], [ms], **look, markerfacecolor=colour if checked == RIGHT else "none")
            shown.setdefault(who, axes.plot([], [], **look)[0])
        if case["products"]:
            axes.axhline(case["products"], color="grey", linestyle="--", linewidth=0.8)
        axes.set(title=name, xscale="log", yscale="log", xlabel="peak MiB", ylabel="ms")
        axes.margins(0.12)
        axes.grid()
        for axis, steps in ((axes.xaxis, (1, 2, 5)), (axes.yaxis, (1, 1.5, 2, 3, 5, 7))):
            axis.set_major_locator(ticker.LogLocator(subs=steps))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(ticker.NullLocator())
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=5, frameon=False)
    figure.supxlabel("hollow: less exact than PyTorch; cross: wrong; dashed line: three whole matrix products by PyTorch", fontsize=8)


#: frameworks and their colours; times of shapes, one colour and ever paler
_KINDS = {"torch": ("torch", 1.0), "cupy": ("cupy", 1.0), "numba": ("numba", 1.0)}
_SHAPES = {"seen shape": (OURS, 1.0), "new shape, median": (OURS, 0.6), "new shape, 99 of 100": (OURS, 0.3)}


def host_numbers(rows: Sequence[Record]) -> dict[str, Any]:
    """Microseconds: of each way to call by framework, of functions of torch tensors by shape, and of functions of other libraries."""
    calls, shapes, others = dict[str, dict[str, float]](), dict[str, dict[str, float]](), dict[str, float]()
    for row in rows:
        words = row["what"].split(", ")
        if row["unit"] != "us":
            continue
        if "shape" in row["what"]:
            op, what, kind = words[0], ", ".join(words[1:-1]), words[-1]
            if kind == "torch" and what in _SHAPES:
                shapes.setdefault(op, {})[what] = float(row["value"])
        elif words[-1] in _KINDS:
            calls.setdefault(", ".join(words[:-1]), {})[words[-1]] = float(row["value"])
        else:
            others[row["what"]] = float(row["value"])
    return {"calls": calls, "shapes": shapes, "others": others}


def paint_host(figure: Any, numbers: dict[str, Any], colours: Mapping[str, str]) -> None:
    """Bars: left the ways to call, right functions by shape; both end with what other calls cost."""
    for axes, what, kinds in zip(figure.subplots(1, 2), ("calls", "shapes"), (_KINDS, _SHAPES), strict=True):
        names = [*numbers[what], *numbers["others"]]
        for k, (kind, (colour, alpha)) in enumerate(kinds.items()):
            found = [(place, numbers[what][name].get(kind)) for place, name in enumerate(numbers[what])]
            drawn = [(place + 0.27 * (k - 1), value) for place, value in found if value is not None]
            axes.barh([place for place, _ in drawn], [value for _, value in drawn], height=0.25, color=colours[colour], alpha=alpha, label=kind)
        beside = range(len(numbers[what]), len(names))
        axes.barh(beside, list(numbers["others"].values()), height=0.5, color="grey", label="other calls")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_xlabel("us of the host")
        axes.legend()


def pictures(folder: Path) -> dict[str, Picture]:
    """Name → plot of each whose results are in ``folder``."""
    found, made = files(folder), dict[str, Picture]()
    every = cells(found)
    if every:
        made["peers"] = _peers(every, lambda cell: cell.family)
    for family in sorted({cell.family for cell in every}):
        made[f"peers-{family.replace(', ', '-')}"] = _peers([cell for cell in every if cell.family == family], lambda cell: cell.op)
    surfaces: dict[str, list[Record]] = {}
    for header, rows in found:
        kinds = set(rows[0]) if rows else set()
        if "cell" in kinds:
            surfaces.setdefault(f"surface-{header['family']}", []).extend({**row, "cell": f"{header['seed']}.{row['cell']}"} for row in rows)
        elif "panel" in kinds:
            made["sweep"] = Picture(sweep.numbers(rows), sweep.paint, (11, 4))
        elif "peak_mib" in kinds:
            numbers = loss_numbers(rows)
            made["loss"] = Picture(numbers, paint_loss, (12, 3.8 * -(-len(numbers) // 3)))
        elif kinds == {"what", "value", "unit"}:
            made["host"] = Picture(host_numbers(rows), paint_host, (12, 5.5))
    ranked = [rows for header, rows in sorted(found, key=lambda read: int(read[0].get("gpus", 0))) if rows and "times_one_gpu" in rows[0]]
    shares = scaling.numbers(ranked)
    if shares:
        made["scaling"] = Picture(shares, scaling.paint, (11, 4.5))
    for name, rows in surfaces.items():
        made[name] = Picture(surface_report.numbers(surface_report.lines(rows)), surface_report.paint, (11, 4))
    return made


def _peers(found: Sequence[Cell], by: Callable[[Cell], str]) -> Picture:
    numbers = peers_numbers(found, by)
    return Picture(numbers, paint_peers, (11, 1.4 + 0.75 * len(numbers)))
