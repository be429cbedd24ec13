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
    """A launch for rows or columns that threads hold: the kernel, its constants, the number of blocks, and its arguments."""

    kernel: str
    constants: dict[str, int]
    blocks: int
    arguments: dict[str, Any]


def _stored(y: Layout, result: str, rows: int, monoid: str) -> int:
    """How many results of so many neighbouring rows are stored at a time."""
    size, results = BY_NAME[result].itemsize, monoid_of(monoid).results
    stored = fitting(tuned(Block()).vector_bytes // size, [rows * results])
    while stored > 1 and y.address % (stored * size):
        stored //= 2
    return stored


def _narrowed(count: int, vector: int, row_bytes: int) -> tuple[int, int]:
    """As many of ``count`` neighbours as a thread may hold, and elements of a load; both are halved."""
    most = tuned(FoldHeld()).max_bytes
    while count > 1 and count * row_bytes > most:
        count, vector = count // 2, vector // 2
    return count, vector


def _pieces(in_flight: int, nbytes: int) -> int:
    """At how many places a thread has neighbours of so many bytes."""
    return max(1, min(tuned(FoldHeld()).max_pieces, in_flight // nbytes))


def _columns(problem: Problem) -> dict[str, Any]:
    """Arguments of kernels that hold columns."""
    strides = {"stride": problem.full_reduced[0][0], "x_kept_strides": problem.full_kept[0]}
    return {"columns": problem.rows, "kept_shape": problem.kept_shape, **strides}


def held_of(problem: Problem, x: Layout, y: Layout, element: str, result: str, monoid: str) -> Held | None:
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
    rows, vector = _narrowed(vector // fitting(vector, [extent]) if problem.row_contiguous else vector, vector, extent * size)
    nbytes, odd = rows * extent * size, problem.row_contiguous and size > 2 and extent * size % tuned(Block()).vector_bytes > 0
    if odd and monoid_of(monoid).commutes and nbytes > policy.max_odd_loads * vector * size:
        return None
    pieces = _pieces(policy.bytes_in_flight if problem.row_contiguous else policy.column_bytes_in_flight, nbytes)
    if nbytes > policy.max_bytes or vector * size < policy.min_vector_bytes or problem.rows * extent * size < policy.min_bytes:
        return None
    blocks = ceil_div(problem.rows, THREADS * rows * pieces)
    constants = {"vector": vector, "extent": extent, "pieces": pieces, "stored": _stored(y, result, rows, monoid)}
    if problem.row_contiguous:
        return Held("fold_held_rows", constants | {"height": rows}, blocks, {"rows": problem.rows})
    return Held("fold_held_columns", constants | {"kept": len(problem.kept_shape)}, blocks, _columns(problem))


def held_lines_of(problem: Problem, x: Layout, y: Layout, element: str, result: str, monoid: str) -> Held | None:
    """How threads hold the lines of rows whose lines are contiguous along the last kept axis; None where others are as good, or the rows are few."""
    policy, size, flat = tuned(FoldHeld()), BY_NAME[element].itemsize, c_strides(problem.kept_shape)
    if len(problem.shape) != 2 or not problem.row_contiguous or problem.kept_strides[0] != flat or problem.rows < policy.min_line_rows:
        return None
    (lines, extent), (stride, step), (*outer, across) = problem.shape, problem.full_reduced[0], problem.full_kept[0]
    if step != 1 or across != extent:
        return None
    inner = problem.kept_shape[-1]
    vector = fitting(widest_aligned([x], tuned(Block()).vector_bytes, size), [stride, *outer, inner * extent])
    height, vector = _narrowed(vector // fitting(vector, [extent]), vector, extent * size)
    nbytes = height * extent * size
    if nbytes > policy.max_bytes or inner % height or vector * size < policy.min_vector_bytes:
        return None
    most = _pieces(policy.bytes_in_flight, nbytes)
    constants = {"vector": vector, "extent": extent, "height": height, "pieces": ceil_div(lines, ceil_div(lines, most))}
    constants |= {"stored": _stored(y, result, height, monoid), "kept": len(flat)}
    arguments = {"rows": problem.rows, "lines": lines, "stride": stride, "kept_shape": problem.kept_shape, "x_kept_strides": problem.full_kept[0]}
    return Held("fold_held_lines", constants, ceil_div(problem.rows, THREADS * height), arguments)


def _loaded(results: int, dy: Layout, y: Layout, size: int) -> int:
    """How many of so many neighbouring elements of dy and y are loaded at a time."""
    while results > 1 and (dy.address % (results * size) or y.address % (results * size)):
        results //= 2
    return results


def held_gradient_of(problem: Problem, dx: Layout, x: Layout, dy: Layout, y: Layout, element: str, reads: bool, guarded: bool) -> Held | None:
    """How threads hold the rows or columns of a gradient whose full operands are dx and x, which it ``reads`` or not; None where they do not.

    ``guarded``: as of the gradient, whose instructions are too many for more than a vector at a time.
    """
    policy, size, flat = tuned(FoldHeld()), BY_NAME[element].itemsize, c_strides(problem.kept_shape)
    extent, kept, same = problem.extent, problem.kept_strides, problem.full_kept[0] == problem.full_kept[1]
    if len(problem.shape) != 1 or not 1 < extent <= policy.max_extent or problem.longer or problem.peeled:
        return None
    if not same or problem.full_reduced[0] != problem.full_reduced[1] or kept[0] != flat or kept[1] != flat:
        return None
    if problem.rows * extent * size < policy.min_bytes:
        return None
    if problem.row_contiguous:
        vector = widest_aligned([dx, x], tuned(Block()).vector_bytes, size)
        rows = vector // extent
        if vector % extent or rows > problem.rows or problem.full_reduced[0] != (1,) or problem.full_kept[0] != (extent,):
            return None
        pieces = 1 if guarded else _pieces(policy.column_bytes_in_flight, vector * size)
        constants = {"vector": vector, "extent": extent, "pieces": pieces, "loaded": _loaded(rows, dy, y, size)}
        return Held("broadcast_held_rows", constants, ceil_div(problem.rows, THREADS * rows * pieces), {"rows": problem.rows})
    vector, _ = _narrowed(problem.vector, problem.vector, extent * size)
    nbytes = vector * extent * size
    if problem.full_kept[0][-1] != 1 or nbytes > policy.max_bytes or not (reads or extent <= policy.max_stored_extent):
        return None
    pieces, loaded = _pieces(policy.column_bytes_in_flight, nbytes), _loaded(vector, dy, y, size)
    return Held(
        "broadcast_held_columns",
        {"vector": vector, "extent": extent, "pieces": pieces, "loaded": loaded, "kept": len(problem.kept_shape)},
        ceil_div(problem.rows, THREADS * vector * pieces),
        _columns(problem),
    )
