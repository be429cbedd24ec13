"""The fold of rows that lie range by range of their ids: the states of a range's segments in shared memory."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra import SUM, monoid_of
from ...core.dtypes import BY_NAME
from ...device.block import block_reduce, block_scan
from ...device.build import opaque
from ...device.vector import LOAD_DIRECT, LOAD_ONCE
from ...kernels.elements import place_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import fold_items
from ..tiling import BEGUN, HELD, ORDERED, RANGE, RANGE_BITS, RANGE_ROUNDS, RANGE_TILE, RANGE_WORDS, TALLIES, THREADS
from .common import first_at_least
from .gaps import blank_writer
from .ranks import clear, ranker_of, stack, total_of
from .states import fold_of

#: what a group's first rows are: a run of their own, the end of one that began before, or nothing but a piece of that
HEAD, TAIL, MIDDLE = 0, 1, 2


@jit.kernel
def split_ranges() -> Any:
    """Parts of at most ``part`` rows that ranges are folded in, from where their rows begin; a thread for each range.

    Range g has one part at least, and parts ``parts[g]`` to ``parts[g + 1]`` − 1 of all; ``owners[p]`` = the range of part p. ``split[g]`` counts the
    parts of earlier ranges that have several, and ``carried[0]`` the carries of all parts of these. Bytes: ranges · 4 read by every block.
    """
    total, scan = block_reduce(SUM, int32, THREADS), block_scan(SUM, int32, THREADS, exclusive=True)

    @jit.device
    def needed_for(begins: Any, owner: Any, part: Any) -> Any:
        return max(int32(uint32(begins[owner + 1] - begins[owner] + part - 1) // uint32(part)), int32(1))

    def split_ranges(
        begins: Ptr[int32], parts: Ptr[int32], split: Ptr[int32], owners: Ptr[int32], carried: Ptr[int32],
        ranges: int64, segments: int64, part: int64,
    ) -> None:  # fmt: skip
        ends = cuda.shared.array(THREADS, int32)
        thread = int32(cuda.threadIdx.x)
        first = int32(cuda.blockIdx.x * THREADS)
        pieces, cut = int32(0), int32(0)
        other = thread
        while other < first:
            needed = needed_for(begins, other, part)
            pieces, cut = int32(pieces + needed), int32(cut + (needed if needed > 1 else 0))
            other = int32(opaque(other + THREADS))
        pieces, cut = total(pieces), total(cut)
        mine = int32(first + thread)
        needed = needed_for(begins, mine, part) if mine < ranges else int32(0)
        before, all_needed = scan(needed)
        earlier = scan(needed if needed > 1 else int32(0))[0]
        if mine < ranges:
            parts[mine] = int32(pieces + before)
            split[mine] = int32(cut + earlier)
            if mine == ranges - 1:
                parts[ranges] = int32(pieces + all_needed)
                carried[0] = int32(((cut + earlier) << RANGE_BITS) + (needed * (segments - (int64(mine) << RANGE_BITS)) if needed > 1 else 0))
        ends[thread] = int32(before + needed)
        cuda.syncthreads()
        at = thread
        while at < all_needed:
            owners[pieces + at] = int32(first + first_at_least(ends, 1, 0, THREADS - 1, at + 1))
            at = int32(opaque(at + THREADS))

    return split_ranges


@jit.kernel
def fold_ranges(*, monoid: str, value: str, index: str, placed: bool, single: bool, vector: int, lanes: int, dims: int) -> Any:
    """Folds the rows of one part of a range into the states of the range's segments in shared memory.

    Range g are the ids that are g without their low ``RANGE_BITS`` bits; its rows lie from ``begins[g]`` on, in any order of their ids, and row r is
    ``input[places[r]]`` if ``placed``, else ``input[r]``. Of a ``single`` range the rows are all there are, and ids outside it are left out; of
    several they are split as ``split_ranges`` says.

    Tile by tile the block puts rows in the order of their segments, stably. A group of ``lanes`` lanes, each with ``vector`` columns, then takes an
    equal share of them, several rows in flight, and adds every run that ends in it to its segment's state; the group in which a run begins adds what
    later groups have of it, in order. So the order of every fold is fixed by the rows and the size of parts. A range of one part is stored, empty
    segments as ``empty``; each of several parts leaves a carry for every segment. Dynamic shared memory: ``RANGE_WORDS`` words, a state for every
    segment and column, and one for every thread and column. Bytes: rows · (index + place + columns · value) read, columns · value written a segment.
    Method: partition, then aggregate, as in Ye, Ross and Vesdapunt, "Scalable aggregation on multicore processors" (DaMoN 2011).
    """
    fold, rank = fold_of(monoid, value, vector), ranker_of(RANGE_ROUNDS)
    element, state_type, scalars = jit.SCALARS[value], fold.state_type, fold.scalars
    reset, take, join, precede, park, write = fold.reset, fold.take, fold.join, fold.precede, fold.park, fold.write
    write_empty, place, scan = blank_writer(value, vector), place_of(dims), block_scan(SUM, int32, THREADS, exclusive=True)
    load = LOAD_DIRECT[vector] if placed else LOAD_ONCE[vector]
    # no more rows in flight than a group of one lane has in a tile
    unroll = min(fold_items(vector * BY_NAME[value].itemsize, BY_NAME[index].itemsize, vector, monoid_of(monoid)), RANGE_ROUNDS)
    groups, batch_size, width, table = THREADS // lanes, unroll * vector, scalars // vector, RANGE_WORDS * 32 // state_type.bitwidth

    @jit.device
    def put(kept: Any, at: Any, states: Any) -> None:
        for k in range(scalars):
            kept[uint32(at + k)] = states[k]

    @jit.device
    def get(kept: Any, at: Any, states: Any) -> None:
        for k in range(scalars):
            states[k] = kept[uint32(at + k)]

    @jit.device
    def close(kept: Any, at: Any, states: Any, scratch: Any) -> None:
        """A run joins its segment's state from the right."""
        get(kept, at, scratch)
        precede(states, scratch)
        put(kept, at, states)

    def fold_ranges(
        ids: Ptr[index], places: Ptr[int32], input: Ptr[value], begins: Ptr[int32], parts: Ptr[int32], split: Ptr[int32], owners: Ptr[int32],
        output: Ptr[value], carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type],
        rows: int64, columns: int64, segments: int64, ranges: int64, part: int64, pieces: int64, empty: Scalar[state_type],
        correction: Scalar[state_type], ids_step: int64, input_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        pairs = cuda.shared.array(0, uint32)
        counters = cuda.shared.array(0, uint16)
        numbers = cuda.shared.array(0, int32)
        kept = cuda.shared.array(0, state_type)
        keys = cuda.local.array(RANGE_ROUNDS, int32)
        ranks = cuda.local.array(RANGE_ROUNDS, int32)
        held = cuda.local.array(RANGE_ROUNDS, uint32)
        states = cuda.local.array(scalars, state_type)
        scratch = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(unroll, int32)
        block, thread = int32(cuda.blockIdx.x), int32(cuda.threadIdx.x)
        owner, piece, of_owner, first, end_row = int32(0), block, int32(pieces), int64(0), int64(rows)
        carries = int64(0)
        if not single:
            if block >= parts[ranges]:
                return
            owner = owners[block]
            piece, of_owner = int32(block - parts[owner]), int32(parts[owner + 1] - parts[owner])
            first, end_row, carries = int64(begins[owner]), int64(begins[owner + 1]), int64(split[owner]) << RANGE_BITS
        first += int64(piece) * part
        rest = int32(min(end_row - first, part))
        low = int64(owner) << RANGE_BITS
        lane_id, warp = int32(cuda.laneid), int32(thread >> 5)
        group = int32(uint32(thread) // uint32(lanes))
        lane = int32(thread - group * lanes)
        column = int32(lane * vector)
        works = column < columns and group < groups
        size = int32(columns * width)
        input_offset, output_offset = place(int64(column), shape, input_strides), place(int64(column), shape, output_strides)
        mine, leads = int32(table + column * width), int32(table + (size << RANGE_BITS))
        reset(states)
        segment = group
        while segment < RANGE:
            if works:
                put(kept, mine + segment * size, states)
            segment = int32(opaque(segment + groups))
        for k in range(2):
            numbers[uint32(TALLIES + 2 * thread + k)] = int32(0)
        clear(pairs, thread, RANGE // 2)
        while rest > 0:
            length = int32(min(rest, RANGE_TILE))
            begin = int32(warp * (32 * RANGE_ROUNDS) + lane_id)
            for k in range(RANGE_ROUNDS):
                row = first + min(begin + 32 * k, length - 1)
                local = int64(ids[row * ids_step]) - low
                keys[k] = int32(local) if begin + 32 * k < length and 0 <= local < RANGE else int32(-1)
                held[k] = uint32(places[row] if placed else row)
            cuda.syncthreads()
            rank(counters, int32(warp * RANGE), keys, ranks)
            cuda.syncthreads()
            total = total_of(pairs, thread, RANGE // 2)
            even, odd = int32(total & 0xFFFF), int32(total >> 16)
            numbers[uint32(TALLIES + 2 * thread)] += even
            numbers[uint32(TALLIES + 2 * thread + 1)] += odd
            before, inside = scan(int32(even + odd))
            stack(pairs, thread, RANGE // 2, uint32(before | (before + even) << 16))
            cuda.syncthreads()
            for k in range(RANGE_ROUNDS):
                if keys[k] >= 0:
                    at = int32(int32(counters[uint32(warp * RANGE + keys[k])]) + ranks[k])
                    pairs[uint32(HELD + at)] = held[k]
                    counters[uint32(2 * ORDERED + at)] = uint16(keys[k])
            cuda.syncthreads()
            clear(pairs, thread, RANGE // 2)
            share = int32(uint32(inside + groups - 1) // uint32(groups))
            position = int32(group * share)
            end = int32(min(position + share, inside))
            kind, current = int32(HEAD), int32(-1)
            reset(states)
            if works and position < end:
                current = int32(counters[uint32(2 * ORDERED + position)])
                if position > 0 and int32(counters[uint32(2 * ORDERED + position - 1)]) == current:
                    kind = int32(MIDDLE)
                while position < end:
                    for u in range(unroll):
                        at = int32(min(position + u, end - 1))
                        batch_ids[u] = int32(counters[uint32(2 * ORDERED + at)])
                        load(input, int64(pairs[uint32(HELD + at)]) * input_row + input_offset, batch, u * vector)
                    for u in range(unroll):
                        if batch_ids[u] != current:
                            if kind == MIDDLE:
                                kind = int32(TAIL)
                                put(kept, leads + thread * scalars, states)
                            else:
                                close(kept, mine + current * size, states, scratch)
                            current = batch_ids[u]
                            reset(states)
                        if position + u < end:
                            take(states, batch, batch, u * vector, 0)
                    position = int32(opaque(position + unroll))
                if kind == MIDDLE:
                    put(kept, leads + thread * scalars, states)
            if lane == 0 and group < groups:
                numbers[uint32(BEGUN + group)] = kind
            cuda.syncthreads()
            if current >= 0 and kind != MIDDLE:
                other = int32(group + 1)
                while other < groups and numbers[uint32(BEGUN + other)] != HEAD:
                    join(states, kept, leads + (other * lanes + lane) * scalars, 1)
                    other = int32(opaque(other + 1 if numbers[uint32(BEGUN + other)] == MIDDLE else groups))
                close(kept, mine + current * size, states, scratch)
            first, rest = first + length, int32(rest - length)
        cuda.syncthreads()
        segment = group
        while works and segment < min(int64(RANGE), segments - low):
            get(kept, mine + segment * size, states)
            count = int64(numbers[uint32(TALLIES + segment)])
            if of_owner > 1:
                entry = carries + segment * of_owner + piece
                park(carry_ids, carry_counts, carry_states, entry, entry * size + column * width, 1, column == 0, low + segment, count, states)
            elif count == 0:
                write_empty(output, low + segment, low + segment + 1, output_row, output_offset, empty)
            else:
                write(output, (low + segment) * output_row + output_offset, states, count, correction)
            segment = int32(opaque(segment + groups))

    return fold_ranges
