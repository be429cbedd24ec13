"""Neighbouring rows of a tile as one flat range: threads move it in pieces between global and shared memory, whatever a row's width is."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.stage import copy_async
from ...device.vector import LOAD_SHARED, LOAD_STREAM, STORE, STORE_STREAM
from ...runtime import jit

#: pieces of permuted rows whose places a thread loads before it uses the first
_IN_FLIGHT = 4


class Pieces:
    """Device functions on the rows of a tile, whose element ``index`` is element ``index % columns`` of row ``index // columns``.

    Rows are contiguous in shared memory. In global memory they are contiguous, too, from element ``base`` on, and pieces of 16 bytes may begin in one
    row and end in another; or row r of the tile is row ``permutation[first_row + r]``, and no piece of ``piece`` elements leaves its row. A thread
    has the pieces from ``begin(first)`` on that are ``stride`` elements apart.
    """

    def __init__(self, value: str, permuted: bool, piece: int, threads: int) -> None:
        element, stride = jit.SCALARS[value], threads * piece
        load, store = LOAD_STREAM[piece], STORE_STREAM[piece]
        load_shared, store_shared = LOAD_SHARED[piece], STORE[piece]
        asynchronous, batch_size = piece == BY_NAME[value].vector, _IN_FLIGHT * piece

        @jit.device
        def begin(first: Any) -> Any:
            return int32((first & -piece) + cuda.threadIdx.x * piece)

        @jit.device
        def place(index: Any, columns: Any) -> Any:
            """(row, column) of an element."""
            row = int32(uint32(index) // uint32(columns))
            return row, int32(index - row * int32(columns))

        @jit.device
        def advance(row: Any, column: Any, rows: Any, more: Any, columns: Any) -> Any:
            """The place ``rows`` rows and ``more`` elements, fewer than a row has, behind another."""
            next_row, next_column = int32(row + rows), int32(column + more)
            if next_column >= columns:
                next_row, next_column = int32(next_row + 1), int32(next_column - columns)
            return next_row, next_column

        @jit.device
        def offset(permutation: Any, first_row: Any, base: Any, index: Any, row: Any, column: Any, columns: Any) -> Any:
            """Where element ``index`` of the tile is in global memory."""
            if permuted:
                return int64(permutation[first_row + row]) * columns + column
            return base + index

        @jit.device
        def read(source: Any, permutation: Any, first_row: Any, columns: Any, staged: Any, at: Any, first: Any, last: Any, extent: Any) -> None:
            """Copies the elements [first, last) of the tile to ``staged[at:]``, and perhaps neighbours of theirs within the tile's ``extent``."""
            batch = cuda.local.array(batch_size, element)
            offsets = cuda.local.array(_IN_FLIGHT, int64)
            base, index = first_row * columns, begin(first)
            row, column = place(index, columns)
            rows, more = place(int32(stride), columns)
            if asynchronous and not permuted:
                while index < last:
                    if index + piece <= extent:
                        copy_async(source, base + index, staged, at + index)
                    else:
                        for v in range(piece):
                            if index + v < extent:
                                staged[at + index + v] = source[base + index + v]
                    index = int32(opaque(int32(index + stride)))
            else:
                while index < last:
                    for u in range(_IN_FLIGHT):
                        offsets[u] = base
                        if int32(index + u * stride) < last:
                            offsets[u] = offset(permutation, first_row, base, index, row, column, columns)
                        row, column = advance(row, column, rows, more, columns)
                    for u in range(_IN_FLIGHT):
                        if int32(index + u * stride) < last:
                            if asynchronous:
                                copy_async(source, offsets[u], staged, at + int32(index + u * stride))
                            else:
                                load(source, offsets[u], batch, u * piece)
                    if not asynchronous:
                        for u in range(_IN_FLIGHT):
                            if int32(index + u * stride) < last:
                                store_shared(staged, at + int32(index + u * stride), batch, u * piece)
                    index = int32(opaque(int32(index + _IN_FLIGHT * stride)))

        @jit.device
        def write(staged: Any, output: Any, permutation: Any, first_row: Any, columns: Any, first: Any, last: Any) -> None:
            """Stores the elements [first, last) of the tile from ``staged``."""
            batch = cuda.local.array(piece, element)
            base, index = first_row * columns, begin(first)
            row, column = place(index, columns)
            rows, more = place(int32(stride), columns)
            while index < last:
                if first <= index and index + piece <= last:
                    load_shared(staged, index, batch, 0)
                    store(output, offset(permutation, first_row, base, index, row, column, columns), batch, 0)
                else:
                    for v in range(piece):
                        if first <= index + v < last:
                            output[base + index + v] = staged[index + v]
                if permuted:
                    row, column = advance(row, column, rows, more, columns)
                index = int32(opaque(index + stride))

        self.stride, self.begin, self.place, self.advance, self.offset, self.read, self.write = stride, begin, place, advance, offset, read, write


@functools.cache
def pieces_of(value: str, permuted: bool, piece: int, threads: int) -> Pieces:
    """The one :class:`Pieces` for these."""
    return Pieces(value, permuted, piece, threads)
