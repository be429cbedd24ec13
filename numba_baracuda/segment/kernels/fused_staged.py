"""Gradients of folds, and softmax, of short segments of narrow rows in one launch: a block has the rows in shared memory, and each lane a column."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.stage import await_copies, commit_copies
from ...device.vector import LOAD_SHARED, STORE_STREAM
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldAndBroadcastStaged
from ..tiling import STAGED_CHUNKS
from .common import half_row_of
from .staged import begin_copies
from .states import run_states_of
from .sums import open_run_of
from .vjp import element_vjp_of
from .walk import run_walker_of


@jit.kernel
def fold_and_broadcast_staged(
    *, gradient: str, value: str, index: str, threads_per_block: int = FoldAndBroadcastStaged.threads_per_block,
    items_per_thread: int = FoldAndBroadcastStaged.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_runs` of narrow rows.

    A block copies the ``tile`` rows of its tile to shared memory, by 16 bytes, and those behind it up to the end of the last run that begins in the
    tile, of which there are at most ``reach``. It lists the runs that begin in the tile. Each lane folds one column of a run, and replaces it by what
    becomes of it; then the block stores the rows of these runs by 16 bytes. Does nothing where ``guard[0]`` is not 0: :func:`find_long_run` has found
    a run that may be longer. Dynamic shared memory: see :func:`~..tiling.staged_runs_bytes`. Bytes: as :func:`fold_and_broadcast_runs`.

    Constants and parameters as :mod:`.` lists them, and ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`, all contiguous;

    * ``items_per_thread``: rows that a lane loads from shared memory before it uses the first
    * ``tile``, ``reach``: rows, multiples of 16 bytes; together at most 32 times ``STAGED_CHUNKS``
    * ``reciprocal``: :func:`~..tiling.half_reciprocal_of` the columns
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, state, threads, size, id_size = (
        GRADIENTS[gradient],
        BY_NAME[value].accumulator,
        threads_per_block,
        BY_NAME[value].itemsize,
        BY_NAME[index].itemsize,
    )
    fold, open_run, walk = (
        run_states_of(grad.fold, value, 1, state),
        open_run_of(grad.fold, value, 1, state),
        run_walker_of(grad.fold, value, 1, state, items_per_thread, len(grad.over)),
    )
    unsigned = jit.SCALARS["u" + index[1:]]
    close_run, finish_states, element_vjp = open_run.close, fold.finish_states, element_vjp_of(gradient, value)
    has_w, has_g, has_y = len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    swapped, warps, piece = grad.over[0] != grad.rows[0], threads // 32, BY_NAME[value].vector
    load_piece, store_piece, await_stage = LOAD_SHARED[piece], STORE_STREAM[piece], await_copies(0)
    run_scalars, scalars, results_size = open_run.scalars, fold.scalars, grad.results

    def fold_and_broadcast_staged(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, reach: int64, reciprocal: int64, correction: Scalar[wide],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        staged_ids = cuda.shared.array(0, index_type)
        begins = cuda.shared.array(0, uint16)
        heads = cuda.shared.array(STAGED_CHUNKS, int32)
        run = cuda.local.array(run_scalars, wide)
        states = cuda.local.array(scalars, wide)
        folded = cuda.local.array(results_size, wide)
        one_x, one_w = cuda.local.array(1, element), cuda.local.array(1, element)
        one_g, one_y = cuda.local.array(1, element), cuda.local.array(1, element)
        words = cuda.local.array(piece, element)
        if guard[0] != 0:
            return
        thread, lane, warp, pitch = int32(cuda.threadIdx.x), int32(cuda.laneid), int32(cuda.threadIdx.x >> 5), int32(columns)
        first = int64(cuda.blockIdx.x) * tile
        count, own = int32(min(tile + reach, rows - first)), int32(min(tile, rows - first))
        w_at = int32((tile + reach) * columns)
        ids_at = int32(w_at * (2 if has_w else 1) * size // id_size)
        begins_at = int32((ids_at + tile + reach) * id_size // 2)
        begin_copies(x, first * columns, int32(own * pitch), size, staged, 0, thread, threads)
        if has_w:
            begin_copies(w, first * columns, int32(own * pitch), size, staged, w_at, thread, threads)
        # the id before the first row, or any other than that of the first row
        before = ids[first - 1] if first > 0 else index_type(ids[0] ^ index_type(1))
        row = thread
        while row < count:
            staged_ids[uint32(ids_at + row)] = ids[first + row]
            row = int32(opaque(row + threads))
        cuda.syncthreads()
        chunk = warp
        while chunk < STAGED_CHUNKS:
            row, met = int32(32 * chunk + lane), False
            if row < count:
                past = before if row == 0 else staged_ids[uint32(ids_at + row - 1)]
                met = past != staged_ids[uint32(ids_at + row)]
            found = cuda.ballot_sync(-1, met)
            if lane == 0:
                heads[chunk] = found
            chunk = int32(opaque(chunk + warps))
        cuda.syncthreads()
        # a lane has the heads of 32 rows: those in the tile, of which a scan tells how many come before, and those behind it
        mine, inside = heads[lane], int32(min(max(int32(own - 32 * lane), int32(0)), int32(32)))
        mask = int32(-1) if inside == 32 else int32((1 << inside) - 1)
        behind, mine = int32(mine & ~mask), int32(mine & mask)
        upto = int32(cuda.popc(mine))
        for k in range(5):
            other = cuda.shfl_up_sync(-1, upto, 1 << k)
            if lane >= 1 << k:
                upto = int32(upto + other)
        runs = cuda.shfl_sync(-1, upto, 31)
        vote, end = cuda.ballot_sync(-1, behind != 0), count
        owner = int32(max(int32(cuda.ffs(vote) - 1), int32(0)))
        following = cuda.shfl_sync(-1, int32(32 * lane + cuda.ffs(behind) - 1), owner)
        if vote != 0:
            end = following
        if end > own:
            begin_copies(x, (first + own) * columns, int32((end - own) * pitch), size, staged, own * pitch, thread, threads)
            if has_w:
                begin_copies(w, (first + own) * columns, int32((end - own) * pitch), size, staged, w_at + own * pitch, thread, threads)
        commit_copies()
        below = int32((1 << lane) - 1)
        chunk = warp
        while 32 * chunk < own:
            those, place = cuda.shfl_sync(-1, mine, chunk), cuda.shfl_sync(-1, int32(upto - cuda.popc(mine)), chunk)
            if int32(those >> lane) & 1:
                begins[uint32(begins_at + place + cuda.popc(int32(those & below)))] = uint16(32 * chunk + lane)
            chunk = int32(opaque(chunk + warps))
        if thread == 0:
            begins[uint32(begins_at + runs)] = uint16(end)
        await_stage()
        cuda.syncthreads()
        item, items, most = thread, int32(runs * pitch), unsigned(segments)
        while item < items:
            number = half_row_of(item, reciprocal)
            column, begin = int32(item - number * pitch), int32(begins[uint32(begins_at + number)])
            length, identifier = int32(begins[uint32(begins_at + number + 1)] - begin), staged_ids[uint32(ids_at + begin)]
            # segments have at most as many elements as 32 bits number
            at, place = int32(begin * pitch + column), int32(int32(identifier) * pitch + column)
            known = unsigned(identifier) < most
            if known:
                if has_g:
                    one_g[0] = g[place]
                if has_y:
                    one_y[0] = y[place]
            if swapped:
                walk(run, staged, int32(w_at + at), at, pitch, length, first + begin, 0)
            else:
                walk(run, staged, at, int32(w_at + at), pitch, length, first + begin, 0)
            close_run(run, length, states)
            finish_states(states, length, correction, folded)
            while known and length > 0:
                one_x[0] = staged[uint32(at)]
                if has_w:
                    one_w[0] = staged[uint32(w_at + at)]
                staged[uint32(at)] = element_vjp(one_x, one_w, one_g, one_y, 0, folded, folded, 0, 0)
                at, length = int32(at + pitch), int32(opaque(length - 1))
            # a run whose id is out of range
            while length > 0:
                staged[uint32(at)] = element(0)
                at, length = int32(at + pitch), int32(opaque(length - 1))
            item = int32(opaque(item + threads))
        cuda.syncthreads()
        # what is stored: from the first head on, by pieces that begin at multiples of 16 bytes, and single elements before and behind these
        # nothing where no run begins in the tile, since the first head is then the end
        low, high = int32(begins[uint32(begins_at)] * pitch), int32(end * pitch)
        start = int32((low + piece - 1) // piece * piece)
        if thread < start - low and low + thread < high:
            output[first * columns + low + thread] = staged[uint32(low + thread)]
        start = int32(start + thread * piece)
        while start + piece <= high:
            load_piece(staged, start, words, 0)
            store_piece(output, first * columns + start, words, 0)
            start = int32(opaque(start + threads * piece))
        start = int32(max(int32(high // piece * piece), low) + thread)
        if start < high:
            output[first * columns + start] = staged[uint32(start)]

    return fold_and_broadcast_staged
