"""The fold of rows that are partitioned by range of ids. The states of a range's segments are in shared memory."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra import SUM, monoid_of
from ...device.block import block_scan
from ...device.build import opaque
from ...device.vector import LOAD_DIRECT, LOAD_ONCE
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy_of import range_items
from ..tiling import GROUP_HEADS, ORDERED_KEYS, ORDERED_ROWS, RANGE, RANGE_BITS, RANGE_ROUNDS, RANGE_TILE, RANGE_WORDS, SEGMENT_COUNTS, THREADS
from .common import frequent_of_warp
from .gaps import blank_writer
from .ranks import clear_counters, counters_sum, ranker_of, scan_counters
from .states import run_states_of

#: what a group's first rows are: the begin of a run, the end of a run of an earlier group, or all inside such a run; MIDDLES stands for several
#: groups inside a run, of which the first has the states of all
HEAD, TAIL, MIDDLE, MIDDLES = 0, 1, 2, 3
#: lanes of a warp that combine such states, and how many must be inside runs
TOGETHER = CROWD = 16


@jit.kernel
def fold_ranges(*, monoid: str, value: str, result: str, index: str, permuted: bool, single: bool, vector: int, lanes: int, dims: int) -> Any:
    """Folds the rows of one split of a range into the states of the range's segments, in shared memory.

    Range g is the ids that are g without their low ``RANGE_BITS`` bits. Its rows begin at ``begins[g]``; inside the range ids are in any order.

    Tile by tile the block orders rows by segment, stably. Each group of ``lanes`` lanes, each with ``vector`` columns, then takes an equal share of
    the tile, and adds each run that ends in it to its segment's state. The group in which a run begins adds what later groups have of it, in order;
    where runs are long, the first of several groups of a warp has combined theirs. The rows of an id that crowds the first ones of the split need no
    order: before the tiles, each group folds every ``groups``-th row of the split, if it has this id, and the block combines the groups' states in a
    tree. So ids and ``split_rows`` fix the order of every fold. A range of one split is stored, empty segments as ``empty``; each of several splits
    leaves a carry for every segment. Dynamic shared memory: ``RANGE_WORDS`` words, a state for every segment and column, and one for every thread and
    column. Bytes: rows · (index + row_index + columns · value) read, the ids of a crowd twice, columns · result written for each segment. Method:
    partition, then aggregate, as in Ye, Ross and Vesdapunt, "Scalable aggregation on multicore processors" (DaMoN 2011).

    Constants and parameters as :mod:`.` lists them, and those of :func:`split_ranges`:

    * ``permuted``: whether row r is ``input[permutation[r]]``; else it is ``input[r]``
    * ``single``: whether one range has all rows. Then ``begins``, ``split_offsets``, ``carry_offsets`` and ``range_of_split`` are any address, and
      ids outside the range are dropped
    * ``ranges``: their number; ``split_rows``: rows of a split; ``splits``: splits of a ``single`` range
    """
    fold, rank = run_states_of(monoid, value, vector, result), ranker_of(RANGE_ROUNDS, RANGE_BITS)
    element, state_type, scalars = jit.SCALARS[value], fold.state_type, fold.scalars
    reset, add_row, combine_right = fold.reset, fold.add_row, fold.combine_right
    combine_left, save_run, store_result = fold.combine_left, fold.save_run, fold.store_result
    write_empty, offset_of = blank_writer(result, vector, fold.store_vector), strided_offset_of(dims)
    scan = block_scan(SUM, int32, THREADS, exclusive=True)
    load = LOAD_DIRECT[vector] if permuted else LOAD_ONCE[vector]
    unroll = range_items(value, index, vector, monoid_of(monoid))
    few = max(unroll // 2, 1)  # of a crowd: more would take registers from the tiles
    unsigned = jit.SCALARS["u" + index[1:]]
    together = TOGETHER // lanes if 32 % lanes == 0 else 1
    groups, batch_size, width, table = THREADS // lanes, unroll * vector, scalars // vector, RANGE_WORDS * 32 // state_type.bitwidth

    @jit.device
    def key_of(identifier: Any, lowest: Any, there: Any) -> Any:
        """The number of a segment in the range that begins with ``lowest``; -1 where there is no row, or none of the range."""
        key = unsigned(unsigned(identifier) - lowest)
        return int32(key) if there and key < RANGE else int32(-1)

    @jit.device
    def put(shared_states: Any, slot: Any, states: Any) -> None:
        for k in range(scalars):
            shared_states[uint32(slot + k)] = states[k]

    @jit.device
    def get(shared_states: Any, slot: Any, states: Any) -> None:
        for k in range(scalars):
            states[k] = shared_states[uint32(slot + k)]

    @jit.device
    def combine_groups(shared_ints: Any, shared_states: Any, head_states: Any, lane: Any, next_group: Any, stop: Any, states: Any) -> Any:
        """Combines the states of a run with what the groups from ``next_group`` to ``stop`` have of it; returns whether it goes on behind them."""
        heads = int32(opaque(head_states + lane * scalars))  # or the number would be kept in a register all the time
        while next_group < stop and shared_ints[uint32(GROUP_HEADS + next_group)] != HEAD:
            kind = shared_ints[uint32(GROUP_HEADS + next_group)]
            combine_right(states, shared_states, heads + next_group * lanes * scalars, 1)
            if kind == TAIL:
                return False
            next_group = int32(opaque(next_group + (together if kind == MIDDLES else 1)))
        return next_group >= stop

    @jit.device
    def combine_threads(shared_states: Any, first: Any, states: Any) -> None:
        """Combines the states of all groups in a tree, in which group g is that of the threads from g · lanes on; the first group has the result."""
        thread, left = int32(cuda.threadIdx.x), int32(groups)
        own = int32(first + thread * scalars)
        put(shared_states, own, states)
        cuda.syncthreads()
        while left > 1:
            half = int32((left + 1) >> 1)
            if thread < int32((left - half) * lanes):
                combine_right(states, shared_states, int32(own + half * lanes * scalars), 1)
                put(shared_states, own, states)
            cuda.syncthreads()
            left = int32(opaque(half))

    @jit.device
    def append_run(shared_states: Any, slot: Any, states: Any, scratch: Any) -> None:
        """Combines the state of a segment with that of a run, which comes after it."""
        get(shared_states, slot, scratch)
        combine_left(states, scratch)
        put(shared_states, slot, states)

    def fold_ranges(
        ids: Ptr[index], permutation: Ptr[int32], input: Ptr[value], begins: Ptr[int32], split_offsets: Ptr[int32], carry_offsets: Ptr[int32],
        range_of_split: Ptr[int32], output: Ptr[result], carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type],
        rows: int64, columns: int64, segments: int64, ranges: int64, split_rows: int64, splits: int64, empty: Scalar[accumulator_type(result)],
        correction: Scalar[state_type], ids_step: int64, input_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        pairs = cuda.shared.array(0, uint32)
        counters = cuda.shared.array(0, uint16)
        shared_ints = cuda.shared.array(0, int32)
        shared_states = cuda.shared.array(0, state_type)
        keys = cuda.local.array(RANGE_ROUNDS, int32)
        ranks = cuda.local.array(RANGE_ROUNDS, int32)
        source_rows = cuda.local.array(RANGE_ROUNDS, uint32)
        states = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(unroll, int32)
        block, thread = int32(cuda.blockIdx.x), int32(cuda.threadIdx.x)
        range_index, split_index, range_splits, first, end_row = int32(0), block, int32(splits), int64(0), int64(rows)
        carries = int64(0)
        if not single:
            if block >= split_offsets[ranges]:
                return
            range_index = range_of_split[block]
            split_index, range_splits = int32(block - split_offsets[range_index]), int32(split_offsets[range_index + 1] - split_offsets[range_index])
            first, end_row, carries = int64(begins[range_index]), int64(begins[range_index + 1]), int64(carry_offsets[range_index]) << RANGE_BITS
        first += int64(split_index) * split_rows
        rest = int32(min(end_row - first, split_rows))
        low, step = int64(range_index) << RANGE_BITS, ids_step if single else int64(1)
        lowest = unsigned(low)
        lane_id, warp = int32(cuda.laneid), int32(thread >> 5)
        group = int32(uint32(thread) // uint32(lanes))
        lane = int32(thread - group * lanes)
        column = int32(lane * vector)
        works = column < columns and group < groups
        size = int32(columns * width)
        input_offset, output_offset = offset_of(int64(column), shape, input_strides), offset_of(int64(column), shape, output_strides)
        own_states, head_states = int32(table + column * width), int32(table + (size << RANGE_BITS))
        reset(states)
        segment = group
        while segment < RANGE:
            if works:
                put(shared_states, own_states + segment * size, states)
            segment = int32(opaque(segment + groups))
        for k in range(2):
            shared_ints[uint32(SEGMENT_COUNTS + 2 * thread + k)] = int32(0)
        clear_counters(pairs, thread, RANGE // 2)
        # the key of at least half of the first rows
        key = key_of(ids[(first + min(thread, int32(rest - 1))) * step], lowest, thread < rest) if rest > 0 else int32(-1)
        frequent = frequent_of_warp(key)
        if thread == 0:
            shared_ints[uint32(GROUP_HEADS)] = frequent
        cuda.syncthreads()
        crowd = shared_ints[uint32(GROUP_HEADS)]
        if cuda.syncthreads_count(int32(key == crowd)) < THREADS // 2:
            crowd = int32(-1)
        if crowd >= 0:
            tile_row, found = group, int32(0)
            while works and tile_row < rest:
                for u in range(few):
                    at = int32(tile_row + u * groups)
                    row = first + min(at, int32(rest - 1))
                    batch_ids[u] = key_of(ids[row * step], lowest, at < rest)
                    source_rows[u] = uint32(permutation[row] if permuted else row)
                for u in range(few):
                    load(input, int64(source_rows[u]) * input_row + input_offset, batch, u * vector)
                for u in range(few):
                    if batch_ids[u] == crowd:
                        found = int32(found + 1)
                        add_row(states, batch, batch, u * vector, int64(source_rows[u]))
                tile_row = int32(opaque(tile_row + few * groups))
            combine_threads(shared_states, head_states, states)
            if works and group == 0:
                append_run(shared_states, own_states + crowd * size, states, scratch)
            if lane == 0:
                cuda.atomic.add(shared_ints, SEGMENT_COUNTS + crowd, found)
        while rest > 0:
            length = int32(min(rest, RANGE_TILE))
            begin = int32(warp * (32 * RANGE_ROUNDS) + lane_id)
            for k in range(RANGE_ROUNDS):
                at = int32(begin + 32 * k)
                row = first + min(at, int32(length - 1))
                keys[k] = key_of(ids[row * step], lowest, at < length)
                source_rows[k] = uint32(permutation[row] if permuted else row)
            cuda.syncthreads()
            if crowd >= 0:
                others = False
                for k in range(RANGE_ROUNDS):
                    keys[k] = int32(-1) if keys[k] == crowd else keys[k]
                    others |= keys[k] >= 0
                if cuda.syncthreads_or(int32(others)) == 0:
                    first, rest = first + length, int32(rest - length)
                    continue
            rank(counters, int32(warp * RANGE), keys, ranks)
            cuda.syncthreads()
            total = counters_sum(pairs, thread, RANGE // 2)
            even, odd = int32(total & 0xFFFF), int32(total >> 16)
            shared_ints[uint32(SEGMENT_COUNTS + 2 * thread)] += even
            shared_ints[uint32(SEGMENT_COUNTS + 2 * thread + 1)] += odd
            before, inside = scan(int32(even + odd))
            scan_counters(pairs, thread, RANGE // 2, uint32(before | (before + even) << 16))
            cuda.syncthreads()
            for k in range(RANGE_ROUNDS):
                if keys[k] >= 0:
                    slot = int32(int32(counters[uint32(warp * RANGE + keys[k])]) + ranks[k])
                    pairs[uint32(ORDERED_ROWS + slot)] = source_rows[k]
                    counters[uint32(2 * ORDERED_KEYS + slot)] = uint16(keys[k])
            cuda.syncthreads()
            clear_counters(pairs, thread, RANGE // 2)
            share = int32(uint32(inside + groups - 1) // uint32(groups))
            position = int32(group * share)
            end = int32(min(position + share, inside))
            kind, current = int32(HEAD), int32(-1)
            reset(states)
            if works and position < end:
                current = int32(counters[uint32(2 * ORDERED_KEYS + position)])
                if position > 0 and int32(counters[uint32(2 * ORDERED_KEYS + position - 1)]) == current:
                    kind = int32(MIDDLE)
                while position < end:
                    for u in range(unroll):
                        slot = int32(min(int32(position + u), int32(end - 1)))
                        batch_ids[u] = int32(counters[uint32(2 * ORDERED_KEYS + slot)])
                        load(input, int64(pairs[uint32(ORDERED_ROWS + slot)]) * input_row + input_offset, batch, u * vector)
                    for u in range(unroll):
                        if batch_ids[u] != current:
                            if kind == MIDDLE:
                                kind = int32(TAIL)
                                put(shared_states, head_states + thread * scalars, states)
                            else:
                                append_run(shared_states, own_states + current * size, states, scratch)
                            current = batch_ids[u]
                            reset(states)
                        if int32(position + u) < end:
                            add_row(states, batch, batch, u * vector, int64(pairs[uint32(ORDERED_ROWS + position + u)]))
                    position = int32(opaque(position + unroll))
                if kind == MIDDLE:
                    put(shared_states, head_states + thread * scalars, states)
            if lane == 0 and group < groups:
                shared_ints[uint32(GROUP_HEADS + group)] = kind
            if together > 1 and cuda.popc(cuda.ballot_sync(-1, kind == MIDDLE)) >= CROWD:
                goes_on, leads = False, kind == MIDDLE and group % together == 0
                cuda.syncwarp()
                if leads:
                    goes_on = combine_groups(shared_ints, shared_states, head_states, lane, int32(group + 1), int32(group + together), states)
                cuda.syncwarp()
                if leads:
                    put(shared_states, head_states + thread * scalars, states)
                    if lane == 0:
                        shared_ints[uint32(GROUP_HEADS + group)] = int32(MIDDLES) if goes_on else int32(TAIL)
            cuda.syncthreads()
            if current >= 0 and kind != MIDDLE:
                combine_groups(shared_ints, shared_states, head_states, lane, int32(group + 1), int32(groups), states)
                append_run(shared_states, own_states + current * size, states, scratch)
            first, rest = first + length, int32(rest - length)
        cuda.syncthreads()
        segment = group
        while works and segment < min(int64(RANGE), segments - low):
            get(shared_states, own_states + segment * size, states)
            count = int64(shared_ints[uint32(SEGMENT_COUNTS + segment)])
            if range_splits > 1:
                entry = carries + segment * range_splits + split_index
                save_run(carry_ids, carry_counts, carry_states, entry, entry * size + column * width, 1, column == 0, low + segment, count, states)
            elif count == 0:
                write_empty(output, low + segment, 1, output_row, output_offset, columns - column, empty)
            else:
                store_result(output, (low + segment) * output_row + output_offset, columns - column, states, count, correction)
            segment = int32(opaque(segment + groups))

    return fold_ranges
