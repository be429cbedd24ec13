"""What the launches of reductions have in common: specs, and arguments that follow from a problem."""

from __future__ import annotations

from ..core.axes import ceil_div
from ..core.spec import KernelSpec
from .geometry import Geometry
from .problem import Problem
from .tiling import THREADS


def spec_of(kernel: str, *, resident: int = 0, **constants: int | str | bool) -> KernelSpec:
    """The spec of a kernel by its name, with so many ``resident`` blocks for each multiprocessor."""
    return KernelSpec(f"numba_baracuda.reduce.kernels:{kernel}", tuple(sorted(constants.items())), THREADS, resident)


def form_of(problem: Problem) -> str:
    """The kernels' word for what becomes one element of the result: rows if its elements are contiguous, else columns."""
    return "rows" if problem.row_contiguous else "columns"


def kept_strides(**strides: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Arguments for the parameters ``x_kept_strides`` and the like."""
    return {f"{name}_kept_strides": each for name, each in strides.items()}


def extents(problem: Problem) -> dict[str, int]:
    """Arguments that say how many rows or columns there are, and how long."""
    columns = {} if problem.row_contiguous else {"longer": problem.longer}
    return {form_of(problem): problem.rows, **columns, "extent": problem.extent}


def splits(problem: Problem, geometry: Geometry) -> dict[str, int]:
    """Arguments that say how blocks share them."""
    if problem.row_contiguous:
        return {"splits": geometry.splits}
    adjacent = problem.adjacent_vectors
    whole = adjacent >= geometry.lanes or geometry.lanes % adjacent == 0
    return {"splits": geometry.splits, "across": ceil_div(adjacent, geometry.lanes) if whole else geometry.blocks}
