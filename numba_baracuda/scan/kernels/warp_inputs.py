"""A warp's part of a tile of a row: how its elements come to shared memory."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint64

from ...runtime import jit
from ..tiling import LINE_BYTES
from .load_transform import LoadTransform
from .operator_functions import OperatorFunctions
from .shared_tile import shared_tile_of


class WarpInputs:
    """``size`` consecutive elements of a row for each of ``lanes`` lanes of a warp; those of lane l begin at position warp_start + l · size.

    All lanes of the warp call these functions. ``load`` brings the operator's inputs to ``shared`` memory, one after the other, and returns the
    element next to the lane's own that the operator looks at, or 0. Warps that are ``segmented`` have several rows that follow one another, of
    ``extent`` elements together.
    """

    def __init__(
        self, functions: OperatorFunctions, vector: int, lanes: int, steps: int, threads: int, reverse: bool, peeled: bool, rare_partial: bool,
        segmented: bool,
    ) -> None:  # fmt: skip
        self.size, self._functions, self._vector, self._lanes, self._steps = steps * vector, functions, vector, min(lanes, 32), steps
        self._reverse, self._peeled, self._rare_partial, self._segmented = reverse, peeled, rare_partial, segmented
        self._sizes = [self.size if k < len(functions.operator.inputs) else 1 for k in range(3)]
        self._block_elements = threads * self.size
        self._input_tiles = [
            shared_tile_of(functions.element, vector, self._lanes, steps, reverse, peeled, rare_partial, k * self._block_elements) for k in range(3)
        ]
        self._transform = LoadTransform(functions, vector, steps, reverse, segmented, self._input_tiles)
        self.peel, self.load = self._peel(), self._load()

    def _peel(self) -> Any:
        """``peel(base, extent, misalignment)`` of a row: elements of its first vector, or line, before it, and the position of the next one."""
        reverse, low_bits = self._reverse, (LINE_BYTES * 8 // self._functions.element.bitwidth if self._rare_partial else self._vector) - 1

        @jit.device
        def peel(base: Any, extent: Any, misalignment: Any) -> tuple[Any, Any]:
            address = misalignment + (base + extent if reverse else base)
            skipped = (-address if reverse else address) & low_bits
            return skipped, (low_bits + 1 - skipped) & low_bits

        return peel

    def _load(self) -> Any:
        functions, size, tiles = self._functions, self.size, self._input_tiles
        element, widen, wide = functions.element, functions.widen, functions.wide
        inputs, neighbour_offset = len(functions.operator.inputs), functions.operator.neighbour_offset
        (size_a, size_b, size_c), (stage_a, stage_b, stage_c) = self._sizes, [each.stage for each in tiles]
        elements_a, elements_b, elements_c = [each.load_elements for each in tiles]
        load_vectors, tile_bounds, memory_offset, read_element = tiles[0].load, tiles[0].tile_bounds, tiles[0].memory_offset, tiles[2].read_element
        lanes, rare_partial, caches = self._lanes, self._rare_partial, self._transform.caches
        load_ends, end_of, element_offset, end_steps = tiles[0].load_ends, tiles[0].end_of, tiles[0].element_offset, tiles[0].end_steps
        has_ends, scatters, narrow, identity = (
            self._peeled and not rare_partial,
            functions.operator.scatters,
            functions.narrow,
            functions.states.identity,
        )
        second, third = self._block_elements, 2 * self._block_elements

        @jit.device
        def load_whole(arrays: Any, bases: Any, strides: Any, warp_start: Any, lane: Any, extent: Any, safe: Any, shared: Any) -> None:
            raw_a = cuda.local.array(size_a, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            load_vectors(arrays[0], bases[0], strides[0], warp_start, lane, extent, safe, raw_a)
            if inputs > 1:
                load_vectors(arrays[1], bases[1], strides[1], warp_start, lane, extent, safe, raw_b)
            if inputs > 2:
                load_vectors(arrays[2], bases[2], strides[2], warp_start, lane, extent, safe, raw_c)
            end_a, end_b, end_c = cuda.local.array(end_steps, element), cuda.local.array(end_steps, element), cuda.local.array(end_steps, element)
            if has_ends:
                load_ends(arrays[0], bases[0], strides[0], warp_start, lane, extent, element(0), end_a)
                if inputs > 1:
                    filler = narrow(identity()[0]) if scatters else element(0)
                    load_ends(arrays[1], bases[1], strides[1], warp_start, lane, extent, filler, end_b)
                if inputs > 2:
                    load_ends(arrays[2], bases[2], strides[2], warp_start, lane, extent, element(0), end_c)
                # other lanes may still read the elements of the last tile's ends
                cuda.syncwarp()
            stage_a(raw_a, shared, lane)
            if inputs > 1:
                stage_b(raw_b, shared, lane)
            if inputs > 2:
                stage_c(raw_c, shared, lane)
            if has_ends:
                cuda.syncwarp()
                for k in range(end_steps):
                    index, exists, _ = end_of(warp_start, lane, extent, k)
                    if exists:
                        place = int64(element_offset(lane, index))
                        shared[uint64(place)] = end_a[k]
                        if inputs > 1:
                            shared[uint64(place + second)] = end_b[k]
                        if inputs > 2:
                            shared[uint64(place + third)] = end_c[k]

        @jit.device
        def load(arrays: Any, bases: Any, strides: Any, warp_start: Any, lane: Any, extent: Any, safe: Any, shared: Any) -> Any:
            neighbour = wide(0)
            if neighbour_offset != 0:
                position = warp_start + (lanes * size if neighbour_offset > 0 else -1)
                neighbour = widen(
                    arrays[2][bases[2] + memory_offset(position if (position >= 0) & (position < extent) else safe, extent, 1) * strides[2]]
                )
            _, _, whole = tile_bounds(warp_start, extent)
            if whole or not rare_partial:
                load_whole(arrays, bases, strides, warp_start, lane, extent, safe, shared)
            else:
                elements_a(arrays[0], bases[0], strides[0], warp_start, lane, extent, shared)
                if inputs > 1:
                    elements_b(arrays[1], bases[1], strides[1], warp_start, lane, extent, shared)
                if inputs > 2:
                    elements_c(arrays[2], bases[2], strides[2], warp_start, lane, extent, shared)
            cuda.syncwarp()
            if neighbour_offset != 0:
                index = int32(lane * size + (size if neighbour_offset > 0 else -1))
                if (index >= 0) & (index < lanes * size):
                    neighbour = widen(read_element(shared, lane, index))
                if caches:
                    cuda.syncwarp()
            return neighbour

        return load
