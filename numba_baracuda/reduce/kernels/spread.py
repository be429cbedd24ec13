"""Gradients go back along the axes: every element of x takes what its row's results say."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS, LARGE
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import STORE_STREAM
from ...kernels.batch import monoid_on
from ...kernels.elements import accumulator_of, as_number_of, conversions_of, of_type, ordinary_of, origin_of, place_of
from ...kernels.tallies import tally_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import Block
from ..tiling import steps_of
from .access import accesses_of, lane_of_group, part_of_block
from .rows import lane_of_row

#: numbers that say what a row's elements take
RULES = 5


class _Pull:
    """What a gradient reads, and how it makes an element of the result."""

    def __init__(self, gradient: str, value: str) -> None:
        rule, wide = GRADIENTS[gradient], accumulator_of(value)
        (widen, narrow), ordinary, as_number = conversions_of(value), ordinary_of(value), as_number_of(value)
        has_y, results, guarded, placed, shares = len(rule.segments) > 1, rule.results, rule.guarded, rule.places, rule.shares
        shifts, self.has_x, prepare, large = bool(rule.fold) and monoid_of(rule.fold).shifts, bool(rule.rows), jit.device(rule.prepare), wide(LARGE)
        pull, first_of = jit.device(of_type(rule.pull, wide)), origin_of(value)

        @jit.device
        def found(held: Any, held_at: Any, y: Any, y_at: Any) -> Any:
            """(p, q) of a row, where a fold left them."""
            p, q = wide(0), wide(0)
            if guarded:
                q = wide(-1)
                if not ordinary(widen(y[y_at])):
                    p, q = held[held_at * 2], held[held_at * 2 + 1]
            elif results > 0:
                p = held[held_at * results]
                if results > 1:
                    q = held[held_at * results + 1]
            return p, q

        @jit.device
        def rules(into: Any, at: Any, x: Any, dy: Any, y: Any, x_at: Any, dy_at: Any, y_at: Any, found: Any) -> None:
            """To ``into[at:]``: (g, y, p, q) of a row, prepared, and its origin, which its fold took from every element."""
            saved, origin = wide(0), wide(0)
            if has_y:
                saved = widen(y[y_at])
            if shifts:
                origin = first_of(x[x_at])
            g, saved, p, q = prepare(widen(dy[dy_at]), saved, found[0], found[1], wide(1), large)
            into[at], into[at + 1], into[at + 2], into[at + 3], into[at + 4] = g, saved, p, q, origin

        @jit.device
        def pulled(x: Any, position: Any, share: Any, rules: Any) -> Any:
            w = wide(0)
            if placed:
                w = as_number(position)
            if shares:
                w = wide(share)
            return narrow(pull(widen(x) - rules[4], w, rules[0], rules[1], rules[2], rules[3], wide(0)))

        @jit.device
        def pulled_ordinary(x: Any, position: Any, share: Any, rules: Any) -> Any:
            return pulled(x, position, share, (rules[0], rules[1], rules[2], wide(-1), rules[4]))

        self.found, self.rules, self.pulled, self.pulled_ordinary = found, rules, pulled, pulled_ordinary


_pull_of = functools.cache(_Pull)


@functools.cache
def part_of(gradient: str, value: str, vector: int, gap: int, dims: int, across: bool) -> Any:
    """``give(x, dx, from_x, to_dx, position, last, shape, x_strides, dx_strides, share, rules)``: a lane's part of the gradient of rows.

    Its accesses begin at ``position``, ``gap`` apart. ``across``: the ``vector`` elements of an access are of as many rows, else all of one;
    ``rules`` are those of these rows, one behind the other. Rows whose guarded gradient wants p and q have a walk of their own.
    """
    parts, steps, rows = _pull_of(gradient, value), steps_of(value, vector), vector if across else 1
    if not GRADIENTS[gradient].guarded:
        return _walk(gradient, value, vector, gap, dims, across, parts.pulled, steps)
    walk = _walk(gradient, value, vector, gap, dims, across, parts.pulled_ordinary, steps)
    walk_special = _walk(gradient, value, vector, gap, dims, across, parts.pulled, 1)

    @jit.device
    def give(
        x: Any, dx: Any, from_x: Any, to_dx: Any, position: Any, last: Any, shape: Any, x_strides: Any, dx_strides: Any, share: Any, rules: Any
    ) -> None:
        ordinary = True
        for v in range(rows):
            ordinary &= rules[v * RULES + 3] < 0
        if ordinary:
            walk(x, dx, from_x, to_dx, position, last, shape, x_strides, dx_strides, share, rules)
        else:
            walk_special(x, dx, from_x, to_dx, position, last, shape, x_strides, dx_strides, share, rules)

    return give


def _walk(gradient: str, value: str, vector: int, gap: int, dims: int, across: bool, pulled: Any, steps: int) -> Any:
    """The walk of :func:`part_of`, with ``steps`` accesses in flight."""
    element, has_x, place, store = jit.SCALARS[value], _pull_of(gradient, value).has_x, place_of(dims), STORE_STREAM[vector]
    (fetch, fetch_some), size = accesses_of(value, vector, gap, dims, steps), steps * vector
    along, rule = (0, RULES) if across else (1, 0)

    @jit.device
    def pull_one(batch: Any, s: Any, position: Any, share: Any, rules: Any) -> None:
        for v in range(vector):
            at = v * rule
            one = rules[at], rules[at + 1], rules[at + 2], rules[at + 3], rules[at + 4]
            batch[s * vector + v] = pulled(batch[s * vector + v], position + v * along, share, one)

    @jit.device
    def walk(
        x: Any, dx: Any, from_x: Any, to_dx: Any, position: Any, last: Any, shape: Any, x_strides: Any, dx_strides: Any, share: Any, rules: Any
    ) -> None:
        batch = cuda.local.array(size, element)
        if not has_x:
            for k in range(size):
                batch[k] = element(0)
        while position + (steps - 1) * gap < last:
            if has_x:
                fetch(x, from_x, position, shape, x_strides, batch, 0)
            for s in range(steps):
                pull_one(batch, s, position + s * gap, share, rules)
                if not has_x:  # a batch of one number many times would be kept in memory
                    store(dx, to_dx + place(position + s * gap, shape, dx_strides), batch, s * vector)
            if has_x:
                for s in range(steps):
                    store(dx, to_dx + place(position + s * gap, shape, dx_strides), batch, s * vector)
            position = opaque(position + steps * gap)
        if position < last:
            if has_x:
                fetch_some(x, from_x, position, last, position, shape, x_strides, batch, 0)
                for s in range(steps):
                    pull_one(batch, s, position + s * gap, share, rules)
            for s in range(steps):
                if position + s * gap < last:
                    if not has_x:
                        pull_one(batch, s, position + s * gap, share, rules)
                    store(dx, to_dx + place(position + s * gap, shape, dx_strides), batch, s * vector)

    return walk


@jit.kernel
def spread_rows(
    *, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int, threads_per_block: int = Block.threads_per_block
) -> Any:  # fmt: skip
    """``dx[o, r] = pull(x[o, r], dy[o], y[o], p[o], q[o])``: a group of lanes takes ``chunk`` places of a row, as ``fold_rows`` does.

    p and q are the results of a fold, side by side. Bytes: rows · extent · value written, and read where the gradient wants x.
    """
    parts, give = _pull_of(gradient, value), part_of(gradient, value, vector, lanes * vector, dims, False)
    found, rules_of, groups, row_of, wide = parts.found, parts.rules, threads_per_block // lanes, place_of(kept), accumulator_of(value)

    def spread_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], held: Ptr[wide], dx: Ptr[value],
        rows: int64, extent: int64, chunk: int64, splits: int64, share: Scalar[wide],
        kept_shape: Extents[kept], x_rows: Extents[kept], dy_rows: Extents[kept], y_rows: Extents[kept], held_rows: Extents[kept],
        dx_rows: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        rules = cuda.local.array(RULES, wide)
        row_block, split = part_of_block(splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        if row < rows:
            from_x, to_dx, y_at = row_of(row, kept_shape, x_rows), row_of(row, kept_shape, dx_rows), row_of(row, kept_shape, y_rows)
            both = found(held, row_of(row, kept_shape, held_rows), y, y_at)
            rules_of(rules, 0, x, dy, y, from_x, row_of(row, kept_shape, dy_rows), y_at, both)
            last = min((split + 1) * chunk, int64(extent))
            give(x, dx, from_x, to_dx, split * chunk + lane * vector, last, shape, x_strides, dx_strides, share, rules)

    return spread_rows, lambda rows, splits: (-(-rows // groups) * splits, threads_per_block, 0)


@jit.kernel
def fold_and_spread_rows(
    *, gradient: str, monoid: str, value: str, vector: int, lanes: int, kept: int, dims: int, threads_per_block: int = Block.threads_per_block
) -> Any:  # fmt: skip
    """``fold_rows`` and ``spread_rows`` in one, for rows that a group folds alone and then reads a second time, where the caches still hold them.

    For a guarded gradient the group folds its row only if that, or another row of the block, wants it, and gives ``chunk`` places their gradient.
    Bytes: rows · extent · value read from memory and written, and read once more, as far as rows fit, from the caches.
    """
    wide, parts, guarded = accumulator_of(value), _pull_of(gradient, value), GRADIENTS[gradient].guarded
    give = part_of(gradient, value, vector, lanes * vector, dims, False)
    widen, shifts, results, ordinary = conversions_of(value)[0], monoid_of(monoid).shifts, monoid_of(monoid).results, ordinary_of(value)
    tally, fold_lane = tally_of(monoid, value), lane_of_row(monoid, value, vector, lanes, False, dims, again=parts.has_x, rarely=guarded)
    nothing, fold, finish, rules_of = tally.nothing, tally.over(lanes), jit.device(monoid_on(monoid, value).finish), parts.rules
    groups, row_of, first_of = threads_per_block // lanes, place_of(kept), origin_of(value)

    @jit.device
    def fold_whole(x: Any, from_x: Any, there: Any, extent: Any, lane: Any, left: Any, shape: Any, x_strides: Any) -> Any:
        """(p, q) of a row, if it is there."""
        made, count, origin = nothing(), int32(0), wide(0)
        if there:
            made, count = fold_lane(x, from_x, int64(0), int64(extent), lane, shape, x_strides)
            if shifts:
                origin = first_of(x[from_x])
        ended = finish(fold(made, count, origin), wide(left), wide(1))
        return (ended, wide(0)) if results == 1 else ended

    def fold_and_spread_rows(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        rows: int64, extent: int64, chunk: int64, splits: int64, left: Scalar[wide], share: Scalar[wide],
        kept_shape: Extents[kept], x_rows: Extents[kept], dy_rows: Extents[kept], y_rows: Extents[kept], dx_rows: Extents[kept],
        shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        rules = cuda.local.array(RULES, wide)
        row_block, split = part_of_block(splits)
        group, lane = lane_of_group(lanes)
        row = row_block * groups + group
        at = min(row, int64(rows - 1))
        from_x, y_at = row_of(at, kept_shape, x_rows), row_of(at, kept_shape, y_rows)
        both = wide(0), wide(-1)
        if guarded:
            special = not ordinary(widen(y[y_at]))
            if cuda.syncthreads_or(int32(special)):
                found = fold_whole(x, from_x, row < rows, extent, lane, left, shape, x_strides)
                both = found if special else both
        else:
            both = fold_whole(x, from_x, row < rows, extent, lane, left, shape, x_strides)
        if row < rows:
            rules_of(rules, 0, x, dy, y, from_x, row_of(row, kept_shape, dy_rows), y_at, both)
            to_dx, last = row_of(row, kept_shape, dx_rows), min((split + 1) * chunk, int64(extent))
            give(x, dx, from_x, to_dx, split * chunk + lane * vector, last, shape, x_strides, dx_strides, share, rules)

    return fold_and_spread_rows, lambda rows, splits: (-(-rows // groups) * splits, threads_per_block, 0)


@jit.kernel
def spread_columns(
    *, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int, threads_per_block: int = Block.threads_per_block
) -> Any:  # fmt: skip
    """``spread_rows`` where x is not contiguous along the rows: lanes lie as in ``fold_columns``."""
    wide, parts, column_of, depth = accumulator_of(value), _pull_of(gradient, value), place_of(kept), threads_per_block // lanes
    found, rules_of, rule_sets, give = parts.found, parts.rules, RULES * vector, part_of(gradient, value, vector, depth, dims, True)

    def spread_columns(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], held: Ptr[wide], dx: Ptr[value],
        columns: int64, extent: int64, chunk: int64, splits: int64, share: Scalar[wide],
        kept_shape: Extents[kept], x_columns: Extents[kept], dy_columns: Extents[kept], y_columns: Extents[kept], held_columns: Extents[kept],
        dx_columns: Extents[kept], shape: Extents[dims], x_strides: Extents[dims], dx_strides: Extents[dims],
    ) -> None:  # fmt: skip
        rules = cuda.local.array(rule_sets, wide)
        column_block, split = part_of_block(splits)
        below, beside = lane_of_group(lanes)
        column = (column_block * lanes + beside) * vector
        if column < columns:
            from_x, to_dx = column_of(column, kept_shape, x_columns), column_of(column, kept_shape, dx_columns)
            for v in range(vector):
                dy_at, y_at = column_of(column + v, kept_shape, dy_columns), column_of(column + v, kept_shape, y_columns)
                both = found(held, column_of(column + v, kept_shape, held_columns), y, y_at)
                rules_of(rules, RULES * v, x, dy, y, from_x + v, dy_at, y_at, both)
            last = min((split + 1) * chunk, int64(extent))
            give(x, dx, from_x, to_dx, split * chunk + below, last, shape, x_strides, dx_strides, share, rules)

    return spread_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, threads_per_block, 0)


@jit.kernel
def find_special(
    *, value: str, kept: int, threads_per_block: int = Block.threads_per_block
) -> Any:  # fmt: skip
    """Sets ``guard[0]`` where an element of y is a zero, a subnormal, an infinity or NaN. Bytes: elements · value read."""
    (widen, _), ordinary, place = conversions_of(value), ordinary_of(value), place_of(kept)

    def find_special(
        y: Ptr[value], guard: Ptr[int32],
        elements: int64,
        shape: Extents[kept], strides: Extents[kept],
    ) -> None:  # fmt: skip
        k = int64(cuda.blockIdx.x) * threads_per_block + cuda.threadIdx.x
        if k < elements and not ordinary(widen(y[place(k, shape, strides)])):
            red_max(guard, 0, int32(1))

    return find_special, lambda elements: (-(-elements // threads_per_block), threads_per_block, 0)
