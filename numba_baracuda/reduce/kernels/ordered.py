"""Folds along rows by a monoid that does not commute: elements are combined in the order of their positions."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.build import opaque
from ...kernels.batch import batch_of, state_accessors, state_functions
from ...kernels.transpose import transposed_fold
from ...runtime import jit
from ..tiling import steps_of
from .loads import vector_loads


@functools.cache
def tile_in_order(monoid: str, value: str, vector: int, steps: int) -> Any:
    """``fold(batch, valid, lane)``: the state of the tile that a warp holds, the same in all lanes.

    Lane l has in ``batch`` the first ``valid`` of ``steps`` vectors of ``vector`` elements. Vector s of lane l comes after vector s of lane l − 1,
    and that of lane 0 after vector s − 1 of lane 31. Vectors of a step are folded over the lanes, for all steps at once, then the steps are folded.
    """
    states = state_functions(monoid, value)
    width, kind, combine, of_partner = len(states.kinds), states.kinds[0], states.combine, states.of_partner
    vector_state, transposed, (get, put) = batch_of(monoid, value, 1, vector, 1, 0), transposed_fold(states, 32, steps), state_accessors(width)
    levels, scalars = steps.bit_length() - 1, steps * width

    @jit.device
    def fold(batch: Any, valid: Any, lane: Any) -> Any:
        folded = cuda.local.array(scalars, kind)
        for s in range(steps):
            put(folded, s * width, 1, vector_state(batch, s * vector, 0, int32(s < valid)))
        transposed(folded, lane)
        state = get(folded, 0, 1)
        for k in range(levels):  # lanes whose bits differ in the last of them hold neighbouring steps
            bit = int32(1 << (levels - 1 - k))
            other = of_partner(state, bit)
            state = combine(other if lane & bit else state, state if lane & bit else other)
        return state

    return fold


@functools.cache
def lane_in_order(monoid: str, value: str, vector: int, lanes: int, dims: int) -> Any:
    """``fold(x, base, first, last, lane, shape, strides)`` as that of :func:`~.rows.lane_of_row`, for one warp or a block of whole ones.

    A warp walks neighbouring positions; each warp of a block has a run of them. The first lane returns its warp's state, the others the identity.
    """
    element, stride, steps, warps = jit.SCALARS[value], 32 * vector, steps_of(value, vector), lanes // 32
    states, fold_tile, size = state_functions(monoid, value), tile_in_order(monoid, value, vector, steps), steps * vector
    identity, combine, (fetch, fetch_some) = states.identity, states.combine, vector_loads(value, vector, stride, dims, steps)

    @jit.device
    def fold(x: Any, base: Any, begin: Any, row_end: Any, lane: Any, shape: Any, strides: Any) -> Any:
        batch = cuda.local.array(size, element)
        acc, warp_lane, position, end = identity(), int32(lane & 31), int64(begin), int64(row_end)
        if warps > 1:
            stretch = ((end - position + warps * stride - 1) // (warps * stride)) * stride
            position = min(position + (lane >> 5) * stretch, end)
            end = min(position + stretch, end)
        while position + steps * stride <= end:
            fetch(x, base, position + warp_lane * vector, shape, strides, batch, 0)
            acc = combine(acc, fold_tile(batch, int32(steps), warp_lane))
            position = opaque(position + steps * stride)
        if position < end:
            valid = fetch_some(x, base, position + warp_lane * vector, end, position, shape, strides, batch, 0)
            acc = combine(acc, fold_tile(batch, valid, warp_lane))
        return acc if warp_lane == 0 else identity(), int32(0)

    return fold
