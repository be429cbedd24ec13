"""How the share of the copy rate depends on the shape of a problem: ``python -m benchmarks.sweep``, on a machine with a GPU.

Sorted sums and maxima of float32 over int32 ids drawn uniformly, 2^28 elements each: over the columns at a mean of 20 rows a segment, and over the
rows of a segment at a few columns. Each point is checked and timed as the cases of ``benchmarks.run``. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import drawing, report, results
from .results import RIGHT, Record, Row
from .run import COPY_BYTES, Bench, copy_rates, measure, no_gpu
from .segment_cases import SegmentCase
from .timing import Copy, Events

OPS = ("segment_sum", "segment_max")
ELEMENTS = 1 << 28
COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 31, 32, 33, 48, 64, 65, 96, 100, 127, 128, 129, 160, 192, 224, 255, 256)
LENGTH = 20  #: rows of a segment, in the mean, where the columns vary
LENGTHS = (*(1 << k for k in range(20)), 1_000_000)
COLUMNS_OF_LENGTHS = (1, 16, 128)  #: where the rows of a segment vary
LABELS = {"columns": f"columns, at {LENGTH} rows a segment", "length": "rows a segment, in the mean"}
PLOT = results.RESULTS.parents[1] / "docs" / "segment_sweep.png"


@dataclass(frozen=True)
class Point:
    """A case, and which of the two panels it is drawn in."""

    panel: str
    op: str
    columns: int
    length: int

    def case(self, elements: int) -> SegmentCase:
        rows = max(1, elements // self.columns)
        return SegmentCase(self.op, "uniform", rows, self.columns, max(1, rows // self.length))


def points() -> Iterator[Point]:
    for op in OPS:
        for columns in COLUMNS:
            yield Point("columns", op, columns, LENGTH)
        for columns in COLUMNS_OF_LENGTHS:
            for length in LENGTHS:
                yield Point("length", op, columns, length)


def records(found: Sequence[tuple[Point, Row]]) -> list[Record]:
    """The rows as text, each with the numbers of its point."""
    rows = results.records([row for _, row in found])
    return [
        {"panel": point.panel, "columns": str(point.columns), "length": str(point.length), **row} for (point, _), row in zip(found, rows, strict=True)
    ]


def curves(rows: Sequence[Record], panel: str) -> dict[str, list[tuple[int, float]]]:
    """Label → (abscissa, % of the copy rate) of the points that were timed."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row["panel"] == panel and row["share_of_copy"]:
            label = row["op"] if panel == "columns" else f"{row['op']}, {row['columns']} columns"
            found.setdefault(label, []).append((int(row[panel]), 100 * float(row["share_of_copy"])))
    return found


def numbers(rows: Sequence[Record]) -> dict[str, Any]:
    """The curves of both panels."""
    return {panel: curves(rows, panel) for panel in LABELS}


def paint(figure: Any, numbers: dict[str, Any], colours: Mapping[str, str]) -> None:
    """Two panels side by side."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (panel, label) in zip(panels, LABELS.items(), strict=True):
        for name, curve in numbers[panel].items():
            dashed = OPS[1] in name
            axes.plot(*zip(*curve, strict=True), label=name, marker=".", linestyle="--" if dashed else "-")
        axes.set_xscale("log", base=2 if panel == "columns" else 10)
        axes.set_xlabel(label)
        axes.grid()
        axes.legend()
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("% of the rate of a copy on the device")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file (default: results/sweep_<gpu>.csv)")
    parser.add_argument("--plot", type=Path, default=PLOT, metavar="FILE", help="where it is drawn (default: docs/segment_sweep.png)")
    parser.add_argument("--repeats", type=int, default=25, metavar="N", help="samples of each time (default: %(default)s)")
    parser.add_argument("--elements", type=int, default=ELEMENTS, metavar="N", help="of each point (default: 2^28)")
    arguments = parser.parse_args(argv)
    if no_gpu("benchmarks.sweep"):
        return 2
    import cupy

    from numba_baracuda.runtime import driver

    screen, header = report.console(), results.stamp()
    bench, copy = Bench(cupy, Events(cupy), (), arguments.repeats, driver.l2_bytes()), Copy(cupy, COPY_BYTES)
    path, found = arguments.csv or results.default_path("sweep", header["gpu"]), list[tuple[Point, Row]]()
    for point in points():
        found += [(point, row) for row in measure(point.case(arguments.elements), bench, copy)]
        header["copy_gb_s"] = copy_rates([row for _, row in found])
        last = records(found[-1:])[0]
        share = last["share_of_copy"] and f"{float(last['share_of_copy']):.1%}"
        screen.print(f"{point.op:12s} {point.columns:4d} columns {point.length:8d} rows {share or last['checked']}", markup=False)
        results.write_csv(path, header, records(found))
    drawing.save(arguments.plot, paint, numbers(records(found)), (12, 4.5))
    screen.print(f"written to {path} and {arguments.plot}", markup=False)
    return 1 if any(row.checked != RIGHT for _, row in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
