"""A thread's walks down its part of a column of a slab in shared memory."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...runtime import jit
from .operator_functions import OperatorFunctions
from .slab_tile import SlabTile

#: elements that a thread reads before it uses the first; a multiple of the elements of a vector, after which rows begin as far from one again
BATCH = 8


class SlabWalk:
    """Walks over ``rows`` elements of a column, which begins at row ``top`` of a :class:`SlabTile` of ``slab_rows`` rows, in the scan's order.

    ``places(column, top, slab_rows, width, shift, offsets)`` returns where the first element is, and how far that of the next batch; it writes to
    ``offsets`` [``BATCH``] how far those of the batch are. ``fold(at, advance, offsets, rows, position, neighbour)`` folds the elements. ``scan``
    leaves results in the place of the first input, from the state before the first on. ``position`` is that of the first in the whole column.

    ``neighbour`` is what :func:`neighbour_of` returns: c of the element next to these on the side where the operator looks. Where the slab does not
    have it, it is read from the array; ``first`` is the offset in memory of the column's element in the slab's first row there, and ``start`` the
    position of the slab's first row in the scan's order.
    """

    def __init__(self, functions: OperatorFunctions, tile: SlabTile, reverse: bool) -> None:
        self._functions, self._tile, self._reverse = functions, tile, reverse
        row_begin = tile.row_begin

        @jit.device
        def places(column: Any, top: Any, slab_rows: Any, width: Any, shift: Any, offsets: Any) -> Any:
            row = int32(slab_rows - 1 - top if reverse else top)
            at = row_begin(row, width, shift)
            for k in range(BATCH):
                offsets[k] = int32(row_begin(int32(row - k if reverse else row + k), width, shift) - at)
            return int32(at + column), int32(row_begin(int32(row - BATCH if reverse else row + BATCH), width, shift) - at)

        self._even = even = tile.even

        @jit.device
        def next_place(at: Any, place: Any, s: Any, advance: Any, offsets: Any) -> Any:
            """Where element s + 1 of the batch at ``at`` is, and element s is at ``place``: rows that are evenly apart need one offset."""
            if even:
                return place + uint64(int64(offsets[1]))
            return at + uint64(int64(offsets[s + 1] if s + 1 < BATCH else advance))

        self._next_place = next_place
        self.places, self.neighbour_of, (self.fold, self.scan) = places, self._neighbour_of(), self._walks()

    def _neighbour_of(self) -> Any:
        functions, reverse, element, row_begin, third = self._functions, self._reverse, self._tile.element, self._tile.row_begin, 2 * self._tile.room
        wide, widen, offset = functions.wide, functions.widen, functions.operator.neighbour_offset

        @jit.device
        def neighbour_of(
            c: Any, first: Any, column: Any, top: Any, rows: Any, slab_rows: Any, width: Any, shift: Any, start: Any, extent: Any, initial: Any
        ) -> Any:  # fmt: skip
            shared, neighbour = cuda.shared.array(0, element, 16), wide(initial)
            if offset != 0:
                position = int32(top + (rows if offset > 0 else -1))
                if offset < 0 and start + position < 0:
                    position = int32(0)
                row = int32(slab_rows - 1 - position if reverse else position)
                if row >= 0 and row < slab_rows:
                    neighbour = widen(shared[uint32(third + row_begin(row, width, shift) + column)])
                elif start + position < extent:
                    neighbour = widen(c[first + row * width])
            return neighbour

        return neighbour_of

    def _read(self, whole: bool, count: int = BATCH) -> Any:
        """``read(at, advance, offsets, rows, neighbour, previous, transformed)``: p, q and r of ``count``; unless ``whole``, of ``rows`` elements.

        These end the thread's part then. ``previous`` is what the call before returned: c of the element before these, or of their first where the
        operator looks ahead.
        """
        functions, room, element, operator = self._functions, self._tile.room, self._tile.element, self._functions.operator
        widen, transform_into, inputs, offset = functions.widen, functions.transform_into, len(operator.inputs), operator.neighbour_offset
        size_b, size_c, next_place = count if inputs > 1 else 1, count if inputs > 2 else 1, self._next_place

        @jit.device
        def read(at: Any, advance: Any, offsets: Any, rows: Any, neighbour: Any, previous: Any, transformed: Any) -> Any:
            shared = cuda.shared.array(0, element, 16)
            raw_a, raw_b, raw_c = cuda.local.array(count, element), cuda.local.array(size_b, element), cuda.local.array(size_c, element)
            place = at
            for s in range(count):
                following = next_place(at, place, s, advance, offsets)
                if whole or s < rows:
                    raw_a[s] = shared[place]
                    if inputs > 1:
                        raw_b[s] = shared[place + uint64(room)]
                    if inputs > 2 and offset <= 0:
                        raw_c[s] = shared[place + uint64(2 * room)]
                if inputs > 2 and offset > 0 and (whole or s + 1 < rows):
                    raw_c[s] = shared[following + uint64(2 * room)]
                place = following
            for s in range(count):
                if whole or s < rows:
                    a = widen(raw_a[s])
                    b, c = widen(raw_b[s]) if inputs > 1 else a, a
                    if inputs > 2:
                        c = neighbour if offset > 0 and not whole and s + 1 == rows else widen(raw_c[s])
                    if offset > 0:
                        transform_into(transformed, s, a, b, previous, c)
                    else:
                        transform_into(transformed, s, a, b, c, previous if offset < 0 else c)
                    if offset != 0:
                        previous = c
            return previous

        return read

    def _read_inputs(self) -> Any:
        """``read_inputs(at, advance, offsets, previous, numbers)``: a, b and c of a whole batch instead, the same of an operator that looks ahead."""
        element, widen, room, next_place = self._tile.element, self._functions.widen, self._tile.room, self._next_place

        @jit.device
        def read_inputs(at: Any, advance: Any, offsets: Any, previous: Any, numbers: Any) -> Any:
            shared, place = cuda.shared.array(0, element, 16), at
            raw_a, raw_b, raw_c = cuda.local.array(BATCH, element), cuda.local.array(BATCH, element), cuda.local.array(BATCH, element)
            for s in range(BATCH):
                following = next_place(at, place, s, advance, offsets)
                raw_a[s], raw_b[s], raw_c[s] = shared[place], shared[place + uint64(room)], shared[following + uint64(2 * room)]
                place = following
            for s in range(BATCH):
                numbers[0][s], numbers[1][s], numbers[2][s] = widen(raw_a[s]), widen(raw_b[s]), previous
                previous = widen(raw_c[s])
            return previous

        return read_inputs

    def _walks(self) -> Any:
        functions, element, room = self._functions, self._tile.element, self._tile.room
        wide, widen, offset, distinct = functions.wide, functions.widen, functions.operator.neighbour_offset, functions.operator.distinct
        combine, identity, lift, emit, narrow = functions.states.combine, functions.states.identity, functions.lift, functions.emit, functions.narrow
        read_whole, read_rest, left = self._read(True), self._read(False), 1 if offset > 0 else 0
        size_q, size_r, next_place = BATCH if distinct > 1 else 1, BATCH if distinct > 2 else 1, self._next_place
        together, (fold_together, fits_together, scan_together) = functions.together_of(BATCH, True)
        inputs_together, (fold_inputs, inputs_fit, scan_inputs) = functions.together_of(BATCH, True, True)
        read_inputs, transform_into, size_raw = self._read_inputs(), functions.transform_into, BATCH if inputs_together else 1

        @jit.device
        def transform(numbers: Any, following: Any, transformed: Any) -> None:
            for s in range(BATCH):
                neighbour = numbers[2][s + 1] if s + 1 < BATCH else following
                transform_into(transformed, s, numbers[0][s], numbers[1][s], numbers[2][s], neighbour)

        @jit.device
        def before_first(at: Any, rows: Any, neighbour: Any) -> Any:
            """What ``read`` wants for the first element."""
            shared, previous = cuda.shared.array(0, element, 16), neighbour
            if offset > 0 and rows > 0:
                previous = widen(shared[at + uint64(2 * room)])
            return previous

        @jit.device
        def fold_batch(aggregate: Any, transformed: Any, rest: Any, position: Any) -> Any:
            for s in range(BATCH):
                if s < rest:
                    aggregate = combine(aggregate, lift(transformed, s, position + s))
            return aggregate

        @jit.device
        def fold(at: Any, advance: Any, offsets: Any, rows: Any, position: Any, neighbour: Any) -> Any:
            transformed = cuda.local.array(BATCH, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide)
            numbers = cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide)
            aggregate, rest, place = identity(), int32(rows), uint64(at)
            previous = before_first(place, rows, neighbour)
            while rest >= BATCH + left:
                if inputs_together:
                    previous = read_inputs(place, advance, offsets, previous, numbers)
                    if inputs_fit(numbers):
                        aggregate = fold_inputs(aggregate, numbers, previous)
                    else:
                        transform(numbers, previous, transformed)
                        aggregate = fold_batch(aggregate, transformed, BATCH, position)
                else:
                    previous = read_whole(place, advance, offsets, rest, neighbour, previous, transformed)
                    aggregate = fold_together(aggregate, transformed[0]) if together else fold_batch(aggregate, transformed, BATCH, position)
                place, rest, position = place + uint64(int64(advance)), int32(rest - BATCH), position + BATCH
            if rest > 0:
                read_rest(place, advance, offsets, rest, neighbour, previous, transformed)
                aggregate = fold_batch(aggregate, transformed, rest, position)
            return aggregate

        @jit.device
        def results(transformed: Any, s: Any, state: Any, position: Any) -> Any:
            """(the state after element s, its result)."""
            after = combine(state, lift(transformed, s, position))
            last = transformed[2][s] if distinct > 2 else transformed[0][s]
            return after, narrow(emit(state, after, transformed[0][s], last, position))

        @jit.device
        def scan_batch(state: Any, transformed: Any, position: Any, values: Any) -> Any:
            for s in range(BATCH):
                state, values[s] = results(transformed, s, state, position + s)
            return state

        @jit.device
        def scan(at: Any, advance: Any, offsets: Any, rows: Any, position: Any, neighbour: Any, state: Any) -> None:
            shared, values = cuda.shared.array(0, element, 16), cuda.local.array(BATCH, element)
            transformed = cuda.local.array(BATCH, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide)
            numbers = cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide), cuda.local.array(size_raw, wide)
            rest, place = int32(rows), uint64(at)
            previous = before_first(place, rows, neighbour)
            while rest >= BATCH + left:
                if inputs_together:
                    previous = read_inputs(place, advance, offsets, previous, numbers)
                    if inputs_fit(numbers):
                        state = scan_inputs(state, numbers, previous)
                        for s in range(BATCH):
                            values[s] = narrow(numbers[0][s])
                    else:
                        transform(numbers, previous, transformed)
                        state = scan_batch(state, transformed, position, values)
                else:
                    previous = read_whole(place, advance, offsets, rest, neighbour, previous, transformed)
                    if together and fits_together(state, transformed[0]):
                        state = scan_together(state, transformed[0])
                        for s in range(BATCH):
                            values[s] = narrow(transformed[0][s])
                    else:
                        state = scan_batch(state, transformed, position, values)
                own = place
                for s in range(BATCH):
                    shared[own] = values[s]
                    own = next_place(place, own, s, advance, offsets)
                place, rest, position = own, int32(rest - BATCH), position + BATCH
            if rest > 0:
                read_rest(place, advance, offsets, rest, neighbour, previous, transformed)
                own = place
                for s in range(BATCH):
                    if s < rest:
                        state, values[s] = results(transformed, s, state, position + s)
                        shared[own] = values[s]
                    own = next_place(place, own, s, advance, offsets)

        return fold, scan


@functools.cache
def slab_walk_of(functions: OperatorFunctions, tile: SlabTile, reverse: bool) -> SlabWalk:
    """The one :class:`SlabWalk` for these."""
    return SlabWalk(functions, tile, reverse)
