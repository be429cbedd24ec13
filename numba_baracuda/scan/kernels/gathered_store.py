"""A warp's results of the gradients of cummax and cummin, of rows that each lie in one tile.

Winners may be many there: results gather in the shared memory of the first input. States between lanes are winners' numbers alone. Elements of a
row's first and last vector that are not of the row are the identity, with a gradient of 0: none of them wins.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint32

from ...runtime import jit
from ..operators import INITIAL, NOTHING
from .load_transform import LoadTransform
from .operator_functions import OperatorFunctions
from .shared_tile import SharedTile

#: slots of a lane whose gradients belong to a winner of the lanes before, and of one whose row has had no winner yet
_BEFORE, _NOWHERE = -1, -2


def extreme_of(functions: OperatorFunctions, transform: LoadTransform, vector: int, steps: int, segmented: bool) -> Any:
    """``fold_own`` of a :class:`~.warp_tile.WarpTile`: the greatest or least of a lane's own elements, of those of its last row if ``segmented``."""
    size, wide, identity, combine = steps * vector, functions.wide, functions.extremes.identity, functions.extremes.combine
    apply, lane_bounds, begins_row, (size_p, size_q, size_r) = transform.apply, transform.lane_bounds, transform.begins_row, transform.sizes

    @jit.device
    def fold_own(shared: Any, warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any) -> Any:
        transformed = (cuda.local.array(size_p, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        neighbour_ref = cuda.local.array(1, wide)
        bounds, extreme = lane_bounds(warp_start + lane * size, extent, row[0]), identity()
        s = int32(0)
        while s < steps:
            apply(shared, lane, s, bounds, initial, neighbour_ref, transformed)
            for v in range(vector):
                if segmented and begins_row(bounds, s, v):
                    extreme = identity()
                extreme = combine(extreme, transformed[1][v])
            s = int32(s + 1)
        return extreme

    return fold_own


def _sum_of_next_lanes(functions: OperatorFunctions, lanes: int) -> Any:
    """``f(ends, number)``: the sum of the numbers of the lanes after the caller's, up to the first that ``ends`` it, or to the last of ``lanes``."""
    of_upper, wide, steps = functions.extremes.of_upper, functions.wide, lanes.bit_length() - 1

    @jit.device
    def sum_of_next_lanes(ends: Any, number: Any) -> Any:
        lane = int32(cuda.laneid)
        # lanes up to the first that ends the sum, which the last of the group does
        later = int32((int32(cuda.ballot_sync(-1, ends)) >> lane) | (1 << (lanes - 1 - (lane & (lanes - 1)))))
        above = int32(31 - cuda.clz(int32(later & -later)))
        for k in range(steps):
            step = int32(1 << k)
            other = of_upper(number, step)
            if above >= step:
                number += other
        following = of_upper(number, int32(1))
        return following if lane & (lanes - 1) < lanes - 1 else wide(0)

    return sum_of_next_lanes


def gathered_store_of(
    functions: OperatorFunctions, transform: LoadTransform, tile: SharedTile, vector: int, lanes: int, steps: int, reverse: bool, segmented: bool
) -> Any:  # fmt: skip
    """``store`` of a :class:`~.warp_tile.WarpTile` for an operator that scatters, of rows that each lie in one tile.

    A lane sums up the gradients from one winner to the next, and writes the sum in the winner's place. What it has before its first winner belongs to
    the last one of the lanes before, which adds that of all lanes up to the next winner to its own. ``state`` is the prefix of winners' numbers; the
    position in the state of a run tells only the element itself, at 0, from all before it. Where nothing is before a row, its first element has the
    gradients up to the first winner, which may be itself: that it is equal to the identity would make it none.
    """
    size, apply, lane_bounds, (size_p, size_q, size_r) = steps * vector, transform.apply, transform.lane_bounds, transform.sizes
    begins_row, combine, lift, emit, narrow = transform.begins_row, functions.states.combine, functions.lift, functions.emit, functions.narrow
    element, wide, write_vector, store_tile, blocked_offset = functions.element, functions.wide, tile.write_vector, tile.store, tile.blocked_offset
    position_type, sum_of_next_lanes, exclusive = functions.kinds[1], _sum_of_next_lanes(functions, lanes), functions.exclusive
    place_of = jit.device(lambda own, v: int32(own + (vector - 1 - v if reverse else v)))

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
        bounds, nothing = lane_bounds(warp_start + lane * size, extent, row[0]), row[2] == NOTHING
        extreme, total, carry, slot = wide(state), wide(0), wide(0), int32(_BEFORE)
        if not segmented and nothing and bounds[0] >= 0:
            slot = place_of(blocked_offset(lane, 0), bounds[0])
            if exclusive:
                shared[uint32(slot)] = narrow(wide(0))
        s = int32(0)
        while s < steps and int32(s * vector) < bounds[1]:
            apply(shared, lane, s, bounds, initial, neighbour_ref, transformed)
            write_vector(shared, lane, s, zeros)
            own = blocked_offset(lane, s)
            for v in range(vector):
                if segmented and begins_row(bounds, s, v):
                    if slot >= 0:
                        shared[uint32(slot)] = narrow(total)
                    elif slot == _BEFORE:
                        carry = total
                    extreme, total, slot = wide(row[1]), wide(0), place_of(own, v) if nothing else int32(_NOWHERE)
                    if exclusive and nothing:
                        transformed[0][v] = wide(0)
                before = extreme, position_type(INITIAL), total, wide(0)
                after = combine(before, lift(transformed, v, int32(0)))
                if after[1] == 0:
                    number = wide(emit(before, after, transformed[0][v], transformed[0][v], int32(0)))
                    if slot >= 0:
                        shared[uint32(slot)] = narrow(number)
                    elif slot == _BEFORE:
                        carry = number
                    slot = place_of(own, v)
                extreme, total = after[0], after[2]
            s = int32(s + 1)
        following = sum_of_next_lanes(slot != _BEFORE, total if slot == _BEFORE else carry)
        if slot >= 0:
            shared[uint32(slot)] = narrow(total + following)
        cuda.syncwarp()
        if active:
            store_tile(output, output_base, output_stride, warp_start, lane, extent, shared)

    return store
