"""Products of float32 factors in any order, with the same bits in the end: by sums of integers, for :func:`~.products.product_of_others`.

Each factor adds to two integers of 64 bits. Its *word* is the natural logarithm of its size in units of 1 / scale, rounded to the nearest integer
that is odd for negative factors and even for others. Zeros, infinities and NaN have the word of 1 or −1, and add to a *tally* that counts each of the
three in 21 bits. ``scale`` is a power of two that leaves room for as many words as there may be: of 2^27 factors each is off by 2^−27 of itself at
most, an eighth of what a product in float32 may be off by for each.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda
from numba.cuda.types import float32, float64, int32, int64

from ..device.atomics import red_add
from ..device.bits import f32_as_i32, i32_as_f32
from ..device.order import load_relaxed
from ..runtime import jit
from .products import KIND_BITS, UNITS, decompose, finish_product

#: log₂ of the scale at most, as the logarithm itself is off by as much; and for a single term, whose logarithm has 7 bits before the point
_MOST_BITS, _BITS = 44, 55
#: bits of a count in a tally. Counts stop at 2, but for threads that see 1 at a time, of which there are fewer.
_TALLY_BITS = 21
_TALLY = (1 << _TALLY_BITS) - 1
_UNIT = UNITS[float32] * math.log(2)
_classify, _finish = decompose(float32)[1], finish_product(float32)


@jit.device
def scale_of(terms: Any) -> Any:
    """The scale for ``terms`` factors."""
    return float64(int64(1) << int64(min(_MOST_BITS, _BITS - 64 + cuda.clz(int64(terms)))))


@jit.device
def word_of(x: Any, scale: Any) -> Any:
    """The word of a factor."""
    odd = int64(f32_as_i32(x) < 0)
    half = 0.5 * (math.log(abs(float64(_classify(x)[1]))) * scale - float64(odd))
    return int64(2 * int64(half + (0.5 if half >= 0 else -0.5)) + odd)


@jit.device
def add_tally(sums: Any, at: Any, x: Any) -> None:
    """Counts a factor that is 0, infinite or NaN in ``sums[2 · at + 1]``."""
    which = _classify(x)[0]
    if which != 0:
        shift = int64((which >> 1) * _TALLY_BITS)
        if (load_relaxed(sums, 2 * at + 1) >> shift & _TALLY) < 2:
            red_add(sums, 2 * at + 1, int64(1) << shift)


@jit.device
def product_of_sums(word: Any, tally: Any, scale: Any) -> Any:
    """The results of ``scaled_prod`` for sums of words and tallies."""
    size = float64(word) / scale
    units = size / _UNIT
    k = int64(units + (0.5 if units >= 0 else -0.5))
    m = float32(math.exp(size - float64(k) * _UNIT))
    kinds = int32(0)
    for which in range(KIND_BITS):
        count = tally >> int64(which * _TALLY_BITS) & _TALLY
        kinds |= int32((1 if count > 0 else 0) | ((1 << KIND_BITS) if count > 1 else 0)) << which
    return _finish((-m if word & 1 else m, float32(k), i32_as_f32(int32(kinds))), float32(1), float32(1))
