"""Gradients of folds, and softmax, of short segments of narrow rows in one launch: a block has the rows in shared memory, and each lane a column."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra import SUM
from ...algebra.gradients import GRADIENTS
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.order import start_number
from ...device.stage import await_copies, commit_copies
from ...device.vector import LOAD_SHARED, STORE
from ...device.warp import warp_scan
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldAndBroadcastStaged
from ..staged_tiling import STAGED_ROWS
from .columns import FAR
from .common import half_row_of
from .copies import begin_copies
from .in_place import rows_storer_of
from .long_runs import FOUND, all_looked, begin_looked, looker_of
from .states import heads_behind, run_states_of
from .sums import open_run_of
from .vjp import element_vjp_of
from .walk import run_walker_of, staged_loader


@jit.kernel
def fold_and_broadcast_staged(
    *, gradient: str, value: str, index: str, vector: int, apart: bool, threads_per_block: int = FoldAndBroadcastStaged.threads_per_block,
    items_per_thread: int = FoldAndBroadcastStaged.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_runs` of narrow rows.

    A block copies the ``tile`` rows of its tile to shared memory, by 16 bytes, and those behind it up to the end of the last run that begins in the
    tile, of which there are at most ``reach``. It lists the runs that begin in the tile, and puts them in the order of their lengths, so that lanes
    of a warp have runs of much the same length. Each lane folds ``vector`` columns of a run, and replaces them by what becomes of them; then the
    block stores the rows of these runs by 16 bytes. The first ``lookers`` blocks look for runs of ``span`` rows or twice as many, which may
    be longer, as those of :func:`fold_and_broadcast_runs` do. Dynamic shared memory: see :func:`~..staged_tiling.staged_runs_bytes`. Bytes: as
    :func:`fold_and_broadcast_runs`.

    Constants and parameters as :mod:`.` lists them, and ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`, all contiguous; but where a
    gradient uses positions of rows, not their elements, ``x`` is what its fold is over;

    * ``items_per_thread``: rows that a lane loads from shared memory before it uses the first
    * ``apart``: whether the columns of a lane are ``width`` columns apart, not neighbours; the last one of two may be behind the row's end
    * ``tile``, ``reach``: rows, multiples of 16 bytes, as are their ids; together at most ``STAGED_ROWS``
    * ``width``: lanes that have a row; ``reciprocal``: :func:`~..tiling.half_reciprocal_of` it
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, state, threads = GRADIENTS[gradient], BY_NAME[value].accumulator, threads_per_block
    size, id_size = BY_NAME[value].itemsize, BY_NAME[index].itemsize
    fold, open_run = run_states_of(grad.fold, value, vector, state), open_run_of(grad.fold, value, vector, state)
    walk, load = run_walker_of(grad.fold, value, vector, state, items_per_thread, len(grad.over), apart), staged_loader(vector, apart)
    unsigned = jit.SCALARS["u" + index[1:]]
    close_run, finish_states, element_vjp = open_run.close, fold.finish_states, element_vjp_of(gradient, value)
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    swapped, warps = has_w and grad.over[0] != grad.rows[0], threads // 32
    store_vector = STORE[1 if apart else vector]
    await_ids, await_rows, before_lane = await_copies(1), await_copies(0), warp_scan(SUM, int32, exclusive=True)
    run_scalars, scalars, results_size = open_run.scalars, fold.scalars, vector * grad.results
    each, store_rows = ceil_div(STAGED_ROWS, threads), rows_storer_of(value, threads)
    wide_ids = min(each, BY_NAME[index].vector)
    look, load_ids, heads_among = looker_of(threads), LOAD_SHARED[wide_ids], heads_behind(each)

    @jit.device
    def store(staged: Any, at: Any, distance: Any, batch: Any) -> None:
        if apart:
            for v in range(vector):
                staged[uint32(at + v * distance)] = batch[v]
        else:
            store_vector(staged, at, batch, 0)

    def fold_and_broadcast_staged(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, reach: int64, width: int64, reciprocal: int64, lookers: int64, span: int64,
        correction: Scalar[wide],
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        staged_ids = cuda.shared.array(0, index_type)
        begins = cuda.shared.array(0, uint16)
        warp_runs = cuda.shared.array(warps, int32)
        warp_ends = cuda.shared.array(warps, int32)
        of_length = cuda.shared.array(32, int32)
        own_ids = cuda.local.array(each, index_type)
        ranks = cuda.local.array(each, int32)
        classes = cuda.local.array(each, int32)
        run = cuda.local.array(run_scalars, wide)
        states = cuda.local.array(scalars, wide)
        folded = cuda.local.array(results_size, wide)
        some_x, some_w = cuda.local.array(vector, element), cuda.local.array(vector, element)
        some_g, some_y = cuda.local.array(vector, element), cuda.local.array(vector, element)
        made = cuda.local.array(vector, element)
        started = int64(start_number())
        if started < lookers:
            look(started, lookers, ids, rows, span, guard)
            return
        # most blocks begin after a long run was found, and do nothing
        looked = begin_looked(guard)
        if cuda.syncthreads_or(int32(looked >= FOUND)):
            return
        thread, lane, warp, pitch = int32(cuda.threadIdx.x), int32(cuda.laneid), int32(cuda.threadIdx.x >> 5), int32(columns)
        first = (started - lookers) * tile
        count, own = int32(min(tile + reach, rows - first)), int32(min(tile, rows - first))
        w_at = int32((tile + reach) * columns)
        ids_at = int32(w_at * (2 if has_w else 1) * size // id_size)
        begins_at = int32((ids_at + tile + reach) * id_size // 2)
        order_at = int32(begins_at + tile + 1)
        if thread < 32:
            of_length[thread] = int32(0)
        begin_copies(ids, first, count, id_size, staged_ids, ids_at, thread, threads)
        commit_copies()
        begin_copies(x, first * columns, int32(own * pitch), size, staged, 0, thread, threads)
        if has_w:
            begin_copies(w, first * columns, int32(own * pitch), size, staged, w_at, thread, threads)
        # the id before the first row, or any other than that of the first row
        before = ids[first - 1] if first > 0 else index_type(ids[0] ^ index_type(1))
        commit_copies()
        await_ids()
        looked = all_looked(looked, int32(lookers), guard)
        if cuda.syncthreads_or(int32(looked >= FOUND)):
            await_rows()
            return
        # a thread finds the heads among a few neighbouring rows, and a scan tells how many come before those of the tile
        row, heads = int32(thread * each), int32(0)
        if row < count:
            past = before if row == 0 else staged_ids[uint32(ids_at + row - 1)]
            if int32(row + each) <= count:
                for k in range(0, each, wide_ids):
                    load_ids(staged_ids, int32(ids_at + row + k), own_ids, k)
            else:
                for u in range(each):
                    own_ids[u] = staged_ids[uint32(ids_at + min(int32(row + u), int32(count - 1)))]
            heads = heads_among(own_ids, past)
        inside = int32(min(max(int32(own - row), int32(0)), int32(each)))
        listed, behind = int32(heads & int32((1 << inside) - 1)), int32(heads >> inside)
        place, vote = before_lane(int32(cuda.popc(listed))), cuda.ballot_sync(-1, behind != 0)
        if lane == 31:
            warp_runs[warp] = int32(place + cuda.popc(listed))
        if lane == int32(max(int32(cuda.ffs(vote) - 1), int32(0))):
            warp_ends[warp] = int32(row + inside + cuda.ffs(behind) - 1) if vote != 0 else count
        cuda.syncthreads()
        known_runs = warp_runs[lane] if lane < warps else int32(0)
        earlier, end = before_lane(known_runs), warp_ends[lane] if lane < warps else count
        vote = cuda.ballot_sync(-1, end < count)
        place, runs = int32(place + cuda.shfl_sync(-1, earlier, warp)), cuda.shfl_sync(-1, int32(earlier + known_runs), warps - 1)
        end = cuda.shfl_sync(-1, end, int32(max(int32(cuda.ffs(vote) - 1), int32(0))))
        # few rows, for which one warp will do
        if warp == 0:
            begin_copies(x, (first + own) * columns, int32((end - own) * pitch), size, staged, own * pitch, lane, 32)
            if has_w:
                begin_copies(w, (first + own) * columns, int32((end - own) * pitch), size, staged, w_at + own * pitch, lane, 32)
        commit_copies()
        while listed != 0:
            begins[uint32(begins_at + place)] = uint16(row + cuda.ffs(listed) - 1)
            listed, place = int32(listed & (listed - 1)), int32(opaque(place + 1))
        if thread == 0:
            begins[uint32(begins_at + runs)] = uint16(end)
        cuda.syncthreads()
        # runs in the order of their lengths, the longest first: how many there are of each, and how many of them an atomic has counted before
        for k in range(each):
            number, classes[k], ranks[k] = int32(thread + k * threads), int32(0), int32(0)
            if number < runs:
                length = int32(int32(begins[uint32(begins_at + number + 1)]) - int32(begins[uint32(begins_at + number)]))
                classes[k] = int32(31 - min(length, int32(31)))
                ranks[k] = cuda.atomic.add(of_length, classes[k], int32(1))
        cuda.syncthreads()
        longer = before_lane(of_length[lane])
        for k in range(each):
            number = int32(thread + k * threads)
            if int32(number - lane) < runs:
                rank = int32(cuda.shfl_sync(-1, longer, classes[k]) + ranks[k])
                if number < runs:
                    begins[uint32(order_at + rank)] = uint16(number)
        await_rows()
        cuda.syncthreads()
        item, wide_row, most = thread, int32(width), unsigned(segments)
        items = int32(runs * wide_row)
        while item < items:
            rank, distance = half_row_of(item, reciprocal), int32(1)
            column, number = int32(item - rank * wide_row), int32(begins[uint32(order_at + rank)])
            begin = int32(begins[uint32(begins_at + number)])
            if apart:
                # a second column behind the row's end is the first one again
                distance = wide_row if int32(column + wide_row) < pitch else int32(0)
            else:
                column = int32(column * vector)
            length, identifier = int32(begins[uint32(begins_at + number + 1)] - begin), staged_ids[uint32(ids_at + begin)]
            here = first + begin
            # segments have at most as many elements as 32 bits number
            at, place = int32(begin * pitch + column), int32(int32(identifier) * pitch + column)
            known = unsigned(identifier) < most
            if known:
                for v in range(vector):
                    if has_g:
                        some_g[v] = g[place + v * distance]
                    if has_y:
                        some_y[v] = y[place + v * distance]
            if swapped:
                walk(run, staged, staged, int32(w_at + at), at, distance, FAR, pitch, length, here, 0)
            else:
                walk(run, staged, staged, at, int32(w_at + at), distance, FAR, pitch, length, here, 0)
            close_run(run, length, states)
            finish_states(states, length, correction, folded)
            while known and length > 0:
                if has_x:
                    load(staged, at, distance, FAR, some_x, 0)
                if has_w:
                    load(staged, int32(w_at + at), distance, FAR, some_w, 0)
                for v in range(vector):
                    made[v] = element_vjp(some_x, some_w, some_g, some_y, v, folded, folded, 0, here)
                store(staged, at, distance, made)
                at, length, here = int32(at + pitch), int32(opaque(length - 1)), here + 1
            # a run whose id is out of range
            while length > 0:
                for v in range(vector):
                    made[v] = element(0)
                store(staged, at, distance, made)
                at, length = int32(at + pitch), int32(opaque(length - 1))
            item = int32(opaque(item + threads))
        cuda.syncthreads()
        # from the first head on; nothing where no run begins in the tile, since the first head is then the end
        store_rows(staged, int32(begins[uint32(begins_at)] * pitch), int32(end * pitch), output, first * columns, thread)

    return fold_and_broadcast_staged
