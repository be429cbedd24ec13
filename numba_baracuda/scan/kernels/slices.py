"""Scans across memory of short columns: a block brings whole slices to shared memory, where each thread walks down whole columns."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, STORE_STREAM
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..operators import INITIAL, NOTHING
from ..tiling import LINE_BYTES
from .operator_functions import OperatorFunctions, functions_of

#: elements of a column that a thread reads at once
_BATCH = 4


def _remaking_of(functions: OperatorFunctions, count: int, second: int, third: int, offset_of: Any) -> Any:
    """``batch(shared, index, step, state)``: makes the third input of ``count`` elements of a column, the next one ``step`` further."""
    element, widen, (_, remake) = functions.element, functions.widen, functions.remaking()

    @jit.device
    def batch(shared: Any, index: Any, step: Any, state: Any) -> Any:
        raw, places = cuda.local.array(count, element), cuda.local.array(count, int32)
        for v in range(count):
            places[v] = offset_of(index)
            raw[v] = shared[uint64(int64(places[v]) + second)]
            index = int32(index + step)
        for v in range(count):
            state, made = remake(state, widen(raw[v]))
            shared[uint64(int64(places[v]) + third)] = made
        return index, state

    return batch


def _batch_of(functions: OperatorFunctions, count: int, second: int, third: int, offset_of: Any, remakes: bool) -> Any:
    """``batch(shared, index, step, k, extent, state, slot, before, initial)``: scans elements k … k + ``count`` − 1 of a column in shared memory.

    Element k is element ``index`` of the tile, the next one ``step`` further. Returns (index, state, slot, before) for the elements after these.
    ``before`` is the third input's element before k; if it ``remakes``, that input is made of the second, of columns of ``count`` elements. Where the
    operator scatters, ``slot`` is the place of the winner so far, and positions in states only tell the element itself, at 0, from all before it.
    """
    element, wide, widen, narrow, operator = functions.element, functions.wide, functions.widen, functions.narrow, functions.operator
    combine, lift, emit, transform_into, position_type = (
        functions.states.combine, functions.lift, functions.emit, functions.transform_into, functions.kinds[1],
    )  # fmt: skip
    inputs, neighbour_offset, distinct, scatters = len(operator.inputs), operator.neighbour_offset, operator.distinct, operator.scatters
    begin, remake = functions.remaking()
    size_b, size_c = count if inputs > 1 else 1, count if inputs > 2 else 1
    size_q, size_r = count if distinct > 1 else 1, count if distinct > 2 else 1

    @jit.device
    def batch(
        shared: Any, index: Any, step: Any, k: Any, extent: Any, state: Any, slot: Any, before: Any, initial: Any
    ) -> Any:  # fmt: skip
        raw_a, raw_b, raw_c = cuda.local.array(count, element), cuda.local.array(size_b, element), cuda.local.array(size_c, element)
        transformed = cuda.local.array(count, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide)
        places = cuda.local.array(count, int32)
        for v in range(count):
            places[v] = offset_of(index)
            raw_a[v] = shared[uint64(places[v])]
            if inputs > 1:
                raw_b[v] = shared[uint64(int64(places[v]) + second)]
            if inputs > 2 and not remakes:
                raw_c[v] = shared[uint64(int64(places[v]) + third)]
            index = int32(index + step)
        if remakes:
            made = begin(initial)
            for v in range(count - 1, -1, -1):
                made, raw_c[v] = remake(made, widen(raw_b[v]))
        following = wide(initial)
        if neighbour_offset > 0 and not remakes and k + count < extent:
            following = widen(shared[uint64(int64(offset_of(index)) + third)])
        for v in range(count):
            a = widen(raw_a[v])
            b = widen(raw_b[v]) if inputs > 1 else a
            c = widen(raw_c[v]) if inputs > 2 else a
            neighbour = c
            if neighbour_offset > 0:
                neighbour = widen(raw_c[v + 1]) if v < count - 1 else following
            if neighbour_offset < 0:
                neighbour = c if v == 0 and k == 0 else before
                before = c
            transform_into(transformed, v, a, b, c, neighbour)
        for v in range(count):
            position = int32(0) if scatters else int32(k + v)
            after = combine(state, lift(transformed, v, position))
            number = narrow(emit(state, after, transformed[0][v], transformed[2][v] if distinct > 2 else transformed[0][v], position))
            if scatters:
                # the winner before gets its number; any other element 0, which stands in for the winner's own number until it is known
                won = after[1] == 0
                shared[uint64(slot if won else places[v])] = number if won else narrow(wide(0))
                slot = places[v] if won else slot
                state = after[0], position_type(INITIAL), after[2], after[3]
            else:
                shared[uint64(places[v])] = number
                state = after
        return index, state, slot, before

    return batch


@jit.kernel
def scan_slices(
    *, operator: str, value: str, vector: int, steps: int, threads: int, reverse: bool, exclusive: bool, position: str, length: int, padded: bool
) -> Any:  # fmt: skip
    """:func:`scan_columns` of slices [extent, width] that follow one another without a gap, several of which fit the shared memory of a block.

    A block has the elements of its slices in one range of memory, which begins at a multiple of 16 bytes: adjacent threads copy and store adjacent
    vectors of it, ``steps`` each at most. In between each thread walks down whole columns in shared memory, in the scan's order, and leaves the
    results in the place of the first input. Where the numbers of winners come late, those of what came before the first winner go to a place of the
    thread's own behind the tile. A third input that is ``remade`` is not read: threads make it of the second, from the column's other end.
    Order: fixed by the scan's. Bytes: every operand once, but for that.

    Constants as :mod:`.` lists them, and ``steps``: vectors of 16 bytes that a thread copies of each input; results are of the inputs' type.
    ``length``: the extent if threads read whole columns at once, else 0. ``padded``: whether a vector's room follows each line of 128 bytes, so that
    columns of slices of whole lines lie in different banks. Parameters as there, and: ``slices``: their number; ``width``: the columns of a slice;
    ``width_inverse``: (2³² − 1) / width, rounded down; ``block_slices``: slices of a block, whose elements are a multiple of a vector.
    """
    functions = functions_of(operator, value, value, exclusive, position)
    element, wide, narrow, scatters = functions.element, functions.wide, functions.narrow, functions.operator.scatters
    inputs, initial_state, load_shared, store_global = len(functions.operator.inputs), functions.initial_state, LOAD[vector], STORE_STREAM[vector]
    remakes, (begin, _) = functions.operator.remade != "", functions.remaking()
    parts = inputs - (1 if remakes and length else 0)
    line_bits, arrived = (8 * LINE_BYTES // element.bitwidth).bit_length() - 1, await_copies(0)
    stripe = threads * vector
    tile_size = stripe * steps
    part = tile_size + ((tile_size >> line_bits) * vector if padded else 0)
    second, third = part if inputs > 1 else 0, (inputs - 1) * part

    @jit.device
    def offset_of(index: Any) -> Any:
        """Where element ``index`` of the tile lies in an input's part of shared memory."""
        return int32(index + (index >> line_bits) * vector) if padded else int32(index)

    places = second, third, offset_of
    batch = _batch_of(functions, length or _BATCH, *places, remakes and length > 0)
    remaining_batch = _batch_of(functions, 1, *places, False)
    remake, remake_remaining = (_remaking_of(functions, each, *places) for each in (_BATCH, 1))

    @jit.device
    def copy(array: Any, base: Any, count: Any, shared: Any, first: Any) -> None:
        own = int32(int32(cuda.threadIdx.x) * vector)
        source, target = base + own, int64(offset_of(own)) + first
        for s in range(steps):
            if own <= int32(count - (s * stripe + vector)):
                copy_async(array, source + s * stripe, shared, target + offset_of(s * stripe))
        last = int32((count & -vector) + int32(cuda.threadIdx.x))
        if last < count:
            shared[uint64(int64(offset_of(last)) + first)] = array[base + last]

    @jit.device
    def write(array: Any, base: Any, count: Any, shared: Any) -> None:
        own = int32(int32(cuda.threadIdx.x) * vector)
        target, source = base + own, int64(offset_of(own))
        for s in range(steps):
            if own <= int32(count - (s * stripe + vector)):
                words = cuda.local.array(vector, element)
                load_shared(shared, source + offset_of(s * stripe), words, 0)
                store_global(array, target + s * stripe, words, 0)
        last = int32((count & -vector) + int32(cuda.threadIdx.x))
        if last < count:
            array[base + last] = shared[uint64(offset_of(last))]

    @jit.device
    def walk(shared: Any, index: Any, step: Any, extent: Any, initial: Any, initial_position: Any) -> None:
        """Scans the column whose first element in the scan's order is element ``index`` of the tile, and the next one ``step`` further."""
        state = initial_state(initial, NOTHING if initial_position == NOTHING else INITIAL)
        slot, before, k = int32(parts * part + int32(cuda.threadIdx.x)), wide(0), int32(0)
        if length:
            index, state, slot, before = batch(shared, index, step, k, int32(length), state, slot, before, initial)
        else:
            if remakes:
                made, own, rest = begin(initial), int32(index + step * int32(extent - 1)), int32(extent)
                while rest >= _BATCH:
                    own, made = remake(shared, own, int32(-step), made)
                    rest = int32(rest - _BATCH)
                while rest > 0:
                    own, made = remake_remaining(shared, own, int32(-step), made)
                    rest = int32(rest - 1)
            while k + _BATCH <= extent:
                index, state, slot, before = batch(shared, index, step, k, extent, state, slot, before, initial)
                k = int32(k + _BATCH)
            while k < extent:
                index, state, slot, before = remaining_batch(shared, index, step, k, extent, state, slot, before, initial)
                k = int32(k + 1)
        if scatters:
            shared[uint64(slot)] = narrow(state[2])

    def scan_slices(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[value],
        slices: int64, extent: int64, width: int64, width_inverse: int64, block_slices: int64, initial: Scalar[wide], initial_position: int64,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(0, element, 16)
        first, columns, rows = int64(cuda.blockIdx.x) * block_slices, int32(width), int32(length or extent)
        slice_size = int32(columns * rows)
        own_slices = int32(min(block_slices, slices - first))
        base, count = first * slice_size, int32(own_slices * slice_size)
        copy(a, base, count, shared, 0)
        if inputs > 1:
            copy(b, base, count, shared, second)
        if inputs > 2 and not remakes:
            copy(c, base, count, shared, third)
        commit_copies()
        arrived()
        cuda.syncthreads()
        column, column_end = int32(cuda.threadIdx.x), int32(own_slices * columns)
        top = int32((rows - 1) * columns) if reverse else int32(0)
        while column < column_end:
            number = int32(uint64(uint32(column + 1)) * uint64(uint32(width_inverse)) >> uint64(32))
            index = int32(top + column + number * (slice_size - columns))
            walk(shared, index, int32(-columns) if reverse else columns, rows, initial, initial_position)
            column = int32(column + threads)
        cuda.syncthreads()
        write(output, base, count, shared)

    shared_bytes = (parts * part + (threads if scatters else 0)) * element.bitwidth // 8
    return scan_slices, lambda slices, block_slices: (-(-slices // block_slices), threads, shared_bytes)
