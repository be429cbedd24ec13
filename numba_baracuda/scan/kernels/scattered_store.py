"""A warp's stores of the gradients of cummax and cummin: zeros, and a number at each winner."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import STORE_STREAM
from ...runtime import jit
from ..operators import INITIAL, NOTHING
from .load_transform import LoadTransform
from .operator_functions import OperatorFunctions
from .shared_tile import SharedTile


def run_with_next_of(functions: OperatorFunctions) -> Any:
    """``f(run, transformed, v, position)``: the state of a run, of one element at least, with the element v more.

    While they are combined, the position tells only the element, at 0, from all before it: whether a state has any element is not asked again.
    """
    combine, lift, position_type = functions.states.combine, functions.lift, functions.kinds[1]

    @jit.device
    def run_with_next(run: Any, transformed: Any, v: Any, position: Any) -> Any:
        after = combine((run[0], position_type(INITIAL), run[2], run[3]), lift(transformed, v, int32(0)))
        return after[0], position_type(position) if after[1] == 0 else run[1], after[2], after[3]

    return run_with_next


def scattered_store_of(
    functions: OperatorFunctions, transform: LoadTransform, tile: SharedTile, vector: int, lanes: int, steps: int, in_row: Any
) -> Any:  # fmt: skip
    """``store`` of a :class:`~.warp_tile.WarpTile` for an operator that scatters, of a row of many tiles.

    Results are 0, but a winner gets the number that the operator emits where the next winner takes over or the row ends. Winners are rare: a vector
    is searched element by element only if it holds a winner or an end of the row. ``in_row(s, k, bounds)`` is false where element k of a lane, in its
    vector s, is before the row.
    """
    size, tile_bounds, memory_offset, memory_step = steps * vector, tile.tile_bounds, tile.memory_offset, tile.memory_step
    apply, lane_bounds, (size_p, size_q, size_r) = transform.apply, transform.lane_bounds, transform.sizes
    ends_row, combine, lift, emit, narrow = transform.ends_row, functions.states.combine, functions.lift, functions.emit, functions.narrow
    farther, position_type = functions.extremes.combine, functions.kinds[1]
    element, wide, store_vector, stripe, mask_type = (
        functions.element, functions.wide, STORE_STREAM[vector], lanes * vector, int32 if size <= 32 else int64,
    )  # fmt: skip

    @jit.device
    def store(
        output: Any, indices: Any, output_base: Any, indices_base: Any, output_stride: Any, indices_stride: Any, active: Any,
        warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any, state: Any, shared: Any, shared_results: Any,
        shared_indices: Any,
    ) -> None:  # fmt: skip
        transformed = (cuda.local.array(size_p, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        zeros = cuda.local.array(vector, element)
        neighbour_ref = cuda.local.array(1, wide)
        for v in range(vector):
            zeros[v] = narrow(wide(0))
        lane_start, winner_mask = warp_start + lane * size, mask_type(0)
        bounds = lane_bounds(lane_start, extent, row[0])
        s = int32(0)
        while s < steps:
            apply(shared, lane, s, bounds, initial, neighbour_ref, transformed)
            index, extreme, total = int32(s * vector), state[0], state[2]
            for v in range(vector):
                extreme, total = farther(extreme, transformed[1][v]), total + transformed[0][v]
            before_all = state[0], position_type(NOTHING if state[1] == NOTHING else INITIAL), total, total
            after = state[0], state[1], total, state[3]
            if (combine(before_all, (extreme, position_type(0), total, total))[1] == 0) | (bounds[0] > index) | (bounds[1] <= int32(index + vector)):
                after = state
                for v in range(vector):
                    k = int32(index + v)
                    lifted = lift(transformed, v, lane_start + k)
                    before, after = after, combine(after, lifted)
                    won = (after[1] == lifted[1]) & (k < bounds[1]) & in_row(s, k, bounds)
                    last = ends_row(bounds, s, v) & (k < bounds[1]) & in_row(s, k, bounds)
                    if won | last:
                        if won:
                            winner_mask |= mask_type(mask_type(1) << k)
                        if active and won and before[1] >= 0:
                            output[output_base + memory_offset(before[1], extent, 1) * output_stride] = narrow(
                                emit(before, after, transformed[0][v], transformed[0][v], lane_start + k)
                            )
                        if active and last and after[1] >= 0:
                            output[output_base + memory_offset(after[1], extent, 1) * output_stride] = narrow(after[2])
                    if not in_row(s, k, bounds):
                        after = before
            state = after
            s = int32(s + 1)
        cuda.syncwarp()
        low, high, whole = tile_bounds(warp_start, extent)
        if cuda.ballot_sync(-1, (winner_mask != 0) | (not (whole and active))) == 0:
            offset = output_base + memory_offset(warp_start + lane * vector, extent, vector) * output_stride
            for s in range(steps):
                store_vector(output, offset + memory_step(s * stripe) * output_stride, zeros, 0)
        else:
            for s in range(steps):
                index = int32(s * stripe + lane * vector)
                lane_winners = cuda.shfl_sync(-1, winner_mask, (int32(cuda.laneid) & -lanes) + index // size) >> (index % size)
                if (lane_winners & ((1 << vector) - 1)) == 0 and index >= low and index + vector <= high:
                    if active:
                        store_vector(output, output_base + memory_offset(warp_start + index, extent, vector) * output_stride, zeros, 0)
                elif active:
                    for v in range(vector):
                        if (index + v >= low) & (index + v < high) & (lane_winners >> v & 1 == 0):
                            output[output_base + memory_offset(warp_start + index + v, extent, 1) * output_stride] = zeros[0]

    return store
