"""Where a fold leaves its state: the result, or a part of it that later launches join."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import Integer, int32, int64

from ...algebra import monoid_of
from ...core.dtypes import FLOATS
from ...device.bits import f32_as_i32, f64_as_i64
from ...kernels.batch import accessors, monoid_on, state_kind, states_on
from ...kernels.elements import conversions_of, place_of
from ...kernels.tally import over_lanes
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .access import lane_of_group


@functools.cache
def narrow_of(monoid: str, value: str, result: str) -> Any:
    """``narrow(x)``: a number of the state's type as the result holds it; a position, kept as the float of its bits, becomes an integer."""
    found, kind, state = monoid_on(monoid, value), jit.SCALARS[result], state_kind(monoid, value)
    if found.places and isinstance(kind, Integer) and state in FLOATS:
        bits = f32_as_i32 if state == "f32" else f64_as_i64
        return jit.device(lambda x: kind(bits(x)))
    return conversions_of(result)[1]


@functools.cache
def results_of(monoid: str, value: str, result: str) -> tuple[Any, Any]:
    """``write(y, at, state, left)`` finishes a row, of so many elements less a correction.

    ``keep(parts, part, state)`` puts its state where a later launch finds it.
    """
    found, kind = monoid_on(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    finish, narrow, (_, put) = jit.device(found.finish), narrow_of(monoid, value, result), accessors(found.width)
    width, results = found.width, found.results

    @jit.device
    def write(y: Any, at: Any, state: Any, left: Any) -> None:
        ended = finish(state, left, kind(1))
        if results == 1:
            y[at] = narrow(ended)
        else:
            for w in range(results):
                y[at * results + w] = narrow(ended[w])

    return write, jit.device(lambda parts, part, state: put(parts, part * width, 1, state))


@jit.kernel
def join_parts(*, monoid: str, value: str, result: str, lanes: int, guarded: bool, kept: int) -> Any:
    """Joins the ``splits`` parts of each row, ``lanes`` lanes a row: lane by lane, then over the lanes. Bytes: parts read, rows · result written.

    A lane takes every ``lanes``-th part, or neighbouring ones of a monoid that does not commute.
    """
    states, width, ordered = states_on(monoid, value), monoid_on(monoid, value).width, not monoid_of(monoid).commutes
    identity, combine, fold, (get, _) = states.identity, states.combine, over_lanes(monoid, value, lanes), accessors(width)
    groups, (write, _), row_of = THREADS // lanes, results_of(monoid, value, result), place_of(kept)

    def join_parts(
        guard: Ptr[int32], parts: Ptr[state_kind(monoid, value)], y: Ptr[result],
        rows: int64, splits: int64, left: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], y_rows: Extents[kept],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        group, lane = lane_of_group(lanes)
        row = int64(cuda.blockIdx.x) * groups + group
        state = identity()
        if row < rows:
            if ordered:
                share = (splits + lanes - 1) // lanes
                for split in range(min(lane * share, splits), min((lane + 1) * share, splits)):
                    state = combine(state, get(parts, (row * splits + split) * width, 1))
            else:
                for split in range(lane, splits, lanes):
                    state = combine(state, get(parts, (row * splits + split) * width, 1))
        state = fold(state)
        if lane == 0 and row < rows:
            write(y, row_of(row, kept_shape, y_rows), state, left)

    return join_parts, lambda rows: (-(-rows // groups), THREADS, 0)
