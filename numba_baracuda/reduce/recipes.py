"""The launches of a reduction: pure functions of a descriptor, the operands' layouts and the device. They import no Numba."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..algebra import monoid_of, state_of
from ..algebra.gradients import Gradient, gradient_named
from ..core.axes import c_strides, ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target, contiguous, fresh_first
from ..core.policy import tuned
from .broadcasts import broadcast, broadcast_dense, broadcast_held, broadcast_staged, broadcast_staged_lines, find_special_results
from .dense import dense_of
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor
from .geometry import Geometry
from .held import Held, held_gradient_of, held_lines_of, held_of
from .launches import extents, form_of, halves_about_pivot, kept_strides, resident_of, spec_of, splits
from .passes import FirstPass, first_pass, walk_of_gradient
from .policy import Block, BroadcastColumns, BroadcastStagedRows, CombinePartials, FoldColumns, FoldStagedRows
from .problem import Problem
from .staged_lines import StagedLines
from .tiling import THREADS, combine_lanes, staged_column_block, staged_height, staged_lanes

#: the element type that kernels use for truth values
_BYTES = {"bool": "u8"}


def _fold_config(problem: Problem, geometry: Geometry, size: int) -> tuple[str, dict[str, int | bool], int, dict[str, int]]:
    """(kernel that folds, its constants, number of blocks, its extents)."""
    constants: dict[str, int | bool] = {"dims": len(problem.shape), "vector": problem.vector, "lanes": geometry.lanes}
    if geometry.height:
        blocks = ceil_div(problem.rows, THREADS // geometry.lanes * geometry.height)
        full = problem.extent == geometry.steps * geometry.lanes * problem.vector
        constants |= {"steps": geometry.steps, "height": geometry.height, "full": full}
        return "fold_short_rows", constants, blocks, {"rows": problem.rows, "extent": problem.extent}
    if geometry.inner:
        vector = tuned(Block()).vector_bytes // size
        own = {"columns": problem.rows, "extent": problem.extent, "splits": geometry.splits}
        return "fold_lines", {"vector": vector, "lanes": geometry.lanes, "inner": geometry.inner}, geometry.launch[0], own
    if not problem.row_contiguous:
        constants["steps"] = geometry.steps
        constants |= {"ragged": problem.ragged, "outer": problem.outer}
    constants["peeled"] = problem.peeled
    return f"fold_{form_of(problem)}", constants, geometry.launch[0], extents(problem) | splits(problem, geometry) | {"chunk": geometry.chunk}


def fold_steps(
    descriptor: ReduceDescriptor, problem: Problem, target: Target, monoid: str, source: str, output: str, result: str, guard: str = NULL,
    alone: bool = False, results: str = NULL, reused: bool = False,
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The launches and slots of a fold of the operand ``source`` into ``output``, whose strides are ``problem.kept_strides[0]``.

    Rows that are split leave partials in the workspace, which a second launch combines, or, of few elements, the last block of each row. That pays
    only where the fold is ``alone``, so that one launch is left. With ``guard``, nothing runs unless ``guard[0]`` is set. Blocks that have a row look
    at the operand ``results`` instead, whose elements lie as those of the output do.
    """
    value, result = _BYTES.get(descriptor.element, descriptor.element), _BYTES.get(result, result)
    fold_monoid = monoid_of(monoid)
    state = fold_monoid.kind or BY_NAME[value].accumulator
    geometry = Geometry.of_few(problem, value) or Geometry.of_lines(problem, target.multiprocessors, value) if fold_monoid.commutes else None
    two_terms = halves_about_pivot(problem, fold_monoid, BY_NAME[value].itemsize) and fold_monoid.term_count == 2
    state_bytes = fold_monoid.width * BY_NAME[state].itemsize
    geometry = geometry or Geometry.of(problem, target.multiprocessors, value, fold_monoid.commutes, two_terms, state_bytes)
    special = results != NULL and problem.row_contiguous and not problem.staged and geometry.lanes == THREADS
    guard = results if special else guard
    guarded = guard != NULL and not special
    constants: dict[str, Any] = {"monoid": monoid, "value": value, "result": result, "guarded": guarded, "kept": len(problem.kept_shape)}
    if problem.staged:
        arguments = {"x": source, "guard": guard, "y": output, "corrected_count": descriptor.corrected_count(fold_monoid)}
        return [_fold_staged(problem, constants, arguments)], []
    alone = alone and fold_monoid.commutes and not geometry.inner
    few = geometry.single_pass(problem, target.multiprocessors, value, fold_monoid.width) if alone else None
    geometry, single_pass = few or geometry, few is not None
    kernel, config, blocks, extents = _fold_config(problem, geometry, BY_NAME[value].itemsize)
    if not geometry.height:
        config |= {"reused": reused} if geometry.inner else {"single_pass": single_pass, "reused": reused}
    if kernel == "fold_rows":
        config["special"] = special
    partials, y_kept = NULL if geometry.splits == 1 else "partials", problem.kept_strides[0]
    origin = {} if problem.row_contiguous else kept_strides(origin=problem.origin_kept, partial=c_strides(problem.kept_shape))
    corrected_count = descriptor.corrected_count(fold_monoid)
    arguments = {
        "x": source, "guard": "arrivals" if single_pass else guard, "y": output, "partials": partials, **extents, "corrected_count": corrected_count,
        "kept_shape": problem.kept_shape, **kept_strides(x=problem.full_kept[0], y=y_kept),
    }  # fmt: skip
    if not geometry.inner:
        arguments |= {**origin, "shape": problem.shape, "x_strides": problem.full_reduced[0]}
    resident = resident_of(kernel, problem, geometry, fold_monoid, value)
    steps: list[Step] = [Launch(spec_of(kernel, resident=resident, **constants, **config), (blocks, THREADS, 0), arguments)]
    if not partials:
        return steps, []
    states = geometry.blocks * geometry.states(problem) if single_pass else problem.rows
    room = Slot("partials", state, states * geometry.splits * fold_monoid.width)
    if single_pass:
        return [Clear("arrivals", restored=True), *steps], [Slot("arrivals", "i32", geometry.blocks), room]
    arguments = {
        "guard": guard, "partials": partials, "y": output, "rows": problem.rows, "splits": geometry.splits, "each": 1, "scale": 1, "step": 0,
        "corrected_count": corrected_count, "kept_shape": problem.kept_shape, "y_kept_strides": y_kept,
    }  # fmt: skip
    return [*steps, _combine(constants | {"special": special}, arguments)], [room]


