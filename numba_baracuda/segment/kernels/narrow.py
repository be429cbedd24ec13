"""The ragged fold for rows of few columns: the lanes of a warp share the rows."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.order import start_number
from ...device.vector import LOAD_ONCE, STORE_STREAM
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldNarrow
from ..tiling import Tiling
from .common import clamp, lane_ids_loader_of, last_id_of, part_of
from .edges import edge_functions_of, tile_end_of
from .gaps import gap_filler, share_blocks, short_gap_fillers
from .states import heads_of, lane_scan, run_states_of, states_below
from .sums import open_run_of


@jit.kernel
def fold_narrow(
    *, monoid: str, value: str, result: str, index: str, columns: int, share: int, store_vector: int, fills: bool, guarded: bool, clears: bool,
    looks_back: bool = False, threads_per_block: int = FoldNarrow.threads_per_block,
) -> Any:  # fmt: skip
    """Folds runs of ids in order, as :func:`fold_tiles` does, where rows are short and contiguous.

    A warp walks its tile, 32 · ``share`` rows at a time. It loads no ids if the first and the last row of the tile have the same. A lane loads
    ``share`` neighbouring rows by 16-byte loads and folds those from its last head on; a head is a row whose id differs from the one before. A
    segmented scan over the warp then gives each lane the state of its first run so far, and each lane stores the runs that end among its rows. Gaps,
    edges, carries and statuses are those of :func:`fold_tiles`. Shapes and tile fix the order of every fold: rows of a lane, lanes in the tree of the
    scan, steps. Bytes: rows · (columns · value + index) read, segments · columns · result written. Method: segmented scan as in Sengupta, Harris,
    Zhang and Owens, "Scan primitives for GPU computing" (Graphics Hardware 2007).

    Constants and parameters as :mod:`.` lists them, but ``columns`` is a constant; and

    * ``share``: rows of a lane in each step; ``store_vector``: elements of a store to ``output``
    * ``fills``: whether empty segments get ``empty``
    * ``clears``: whether the kernel sets ``cleared`` [rows, columns], which is contiguous, to 0; else ``cleared`` is any address
    * ``other`` [rows, columns]: the second elements of a monoid of pairs, contiguous, which are read as those of ``input``; else any address
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    fold = run_states_of(monoid, value, columns, result, store_vector)
    begin_run = fold.begin_run
    store_result, scalars, state_type = fold.store_result, fold.scalars, fold.state_type
    scan, fetch_below = lane_scan(fold), states_below(scalars)
    open_run = open_run_of(monoid, value, columns, result, store_vector=store_vector)
    begin_rows, append_row, close_run, run_scalars = open_run.begin, open_run.append, open_run.close, open_run.scalars
    resume, join = open_run.resume, open_run.join
    save_edge, _, _ = edge_functions_of(monoid, value, columns, result, store_vector)
    end_tiles, heads_among = tile_end_of(monoid, value, columns, result, store_vector, fills, looks_back), heads_of(share)
    fill_short_gap, fill_between = short_gap_fillers(index, result, columns, store_vector, fills=fills, many=True)
    fill_long_gaps = gap_filler(result, store_vector, 1, threads_per_block, many=True)
    last_id = last_id_of(index)
    wide, load_ids = BY_NAME[value].vector, lane_ids_loader_of(index, share)
    load, store = LOAD_ONCE[wide], STORE_STREAM[wide]
    warps, batch_size, step = threads_per_block // 32, share * columns, 32 * share
    paired = monoid_of(monoid).pairs
    others_size = batch_size if paired else 1
    edges = 2 * warps
    shared_states = edges * scalars

    def fold_narrow(
        input: Ptr[value], other: Ptr[value], ids: Ptr[index], guard: Ptr[int32], cleared: Ptr[value], output: Ptr[result],
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], run_status: Ptr[int64],
        rows: int64, segments: int64, tile: int64, row_blocks: int64, early: int64, empty: Scalar[accumulator_type(result)],
        correction: Scalar[state_type], output_row: int64,
    ) -> None:  # fmt: skip
        edge_ids = cuda.shared.array(edges, int64)
        edge_counts = cuda.shared.array(edges, int64)
        edge_states = cuda.shared.array(shared_states, state_type)
        open_states = cuda.local.array(scalars, state_type)
        states = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        run = cuda.local.array(run_scalars, state_type)
        ended_states = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        others = cuda.local.array(others_size, element)
        batch_ids = cuda.local.array(share, index_type)
        zeros = cuda.local.array(wide, element)
        looks, block = share_blocks(row_blocks, start_number() if looks_back else cuda.blockIdx.x)
        if guarded and guard[0] == 0:
            return
        if fills and looks:
            fill_long_gaps(ids, 1, output, rows, columns, segments, block, output_row, (columns,), (1,), empty)
            return
        block = part_of(block, row_blocks, early)
        warp, lane = int32(cuda.threadIdx.x >> 5), int32(cuda.laneid)
        below = int32((1 << lane) - 1)
        first = (block * warps + warp) * tile
        length = int32(max(min(tile, rows - first), 0))
        # the run that is open between steps, the same in all lanes: id, first row, states
        leading, last = int32(2 * warp), last_id(segments)
        current, begun, edge = index_type(-1), int32(0), leading
        begin_run(open_states, first)
        for k in range(wide):
            zeros[k] = element(0)
        alike = False
        if length > 0:
            current = ids[first]
            # if one run has all rows, no other ids are loaded
            alike = ids[first + length - 1] == current
            before = clamp(ids[first - 1], segments) if first > 0 else int64(-1)
            if lane == 0:
                fill_short_gap(output, before, clamp(current, segments), output_row, 0, columns, empty)
        position = int32(0)
        while position < length:
            mine = int32(position + lane * share)
            if position + step <= length:
                load_ids(ids, first, mine, alike, current, batch_ids)
                for k in range(batch_size // wide):
                    load(input, (first + mine) * columns + k * wide, batch, k * wide)
                    if paired:
                        load(other, (first + mine) * columns + k * wide, others, k * wide)
                if clears:
                    for k in range(batch_size // wide):
                        store(cleared, (first + position) * columns + (32 * k + lane) * wide, zeros, 0)
            else:
                # behind the end the last row is loaded again, so that no run seems to begin there
                for u in range(share):
                    row = first + min(mine + u, length - 1)
                    batch_ids[u] = ids[row]
                    for v in range(columns):
                        batch[u * columns + v] = input[row * columns + v]
                        if paired:
                            others[u * columns + v] = other[row * columns + v]
                        if clears and mine + u < length:
                            cleared[row * columns + v] = element(0)
            valid = int32(min(max(length - mine, 0), share))
            heads, opening = heads_among(batch_ids, current), int32(-1)
            begin_rows(run, first + mine)
            if lane == 0:
                resume(run, open_states)
            for u in range(share):
                if int32(heads >> u) & 1:
                    begin_rows(run, first + mine + u)
                    opening = int32(u)
                if u < valid:
                    append_row(run, batch, others, u * columns, first + mine + u, u - max(opening, 0))
            close_run(run, valid - max(opening, 0), states)
            if lane == 0 and opening < 0:
                join(states, open_states)
            headed = cuda.ballot_sync(-1, heads != 0)
            scan(states, scratch, max(31 - cuda.clz(int32(headed & (below | 1 << lane))), 0))
            if headed != 0:
                source = 31 - cuda.clz(int32(headed & below))
                opened = cuda.shfl_sync(-1, mine + opening, max(source, 0))
                if source < 0:
                    opened = begun
                fetch_below(states, open_states, scratch)
                rest, begin, leads = heads, int32(0), edge == leading and source < 0
                while rest != 0:
                    head = int32(cuda.ffs(rest) - 1)
                    rest = int32(rest & (rest - 1))
                    begin_rows(run, first + mine + begin)
                    resume(run, scratch)
                    for u in range(share):
                        if begin <= u < head:
                            append_row(run, batch, others, u * columns, first + mine + u, u - begin)
                    close_run(run, head - begin, ended_states)
                    join(ended_states, scratch)
                    row = first + mine + head
                    ended, following, count = ids[row - 1], ids[row], int32(mine + head - opened)
                    if leads:
                        save_edge(edge_ids, edge_counts, edge_states, edge, 0, 1, 0, clamp(ended, segments), count, ended_states)
                    elif 0 <= ended <= last:
                        store_result(output, int64(ended) * output_row, columns, ended_states, count, correction)
                    fill_between(output, ended, following, last, output_row, 0, columns, empty)
                    begin_run(scratch, row)
                    opened, begin, leads = int32(mine + head), int32(opaque(head)), False
                edge = int32(leading + 1)
                begun = cuda.shfl_sync(-1, mine + opening, 31 - cuda.clz(headed))
                current = cuda.shfl_sync(-1, batch_ids[share - 1], 31)
            for k in range(scalars):
                open_states[k] = cuda.shfl_sync(-1, states[k], 31)
            position = int32(opaque(position + step))
        end_tiles(
            edge_ids, edge_counts, edge_states, carry_ids, carry_counts, carry_states, run_status, open_states, edge, current, begun,
            ids, first, length, tile, rows, segments, block, row_blocks, output, output_row, empty, correction,
        )  # fmt: skip

    def launch_config(rows: int, segments: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, 32, 1, tile, threads_per_block).fold_launch(segments)

    return fold_narrow, launch_config
