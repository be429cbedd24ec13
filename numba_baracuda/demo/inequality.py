"""Demo of the scan family: how unevenly the standard library's bytes are spread over its source files, and which files set a record of size.

The curve is that of M. O. Lorenz, Methods of Measuring the Concentration of Wealth, 1905: what share of all bytes the smallest files hold together.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..scan.ops import FUNCTIONS
from .imports import Module, find_modules
from .stage import Stage, host

RELATIVE_TOLERANCE = 1e-5  #: of a float32 sum of whole bytes, which is exact below 2²⁴; a maximum does not round
TENTHS = 10
BAR = 40  #: columns for all bytes


def file_sizes(modules: Iterable[Module]) -> tuple[list[str], NDArray[np.float32]]:
    """The names of the modules in alphabetical order, and how many bytes the source of each takes; a link to no file is left out."""
    sizes = {module.name: module.path.stat().st_size for module in modules if module.path.is_file()}
    names = sorted(sizes)
    return names, np.array([sizes[name] for name in names], np.float32)


def scans(xp: ModuleType, sizes: NDArray[np.float32]) -> dict[str, Any]:
    """``cumsum`` of the sizes, smallest first, and ``cummax`` of the sizes in the order given."""
    x = xp.asarray(sizes)
    return {"cumsum": host(FUNCTIONS["cumsum"](xp.sort(x), 0)), "cummax": host(FUNCTIONS["cummax"](x, 0))}


def scans_float64(sizes: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """The same in float64 NumPy."""
    x = sizes.astype(np.float64)
    return {"cumsum": np.cumsum(np.sort(x)), "cummax": np.maximum.accumulate(x)}


def lorenz(sums: NDArray[Any]) -> NDArray[np.float64]:
    """Of sums over ever more files, smallest first: the share of all bytes in the first 1, 2 … ``TENTHS`` tenths of the files, in part if need be."""
    shares: NDArray[np.float64] = np.append(0.0, sums / sums[-1])
    return np.interp(np.arange(1, TENTHS + 1) * len(sums) / TENTHS, np.arange(len(shares)), shares)


def gini(sums: NDArray[Any]) -> float:
    """(n + 1 − 2 Σ sums[i] / sums[n − 1]) / n: 0 where all n files are of one size, 1 − 1/n where one of them holds every byte."""
    n = len(sums)
    return float(n + 1 - 2 * sums.sum(dtype=np.float64) / sums[-1]) / n


def records(running: NDArray[Any]) -> NDArray[np.intp]:
    """Where a running maximum of sizes rises, the first position included."""
    return np.flatnonzero(np.diff(running, prepend=-1.0) > 0)


def run(stage: Stage) -> bool:
    """Print the Lorenz curve, the records, the Gini index and the error against float64; no sources, nothing to do."""
    stage.begin("Scans: how unevenly bytes are spread over files")
    names, sizes = file_sizes(find_modules(Path(sysconfig.get_paths()["stdlib"])))
    if not sizes.any():
        stage.say("This interpreter comes without the sources of its library: no sizes to scan.")
        return True
    with stage.waiting("Scanning"):
        found = scans(stage.xp, sizes)
    wanted = scans_float64(sizes)
    stage.console.print(_curve(found["cumsum"]))
    stage.console.print(_records(names, found["cummax"]))
    worst = float(np.max([abs(found[name] - wanted[name]) / np.maximum(wanted[name], 1) for name in wanted]))
    stage.say(f"Gini index {gini(found['cumsum']):.3f} (0: files of one size, 1: all bytes in one file).")
    stage.plot("inequality", lambda axes: _draw(axes, found["cumsum"]))
    return stage.verdict("Scans in float32", worst, RELATIVE_TOLERANCE)


def _curve(sums: NDArray[np.float32]) -> Table:
    table = Table(title=f"How the {len(sums)} files of the standard library share its {sums[-1]:,.0f} bytes")
    table.add_column("smallest files", justify="right")
    table.add_column("hold", justify="right")
    table.add_column("of all bytes")
    for tenth, share in enumerate(lorenz(sums), start=1):
        bar = ProgressBar(total=1.0, completed=share, width=BAR, finished_style="bar.complete")
        table.add_row(f"{tenth / TENTHS:.0%}", f"{share:.1%}", bar)
    return table


def _draw(axes: Any, sums: NDArray[np.float32]) -> None:
    files = np.linspace(0, 100, len(sums) + 1)
    axes.plot(files, 100 * np.append(0, sums / sums[-1]))
    axes.plot([0, 100], [0, 100], color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="% of the files, smallest first", ylabel="% of all bytes", title=f"Lorenz curve of {len(sums)} files")


def _records(names: list[str], running: NDArray[np.float32]) -> Table:
    table = Table(title="Record sizes in order of name")
    table.add_column("module")
    table.add_column("bytes", justify="right")
    for position in records(running):
        table.add_row(names[position], f"{running[position]:,.0f}")
    return table
