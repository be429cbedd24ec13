"""Whether ids in order have a long run, which the first blocks of a launch find out while the others begin."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.atomics import red_max
from ...device.order import fetch_add, load_relaxed
from ...runtime import jit

#: what a block that has found a long run adds to the word by which blocks that look are counted
FOUND = 1 << 16


@functools.cache
def looker_of(threads: int) -> Any:
    """``look(number, lookers, ids, rows, span, guard)``: what block ``number`` of the first ``lookers``, fewer than ``FOUND``, does.

    If two neighbouring multiples of ``span`` have the same of ``rows`` ids in order, so that its run has more than ``span`` rows, one of them sets
    ``guard[0]`` to 1; runs of 2 · ``span`` rows are always found. They count themselves in ``guard[1]``. Both words are 0 before the launch.
    Bytes: a sector for each ``span`` rows read.
    """

    @jit.device
    def look(number: Any, lookers: Any, ids: Any, rows: Any, span: Any, guard: Any) -> None:
        row, found = int64(number * threads + cuda.threadIdx.x) * span, int32(0)
        while row + span < rows:
            if ids[row] == ids[row + span]:
                found = int32(1)
            row = row + lookers * threads * span
        found = int32(cuda.syncthreads_or(found))
        if cuda.threadIdx.x == 0:
            if found != 0:
                red_max(guard, 0, int32(1))
            fetch_add(guard, 1, int32(FOUND + 1) if found != 0 else int32(1))

    return look


@jit.device
def begin_looked(guard: Any) -> Any:
    """What the first thread of a block knows of ``guard[1]`` when it begins; others know 0, or all warps of all blocks would ask for one word."""
    return load_relaxed(guard, 1) if cuda.threadIdx.x == 0 else int32(0)


@jit.device
def all_looked(word: Any, lookers: Any, guard: Any) -> Any:
    """``guard[1]`` when all ``lookers`` have counted themselves: ``FOUND`` or more if there is a long run. ``word`` is what it was before.

    For the first thread of a block that starts after those that look; others get their ``word``. It orders nothing, and is no barrier.
    """
    while cuda.threadIdx.x == 0 and int32(word & int32(FOUND - 1)) != lookers:
        word = load_relaxed(guard, 1)
    return word
