"""Scans across memory of short columns: a block brings whole slices to shared memory, where each thread walks down whole columns."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.vector import LOAD, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..tiling import LINE_BYTES
from .operator_functions import functions_of


@jit.kernel
def scan_slices(
    *, operator: str, value: str, vector: int, steps: int, threads: int, reverse: bool, exclusive: bool, position: str
) -> Any:  # fmt: skip
    """:func:`scan_columns` of slices [extent, width] that follow one another without a gap, several of which fit the shared memory of a block.

    A block has the elements of its slices in one range of memory, which begins at a multiple of a vector: adjacent threads load and store adjacent
    vectors of it, ``steps`` each at most. In between each thread walks down whole columns in shared memory, in the scan's order, and leaves the
    results in the place of the first input. A vector's room follows each line of 128 bytes there, so that columns of slices of whole lines lie in
    different banks. Order: fixed by the scan's. Bytes: every operand once.

    Constants as :mod:`.` lists them, and ``steps``: vectors that a thread loads of each input; results are of the inputs' type. Parameters as there,
    and: ``slices``: their number; ``width``: the columns of a slice; ``block_slices``: slices of a block, whose elements are a multiple of a vector.
    """
    functions = functions_of(operator, value, value, exclusive, position)
    element, wide, widen, narrow, scatters = functions.element, functions.wide, functions.widen, functions.narrow, functions.operator.scatters
    inputs, neighbour_offset, distinct = len(functions.operator.inputs), functions.operator.neighbour_offset, functions.operator.distinct
    initial_state, combine, lift, emit, transform_into = (
        functions.initial_state, functions.states.combine, functions.lift, functions.emit, functions.transform_into,
    )  # fmt: skip
    load_global, store_global, load_shared, store_shared = LOAD_STREAM[vector], STORE_STREAM[vector], LOAD[vector], STORE[vector]
    line_bits = (8 * LINE_BYTES // element.bitwidth).bit_length() - 1
    tile_size = threads * steps * vector
    part = tile_size + (tile_size >> line_bits) * vector
    size_a, size_b, size_c = (steps * vector if k < inputs else 1 for k in range(3))
    second, third = part if inputs > 1 else 0, (inputs - 1) * part

    @jit.device
    def offset_of(index: Any) -> Any:
        """Where element ``index`` of the tile lies in an input's part of shared memory."""
        return int32(index + (index >> line_bits) * vector)

    @jit.device
    def fetch(array: Any, base: Any, count: Any, raw: Any) -> None:
        for s in range(steps):
            index = int32((s * threads + int32(cuda.threadIdx.x)) * vector)
            if index + vector <= count:
                load_global(array, base + index, raw, s * vector)

    @jit.device
    def stage(array: Any, base: Any, count: Any, raw: Any, shared: Any, first: Any) -> None:
        for s in range(steps):
            index = int32((s * threads + int32(cuda.threadIdx.x)) * vector)
            if index + vector <= count:
                store_shared(shared, int32(first + offset_of(index)), raw, s * vector)
        last = int32((count & -vector) + int32(cuda.threadIdx.x))
        if last < count:
            shared[uint32(first + offset_of(last))] = array[base + last]

    @jit.device
    def write(array: Any, base: Any, count: Any, shared: Any) -> None:
        words = cuda.local.array(vector, element)
        for s in range(steps):
            index = int32((s * threads + int32(cuda.threadIdx.x)) * vector)
            if index + vector <= count:
                load_shared(shared, offset_of(index), words, 0)
                store_global(array, base + index, words, 0)
        last = int32((count & -vector) + int32(cuda.threadIdx.x))
        if last < count:
            array[base + last] = shared[uint32(offset_of(last))]

    @jit.device
    def walk(shared: Any, index: Any, step: Any, extent: Any, initial: Any, initial_position: Any) -> None:
        """Scans the column whose first element in the scan's order is element ``index`` of the tile, and the next one ``step`` further."""
        transformed = cuda.local.array(1, wide), cuda.local.array(1, wide), cuda.local.array(1, wide)
        state, slot, offset = initial_state(initial, initial_position), int32(-1), offset_of(index)
        own = widen(shared[uint32(third + offset)])
        before = own
        for k in range(extent):
            index = int32(index + step)
            following = offset_of(index)
            a, b, c, neighbour = widen(shared[uint32(offset)]), widen(shared[uint32(second + offset)]), own, before
            before = own
            if neighbour_offset > 0:
                neighbour = wide(initial)
            if k + 1 < extent:
                own = widen(shared[uint32(third + following)])
                if neighbour_offset > 0:
                    neighbour = own
            transform_into(transformed, 0, a, b, c, neighbour)
            after = combine(state, lift(transformed, 0, k))
            number = narrow(emit(state, after, transformed[0][0], transformed[2][0] if distinct > 2 else transformed[0][0], k))
            if scatters:
                # the winner before gets its number; any other element 0, for which the first winner's own number stands in until it is known
                won = after[1] == k
                shared[uint32(slot if won and slot >= 0 else offset)] = number if won else narrow(wide(0))
                slot = offset if won else slot
            else:
                shared[uint32(offset)] = number
            state, offset = after, following
        if scatters and slot >= 0:
            shared[uint32(slot)] = narrow(state[2])

    def scan_slices(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], output: Ptr[value],
        slices: int64, extent: int64, width: int64, block_slices: int64, initial: Scalar[wide], initial_position: int64,
    ) -> None:  # fmt: skip
        shared = cuda.shared.array(0, element, 16)
        raw_a, raw_b, raw_c = cuda.local.array(size_a, element), cuda.local.array(size_b, element), cuda.local.array(size_c, element)
        first, columns, length = int64(cuda.blockIdx.x) * block_slices, int32(width), int32(extent)
        slice_size = int32(columns * length)
        own_slices = int32(min(block_slices, slices - first))
        base, count = first * slice_size, int32(own_slices * slice_size)
        fetch(a, base, count, raw_a)
        if inputs > 1:
            fetch(b, base, count, raw_b)
        if inputs > 2:
            fetch(c, base, count, raw_c)
        stage(a, base, count, raw_a, shared, int32(0))
        if inputs > 1:
            stage(b, base, count, raw_b, shared, int32(second))
        if inputs > 2:
            stage(c, base, count, raw_c, shared, int32(third))
        cuda.syncthreads()
        column = int32(cuda.threadIdx.x)
        while column < own_slices * columns:
            number = int32(column // columns)
            top = int32(number * slice_size + (column - number * columns))
            walk(
                shared, int32(top + (length - 1) * columns) if reverse else top, int32(-columns) if reverse else columns, length, initial,
                initial_position,
            )  # fmt: skip
            column = int32(column + threads)
        cuda.syncthreads()
        write(output, base, count, shared)

    shared_bytes = inputs * part * element.bitwidth // 8
    return scan_slices, lambda slices, block_slices: (-(-slices // block_slices), threads, shared_bytes)
