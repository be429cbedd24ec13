"""Folds along rows of a monoid that does not commute: elements are joined in the order of their places."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.build import opaque
from ...kernels.batch import accessors, batch_of, states_on
from ...kernels.transpose import transposed_fold
from ...runtime import jit
from ..tiling import steps_of
from .access import accesses_of


@functools.cache
def tile_in_order(monoid: str, value: str, vector: int, steps: int) -> Any:
    """``fold(batch, valid, lane)``: the state of the tile that a warp holds, the same in all lanes.

    Lane l has in ``batch`` the first ``valid`` of ``steps`` accesses of ``vector`` elements; the s-th of lane l comes behind the s-th of lane l − 1,
    and that of lane 0 behind the one before of lane 31. The accesses of a step are folded over the lanes, those of all steps at once, then the steps.
    """
    states = states_on(monoid, value)
    width, kind, combine, of_partner = len(states.kinds), states.kinds[0], states.combine, states.of_partner
    access, transposed, (get, put) = batch_of(monoid, value, 1, vector, 1, 0), transposed_fold(states, 32, steps), accessors(width)
    levels, scalars = steps.bit_length() - 1, steps * width

    @jit.device
    def fold(batch: Any, valid: Any, lane: Any) -> Any:
        folded = cuda.local.array(scalars, kind)
        for s in range(steps):
            put(folded, s * width, 1, access(batch, s * vector, 0, int32(s < valid)))
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

    A warp walks neighbouring places, of a block each a stretch of its own. Its state is that of its first lane; the others give the identity.
    """
    element, stride, steps, warps = jit.SCALARS[value], 32 * vector, steps_of(value, vector), lanes // 32
    states, fold_tile, size = states_on(monoid, value), tile_in_order(monoid, value, vector, steps), steps * vector
    identity, combine, (fetch, fetch_some) = states.identity, states.combine, accesses_of(value, vector, stride, dims, steps)

    @jit.device
    def fold(x: Any, base: Any, first: Any, last: Any, lane: Any, shape: Any, strides: Any) -> Any:
        batch = cuda.local.array(size, element)
        made, own, position, end = identity(), int32(lane & 31), int64(first), int64(last)
        if warps > 1:
            stretch = ((end - position + warps * stride - 1) // (warps * stride)) * stride
            position = min(position + (lane >> 5) * stretch, end)
            end = min(position + stretch, end)
        while position + steps * stride <= end:
            fetch(x, base, position + own * vector, shape, strides, batch, 0)
            made = combine(made, fold_tile(batch, int32(steps), own))
            position = opaque(position + steps * stride)
        if position < end:
            valid = fetch_some(x, base, position + own * vector, end, position, shape, strides, batch, 0)
            made = combine(made, fold_tile(batch, valid, own))
        return made if own == 0 else identity(), int32(0)

    return fold
