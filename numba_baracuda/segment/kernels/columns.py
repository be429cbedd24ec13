"""How a lane reads and writes its columns of a row: neighbours by vectors, or single columns that lie apart."""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda.types import int32

from ...runtime import jit

#: more columns than a lane reaches from its first one on; rows may have more than an int32 counts
FAR = 1 << 30


@functools.cache
def columns_loader(load: Any, width: int, vector: int, apart: int, results: int = 1, inside: bool = False) -> Any:
    """``load_columns(array, at, batch, first, left)`` loads the ``vector`` columns of a lane to index ``first`` of a batch.

    They are neighbours, or ``apart`` columns apart where that is not 0. A column is ``results`` neighbours in memory; ``load`` loads ``width``
    elements. ``left``: the columns of the row from the lane's first one on, or ``FAR``; instead of columns behind the row's end, its last one is
    loaded, unless another row of the array, ``inside`` of which they are, lies behind: so all accesses of a row have one address.
    """
    pieces, together = (vector, results) if apart else (1, vector * results)
    clamps = apart and not inside

    @jit.device
    def load_columns(array: Any, at: Any, batch: Any, first: Any, left: Any) -> None:
        for v in range(pieces):
            column = min(int32(v * apart), int32(left - 1)) if clamps else int32(v * apart)
            for k in range(0, together, width):
                load(array, at + column * results + k, batch, first + v * together + k)

    return load_columns


@functools.cache
def columns_storer(store: Any, width: int, vector: int, apart: int, results: int = 1) -> Any:
    """``store_columns(array, at, batch, first, left)`` stores them likewise, and nothing behind the row's end."""
    pieces, together = (vector, results) if apart else (1, vector * results)

    @jit.device
    def store_columns(array: Any, at: Any, batch: Any, first: Any, left: Any) -> None:
        for v in range(pieces):
            if not apart or v * apart < left:
                for k in range(0, together, width):
                    store(array, at + v * apart * results + k, batch, first + v * together + k)

    return store_columns
