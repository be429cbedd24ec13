"""A user's own kernels, as an example: a weighted quantile by histogram, on the GPU and in the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.types import float32, int32

from numba_baracuda import device
from numba_baracuda.algebra import SUM, Monoid

BINS = 256  #: also the threads of a block: each looks after one bin
ZERO, TOP = np.float32(0), np.float32(BINS)


def _lesser(a: Any, b: Any) -> Any:
    return min(a, b)


weight_up_to = device.block_scan(SUM, float32, BINS)
first_of = device.block_reduce(Monoid("min", (BINS,), combine=_lesser), int32, BINS)


@cuda.jit
def accumulate(values, weights, low, bins_per_unit, histogram):
    """Adds the weights of each bin to ``histogram``, gathered in shared memory first; values outside of the range, and NaN, are left out."""
    bins = cuda.shared.array(BINS, float32)
    bins[cuda.threadIdx.x] = ZERO
    cuda.syncthreads()
    i = cuda.grid(1)
    while i < values.size:
        place = (values[i] - low) * bins_per_unit
        if ZERO <= place <= TOP:
            cuda.atomic.add(bins, min(int32(place), BINS - 1), weights[i])
        i = device.opaque(i + cuda.gridsize(1))
    cuda.syncthreads()
    device.red_add(histogram, cuda.threadIdx.x, bins[cuda.threadIdx.x])


@cuda.jit
def locate(histogram, q, low, bin_width, result):
    """``result[0]``: where the weight up to it is ``q`` of the total, by interpolation in its bin. One block; NaN stays where nothing was counted."""
    k = int32(cuda.threadIdx.x)
    weight = histogram[k]
    up_to, total = weight_up_to(weight)
    target = q * total
    first = first_of(k if up_to > ZERO and up_to >= target else BINS)
    if k == first:
        part = (target - (up_to - weight)) / weight if weight > ZERO else ZERO
        result[0] = low + (float32(k) + part) * bin_width


def weighted_quantile(
    values: Any, weights: Any, q: float, low: float, high: float, *, xp: Any = np, start: Callable[[Any], Any] = device.emulate
) -> float:
    """The quantile of float32 values in ``[low, high]``, to a bin's width. For the GPU: ``xp=cupy`` and ``start=lambda kernel: kernel``."""
    histogram, result = xp.zeros(BINS, np.float32), xp.full(1, np.nan, np.float32)
    blocks = min(-(-values.size // (4 * BINS)), 1024)
    start(accumulate)[blocks, BINS](values, weights, np.float32(low), np.float32(BINS / (high - low)), histogram)
    start(locate)[1, BINS](histogram, np.float32(q), np.float32(low), np.float32((high - low) / BINS), result)
    return float(result[0])
