"""Measures everything anew: ``python -m benchmarks.renew``, on a machine with a GPU; ``--list`` says what is stale, and needs none.

Each step is a benchmark in a process of its own, which writes one file of benchmarks/results, named by the GPU. Afterwards the plots are drawn.
A step is skipped while all its rows hold (see ``benchmarks.stale``), unless ``--all`` is given or ``--only`` names it.
"""

from __future__ import annotations

import argparse
import fnmatch
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import report, results
from .results import Record
from .run import no_gpu
from .stale import reasons, stale
from .surface_cells import FAMILIES

CARD = "h200"  #: whose files are listed where there is no GPU
SEED = "1"  #: of the surfaces
SECONDS = "1800"  #: a surface ends no later than some cell after this time


@dataclass(frozen=True)
class Step:
    """A file, and the command that writes it."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()

    def command(self, path: Path) -> list[str]:
        return [sys.executable, "-m", f"benchmarks.{self.module}", *self.arguments, "--csv", str(path)]


def _ops(name: str, pattern: str) -> Step:
    return Step(name, "run", ("--op", pattern, "--against", "torch,jax"))


STEPS = (
    _ops("segment_sorted", "segment_*"),
    _ops("segment_unsorted", "unsorted_*"),
    _ops("reduce", "reduce_*"),
    _ops("scan", "*cum*"),
    _ops("scan_axis", "scan_axis"),
    _ops("row_sum", "row_sum"),
    Step("index", "run", ("--op", "SegmentIndex")),
    Step("sweep", "sweep"),
    Step("choice", "choice"),
    Step("loss", "losses"),
    Step("host", "host"),
    Step("first", "first"),
    *(Step(f"surface_{family}", "surface", ("--family", family, "--seed", SEED, "--cells", "1000", "--seconds", SECONDS)) for family in FAMILIES),
)


def survey(steps: Sequence[Step], card: str, now: Record, folder: Path) -> tuple[Table, list[Step]]:
    """A line for each file, and the steps whose file is missing or has rows that do not hold."""
    table, wanted = Table("file", "measured", "rows", "stale", "because", box=None, padding=(0, 2, 0, 0)), list[Step]()
    for step in steps:
        path = folder / f"{step.name}_{card}.csv"
        if not path.exists():
            table.add_row(path.name, "", "", "", "missing")
            wanted.append(step)
            continue
        header, rows = results.read_csv(path)
        count, why = stale(header, rows, now)
        because = "\n".join(f"{reason} ({number} rows)" for reason, number in why.most_common())
        table.add_row(path.name, Text(header.get("date", "")), str(len(rows)), str(count), Text(because))
        if count:
            wanted.append(step)
    return table, wanted


def stale_rows(steps: Sequence[Step], card: str, now: Record, folder: Path) -> Iterator[str]:
    """A line for each row that does not hold: file, op, case or what was measured, contestant, and why."""
    for step in steps:
        path = folder / f"{step.name}_{card}.csv"
        header, rows = results.read_csv(path) if path.exists() else ({}, [])
        for row in rows:
            why = reasons(row, header, now)
            if why:
                yield f"{path.name}: {', '.join(row[key] for key in ('op', 'case', 'what', 'who') if key in row)}: {'; '.join(why)}"


def renew(steps: Sequence[Step], card: str, screen: Console, folder: Path) -> list[str]:
    """Runs the steps one by one and names those that failed; the others go on."""
    failed = []
    for place, step in enumerate(steps, start=1):
        path, start = folder / f"{step.name}_{card}.csv", time.monotonic()
        screen.rule(Text(f"{place} of {len(steps)}: {' '.join(step.command(path)[1:])}"), align="left")
        if subprocess.run(step.command(path), check=False).returncode:
            failed.append(step.name)
        screen.print(f"{step.name}: {'FAILED' if step.name in failed else 'done'} in {time.monotonic() - start:.0f} s", markup=False)
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.renew", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which files and rows are stale, and why; measure nothing")
    parser.add_argument("--rows", action="store_true", help="with --list: also a line for each row that does not hold")
    parser.add_argument("--only", metavar="NAME,NAME", help=f"patterns of steps, of {', '.join(step.name for step in STEPS)}")
    parser.add_argument("--all", action="store_true", help="measure files whose rows all hold, too")
    parser.add_argument("--results", type=Path, default=results.RESULTS, metavar="DIR", help="where files are (default: benchmarks/results)")
    arguments = parser.parse_args(argv)
    screen, patterns = report.console(), (arguments.only or "*").split(",")
    steps = [step for step in STEPS if any(fnmatch.fnmatchcase(step.name, pattern) for pattern in patterns)]
    if not steps:
        screen.print(f"benchmarks.renew: no step matches --only {arguments.only!r}", markup=False)
        return 2
    now = results.stamp()
    card = results.default_path("", now["gpu"]).stem.lstrip("_") if "gpu" in now else CARD
    table, wanted = survey(steps, card, now, arguments.results)
    screen.print(table)
    if "gpu" not in now:
        screen.print("no GPU here: driver, CUDA and card are not compared", markup=False)
    if arguments.list and arguments.rows:
        for line in stale_rows(steps, card, now, arguments.results):
            screen.print(line, markup=False, soft_wrap=True)
    if arguments.list:
        return 0
    if no_gpu("benchmarks.renew"):
        return 2
    failed = renew(steps if arguments.all or arguments.only else wanted, card, screen, arguments.results)
    screen.print(f"{len(report.draw(arguments.results, report.PLOTS))} plots drawn", markup=False)
    for name in failed:
        screen.print(f"{name} failed", markup=False)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
