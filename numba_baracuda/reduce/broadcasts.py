"""The launches that store gradients."""

from __future__ import annotations

import math
from typing import Any

from ..algebra import monoid_of
from ..algebra.gradients import Gradient
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Launch, Layout
from ..core.policy import tuned
from .dense import Dense
from .descriptor import ReduceBackwardDescriptor
from .geometry import Geometry
from .held import Held
from .launches import extents, form_of, kept_strides, spec_of, splits
from .policy import BroadcastDense, BroadcastStagedRows, FoldAndBroadcastRows
from .problem import Problem
from .staged_lines import StagedLines
from .tiling import THREADS, staged_height, staged_lanes


def _operands(descriptor: ReduceBackwardDescriptor, gradient: Gradient, reads: bool) -> dict[str, Any]:
    """The arguments that all gradients have; ``reads``: whether x is one."""
    y = "y" if len(gradient.segments) > 1 else NULL
    return {"x": "x" if reads else NULL, "dy": "dy", "y": y, "dx": "dx", "inverse_extent": 1 / descriptor.extent}


def _corrected_count(descriptor: ReduceBackwardDescriptor, monoid: str) -> float:
    """The corrected count of a gradient's own fold, if it has one."""
    return descriptor.corrected_count(monoid_of(monoid)) if monoid else 0


def broadcast_staged(descriptor: ReduceBackwardDescriptor, problem: Problem, gradient: Gradient) -> Launch:
    """The launch that stores dx of short rows, contiguous as a whole, that pass through shared memory."""
    size, (dy, y, _) = BY_NAME[descriptor.element].itemsize, problem.kept_strides
    lanes = staged_lanes(problem.extent * size)
    height = staged_height(problem.extent * size, lanes, tuned(BroadcastStagedRows()).max_rows_per_group)
    used = bool(gradient.rows or gradient.fold)
    rows = THREADS // lanes * height
    constants: dict[str, Any] = {"gradient": gradient.name, "monoid": gradient.fold, "value": descriptor.element, "kept": len(dy)}
    arguments = {
        **_operands(descriptor, gradient, used), "rows": problem.rows, "extent": problem.extent,
        "corrected_count": _corrected_count(descriptor, gradient.fold), "kept_shape": problem.kept_shape, **kept_strides(dy=dy, y=y),
    }  # fmt: skip
    shared = ceil_div(rows * problem.extent * size, 16) * 16 if used else 0
    spec = spec_of("broadcast_staged_rows", **constants, vector=problem.vector, lanes=lanes, height=height)
    return Launch(spec, (ceil_div(problem.rows, rows), THREADS, shared), arguments)


def broadcast_held(descriptor: ReduceBackwardDescriptor, held: Held, gradient: Gradient) -> Launch:
    """The launch that stores dx of columns that threads hold."""
    operands = _operands(descriptor, gradient, bool(gradient.rows or gradient.fold))
    arguments = {**operands, "corrected_count": _corrected_count(descriptor, gradient.fold), **held.arguments}
    spec = spec_of(held.kernel, gradient=gradient.name, monoid=gradient.fold, value=descriptor.element, **held.constants)
    return Launch(spec, (held.blocks, THREADS, 0), arguments)


def broadcast_staged_lines(descriptor: ReduceBackwardDescriptor, problem: Problem, staged: StagedLines, gradient: Gradient) -> Launch:
    """The launch that folds rows, or few neighbouring columns, whose lines pass through shared memory, and stores their dx."""
    dy, y, _ = problem.kept_strides
    arguments = {
        **_operands(descriptor, gradient, True), "corrected_count": _corrected_count(descriptor, gradient.fold), **staged.arguments,
        "kept_shape": problem.kept_shape, **kept_strides(x=problem.full_kept[0], dy=dy, y=y),
    }  # fmt: skip
    spec = spec_of("fold_and_broadcast_staged_lines", gradient=gradient.name, monoid=gradient.fold, value=descriptor.element, **staged.constants)
    return Launch(spec, (staged.blocks, THREADS, staged.shared_bytes), arguments)


