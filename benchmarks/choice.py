"""Whether the fastest variant is chosen for ids in any order: ``python -m benchmarks.choice``, on a machine with a GPU.

Every variant that serves a cell is checked against float64 and timed, on the same operands. A cell is an op, an element, columns, rows of a segment
in the mean, and a distribution of ids, of which the choice knows nothing. Cells come in a random order, so a run that ``--seconds`` ends has measured
some of each kind.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from numba_baracuda import OPS, PlanPreference, SegmentDescriptor
from numba_baracuda.plans.plan import select

from . import peers, report, results
from .case import Arrays
from .results import RIGHT, Record
from .run import message, no_gpu, verify
from .segment_cases import SegmentCase
from .surface_kernels import compile_all
from .timing import Events

#: ops of each kind that variants tell apart, with their elements
KINDS = (
    ("sum", "f32"), ("sum", "bf16"), ("sum", "f64"), ("mean", "f32"), ("mean", "bf16"), ("max", "f32"), ("max", "bf16"), ("prod", "f32"),
    ("prod", "bf16"), ("var", "f32"), ("argmax", "f32"),
)  # fmt: skip
COLUMNS = (1, 2, 3, 8, 16, 37, 128, 400)
LENGTHS = (1.4, 6, 30, 150, 700, 4096)  #: rows of a segment, in the mean
IDS = ("uniform", "hot")
ELEMENTS = 1 << 26
#: how a choice is named, and whether it is deterministic
WAYS = {"default": True, "any_order": False}


@dataclass(frozen=True)
class Choice:
    """A cell: its case without a variant, the variants that serve it, and the one that is chosen in each of ``WAYS``."""

    case: SegmentCase
    variants: tuple[str, ...]
    chosen: dict[str, str]

    @classmethod
    def of(cls, case: SegmentCase) -> Choice:
        op, descriptor = OPS[case.op], SegmentDescriptor(case.op, case.rows, case.columns, case.segments, case.element, case.index)
        serving = tuple(variant.name for variant in op.variants if variant.refuses(op, descriptor) is None)
        chosen = {way: select(descriptor, PlanPreference(deterministic=fixed)).variant.name for way, fixed in WAYS.items()}
        return cls(case, serving, chosen)

    def cases(self) -> Iterator[SegmentCase]:
        """The case with each variant."""
        return (replace(self.case, variant=name) for name in self.variants)


def cells(seed: int, elements: int = ELEMENTS) -> list[SegmentCase]:
    """All cells in the order of a seed."""
    drawn = [
        SegmentCase(f"unsorted_segment_{stem}", ids, elements // columns, columns, max(1, round(elements // columns / length)), element)
        for stem, element in KINDS
        for columns in COLUMNS
        for length in LENGTHS
        for ids in IDS
    ]
    return [drawn[k] for k in np.random.default_rng(seed).permutation(len(drawn))]


def measure(xp: Any, choice: Choice, timer: Callable[..., Any], repeats: int) -> list[Record]:
    """A record for each variant; without a time where it is wrong or fails."""
    case, found = choice.case, list[Record]()
    operands: Arrays = case.make(xp)
    wanted = case.truth(xp, operands)
    peers.release(xp)
    for variant in choice.cases():
        microseconds, checked = "", RIGHT
        try:
            call = variant.prepare(xp)[1](operands)
            checked = verify(xp, variant, operands, call, wanted) or RIGHT
            microseconds = f"{timer([call], repeats).median:.2f}" if checked == RIGHT else ""
        except Exception as error:  # from a compiler, the driver or an allocator: other variants still run
            checked = f"FAILED: {message(error)}"
        fixed = next(each.deterministic for each in OPS[case.op].variants if each.name == variant.variant)
        ways = " ".join(way for way, name in choice.chosen.items() if name == variant.variant)
        found.append(
            {
                "op": case.op, "element": case.element, "rows": str(case.rows), "columns": str(case.columns), "segments": str(case.segments),
                "ids": case.ids, "variant": variant.variant, "deterministic": str(fixed), "chosen": ways, "median_us": microseconds,
                "checked": checked,
            }
        )  # fmt: skip
    return found


def ratios(found: Sequence[Record], way: str) -> list[tuple[float, list[Record]]]:
    """The time of the chosen variant by that of the fastest one that the way admits, of each cell, and the cell's records; the worst first."""
    by_cell: dict[tuple[str, ...], list[Record]] = {}
    for record in found:
        by_cell.setdefault(tuple(record[key] for key in ("op", "element", "rows", "columns", "segments", "ids")), []).append(record)
    made = []
    for records in by_cell.values():
        timed = [each for each in records if each["median_us"] and (not WAYS[way] or each["deterministic"] == "True")]
        ours = [float(each["median_us"]) for each in timed if way in each["chosen"].split()]
        if ours:
            made.append((ours[0] / min(float(each["median_us"]) for each in timed), records))
    return sorted(made, key=lambda each: -each[0])


def line(records: Sequence[Record]) -> str:
    """A cell and the time of each of its variants; ``*`` marks the default, ``+`` the choice with any order."""
    first = records[0]
    marks = {"default": "*", "any_order": "+"}
    times = [f"{each['variant']}{''.join(marks[way] for way in each['chosen'].split())} {each['median_us'] or each['checked']}" for each in records]
    return f"{first['op']} {first['element']} {first['rows']}x{first['columns']} S{first['segments']} {first['ids']}: {', '.join(times)}"


def conclude(found: Sequence[Record], screen: Console) -> int:
    """Prints the statistics; 1 where a variant is wrong or fails."""
    for way in WAYS:
        made = ratios(found, way)
        if not made:
            continue
        within = {limit: sum(ratio <= limit for ratio, _ in made) / len(made) for limit in (1.1, 1.3)}
        shares = ", ".join(f"within {limit} x in {share:.1%}" for limit, share in within.items())
        screen.print(f"\n{way}: the chosen variant is {shares} of {len(made)} cells; the worst:", markup=False)
        for ratio, records in made[:20]:
            screen.print(f"{ratio:6.2f}  {line(records)}", markup=False, soft_wrap=True)
    failed = [record for record in found if record["checked"] != RIGHT]
    for record in failed:
        screen.print(f"{line([record])}", markup=False, soft_wrap=True)
    return 1 if failed or not found else 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, metavar="K", help="seed of the order of the cells (default: %(default)s)")
    parser.add_argument("--cells", type=int, metavar="N", help="how many (default: all)")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="T", help="begin no cell after this time, compilation aside")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="samples of each time, fewer for slow calls (default: %(default)s)")
    parser.add_argument("--elements", type=int, default=ELEMENTS, metavar="N", help="of each cell (default: 2^26)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file (default: results/choice_<gpu>.csv)")
    arguments = parser.parse_args(argv)
    if no_gpu("benchmarks.choice"):
        return 2
    import cupy

    screen, header, events = report.console(), results.stamp(), Events(cupy)
    choices = [Choice.of(case) for case in cells(arguments.seed, arguments.elements)[: arguments.cells]]
    compiled = compile_all(case for choice in choices for case in choice.cases())
    screen.print(f"{compiled} kernels compiled", markup=False)
    path, found, until = arguments.csv or results.default_path("choice", header["gpu"]), list[Record](), time.monotonic() + arguments.seconds
    for choice in choices:
        if time.monotonic() >= until:
            break
        made = measure(cupy, choice, events, arguments.repeats)
        found += made
        screen.print(line(made), markup=False, soft_wrap=True)
        results.write_csv(path, header, found)
    return conclude(found, screen)


if __name__ == "__main__":
    raise SystemExit(main())
