"""The ragged fold of rows that warps copy to shared memory, tile by tile, wherever a row begins."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra import monoid_of
from ...core.dtypes import BY_NAME
from ...device.build import opaque, pointer_at
from ...device.order import start_number
from ...device.stage import await_copies, commit_copies
from ...device.vector import LOAD_SHARED, STORE_SHARED
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..policy import FoldStaged
from ..tiling import GAP, Tiling
from .common import NOTHING, clamp, half_row_of, last_id_of, part_of
from .copies import begin_copies
from .edges import edge_functions_of
from .gaps import flat_gap_filler, gap_filler, share_blocks, short_gap_fillers
from .lookback import ids_around, run_finisher_of
from .states import heads_behind, run_states_of
from .sums import open_run_of
from .walk import run_walker_of

#: ids that a lane looks at together, and where a lane has many columns, so that a stage has few rows
_LOOKED_AT, _FEW_LOOKED_AT = 8, 4


@jit.kernel
def fold_staged(
    *, monoid: str, value: str, result: str, index: str, vector: int, apart: int, fills: bool, guarded: bool, looks_back: bool = False,
    fill_vector: int = 0, longest_gap: int = GAP, threads_per_block: int = FoldStaged.threads_per_block,
    items_per_thread: int = FoldStaged.items_per_thread,
) -> Any:  # fmt: skip
    """Folds runs of ids in order, as :func:`fold_tiles` does, where rows are contiguous.

    A warp walks its ``tile`` rows, ``stage`` rows at a time, which it copies to shared memory by 16 bytes while other warps fold, with their ids
    unless the last one is that of the run that is open. It lists the heads among them, rows whose id differs from the one before. Then each lane
    takes ``vector`` columns of a run, or of every 2ⁿ-th row of it where runs are few, and such lanes combine their states in a tree. The run that is
    open between stages has its states in shared memory. Gaps, edges, carries and statuses are those of :func:`fold_tiles`; but where gaps are many, a
    warp fills them as one range of elements. Shapes, tile, stage and ids fix the order of every fold. Dynamic shared memory: see
    :func:`~..staged_tiling.staged_bytes`. Bytes: rows · (columns · value + index) read, of each operand, segments · columns · result written.

    Constants and parameters as :mod:`.` lists them, where columns of input and output are contiguous, and rows of the input, too; and

    * ``items_per_thread``: rows that a lane loads from shared memory before it uses the first; half as many of many columns
    * ``fills``: whether empty segments get ``empty``; ``fill_vector``: elements of a store to a range of them by a warp, where the output is
      contiguous, or 0 where lanes store them; ``longest_gap``: empty segments between two rows that are filled so, :func:`~..tiling.longest_gap`
    * ``apart``: how far the columns of a lane lie apart, which is ``width``; 1 where they are neighbours but no vector, 0 where they are a vector
    * ``other``: the second elements of a monoid of pairs, else any address
    * ``stage``: rows of a multiple of 16 bytes together, as are their ids
    * ``width``: lanes that have a row; ``reciprocal``: :func:`~..tiling.half_reciprocal_of` it
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    size, id_size = BY_NAME[value].itemsize, BY_NAME[index].itemsize
    fold = run_states_of(monoid, value, vector, result, apart=apart)
    reset, combine_left, store_result = fold.reset, fold.combine_left, fold.store_result
    scalars, state_type = fold.scalars, fold.state_type
    open_run = open_run_of(monoid, value, vector, result, apart=apart)
    close_shared, run_scalars = open_run.close_shared, open_run.scalars
    properties = monoid_of(monoid)
    many, paired, operands = vector > FoldStaged.columns_per_thread, properties.pairs, 2 if properties.pairs else 1
    crowded = many or (properties.any_pivot and vector * size == 16)
    batch_rows = items_per_thread // 2 if crowded else items_per_thread
    loose = apart == 1 and size == 2
    walk = run_walker_of(monoid, value, vector, result, batch_rows, operands, apart > 0 and not loose, loose=loose)
    save_edge, save_last_edge, combine_edges = edge_functions_of(monoid, value, vector, result, apart=apart)
    finish_runs = run_finisher_of(monoid, value, vector, result, apart=apart)
    in_ranges = fill_vector > 0
    fill_short_gap, fill_between = short_gap_fillers(index, result, vector, fold.store_vector, apart, fills, longest=longest_gap)
    fill_flat = flat_gap_filler(index, result, fill_vector or 1, longest_gap)
    together = 1 if apart > 1 else vector
    fill_long_gaps = gap_filler(result, 1 if apart else vector, 1, threads_per_block, fold.store_vector, fill_vector=fill_vector, longest=longest_gap)
    await_stage = await_copies(0)
    last_id, unsigned, wide_ids, each = last_id_of(index), jit.SCALARS["u" + index[1:]], BY_NAME[index].vector, _FEW_LOOKED_AT if many else _LOOKED_AT
    load_bound = load_id = load_state = LOAD_SHARED[1]
    store_state = STORE_SHARED[1]
    load_ids, heads_among, number_bits = LOAD_SHARED[wide_ids], heads_behind(each), each.bit_length()
    warps, state_size = threads_per_block // 32, state_type.bitwidth // 8
    edges = 2 * warps

    def fold_staged(
        input: Ptr[value], other: Ptr[value], ids: Ptr[index], guard: Ptr[int32], output: Ptr[result],
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], run_status: Ptr[int64],
        rows: int64, columns: int64, segments: int64, tile: int64, stage: int64, row_blocks: int64, early: int64, width: int64, reciprocal: int64,
        empty: Scalar[accumulator_type(result)], correction: Scalar[state_type], output_row: int64,
    ) -> None:  # fmt: skip
        staged = cuda.shared.array(0, element)
        staged_ids = cuda.shared.array(0, index_type)
        shared_states = cuda.shared.array(0, state_type)
        begins = cuda.shared.array(0, uint16)
        batch_ids = cuda.local.array(each, index_type)
        id_pair = cuda.local.array(2, index_type)
        bounds = cuda.local.array(2, uint16)
        edge_ids = cuda.shared.array(edges, int64)
        edge_counts = cuda.shared.array(edges, int64)
        run = cuda.local.array(run_scalars, state_type)
        states = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        looks, block = share_blocks(row_blocks, start_number() if looks_back else cuda.blockIdx.x)
        if guarded and guard[0] == 0:
            return
        if fills and looks:
            fill_long_gaps(ids, 1, output, rows, columns, segments, block, output_row, (columns,), (1,), empty)
            return
        block = part_of(block, row_blocks, early)
        warp, lane = int32(cuda.threadIdx.x >> 5), int32(cuda.laneid)
        row_size, step, wide = int32(columns), int32(stage), int32(width)
        # what each warp has of dynamic shared memory: rows of a stage, their ids; behind those of all warps states of edges, then heads
        stage_size = int32(step * row_size * operands)
        if loose:
            # lanes read words of halves, some of them beyond the last row: these are the warp's own ids
            warp_size = int32(stage_size * size + step * id_size)
            states_at = int32(warps * warp_size)
            own_rows, own_ids = int32(warp * warp_size // size), int32((warp * warp_size + stage_size * size) // id_size)
        else:
            states_at = int32(warps * (stage_size * size + step * id_size))
            own_rows, own_ids = int32(warp * stage_size), int32(warps * stage_size * size // id_size + warp * step)
        other_rows = int32(step * row_size)
        own_begins = int32((states_at + edges * wide * scalars * state_size) // 2 + warp * (step + 2))
        held, held_ids, held_begins = pointer_at(staged, own_rows), pointer_at(staged_ids, own_ids), pointer_at(begins, own_begins)
        first_state = int32(states_at // state_size)
        leading, last, up_to = int32(2 * warp), index_type(opaque(last_id(segments))), int32((2 << lane) - 1)
        opened = int32(first_state + (leading + 1) * wide * scalars)
        held_states = pointer_at(shared_states, opened)
        most = unsigned(unsigned(last) + unsigned(1))
        first = (block * warps + warp) * tile
        # from lane 0, which keeps the compiler from computing it anew wherever it is used; so are other numbers below
        length = cuda.shfl_sync(-1, int32(max(min(tile, rows - first), 0)), 0)
        # the run that is open between steps, the same in all lanes: id and first row
        current, begun, edge = index_type(-1), int32(0), leading
        if length > 0:
            current = ids[first]
        # the id of the last row of a stage, known before the stage is copied: if no run begins in it, its ids are not
        position, final, after = int32(0), index_type(-1), index_type(-1)
        while position < length or position == 0:
            count = int32(min(step, int32(length - position)))
            begin_copies(input, (first + position) * columns, int32(count * row_size), size, staged, own_rows, lane, 32)
            if paired:
                begin_copies(other, (first + position) * columns, int32(count * row_size), size, staged, own_rows + other_rows, lane, 32)
            if position == 0 or final != current:
                begin_copies(ids, first + position, count, id_size, staged_ids, own_ids, lane, 32)
            commit_copies()
            if position == 0:
                before = clamp(ids[first - 1], segments) if first > 0 and length > 0 else int64(-1)
                reset(states)
                column = lane
                while column < wide:
                    inside = int32(row_size - column * together)
                    fill_short_gap(output, before, clamp(current, segments), output_row, int64(column * together), inside, empty)
                    for k in range(scalars):
                        shared_states[uint32(opened + column + k * wide)] = states[k]
                    column = int32(opaque(column + 32))
            if int32(position + step) < length:
                after = ids[first + min(int32(position + 2 * step), length) - 1]
            await_stage()
            cuda.syncwarp()
            if position == 0 and count > 0:
                final = staged_ids[uint32(own_ids + count - 1)]
            heads = int32(0)
            if count > 0 and final != current:
                # ids ascend, so else there are no heads
                row = int32(lane * each)
                while int32(row - lane * each) < count:
                    past = current
                    if row > 0:
                        load_id(held_ids, int32(min(row, count) - 1), id_pair, 0)
                        past = id_pair[0]
                    if int32(row + each) <= count:
                        for k in range(0, each, wide_ids):
                            load_ids(held_ids, row + k, batch_ids, k)
                    else:
                        for k in range(each):
                            load_id(held_ids, int32(min(int32(row + k), int32(count - 1))), batch_ids, k)
                    met = heads_among(batch_ids, past)
                    if cuda.ballot_sync(-1, met != 0) != 0:
                        # the bits of the lanes' numbers of heads, whose sum over the lanes up to this one numbers its last one
                        own, number = int32(cuda.popc(met)), heads
                        for k in range(number_bits):
                            number = int32(number + (cuda.popc(int32(cuda.ballot_sync(-1, int32(own >> k) & 1) & up_to)) << k))
                        heads = cuda.shfl_sync(-1, number, 31)
                        while met != 0:
                            highest = int32(31 - cuda.clz(met))
                            begins[uint32(own_begins + number)] = uint16(row + highest)
                            met, number = int32(met ^ int32(1 << highest)), int32(opaque(number - 1))
                    row = int32(opaque(row + 32 * each))
            if lane == 0:
                begins[uint32(own_begins)] = uint16(0)
                begins[uint32(own_begins + heads + 1)] = uint16(count)
            cuda.syncwarp()
            # as many lanes share a run as make up a warp
            runs = int32((heads + 1) * wide)
            level = cuda.shfl_sync(-1, int32(max(int32(cuda.clz(int32(runs - 1)) - 27), int32(0))), 0)
            row_step = cuda.shfl_sync(-1, int32(row_size << level), 0)
            shares, first_end, last_begin = int32(1 << level), int32(wide << level), int32((heads * wide << level) - 31)
            turn, turns = int32(0), int32(runs << level) if count > 0 else int32(0)
            # where most segments are empty, the warp stores them first
            gappy = in_ranges and unsigned(final - current) > unsigned(2 * heads)
            while turn < turns:
                item = int32(turn + lane)
                share, taken = int32(item & (shares - 1)), uint32(item) >> uint32(level)
                number = half_row_of(taken, reciprocal)
                column, active = int32(taken - number * wide), number <= heads
                number = int32(min(number, heads))
                load_bound(held_begins, number, bounds, 0)
                load_bound(held_begins, number + 1, bounds, 1)
                begin, end = int32(bounds[0]), int32(bounds[1])
                left = int32(uint32(end - begin + shares - 1 - share) >> uint32(level)) if active else int32(0)
                skipped = share if left > 0 else int32(0)
                at, here = int32((begin + skipped) * row_size + column * together), first + position + begin + share
                walk(run, held, held, at, at + other_rows, apart, int32(row_size - column * together - 1), row_step, left, here, level)
                close_shared(run, share, shares, left, int32(end - begin), states)
                its_rows = int32(end - begin)
                # only these lanes may have the first or the last run of the stage
                if turn < first_end or turn >= last_begin:
                    owner = active and share == 0
                    if owner and number == 0:
                        for k in range(scalars):
                            load_state(held_states, column + k * wide, scratch, k)
                        combine_left(states, scratch)
                        its_rows = int32(its_rows + position - begun)
                    cuda.syncwarp()
                    if owner and number == heads:
                        for k in range(scalars):
                            store_state(held_states, column + k * wide, states, k)
                    elif owner and number == 0 and edge == leading:
                        save_edge(edge_ids, edge_counts, shared_states, edge, first_state, wide, column, clamp(current, segments), its_rows, states)
                        its_rows = int32(0)
                if in_ranges and gappy:  # ``in_ranges`` is a constant: other kernels do not compile what follows
                    load_id(held_ids, begin, id_pair, 0)
                    load_id(held_ids, min(end, count - 1), id_pair, 1)
                    owns = number < heads and share == 0 and column == 0
                    fill_flat(output, owns, current if number == 0 else id_pair[0], id_pair[1], last, columns, empty)
                if share == 0 and number < heads:
                    load_id(held_ids, begin, id_pair, 0)
                    load_id(held_ids, end, id_pair, 1)
                    inside = int32(row_size - column * together)
                    # the first run may have begun before, and have no rows here
                    identifier = current if number == 0 else id_pair[0]
                    if not gappy:
                        fill_between(output, identifier, id_pair[1], last, output_row, int64(column * together), inside, empty)
                    if its_rows > 0 and unsigned(identifier) < most:
                        store_result(output, int64(unsigned(identifier)) * output_row + column * together, inside, states, its_rows, correction)
                turn = int32(opaque(turn + 32))
            if heads > 0:
                edge, begun = int32(leading + 1), int32(position + begins[uint32(own_begins + heads)])
                current = final
            cuda.syncwarp()
            final = after
            position = int32(position + step)
        segment = clamp(current, segments)
        column = lane
        while column < wide:
            if length > 0 and first + length == rows:
                inside = int32(row_size - column * together)
                fill_short_gap(output, segment, segments, output_row, int64(column * together), inside, empty)
            for k in range(scalars):
                states[k] = shared_states[uint32(opened + column + k * wide)]
            save_last_edge(
                edge_ids, edge_counts, shared_states, edge, leading, first_state, wide, column, segment, length - begun, states
            )  # fmt: skip
            column = int32(opaque(column + 32))
        column, id_before, id_after = int32(cuda.threadIdx.x), int64(NOTHING), int64(NOTHING)
        if looks_back and column < wide:
            id_before, id_after = ids_around(ids, 1, block, warps * tile, rows, segments)
        cuda.syncthreads()
        while column < wide:
            if looks_back:
                finish_runs(
                    edge_ids, edge_counts, shared_states, run_status, states, cuda.blockDim.x >> 4, first_state, wide, column, id_before, id_after,
                    column, wide, columns - column * together, segments, block, row_blocks,
                    output, output_row, int64(column * together), correction,
                )  # fmt: skip
            else:
                combine_edges(
                    edge_ids, edge_counts, shared_states, carry_ids, carry_counts, carry_states, states,
                    cuda.blockDim.x >> 4, first_state, wide, column, column * together, columns, segments, block, row_blocks,
                    output, output_row, int64(column * together), correction,
                )  # fmt: skip
            column = int32(opaque(column + threads_per_block))

    def launch_config(rows: int, segments: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, 32, 1, tile, threads_per_block).fold_launch(segments, longest_gap)

    return fold_staged, launch_config
