"""How fast the emulator is: ``python -m benchmarks.emulator``. A block reduction with shuffles and barriers, in fast and in checked mode."""

from __future__ import annotations

import time

import numpy as np
from numba import cuda
from numba.cuda.types import CPointer, float32, int64

from numba_baracuda.emulator import emulator
from numba_baracuda.runtime import jit

THREADS, BLOCKS, PER_LANE = 256, 4, 64


@jit.device
def warp_sum(x):
    for distance in (16, 8, 4, 2, 1):
        x = x + cuda.shfl_xor_sync(-1, x, distance)
    return x


def block_sums(x, y, n):
    """``y[b]`` = the sum of what block b reads, lanes striding over x."""
    partial = cuda.shared.array(32, float32)
    total = float32(0)
    i = cuda.grid(1)
    while i < n:
        total = total + x[i]
        i += cuda.gridsize(1)
    total = warp_sum(total)
    warp = cuda.threadIdx.x // 32
    if cuda.laneid == 0:
        partial[warp] = total
    cuda.syncthreads()
    if warp == 0:
        total = partial[cuda.laneid] if cuda.laneid < cuda.blockDim.x // 32 else float32(0)
        total = warp_sum(total)
        if cuda.laneid == 0:
            y[cuda.blockIdx.x] = total


def main() -> None:
    n = THREADS * BLOCKS * PER_LANE
    x, y = np.random.default_rng(0).random(n, np.float32), np.zeros(BLOCKS, np.float32)
    types = (CPointer(float32), CPointer(float32), int64)
    for name, mode, count in (("fast", emulator.Mode(), n), ("checked", emulator.Mode(seed=1), n // 8)):
        emulator.run(block_sums, types, BLOCKS, THREADS, (x, y, count), mode=mode)
        start = time.perf_counter()
        emulator.run(block_sums, types, BLOCKS, THREADS, (x, y, count), mode=mode)
        took = time.perf_counter() - start
        assert np.isclose(y.sum(), x[:count].sum(dtype=np.float64), rtol=1e-5), "the block sums are wrong"
        print(f"{name:8s} {count / took:12,.0f} elements/s ({count} elements, {BLOCKS} blocks of {THREADS})")


if __name__ == "__main__":
    main()
