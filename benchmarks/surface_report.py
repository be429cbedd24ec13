"""The statistics of a surface from the rows of its CSV file: shares of the copy rate, ratios to PyTorch and JAX, the worst cells, and a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from .results import OURS, RIGHT, Record
from .surface_cells import ELEMENTS

RIVALS = ("torch", "jax")
PERCENTILES = {"worst": 0, "5 %": 5, "25 %": 25, "50 %": 50, "75 %": 75}
LIMITS = (0.95, 0.8)  #: cells that are fewer times as fast as the better rival are counted
WORST = 20  #: cells that are listed


@dataclass(frozen=True)
class Line:
    """One cell. ``ratios``: how many times as fast as the fastest right peer of each rival; a rival without one is left out."""

    facts: Record
    op: str
    kernel: str
    checked: str
    us: float = 0.0
    share: float = 0.0  #: of the copy rate
    ratios: tuple[tuple[str, float], ...] = ()

    @property
    def right(self) -> bool:
        return self.checked == RIGHT

    @property
    def direction(self) -> str:
        return "backward" if self.op.endswith("_backward") else "forward"

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the better rival."""
        return min((ratio for _, ratio in self.ratios), default=None)

    def __str__(self) -> str:
        words = [f"{self.facts['cell']:>4s}  {self.op:34s} {self.facts['element']:4s}  {self.facts['shape']:22s} {self.facts['axis']:32s}"]
        if not self.right:
            return f"{words[0]} {self.checked}"
        words.append(f"{self.us:10.1f} us {self.share:7.1%}")
        words += [f"{rival} {ratio:.2f} x" for rival, ratio in self.ratios]
        return "  ".join(words)


def lines(rows: Sequence[Record]) -> list[Line]:
    """A line for each cell, in their order."""
    cells: dict[str, list[Record]] = {}
    for row in rows:
        cells.setdefault(row["cell"], []).append(row)
    return [_line(group) for group in cells.values()]


def _line(group: Sequence[Record]) -> Line:
    ours = next(row for row in group if row["who"].startswith(OURS))
    facts = {name: ours[name] for name in ("cell", "element", "shape", "axis")}
    kernel = ours["who"].removeprefix(OURS).strip()
    if ours["checked"] != RIGHT:
        return Line(facts, ours["op"], kernel, ours["checked"])
    us, best = float(ours["median_us"]), dict[str, float]()
    for row in group:
        who = row["who"].partition(" ")[0]
        if who in RIVALS and row["checked"] == RIGHT:
            best[who] = min(float(row["median_us"]), best.get(who, np.inf))
    ratios = tuple((who, best[who] / us) for who in RIVALS if who in best)
    return Line(facts, ours["op"], kernel, RIGHT, us, float(ours["share_of_copy"]), ratios)


def percentiles(found: Sequence[Line]) -> dict[str, float]:
    """Percentiles of the share of the copy rate over the cells that are right."""
    shares = [line.share for line in found if line.right]
    return {name: float(np.percentile(shares, which)) for name, which in PERCENTILES.items()} if shares else {}


def slower(found: Sequence[Line], limit: float) -> int:
    """How many cells are less than ``limit`` times as fast as the better rival."""
    return sum(line.ratio is not None and line.ratio < limit for line in found)


def groups(found: Sequence[Line]) -> dict[str, list[Line]]:
    """All cells, and those of each direction and element that has any."""
    made = {"all": list(found)}
    for name in ("forward", "backward", *ELEMENTS):
        made[name] = [line for line in found if name in (line.direction, line.facts["element"])]
    return {name: group for name, group in made.items() if group}


def summary(found: Sequence[Line], title: str) -> Table:
    """A line for each group of cells."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("share of copy")
    for name in ("cells", *PERCENTILES, "with a rival", *(f"< {limit} x" for limit in LIMITS)):
        table.add_column(name, justify="right")
    for name, group in groups(found).items():
        shares = percentiles(group) or dict.fromkeys(PERCENTILES, float("nan"))
        rivals = sum(line.ratio is not None for line in group)
        counts = [str(slower(group, limit)) for limit in LIMITS]
        table.add_row(name, str(len(group)), *(f"{share:.1%}" for share in shares.values()), str(rivals), *counts)
    return table


def worst(found: Sequence[Line]) -> dict[str, list[Line]]:
    """The cells with the least share of the copy rate, and the slowest beside the better rival; the worst first."""
    by_share = sorted((line for line in found if line.right), key=lambda line: line.share)
    beaten = [(line.ratio, line) for line in found if line.ratio is not None and line.ratio < LIMITS[0]]
    by_ratio = [line for _, line in sorted(beaten, key=lambda pair: pair[0])]
    return {"least share of copy": by_share[:WORST], f"less than {LIMITS[0]} x the better of {' and '.join(RIVALS)}": by_ratio[:WORST]}


def listing(found: Sequence[Line], title: str) -> Text:
    """A line for each cell, with the kernel that ran."""
    return Text("\n".join([title, *(f"{line}  {line.kernel}" for line in found)]))


def verdicts(rows: Sequence[Record]) -> dict[str, int]:
    """How many peers were left out, by library and reason: failed, wrong, or too slow."""
    found = Counter[str]()
    for row in rows:
        if not row["who"].startswith(OURS) and row["checked"] != RIGHT:
            found[f"{row['who'].partition(' ')[0]} {row['checked'].partition(':')[0]}"] += 1
    return dict(sorted(found.items()))


def numbers(found: Sequence[Line]) -> dict[str, Any]:
    """Shares of the copy rate in per cent by element, and ratios by rival, in ascending order."""
    shares, ratios = dict[str, list[float]](), dict[str, list[float]]()
    for line in found:
        if line.right:
            shares.setdefault(line.facts["element"], []).append(100 * line.share)
        for rival, ratio in line.ratios:
            ratios.setdefault(rival, []).append(ratio)
    return {what: {name: sorted(values) for name, values in curves.items()} for what, curves in (("shares", shares), ("ratios", ratios))}


def paint(figure: Any, numbers: dict[str, Any], colours: Mapping[str, str]) -> None:
    """Cumulative distributions: of the share of the copy rate for each element, and of the ratio to each rival."""
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, curves in ((left, numbers["shares"]), (right, numbers["ratios"])):
        for name, values in curves.items():
            height = 100 * (np.arange(len(values)) + 1) / len(values)
            axes.plot(values, height, drawstyle="steps-post", label=f"{name}, {len(values)} cells", color=colours.get(name))
        axes.grid()
        if curves:
            axes.legend()
    for limit in (1, *LIMITS):
        right.axvline(limit, color="grey", linestyle="-" if limit == 1 else "--", linewidth=0.8)
    right.set_xscale("log", base=2)
    right.xaxis.set_major_formatter("{x:g}")
    left.set_xlim(left=0)
    left.set_ylabel("% of the cells")
    left.set_xlabel("% of the rate of a copy on the device")
    right.set_xlabel("times as fast as the best peer of each library")