def broadcast_dense(descriptor: ReduceBackwardDescriptor, dense: Dense, gradient: Gradient, folded: str, after_fold: bool = False) -> Launch:
    """The launch that stores dense dx, given the results of a fold in the slot ``folded``; ``after_fold``: of one that has just read x."""
    vector, items = dense.vector, tuned(BroadcastDense()).items_per_thread
    dy, y, folded_strides, origin = dense.kept_strides
    constants = {"kept_line": dense.kept_line, "columns": dense.columns, "whole": dense.whole, "short": dense.short}
    spec = spec_of(
        "broadcast_dense", gradient=gradient.name, value=descriptor.element, vector=vector, axes=len(dense.shape), after_fold=after_fold,
        near=dense.is_near(gradient, BY_NAME[descriptor.element].itemsize), **constants,
    )  # fmt: skip
    arguments = {
        **_operands(descriptor, gradient, bool(gradient.rows)), "folded": folded,
        "elements": dense.elements, "head": dense.head, "vectors": items, "shape": dense.shape,
        "step": dense.step(THREADS * vector), "dy_strides": dy, "y_strides": y, "folded_strides": folded_strides, "origin_strides": origin,
    }  # fmt: skip
    return Launch(spec, (max(1, ceil_div(dense.elements - dense.head, THREADS * vector * items)), THREADS, 0), arguments)


def find_special_results(descriptor: ReduceBackwardDescriptor, layout: Layout) -> Launch:
    """The launch that sets the guard if a result is no normal number."""
    problem = Problem.of((), [layout], [], descriptor.element)
    spec = spec_of("find_special_results", value=descriptor.element, kept=len(problem.kept_shape))
    arguments = {"y": "y", "guard": "guard", "elements": problem.rows, "shape": problem.kept_shape, "strides": problem.full_kept[0]}
    return Launch(spec, (ceil_div(problem.rows, THREADS), THREADS, 0), arguments)


def broadcast(
    descriptor: ReduceBackwardDescriptor, problem: Problem, geometry: Geometry, gradient: Gradient, folded: str, monoid: str = "",
    after_fold: bool = False,
) -> Launch:  # fmt: skip
    """The launch that stores dx, given the results of a fold in the slot ``folded``; with ``monoid``, the kernel folds itself.

    ``after_fold``: the fold has just read x.
    """
    (dx_kept, x_kept), (dx_reduced, x_reduced), (dy, y, folded_strides) = problem.full_kept, problem.full_reduced, problem.kept_strides
    constants: dict[str, Any] = {"gradient": gradient.name, "value": descriptor.element, "vector": problem.vector, "lanes": geometry.lanes}
    constants |= {"kept": len(problem.kept_shape), "steps": geometry.steps}
    if problem.row_contiguous:
        constants["peeled"] = problem.peeled
    arguments: dict[str, Any] = {
        **_operands(descriptor, gradient, bool(gradient.rows or monoid)),
        "kept_shape": problem.kept_shape, **kept_strides(x=x_kept, dy=dy, y=y, dx=dx_kept),
    }  # fmt: skip
    if monoid:
        constants["monoid"] = monoid
        arguments["corrected_count"] = _corrected_count(descriptor, monoid)
    if monoid and problem.row_contiguous and geometry.held:
        resident, lines = tuned(FoldAndBroadcastRows()).min_blocks_per_multiprocessor, math.prod(problem.shape[:-1])
        arguments |= {"rows": problem.rows, "line": problem.shape[-1], "x_stride": x_reduced[0], "dx_stride": dx_reduced[0]}
        return Launch(spec_of("fold_and_broadcast_held_rows", resident=resident, lines=lines, **constants), geometry.launch, arguments)
    constants["dims"] = len(problem.shape)
    arguments |= {**extents(problem), "shape": problem.shape, "x_strides": x_reduced, "dx_strides": dx_reduced}
    if not problem.row_contiguous:
        constants |= {"held": geometry.held} if monoid else {"ragged": problem.ragged, "outer": problem.outer}
        arguments |= kept_strides(origin=problem.origin_kept)
    if problem.row_contiguous or not monoid:
        arguments |= splits(problem, geometry)
    if monoid:
        return Launch(spec_of(f"fold_and_broadcast_{form_of(problem)}", **constants), geometry.launch, arguments)
    arguments |= {"folded": folded, **kept_strides(folded=folded_strides)}
    return Launch(spec_of(f"broadcast_{form_of(problem)}", after_fold=after_fold, **constants), geometry.launch, arguments)
