"""A user's own kernel at memory bandwidth: the sums of the rows of a float32 matrix, by the device library.

A block of 256 threads takes a row. Each thread has four 16-byte loads in flight and four partial sums; the block combines them by
``block_reduce``. Bytes: 4 · rows · columns read, 4 · rows written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.types import float32, int64

from numba_baracuda import device
from numba_baracuda.algebra import SUM

THREADS = 256
VECTOR = 4  #: float32 in 16 bytes
IN_FLIGHT = 4  #: loads that a thread starts before it needs the first
STEP = THREADS * VECTOR
TILE, HELD = STEP * IN_FLIGHT, VECTOR * IN_FLIGHT
ZERO = np.float32(0)

block_sum = device.block_reduce(SUM, float32, THREADS)


@cuda.jit(device=True, forceinline=True)
def add_held(partial: Any, held: Any) -> None:
    for u in range(IN_FLIGHT):
        for v in range(VECTOR):
            partial[v] += held[u * VECTOR + v]


@cuda.jit
def row_sum(x2d_flat: Any, out: Any, columns: Any) -> None:
    """``out[r]`` = Σ ``x2d_flat[r · columns : (r + 1) · columns]``; ``columns`` is a multiple of 4, the data start at a multiple of 16 bytes."""
    held, partial = cuda.local.array(HELD, float32), cuda.local.array(VECTOR, float32)
    for v in range(VECTOR):
        partial[v] = ZERO
    row = int64(cuda.blockIdx.x) * columns
    column = int64(cuda.threadIdx.x) * VECTOR
    while column + (TILE - STEP) < columns:
        for u in range(IN_FLIGHT):
            device.load_4_once(x2d_flat, row + column + u * STEP, held, u * VECTOR)
        add_held(partial, held)
        column = device.opaque(column + TILE)
    for k in range(HELD):
        held[k] = ZERO
    for u in range(IN_FLIGHT - 1):
        if column + u * STEP < columns:
            device.load_4_once(x2d_flat, row + column + u * STEP, held, u * VECTOR)
    add_held(partial, held)
    total = block_sum((partial[0] + partial[1]) + (partial[2] + partial[3]))
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


def launch(rows: int, columns: int) -> tuple[int, int]:
    """Blocks and threads of :data:`row_sum`."""
    if columns % VECTOR:
        raise ValueError(f"row_sum: columns is {columns}, wants a multiple of {VECTOR}")
    return rows, THREADS
