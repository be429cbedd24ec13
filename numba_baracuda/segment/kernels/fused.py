"""Gradients of folds, and softmax, of short segments in one launch: a group of threads folds a segment, and stores what becomes of its rows."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, STORE_STREAM
from ...kernels.batch import state_accessors
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldAndBroadcast
from ..tiling import THREADS, Tiling
from .columns import FAR, columns_loader, columns_storer
from .states import run_states_of
from .sums import open_run_of
from .vjp import vjp_parts_of


@jit.kernel
def fold_and_broadcast_runs(
    *, gradient: str, value: str, index: str, vector: int, lanes: int, apart: bool,
    threads_per_block: int = FoldAndBroadcast.threads_per_block, items_per_thread: int = FoldAndBroadcast.items_per_thread,
) -> Any:  # fmt: skip
    """What :func:`broadcast_to_rows` stores after a fold by :func:`fold_tiles`, for short segments of ids in order, in one launch.

    A group of ``lanes`` lanes takes the runs that begin among the ``tile`` rows of its tile, each lane its own ``vector`` columns. It loads
    ``items_per_thread`` rows from the first row of a run on, folds the runs that end among them, and stores their results from registers. The rows
    behind them are loaded again, from L1. A run that is longer is read twice, the second time from the caches. Does nothing where ``guard[0]`` is not
    0: :func:`find_long_run` has found a run for which a group alone would take too long. Bytes: rows · (columns · value of each operand + index)
    read, and rows · columns · value written.

    Constants and parameters as :mod:`.` lists them, and ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`, all contiguous, as are ids;
    ``apart`` as in :func:`fold_tiles`.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, unroll, state = GRADIENTS[gradient], items_per_thread, BY_NAME[value].accumulator
    distance, width = (lanes, 1) if apart else (0, vector)
    fold, open_run = run_states_of(grad.fold, value, vector, state, apart=distance), open_run_of(grad.fold, value, vector, state, apart=distance)
    begin_run, append_rows, recentre, close_run = open_run.begin, open_run.append_batch(unroll, False), open_run.recentre, open_run.close
    finish_states, (prepare, apply), groups, whole = fold.finish_states, vjp_parts_of(gradient, value), threads_per_block // lanes, (1 << unroll) - 1
    (get, put), results, given_size = state_accessors(4), grad.results, 4 * vector
    load, load_inside = (columns_loader(LOAD_ONCE[width], width, vector, distance, inside=each) for each in (False, True))
    store, load_id = columns_storer(STORE_STREAM[width], width, vector, distance), LOAD_ONCE[1]
    has_w, has_g, has_y = len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    swapped = grad.over[0] != grad.rows[0]
    scalars, run_scalars, batch_size, results_size = fold.scalars, open_run.scalars, unroll * vector, vector * grad.results
    w_size = batch_size if has_w else 1

    @jit.device
    def load_rows(
        x: Any, w: Any, ids: Any, row: Any, last: Any, columns: Any, column: Any, left: Any, batch_x: Any, batch_w: Any, batch_ids: Any
    ) -> None:
        """Loads rows from ``row`` on and their ids, the ``last`` one again behind it."""
        at, ahead = row * columns + column, last - row
        if ahead >= unroll:
            for u in range(unroll):
                load_id(ids, row + u, batch_ids, u)
                load_inside(x, at + u * columns, batch_x, u * vector, left)
                if has_w:
                    load_inside(w, at + u * columns, batch_w, u * vector, left)
        else:
            row, at = min(row, last), min(at, last * columns + column)
            for u in range(unroll):
                load_id(ids, row, batch_ids, u)
                load(x, at, batch_x, u * vector, left)
                if has_w:
                    load(w, at, batch_w, u * vector, left)
                if u < ahead:
                    row, at = row + 1, at + columns

    @jit.device
    def append(run: Any, batch_x: Any, batch_w: Any, row: Any, inside: Any, count: Any) -> None:
        unused = cuda.local.array(1, int32)
        if swapped:
            append_rows(run, batch_w, batch_x, unused, row, inside, count)
        else:
            append_rows(run, batch_x, batch_w, unused, row, inside, count)

    @jit.device
    def store_rows(
        batch_x: Any, batch_w: Any, given: Any, output: Any, known: Any, inside: Any, row: Any, columns: Any, column: Any, left: Any
    ) -> None:  # fmt: skip
        """Stores what becomes of the rows of a batch whose bits are set in ``inside``."""
        row_x, row_w, at = cuda.local.array(vector, element), cuda.local.array(vector, element), row * columns + column
        for u in range(unroll):
            if inside >> u & 1:
                for v in range(vector):
                    row_x[v] = batch_x[u * vector + v]
                    if has_w:
                        row_w[v] = batch_w[u * vector + v]
                    row_x[v] = apply(row_x, row_w, v, row, get(given, 4 * v, 1)) if known else element(0)
                store(output, at, row_x, 0, left)
            at += columns

    @jit.device
    def same_rows(batch_ids: Any, row: Any, last: Any, identifier: Any) -> Any:
        """A bit for each row of a batch that has this id."""
        same, ahead = int32(0), int32(min(last - row, int64(unroll)))
        for u in range(unroll):
            if batch_ids[u] == identifier and u <= ahead:
                same = int32(same | 1 << u)
        return same

    @jit.device
    def heads_of(batch_ids: Any, row: Any, last: Any) -> Any:
        """A bit for each row of a batch but the first that begins a run, and for each behind the ``last`` row."""
        ahead = int32(min(last - row, int64(unroll)))
        heads = int32(-2 << ahead & (2 << unroll) - 1)
        for u in range(1, unroll):
            if batch_ids[u] != batch_ids[u - 1]:
                heads = int32(heads | 1 << u)
        return heads

    @jit.device
    def results_of(
        run: Any, length: Any, identifier: Any, segments: Any, columns: Any, column: Any, left: Any, correction: Any, g: Any, y: Any, given: Any
    ) -> Any:  # fmt: skip
        """Finishes a run, and makes what its rows are given, of that and of what its segment has; whether it has a segment."""
        states, folded = cuda.local.array(scalars, wide), cuda.local.array(results_size, wide)
        batch_g, batch_y = cuda.local.array(vector, element), cuda.local.array(vector, element)
        known, place = 0 <= identifier < segments, int64(identifier) * columns + column
        close_run(run, length, states)
        finish_states(states, length, correction, folded)
        if known:
            if has_g:
                load(g, place, batch_g, 0, left)
            if has_y:
                load(y, place, batch_y, 0, left)
            for v in range(vector):
                q = folded[v * results + 1] if results > 1 else wide(0)
                put(given, 4 * v, 1, prepare(batch_g, batch_y, v, folded[v * results], q))
        return known

    def fold_and_broadcast_runs(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, chunks: int64, correction: Scalar[wide],
    ) -> None:  # fmt: skip
        batch_x, batch_w, batch_ids = cuda.local.array(batch_size, element), cuda.local.array(w_size, element), cuda.local.array(unroll, index_type)
        run, given = cuda.local.array(run_scalars, wide), cuda.local.array(given_size, wide)
        if guard[0] != 0:
            return
        row_block = int64(uint32(cuda.blockIdx.x) // uint32(chunks))
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        lane = int32(cuda.threadIdx.x - group * lanes)
        column = (cuda.blockIdx.x - row_block * chunks) * (lanes * vector) + lane * width
        left, last, row = int32(min(columns - column, FAR)), rows - 1, (row_block * groups + group) * tile
        stop = min(row + tile, rows) if column < columns and group < groups else int64(0)
        if 0 < row < stop:
            before = ids[row - 1]
            while row < stop and ids[row] == before:
                row = opaque(row + 1)
        while row < stop:
            load_rows(x, w, ids, row, last, columns, column, left, batch_x, batch_w, batch_ids)
            heads, begin = heads_of(batch_ids, row, last), int32(0)
            while heads != 0 and row + begin < stop:
                end, identifier = int32(cuda.ffs(heads) - 1), ids[row + begin]
                inside = int32((1 << end) - (1 << begin))
                begin_run(run, row + begin)
                append(run, batch_x, batch_w, row, inside, int32(0))
                known = results_of(run, end - begin, identifier, segments, columns, column, left, correction, g, y, given)
                store_rows(batch_x, batch_w, given, output, known, inside, row, columns, column, left)
                heads, begin = int32(heads & (heads - 1)), int32(opaque(end))
            if begin == 0:
                length, inside, identifier = int32(0), int32(whole), batch_ids[0]
                begin_run(run, row)
                while inside == whole:
                    load_rows(x, w, ids, row + length, last, columns, column, left, batch_x, batch_w, batch_ids)
                    inside = same_rows(batch_ids, row + length, last, identifier)
                    if length >= unroll and length ^ (length - unroll) > length - unroll:
                        recentre(run, length)
                    if inside != 0:
                        append(run, batch_x, batch_w, row + length, inside, length)
                    length = int32(opaque(length + cuda.popc(inside)))
                known = results_of(run, length, identifier, segments, columns, column, left, correction, g, y, given)
                while begin < length:
                    load_rows(x, w, ids, row + begin, last, columns, column, left, batch_x, batch_w, batch_ids)
                    inside = same_rows(batch_ids, row + begin, last, identifier)
                    store_rows(batch_x, batch_w, given, output, known, inside, row + begin, columns, column, left)
                    begin = int32(opaque(begin + unroll))
                begin = length
            row = opaque(row + begin)

    return fold_and_broadcast_runs


@jit.kernel
def find_long_run(*, index: str) -> Any:
    """``guard[0] = 1`` if two neighbouring multiples of ``span`` have the same of ids in order, so that its run has more than ``span`` rows.

    Runs of 2 · ``span`` rows are always found. Bytes: a sector for each ``span`` rows read.

    Constants and parameters as :mod:`.` lists them; a thread for every ``span`` rows.
    """

    def find_long_run(
        ids: Ptr[index], guard: Ptr[int32],
        rows: int64, span: int64, ids_step: int64,
    ) -> None:  # fmt: skip
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * span
        if first + span < rows and ids[first * ids_step] == ids[(first + span) * ids_step]:
            red_max(guard, 0, int32(1))

    return find_long_run, lambda rows, span: Tiling.of_ids(ceil_div(rows, span)).launch
