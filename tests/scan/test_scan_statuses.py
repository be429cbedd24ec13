"""The statuses of scans whose blocks look back, in the memory that a stream keeps."""

from __future__ import annotations

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda.arrays import arrays

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")


@pytest.mark.gpu
def test_calls_of_all_sizes_share_the_memory_of_their_stream() -> None:
    """Each prefix is right to the bit, so each call found zeros: ones are counted, in one order of sizes on each of two streams."""
    random, streams = np.random.default_rng(11), [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(300):
        dtype, extent = random.choice(["int32", "float64", "float32"]), int(2 ** random.uniform(14, 23.9))
        shape, axis = [((1, extent), 1), ((extent // 5, 5), 0), ((extent // 24, 24), 0), ((3, extent // 3), 1)][random.integers(4)]
        with streams[random.integers(2)] as stream:
            counted = nb.cumsum(cupy.ones(shape, dtype), axis)
            wanted = cupy.broadcast_to(cupy.arange(1, shape[axis] + 1).reshape((-1, 1) if axis == 0 else (1, -1)), shape)
            assert bool((counted == wanted).all()), (dtype, shape, axis, stream)
