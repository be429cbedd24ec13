"""Demo of the reduce family: how large the source files of the standard library's packages are."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ..reduce.ops import FUNCTIONS
from .imports import Module, find_modules
from .stage import Stage, host

FILES = 8  #: of each package, the largest
SHOWN = 10
RELATIVE_TOLERANCE = 1e-5
#: what is computed of the sizes of each package's files in bytes; the last of their logarithms, so that it is the logarithm of the sum
STATISTICS = ("sum", "mean", "std", "logsumexp")


def largest_files(modules: Iterable[Module]) -> tuple[list[str], NDArray[np.float32]]:
    """The packages with at least ``FILES`` files by what these take together, and the sizes of each one's largest, in bytes."""
    sizes: dict[str, list[int]] = {}
    for module in modules:
        package, inside, _ = module.name.partition(".")
        if inside or module.is_package:
            sizes.setdefault(package, []).append(max(module.path.stat().st_size, 1))
    kept = {package: sorted(each)[-FILES:] for package, each in sizes.items() if len(each) >= FILES}
    order = sorted(kept, key=lambda package: -sum(kept[package]))[:SHOWN]
    return order, np.array([kept[package] for package in order], np.float32).reshape(len(order), FILES)


def statistics(xp: ModuleType, sizes: NDArray[np.float32]) -> dict[str, Any]:
    """Each of ``STATISTICS`` over the files of every package."""
    x = xp.asarray(sizes)
    return {name: host(FUNCTIONS[f"reduce_{name}"](xp.log(x) if name == "logsumexp" else x, 1, keepdims=False)) for name in STATISTICS}


def statistics_float64(sizes: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """The same in float64 NumPy."""
    x = sizes.astype(np.float64)
    return {"sum": x.sum(1), "mean": x.mean(1), "std": x.std(1, ddof=1), "logsumexp": np.log(x.sum(1))}


def run(stage: Stage) -> bool:
    """Print the packages with the largest files, and the error against float64."""
    stage.begin("Reductions: how large source files are")
    packages, sizes = largest_files(find_modules(Path(sysconfig.get_paths()["stdlib"])))
    if not packages:
        stage.say("This interpreter comes without the sources of its library: no sizes to reduce.")
        return True
    with stage.waiting("Reducing"):
        found = statistics(stage.xp, sizes)
    wanted = statistics_float64(sizes)
    table = Table(title=f"Bytes of the {FILES} largest files of the largest packages")
    table.add_column("package")
    for title in STATISTICS:
        table.add_column("log of sum" if title == "logsumexp" else title, justify="right")
    for row, package in enumerate(packages):
        table.add_row(package, *(f"{found[name][row]:,.2f}" if name == "logsumexp" else f"{found[name][row]:,.0f}" for name in STATISTICS))
    stage.console.print(table)
    stage.plot("sizes", lambda axes: _draw(axes, packages, found))
    worst = float(np.max([abs(found[name] - wanted[name]) / abs(wanted[name]) for name in STATISTICS]))
    return stage.verdict("Statistics in float32", worst, RELATIVE_TOLERANCE)


def _draw(axes: Any, packages: list[str], found: dict[str, Any]) -> None:
    axes.barh(packages, found["mean"], xerr=found["std"])
    axes.invert_yaxis()
    axes.set(xlabel=f"bytes of the {FILES} largest files, mean and standard deviation")
