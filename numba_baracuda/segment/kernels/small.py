"""Gradients of folds, and softmax, of small problems in one launch: blocks that start later wait for those that fold."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.dtypes import BY_NAME
from ...device.order import fetch_add_acq_rel, load_acquire, start_number
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..flat_tiling import flat_launch, rows_met
from ..policy import BroadcastFlat, FoldTiles
from .flat import flat_broadcaster_of
from .fold import tile_folder_of


@jit.kernel
def fold_then_broadcast(
    *, monoid: str, value: str, index: str, vector: int, lanes: int, packed: bool, guarded: bool, apart: bool, dims: int, looks_back: bool,
    gradient: str, piece: int, unit: int, span: int, pieces: int, threads_per_block: int = FoldTiles.threads_per_block, items_per_thread: int = 0,
    ids_per_thread: int = BroadcastFlat.ids_per_thread,
) -> Any:  # fmt: skip
    """:func:`fold_tiles`, and then :func:`broadcast_flat` of what it has folded, in one launch.

    The first blocks that start, as many as ``row_blocks`` · ``chunks``, fold, and count themselves when they are done. All others wait until all of
    these are; they run or have run, so the launch ends however few blocks fit the device. Bytes: those of both, but the rows are read from the level
    2 cache the second time, which holds a small problem.

    Constants and parameters as :mod:`.` lists them; ``apart``, ``other``, ``other_row`` and ``other_strides`` as :func:`fold_tiles` has them;
    ``unit``, ``span``, ``ids_per_thread``, ``x``, ``w``, ``g``, ``y``, ``tile_rows`` and ``reciprocal`` as :func:`broadcast_flat`; and

    * ``piece``: the ``vector`` of the latter; ``pieces``: its ``items_per_thread``
    * ``folded`` [segments, columns, results of the gradient's fold]: where the results of the fold are in between
    * ``counter``: the word of ``run_status`` that counts, zero before the launch, behind the statuses
    * ``flat_tile``: the ``tile`` of :func:`broadcast_flat`
    """
    wide, state = accumulator_type(value), BY_NAME[value].accumulator
    fold_tile = tile_folder_of(
        monoid, value, state, index, vector, lanes, packed, "", False, False, apart, dims, looks_back, threads_per_block, items_per_thread
    )  # fmt: skip
    broadcast_tile = flat_broadcaster_of(gradient, value, index, False, piece, unit, span, pieces, threads_per_block, ids_per_thread, new=True)

    def fold_then_broadcast(
        input: Ptr[value], other: Ptr[value], x: Ptr[value], w: Ptr[value], ids: Ptr[index], g: Ptr[value], y: Ptr[value], guard: Ptr[int32],
        run_status: Ptr[int64], folded: Ptr[wide], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, row_blocks: int64, early: int64, chunks: int64, correction: Scalar[wide],
        ids_step: int64, input_row: int64, other_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], other_strides: Extents[dims], output_strides: Extents[dims],
        counter: int64, flat_tile: int64, tile_rows: int64, reciprocal: int64,
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        number, folding = int64(start_number()), row_blocks * chunks
        if number < folding:
            fold_tile(
                number, input, other, ids, ids, folded, run_status, run_status, folded, run_status, rows, columns, segments, tile, row_blocks,
                early, chunks, wide(0), correction, ids_step, input_row, other_row, output_row, shape, input_strides, other_strides, output_strides,
            )  # fmt: skip
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                fetch_add_acq_rel(run_status, counter, int64(1))
        else:
            if cuda.threadIdx.x == 0:
                while load_acquire(run_status, counter) != folding:
                    pass
            # all threads wait for the first one at the barrier that comes before they read what was folded
            broadcast_tile(
                number - folding, int64(cuda.gridDim.x) - folding, x, w, ids, ids, g, y, folded, output, rows, columns, segments, flat_tile,
                tile_rows, reciprocal,
            )  # fmt: skip

    def launch_config(rows: int, columns: int, tile: int, row_blocks: int, chunks: int) -> tuple[int, int, int]:
        blocks, threads, shared = flat_launch(rows * columns, tile, rows_met(tile, columns), threads_per_block, ids_per_thread)
        return row_blocks * chunks + blocks, threads, shared

    return fold_then_broadcast, launch_config
