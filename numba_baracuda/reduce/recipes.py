"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..algebra import monoid_of
from ..axes import ceil_div
from ..dtypes import BY_NAME
from ..gradients import GRADIENTS, Gradient
from ..op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target
from ..runtime.spec import KernelSpec
from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor, contiguous
from .problem import Problem
from .tiling import (
    ACROSS,
    GIVEN_COLUMNS,
    GIVEN_ROWS,
    IN_FLIGHT_SHORT,
    THREADS,
    column_lanes,
    join_lanes,
    row_lanes,
    short_row,
    splits_for,
    staged_lanes,
    steps_of,
)

#: what kernels read and write truth values as
_BYTES = {"bool": "u8"}


@dataclass(frozen=True)
class Geometry:
    """How a problem is dealt to blocks."""

    lanes: int
    blocks: int
    splits: int
    chunk: int
    steps: int = 0  #: of a lane to each short row
    height: int = 0  #: short rows at a time

    @classmethod
    def of(cls, problem: Problem, multiprocessors: int, value: str) -> Geometry:
        """For a fold: rows that belong to a warp stay whole, others are split if there are few."""
        lanes, blocks, step = _dealing(problem, value)
        if not problem.along or lanes == THREADS:
            return cls(lanes, blocks, *splits_for(blocks, problem.extent, step, multiprocessors))
        short = () if problem.peeled else short_row(ceil_div(problem.extent, problem.vector), lanes, steps_of(value, problem.vector, IN_FLIGHT_SHORT))
        return cls(lanes, blocks, 1, problem.extent, *short)

    @classmethod
    def of_gradient(cls, problem: Problem, value: str) -> Geometry:
        """Where nothing is folded: small parts, whose loads and stores mix."""
        lanes, blocks, step = _dealing(problem, value)
        chunk = step * (GIVEN_ROWS if problem.along else GIVEN_COLUMNS)
        return cls(lanes, blocks, ceil_div(problem.extent, chunk), chunk)

    @property
    def launch(self) -> tuple[int, int, int]:
        return self.blocks * self.splits, THREADS, 0


