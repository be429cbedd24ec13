"""Folds of rows so short that a group of lanes loads one or several of them at a time."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...kernels.accumulators import thread_accumulator_of
from ...kernels.batch import state_accessors, state_kind
from ...kernels.elements import strided_offset_of
from ...kernels.transpose import first_state_index
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import lane_of_group, vector_loads
from .results import result_stores


def advance_of(kept: int) -> Any:
    """``advance(base, row, rows, shape, strides)``: the offset of row ``row + rows``, given that row ``row`` has offset ``base``; in elements."""
    offset_of = strided_offset_of(kept)
    if kept == 1:
        return jit.device(lambda base, row, rows, shape, strides: base + rows * strides[0])
    return jit.device(lambda base, row, rows, shape, strides: offset_of(row + rows, shape, strides))


@jit.kernel
def fold_short_rows(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, steps: int, height: int, full: bool, guarded: bool, kept: int, dims: int
) -> Any:
    """:func:`fold_rows` where ``steps`` vectors a lane hold a whole row: a group of at most 32 lanes loads ``height`` rows, then folds them.

    The rows of a group are ``THREADS // lanes`` rows from one to the next, so that neighbouring groups load neighbouring rows. The reduction over the
    lanes leaves the states of different rows in different lanes, each of which stores its own. Order and bytes as ``fold_rows``.

    Constants and parameters as :mod:`.` lists them, and: ``steps``: vectors that a lane loads of a row. ``height``: rows that a group loads at a
    time, a power of two. ``full``: whether each row has ``steps · lanes`` vectors, so that no load needs a bound. ``extent`` is at least 1;
    ``partials`` is not used.
    """
    element, accumulator = jit.SCALARS[value], thread_accumulator_of(monoid, value)
    kind, width, (get, _) = accumulator.kind, accumulator.state_width, state_accessors(accumulator.state_width)
    groups, stride, row_size = THREADS // lanes, lanes * vector, steps * vector
    rows_a_block, lane_rows, size, scalars = groups * height, max(1, height // lanes), height * row_size, height * width
    fold_rows, first_row_of = accumulator.reduce_rows(steps, vector, stride, lanes, height), first_state_index(lanes, height)
    (fetch, fetch_some), (store_result, _) = vector_loads(value, vector, stride, dims, steps), result_stores(monoid, value, result)
    row_offset, advance = strided_offset_of(kept), advance_of(kept)

    def fold_short_rows(
        x: Ptr[value], guard: Ptr[int32], y: Ptr[result], partials: Ptr[state_kind(monoid, value)],
        rows: int64, extent: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], x_kept_strides: Extents[kept], y_kept_strides: Extents[kept], shape: Extents[dims], x_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        states = cuda.local.array(scalars, kind)
        valid = cuda.local.array(height, int32)
        if guarded and guard[0] == 0:
            return
        group, lane = lane_of_group(lanes)
        first_row = int64(cuda.blockIdx.x) * rows_a_block
        rows_here = int32(min(int64(rows_a_block), rows - first_row))
        own_row = first_row + min(group, int32(rows_here - 1))
        base = row_offset(own_row, kept_shape, x_kept_strides)
        for h in range(height):
            offset = advance(base, own_row, h * groups, kept_shape, x_kept_strides)
            offset = offset if group + h * groups < rows_here else base
            if full:
                fetch(x, offset, lane * vector, shape, x_strides, batch, h * row_size)
                valid[h] = int32(steps)
            else:
                valid[h] = fetch_some(x, offset, lane * vector, extent, 0, shape, x_strides, batch, h * row_size)
        fold_rows(batch, int64(lane * vector), valid, lane, extent, states)
        group = int32(group + first_row_of(lane) * groups)
        if lane < height and group < rows_here:
            base = row_offset(first_row + group, kept_shape, y_kept_strides)
            for h in range(lane_rows):
                if group + h * groups < rows_here:
                    offset = advance(base, first_row + group, h * groups, kept_shape, y_kept_strides)
                    store_result(y, offset, get(states, h * width, 1), corrected_count)

    return fold_short_rows, lambda rows: (-(-rows // rows_a_block), THREADS, 0)
