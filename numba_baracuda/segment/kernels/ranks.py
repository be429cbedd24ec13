"""Stable ranks: how many rows of a warp, and of the warps before it, come before a row among those of its key.

After Merrill and Grimshaw, "High performance and scalable radix sorting" (Parallel Processing Letters 2011).
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint16, uint32

from ...runtime import jit
from ..tiling import THREADS

WARPS = THREADS // 32


@functools.cache
def ranker_of(rounds: int, bits: int) -> Any:
    """``rank(counters, first, keys, ranks)`` for ``rounds`` rows a lane: row k · 32 + lane of the warp has key ``keys[k]`` of so many bits; a
    negative key is no row.

    ``counters[first + key]`` are the warp's own, uint16 in shared memory, 0 at first; in the end they hold the number of rows of each key. Lanes of
    the same key are found by a ballot for each bit, which takes less time than ``match_any_sync`` where keys differ.
    """

    @jit.device
    def rank(counters: Any, first: Any, keys: Any, ranks: Any) -> None:
        below = int32((1 << cuda.laneid) - 1)
        for k in range(rounds):
            key = int32(keys[k])
            same = int32(cuda.ballot_sync(-1, key >= 0))
            if same != 0:
                for b in range(bits):
                    there = int32(key & (1 << b)) != 0
                    vote = int32(cuda.ballot_sync(-1, there))
                    same = int32(same & (vote if there else ~vote))
                earlier, index = int32(cuda.popc(int32(same & below))), uint32(first + (key if key >= 0 else 0))
                before = int32(counters[index])
                cuda.syncwarp()
                if key >= 0 and earlier == 0:
                    counters[index] = uint16(before + int32(cuda.popc(same)))
                cuda.syncwarp()
                ranks[k] = int32(before + earlier)

    return rank


@jit.device
def scan_counters(pairs: Any, pair: Any, width: Any, base: Any) -> None:
    """Replaces the counters of two neighbouring keys, packed as uint32, by ``base`` and the counters of the warps before: an exclusive scan.

    Counters of one warp and the next are ``width`` words apart.
    """
    own = cuda.local.array(WARPS, uint32)
    for w in range(WARPS):
        own[w] = pairs[uint32(pair + w * width)]
    total = uint32(base)
    for w in range(WARPS):
        pairs[uint32(pair + w * width)] = total
        total = uint32(total + own[w])


@jit.device
def counters_sum(pairs: Any, pair: Any, width: Any) -> Any:
    """The sum over all warps of the same counters."""
    total = uint32(0)
    for w in range(WARPS):
        total = uint32(total + pairs[uint32(pair + w * width)])
    return total


@jit.device
def clear_counters(pairs: Any, pair: Any, width: Any) -> None:
    """Sets the same counters to 0."""
    for w in range(WARPS):
        pairs[uint32(pair + w * width)] = uint32(0)
