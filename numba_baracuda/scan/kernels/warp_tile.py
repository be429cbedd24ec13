"""A warp's part of a tile of a row: folding it, and storing results."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.warp import scan_of, segmented_scan_of
from ...runtime import jit
from .gathered_store import extreme_of, gathered_store_of
from .operator_functions import OperatorFunctions
from .scattered_store import run_with_next_of, scattered_store_of
from .shared_tile import shared_tile_of
from .warp_inputs import WarpInputs


class WarpTile(WarpInputs):
    """A warp's inputs, and what becomes of them.

    ``fold`` returns the aggregate of the lanes below, undefined in lane 0, and that of all lanes; if ``segmented``, these are of the lanes' last rows
    only. ``store`` writes results, given the prefix of the lane's first element. Results go by way of the shared memory of the first input or, if
    they are of another type, of memory after all inputs; indices by way of memory after that. ``shared_results`` and ``shared_indices`` are the same
    memory as ``shared``, as arrays of their types. Lanes that are not ``active`` have no row and store nothing. ``row`` is a row's extent, the state
    before its first element, and the position of the number there.
    """

    def __init__(
        self, functions: OperatorFunctions, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare_partial: bool,
        segmented: bool, index: str,
    ) -> None:  # fmt: skip
        super().__init__(functions, vector, lanes, steps, threads, reverse, peeled, rare_partial, segmented)
        self._indexed, self._index_type = index != "", jit.SCALARS[index or "i32"]
        self._separate_results = functions.result != functions.element
        input_bits, result_bits = len(functions.operator.inputs) * functions.element.bitwidth, self._separate_results * functions.result.bitwidth
        #: bytes of shared memory for a block
        self.shared_bytes = (input_bits + result_bits + self._indexed * self._index_type.bitwidth) * self._block_elements // 8
        self._results_offset = self._separate_results * input_bits * self._block_elements // functions.result.bitwidth
        self._indices_offset = (input_bits + result_bits) * self._block_elements // self._index_type.bitwidth
        #: whether warp tiles that are partly outside the row take a path of their own; vectors of a lane that may be before the row on the other
        self._separate_partial = peeled and rare_partial
        self._masked_steps = int(peeled and not rare_partial and (functions.operator.scatters or not segmented))
        #: whether winners' results gather in shared memory, which takes rows of one tile each
        self._gathers = functions.operator.scatters and lanes <= 32 and not rare_partial
        #: states between lanes, and the state before a row's first element
        self.states = functions.extremes if self._gathers else functions.states
        wide = functions.wide
        self.initial_state = jit.device(lambda initial, position: wide(initial)) if self._gathers else functions.initial_state
        self._staging = (
            jit.device(lambda shared, shared_results: shared_results) if self._separate_results else jit.device(lambda shared, shared_results: shared)
        )
        self.fold, self.store = self._fold(), self._store()

    def _fold(self) -> Any:
        states, lanes = self.states, self._lanes
        of_lane, of_lower, segmented, size = states.of_lane, states.of_lower, self._segmented, self.size
        group_scan, segmented_scan, first_position = scan_of(states, lanes), segmented_scan_of(states, lanes), self._transform.first_position
        lane_bounds, separate_partial = self._transform.lane_bounds, self._separate_partial
        extreme = extreme_of(self._functions, self._transform, self._vector, self._steps, segmented) if self._gathers else None
        usual, partial = extreme or self._fold_own(self._masked_steps), extreme or self._fold_own(self._steps)
        tile_bounds = self._input_tiles[0].tile_bounds

        @jit.device
        def fold(shared: Any, warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any) -> Any:
            _, _, whole = tile_bounds(warp_start, extent)
            if separate_partial and not whole:
                aggregate = partial(shared, warp_start, lane, extent, row, initial, neighbour)
            else:
                aggregate = usual(shared, warp_start, lane, extent, row, initial, neighbour)
            if segmented:
                lane_start = warp_start + lane * size
                position = int32(first_position(lane_bounds(lane_start, extent, row[0]), lane_start))
                inclusive = segmented_scan(aggregate, int32(0) if position + size > row[0] else int32((position + size - 1) // size))
            else:
                inclusive = group_scan(aggregate)
            return of_lower(inclusive, int32(1)), of_lane(inclusive, (int32(cuda.laneid) & -lanes) + lanes - 1)

        return fold

    def _in_row(self, masked_steps: int) -> Any:
        """``in_row(s, k, bounds)``: false where element k of a lane is before the row, which in vectors s ≥ ``masked_steps`` it never is."""
        return jit.device(lambda s, k, bounds: True if not masked_steps or s >= masked_steps else k >= bounds[0])

    def _together(self, masked_steps: int) -> Any:
        """(whether there are, (fold, fits, scan)) of a vector's elements together, for those vectors that do not begin before the row."""
        return self._functions.together_of(self._vector, not self._segmented and masked_steps < self._steps)

    def _fold_own(self, masked_steps: int) -> Any:
        """The aggregate of a lane's own elements; in its first ``masked_steps`` vectors, some may lie before the row.

        Elements after the row's end are folded in: no element of the row comes after them.
        """
        functions, size, vector, steps = self._functions, self.size, self._vector, self._steps
        apply, lane_bounds, (size_p, size_q, size_r) = self._transform.apply, self._transform.lane_bounds, self._transform.sizes
        wide, lift, identity, combine = functions.wide, functions.lift, functions.states.identity, functions.states.combine
        in_row, begins_row, first_position = self._in_row(masked_steps), self._transform.begins_row, self._transform.first_position
        segmented, scatters = self._segmented, functions.operator.scatters
        runs = scatters and not masked_steps
        run_with_next: Any = run_with_next_of(functions) if runs else None
        together, (fold_together, _, _) = self._together(masked_steps)
        inputs_together, (fold_inputs, inputs_fit, _) = functions.together_of(vector, not segmented and not functions.operator.of_next, True)
        read, size_raw = self._transform.read, vector if inputs_together else 1

        @jit.device
        def fold_own(shared: Any, warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any) -> Any:
            transformed = (cuda.local.array(size_p, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
            numbers = (cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide))
            neighbour_ref = cuda.local.array(1, wide)
            lane_start, aggregate, neighbour_ref[0] = warp_start + lane * size, identity(), neighbour
            bounds = lane_bounds(lane_start, extent, row[0])
            origin = lane_start if scatters else first_position(bounds, lane_start)
            s = int32(0)
            while s < steps:
                if inputs_together and int32(s * vector) >= bounds[0]:
                    following = read(shared, lane, s, bounds, initial, neighbour_ref, numbers)
                    if inputs_fit(numbers):
                        aggregate = fold_inputs(aggregate, numbers, following)
                        s = int32(s + 1)
                        continue
                apply(shared, lane, s, bounds, initial, neighbour_ref, transformed)
                if together and s >= masked_steps:
                    aggregate = fold_together(aggregate, transformed[0])
                    s = int32(s + 1)
                    continue
                for v in range(vector):
                    k = int32(s * vector + v)
                    if segmented and begins_row(bounds, s, v):
                        aggregate = identity()
                        if not scatters:
                            origin = int64(-k)
                    position = origin + k
                    if s == 0 and v == 0:
                        aggregate = lift(transformed, v, position)
                        if not in_row(s, k, bounds):
                            aggregate = identity()
                    elif runs:
                        aggregate = run_with_next(aggregate, transformed, v, position)
                    elif in_row(s, k, bounds):
                        aggregate = combine(aggregate, lift(transformed, v, position))
                s = int32(s + 1)
            return aggregate

        return fold_own

    def _store(self) -> Any:
        if self._functions.operator.scatters:
            common = self._functions, self._transform, self._input_tiles[0], self._vector, self._lanes, self._steps
            if self._gathers:
                return gathered_store_of(*common, self._reverse, self._segmented)
            return scattered_store_of(*common, self._in_row(self._steps if self._separate_partial else self._masked_steps))
        vector, lanes, steps, indexed, rare_partial = self._vector, self._lanes, self._steps, self._indexed, self._rare_partial
        result_tile = shared_tile_of(self._functions.result, vector, lanes, steps, self._reverse, self._peeled, rare_partial, self._results_offset)
        index_tile = shared_tile_of(self._index_type, vector, lanes, steps, self._reverse, self._peeled, rare_partial, self._indices_offset)
        writes = result_tile.write_vector, index_tile.write_vector
        usual, partial, separate_partial = self._store_own(self._masked_steps, *writes), self._store_own(steps, *writes), self._separate_partial
        store_results, store_indices, tile_bounds, staging = result_tile.store, index_tile.store, self._input_tiles[0].tile_bounds, self._staging

        @jit.device
        def store(
            output: Any, indices: Any, output_base: Any, indices_base: Any, output_stride: Any, indices_stride: Any, active: Any,
            warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any, state: Any, shared: Any, shared_results: Any,
            shared_indices: Any,
        ) -> None:  # fmt: skip
            _, _, whole = tile_bounds(warp_start, extent)
            if separate_partial and not whole:
                partial(warp_start, lane, extent, row, initial, neighbour, state, shared, shared_results, shared_indices)
            else:
                usual(warp_start, lane, extent, row, initial, neighbour, state, shared, shared_results, shared_indices)
            cuda.syncwarp()
            if active:
                store_results(output, output_base, output_stride, warp_start, lane, extent, staging(shared, shared_results))
                if indexed:
                    store_indices(indices, indices_base, indices_stride, warp_start, lane, extent, shared_indices)
            # no barrier: a lane reads here what it alone overwrites with its vectors of the next tile, but for the ends of peeled rows

        return store

    def _store_own(self, masked_steps: int, write_results: Any, write_indices: Any) -> Any:
        """Writes the results of a lane's own elements to shared memory; some of its first ``masked_steps`` vectors may lie before the row."""
        functions, size, vector, steps, reverse = self._functions, self.size, self._vector, self._steps, self._reverse
        reapply, lane_bounds, (size_p, size_q, size_r) = self._transform.reapply, self._transform.lane_bounds, self._transform.sizes
        combine, lift, emit, narrow = functions.states.combine, functions.lift, functions.emit, functions.narrow
        result, wide, staging = functions.result, functions.wide, self._staging
        distinct, indexed, index_type = functions.operator.distinct, self._indexed, self._index_type
        winner_index, size_indices, in_row = functions.winner_index_of(reverse, index_type), vector if indexed else 1, self._in_row(masked_steps)
        segmented, begins_row, first_position = self._segmented, self._transform.begins_row, self._transform.first_position
        together, (_, fits_together, scan_together) = self._together(masked_steps)
        inputs_together, (_, inputs_fit, scan_inputs) = functions.together_of(vector, not segmented and not functions.operator.of_next, True)
        read, size_raw = self._transform.read, vector if inputs_together else 1

        @jit.device
        def store_own(
            warp_start: Any, lane: Any, extent: Any, row: Any, initial: Any, neighbour: Any, state: Any, shared: Any, shared_results: Any,
            shared_indices: Any,
        ) -> None:  # fmt: skip
            transformed = (cuda.local.array(size_p, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
            numbers = (cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide))
            values, winner_indices = cuda.local.array(vector, result), cuda.local.array(size_indices, index_type)
            neighbour_ref = cuda.local.array(1, wide)
            lane_start, neighbour_ref[0] = warp_start + lane * size, neighbour
            bounds = lane_bounds(lane_start, extent, row[0])
            origin = first_position(bounds, lane_start)
            s = int32(0)
            while s < steps:
                if inputs_together and int32(s * vector) >= bounds[0]:
                    following = read(shared, lane, s, bounds, initial, neighbour_ref, numbers)
                    if inputs_fit(numbers):
                        state = scan_inputs(state, numbers, following)
                        for v in range(vector):
                            values[vector - 1 - v if reverse else v] = narrow(numbers[0][v])
                        write_results(staging(shared, shared_results), lane, s, values)
                        s = int32(s + 1)
                        continue
                reapply(shared, lane, s, bounds, initial, neighbour_ref, transformed)
                if together and s >= masked_steps and fits_together(state, transformed[0]):
                    state = scan_together(state, transformed[0])
                    for v in range(vector):
                        values[vector - 1 - v if reverse else v] = narrow(transformed[0][v])
                    write_results(staging(shared, shared_results), lane, s, values)
                    s = int32(s + 1)
                    continue
                for v in range(vector):
                    k, own = vector - 1 - v if reverse else v, int32(s * vector + v)
                    if segmented and begins_row(bounds, s, v):
                        state, origin = row[1], int64(-own)
                    position = origin + own
                    after = combine(state, lift(transformed, v, position))
                    values[k] = narrow(emit(state, after, transformed[0][v], transformed[2][v] if distinct > 2 else transformed[0][v], position))
                    if indexed:
                        winner_indices[k] = winner_index(state, after, row[0])
                    if in_row(s, own, bounds):
                        state = after
                write_results(staging(shared, shared_results), lane, s, values)
                if indexed:
                    write_indices(shared_indices, lane, s, winner_indices)
                s = int32(s + 1)

        return store_own


@functools.cache
def warp_tile_of(
    functions: OperatorFunctions, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare_partial: bool, segmented: bool,
    index: str,
) -> WarpTile:  # fmt: skip
    """The one :class:`WarpTile` for these."""
    return WarpTile(functions, vector, lanes, steps, threads, reverse, peeled, rare_partial, segmented, index)
