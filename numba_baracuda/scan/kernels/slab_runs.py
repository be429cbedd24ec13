"""The gradients of cummax and cummin of a slab in shared memory: each run of equal winners is summed up, and its winner gets the sum."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint64

from ...runtime import jit
from ..operators import INITIAL, NOTHING
from .operator_functions import OperatorFunctions
from .slab_tile import SlabTile
from .slab_walk import BATCH, SlabWalk


class SlabRuns(SlabWalk):
    """A :class:`SlabWalk` for an operator that scatters.

    Results are 0, but a winner gets the number that the operator emits where the next one takes over or the column ends. A thread knows the numbers
    of its own winners but for the last, which is left to the thread that has the next winner of the column, as is the winner before the thread's
    elements to itself. Where that one is in the slab, its number goes to shared memory, else to the result. Winners of the slab that the slab leaves
    open are left out of the results that it stores. While states are combined, positions only tell the element itself, at 0, from all before it.

    Slabs that are ``whole`` have all rows of their columns: all winners are in the slab, and known at its end.

    ``fold`` is that of :class:`SlabWalk`. ``store(output, first, column, at, advance, offsets, top, rows, slab_rows, width, shift, own, start,
    extent, active, extreme, state, open_places)`` scans the elements, leaves results in the place of the first input, and stores those of the slab,
    whose first row there is at offset ``first`` of the output. All threads of the block call it. ``extreme`` is the number of the winner that
    ``fold`` has found, ``state`` the one before the first element. ``open_places`` is shared memory for a number of each column. Behind the inputs,
    shared memory has an element for each thread.
    """

    def __init__(self, functions: OperatorFunctions, tile: SlabTile, reverse: bool, whole: bool) -> None:
        super().__init__(functions, tile, reverse)
        self.store = self._store(whole)

    def _batches(self, whole: bool, count: int) -> Any:
        """(``fold``, ``scan``, ``clear``) of ``count`` elements; unless ``whole``, of ``rest``."""
        functions, element, read, next_place = self._functions, self._tile.element, self._read(whole, count), self._next_place
        combine, lift, emit, narrow, wide, position_type = (
            functions.states.combine, functions.lift, functions.emit, functions.narrow, functions.wide, functions.kinds[1],
        )  # fmt: skip

        @jit.device
        def add(run: Any, transformed: Any, s: Any) -> Any:
            """The state with element s more, at position 0 if that is its winner."""
            before = position_type(NOTHING if s == 0 and run[1] == NOTHING else INITIAL)
            return combine((run[0], before, run[2], run[3]), lift(transformed, s, int32(0)))

        @jit.device
        def fold(place: Any, advance: Any, offsets: Any, rest: Any, position: Any, run: Any) -> Any:
            transformed = cuda.local.array(count, wide), cuda.local.array(count, wide), cuda.local.array(1, wide)
            read(place, advance, offsets, rest, wide(0), wide(0), transformed)
            for s in range(count):
                if whole or s < rest:
                    after = add(run, transformed, s)
                    run = after[0], position_type(position + s) if after[1] == 0 else run[1], after[2], after[3]
            return run

        @jit.device
        def scan(place: Any, advance: Any, offsets: Any, rest: Any, run: Any, slot: Any) -> Any:
            shared = cuda.shared.array(0, element, 16)
            transformed = cuda.local.array(count, wide), cuda.local.array(count, wide), cuda.local.array(1, wide)
            read(place, advance, offsets, rest, wide(0), wide(0), transformed)
            own = place
            for s in range(count):
                if whole or s < rest:
                    after = add(run, transformed, s)
                    number, won = narrow(emit(run, after, transformed[0][s], transformed[0][s], int32(0))), after[1] == 0
                    # what stands in for a winner's number is the element's own gradient
                    shared[slot if won else own] = number if won else narrow(wide(0))
                    slot, run = own if won else slot, (after[0], position_type(INITIAL), after[2], wide(0))
                own = next_place(place, own, s, advance, offsets)
            return run, slot

        @jit.device
        def clear(place: Any, advance: Any, offsets: Any, rest: Any) -> None:
            shared, own = cuda.shared.array(0, element, 16), place
            for s in range(count):
                if whole or s < rest:
                    shared[own] = narrow(wide(0))
                own = next_place(place, own, s, advance, offsets)

        return fold, scan, clear

    def _walks(self) -> Any:
        functions, element, inputs = self._functions, self._tile.element, len(self._functions.operator.inputs)
        combine, identity, narrow, wide, position_type = (
            functions.states.combine, functions.states.identity, functions.narrow, functions.wide, functions.kinds[1],
        )  # fmt: skip
        # of rows that are evenly apart, what is left after whole batches goes one by one
        even, left = self._even, 1 if self._even else BATCH
        (fold_whole, scan_whole, clear_whole), (fold_rest, scan_rest, clear_rest) = self._batches(True, BATCH), self._batches(even, left)
        spare = inputs * self._tile.room

        @jit.device
        def fold(at: Any, advance: Any, offsets: Any, rows: Any, position: Any, neighbour: Any) -> Any:
            run, rest, place, position = identity(), int32(rows), uint64(at), position_type(position)
            while rest >= BATCH:
                run = fold_whole(place, advance, offsets, rest, position, run)
                place, rest, position = place + uint64(int64(advance)), int32(rest - BATCH), position_type(position + BATCH)
            while rest > 0:
                run = fold_rest(place, advance, offsets, rest, position, run)
                place, rest, position = place + uint64(int64(offsets[1])), int32(rest - left), position_type(position + left)
            return run

        @jit.device
        def scan(at: Any, advance: Any, offsets: Any, rows: Any, ends: Any, extreme: Any, state: Any) -> Any:
            """Where the column's last winner is, or the thread's own place behind the inputs, which has the number of the winner before."""
            shared, rest, place = cuda.shared.array(0, element, 16), int32(rows), uint64(at)
            slot = uint64(spare + int32(cuda.threadIdx.x))
            run = state[0], position_type(NOTHING if state[1] == NOTHING else INITIAL), state[2], wide(0)
            if ends or combine(run, (extreme, position_type(0), wide(0), wide(0)))[1] == 0:
                while rest >= BATCH:
                    run, slot = scan_whole(place, advance, offsets, rest, run, slot)
                    place, rest = place + uint64(int64(advance)), int32(rest - BATCH)
                while rest > 0:
                    run, slot = scan_rest(place, advance, offsets, rest, run, slot)
                    place, rest = place + uint64(int64(offsets[1])), int32(rest - left)
                if ends:
                    shared[slot] = narrow(run[2])
            else:
                while rest >= BATCH:
                    clear_whole(place, advance, offsets, rest)
                    place, rest = place + uint64(int64(advance)), int32(rest - BATCH)
                while rest > 0:
                    clear_rest(place, advance, offsets, rest)
                    place, rest = place + uint64(int64(offsets[1])), int32(rest - left)
            return int32(slot)

        return fold, scan

    def _store(self, whole: bool) -> Any:
        element, row_begin, write, scan, next_place = self._tile.element, self._tile.row_begin, self._tile.write, self.scan, self._next_place
        reverse, spare = self._reverse, len(self._functions.operator.inputs) * self._tile.room
        memory_row = jit.device(lambda row, slab_rows: slab_rows - 1 - row if reverse else row)

        @jit.device
        def write_apart(output: Any, first: Any, at: Any, advance: Any, offsets: Any, rows: Any, width: Any, left_out: Any) -> None:
            """Stores the thread's elements, but for the one at ``left_out``; the first of them at offset ``first``."""
            shared, rest, place = cuda.shared.array(0, element, 16), int32(rows), uint64(at)
            while rest > 0:
                own = place
                for s in range(BATCH):
                    if s < rest and int32(own) != left_out:
                        output[first] = shared[own]
                    first += -width if reverse else width
                    own = next_place(place, own, s, advance, offsets)
                place, rest = place + uint64(int64(advance)), int32(rest - BATCH)

        @jit.device
        def store(
            output: Any, first: Any, column: Any, at: Any, advance: Any, offsets: Any, top: Any, rows: Any, slab_rows: Any, width: Any, shift: Any,
            own: Any, start: Any, extent: Any, active: Any, extreme: Any, state: Any, open_places: Any,
        ) -> None:  # fmt: skip
            shared, thread_place = cuda.shared.array(0, element, 16), int32(spare + int32(cuda.threadIdx.x))
            place, left_open, ends, closes = int32(-1), int32(-1), whole or start + slab_rows >= extent, False
            if active and rows > 0:
                last = top + rows == slab_rows
                slot = scan(at, advance, offsets, rows, last and ends, extreme, state)
                closes = state[1] >= 0 and (slot != thread_place or (last and ends))
                row = memory_row(state[1] - start, slab_rows)
                if state[1] >= start:
                    place = int32(row_begin(int32(row), width, shift) + column)
                elif closes and not whole:
                    output[first + column + row * width] = shared[uint64(thread_place)]
                if last and not ends:
                    left_open = slot if slot != thread_place else place
                    open_places[column] = left_open
            if whole:
                cuda.syncthreads()
            leaves_open = not whole and cuda.syncthreads_or(int32(left_open >= 0)) != 0
            if closes and place >= 0:
                shared[uint64(place)] = shared[uint64(thread_place)]
            cuda.syncthreads()
            if not leaves_open:
                write(output, first, shift, slab_rows, width, own)
            elif active:
                row = memory_row(top, slab_rows)
                write_apart(output, first + column + row * int64(width), at, advance, offsets, rows, width, open_places[column])

        return store


@functools.cache
def slab_runs_of(functions: OperatorFunctions, tile: SlabTile, reverse: bool, whole: bool) -> SlabRuns:
    """The one :class:`SlabRuns` for these."""
    return SlabRuns(functions, tile, reverse, whole)
