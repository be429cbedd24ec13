"""Gradients go back along the axes: every element of x takes what its row's results say."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import STORE_STREAM
from ...gradients import GRADIENTS
from ...kernels.batch import over_lanes, states_on
from ...kernels.elements import accumulator_of, as_number_of, conversions_of, ordinary_of, place_of
from ...runtime import jit
from ..tiling import STEPS, THREADS
from .access import accesses_of, part_of_block
from .rows import lane_of_row


class _Pull:
    """What a gradient reads, and how it makes an element of the result."""

    def __init__(self, gradient: str, value: str) -> None:
        rule, wide = GRADIENTS[gradient], accumulator_of(value)
        (widen, narrow), pull, ordinary, as_number = conversions_of(value), jit.device(rule.pull), ordinary_of(value), as_number_of(value)
        has_y, results, guarded, placed, shares = len(rule.segments) > 1, rule.results, rule.guarded, rule.places, rule.shares
        shifts, self.has_x = bool(rule.fold) and monoid_of(rule.fold).shifts, bool(rule.rows)

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
        def rules(x: Any, dy: Any, y: Any, x_at: Any, dy_at: Any, y_at: Any, found: Any) -> Any:
            """(g, y, p, q) of a row, and its origin: what its fold took from every element."""
            saved, origin = wide(0), wide(0)
            if has_y:
                saved = widen(y[y_at])
            if shifts:
                origin = widen(x[x_at])
            return widen(dy[dy_at]), saved, found[0], found[1], origin

        @jit.device
        def pulled(x: Any, position: Any, share: Any, rules: Any) -> Any:
            w = wide(0)
            if placed:
                w = as_number(position)
            if shares:
                w = wide(share)
            return narrow(pull(widen(x) - rules[4], w, rules[0], rules[1], rules[2], rules[3], wide(0)))

        self.found, self.rules, self.pulled = found, rules, pulled


@functools.cache
def part_of_row(gradient: str, value: str, vector: int, lanes: int, dims: int) -> Any:
    """``give(x, dx, from_x, to_dx, first, last, lane, shape, x_strides, dx_strides, share, rules)``: a group gives a part of a row its gradient."""
    element, parts, stride, size = jit.SCALARS[value], _Pull(gradient, value), lanes * vector, STEPS * vector
    pulled, has_x, place, store = parts.pulled, parts.has_x, place_of(dims), STORE_STREAM[vector]
    _, fetch_some = accesses_of(value, vector, stride, dims)

    @jit.device
    def give(
        x: Any, dx: Any, from_x: Any, to_dx: Any, first: Any, last: Any, lane: Any,
        shape: Any, x_strides: Any, dx_strides: Any, share: Any, rules: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        position = first + int64(lane) * vector
        while position < last:
            fetch_some(x, from_x, position, last if has_x else position, shape, x_strides, batch, 0)
            for s in range(STEPS):
                if position + s * stride < last:
                    for v in range(vector):
                        batch[s * vector + v] = pulled(batch[s * vector + v], position + s * stride + v, share, rules)
                    store(dx, to_dx + place(position + s * stride, shape, dx_strides), batch, s * vector)
            position = opaque(position + STEPS * stride)

    return give


@jit.kernel
def spread_rows(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``dx[o, r] = pull(x[o, r], dy[o], y[o], p[o], q[o])``: a group of lanes takes ``chunk`` places of a row, as ``fold_rows`` does.

    p and q are the results of a fold, side by side. Bytes: rows · extent · value written, and read where the gradient wants x.
    """
    parts, give = _Pull(gradient, value), part_of_row(gradient, value, vector, lanes, dims)
    found, rules_of, groups, row_of = parts.found, parts.rules, THREADS // lanes, place_of(kept)

    def spread_rows(
        x: Any, dy: Any, y: Any, held: Any, dx: Any, rows: Any, extent: Any, chunk: Any, splits: Any, share: Any,
        kept_shape: Any, x_rows: Any, dy_rows: Any, y_rows: Any, held_rows: Any, dx_rows: Any, shape: Any, x_strides: Any, dx_strides: Any,
    ) -> None:  # fmt: skip
        row_block, split = part_of_block(splits)
        group = int32(cuda.threadIdx.x // lanes)
        row = row_block * groups + group
        if row < rows:
            from_x, to_dx, y_at = row_of(row, kept_shape, x_rows), row_of(row, kept_shape, dx_rows), row_of(row, kept_shape, y_rows)
            both = found(held, row_of(row, kept_shape, held_rows), y, y_at)
            rules = rules_of(x, dy, y, from_x, row_of(row, kept_shape, dy_rows), y_at, both)
            last = min((split + 1) * chunk, int64(extent))
            give(x, dx, from_x, to_dx, split * chunk, last, cuda.threadIdx.x - group * lanes, shape, x_strides, dx_strides, share, rules)

    return spread_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def fold_and_spread_rows(*, gradient: str, monoid: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``fold_rows`` and ``spread_rows`` in one, for whole rows: a group reads its row a second time where the caches still hold it.

    Bytes: rows · extent · value read from memory and written, and read once more, as far as rows fit, from the caches.
    """
    wide, parts, give = accumulator_of(value), _Pull(gradient, value), part_of_row(gradient, value, vector, lanes, dims)
    widen, shifts, results = conversions_of(value)[0], monoid_of(monoid).shifts, monoid_of(monoid).results
    fold_lane, fold = lane_of_row(monoid, value, vector, lanes, False, dims, again=parts.has_x), over_lanes(monoid, value, lanes)
    identity, finish, rules_of = states_on(monoid, value).identity, jit.device(monoid_of(monoid).finish), parts.rules
    groups, row_of = THREADS // lanes, place_of(kept)

    def fold_and_spread_rows(
        x: Any, dy: Any, y: Any, dx: Any, rows: Any, extent: Any, correction: Any, share: Any,
        kept_shape: Any, x_rows: Any, dy_rows: Any, y_rows: Any, dx_rows: Any, shape: Any, x_strides: Any, dx_strides: Any,
    ) -> None:  # fmt: skip
        group = int32(cuda.threadIdx.x // lanes)
        lane = int32(cuda.threadIdx.x - group * lanes)
        row = int64(cuda.blockIdx.x) * groups + group
        from_x = row_of(min(row, int64(rows - 1)), kept_shape, x_rows)
        state = identity()
        if row < rows:
            origin = widen(x[from_x]) if shifts else wide(0)
            state = fold_lane(x, from_x, int64(0), int64(extent), lane, shape, x_strides, origin)
        ended = finish(fold(state), wide(extent - correction), wide(1))
        if row < rows:
            both = (ended, wide(0)) if results == 1 else ended
            rules = rules_of(x, dy, y, from_x, row_of(row, kept_shape, dy_rows), row_of(row, kept_shape, y_rows), both)
            give(x, dx, from_x, row_of(row, kept_shape, dx_rows), int64(0), int64(extent), lane, shape, x_strides, dx_strides, share, rules)

    return fold_and_spread_rows, lambda rows: (-(-rows // groups), THREADS, 0)


@jit.kernel
def spread_columns(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``spread_rows`` where x is not contiguous along the rows: lanes lie as in ``fold_columns``."""
    element, wide, parts = jit.SCALARS[value], accumulator_of(value), _Pull(gradient, value)
    found_in, rules_of, pulled, has_x = parts.found, parts.rules, parts.pulled, parts.has_x
    depth, rule_size, size = THREADS // lanes, 5 * vector, STEPS * vector
    column_of, place_down, store, (_, fetch_some) = place_of(kept), place_of(dims), STORE_STREAM[vector], accesses_of(value, vector, depth, dims)

    def spread_columns(
        x: Any, dy: Any, y: Any, held: Any, dx: Any, columns: Any, extent: Any, chunk: Any, splits: Any, share: Any,
        kept_shape: Any, x_columns: Any, dy_columns: Any, y_columns: Any, held_columns: Any, dx_columns: Any,
        shape: Any, x_strides: Any, dx_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        rules = cuda.local.array(rule_size, wide)
        column_block, split = part_of_block(splits)
        below = int32(cuda.threadIdx.x // lanes)
        column = (column_block * lanes + (cuda.threadIdx.x - below * lanes)) * vector
        if column < columns:
            from_x, to_dx = column_of(column, kept_shape, x_columns), column_of(column, kept_shape, dx_columns)
            for v in range(vector):
                dy_at, y_at = column_of(column + v, kept_shape, dy_columns), column_of(column + v, kept_shape, y_columns)
                both = found_in(held, column_of(column + v, kept_shape, held_columns), y, y_at)
                found = rules_of(x, dy, y, from_x + v, dy_at, y_at, both)
                for k in range(5):
                    rules[5 * v + k] = found[k]
            last = min((split + 1) * chunk, int64(extent))
            position = split * chunk + below
            while position < last:
                fetch_some(x, from_x, position, last if has_x else position, shape, x_strides, batch, 0)
                for s in range(STEPS):
                    if position + s * depth < last:
                        for v in range(vector):
                            one = rules[5 * v], rules[5 * v + 1], rules[5 * v + 2], rules[5 * v + 3], rules[5 * v + 4]
                            batch[s * vector + v] = pulled(batch[s * vector + v], position + s * depth, share, one)
                        store(dx, to_dx + place_down(position + s * depth, shape, dx_strides), batch, s * vector)
                position = opaque(position + STEPS * depth)

    return spread_columns, lambda columns, splits: (-(-columns // (lanes * vector)) * splits, THREADS, 0)


@jit.kernel
def find_special(*, value: str, kept: int) -> Any:
    """Sets ``guard[0]`` where an element of y is a zero, a subnormal, an infinity or NaN. Bytes: elements · value read."""
    (widen, _), ordinary, place = conversions_of(value), ordinary_of(value), place_of(kept)

    def find_special(y: Any, guard: Any, elements: Any, shape: Any, strides: Any) -> None:
        k = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if k < elements and not ordinary(widen(y[place(k, shape, strides)])):
            red_max(guard, 0, int32(1))

    return find_special, lambda elements: (-(-elements // THREADS), THREADS, 0)
