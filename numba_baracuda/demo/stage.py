"""What sections of the demo have in common: where they print, compute and wait, and how they judge a result."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.rule import Rule

#: tells how much is done, of how much, and a remark
Tell = Callable[..., None]


@dataclass(frozen=True)
class Stage:
    """Where a section runs. ``xp`` is NumPy where kernels are emulated, else CuPy; ``quick`` leaves out what takes long."""

    console: Console
    xp: ModuleType
    quick: bool = False
    plots: Path | None = None  #: folder of plots, if they are wanted

    @property
    def emulated(self) -> bool:
        return self.xp.__name__ == "numpy"

    def begin(self, title: str) -> None:
        """A line above all that a section prints."""
        self.console.print()
        self.console.print(Rule(title, align="left", style="dim"))

    def say(self, text: str, style: str = "") -> None:
        """A paragraph, broken between words."""
        self.console.print(text, markup=False, highlight=False, style=style)

    def verdict(self, what: str, error: float, tolerance: float, also: bool = True) -> bool:
        """Say how large the error of ``what`` is; whether it is within the tolerance, and ``also`` holds."""
        right = error <= tolerance and also
        within = "within" if right else "NOT WITHIN"
        text = f"{what} against float64 NumPy: largest relative error {error:.1e}, {within} the tolerance of {tolerance:.0e}."
        self.say(text, "green" if right else "bold red")
        return right

    @contextmanager
    def waiting(self, title: str, total: int | None = None) -> Iterator[Tell]:
        """A bar on the terminal while the block runs; the block is given a function of how much is done, how much there is, and a remark."""
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[remark]}"))
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as progress:
            task = progress.add_task(title, total=total, remark="")

            def tell(done: int, total: int | None = total, remark: str = "") -> None:
                progress.update(task, completed=done, total=total, remark=remark)

            yield tell

    def plot(self, name: str, draw: Callable[[Any], None]) -> None:
        """Draw on the axes of a new figure and save it as PNG, if plots are wanted; needs matplotlib."""
        if self.plots is None:
            return
        figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4), layout="constrained")
        draw(figure.subplots())
        self.plots.mkdir(parents=True, exist_ok=True)
        path = self.plots / f"{name}.png"
        figure.savefig(path, dpi=150)
        self.say(f"Plot: {path}", "dim")


def host(array: Any) -> Any:
    """The array as NumPy's."""
    return array.get() if hasattr(array, "get") else array
