"""A family over shapes drawn at random: ``python -m benchmarks.surface --family reduce --seed 1``, on a machine with a GPU.

A cell is a case that depends on the seed and its number alone, so a shorter run measures the first cells of a longer one. Cells are checked and timed
as ``benchmarks.run`` checks and times its cases, beside PyTorch and JAX.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from . import drawing, report, results
from .results import Record, Row
from .run import COPY_BYTES, Bench, copy_rates, framework_names, load_frameworks, measure, no_gpu
from .surface_cells import DIRECTIONS, FAMILIES, SETS, WORK, Cell, cells
from .surface_kernels import compile_all
from .surface_report import Line, lines, listing, numbers, paint, summary, verdicts, worst
from .timing import Copy, Events

#: share of the device's memory that JAX may take; JAX gives none of it back
JAX_SHARE = 0.4


def records(cell: Cell, rows: Sequence[Row]) -> list[Record]:
    """The rows of a cell as text, with the cell's facts in front."""
    return [{**cell.facts, **record} for record in results.records(rows)]


def survey(drawn: Iterable[Cell], bench: Bench, copy: Copy, screen: Console, path: Path | None, header: Record, until: float) -> list[Record]:
    """Measures cells until ``time.monotonic()`` reaches ``until``, prints each, and keeps the file up to date."""
    found, rows, redrawn = list[Record](), list[Row](), 0
    for cell in drawn:
        if time.monotonic() >= until:
            break
        start, measured = time.monotonic(), measure(cell.case, bench, copy)
        made, redrawn = records(cell, measured), redrawn + cell.redrawn
        rows += measured
        found += made
        screen.print(f"{lines(made)[0]}  ({time.monotonic() - start:.1f} s)", markup=False, soft_wrap=True)
        header |= {"cells": str(cell.number + 1), "redrawn": str(redrawn), "copy_gb_s": copy_rates(rows)}
        if path:
            results.write_csv(path, header, found)
    return found


def conclude(found: Sequence[Record], header: Record, screen: Console, plot: Path | None) -> int:
    """Prints the statistics of all cells; 1 where one of ours is wrong or fails."""
    every = lines(found)
    if not every:
        screen.print("benchmarks.surface: no cell was measured", markup=False)
        return 1
    title = ", ".join(f"{key} {header[key]}" for key in ("family", "seed", "direction", "gpu", "copy_gb_s", "commit") if key in header)
    screen.print(summary(every, title))
    for what, group in worst(every).items():
        screen.print(listing(group, f"\n{what}, {len(group)} cells:"), soft_wrap=True)
    failed = [line for line in every if not line.right]
    peers = ", ".join(f"{what} {count}" for what, count in verdicts(found).items()) or "none"
    screen.print(f"\n{len(every)} cells done, {header['redrawn']} redrawn for want of memory, {len(failed)} wrong or failed", markup=False)
    screen.print(f"peers left out: {peers}", markup=False)
    for line in failed:
        screen.print(str(line), markup=False, soft_wrap=True)
    if plot:
        drawing.save(plot, paint, numbers(every), (12, 4.5))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.surface", description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--seed", type=int, required=True, metavar="K", help="seed of the cells")
    parser.add_argument("--cells", type=int, default=150, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="T", help="begin no cell after this time, compilation aside")
    parser.add_argument("--direction", choices=DIRECTIONS, default="both", help="default: both, each for half of the cells")
    parser.add_argument("--sparse", action="store_true", help="segments that are mostly empty, up to 256 for each row")
    parser.add_argument("--against", type=framework_names, default="torch,jax", metavar="NAME,NAME", help="peers (default: torch,jax)")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="samples of each time, fewer for slow calls (default: %(default)s)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="plot of the distributions; needs matplotlib")
    parser.add_argument("--tiny", action="store_true", help="a few hundred elements a cell, to try the harness; the times mean nothing")
    parser.add_argument("--list", action="store_true", help="list the cells, drawn without a limit of memory")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser, begun = _parser(), time.monotonic()
    arguments = parser.parse_args(argv)
    if arguments.sparse and arguments.family != "segment":
        parser.error(f"--sparse is for --family segment, not {arguments.family}")
    screen, asked = report.console(), (arguments.family, arguments.seed, arguments.direction, arguments.cells)
    if arguments.list:
        for cell in cells(*asked, sparse=arguments.sparse):
            screen.print(str(Line(cell.facts, cell.case.op, "", "")).rstrip(), markup=False, soft_wrap=True)
        return 0
    if no_gpu("benchmarks.surface"):
        return 2
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", str(JAX_SHARE))
    import cupy

    from numba_baracuda.runtime import driver

    frameworks = load_frameworks(arguments.against, cupy, screen)
    bench, copy = Bench(cupy, Events(cupy), frameworks, arguments.repeats, driver.l2_bytes()), Copy(cupy, COPY_BYTES)
    free, total = cupy.cuda.runtime.memGetInfo()
    free -= JAX_SHARE * total if "jax" in arguments.against else 0
    header = results.stamp() | {"family": arguments.family, "seed": str(arguments.seed), "direction": arguments.direction, "redrawn": "0"}
    header["memory"] = f"{free / 1e9:.1f} GB; a cell that takes more is redrawn: {SETS} x its operands and {WORK} x the largest in float64"
    header |= {"sparse": "yes"} if arguments.sparse else {}
    screen.print("\n".join(f"{key}: {value}" for key, value in header.items()), markup=False)
    drawn = list(cells(*asked, free, arguments.sparse))
    if arguments.tiny:
        drawn = [replace(cell, case=cell.case.tiny()) for cell in drawn]
    compiled, start = compile_all(cell.case for cell in drawn), time.monotonic()
    screen.print(f"{compiled} kernels compiled in {time.monotonic() - begun:.1f} s", markup=False)
    found = survey(drawn, bench, copy, screen, arguments.csv, header, start + arguments.seconds)
    return conclude(found, header, screen, arguments.plot)


if __name__ == "__main__":
    raise SystemExit(main())
