"""Plots of all results, ``python -m benchmarks.report``, and tables of some, ``python -m benchmarks.report results/ops_*.csv``.

The plots are those of README.md and of the site. They need matplotlib.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from .results import OURS, RESULTS, RIGHT, Record, read_csv

PLOTS = RESULTS.parents[1] / "docs" / "_static" / "plots"
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


def draw(folder: Path, plots: Path) -> list[Path]:
    """Draw everything that the result files of ``folder`` have numbers for, and delete the plots that they have none for any more."""
    from .drawing import save_all
    from .pictures import pictures

    found = track(pictures(folder).items(), "Drawing", transient=True, disable=not console().is_terminal)
    made = [path for name, each in found for path in save_all(plots, name, each.paint, each.numbers, each.size)]
    for path in {*plots.glob("*.svg"), *plots.glob("*.png")} - set(made):
        path.unlink()
    return made


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="CSV", help="written by python -m benchmarks.run: print tables instead of drawing")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="what is drawn (default: benchmarks/results)")
    parser.add_argument("--plots", type=Path, default=PLOTS, metavar="DIR", help="where (default: docs/_static/plots)")
    arguments = parser.parse_args(argv)
    screen = console()
    for file in arguments.files:
        header, rows = read_csv(file)
        if not rows or "share_of_copy" not in rows[0]:
            screen.print(f"report: {file} holds no shares of the copy rate", markup=False)
            return 2
        screen.print(summary(rows, _title(file, header)))
    if not arguments.files:
        screen.print(f"{len(draw(arguments.results, arguments.plots))} files written to {arguments.plots}", markup=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
