"""The ragged fold for rows of few columns that a permutation orders, or of which many runs end: the lanes of a warp share rows and runs."""

from typing import Any

from numba import cuda
from numba.cuda.types import int16, int32, int64

from ...algebra import SUM, monoid_of
from ...core.dtypes import BY_NAME
from ...device.build import opaque, pointer_at
from ...device.order import start_number
from ...device.vector import LOAD_DIRECT, LOAD_ONCE, LOAD_SHARED, STORE_SHARED, STORE_STREAM
from ...device.warp import warp_scan
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldShortRuns
from ..tiling import GAP, Tiling
from .common import clamp, lane_ids_loader_of, last_id_of, part_of
from .edges import edge_functions_of, tile_end_of
from .gaps import flat_gap_filler, gap_filler, share_blocks, short_gap_fillers
from .states import elements_storer, heads_of, lane_scan, run_states_of, states_below
from .sums import open_run_of


@jit.device
def place_of(number: Any) -> Any:
    """Where the run ``number`` that ends in a step lies among those of its warp, with an element left out after every 32."""
    return int32(number + (int32(number) >> 5))


@jit.kernel
def fold_short_runs(
    *, monoid: str, value: str, result: str, index: str, columns: int, share: int, vector: int, row_index: str, input_positions: bool,
    store_vector: int, fills: bool, guarded: bool, clears: bool, looks_back: bool = False, fill_vector: int = 0, longest_gap: int = GAP,
    threads_per_block: int = FoldShortRuns.threads_per_block,
) -> Any:  # fmt: skip
    """Folds runs of ids in order, as :func:`fold_tiles` does, where rows are short, and permuted or in short runs.

    A warp walks its tile, 32 · ``share`` rows at a time. It loads no ids if the first and the last row of the tile have the same. A lane loads
    ``share`` neighbouring rows, contiguous ones by 16-byte loads, and folds them from each of its heads on; a head is a row whose id differs from the
    one before. The states of the runs that end among its rows go to shared memory. A segmented scan over the warp gives each lane the state of its
    first run so far, for the first of these. Then the lanes share the ended runs, or elements of these, and store neighbouring results together.
    Gaps, edges, carries and statuses are those of :func:`fold_tiles`. Shapes and tile fix the order of every fold: rows of a lane, lanes in the tree
    of the scan, steps. Bytes: rows · (columns · value + index) read, segments · columns · result written. Method: segmented scan as in Sengupta,
    Harris, Zhang and Owens, "Scan primitives for GPU computing" (Graphics Hardware 2007).

    Constants and parameters as :mod:`.` lists them, but ``columns`` is a constant; and

    * ``share``: rows of a lane in each step; ``store_vector``: elements of a store to ``output``
    * ``vector``: elements of a load of a permuted row. Rows that are not permuted are contiguous and begin at a multiple of 16 bytes
    * ``input_positions``: whether the position of row r is ``permutation[r]``; else it is r
    * ``fills``: whether empty segments get ``empty``; ``fill_vector``: elements of a store to a range of them by a warp, where the output is
      contiguous, or 0 where lanes store them; ``longest_gap``: empty segments between two rows that are filled so, :func:`~..tiling.longest_gap`
    * ``clears``: whether the kernel sets ``cleared`` [rows, columns], which is contiguous, to 0; else ``cleared`` is any address
    * ``other`` [rows, columns]: the second elements of a monoid of pairs, which are read as those of ``input``; else any address. ``other_row``:
      elements from one of its rows to the next
    """
    element, index_type, permuted = jit.SCALARS[value], jit.SCALARS[index], row_index != ""
    fold = run_states_of(monoid, value, columns, result, store_vector)
    reset, combine_left = fold.reset, fold.combine_left
    store_result, scalars, state_type = fold.store_result, fold.scalars, fold.state_type
    scan, fetch_below = lane_scan(fold), states_below(scalars)
    open_run = open_run_of(monoid, value, columns, result, store_vector=store_vector)
    begin_rows, append_row, close_run, run_scalars = open_run.begin, open_run.append, open_run.close, open_run.scalars
    save_edge, _, _ = edge_functions_of(monoid, value, columns, result, store_vector)
    store_elements = elements_storer(monoid, value, columns, result, threads_per_block)
    in_ranges = fill_vector > 0
    end_tiles, heads_among = tile_end_of(monoid, value, columns, result, store_vector, fills, looks_back, longest_gap), heads_of(share)
    fill_short_gap, fill_between = short_gap_fillers(index, result, columns, store_vector, fills=fills, many=True, longest=longest_gap)
    fill_long_gaps = gap_filler(result, store_vector, 1, threads_per_block, many=True, fill_vector=fill_vector, longest=longest_gap)
    fill_flat = flat_gap_filler(index, result, fill_vector or 1, longest_gap)
    last_id, unsigned, load_shared, store_shared = last_id_of(index), jit.SCALARS["u" + index[1:]], LOAD_SHARED[1], STORE_SHARED[1]
    wide, load_ids = BY_NAME[value].vector, lane_ids_loader_of(index, share)
    load, store = LOAD_ONCE[wide], STORE_STREAM[wide]
    row_index_type, wide_row_indices = jit.SCALARS[row_index or "i64"], BY_NAME[row_index or "i64"].vector
    # rows from all over the input would evict ids from L1, but loads of one row meet there
    load_row_indices, load_row = LOAD_ONCE[wide_row_indices], (LOAD_DIRECT if vector == columns else LOAD_ONCE)[vector]
    warps, batch_size, step = threads_per_block // 32, share * columns, 32 * share
    properties = monoid_of(monoid)
    # a lane would store its results one by one, far from those of its neighbours
    paired, shares_elements = properties.pairs, in_ranges and columns * properties.results > store_vector
    others_size = batch_size if paired else 1
    edges = 2 * warps
    shared_states = edges * scalars
    # of each warp the runs that end in a step, where :func:`place_of` says, so that lanes ``share`` runs apart use banks of their own
    ended_size = warps * 33 * share
    ended_scalars = scalars * ended_size
    before = warp_scan(SUM, int32, exclusive=True)

    def fold_short_runs(
        input: Ptr[value], other: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], guard: Ptr[int32], cleared: Ptr[value],
        output: Ptr[result], carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], run_status: Ptr[int64],
        rows: int64, segments: int64, tile: int64, row_blocks: int64, early: int64, empty: Scalar[accumulator_type(result)],
        correction: Scalar[state_type], input_row: int64, other_row: int64, output_row: int64,
    ) -> None:  # fmt: skip
        edge_ids = cuda.shared.array(edges, int64)
        edge_counts = cuda.shared.array(edges, int64)
        edge_states = cuda.shared.array(shared_states, state_type)
        ended_states = cuda.shared.array(ended_scalars, state_type)
        next_ids = cuda.shared.array(ended_size, index_type)
        next_rows = cuda.shared.array(ended_size, int16)
        open_states = cuda.local.array(scalars, state_type)
        states = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        run = cuda.local.array(run_scalars, state_type)
        ended = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        others = cuda.local.array(others_size, element)
        batch_ids = cuda.local.array(share, index_type)
        row_indices = cuda.local.array(share, row_index_type)
        one_id = cuda.local.array(1, index_type)
        one_row = cuda.local.array(1, int16)
        zeros = cuda.local.array(wide, element)
        looks, block = share_blocks(row_blocks, start_number() if looks_back else cuda.blockIdx.x)
        if guarded and guard[0] == 0:
            return
        if fills and looks:
            fill_long_gaps(ids, 1, output, rows, columns, segments, block, output_row, (columns,), (1,), empty)
            return
        block = part_of(block, row_blocks, early)
        warp, lane = int32(cuda.threadIdx.x >> 5), int32(cuda.laneid)
        up_to, room = int32((2 << lane) - 1), int32(warp * (33 * share))
        held_states, held_ids, held_rows = pointer_at(ended_states, room), pointer_at(next_ids, room), pointer_at(next_rows, room)
        first = (block * warps + warp) * tile
        length = int32(max(min(tile, rows - first), 0))
        if looks_back:
            # from lane 0, which keeps the compiler from computing it anew wherever it is used
            length = cuda.shfl_sync(-1, length, 0)
        # the run that is open between steps, the same in all lanes: id, first row, states
        leading, last = int32(2 * warp), index_type(opaque(last_id(segments)))
        most = unsigned(unsigned(last) + unsigned(1))
        current, begun, edge = index_type(-1), int32(0), leading
        reset(open_states)
        for k in range(wide):
            zeros[k] = element(0)
        alike = False
        if length > 0:
            current = ids[first]
            # if one run has all rows, no other ids are loaded
            alike = ids[first + length - 1] == current
            prior = clamp(ids[first - 1], segments) if first > 0 else int64(-1)
            if lane == 0:
                fill_short_gap(output, prior, clamp(current, segments), output_row, 0, columns, empty)
        position = int32(0)
        while position < length:
            mine = int32(position + lane * share)
            if position + step <= length:
                load_ids(ids, first, mine, alike, current, batch_ids)
                if permuted:
                    for k in range(0, share, wide_row_indices):
                        load_row_indices(permutation, first + mine + k, row_indices, k)
                    for u in range(share):
                        for v in range(0, columns, vector):
                            load_row(input, int64(row_indices[u]) * input_row + v, batch, u * columns + v)
                            if paired:
                                load_row(other, int64(row_indices[u]) * other_row + v, others, u * columns + v)
                else:
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
                    if permuted:
                        row_indices[u] = permutation[row]
                    source = int64(row_indices[u]) if permuted else row
                    for v in range(columns):
                        batch[u * columns + v] = input[source * input_row + v]
                        if paired:
                            others[u * columns + v] = other[source * other_row + v]
                        if clears and mine + u < length:
                            cleared[row * columns + v] = element(0)
            valid = int32(min(max(int32(length - mine), int32(0)), int32(share)))
            heads = heads_among(batch_ids, current)
            headed, mine_first, count = cuda.ballot_sync(-1, heads != 0), int32(0), int32(0)
            if headed != 0:
                mine_first = before(int32(cuda.popc(heads)))
                count = cuda.shfl_sync(-1, int32(mine_first + cuda.popc(heads)), 31)
            at, head = mine_first, int32(0)
            begin_rows(run, int64(row_indices[0]) if input_positions else first + mine)
            for u in range(share):
                here = int64(row_indices[u]) if input_positions else first + mine + u
                if int32(heads >> u) & 1:
                    if u > 0:
                        close_run(run, u - head, states)
                    else:
                        reset(states)
                    slot, one_row[0] = place_of(at), int16(lane * share + u)
                    for k in range(scalars):
                        store_shared(held_states, slot + k * ended_size, states, k)
                    store_shared(held_ids, slot, batch_ids, u)
                    store_shared(held_rows, slot, one_row, 0)
                    at, head = int32(at + 1), int32(u)
                    begin_rows(run, here)
                if u < valid:
                    append_row(run, batch, others, u * columns, here, u - head)
            close_run(run, valid - head, states)
            if lane == 0 and heads == 0:
                combine_left(states, open_states)
            scan(states, scratch, int32(max(int32(31 - cuda.clz(int32(headed & up_to))), int32(0))))
            if headed != 0:
                fetch_below(states, open_states, scratch)
                if heads != 0:
                    slot = place_of(mine_first)
                    for k in range(scalars):
                        load_shared(held_states, slot + k * ended_size, ended, k)
                    combine_left(ended, scratch)
                    for k in range(scalars):
                        store_shared(held_states, slot + k * ended_size, ended, k)
                cuda.syncwarp()
                load_shared(held_ids, place_of(int32(count - 1)), one_id, 0)
                # where most segments are empty, the warp stores them first
                gappy = in_ranges and unsigned(one_id[0] - current) > unsigned(2 * count)
                at = lane
                while int32(at - lane) < count:
                    ends = at < count
                    slot, identifier, opened, leads = place_of(min(at, int32(count - 1))), current, begun, at == 0
                    load_shared(held_ids, slot, one_id, 0)
                    load_shared(held_rows, slot, one_row, 0)
                    following, its_rows = one_id[0], int32(position + one_row[0])
                    if ends and not leads:
                        past = place_of(int32(at - 1))
                        load_shared(held_ids, past, one_id, 0)
                        load_shared(held_rows, past, one_row, 0)
                        identifier, opened = one_id[0], int32(position + one_row[0])
                    its_rows = int32(its_rows - opened)
                    for k in range(scalars):
                        load_shared(held_states, slot + k * ended_size, ended, k)
                    if gappy:
                        fill_flat(output, ends, identifier, following, last, columns, empty)
                    saved = leads and edge == leading
                    if saved:
                        save_edge(edge_ids, edge_counts, edge_states, edge, 0, 1, 0, clamp(identifier, segments), its_rows, ended)
                    known = ends and not saved and unsigned(identifier) < most
                    if shares_elements and gappy:
                        store_elements(output, identifier if known else index_type(-1), output_row, ended, its_rows, correction)
                    elif known:
                        store_result(output, int64(unsigned(identifier)) * output_row, columns, ended, its_rows, correction)
                    if ends and not gappy:
                        fill_between(output, identifier, following, last, output_row, 0, columns, empty)
                    at = int32(opaque(at + 32))
                slot = place_of(int32(count - 1))
                load_shared(held_ids, slot, one_id, 0)
                load_shared(held_rows, slot, one_row, 0)
                current, begun, edge = one_id[0], int32(position + one_row[0]), int32(leading + 1)
                cuda.syncwarp()
            for k in range(scalars):
                open_states[k] = cuda.shfl_sync(-1, states[k], 31)
            position = int32(opaque(position + step))
        end_tiles(
            edge_ids, edge_counts, edge_states, carry_ids, carry_counts, carry_states, run_status, open_states, edge, current, begun,
            ids, first, length, tile, rows, segments, block, row_blocks, output, output_row, empty, correction,
        )  # fmt: skip

    def launch_config(rows: int, segments: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, 32, 1, tile, threads_per_block).fold_launch(segments, longest_gap)

    return fold_short_runs, launch_config
