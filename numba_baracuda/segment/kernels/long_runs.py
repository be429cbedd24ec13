"""The last launch of a broadcast from shared memory: it reads the rows of long runs again, which no block has as a whole."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra.gradients import GRADIENTS
from ...device.build import opaque
from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import BroadcastLongRuns
from .pieces import pieces_of
from .vjp import element_vjp_of


@jit.kernel
def broadcast_long_runs(
    *, gradient: str, value: str, row_index: str, piece: int,
    threads_per_block: int = BroadcastLongRuns.threads_per_block,
) -> Any:  # fmt: skip
    """Broadcasts to the rows of long runs what follows from ``folded``; they are those for which :func:`broadcast_staged` has left carries.

    Blocks take carries in a grid-stride loop, the last first, since level 2 cache holds what was read last. Without long runs ``guard[0]`` is 0.
    Dynamic shared memory: columns · results accumulators. Bytes: rows of long runs · columns · value read for each of x and w, and written.

    Constants and parameters as :mod:`.` lists them, and

    * ``piece``, ``x``, ``w``: as in :func:`broadcast_staged`
    """
    grad, element, wide = GRADIENTS[gradient], jit.SCALARS[value], accumulator_type(value)
    permuted, has_w, results = row_index != "", len(grad.rows) > 1, grad.results
    load, store, element_vjp = LOAD_STREAM[piece], STORE_STREAM[piece], element_vjp_of(gradient, value)
    pieces = pieces_of(value, permuted, piece, threads_per_block)
    begin_of, place, advance, offset_of, stride = pieces.begin, pieces.place, pieces.advance, pieces.offset, pieces.stride
    folded_size = piece * results

    def broadcast_long_runs(
        x: Ptr[value], w: Ptr[value], permutation: Ptr[row_index or int64], guard: Ptr[int32], folded: Ptr[wide],
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64,
    ) -> None:  # fmt: skip
        terms = cuda.shared.array(0, wide, 16)
        batch = cuda.local.array(piece, element)
        others = cuda.local.array(piece, element)
        batch_folded = cuda.local.array(folded_size, wide)
        if guard[0] == 0:
            return
        width = int32(columns)
        rows_a_step, more = place(int32(stride), columns)
        carry = int64(guard[0] - 1 - cuda.blockIdx.x)
        while carry >= 0:
            count = int32(carry_counts[carry])
            if count > 0:
                segment, first = carry_ids[carry], (carry >> 1) * tile
                inside, base = 0 <= segment < segments, first * columns
                start = int32((min(tile, rows - first) - count) * width) if carry & 1 else int32(0)
                last = int32(start + count * width)
                cuda.syncthreads()
                if inside:
                    at = int32(cuda.threadIdx.x)
                    while at < width * results:
                        terms[at] = folded[segment * columns * results + at]
                        at = int32(opaque(at + threads_per_block))
                cuda.syncthreads()
                index = begin_of(start)
                row, column = place(index, columns)
                while index < last:
                    fits = start <= index and index + piece <= last
                    if fits:
                        at = offset_of(permutation, first, base, index, row, column, columns)
                        load(x, at, batch, 0)
                        if has_w:
                            load(w, at, others, 0)
                    else:
                        for v in range(piece):
                            safe = base + max(min(index + v, last - 1), start)
                            batch[v] = x[safe]
                            if has_w:
                                others[v] = w[safe]
                    if inside:
                        place_v = column
                        for v in range(piece):
                            for k in range(results):
                                batch_folded[v * results + k] = terms[place_v * results + k]
                            place_v = int32(place_v + 1)
                            if place_v == width:
                                place_v = int32(0)
                        for v in range(piece):
                            batch[v] = element_vjp(batch, others, others, others, v, batch_folded, folded, 0, 0)
                    else:
                        for v in range(piece):
                            batch[v] = element(0)
                    if fits:
                        store(output, offset_of(permutation, first, base, index, row, column, columns), batch, 0)
                    else:
                        for v in range(piece):
                            if start <= index + v < last:
                                output[base + index + v] = batch[v]
                    row, column = advance(row, column, rows_a_step, more, columns)
                    index = int32(opaque(index + stride))
            carry = opaque(carry - cuda.gridDim.x)

    return broadcast_long_runs
