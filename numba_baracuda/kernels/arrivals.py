"""Which block of several is the last to arrive: it finds what the others have left in the workspace, so that no second launch is needed."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ..device.order import fetch_add_acq_rel, store_relaxed
from ..runtime import jit


@jit.device
def last_to_arrive(arrivals: Any, index: Any, blocks: Any) -> Any:
    """Whether the block is the last of ``blocks`` to call this with ``index``. All its threads then see what the others wrote before.

    ``arrivals[index]``, an int32, counts the blocks: it is 0 before, and again once the last has arrived. All threads of a block call this together.
    """
    last = int32(0)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and fetch_add_acq_rel(arrivals, index, int32(1)) == blocks - 1:
        store_relaxed(arrivals, index, int32(0))
        last = int32(1)
    return cuda.syncthreads_or(last) != 0
