"""Where a fold leaves its state: the result, or a part of it that later launches join."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import Integer, int32, int64

from ...core.dtypes import FLOATS
from ...device.bits import f32_as_i32, f64_as_i64
from ...kernels.batch import state_accessors, state_functions, state_kind, typed_monoid
from ...kernels.elements import conversions_of, strided_offset_of
from ...kernels.thread_accumulator import group_reduce
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import lane_of_group


@functools.cache
def narrow_of(monoid: str, value: str, result: str) -> Any:
    """``narrow(x)``: a number of the state's type as the result holds it; a position, kept as the float of its bits, becomes an integer."""
    typed, kind, state = typed_monoid(monoid, value), jit.SCALARS[result], state_kind(monoid, value)
    if typed.uses_positions and isinstance(kind, Integer) and state in FLOATS:
        bits = f32_as_i32 if state == "f32" else f64_as_i64
        return jit.device(lambda x: kind(bits(x)))
    return conversions_of(result)[1]


@functools.cache
def result_stores(monoid: str, value: str, result: str) -> tuple[Any, Any]:
    """``write(y, at, state, left)`` finishes a row, of so many elements less a correction.

    ``keep(parts, part, state)`` puts its state where a later launch finds it.
    """
    typed, kind = typed_monoid(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    finish, narrow, (_, put) = jit.device(typed.finish), narrow_of(monoid, value, result), state_accessors(typed.width)
    width, results = typed.width, typed.results

    @jit.device
    def store_result(y: Any, offset: Any, state: Any, corrected_count: Any) -> None:
        finished = finish(state, corrected_count, kind(1))
        if results == 1:
            y[offset] = narrow(finished)
        else:
            for w in range(results):
                y[offset * results + w] = narrow(finished[w])

    return store_result, jit.device(lambda partials, index, state: put(partials, index * width, 1, state))


@jit.kernel
def combine_partials(*, monoid: str, value: str, result: str, lanes: int, guarded: bool, kept: int) -> Any:
    """Joins the ``splits`` parts of each row, ``lanes`` lanes a row: lane by lane, then over the lanes. Bytes: parts read, rows · result written."""
    states, width = state_functions(monoid, value), typed_monoid(monoid, value).width
    identity, combine, reduce_lanes, (get, _) = states.identity, states.combine, group_reduce(monoid, value, lanes), state_accessors(width)
    groups, (store_result, _), row_offset = THREADS // lanes, result_stores(monoid, value, result), strided_offset_of(kept)

    def combine_partials(
        guard: Ptr[int32], partials: Ptr[state_kind(monoid, value)], y: Ptr[result],
        rows: int64, splits: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        group, lane = lane_of_group(lanes)
        row = int64(cuda.blockIdx.x) * groups + group
        state = identity()
        if row < rows:
            for split in range(lane, splits, lanes):
                state = combine(state, get(partials, (row * splits + split) * width, 1))
        state = reduce_lanes(state)
        if lane == 0 and row < rows:
            store_result(y, row_offset(row, kept_shape, y_kept_strides), state, corrected_count)

    return combine_partials, lambda rows: (-(-rows // groups), THREADS, 0)
