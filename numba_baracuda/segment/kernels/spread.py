"""What a fold leaves goes back to its rows: gradients, and whatever else a row makes of its own elements and its segment's."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.atomics import red_max
from ...device.vector import LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...dtypes import BY_NAME
from ...gradients import GRADIENTS
from ...runtime import jit
from ..tiling import SPREADS, THREADS
from .common import accumulator_of, conversions_of, place_of, position_of
from .rows import position_of as lane_position_of
from .rows import rows_launch


@jit.kernel
def spread_rows(*, gradient: str, value: str, index: str, place: str, vector: int, lanes: int, cut: bool, dims: int) -> Any:
    """``output[r] = pull(x[r], w[r], g[ids[r]], y[ids[r]], p[ids[r]], q[ids[r]])`` by the gradient's ``pull``; 0 where the id is outside.

    Unless ``place`` is "", rows are walked in the order of a permutation of integers of that type, and so are ``ids``. ``kept`` holds p and q side by
    side for each segment and column, in the accumulator's type. A group takes ``SPREADS`` rows, all loads before the first store. Bytes: the rows of
    x, w and output once, ids and permutation, and the segments' rows gathered.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_of(value)
    rule = GRADIENTS[gradient]
    permuted, placed, guarded = place != "", rule.places, rule.guarded
    has_x, has_w, has_g, has_y = len(rule.rows) > 0, len(rule.rows) > 1, len(rule.segments) > 0, len(rule.segments) > 1
    kept_results = rule.results
    load, load_once, store, offset_of = LOAD_STREAM[vector], LOAD_ONCE[vector], STORE_STREAM[vector], place_of(dims)
    widen, narrow = conversions_of(value)
    as_number, pull = position_of(value), jit.device(rule.pull)
    position = lane_position_of(lanes, vector, SPREADS, cut)
    groups, batch_size, kept_size = THREADS // lanes, SPREADS * vector, max(SPREADS * vector * kept_results, 1)
    kept_vector = min(BY_NAME[BY_NAME[value].accumulator].vector, vector * kept_results & -(vector * kept_results)) if kept_results else 1
    load_kept = LOAD_ONCE[kept_vector]
    least, greatest = jit.number(wide, BY_NAME[value].tiny), jit.number(wide, BY_NAME[value].limits[1])

    @jit.device
    def ordinary(y: Any) -> Any:
        return wide(least) <= abs(y) <= wide(greatest)

    def spread_rows(
        x: Any, w: Any, ids: Any, permutation: Any, g: Any, y: Any, kept: Any, output: Any,
        rows: Any, columns: Any, chunks: Any, segments: Any, ids_step: Any,
        x_row: Any, w_row: Any, g_row: Any, y_row: Any, output_row: Any,
        shape: Any, x_strides: Any, w_strides: Any, g_strides: Any, y_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        second = cuda.local.array(batch_size, element)
        upper = cuda.local.array(batch_size, element)
        lower = cuda.local.array(batch_size, element)
        folded = cuda.local.array(kept_size, wide)
        batch_ids = cuda.local.array(SPREADS, index_type)
        places = cuda.local.array(SPREADS, int64)
        first, column = position(columns, chunks)
        x_offset, output_offset = offset_of(column, shape, x_strides), offset_of(column, shape, output_strides)
        w_offset, g_offset, y_offset = offset_of(column, shape, w_strides), offset_of(column, shape, g_strides), offset_of(column, shape, y_strides)
        if column < columns:
            for u in range(SPREADS):
                row = first + u * groups
                batch_ids[u] = ids[row * ids_step] if row < rows else index_type(-1)
                places[u] = row
                if permuted and row < rows:
                    places[u] = int64(permutation[row])
            for u in range(SPREADS):
                if 0 <= batch_ids[u] < segments:
                    identifier = int64(batch_ids[u])
                    if has_x:
                        load(x, places[u] * x_row + x_offset, batch, u * vector)
                    if has_w:
                        load(w, places[u] * w_row + w_offset, second, u * vector)
                    if has_g:
                        load_once(g, identifier * g_row + g_offset, upper, u * vector)
                    if has_y:
                        load_once(y, identifier * y_row + y_offset, lower, u * vector)
                    if kept_results > 0 and not guarded:
                        for v in range(0, vector * kept_results, kept_vector):
                            load_kept(kept, (identifier * columns + column) * kept_results + v, folded, u * vector * kept_results + v)
            for u in range(SPREADS):
                row = first + u * groups
                if row < rows:
                    if 0 <= batch_ids[u] < segments:
                        for v in range(vector):
                            at = u * vector + v
                            zero = wide(0)
                            one_x, one_w, one_g, one_y, p, q = zero, zero, zero, zero, zero, zero
                            if has_x:
                                one_x = widen(batch[at])
                            if has_w:
                                one_w = widen(second[at])
                            if placed:
                                one_w = as_number(row)
                            if has_g:
                                one_g = widen(upper[at])
                            if has_y:
                                one_y = widen(lower[at])
                            if guarded:
                                q = wide(-1)
                                if not ordinary(one_y):
                                    where = (int64(batch_ids[u]) * columns + column + v) * kept_results
                                    p, q = kept[where], kept[where + 1]
                            elif kept_results > 0:
                                p = folded[at * kept_results]
                                if kept_results > 1:
                                    q = folded[at * kept_results + 1]
                            batch[at] = narrow(pull(one_x, one_w, one_g, one_y, p, q, zero))
                    else:
                        for v in range(vector):
                            batch[u * vector + v] = element(0)
                    store(output, places[u] * output_row + output_offset, batch, u * vector)

    return spread_rows, rows_launch(vector, SPREADS)


@jit.kernel
def find_special(*, value: str, vector: int, lanes: int, cut: bool, dims: int) -> Any:
    """Sets ``guard[0]`` where an element of ``input`` is a zero, a subnormal, an infinity or NaN. Bytes: rows · columns · value read."""
    element, wide = jit.SCALARS[value], accumulator_of(value)
    load, offset_of, (widen, _) = LOAD_ONCE[vector], place_of(dims), conversions_of(value)
    position = lane_position_of(lanes, vector, SPREADS, cut)
    groups, batch_size = THREADS // lanes, SPREADS * vector
    least, greatest = jit.number(wide, BY_NAME[value].tiny), jit.number(wide, BY_NAME[value].limits[1])

    def find_special(input: Any, guard: Any, rows: Any, columns: Any, chunks: Any, input_row: Any, shape: Any, input_strides: Any) -> None:
        batch = cuda.local.array(batch_size, element)
        first, column = position(columns, chunks)
        offset = offset_of(column, shape, input_strides)
        if column < columns:
            for u in range(SPREADS):
                row = min(first + u * groups, rows - 1)
                load(input, row * input_row + offset, batch, u * vector)
            ordinary = True
            for k in range(batch_size):
                ordinary = ordinary and wide(least) <= abs(widen(batch[k])) <= wide(greatest)
            if not ordinary:
                red_max(guard, 0, int32(1))

    return find_special, rows_launch(vector, SPREADS)
