"""The ragged fold: each run of equal ids becomes one row."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.order import start_number
from ...device.vector import LOAD_DIRECT, LOAD_ONCE
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import FoldTiles
from ..policy_of import fold_items
from ..tiling import Tiling
from .columns import FAR, columns_loader
from .common import NOTHING, clamp, last_id_of, part_of
from .edges import edge_functions_of
from .gaps import gap_filler, share_blocks, short_gap_fillers
from .lookback import ids_around, run_finisher_of
from .states import heads_behind, run_states_of
from .sums import open_run_of


@functools.cache
def tile_folder_of(
    monoid: str, value: str, result: str, index: str, vector: int, lanes: int, packed: bool, row_index: str, input_positions: bool, fills: bool,
    apart: bool, dims: int, looks_back: bool, threads_per_block: int, items_per_thread: int,
) -> Any:  # fmt: skip
    """``fold_tile(block, input, other, …)``: what a block of :func:`fold_tiles` does, the ``block``-th of those that have rows."""
    element, index_type, permuted = jit.SCALARS[value], jit.SCALARS[index], row_index != ""
    distance, width = (lanes, 1) if apart else (0, vector)
    fold, properties = run_states_of(monoid, value, vector, result, apart=distance), monoid_of(monoid)
    store_result, scalars, state_type = fold.store_result, fold.scalars, fold.state_type
    open_run = open_run_of(monoid, value, vector, result, apart=distance)
    begin_run, recentre, close_run, run_scalars = open_run.begin, open_run.recentre, open_run.close, open_run.scalars
    groups = threads_per_block // lanes
    save_edge, save_last_edge, combine_edges = edge_functions_of(monoid, value, vector, result, apart=distance)
    finish_runs = run_finisher_of(monoid, value, vector, result, apart=distance)
    fill_short_gap, fill_between = short_gap_fillers(index, result, vector, fold.store_vector, distance, fills)
    offset_of = strided_offset_of(dims, contiguous=vector > 1)
    last_id = last_id_of(index)
    index_vector = BY_NAME[index].vector
    # rows from all over the input would evict ids from L1
    load_piece = (LOAD_DIRECT if permuted else LOAD_ONCE)[width]
    load = columns_loader(load_piece, width, vector, distance)
    # where rows follow one another without a gap, columns behind the end of each but the last row are those of the next one
    reaches = apart and not permuted
    load_inside = columns_loader(load_piece, width, vector, distance, inside=reaches)
    row_index_type, row_index_vector = jit.SCALARS[row_index or "i64"], BY_NAME[row_index or "i64"].vector
    load_ids, load_row_indices = LOAD_ONCE[index_vector], LOAD_ONCE[row_index_vector]
    unroll = items_per_thread or fold_items(vector * BY_NAME[value].itemsize, BY_NAME[index].itemsize, vector, properties, apart)
    append_rows, whole = open_run.append_batch(unroll, input_positions), (1 << unroll) - 1
    heads_among = heads_behind(unroll)
    edges, batch_size = 2 * groups, unroll * vector
    # with heavy states of one column the compiler would not unroll the loop over a whole batch, and would leave the batch in memory
    whole_batches = not (properties.heavy and vector == 1)
    paired, others_size = properties.pairs, batch_size if properties.pairs else 1
    shared_states = edges * lanes * scalars

    @jit.device
    def fold_tile(
        block: Any, input: Any, other: Any, ids: Any, permutation: Any, output: Any, carry_ids: Any, carry_counts: Any, carry_states: Any,
        run_status: Any, rows: Any, columns: Any, segments: Any, tile: Any, row_blocks: Any, early: Any, chunks: Any, empty: Any, correction: Any,
        ids_step: Any, input_row: Any, other_row: Any, output_row: Any, shape: Any, input_strides: Any, other_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        edge_ids = cuda.shared.array(edges, int64)
        edge_counts = cuda.shared.array(edges, int64)
        edge_states = cuda.shared.array(shared_states, state_type)
        run = cuda.local.array(run_scalars, state_type)
        states = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        others = cuda.local.array(others_size, element)
        batch_ids = cuda.local.array(unroll, index_type)
        row_indices = cuda.local.array(unroll, row_index_type)
        row_block = int64(uint32(block) // uint32(chunks))
        chunk = block - row_block * chunks
        row_block = part_of(row_block, row_blocks, early)
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        lane = int32(cuda.threadIdx.x - group * lanes)
        column = chunk * (lanes * vector) + lane * width
        left = int32(min(columns - column, FAR))
        input_offset = offset_of(column, shape, input_strides)
        other_offset = offset_of(column, shape, other_strides) if paired else int64(0)
        output_offset = offset_of(column, shape, output_strides)
        last = index_type(opaque(last_id(segments)))
        id_before, id_after = int64(NOTHING), int64(NOTHING)
        if column < columns and group < groups:
            first = (row_block * groups + group) * tile
            begin_run(run, first)
            length = int32(max(min(tile, rows - first), 0))
            leading, inner = int32(2 * group), length
            if reaches:
                gapless = input_row == columns and (not paired or other_row == columns)
                inner = int32(min(length, rows - first - 1)) if gapless else int32(0)
            current, begun, edge = index_type(-1), int32(0), leading
            if length > 0:
                current = ids[first * ids_step]
                before = clamp(ids[(first - 1) * ids_step], segments) if first > 0 else int64(-1)
                fill_short_gap(output, before, clamp(current, segments), output_row, output_offset, left, empty)
                if input_positions:
                    begin_run(run, int64(permutation[first]))
            tile_row = int32(0)
            while tile_row < length:
                if packed and int32(tile_row + unroll) <= inner:
                    for k in range(unroll // index_vector):
                        load_ids(ids, first + tile_row + k * index_vector, batch_ids, k * index_vector)
                    if permuted:
                        for k in range(0, unroll, row_index_vector):
                            load_row_indices(permutation, first + tile_row + k, row_indices, k)
                    for u in range(unroll):
                        source = int64(row_indices[u]) if permuted else first + tile_row + u
                        load_inside(input, source * input_row + input_offset, batch, u * vector, left)
                        if paired:
                            load_inside(other, source * other_row + other_offset, others, u * vector, left)
                else:
                    # behind the end the last row is loaded again, so that no load waits for a branch and no run seems to begin there
                    row, ahead = first + tile_row, int32(length - 1 - tile_row)
                    id_at, at, other_at = row * ids_step, row * input_row + input_offset, row * other_row + other_offset
                    for u in range(unroll):
                        if 0 < u <= ahead:
                            row, id_at, at, other_at = row + 1, id_at + ids_step, at + input_row, other_at + other_row
                        batch_ids[u] = ids[id_at]
                        if input_positions:
                            row_indices[u] = permutation[row]
                        if permuted:
                            source = int64(permutation[row])
                            at, other_at = source * input_row + input_offset, source * other_row + other_offset
                        load(input, at, batch, u * vector, left)
                        if paired:
                            load(other, other_at, others, u * vector, left)
                # ids ascend
                heads = heads_among(batch_ids, current) if batch_ids[unroll - 1] != current else int32(0)
                valid = min(int32(unroll), int32(length - tile_row))
                folded = int32(tile_row - begun)
                past = int32(folded - unroll)
                if past >= 0 and int32(folded ^ past) > past:
                    recentre(run, folded)
                if whole_batches and heads == 0 and valid == unroll:
                    append_rows(run, batch, others, row_indices, first + tile_row, 1, whole, folded)
                else:
                    # one bit for the row that comes next, and the bit behind the last row
                    bit, stop = int32(1), int32(1 << valid)
                    while bit != stop:
                        begin = cuda.popc(int32(bit - 1))
                        if heads & bit:
                            following = ids[first + tile_row + begin if packed else (first + tile_row + begin) * ids_step]
                            if permuted:
                                # L1 has lost the id; a mask selects it, since a branch on u = begin would index registers by begin
                                following = index_type(0)
                                for u in range(unroll):
                                    following |= batch_ids[u] & -index_type(u == begin)
                            if input_positions:
                                source = int64(0)
                                for u in range(unroll):
                                    source |= int64(row_indices[u]) & -int64(u == begin)
                            count = int32(tile_row + begin - begun)
                            close_run(run, count, states)
                            if edge == leading:
                                save_edge(edge_ids, edge_counts, edge_states, edge, 0, lanes, lane, clamp(current, segments), count, states)
                                edge = int32(edge + 1)
                            elif 0 <= current <= last:
                                store_result(output, int64(current) * output_row + output_offset, left, states, count, correction)
                            fill_between(output, current, following, last, output_row, output_offset, left, empty)
                            current, begun = following, int32(tile_row + begin)
                            begin_run(run, source if input_positions else first + begun)
                            heads = int32(heads ^ bit)
                        following_bit = int32(heads & -heads) if heads != 0 else stop
                        inside = int32(following_bit - bit)
                        append_rows(run, batch, others, row_indices, first + tile_row, 1, inside, int32(tile_row + begin - begun))
                        bit = int32(opaque(following_bit))
                tile_row = int32(tile_row + unroll)
            if looks_back and group == 0:
                id_before, id_after = ids_around(ids, ids_step, row_block, groups * tile, rows, segments)
            segment = clamp(current, segments)
            if length > 0 and first + length == rows:
                fill_short_gap(output, segment, segments, output_row, output_offset, left, empty)
            close_run(run, length - begun, states)
            save_last_edge(edge_ids, edge_counts, edge_states, edge, leading, 0, lanes, lane, segment, length - begun, states)
        cuda.syncthreads()
        edges_there = int32(uint32(cuda.blockDim.x) // uint32(lanes)) << 1
        if looks_back and group == 0 and column < columns:
            finish_runs(
                edge_ids, edge_counts, edge_states, run_status, states, edges_there, 0, lanes, lane, id_before, id_after,
                chunk * lanes + lane, chunks * lanes, columns - column, segments, row_block, row_blocks,
                output, output_row, output_offset, correction,
            )  # fmt: skip
        elif group == 0 and column < columns:
            combine_edges(
                edge_ids, edge_counts, edge_states, carry_ids, carry_counts, carry_states, states, edges_there, 0, lanes, lane,
                column, columns, segments, row_block, row_blocks, output, output_row, output_offset, correction,
            )  # fmt: skip

    return fold_tile


@jit.kernel
def fold_tiles(
    *, monoid: str, value: str, result: str, index: str, vector: int, lanes: int, packed: bool, row_index: str, input_positions: bool, fills: bool,
    guarded: bool, apart: bool, dims: int, looks_back: bool = False, threads_per_block: int = FoldTiles.threads_per_block, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Folds runs of ids in order: ``output[s] = finish(⊕ lift(input[r]))`` over the rows r with id s.

    A group of ``lanes`` lanes walks its tile of rows, each lane its own ``vector`` columns. A run that begins and ends inside the tile is stored at
    once. The first and the last run of each tile, its edges, are saved in shared memory, where the block's first group combines them in order. The
    first and the last run of the block become carries, which :func:`fold_carries` combines; or the block looks back: it publishes a status of its
    last run, and where its first run ends, combines it with the statuses of the blocks that have the rest. So shapes, tile and ids fix the order of
    every fold. Ids that are not in order never lead outside the arrays. Bytes: rows · (columns · value + index) read, segments · columns · result
    written. Method: tiles with carry-out, as in Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication" (SC 2016), and their
    "Single-pass parallel prefix scan with decoupled look-back" (2016).

    Blocks that start first have the last ``early`` parts of the rows: see :func:`~.common.part_of` and :func:`~..statuses.early_blocks`. All others
    wait only for blocks that started before them.

    Constants and parameters as :mod:`.` lists them, and

    * ``items_per_thread``: 0 stands for the 4 to 16 rows of the tuning policy
    * ``fills``: whether empty segments get ``empty``. The lane that meets a gap of up to ``GAP`` segments fills it; blocks beyond
      ``row_blocks`` · ``chunks`` fill longer ones
    * ``apart``: whether the columns of a lane are ``lanes`` columns apart, and single accesses; then columns are contiguous
    * ``input_positions``: whether the position of row r is ``permutation[r]``; else it is r
    * ``other`` [rows, columns]: the second elements of a monoid of pairs, else any address; ``other_row``: elements from one of its rows to the next;
      ``other_strides`` [dims]: strides of its trailing axes
    """
    fold_tile = tile_folder_of(
        monoid, value, result, index, vector, lanes, packed, row_index, input_positions, fills, apart, dims, looks_back, threads_per_block,
        items_per_thread,
    )  # fmt: skip
    store_vector = run_states_of(monoid, value, vector, result, apart=lanes if apart else 0).store_vector
    fill_long_gaps = gap_filler(result, 1 if apart else vector, dims, threads_per_block, store_vector)
    state_type = accumulator_type(value)

    def fold_tiles(
        input: Ptr[value], other: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], guard: Ptr[int32], output: Ptr[result],
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], run_status: Ptr[int64],
        rows: int64, columns: int64, segments: int64, tile: int64, row_blocks: int64, early: int64, chunks: int64,
        empty: Scalar[accumulator_type(result)], correction: Scalar[state_type],
        ids_step: int64, input_row: int64, other_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], other_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        looks, block = share_blocks(row_blocks * chunks, start_number() if looks_back else cuda.blockIdx.x)
        if guarded and guard[0] == 0:
            return
        if fills and looks:
            fill_long_gaps(ids, ids_step, output, rows, columns, segments, block, output_row, shape, output_strides, empty)
            return
        fold_tile(
            block, input, other, ids, permutation, output, carry_ids, carry_counts, carry_states, run_status, rows, columns, segments, tile,
            row_blocks, early, chunks, empty, correction, ids_step, input_row, other_row, output_row, shape, input_strides, other_strides,
            output_strides,
        )  # fmt: skip

    def launch_config(rows: int, columns: int, segments: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, tile, threads_per_block).fold_launch(segments)

    return fold_tiles, launch_config