def _dealing(problem: Problem, value: str) -> tuple[int, int, int]:
    """(lanes of a row or beside each other, blocks for all rows, places that a block takes at a time)."""
    vector, steps = problem.vector, steps_of(value, problem.vector)
    if problem.along:
        lanes = row_lanes(ceil_div(problem.extent, vector))
        return lanes, ceil_div(problem.rows, THREADS // lanes), lanes * steps * vector
    lanes = column_lanes(problem.contiguous, vector * BY_NAME[value].itemsize, problem.extent, steps)
    return lanes, ceil_div(problem.rows, lanes * vector), THREADS // lanes * steps


def _spec(kernel: str, signature: str, **constants: int | str | bool) -> KernelSpec:
    return KernelSpec(f"numba_baracuda.reduce.kernels:{kernel}", tuple(sorted(constants.items())), signature, THREADS, 0)


def _form(problem: Problem) -> str:
    return "rows" if problem.along else "columns"


def _tuples(problem: Problem, kept: int, reduced: int) -> str:
    """Types of so many tuples of the kept and of the reduced axes."""
    return " ".join([f"{len(problem.kept_shape)}xi64"] * kept + [f"{len(problem.shape)}xi64"] * reduced)


def _dealt(problem: Problem, geometry: Geometry) -> tuple[str, dict[str, int | bool], int, tuple[int, ...]]:
    """The kernel that folds, its constants, how many blocks, and its extents."""
    constants: dict[str, int | bool] = {"dims": len(problem.shape), "vector": problem.vector, "lanes": geometry.lanes}
    if geometry.height:
        blocks = ceil_div(problem.rows, THREADS // geometry.lanes * geometry.height)
        full = problem.extent == geometry.steps * geometry.lanes * problem.vector
        constants |= {"steps": geometry.steps, "height": geometry.height, "full": full}
        return "fold_short_rows", constants, blocks, (problem.rows, problem.extent)
    constants |= {"peeled": problem.peeled} if problem.along else {}
    return f"fold_{_form(problem)}", constants, geometry.launch[0], (problem.rows, problem.extent, geometry.chunk, geometry.splits)


def fold_steps(
    descriptor: ReduceDescriptor, problem: Problem, target: Target, monoid: str, source: str, output: str, result: str, guard: str = NULL
) -> tuple[list[Step], list[Slot]]:
    """A fold of ``source`` into ``output``, which lies as ``problem.kept_strides[0]`` says; long rows in parts that a second launch joins."""
    value, result = _BYTES.get(descriptor.element, descriptor.element), _BYTES.get(result, result)
    found, size = monoid_of(monoid), BY_NAME[value].itemsize
    state = found.kind or BY_NAME[value].accumulator
    constants: dict[str, Any] = {"monoid": monoid, "value": value, "result": result, "guarded": guard != NULL, "kept": len(problem.kept_shape)}
    if problem.staged:
        lanes = staged_lanes(problem.extent * size)
        spec = _spec(
            "fold_staged_rows",
            f"*{value} *i32 *{result} *{state} i64 i64 i64 {_tuples(problem, 2, 0)}",
            **constants,
            vector=problem.vector,
            lanes=lanes,
        )
        rows = THREADS // lanes
        config = ceil_div(problem.rows, rows), THREADS, ceil_div(rows * problem.extent * size, 16) * 16
        numbers = (problem.rows, problem.extent, found.correction)
        return [Launch(spec, config, (source, guard, output, NULL), (*numbers, problem.kept_shape, problem.kept_strides[0]))], []
    geometry = Geometry.of(problem, target.multiprocessors, value)
    kernel, dealt, blocks, extents = _dealt(problem, geometry)
    scalars, parts = (*extents, found.correction), NULL if geometry.splits == 1 else "parts"
    signature = f"*{value} *i32 *{result} *{state} {' '.join(['i64'] * len(scalars))} {_tuples(problem, 3, 2)}"
    strides = (problem.kept_shape, problem.full_kept[0], problem.kept_strides[0], problem.shape, problem.full_reduced[0])
    spec = _spec(kernel, signature, **constants, **dealt)
    steps: list[Step] = [Launch(spec, (blocks, THREADS, 0), (source, guard, output, parts), (*scalars, *strides))]
    if not parts:
        return steps, []
    signature = f"*i32 *{state} *{result} i64 i64 i64 i64 {_tuples(problem, 2, 0)}"
    numbers = (problem.rows, geometry.splits, problem.extent, found.correction)
    spec = _spec("join_parts", signature, **constants, lanes=join_lanes(geometry.splits))
    launch = (ceil_div(problem.rows, THREADS // join_lanes(geometry.splits)), THREADS, 0)
    steps.append(Launch(spec, launch, (guard, parts, output), (*numbers, problem.kept_shape, problem.kept_strides[0])))
    return steps, [Slot("parts", state, problem.rows * geometry.splits * found.width)]


def fold(op: Op, descriptor: ReduceDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A forward op."""
    monoid = descriptor.corrected(op.traits["monoid"])
    if 0 in descriptor.output_shape:
        return Recipe(())
    ordered = monoid_of(monoid).places
    problem = Problem.of(
        descriptor.axes, [layouts["x"]], [layouts["y"]], descriptor.element, ordered, peel=True, across=_across(monoid, descriptor.element)
    )
    steps, slots = fold_steps(descriptor, problem, target, monoid, "x", "y", descriptor.result or descriptor.element)
    return Recipe(tuple(steps), tuple(slots))


def _across(monoid: str, value: str) -> int:
    """Bytes of the widest access across rows."""
    return ACROSS if monoid_of(monoid).about and BY_NAME[value].itemsize < 4 else 16


def too_many(op: Op, descriptor: ReduceDescriptor) -> str | None:
    """Why positions cannot be told apart: they are bits of finite numbers of the accumulator's type."""
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
    geometry = Geometry.of(whole, target.multiprocessors, value)
    given = Geometry.of_gradient(whole, value)
    if not rule.fold:
        return Recipe((_back(descriptor, whole, given, rule, NULL),))
    monoid, state, steps = descriptor.corrected(rule.fold), BY_NAME[value].accumulator, list[Step]()
    if whole.along and geometry.splits == 1 and not rule.guarded:
        return Recipe((_back(descriptor, whole, geometry, rule, NULL, monoid),))
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
    spec = _spec("find_special", f"*{descriptor.element} *i32 i64 {_tuples(problem, 2, 0)}", value=descriptor.element, kept=len(problem.kept_shape))
    return Launch(spec, (ceil_div(problem.rows, THREADS), THREADS, 0), ("y", "guard"), (problem.rows, problem.kept_shape, problem.full_kept[0]))


def _back(descriptor: ReduceBackwardDescriptor, problem: Problem, geometry: Geometry, rule: Gradient, kept: str, monoid: str = "") -> Launch:
    """The launch that writes the gradient, of what a fold kept, or with the fold by ``monoid`` in itself."""
    value, state = descriptor.element, BY_NAME[descriptor.element].accumulator
    (dx_kept, x_kept), (dx_reduced, x_reduced), (dy, y, held) = problem.full_kept, problem.full_reduced, problem.kept_strides
    constants: dict[str, Any] = {"gradient": rule.name, "value": value, "vector": problem.vector, "lanes": geometry.lanes}
    constants |= {"kept": len(problem.kept_shape), "dims": len(problem.shape)}
    x_name, y_name = "x" if rule.rows or monoid else NULL, "y" if len(rule.segments) > 1 else NULL
    share, along = 1 / problem.extent, (problem.shape, x_reduced, dx_reduced)
    if monoid:
        signature = f"*{value} *{value} *{value} *{value} i64 i64 i64 {state} {_tuples(problem, 5, 3)}"
        spec = _spec("fold_and_spread_rows", signature, monoid=monoid, **constants)
        scalars = (problem.rows, problem.extent, monoid_of(monoid).correction, share)
        return Launch(spec, geometry.launch, (x_name, "dy", y_name, "dx"), (*scalars, problem.kept_shape, x_kept, dy, y, dx_kept, *along))
    signature = f"*{value} *{value} *{value} *{state} *{value} i64 i64 i64 i64 {state} {_tuples(problem, 6, 3)}"
    spec = _spec(f"spread_{_form(problem)}", signature, **constants)
    extents = (problem.rows, problem.extent, geometry.chunk, geometry.splits, share)
    return Launch(spec, geometry.launch, (x_name, "dy", y_name, kept, "dx"), (*extents, problem.kept_shape, x_kept, dy, y, held, dx_kept, *along))
