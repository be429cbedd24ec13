"""``numba-baracuda demo``: each family of ops at work on data that the machine already has, checked against NumPy.

A section is a function ``run(stage) -> bool``: it prints and computes on its :class:`Stage`, and returns whether its results were within the
tolerance it printed.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from rich.console import Console

from . import attention, inequality, next_byte, rates, segments, sizes
from .stage import Stage

Section = Callable[[Stage], bool]
#: in the order they are printed; a family adds its own here
SECTIONS: tuple[Section, ...] = (segments.run, attention.run, sizes.run, inequality.run, next_byte.run, rates.run)


def array_library() -> ModuleType:
    """NumPy where the kernels are emulated, else CuPy."""
    from ..arrays.arrays import emulating

    if emulating():
        import numpy

        return numpy
    import cupy

    return cupy  # type: ignore[no-any-return, unused-ignore]


def run(console: Console, quick: bool = False, plots: Path | None = None) -> int:
    """Run every section; the exit status, 0 if all results were right. ``plots`` is the folder for plots, which need matplotlib."""
    if plots is not None and importlib.util.find_spec("matplotlib") is None:
        console.print("demo: --plot wants matplotlib: pip install 'numba-baracuda[notebooks]'", markup=False)
        return 2
    return _run(console, SECTIONS, quick, plots)


def bench(console: Console) -> int:
    """Run the section that measures; the exit status, 2 without a GPU."""
    from ..arrays.arrays import emulating

    if emulating():
        console.print(
            "bench: kernels run in the CPU emulator, whose times say nothing about a GPU; see numba-baracuda info", markup=False, soft_wrap=True
        )
        return 2
    return _run(console, (rates.run,))


def _run(console: Console, sections: tuple[Section, ...], quick: bool = False, plots: Path | None = None) -> int:
    from ..arrays.emulation import EmulationWarning
    from ..core.errors import BaracudaError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)  # the section says it in a line of its own
        try:
            stage = Stage(console, array_library(), quick, plots)
            right = [section(stage) for section in sections]
        except ImportError as error:
            console.print(f"{error}; on a GPU the demo wants CuPy: pip install 'numba-baracuda[cuda12]' (or [cuda13])", markup=False, soft_wrap=True)
            return 1
        except BaracudaError as error:
            console.print(f"{type(error).__name__}: {error}", markup=False, soft_wrap=True)
            return 1
    return 0 if all(right) else 1
