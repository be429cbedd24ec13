"""Tables and a plot of results: ``python -m benchmarks.report results/*.csv [--plot FILE.png]``. The plot needs matplotlib."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .results import OURS, RIGHT, Record, read_csv

_LINE = ("who", "median_us", "low_us", "high_us", "gb_s", "share_of_copy", "vs_best_peer", "checked")


def console() -> Console:
    """A console as wide as the terminal, or as the tables where there is none."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=220)


def case_table(rows: Sequence[Record]) -> Table:
    """Every contestant of one case."""
    table = Table(
        title=f"{rows[0]['op']} {rows[0]['case']}, {int(rows[0]['bytes']) / 1e6:,.1f} MB", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for name in _LINE:
        table.add_column(name, justify="left" if name in ("who", "checked") else "right")
    for row in rows:
        remark = row["checked"] + (f" ({row['note']})" if row["note"] else "")
        cells = {**row, "share_of_copy": _percent(row["share_of_copy"]), "checked": remark}
        table.add_row(*(Text(cells[name]) for name in _LINE))
    return table


def _percent(share: str) -> str:
    return f"{float(share):.1%}" if share else ""


def cases(rows: Sequence[Record]) -> dict[tuple[str, str], list[Record]]:
    """The rows of each op and case."""
    found: dict[tuple[str, str], list[Record]] = {}
    for row in rows:
        found.setdefault((row["op"], row["case"]), []).append(row)
    return found


def _best(rows: Sequence[Record]) -> Record | None:
    """The best peer of a case."""
    timed = [row for row in rows if row["median_us"] and row["checked"] == RIGHT and not row["who"].startswith(OURS)]
    return min(timed, key=lambda row: float(row["median_us"]), default=None)


def summary(rows: Sequence[Record], title: str) -> Table:
    """A line for each case: ours, and the best peer."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("op", "case", "kernel", "us", "of copy", "best peer", "us", "of copy", "times as fast"):
        table.add_column(name, justify="left" if name in ("op", "case", "kernel", "best peer") else "right")
    for (op, case), group in cases(rows).items():
        best = _best(group)
        peer = [best["who"], best["median_us"], _percent(best["share_of_copy"])] if best else ["", "", ""]
        for row in group:
            if row["who"].startswith(OURS):
                time = row["median_us"] or row["checked"].partition(":")[0]
                cells = (op, case, row["who"].removeprefix(OURS).strip(), time, _percent(row["share_of_copy"]), *peer, row["vs_best_peer"])
                table.add_row(*map(Text, cells))
    return table


def _title(path: Path, header: Record) -> str:
    facts = ", ".join(f"{key} {header[key]}" for key in ("gpu", "copy_gb_s", "commit", "date") if key in header)
    return f"{path.name}: {facts}"


def plot(path: Path, rows: Sequence[Record], title: str) -> None:
    """A bar chart of shares of the copy rate: ours next to the best peer's."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    groups = cases(rows)
    labels = [f"{op}\n{case}" for op, case in groups]
    ours = [next((row for row in group if row["who"].startswith(OURS)), None) for group in groups.values()]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.5 * len(labels)), layout="constrained")
    bars: list[tuple[str, list[Any], float]] = [(OURS, ours, -0.2), ("best peer", [_best(group) for group in groups.values()], 0.2)]
    for label, contestants, offset in bars:
        shares = [100 * float(row["share_of_copy"] or 0) if row else 0 for row in contestants]
        axes.barh([place + offset for place in range(len(labels))], shares, height=0.38, label=label)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("% of the rate of a copy on the device")
    axes.set_title(title, fontsize=8)
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="Share of the copy rate per case, from CSV files.")
    parser.add_argument("files", nargs="+", type=Path, metavar="CSV", help="written by python -m benchmarks.run")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the last of the files")
    arguments = parser.parse_args(argv)
    screen = console()
    for file in arguments.files:
        header, rows = read_csv(file)
        if not rows or "share_of_copy" not in rows[0]:
            screen.print(f"report: {file} holds no shares of the copy rate", markup=False)
            return 2
        screen.print(summary(rows, _title(file, header)))
    if arguments.plot:
        plot(arguments.plot, rows, _title(file, header))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
