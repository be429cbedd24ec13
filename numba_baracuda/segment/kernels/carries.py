"""The last launches of a ragged fold: they combine the states of runs that cross row blocks."""

from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.axes import ceil_div
from ...device.build import opaque
from ...device.vector import LOAD_ONCE
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..carries_tiling import carries_launch
from ..policy_of import fold_carries as policy_of
from .common import NOTHING
from .gaps import blank_writer
from .states import lane_scan, run_states_of


@jit.kernel
def fold_carries(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, blank: bool, guarded: bool, counted: bool, joins: bool, dims: int,
    threads_per_block: int = 0, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Combines the carries of each run, in order, and stores its result.

    A block has a tile of carries, and a group ``share`` neighbours, which it folds one after the other: runs that begin and end among them
    it stores. Of the others, the groups of a warp combine what they have by a segmented scan, and each warp what the warps before it have saved
    in shared memory; for that there is one barrier. A run is stored where it ends. Where there are several tiles, the last warp has the first carries
    of the next one, in which most runs end. If one does not, the block goes on for it alone, each time through twice as many. So shapes and ids fix
    the order of every fold. States are loaded along with ids. Bytes: entries · columns · state read.

    One block that goes on for a long run reads all its carries. So many carries are first ``joined``: each block stores the runs inside its tile, and
    leaves a carry of the first and one of the last run, whatever lies in other tiles. A second launch combines these.

    Constants and parameters as :mod:`.` lists them, and

    * ``lanes``: a power of two, at most 32
    * ``threads_per_block``, ``items_per_thread``: 0 stands for those of the tuning policy
    * ``entries``: the number of carries
    * ``share``: carries of a group at a time, a multiple of ``items_per_thread``
    * ``tile``: carries from one tile to the next: those of all groups, or of all but the last warp
    * ``blank``: whether a run of no rows gets ``empty``
    * ``joins``: whether carries are joined, to ``joined_ids``, ``joined_counts`` and ``joined_states``; else any addresses. ``tile`` is then one less
    * ``counted``: whether ``guard[0]`` is the number of carries, at most ``entries``; blocks then walk the tiles in a grid-stride loop
    """
    fold, policy = run_states_of(monoid, value, vector, result), policy_of(monoid_of(monoid).hungry)
    reset, combine_left, combine_right, scalars, state_type = fold.reset, fold.combine_left, fold.combine_right, fold.scalars, fold.state_type
    write_run, write_empty = fold.store_result, blank_writer(result, vector, fold.store_vector)
    load_size = min(vector, 128 // state_type.bitwidth)
    offset_of, load, scan = strided_offset_of(dims), LOAD_ONCE[load_size], lane_scan(fold, lanes)
    policy = replace(policy, threads_per_block=threads_per_block or policy.threads_per_block)
    unroll, threads = items_per_thread or policy.items_per_thread, policy.threads_per_block
    groups, warps, fan, shift = threads // lanes, threads // 32, 32 // lanes, lanes.bit_length() - 1
    last_lane, saves, batch_size = 32 - lanes, ceil_div(warps, fan), unroll * scalars
    warp_scalars, weighs = warps * lanes * scalars, blank or monoid_of(monoid).counts
    shared_scalars, shared_warps = 2 * warp_scalars, 2 * warps

    @jit.device
    def scan_counts(count: Any, start: Any) -> Any:
        """The scan of ``lane_scan`` of the rows that states stand for."""
        if weighs:
            for k in range(5 - shift):
                other = cuda.shfl_up_sync(-1, count, lanes << k)
                if cuda.laneid - (lanes << k) >= start:
                    count += other
        return count

    @jit.device
    def load_carries(
        ids: Any, counts: Any, saved_states: Any, entry: Any, there: Any, size: Any, column_offset: Any, batch_ids: Any, batch_counts: Any, batch: Any
    ) -> None:
        """Loads what follows ``entry``; behind the first ``there``, of which there may be none, ids are of nothing, and states are not used."""
        for u in range(unroll):
            at = entry + min(int32(u), int32(there - 1))
            batch_ids[u] = ids[at] if u < there else int64(NOTHING)
            if weighs:
                batch_counts[u] = counts[at]
            for k in range(0, scalars, load_size):
                load(saved_states, at * size + column_offset + k, batch, u * scalars + k)

    @jit.device
    def last_head(heads: Any) -> Any:
        """The highest bit that is set, or 0."""
        return int32(31 - cuda.clz(int32(heads | 1)))

    @jit.device
    def fold_warps(states: Any, scratch: Any, saved_states: Any, saved_counts: Any, turn: Any, low: Any, high: Any, lane: Any) -> Any:
        """The states that the warps in [low, high) have saved, in all lanes of a warp that has this column; returns their rows."""
        reset(states)
        count, first = int64(0), int32((cuda.laneid >> shift) * saves)
        for k in range(saves):
            warp = int32(first + k)
            if low <= warp < high:
                combine_right(states, saved_states, uint32(turn * warp_scalars + (warp * lanes + lane) * scalars), 1)
                if weighs:
                    count += saved_counts[uint32(turn * warps + warp)]
        scan(states, scratch, lane)
        for k in range(scalars):
            states[k] = cuda.shfl_sync(-1, states[k], last_lane + lane)
        return cuda.shfl_sync(-1, scan_counts(count, lane), last_lane + lane) if weighs else count

    @jit.device
    def store_result(
        output: Any, segment: Any, output_row: Any, offset: Any, left: Any, states: Any, count: Any, empty: Any, correction: Any
    ) -> None:
        if blank and count == 0:
            write_empty(output, segment, 1, output_row, offset, left, empty)
        else:
            write_run(output, segment * output_row + offset, left, states, count, correction)

    @jit.device
    def save_carry(
        ids: Any, counts: Any, saved_states: Any, block: Any, size: Any, column_offset: Any, column: Any,
        identifier: Any, first_id: Any, last_id: Any, count: Any, states: Any,
    ) -> None:  # fmt: skip
        """Saves the first or the last run of a tile; behind the only one a run of no rows."""
        carry = int64(block) * 2 + int64(identifier != first_id)
        for k in range(scalars):
            saved_states[carry * size + column_offset + k] = states[k]
        if column == 0:
            ids[carry], counts[carry] = identifier, count
        if first_id == last_id:
            reset(states)
            for k in range(scalars):
                saved_states[(carry + 1) * size + column_offset + k] = states[k]
            if column == 0:
                ids[carry + 1], counts[carry + 1] = identifier, int64(0)

    def fold_carries(
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], guard: Ptr[int32], joined_ids: Ptr[int64],
        joined_counts: Ptr[int64], joined_states: Ptr[state_type], output: Ptr[result],
        entries: int64, columns: int64, segments: int64, chunks: int64, tile: int64, share: int64, empty: Scalar[accumulator_type(result)],
        correction: Scalar[state_type], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        warp_states = cuda.shared.array(shared_scalars, state_type)
        warp_counts = cuda.shared.array(shared_warps, int64)
        warp_heads = cuda.shared.array(shared_warps, int32)
        batch = cuda.local.array(batch_size, state_type)
        batch_ids = cuda.local.array(unroll, int64)
        batch_counts = cuda.local.array(unroll, int64)
        states = cuda.local.array(scalars, state_type)
        lead = cuda.local.array(scalars, state_type)
        before = cuda.local.array(scalars, state_type)
        carried = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        if counted:
            entries = min(entries, int64(guard[0]))
        lane, group, warp = int32(cuda.threadIdx.x & (lanes - 1)), int32(cuda.threadIdx.x >> shift), int32(cuda.threadIdx.x >> 5)
        head_lane = int32(cuda.laneid - lane)
        carry_size, turn, block = columns * scalars // vector, int32(0), int32(cuda.blockIdx.x)
        own_warps = int32(warps if joins or tile == groups * share else warps - 1)
        entry_block = int32(uint32(block) // uint32(chunks))
        while entry_block * tile < entries:
            column = int64((block - entry_block * chunks) * lanes + lane) * vector
            present, left = column < columns, columns - column
            column = column if present else int64(0)
            offset, column_offset = offset_of(column, shape, output_strides), column * scalars // vector
            begin, mine, more, goes_on, carried_count = entry_block * tile, share, True, False, int64(0)
            # the first carry that the block may read, and what lies behind the last one; of a tile that is joined, its ends
            low, stop, first_id, last_id = int64(0), entries, int64(NOTHING), int64(NOTHING)
            if joins:
                low, stop = begin, min(begin + tile, entries)
                first_id, last_id = carry_ids[low], carry_ids[stop - 1]
            reset(carried)
            while more:
                entry = begin + group * mine
                end, previous = min(entry + mine, stop + 1), int64(NOTHING)
                if low < entry <= stop:
                    previous = carry_ids[entry - 1]
                begun, seen, count, lead_count = previous, False, int64(0), int64(0)
                reset(states)
                reset(lead)
                while entry < end:
                    if entry + unroll <= stop:
                        load_carries(carry_ids, carry_counts, carry_states, entry, unroll, carry_size, column_offset, batch_ids, batch_counts, batch)
                    else:
                        there = int32(stop - entry)
                        load_carries(carry_ids, carry_counts, carry_states, entry, there, carry_size, column_offset, batch_ids, batch_counts, batch)
                    for u in range(unroll):
                        current = batch_ids[u]
                        if current != previous:
                            if not seen:
                                for k in range(scalars):
                                    lead[k] = states[k]
                                lead_count = count
                            elif present and warp < own_warps and not goes_on:
                                if joins and (first_id == previous or previous == last_id):
                                    save_carry(
                                        joined_ids, joined_counts, joined_states, entry_block, carry_size, column_offset, column,
                                        previous, first_id, last_id, count, states,
                                    )  # fmt: skip
                                elif 0 <= previous < segments:
                                    store_result(output, previous, output_row, offset, left, states, count, empty, correction)
                            reset(states)
                            seen, count, previous = True, int64(0), current
                        combine_right(states, batch, u * scalars, 1)
                        if weighs:
                            count += batch_counts[u]
                    entry = opaque(entry + unroll)
                heads = int32(cuda.ballot_sync(-1, seen))
                earlier = int32(heads & (int32(1 << head_lane) - 1))
                upto = int32(heads & (int32(2 << cuda.laneid) - 1))
                start = int32((last_head(upto) & -lanes) + lane)
                scan(states, scratch, start)
                count = scan_counts(count, start)
                if cuda.laneid >= last_lane:
                    for k in range(scalars):
                        warp_states[uint32(turn * warp_scalars + (warp * lanes + lane) * scalars + k)] = states[k]
                    if lane == 0:
                        warp_heads[uint32(turn * warps + warp)] = heads
                        if weighs:
                            warp_counts[uint32(turn * warps + warp)] = count
                cuda.syncthreads()
                saved = uint32(turn * warps + min(int32(cuda.laneid), warps - 1))
                flags = int32(cuda.ballot_sync(-1, cuda.laneid < warps and warp_heads[saved] != 0))
                lower = int32(flags & (int32(1 << warp) - 1))
                if heads != 0:
                    for k in range(scalars):
                        before[k] = cuda.shfl_up_sync(-1, states[k], lanes)
                    before_count = cuda.shfl_up_sync(-1, count, lanes) if weighs else count
                    if head_lane == 0:
                        reset(before)
                        before_count = int64(0)
                    warps_count = fold_warps(states, scratch, warp_states, warp_counts, turn, last_head(lower), warp, lane)
                    if goes_on and lower == 0:
                        combine_left(states, carried)
                        warps_count += carried_count
                    if seen:
                        if earlier == 0:
                            combine_left(before, states)
                            before_count += warps_count
                        combine_right(before, lead, 0, 1)
                        stored = lower != 0 and not goes_on
                        if earlier != 0:
                            stored = warp < own_warps and not goes_on
                        elif goes_on:
                            stored = lower == 0
                        if joins and present and stored and (first_id == begun or begun == last_id):
                            save_carry(
                                joined_ids, joined_counts, joined_states, entry_block, carry_size, column_offset, column,
                                begun, first_id, last_id, before_count + lead_count, before,
                            )  # fmt: skip
                        elif present and stored and 0 <= begun < segments:
                            store_result(output, begun, output_row, offset, left, before, before_count + lead_count, empty, correction)
                own_flags = int32(flags & (int32(1 << (warps - 1)) - 1)) if own_warps < warps else flags
                is_open = flags == 0 if goes_on else own_flags != 0 and own_flags == flags
                begin = opaque(begin + mine * groups)
                more = is_open and begin <= entries and not joins
                if more:
                    warps_count = fold_warps(states, scratch, warp_states, warp_counts, turn, last_head(flags), warps, lane)
                    if goes_on:
                        combine_left(states, carried)
                        mine = opaque(2 * mine)
                    for k in range(scalars):
                        carried[k] = states[k]
                    carried_count += warps_count
                goes_on, turn = True, int32(turn ^ 1)
            if not counted:
                return
            block = int32(opaque(block + cuda.gridDim.x))
            entry_block = int32(uint32(block) // uint32(chunks))

    def launch_config(entries: int, columns: int, share: int) -> tuple[int, int, int]:
        return carries_launch(entries, columns, vector, lanes, threads, share, joins)[0]

    return fold_carries, launch_config
