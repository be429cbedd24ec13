"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from typing import Any

from ..algebra import monoid_of
from ..algebra.gradients import GRADIENTS, Gradient
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target, contiguous
from ..core.policy import constants, tuned
from ..core.spec import KernelSpec
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor
from .geometry import Geometry
from .policy import Block, FoldColumns
from .problem import Problem
from .tiling import block_threads, join_lanes, staged_lanes

#: what kernels read and write truth values as
_BYTES = {"bool": "u8"}


def _spec(kernel: str, **given: int | str | bool) -> KernelSpec:
    policy = tuned(Block())
    given |= constants(policy)
    return KernelSpec(f"numba_baracuda.reduce.kernels:{kernel}", tuple(sorted(given.items())), policy.threads_per_block, 0)


def _form(problem: Problem) -> str:
    return "rows" if problem.along else "columns"


def _along(form: str, **strides: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Strides of the kept axes, for parameters that name an operand and the form, rows or columns, of what is kept."""
    return {f"{name}_{form}": each for name, each in strides.items()}


def _dealt(problem: Problem, geometry: Geometry) -> tuple[str, dict[str, int | bool], int, dict[str, int]]:
    """The kernel that folds, its constants, how many blocks, and its extents."""
    constants: dict[str, int | bool] = {"dims": len(problem.shape), "vector": problem.vector, "lanes": geometry.lanes}
    if geometry.height:
        blocks = ceil_div(problem.rows, block_threads() // geometry.lanes * geometry.height)
        full = problem.extent == geometry.steps * geometry.lanes * problem.vector
        constants |= {"steps": geometry.steps, "height": geometry.height, "full": full}
        return "fold_short_rows", constants, blocks, {"rows": problem.rows, "extent": problem.extent}
    constants["peeled"] = problem.peeled
    return f"fold_{_form(problem)}", constants, geometry.launch[0], _extents(problem, geometry)


def _extents(problem: Problem, geometry: Geometry) -> dict[str, int]:
    return {_form(problem): problem.rows, "extent": problem.extent, "chunk": geometry.chunk, "splits": geometry.splits}


def fold_steps(
    descriptor: ReduceDescriptor, problem: Problem, target: Target, monoid: str, source: str, output: str, result: str, guard: str = NULL
) -> tuple[list[Step], list[Slot]]:
    """A fold of ``source`` into ``output``, which lies as ``problem.kept_strides[0]`` says; long rows in parts that a second launch joins."""
    value, result = _BYTES.get(descriptor.element, descriptor.element), _BYTES.get(result, result)
    found = monoid_of(monoid)
    state = found.kind or BY_NAME[value].accumulator
    constants: dict[str, Any] = {"monoid": monoid, "value": value, "result": result, "guarded": guard != NULL, "kept": len(problem.kept_shape)}
    if problem.staged:
        return [_fold_staged(problem, constants, {"x": source, "guard": guard, "y": output, "left": descriptor.left(found)})], []
    geometry = Geometry.of_few(problem, value) or Geometry.of(problem, target.multiprocessors, value)
    kernel, dealt, blocks, extents = _dealt(problem, geometry)
    parts, left, (y_kept, *_) = NULL if geometry.splits == 1 else "parts", descriptor.left(found), problem.kept_strides
    arguments = {
        "x": source, "guard": guard, "y": output, "parts": parts, **extents, "left": left, "kept_shape": problem.kept_shape,
        **_along(_form(problem), x=problem.full_kept[0], y=y_kept), "shape": problem.shape, "x_strides": problem.full_reduced[0],
    }  # fmt: skip
    steps: list[Step] = [Launch(_spec(kernel, **constants, **dealt), (blocks, block_threads(), 0), arguments)]
    if not parts:
        return steps, []
    lanes = join_lanes(geometry.splits)
    spec, launch = _spec("join_parts", **constants, lanes=lanes), (ceil_div(problem.rows, block_threads() // lanes), block_threads(), 0)
    arguments = {
        "guard": guard, "parts": parts, "y": output, "rows": problem.rows, "splits": geometry.splits, "left": left,
        "kept_shape": problem.kept_shape, "y_rows": y_kept,
    }  # fmt: skip
    steps.append(Launch(spec, launch, arguments))
    return steps, [Slot("parts", state, problem.rows * geometry.splits * found.width)]


def _fold_staged(problem: Problem, constants: dict[str, Any], arguments: dict[str, Any]) -> Launch:
    """The launch for rows without gaps that go through shared memory."""
    row_bytes = problem.extent * BY_NAME[constants["value"]].itemsize
    lanes = staged_lanes(row_bytes)
    rows = block_threads() // lanes
    spec = _spec("fold_staged_rows", **constants, vector=problem.vector, lanes=lanes)
    launch = ceil_div(problem.rows, rows), block_threads(), ceil_div(rows * row_bytes, 16) * 16
    arguments |= {"parts": NULL, "rows": problem.rows, "extent": problem.extent}
    return Launch(spec, launch, {**arguments, "kept_shape": problem.kept_shape, "y_rows": problem.kept_strides[0]})


def fold(op: Op, descriptor: ReduceDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A forward op."""
    monoid = op.traits["narrow"].get(descriptor.element, op.traits["monoid"])
    if 0 in descriptor.output_shape:
        return Recipe(())
    ordered = monoid_of(monoid).places
    problem = Problem.of(
        descriptor.axes, [layouts["x"]], [layouts["y"]], descriptor.element, ordered, peel=True, across=_across(monoid, descriptor.element)
    )
    steps, slots = fold_steps(descriptor, problem, target, monoid, "x", "y", descriptor.result or descriptor.element)
    return Recipe(tuple(steps), tuple(slots))


def _across(monoid: str, value: str) -> int:
    """Bytes of the widest access across rows: sums about a pivot take few rows at a time, but more of each, to move their pivots less often."""
    return min(tuned(FoldColumns()).pivot_vector_bytes, 2 * BY_NAME[value].itemsize) if monoid_of(monoid).about else tuned(Block()).vector_bytes


def too_many(op: Op, descriptor: ReduceDescriptor) -> str | None:
    """Why positions cannot be told apart: they are kept as numbers of the accumulator's type."""
    placed = rule_of(op, descriptor).places if isinstance(descriptor, ReduceBackwardDescriptor) else monoid_of(op.traits["monoid"]).places
    most = BY_NAME[descriptor.element].places
    return f"tells fewer than {most} elements apart, and there are {descriptor.extent}" if placed and descriptor.extent >= most else None


def rule_of(op: Op, descriptor: ReduceBackwardDescriptor) -> Gradient:
    """The gradient of an op under the descriptor's rule of ties."""
    name = op.traits["gradient"]
    if name not in ("max", "min"):
        return GRADIENTS[name]
    return GRADIENTS["equal" if descriptor.ties == "all" else f"{descriptor.ties}_{name}"]


def spread(op: Op, descriptor: ReduceBackwardDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A gradient: the fold that it wants, then its results back to every element; both in one where a row belongs to one group of lanes."""
    if 0 in descriptor.input_shape:
        return Recipe(())
    rule, value, held = rule_of(op, descriptor), descriptor.element, contiguous(descriptor.output_shape)
    x, y = layouts.get("x", layouts["dx"]), layouts.get("y", layouts["dy"])
    whole = Problem.of(descriptor.axes, [layouts["dx"], x], [layouts["dy"], y, held], value, ordered=rule.places)
    given = Geometry.of_gradient(whole, target.multiprocessors, value)
    if not rule.fold:
        return Recipe((_back(descriptor, whole, given, rule, NULL),))
    geometry = Geometry.of(whole, target.multiprocessors, value)
    monoid, state, steps = rule.fold, BY_NAME[value].accumulator, list[Step]()
    if whole.along and geometry.splits == 1:
        return Recipe((_back(descriptor, whole, given if rule.guarded else geometry, rule, NULL, monoid),))
    problem = Problem.of(descriptor.axes, [x], [held], value, ordered=rule.places, peel=True, across=_across(monoid, value))
    slots, guard = [Slot("kept", state, problem.rows * monoid_of(monoid).results)], NULL
    if rule.guarded:
        guard = "guard"
        slots.append(Slot(guard, "i32", 4))
        steps += [Clear(guard), _find_special(descriptor, layouts["y"])]
    more, room = fold_steps(descriptor, problem, target, monoid, "x", "kept", state, guard)
    return Recipe((*steps, *more, _back(descriptor, whole, given, rule, "kept")), (*slots, *room))


def _find_special(descriptor: ReduceBackwardDescriptor, layout: Layout) -> Launch:
    problem = Problem.of((), [layout], [], descriptor.element)
    spec = _spec("find_special", value=descriptor.element, kept=len(problem.kept_shape))
    arguments = {"y": "y", "guard": "guard", "elements": problem.rows, "shape": problem.kept_shape, "strides": problem.full_kept[0]}
    return Launch(spec, (ceil_div(problem.rows, block_threads()), block_threads(), 0), arguments)


def _back(descriptor: ReduceBackwardDescriptor, problem: Problem, geometry: Geometry, rule: Gradient, kept: str, monoid: str = "") -> Launch:
    """The launch that writes the gradient, of what a fold kept, or with the fold by ``monoid`` in itself."""
    (dx_kept, x_kept), (dx_reduced, x_reduced), (dy, y, held) = problem.full_kept, problem.full_reduced, problem.kept_strides
    constants: dict[str, Any] = {"gradient": rule.name, "value": descriptor.element, "vector": problem.vector, "lanes": geometry.lanes}
    constants |= {"kept": len(problem.kept_shape), "dims": len(problem.shape)}
    x_name, y_name = "x" if rule.rows or monoid else NULL, "y" if len(rule.segments) > 1 else NULL
    form = _form(problem)
    arguments: dict[str, Any] = {
        "x": x_name, "dy": "dy", "y": y_name, "dx": "dx", **_extents(problem, geometry), "share": 1 / problem.extent,
        "kept_shape": problem.kept_shape, **_along(form, x=x_kept, dy=dy, y=y, dx=dx_kept),
        "shape": problem.shape, "x_strides": x_reduced, "dx_strides": dx_reduced,
    }  # fmt: skip
    if monoid:
        arguments["left"] = descriptor.left(monoid_of(monoid))
        return Launch(_spec("fold_and_spread_rows", monoid=monoid, **constants), geometry.launch, arguments)
    return Launch(_spec(f"spread_{form}", **constants), geometry.launch, {**arguments, "held": kept, **_along(form, held=held)})
