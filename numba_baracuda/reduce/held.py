"""Rows and columns of so few elements that a thread holds several whole ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algebra import monoid_of
from ..core.axes import c_strides, ceil_div, fitting
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .policy import Block, FoldHeld
from .problem import Problem, widest_aligned
from .tiling import THREADS


@dataclass(frozen=True)
class Held:
    """The kernel, its constants, the number of blocks, and its arguments, of a fold of rows or columns that threads hold."""

    kernel: str
    constants: dict[str, int]
    blocks: int
    arguments: dict[str, Any]


def held_of(problem: Problem, x: Layout, y: Layout, element: str, result: str, monoid: str, multiprocessors: int) -> Held | None:
    """How threads hold the rows or columns of ``problem``; None where these are long or few, or where they or the results have gaps."""
    policy, size, flat = tuned(FoldHeld()), BY_NAME[element].itemsize, c_strides(problem.kept_shape)
    extent = problem.extent
    if len(problem.shape) != 1 or not 1 < extent <= policy.max_extent or problem.longer or problem.kept_strides[0] != flat:
        return None
    vector = problem.vector
    if problem.row_contiguous:
        if problem.full_reduced[0] != (1,) or problem.full_kept[0] != (extent,):
            return None
        vector = widest_aligned([x], tuned(Block()).vector_bytes, size)
    elif problem.peeled or problem.full_kept[0][-1] != 1:
        return None
    rows = vector // fitting(vector, [extent]) if problem.row_contiguous else vector
    while rows > 1 and rows * extent * size > policy.max_bytes:
        rows, vector = rows // 2, vector // 2
    nbytes = rows * extent * size
    pieces = max(1, min(policy.max_pieces, policy.bytes_in_flight // nbytes))
    blocks = ceil_div(problem.rows, THREADS * rows * pieces)
    if nbytes > policy.max_bytes or vector * size < policy.min_vector_bytes or blocks < policy.grid_blocks_per_multiprocessor * multiprocessors:
        return None
    result_size, results = BY_NAME[result].itemsize, monoid_of(monoid).results
    stored = fitting(tuned(Block()).vector_bytes // result_size, [rows * results])
    while y.address % (stored * result_size):
        stored //= 2
    constants = {"vector": vector, "extent": extent, "pieces": pieces, "stored": stored}
    if problem.row_contiguous:
        return Held("fold_held_rows", constants | {"height": rows}, blocks, {"rows": problem.rows})
    arguments = {"columns": problem.rows, "stride": problem.full_reduced[0][0], "kept_shape": problem.kept_shape, "x_kept_strides": problem.full_kept[0]}
    return Held("fold_held_columns", constants | {"kept": len(problem.kept_shape)}, blocks, arguments)
