"""What the launches of reductions have in common: specs, and arguments that follow from a problem."""

from __future__ import annotations

from ..algebra import KernelMonoid
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.policy import tuned
from ..core.spec import KernelSpec
from .geometry import Geometry
from .policy import FoldColumns, FoldRows
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


def halves_about_pivot(problem: Problem, monoid: KernelMonoid, size: int) -> bool:
    """Whether halves along one axis are summed about a pivot."""
    return bool(monoid.pivot_terms) and size == 2 and len(problem.shape) == 1


def resident_of(kernel: str, problem: Problem, geometry: Geometry, monoid: KernelMonoid, value: str) -> int:
    """Blocks of a fold that a multiprocessor should hold; 0 where the compiler leaves registers for enough of them, or would have too few."""
    columns, size, axes = tuned(FoldColumns()), BY_NAME[value].itemsize, len(problem.shape)
    light = 1 < size < 8 and axes == 1 and problem.vector > 1 and not (monoid.foreign or monoid.pivot_terms) and monoid.width < 3
    if kernel == "fold_rows":
        light = light and geometry.lanes == THREADS and len(problem.kept_shape) < 3
        return tuned(FoldRows()).min_blocks_per_multiprocessor if light else 0
    if kernel != "fold_columns":
        return 0
    if halves_about_pivot(problem, monoid, size) and not monoid.unit_pivot_suffices:
        return columns.min_blocks_with_two_terms if monoid.term_count == 2 else columns.min_blocks_with_one_term
    if problem.vector == 1:
        return columns.min_blocks_per_multiprocessor if axes == 2 and size < 8 and not monoid.foreign else 0
    light = light and not problem.peeled and monoid.width == 1 and BY_NAME[monoid.kind or BY_NAME[value].accumulator].itemsize < 8
    return columns.min_blocks_of_vectors if light else 0
