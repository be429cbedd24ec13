"""Whether ids in order have a long run, which the first blocks of a launch find out for all others."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.atomics import red_max
from ...device.order import fetch_add_acq_rel, load_acquire, load_relaxed
from ...runtime import jit


@functools.cache
def long_run_finder_of(threads: int) -> Any:
    """``leaves(number, lookers, ids, rows, span, guard)``: whether there is nothing to do for block ``number`` in the order of their start.

    The first ``lookers`` blocks set ``guard[0]`` to 1 if two neighbouring multiples of ``span`` have the same of ``rows`` ids in order, so that its
    run has more than ``span`` rows; runs of 2 · ``span`` rows are always found. They count themselves in ``guard[1]``, and leave. All other blocks
    wait for them, and leave if they have found one. Both words are 0 before the launch. Bytes: a sector for each ``span`` rows read.
    """

    @jit.device
    def leaves(number: Any, lookers: Any, ids: Any, rows: Any, span: Any, guard: Any) -> Any:
        found = int32(number < lookers)
        if number < lookers:
            row = int64(number * threads + cuda.threadIdx.x) * span
            while row + span < rows:
                if ids[row] == ids[row + span]:
                    red_max(guard, 0, int32(1))
                row = row + lookers * threads * span
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                fetch_add_acq_rel(guard, 1, int32(1))
        elif cuda.threadIdx.x == 0:
            while load_acquire(guard, 1) != int32(lookers):
                pass
            found = load_relaxed(guard, 0)
        return cuda.syncthreads_or(found) != 0

    return leaves
