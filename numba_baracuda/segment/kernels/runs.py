"""Gradients of halves in long runs: a lane keeps what its columns of a segment are given for as long as the id stays."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device import bits
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...kernels.batch import state_accessors
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..flat_tiling import runs_launch
from ..policy import BroadcastRuns
from .vjp import given_of, vjp_parts_of


@jit.kernel
def broadcast_runs(
    *, gradient: str, value: str, index: str, vector: int,
    threads_per_block: int = BroadcastRuns.threads_per_block, items_per_thread: int = BroadcastRuns.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`broadcast_to_rows` of halves where x, w and output are contiguous, as are g and y, and an id mostly equals that of the row before.

    ``pieces`` neighbouring lanes have a row, ``vector`` columns each, and a block as many rows side by side as it has threads for. A lane takes
    every so many-th of the ``tile`` rows of its block, always in the same columns. What these are given it loads and prepares once, and again at a
    row whose id is another. The last tile comes first. Bytes: rows · columns · value for each of x, w and output, and ids; segments are read again
    for each tile.

    Constants and parameters as :mod:`.` lists them; ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`; and

    * ``vector``: 2 or more
    * ``items_per_thread``: rows
    * ``pieces``: columns / ``vector``, at most the threads of a block
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    unsigned, grad = jit.SCALARS["u" + index[1:]], GRADIENTS[gradient]
    given_to, apply = given_of(gradient, value), vjp_parts_of(gradient, value).apply_wide
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    load, load_once, load_id = LOAD_STREAM[vector], LOAD_ONCE[vector], LOAD_ONCE[1]
    pack, store_pairs, pairs_size = getattr(bits, f"f32x2_to_{value}x2"), STORE_STREAM[vector // 2], items_per_thread * vector // 2
    batch_size, results, gathered = items_per_thread * vector, grad.results, vector * grad.gathered
    folded_width = min(BY_NAME[BY_NAME[value].accumulator].vector, gathered) or 1
    load_folded, folded_size, (get, put) = LOAD_ONCE[folded_width], max(gathered, 1), state_accessors(4)
    given_size = 4 * vector

    def broadcast_runs(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], folded: Ptr[wide], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, pieces: int64,
    ) -> None:  # fmt: skip
        batch_x = cuda.local.array(batch_size, element)
        batch_w = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(items_per_thread, index_type)
        some_g = cuda.local.array(vector, element)
        some_y = cuda.local.array(vector, element)
        some_folded = cuda.local.array(folded_size, wide)
        given = cuda.local.array(given_size, wide)
        pairs = cuda.local.array(pairs_size, uint32)
        output_pairs = bits.recast(output, uint32)
        group = int32(uint32(cuda.threadIdx.x) // uint32(pieces))
        groups = int32(uint32(cuda.blockDim.x) // uint32(pieces))
        column = int32(cuda.threadIdx.x - group * int32(pieces)) * int32(vector)
        first = int64(cuda.gridDim.x - cuda.blockIdx.x - 1) * tile
        length = int32(min(tile, rows - first))
        # no row has this id, which is out of range
        current, inside = index_type(-1), False
        for k in range(given_size):
            given[k] = wide(0)
        row = group if group < groups else length
        while row < length:
            for u in range(items_per_thread):
                its_row = first + min(int32(row + u * groups), int32(length - 1))
                load_id(ids, its_row, batch_ids, u)
                if has_x:
                    load(x, its_row * columns + column, batch_x, u * vector)
                if has_w:
                    load(w, its_row * columns + column, batch_w, u * vector)
            for u in range(items_per_thread):
                if batch_ids[u] != current:
                    current = batch_ids[u]
                    inside = unsigned(current) < unsigned(segments)
                    if inside:
                        place = int64(current) * columns + column
                        if has_g:
                            load_once(g, place, some_g, 0)
                        if has_y:
                            load_once(y, place, some_y, 0)
                        for k in range(0, gathered, folded_width):
                            load_folded(folded, place * results + k, some_folded, k)
                        for v in range(vector):
                            put(given, 4 * v, 1, given_to(some_g, some_y, v, some_folded, folded, (place + v) * results))
                its_row = first + int32(row + u * groups)
                if inside:
                    for v in range(0, vector, 2):
                        k = u * vector + v
                        low = apply(batch_x, batch_w, k, its_row, get(given, 4 * v, 1))
                        pairs[k // 2] = pack(low, apply(batch_x, batch_w, k + 1, its_row, get(given, 4 * v + 4, 1)))
                else:
                    for v in range(0, vector, 2):
                        pairs[(u * vector + v) // 2] = uint32(0)
                if int32(row + u * groups) < length:
                    store_pairs(output_pairs, its_row * columns + column >> 1, pairs, u * vector // 2)
            row = int32(opaque(row + items_per_thread * groups))

    def launch_config(rows: int, columns: int, tile: int) -> tuple[int, int, int]:
        return runs_launch(threads_per_block, rows, columns // vector, tile)

    return broadcast_runs, launch_config
