"""A lane's part of a few columns: loading, folding, and storing results where the scanned axis is not the one of the smallest stride."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import LOAD, LOAD_STREAM, STORE_STREAM
from ...runtime import jit
from ..operators import INITIAL, NOTHING
from ..tiling import is_narrow
from .dense_tile import dense_tile_of
from .operator_functions import OperatorFunctions


class ColumnTile:
    """``steps`` consecutive positions, from ``start`` on, of ``vector`` adjacent columns; column v at position start + s is item s · vector + v.

    ``load`` fills the arrays p, q and r in ``transformed`` [steps · vector] with what the operator makes of the elements; ``fold`` returns the
    aggregate of one column; ``store`` writes results, and turns ``prefixes``, a state for each column, from those before the positions into those
    after them, of columns that are ``active``. ``l1_cached`` loads stay in L1, for a second reading. Positions may lie behind the column's end.

    ``alone`` lanes have all positions of their columns, one tile after the other, or all at once if columns are ``held``: a third input that can be
    ``remade`` of the second is not read then.

    Where loads and stores are narrow, so that there are many, or the operator scatters, positions that all lie in the column take a path without
    conditions. If ``dense`` is not 0, a :class:`~.dense_tile.DenseTile` of vectors of so many elements serves this path, for the ``lanes`` of a level
    together; the levels of a warp follow one another. The operator then has one input and results of its type, and neither scatters nor tells
    indices.
    """

    def __init__(
        self, functions: OperatorFunctions, vector: int, lanes: int, steps: int, reverse: bool, index_type: str, l1_cached: bool, dense: int,
        alone: bool, held: bool,
    ) -> None:  # fmt: skip
        self.size, self._alone, self._remakes = steps * vector, alone, held and functions.operator.remade != ""
        self._functions, self._vector, self._steps, self._reverse, self._index = functions, vector, steps, reverse, index_type
        self._load_vector = (LOAD if l1_cached else LOAD_STREAM)[vector]
        self._memory_offset = jit.device(lambda position, extent: extent - 1 - position if reverse else position)
        self._dense = dense_tile_of(functions.element, lanes, steps, dense, reverse, l1_cached) if dense else None
        self._two_paths = is_narrow(vector, functions.element.bitwidth // 8) or functions.operator.scatters
        last_level = 32 // lanes - 1 if dense else 0

        @jit.device
        def is_whole(start: Any, extent: Any) -> Any:
            """Whether all positions lie in the column; where the lanes of a warp work together, those of all its levels."""
            below = last_level - (int32(cuda.laneid) // lanes if dense else 0)
            return start + (below + 1) * steps <= extent

        self._is_whole = is_whole
        self.load, self.fold, self.store = self._load(), self._fold(), self._store()

    def _load(self) -> Any:
        partial, whole, is_whole = self._load_positions(False), self._load_positions(True), self._is_whole
        if not self._two_paths:
            return partial

        @jit.device
        def load(arrays: Any, bases: Any, strides: Any, start: Any, extent: Any, initial: Any, transformed: Any) -> None:
            if is_whole(start, extent):
                whole(arrays, bases, strides, start, extent, initial, transformed)
            else:
                partial(arrays, bases, strides, start, extent, initial, transformed)

        return load

    def _fold(self) -> Any:
        partial, whole, is_whole = self._fold_positions(False), self._fold_positions(True), self._is_whole
        if not self._two_paths:
            return partial

        @jit.device
        def fold(transformed: Any, v: Any, start: Any, extent: Any) -> Any:
            return whole(transformed, v, start, extent) if is_whole(start, extent) else partial(transformed, v, start, extent)

        return fold

    def _store(self) -> Any:
        make = self._store_winners if self._functions.operator.scatters else self._store_positions
        partial, whole, is_whole, two_paths, together = make(False), make(True), self._is_whole, self._two_paths, self._dense is not None

        @jit.device
        def store(
            output: Any, indices: Any, output_base: Any, indices_base: Any, output_stride: Any, indices_stride: Any, transformed: Any, start: Any,
            extent: Any, prefixes: Any, active: Any,
        ) -> None:  # fmt: skip
            if two_paths and (active or together) and is_whole(start, extent):
                whole(output, indices, output_base, indices_base, output_stride, indices_stride, transformed, start, extent, prefixes)
            elif active:
                partial(output, indices, output_base, indices_base, output_stride, indices_stride, transformed, start, extent, prefixes)

        return store

    def _load_positions(self, whole: bool) -> Any:
        functions, vector, steps, memory_offset, reverse = self._functions, self._vector, self._steps, self._memory_offset, self._reverse
        element, widen, wide, transform_into = functions.element, functions.widen, functions.wide, functions.transform_into
        size, load_vector = self.size, self._load_vector
        inputs, neighbour_offset = len(functions.operator.inputs), functions.operator.neighbour_offset
        dense: Any = self._dense if whole else None
        size_a, size_b, size_c = dense.size if dense else size, *(size if k < inputs else 1 for k in (1, 2))
        size_adjacent = vector if neighbour_offset else 1
        staged, arrange, remakes = dense is not None, dense and dense.arrange, self._remakes
        begin, remake = functions.remaking()

        @jit.device
        def load_each(array: Any, base: Any, stride: Any, start: Any, extent: Any, raw: Any) -> None:
            present, first = int32(min(extent - start, int64(steps))), start if whole else min(start, extent - 1)
            offset = base + memory_offset(first, extent) * stride
            step = -stride if reverse else stride
            for s in range(steps):
                load_vector(array, offset, raw, s * vector)
                offset += step if whole or s + 1 < present else int64(0)

        load_vectors = dense.fetch if dense else load_each

        @jit.device
        def load(arrays: Any, bases: Any, strides: Any, start: Any, extent: Any, initial: Any, transformed: Any) -> None:
            raw_a = cuda.local.array(size_a, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            adjacent = cuda.local.array(size_adjacent, element)
            load_vectors(arrays[0], bases[0], strides[0], start, extent, raw_a)
            if inputs > 1:
                load_vectors(arrays[1], bases[1], strides[1], start, extent, raw_b)
            if inputs > 2 and not remakes:
                load_vectors(arrays[2], bases[2], strides[2], start, extent, raw_c)
            if staged:
                arrange(bases[0], strides[0], start, extent, raw_a)
            if remakes:
                for v in range(vector):
                    made = begin(initial)
                    for s in range(steps - 1, -1, -1):
                        made, raw_c[s * vector + v] = remake(made, widen(raw_b[s * vector + v]))
            if neighbour_offset != 0 and not remakes:
                position = min(start + steps, extent - 1) if neighbour_offset > 0 else max(min(start, extent) - 1, int64(0))
                load_vector(arrays[2], bases[2] + memory_offset(position, extent) * strides[2], adjacent, 0)
            for s in range(steps):
                for v in range(vector):
                    k = s * vector + v
                    a = widen(raw_a[k])
                    b = widen(raw_b[k]) if inputs > 1 else a
                    c = widen(raw_c[k]) if inputs > 2 else a
                    neighbour = c
                    if neighbour_offset > 0:
                        neighbour = widen(adjacent[v]) if s == steps - 1 and not remakes else widen(raw_c[k + vector if s < steps - 1 else k])
                        if (not whole or s == steps - 1) and start + s + 1 >= extent:
                            neighbour = wide(initial)
                    if neighbour_offset < 0:
                        neighbour = widen(adjacent[v]) if s == 0 else widen(raw_c[k - vector if s > 0 else k])
                        if start + s <= 0:
                            neighbour = c
                    transform_into(transformed, k, a, b, c, neighbour)

        return load

    def _fold_positions(self, whole: bool) -> Any:
        functions, vector, steps = self._functions, self._vector, self._steps
        identity, combine, lift = functions.states.identity, functions.states.combine, functions.lift

        @jit.device
        def fold(transformed: Any, v: Any, start: Any, extent: Any) -> Any:
            aggregate = identity()
            for s in range(steps):
                if whole or start + s < extent:
                    aggregate = combine(aggregate, lift(transformed, s * vector + v, start + s))
            return aggregate

        return fold

    def _store_positions(self, whole: bool) -> Any:
        functions, vector, steps, reverse, memory_offset = self._functions, self._vector, self._steps, self._reverse, self._memory_offset
        combine, get, put = functions.states.combine, functions.get, functions.put
        lift, emit, narrow = functions.lift, functions.emit, functions.narrow
        result, size, distinct, indexed = functions.result, self.size, functions.operator.distinct, self._index != ""
        index_type = jit.SCALARS[self._index] if indexed else result
        winner_index = functions.winner_index_of(reverse, index_type)
        width, index_width = min(vector, 128 // result.bitwidth), min(vector, 128 // index_type.bitwidth)
        dense: Any = self._dense if whole else None
        staged, write = dense is not None, dense and dense.write
        size_indices, store_vector, store_indices = size if indexed else 1, STORE_STREAM[width], STORE_STREAM[index_width]

        @jit.device
        def store(
            output: Any, indices: Any, output_base: Any, indices_base: Any, output_stride: Any, indices_stride: Any, transformed: Any, start: Any,
            extent: Any, prefixes: Any,
        ) -> None:  # fmt: skip
            values = cuda.local.array(size, result)
            winner_indices = cuda.local.array(size_indices, index_type)
            for v in range(vector):
                state = get(prefixes, v)
                for s in range(steps):
                    k = s * vector + v
                    position = start + s
                    after = combine(state, lift(transformed, k, position))
                    values[k] = narrow(emit(state, after, transformed[0][k], transformed[2][k] if distinct > 2 else transformed[0][k], position))
                    if indexed:
                        winner_indices[k] = winner_index(state, after, extent)
                    state = after
                put(prefixes, v, state)
            if staged:
                write(output, output_base, output_stride, start, extent, values)
            present = int32(0 if staged else min(extent - start, int64(steps)))
            output_offset = output_base + memory_offset(start, extent) * output_stride
            indices_offset = indices_base + memory_offset(start, extent) * indices_stride
            for s in range(steps):
                if (whole and not staged) or s < present:
                    for k in range(0, vector, width):
                        store_vector(output, output_offset + k, values, s * vector + k)
                    if indexed:
                        for k in range(0, vector, index_width):
                            store_indices(indices, indices_offset + k, winner_indices, s * vector + k)
                output_offset += -output_stride if reverse else output_stride
                indices_offset += -indices_stride if reverse else indices_stride

        return store

    def _store_winners(self, whole: bool) -> Any:
        """Zeros, but a winner gets what is emitted where the next winner takes over or the column ends.

        What the lane's own winners get is known when all its positions are, but for the last of them. That one's 0 is left out, or is overwritten
        later by the same lane if columns are ``alone``. The winner before the lane's positions gets its number at once.
        """
        functions, vector, steps, memory_offset, alone = self._functions, self._vector, self._steps, self._memory_offset, self._alone
        combine, get, put = functions.states.combine, functions.get, functions.put
        lift, emit, narrow = functions.lift, functions.emit, functions.narrow
        element, wide, store_vector, size = functions.element, functions.wide, STORE_STREAM[vector], self.size
        position_type = functions.kinds[1]

        @jit.device
        def store(
            output: Any, indices: Any, output_base: Any, indices_base: Any, output_stride: Any, indices_stride: Any, transformed: Any, start: Any,
            extent: Any, prefixes: Any,
        ) -> None:  # fmt: skip
            values, open_steps = cuda.local.array(size, element), cuda.local.array(vector, int32)
            zero, ends, present = narrow(wide(0)), start < extent and start + steps >= extent, int32(min(extent - start, int64(steps)))
            for v in range(vector):
                run, winners, open_steps[v] = get(prefixes, v), int32(0), int32(-1)
                earlier = run[1]
                for s in range(steps):
                    k = s * vector + v
                    # positions only tell the element itself, at 0, from all before it
                    before = run[0], position_type(NOTHING if s == 0 and earlier == NOTHING else INITIAL), run[2], run[3]
                    after = combine(before, lift(transformed, k, int32(0)))
                    values[k] = narrow(emit(before, after, transformed[0][k], transformed[0][k], int32(0)))
                    if whole or s < present:
                        winners, run = int32(winners | int32(after[1] == 0) << s), after
                last = position_type(start + (31 - cuda.clz(winners)))
                put(prefixes, v, (run[0], last if winners != 0 else earlier, run[2], run[3]))
                number = narrow(run[2]) if ends else zero
                for s in range(steps - 1, -1, -1):
                    k, won = s * vector + v, int32(winners & int32(1 << s)) != 0
                    emitted = values[k]
                    values[k] = number if won else zero
                    number = emitted if won else number
                if earlier >= 0 and (winners != 0 or ends):
                    output[output_base + v + memory_offset(earlier, extent) * output_stride] = number
                if not alone and not ends and winners != 0:
                    open_steps[v] = 31 - cuda.clz(winners)
            for s in range(steps):
                if whole or s < present:
                    offset, left_out = output_base + memory_offset(start + s, extent) * output_stride, False
                    for v in range(vector):
                        left_out |= open_steps[v] == s
                    if not left_out:
                        store_vector(output, offset, values, s * vector)
                    else:
                        for v in range(vector):
                            if open_steps[v] != s:
                                output[offset + v] = values[s * vector + v]

        return store


@functools.cache
def column_tile_of(
    functions: OperatorFunctions,
    vector: int,
    lanes: int,
    steps: int,
    reverse: bool,
    index_type: str,
    l1_cached: bool,
    dense: int,
    alone: bool,
    held: bool,
) -> ColumnTile:
    """The one :class:`ColumnTile` for these."""
    return ColumnTile(functions, vector, lanes, steps, reverse, index_type, l1_cached, dense, alone, held)
