"""Gradients go back along the axes: every element of x takes what its row's results say."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import STORE_STREAM
from ...gradients import GRADIENTS
from ...kernels.elements import accumulator_of, as_number_of, conversions_of, place_of
from ...kernels.pull import ordinary_of
from ...runtime import jit
from ..tiling import STEPS, THREADS
from .access import accesses_of


class _Pull:
    """What a gradient reads, and how it makes an element of the result."""

    def __init__(self, gradient: str, value: str) -> None:
        rule, wide = GRADIENTS[gradient], accumulator_of(value)
        (widen, narrow), pull, ordinary, as_number = conversions_of(value), jit.device(rule.pull), ordinary_of(value), as_number_of(value)
        has_y, results, guarded, placed, shares = len(rule.segments) > 1, rule.results, rule.guarded, rule.places, rule.shares
        shifts, self.has_x = bool(rule.fold) and monoid_of(rule.fold).shifts, bool(rule.rows)

        @jit.device
        def rules(x: Any, dy: Any, y: Any, held: Any, x_at: Any, dy_at: Any, y_at: Any, held_at: Any) -> Any:
            """(g, y, p, q) of a row, and its origin: what its fold took from every element."""
            g, saved, p, q = widen(dy[dy_at]), wide(0), wide(0), wide(0)
            if has_y:
                saved = widen(y[y_at])
            if guarded:
                q = wide(-1)
                if not ordinary(saved):
                    p, q = held[held_at * 2], held[held_at * 2 + 1]
            elif results > 0:
                p = held[held_at * results]
                if results > 1:
                    q = held[held_at * results + 1]
            origin = wide(0)
            if shifts:
                origin = widen(x[x_at])
            return g, saved, p, q, origin

        @jit.device
        def pulled(x: Any, position: Any, share: Any, rules: Any) -> Any:
            w = wide(0)
            if placed:
                w = as_number(position)
            if shares:
                w = wide(share)
            return narrow(pull(widen(x) - rules[4], w, rules[0], rules[1], rules[2], rules[3], wide(0)))

        self.rules, self.pulled = rules, pulled


@jit.kernel
def spread_rows(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``dx[o, r] = pull(x[o, r], dy[o], y[o], p[o], q[o])``: a group of lanes takes ``chunk`` places of a row, as ``fold_rows`` does.

    p and q are the results of a fold, side by side. Bytes: rows · extent · value written, and read where the gradient wants x.
    """
    element, parts = jit.SCALARS[value], _Pull(gradient, value)
    rules_of, pulled, has_x = parts.rules, parts.pulled, parts.has_x
    groups, stride = THREADS // lanes, lanes * vector
    row_of, place_in_row, store, size = place_of(kept), place_of(dims), STORE_STREAM[vector], STEPS * vector
    _, fetch_some = accesses_of(value, vector, stride, dims)

    def spread_rows(
        x: Any, dy: Any, y: Any, held: Any, dx: Any, rows: Any, extent: Any, chunk: Any, splits: Any, share: Any,
        kept_shape: Any, x_rows: Any, dy_rows: Any, y_rows: Any, held_rows: Any, dx_rows: Any, shape: Any, x_strides: Any, dx_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        block = int64(cuda.blockIdx.x)
        row_block = int64(uint32(block) // uint32(splits))
        split = block - row_block * splits
        group = int32(cuda.threadIdx.x // lanes)
        row = row_block * groups + group
        if row < rows:
            from_x, to_dx = row_of(row, kept_shape, x_rows), row_of(row, kept_shape, dx_rows)
            dy_at, y_at, held_at = row_of(row, kept_shape, dy_rows), row_of(row, kept_shape, y_rows), row_of(row, kept_shape, held_rows)
            rules = rules_of(x, dy, y, held, from_x, dy_at, y_at, held_at)
            last = min((split + 1) * chunk, int64(extent))
            position = split * chunk + int64(cuda.threadIdx.x - group * lanes) * vector
            while position < last:
                fetch_some(x, from_x, position, last if has_x else position, shape, x_strides, batch, 0)
                for s in range(STEPS):
                    if position + s * stride < last:
                        for v in range(vector):
                            batch[s * vector + v] = pulled(batch[s * vector + v], position + s * stride + v, share, rules)
                        store(dx, to_dx + place_in_row(position + s * stride, shape, dx_strides), batch, s * vector)
                position = opaque(position + STEPS * stride)

    return spread_rows, lambda rows, splits: (-(-rows // groups) * splits, THREADS, 0)


@jit.kernel
def spread_columns(*, gradient: str, value: str, vector: int, lanes: int, kept: int, dims: int) -> Any:
    """``spread_rows`` where x is not contiguous along the rows: lanes lie as in ``fold_columns``."""
    element, wide, parts = jit.SCALARS[value], accumulator_of(value), _Pull(gradient, value)
    rules_of, pulled, has_x = parts.rules, parts.pulled, parts.has_x
    depth, rule_size, size = THREADS // lanes, 5 * vector, STEPS * vector
    column_of, place_down, store, (_, fetch_some) = place_of(kept), place_of(dims), STORE_STREAM[vector], accesses_of(value, vector, depth, dims)

    def spread_columns(
        x: Any, dy: Any, y: Any, held: Any, dx: Any, columns: Any, extent: Any, chunk: Any, splits: Any, share: Any,
        kept_shape: Any, x_columns: Any, dy_columns: Any, y_columns: Any, held_columns: Any, dx_columns: Any,
        shape: Any, x_strides: Any, dx_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        rules = cuda.local.array(rule_size, wide)
        block = int64(cuda.blockIdx.x)
        column_block = int64(uint32(block) // uint32(splits))
        split = block - column_block * splits
        below = int32(cuda.threadIdx.x // lanes)
        column = (column_block * lanes + (cuda.threadIdx.x - below * lanes)) * vector
        if column < columns:
            from_x, to_dx = column_of(column, kept_shape, x_columns), column_of(column, kept_shape, dx_columns)
            for v in range(vector):
                dy_at, y_at = column_of(column + v, kept_shape, dy_columns), column_of(column + v, kept_shape, y_columns)
                found = rules_of(x, dy, y, held, from_x + v, dy_at, y_at, column_of(column + v, kept_shape, held_columns))
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
