"""The load transform of a row's scan: what an operator makes of the elements of a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...runtime import jit
from .operator_functions import OperatorFunctions
from .shared_tile import SharedTile


class LoadTransform:
    """Transforms a lane's ``steps`` vectors, which :class:`SharedTile` holds for each of a, b and c, one vector at a time.

    ``apply(shared, lane, s, bounds, initial, neighbour_ref, transformed)`` fills the arrays p, q and r in ``transformed``, of ``sizes`` elements, in
    the scan's order from vector s. Calls follow each other from s = 0 on. ``neighbour_ref`` [1] holds the element next to the lane's own on the side
    where the operator looks; where it looks back, each call leaves there the last element of its vector.

    ``lane_bounds(lane_start, extent, row_extent)`` makes ``bounds``: how many of the lane's elements lie before the row's begin, and how many before
    its end, both clamped to −1 … one more than it has. If ``segmented``, these are the begin and the end of adjacent rows of ``row_extent`` elements,
    and three numbers follow: masks of the lane's elements that begin a row and that end one, and the position in its row of the lane's first
    element. ``begins_row(bounds, s, v)`` and ``ends_row(bounds, s, v)`` tell whether element v of the lane's vector s is the first or the last of a
    row, or lies outside of them; ``first_position(bounds, lane_start)`` is the position of the lane's first element in its row.

    ``read(shared, lane, s, bounds, initial, neighbour_ref, numbers)`` fills arrays with the inputs themselves instead, and returns the third input's
    element that follows the vector.

    ``reapply`` does the same as ``apply`` for a second pass. Where the transform is costly, and its numbers are as wide as elements, ``apply``
    leaves q and r in the shared memory of b and c (``caches``), and ``reapply`` reads them there.
    """

    def __init__(
        self, functions: OperatorFunctions, vector: int, steps: int, reverse: bool, segmented: bool, tiles: Sequence[SharedTile]
    ) -> None:  # fmt: skip
        self.sizes = [vector if k < functions.operator.distinct else 1 for k in range(3)]
        together, _ = functions.together_of(vector, not segmented, True)
        self.caches = functions.operator.costly and functions.element == functions.wide and not together
        self._functions, self._vector, self._steps, self._reverse, self._tiles = functions, vector, steps, reverse, tiles
        if segmented:
            self.lane_bounds = self._segment_bounds()
            self.begins_row = jit.device(lambda bounds, s, v: int32(bounds[2] >> s * vector) & (1 << v) != 0)
            self.ends_row = jit.device(lambda bounds, s, v: int32(bounds[3] >> s * vector) & (1 << v) != 0)
            self.first_position = jit.device(lambda bounds, lane_start: int64(bounds[4]))
        else:
            self.lane_bounds = self._lane_bounds()
            self.begins_row = jit.device(lambda bounds, s, v: int32(s * vector + v) <= bounds[0])
            self.ends_row = jit.device(lambda bounds, s, v: int32(s * vector + v + 1) >= bounds[1])
            self.first_position = jit.device(lambda bounds, lane_start: lane_start)
        self.apply, self.read = self._apply(), self._read()
        self.reapply = self._reapply() if self.caches else self.apply

    def _lane_bounds(self) -> Any:
        beyond = self._vector * self._steps + 1

        @jit.device
        def lane_bounds(lane_start: Any, extent: Any, row_extent: Any) -> Any:
            return int32(min(max(-lane_start, int64(-1)), int64(beyond))), int32(max(min(extent - lane_start, int64(beyond)), int64(-1)))

        return lane_bounds

    def _segment_bounds(self) -> Any:
        size, vector, of_rows = self._vector * self._steps, self._vector, self._lane_bounds()
        mask_type = int32 if size <= 32 else int64

        @jit.device
        def segment_bounds(lane_start: Any, extent: Any, row_extent: Any) -> Any:
            low, high = of_rows(lane_start, extent, row_extent)
            # fewer than a vector's elements lie before the first row
            position = int32(uint32(lane_start + row_extent * vector) % uint32(row_extent))
            mask, step = mask_type(1), int32(min(row_extent, int64(size)))
            while step < size:
                mask = mask_type(mask | mask_type(mask << step))
                step = int32(step * 2)
            first, last = int32(row_extent - position if position > 0 else 0), int32(row_extent - 1 - position)
            begins, ends = mask_type(mask << min(first, size - 1)), mask_type(mask << min(last, size - 1))
            return low, high, begins if first < size else mask_type(0), ends if last < size else mask_type(0), position

        return segment_bounds

    def _apply(self) -> Any:
        functions, vector, steps, reverse, tiles = self._functions, self._vector, self._steps, self._reverse, self._tiles
        element, widen, wide, transform_into = functions.element, functions.widen, functions.wide, functions.transform_into
        inputs, neighbour_offset = len(functions.operator.inputs), functions.operator.neighbour_offset
        (read_a, read_b, read_c), read_first = [each.read_vector for each in tiles], tiles[2].read_first
        _, write_b, write_c = [each.write_vector for each in tiles]
        caches, begins_row, ends_row = self.caches, self.begins_row, self.ends_row
        size_b, size_c = vector if inputs > 1 else 1, vector if inputs > 2 else 1

        @jit.device
        def apply(shared: Any, lane: Any, s: Any, bounds: Any, initial: Any, neighbour_ref: Any, transformed: Any) -> None:
            raw_a = cuda.local.array(vector, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            read_a(shared, lane, s, raw_a)
            if inputs > 1:
                read_b(shared, lane, s, raw_b)
            if inputs > 2:
                read_c(shared, lane, s, raw_c)
            for v in range(vector):
                k = vector - 1 - v if reverse else v
                a = widen(raw_a[k])
                b = widen(raw_b[k]) if inputs > 1 else a
                c = widen(raw_c[k]) if inputs > 2 else a
                neighbour = c
                if neighbour_offset > 0:
                    if v < vector - 1:
                        neighbour = widen(raw_c[k - 1 if reverse else k + 1])
                    else:
                        neighbour = widen(read_first(shared, lane, min(s + 1, steps - 1)))
                        if s == steps - 1:
                            neighbour = neighbour_ref[0]
                    if ends_row(bounds, s, v):
                        neighbour = wide(initial)
                if neighbour_offset < 0:
                    neighbour = widen(raw_c[k + 1 if reverse else k - 1]) if v > 0 else neighbour_ref[0]
                    if begins_row(bounds, s, v):
                        neighbour = c
                transform_into(transformed, v, a, b, c, neighbour)
            if neighbour_offset < 0:
                neighbour_ref[0] = widen(raw_c[0 if reverse else vector - 1])
            if caches:
                for v in range(vector):
                    k = vector - 1 - v if reverse else v
                    raw_b[k], raw_c[k] = transformed[1][v], transformed[2][v]
                write_b(shared, lane, s, raw_b)
                write_c(shared, lane, s, raw_c)

        return apply

    def _read_inputs(self) -> Any:
        """``read_inputs(shared, lane, s, numbers)``: the three inputs' elements of a vector, in the row's order."""
        element, widen, vector, reverse = self._functions.element, self._functions.widen, self._vector, self._reverse
        read_a, read_b, read_c = [each.read_vector for each in self._tiles]

        @jit.device
        def read_inputs(shared: Any, lane: Any, s: Any, numbers: Any) -> None:
            raw_a = cuda.local.array(vector, element)
            raw_b = cuda.local.array(vector, element)
            raw_c = cuda.local.array(vector, element)
            read_a(shared, lane, s, raw_a)
            read_b(shared, lane, s, raw_b)
            read_c(shared, lane, s, raw_c)
            for v in range(vector):
                k = vector - 1 - v if reverse else v
                numbers[0][v], numbers[1][v], numbers[2][v] = widen(raw_a[k]), widen(raw_b[k]), widen(raw_c[k])

        return read_inputs

    def _read(self) -> Any:
        functions, vector, steps, read_inputs = self._functions, self._vector, self._steps, self._read_inputs()
        widen, wide, read_first = functions.widen, functions.wide, self._tiles[2].read_first

        @jit.device
        def read(shared: Any, lane: Any, s: Any, bounds: Any, initial: Any, neighbour_ref: Any, numbers: Any) -> Any:
            read_inputs(shared, lane, s, numbers)
            following = widen(read_first(shared, lane, min(s + 1, steps - 1)))
            if s == steps - 1:
                following = neighbour_ref[0]
            return wide(initial) if int32((s + 1) * vector) >= bounds[1] else following

        return read

    def _reapply(self) -> Any:
        read_inputs = self._read_inputs()

        @jit.device
        def reapply(shared: Any, lane: Any, s: Any, bounds: Any, initial: Any, neighbour_ref: Any, transformed: Any) -> None:
            read_inputs(shared, lane, s, transformed)

        return reapply
