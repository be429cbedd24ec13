"""Problems whose reduced axes lie apart in memory, or whose lines are no multiple of a vector, as columns of whole vectors.

Let the axes of dense operands be, in the order of memory, before, E, after, where E elements are the outermost reduced axes. A walk along E has
``lines`` lines of it at a time. They are contiguous, so a position of the walk is a row of lines · after elements, all of them columns. The row is
a multiple of a vector for the right number of lines, whatever a line is. A fold leaves a state for each column, and combines the states of those
columns that have the same result. A gradient gives each column the terms of the result that it belongs to. Where E is no multiple of ``lines``, the
first columns have one element more. Where E · after is no multiple of a vector either, walks begin inside one: such *ragged* columns are turned by as
many, so that a walk begins with an aligned vector, of which some elements belong to the walk before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.axes import c_strides, fitting, merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .policy import Block, Passes
from .problem import Problem, Strides


@dataclass(frozen=True)
class View:
    """Dense operands by other axes, of which the axis ``walked`` is reduced, and the others are kept.

    ``sources`` names the operands' axis that each one is, where it is kept, and None where it is reduced. ``strides`` are those of full operands.
    """

    shape: Strides
    strides: Strides
    sources: tuple[int | None, ...]
    walked: int
    longer: int = 0
    ragged: int = 0  #: elements of a vector, where columns are ragged

    @property
    def positions(self) -> int:
        """The extent of the axis that is walked."""
        return self.shape[self.walked]

    @property
    def columns(self) -> int:
        """The number of all columns, each of which leaves a state."""
        return math.prod(self.shape) // self.positions

    def full(self, layout: Layout) -> Layout:
        """A full operand."""
        return Layout(self.shape, self.strides, layout.address)

    def kept(self, strides: Strides) -> Layout:
        """An operand that has the given strides along kept axes, and one element along reduced ones."""
        return Layout(self.shape, tuple(0 if source is None else strides[source] for source in self.sources))


@dataclass(frozen=True)
class FirstPass:
    """The fold of a walk to states, of which each row has ``states``; position p of state s is p · ``scale`` + s · ``step`` in the row."""

    problem: Problem
    states: int
    scale: int
    step: int
    kept_shape: Strides
    y_kept: Strides


def memory_order(full: Sequence[Layout]) -> list[int] | None:
    """The axes of dense operands in the order of memory, without those of extent 1; None for others."""
    first = full[0]
    order = sorted((axis for axis in range(len(first.shape)) if first.shape[axis] > 1), key=lambda axis: -first.strides[axis])
    dense = c_strides(tuple(first.shape[axis] for axis in order))
    return order if all(layout.strides[axis] == step for layout in full for axis, step in zip(order, dense, strict=True)) else None


def _is_slow(problem: Problem, size: int, column_bytes: int) -> bool:
    """Whether kernels would load narrow vectors, or jump from one piece of a line to the next."""
    policy, wanted = tuned(Passes()), tuned(Block()).vector_bytes if problem.row_contiguous else column_bytes
    if problem.staged or problem.peeled or problem.extent == 1 or problem.rows * problem.extent * size < policy.min_bytes:
        return False
    narrow = problem.vector * size < wanted
    if len(problem.shape) == 1:
        return narrow and not problem.row_contiguous
    return narrow or len(problem.shape) > 2 or problem.line * size < policy.contiguous_bytes


def _across(axes: Sequence[int], full: Sequence[Layout], size: int, column_bytes: int, turns: bool, vectors: int) -> View | None:
    """The walk along the outermost reduced axes; None where it would have few positions.

    ``turns``: it may begin inside an aligned vector. ``vectors``: those that a position should have.
    """
    order, policy = memory_order(full), tuned(Passes())
    if order is None:
        return None
    first = full[0]
    begin = next(k for k, axis in enumerate(order) if axis in axes)
    end = next((k for k in range(begin, len(order)) if order[k] not in axes), len(order))
    shape = tuple(first.shape[axis] for axis in order)
    extent, line = math.prod(shape[begin:end]), math.prod(shape[end:])
    wanted = max(1, column_bytes // size)
    while wanted > 1 and any((layout.address - (first.address if turns else 0)) % (wanted * size) for layout in full):
        wanted //= 2
    lines = wanted // fitting(wanted, [line])
    more = min(vectors * wanted // (lines * line), extent // (lines * policy.many_positions))
    if more > 1:
        lines *= more
    if begin and extent % lines and not turns:
        lines = 1
    longer = extent % lines * line
    turned = turns and (first.address % (wanted * size) != 0 or (begin > 0 and extent * line % wanted != 0))
    if extent // lines < policy.min_positions:
        return None
    strides = (*c_strides(shape)[:begin], lines * line, line, *c_strides(shape[end:]))
    sources = tuple(None if axis in axes else axis for axis in order)
    axes_of_view = (*shape[:begin], extent // lines, lines, *shape[end:])
    return View(axes_of_view, strides, (*sources[:begin], None, None, *sources[end:]), begin, longer, wanted if longer or turned else 0)


def _along(axes: Sequence[int], x: Layout, size: int) -> View | None:
    """The walk along the innermost reduced axes, whose elements are contiguous, or lines of few neighbouring columns are."""
    order = memory_order([x])
    if order is None:
        return None
    end = max(k + 1 for k, axis in enumerate(order) if axis in axes)
    begin = next((k + 1 for k in reversed(range(end)) if order[k] not in axes), 0)
    shape = tuple(x.shape[axis] for axis in order)
    apart = any(axis in axes for axis in order[:begin])
    if end < len(order) and not (apart and math.prod(shape[end:]) * size < tuned(Passes()).direct_line_bytes):
        return None
    walked = (*shape[:begin], math.prod(shape[begin:end]), *shape[end:])
    sources = tuple(None if axis in axes else axis for axis in order)
    return View(walked, c_strides(walked), (*sources[:begin], None, *sources[end:]), begin)


def _paying(across: View | None, along: View | None, plain: Problem, size: int, column_bytes: int, state_bytes: int) -> View | None:
    """The view whose states cost less than the loads of ``plain``; None where both cost more. States that caches hold cost little."""
    policy, nbytes = tuned(Passes()), plain.rows * plain.extent * size
    views = [view for view in (across, along) if view and view.positions * size >= policy.min_share * state_bytes]
    cached = [view for view in views if view.columns * state_bytes <= policy.max_state_bytes]
    if len(cached) == 2 and cached[0].positions < min(policy.many_positions, cached[1].positions):
        return cached[1]
    short_lines = plain.row_contiguous or plain.line * size < policy.direct_line_bytes
    loaded = plain.vector * size * (1 if short_lines else 2)
    percent = policy.narrow_percent if loaded < 4 else policy.single_percent if loaded == 4 else 0
    wider = [view for view in views if view is along or fitting(max(1, column_bytes // size), [view.strides[view.walked]]) > plain.vector]
    paying = [view for view in wider if 200 * view.columns * state_bytes <= percent * nbytes]
    return next(iter(cached), min(paying, key=lambda view: view.columns, default=None))


def first_pass(
    axes: Sequence[int], x: Layout, y: Layout, element: str, plain: Problem, column_bytes: int, staged_below: int, ordered: bool, origin: bool,
    state_bytes: int,
) -> FirstPass | None:  # fmt: skip
    """How a fold goes in two passes; None where one, ``plain``, is as good. ``ordered``: positions count; ``origin``: states are less an origin."""
    size, policy = BY_NAME[element].itemsize, tuned(Passes())
    few_long = plain.extent <= policy.max_lines and plain.line * size > policy.max_line_bytes and plain.vector * size >= 4
    if (len(plain.shape) == 1 and not plain.row_contiguous and few_long) or not _is_slow(plain, size, column_bytes):
        return None

    turns = size < 4 or plain.line * size < policy.direct_line_bytes
    across, along = _across(axes, [x], size, column_bytes, turns, policy.vectors_across), None if origin else _along(axes, x, size)
    view = _paying(across, along, plain, size, column_bytes, state_bytes)
    if view is None:
        return None
    rest = [k for k, source in enumerate(view.sources) if source is None and k != view.walked]
    places, states = c_strides(tuple(view.shape[k] for k in rest)), math.prod(view.shape[k] for k in rest)
    reduced = [axis for axis in memory_order([x]) or () if axis in axes]
    if states == 1 or (ordered and reduced != sorted(reduced)):
        return None
    kept = [k for k, source in enumerate(view.sources) if source is not None]
    rows = c_strides(tuple(view.shape[k] for k in kept))
    strides = dict(zip(rest, places, strict=True)) | {k: states * step for k, step in zip(kept, rows, strict=True)} | {view.walked: 0}
    output = Layout(view.shape, tuple(strides[k] for k in range(len(view.shape))))
    problem = Problem.of(
        (view.walked,), [view.full(x)], [output], element, False, True, False, staged_below, view is along, column_bytes, view.kept(x.strides),
        view.longer, view.ragged,
    )  # fmt: skip
    kept_shape, (y_kept,) = merge_axes([view.shape[k] for k in kept], [view.kept(y.strides).strides[k] for k in kept])
    scale, step = (states, 1) if view is across else (1, view.positions)
    return FirstPass(problem, states, scale, step, kept_shape, y_kept)


def walk_of_gradient(
    axes: Sequence[int], full: Sequence[Layout], kept: Sequence[Layout], element: str, plain: Problem, column_bytes: int,
    turns: bool = False,
) -> Problem | None:  # fmt: skip
    """The walk along which a gradient's loads and stores are whole vectors; None where those of ``plain`` are as good. ``turns``: see above."""
    size = BY_NAME[element].itemsize
    if not _is_slow(plain, size, column_bytes):
        return None
    view = _across(axes, full, size, column_bytes, turns, tuned(Passes()).gradient_vectors_across)
    if view is None:
        return None
    operands, origin = [view.full(layout) for layout in full], view.kept(full[1].strides)
    terms = [view.kept(layout.strides) for layout in kept]
    return Problem.of(
        (view.walked,), operands, terms, element, column_bytes=column_bytes, origin=origin, longer=view.longer, ragged=view.ragged
    )  # fmt: skip