def _combine(constants: dict[str, Any], arguments: dict[str, Any], parts: int = 1) -> Launch:
    """The launch that combines the partials of rows; a block takes each of several ``parts`` of a row."""
    lanes = combine_lanes(arguments["splits"]) if parts == 1 else THREADS
    spec = spec_of("combine_partials", **constants, lanes=lanes, in_parts=parts > 1)
    places = {"parts": parts, "arrivals": "arrivals" if parts > 1 else NULL, "joined": "joined" if parts > 1 else NULL}
    return Launch(spec, (ceil_div(arguments["rows"], THREADS // lanes) * parts, THREADS, 0), arguments | places)


def _two_passes(
    descriptor: ReduceDescriptor, first: FirstPass, target: Target, monoid: str, source: str, output: str, result: str, guard: str, alone: bool,
    reused: bool,
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The launches and slots of a fold whose first pass leaves the states of parts of rows in the workspace, which one more launch combines.

    Where the partials of those of a row can lie together, it combines these at once.
    """
    value, fold_monoid, rows = _BYTES.get(descriptor.element, descriptor.element), monoid_of(monoid), math.prod(first.kept_shape)
    state = fold_monoid.kind or BY_NAME[value].accumulator
    steps, slots = fold_steps(descriptor, first.problem, target, state_of(monoid), source, "states", state, guard, reused=reused)
    constants = {"monoid": monoid, "value": value, "result": _BYTES.get(result, result), "guarded": guard != NULL, "kept": len(first.kept_shape)}
    constants["special"] = False
    arguments = {
        "guard": guard, "partials": "states", "y": output, "rows": rows, "splits": first.states, "each": 1, "scale": first.scale,
        "step": first.step, "corrected_count": descriptor.corrected_count(fold_monoid), "kept_shape": first.kept_shape,
        "y_kept_strides": first.y_kept,
    }  # fmt: skip
    policy, fold, partials = tuned(CombinePartials()), steps[0], first.states
    blocks = policy.blocks_per_multiprocessor * target.multiprocessors
    few = rows < blocks
    if len(steps) > 1 and isinstance(fold, Launch) and isinstance(steps[1], Launch):
        own, places = steps[1].arguments["splits"], first.problem.kept_strides[0]
        moves = "partial_kept_strides" in fold.arguments
        if (moves or places == c_strides(first.problem.kept_shape)) and (few or partials * own <= policy.max_row_partials):
            steps = [replace(fold, arguments=fold.arguments | {"y": NULL} | ({"partial_kept_strides": places} if moves else {}))]
            partials *= own
            arguments |= {"partials": "partials", "splits": partials, "each": own}
    if arguments["partials"] == "states":
        slots.append(Slot("states", state, rows * first.states * fold_monoid.width))
    parts = min(policy.parts, ceil_div(blocks, rows)) if few and partials > policy.max_row_partials else 1
    if parts > 1:
        steps.insert(0, Clear("arrivals", restored=alone, fresh=not alone))
        slots = [Slot("arrivals", "i32", rows), *slots, Slot("joined", state, rows * parts * fold_monoid.width)]
    return [*steps, _combine(constants, arguments, parts)], slots


def fold_of(
    descriptor: ReduceDescriptor, x: Layout, y: Layout, target: Target, monoid: str, output: str, result: str, guard: str = NULL,
    alone: bool = False, ordered: bool | None = None, source: str = "x", results: Layout | None = None, reused: bool = False,
) -> tuple[list[Step], list[Slot]]:  # fmt: skip
    """The launches and slots of a fold of the operand ``source``, with the layout x, in one pass or two.

    ``results``: the layout of the operand y that a guarded gradient has.
    """
    ordered = monoid_of(monoid).uses_positions or not monoid_of(monoid).commutes if ordered is None else ordered
    fold_monoid, value = monoid_of(monoid), _BYTES.get(descriptor.element, descriptor.element)
    commutes, column_bytes = fold_monoid.commutes, _column_bytes(monoid, descriptor.element)
    staged_below = tuned(FoldStagedRows()).max_vector_bytes if commutes else 0
    kept = [y, results or y]
    problem = Problem.of(descriptor.axes, [x], kept, descriptor.element, ordered, commutes, commutes, staged_below, commutes, column_bytes)
    wide = Problem.of(descriptor.axes, [x], kept, descriptor.element, ordered)
    held_as = x, y, value, _BYTES.get(result, result), monoid
    held = held_of(wide, *held_as) or held_lines_of(wide, *held_as)
    if held:
        return [_fold_held(descriptor, held, monoid, value, _BYTES.get(result, result), source, output, guard)], []
    alike = results is not None and problem.kept_strides[0] == problem.kept_strides[1]
    if commutes and not Geometry.of_lines(problem, target.multiprocessors, value):
        state_bytes = fold_monoid.width * BY_NAME[fold_monoid.kind or BY_NAME[value].accumulator].itemsize
        first = first_pass(
            descriptor.axes, x, y, descriptor.element, problem, column_bytes, staged_below, ordered, fold_monoid.subtracts_origin, state_bytes
        )
        if first:
            return _two_passes(descriptor, first, target, monoid, source, output, result, guard, alone, reused)
    return fold_steps(descriptor, problem, target, monoid, source, output, result, guard, alone, "y" if alike else NULL, reused)


def _fold_held(
    descriptor: ReduceDescriptor, held: Held, monoid: str, value: str, result: str, source: str, output: str, guard: str
) -> Launch:  # fmt: skip
    """The launch for rows or columns that threads hold."""
    spec = spec_of(held.kernel, monoid=monoid, value=value, result=result, guarded=guard != NULL, **held.constants)
    arguments = {"x": source, "guard": guard, "y": output, "corrected_count": descriptor.corrected_count(monoid_of(monoid)), **held.arguments}
    return Launch(spec, (held.blocks, THREADS, 0), arguments)


def _fold_staged(problem: Problem, constants: dict[str, Any], arguments: dict[str, Any]) -> Launch:
    """The launch for short rows or columns, contiguous as a whole, that pass through shared memory."""
    size = BY_NAME[constants["value"]].itemsize
    row_bytes, inner = problem.extent * size, 1
    if problem.row_contiguous:
        lanes = staged_lanes(row_bytes)
        height = staged_height(row_bytes, lanes, tuned(FoldStagedRows()).max_rows_per_group)
    else:
        inner = problem.kept_shape[-1]
        lanes, height = staged_column_block(problem.extent, inner, size)
    rows = THREADS // lanes * height // inner * inner
    before = 0 if inner == 1 else problem.vector * size
    spec = spec_of("fold_staged_rows", **constants, vector=problem.vector, lanes=lanes, height=height, inner=inner)
    launch = ceil_div(problem.rows, rows), THREADS, ceil_div(rows * row_bytes + before, 16) * 16
    arguments |= {"partials": NULL, "rows": problem.rows, "extent": problem.extent}
    return Launch(spec, launch, {**arguments, "kept_shape": problem.kept_shape, "y_kept_strides": problem.kept_strides[0]})


def fold(op: Op, descriptor: ReduceDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The recipe of a reduction."""
    monoid = op.traits["narrow"].get(descriptor.element, op.traits["monoid"])
    if 0 in descriptor.output_shape:
        return Recipe(())
    result = descriptor.result or descriptor.element
    steps, slots = fold_of(descriptor, layouts["x"], layouts["y"], target, monoid, "y", result, alone=True)
    return fresh_first(steps, slots)


def _column_bytes(monoid: str, value: str) -> int:
    """Bytes of the widest vector across columns. Sums about a pivot use narrower ones: more elements of fewer columns change the pivot less often."""
    return min(tuned(FoldColumns()).pivot_vector_bytes, 2 * BY_NAME[value].itemsize) if monoid_of(monoid).pivot_terms else tuned(Block()).vector_bytes


def too_many_positions(op: Op, descriptor: ReduceDescriptor) -> str | None:
    """The reason why positions do not fit in a state: it holds them as numbers of the accumulator's type. None if they fit."""
    computed = gradient_of(op, descriptor) if isinstance(descriptor, ReduceBackwardDescriptor) else monoid_of(op.traits["monoid"])
    most = BY_NAME[descriptor.element].distinct_positions
    return f"numbers fewer than {most} elements, and there are {descriptor.extent}" if computed.uses_positions and descriptor.extent >= most else None


def gradient_of(op: Op, descriptor: ReduceBackwardDescriptor) -> Gradient:
    """The gradient of an op under the descriptor's rule of ties, or the one for results that are rounded to a half type."""
    name = op.traits["gradient"]
    if name in ("max", "min"):
        name = "equal" if descriptor.ties == "all" else f"{descriptor.ties}_{name}"
    return gradient_named(name, BY_NAME[descriptor.element].itemsize == 2)


def backward(op: Op, descriptor: ReduceBackwardDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The recipe of a gradient: its fold, then a launch that broadcasts the results to the elements. One launch does both if rows are not split.

    A caller may bring the results as the operand ``folded``, contiguous.
    """
    if 0 in descriptor.input_shape:
        return Recipe(())
    gradient, value, folded, brought = gradient_of(op, descriptor), descriptor.element, contiguous(descriptor.output_shape), "folded" in layouts
    x, y = layouts.get("x", layouts["dx"]), layouts.get("y", layouts["dy"])
    ordered, staged_below = gradient.uses_positions, 0 if brought else tuned(BroadcastStagedRows()).max_vector_bytes
    operands = descriptor.axes, [layouts["dx"], x], [layouts["dy"], y, folded], value
    terms, vector_bytes = bool(gradient.rows) and bool(gradient.fold or gradient.inverts), tuned(Block()).vector_bytes
    column_bytes = min(vector_bytes, tuned(BroadcastColumns()).max_columns_with_terms * BY_NAME[value].itemsize) if terms else vector_bytes
    full = Problem.of(*operands, ordered, peel=True, staged_below=staged_below, column_bytes=column_bytes)
    walk = None if full.staged or gradient.uses_positions else walk_of_gradient(*operands, full, column_bytes)
    held_as = layouts["dx"], x, layouts["dy"], y, value, bool(gradient.rows or gradient.fold), gradient.guarded
    plain = Problem.of(*operands, ordered)
    held = None if brought else held_gradient_of(plain, *held_as)
    if held and full.row_contiguous:
        return Recipe((broadcast_held(descriptor, held, gradient),))
    dense = dense_of(gradient, walk or full, *operands)
    if not (dense or full.staged or gradient.uses_positions):
        walk = walk_of_gradient(*operands, full, column_bytes, turns=True)
    results = "folded" if brought else NULL
    if dense and (brought or not gradient.fold):
        return Recipe((broadcast_dense(descriptor, dense, gradient, results),))
    if full.staged:
        return Recipe((broadcast_staged(descriptor, full, gradient),))
    if held:
        return Recipe((broadcast_held(descriptor, held, gradient),))
    folds = bool(gradient.fold) and not brought
    lines_of = layouts["dx"], x, value, gradient.guarded, target.multiprocessors
    staged = StagedLines.of(plain, *lines_of) if folds and not gradient.uses_positions else None
    if staged:
        return Recipe((broadcast_staged_lines(descriptor, plain, staged, gradient),))
    if folds and not full.row_contiguous:
        short = Problem.of(*operands, ordered, column_bytes=_column_bytes(gradient.fold, value))
        fused = Geometry.of_fused_columns(short, target.multiprocessors, value, not gradient.guarded and bool(gradient.rows), gradient.guarded)
        if fused:
            return Recipe((broadcast(descriptor, short, fused, gradient, NULL, gradient.fold),))
    full = walk or full
    again = bool(gradient.rows)  # the gradient reads what the fold has read
    quick = again and not gradient.inverts
    backward_geometry = Geometry.of_gradient(full, target.multiprocessors, value, gradient.guarded, quick)
    if brought or not gradient.fold:
        return Recipe((broadcast(descriptor, full, backward_geometry, gradient, results),))
    geometry = Geometry.of_fused(full, target.multiprocessors, value, again and not gradient.guarded)
    monoid, state, steps = gradient.fold, BY_NAME[value].accumulator, list[Step]()
    if full.row_contiguous and geometry.splits == 1:
        return Recipe((broadcast(descriptor, full, backward_geometry if gradient.guarded else geometry, gradient, NULL, monoid),))
    slots, guard = [Slot("folded", state, math.prod(descriptor.output_shape) * monoid_of(monoid).results)], "guard" if gradient.guarded else NULL
    fold_launches, fold_slots = fold_of(
        descriptor, x, folded, target, monoid, "folded", state, guard, ordered=ordered,
        results=y if gradient.guarded else None, reused=again,
    )  # fmt: skip
    if gradient.guarded and any(isinstance(step, Launch) and guard in step.pointers for step in fold_launches):
        slots.append(Slot(guard, "i32", 4))
        steps += [Clear(guard, fresh=True), find_special_results(descriptor, y)]
    if dense:
        spread = broadcast_dense(descriptor, dense, gradient, "folded", after_fold=again)
    else:
        spread = broadcast(descriptor, full, backward_geometry, gradient, "folded", after_fold=again)
    return fresh_first([*steps, *fold_launches, spread], [*slots, *fold_slots])
