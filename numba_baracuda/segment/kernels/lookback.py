"""Runs that cross row blocks, by decoupled look-back: a block publishes its last run so far, and finishes its first run if that ends in it.

A *status* in global memory has the states and the rows of a run, as far as they are known: START if the run begins there, else THROUGH. Each block
but the last publishes that of its last run, before it waits. Blocks also make up aligned *spans* of 4, 16, 64 … blocks; the last block of a span
publishes the status of the span's last run, too, for which it waits at most for the three parts before its own. A block that ends a run of others
walks back over the longest spans until one is START, as the first block's status is. So a block waits only for blocks before it, whatever the ids
are, and shapes and ids fix the order of every fold.

A lane's status is of 128-bit words, each with a part of the states and the flag, stored and loaded at once, so no fence is needed. Memory of
statuses is zero before the launch. Sources: Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back" (2016).
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...device.build import opaque
from ...device.order import load_relaxed_2, store_relaxed_2
from ...kernels.elements import bit_casts
from ...runtime import jit
from ..statuses import SPAN_BITS, status_words
from .common import NOTHING, clamp
from .states import run_states_of

#: flags of a status, whose rows are in the bits above: its run begins in the block or the span, or has begun before
START, THROUGH, FLAG_BITS = 1, 2, 2


@jit.device
def statuses_before(block: Any) -> Any:
    """How many statuses the blocks before ``block`` publish: one each, and one for each span that ends with them.

    That is Σ ⌊block / 4ⁿ⌋, or a third of 4 · block less the sum of the digits of ``block`` to the base 4.
    """
    digits = int32(cuda.popc(uint32(block))) + int32(cuda.popc(uint32(block) & uint32(0xAAAAAAAA)))
    return int32(uint32(int32(block << 2) - digits) // uint32(3))


@jit.device
def ids_around(ids: Any, ids_step: Any, row_block: Any, block_rows: Any, rows: Any, segments: Any) -> tuple[Any, Any]:
    """The clamped ids of the rows before and behind those of a block, which has up to ``block_rows``; ``NOTHING`` where there is no such row."""
    first, end = row_block * block_rows, (row_block + 1) * block_rows
    before = clamp(ids[(first - 1) * ids_step], segments) if first > 0 else int64(NOTHING)
    after = clamp(ids[end * ids_step], segments) if end < rows else int64(NOTHING)
    return before, after


@functools.cache
def run_finisher_of(monoid: str, value: str, vector: int, result: str, store_vector: int = 0, apart: int = 0) -> Any:
    """``finish_runs`` for the edges of :func:`~.edges.edge_functions_of` these."""
    fold = run_states_of(monoid, value, vector, result, store_vector, apart)
    reset, combine_left, combine_right, store_result = fold.reset, fold.combine_left, fold.combine_right, fold.store_result
    scalars, state_type, counts = fold.scalars, fold.state_type, monoid_of(monoid).counts
    words, held, flag_shift = status_words(scalars, state_type.bitwidth // 8), 128 // state_type.bitwidth - 1, 64 - state_type.bitwidth
    status_size, (to_bits, from_bits) = 2 * words, bit_casts(state_type)

    @jit.device
    def publish(run_status: Any, place: Any, places: Any, states: Any, count: Any, flag: Any) -> None:
        word, tag = cuda.local.array(2, int64), int64(flag)
        if counts:
            tag |= int64(count) << FLAG_BITS
        for w in range(words):
            k = w * held
            word[0], word[1] = to_bits(states[k]), tag << flag_shift
            if held > 1:
                if k + 1 < scalars:
                    word[0] |= to_bits(states[k + 1]) << 32
                if k + 2 < scalars:
                    word[1] |= to_bits(states[k + 2])
            store_relaxed_2(run_status, (place + w * places) << 1, word, 0)

    @jit.device
    def place_of(block: Any, level: Any, lane_place: Any, places: Any) -> Any:
        """Where the first word of a status is, in words: that of the span of 4 ^ ``level`` blocks which ends with ``block``."""
        return (int64(statuses_before(block)) + level) * (words * places) + lane_place

    @jit.device
    def prepend(run_status: Any, first: Any, level: Any, lane_place: Any, places: Any, states: Any, count: Any, earlier: Any) -> tuple[Any, Any, Any]:
        """Waits for the status of the span of 4 ^ ``level`` blocks before ``first``, and combines the states and their rows with its.

        Returns (rows, whether their run has begun before the span, the span's first block).
        """
        status, place = cuda.local.array(status_size, int64), place_of(first - 1, level, lane_place, places)
        missing = True
        while missing:
            missing = False
            for w in range(words):
                load_relaxed_2(run_status, (place + w * places) << 1, status, 2 * w)
            for w in range(words):
                if status[2 * w + 1] >> flag_shift == 0:
                    missing = True
        for w in range(words):
            k = w * held
            earlier[k] = from_bits(status[2 * w])
            if held > 1:
                if k + 1 < scalars:
                    earlier[k + 1] = from_bits(status[2 * w] >> 32)
                if k + 2 < scalars:
                    earlier[k + 2] = from_bits(status[2 * w + 1])
        combine_left(states, earlier)
        tag = status[1] >> flag_shift
        return count + (tag >> FLAG_BITS), tag & THROUGH != 0, int32(first - (1 << (SPAN_BITS * level)))

    @jit.device
    def finish_runs(
        edge_ids: Any, edge_counts: Any, edge_states: Any, run_status: Any, states: Any,
        edges: Any, base: Any, lanes: Any, lane: Any, before: Any, after: Any, lane_place: Any, places: Any, left: Any, segments: Any,
        row_block: Any, row_blocks: Any, output: Any, output_row: Any, output_offset: Any, correction: Any,
    ) -> None:  # fmt: skip
        """One group combines the block's edges in order, from the last run to the first: it publishes the last, and stores all that end in the block.

        ``before`` and ``after`` are :func:`ids_around` the block. The lane is number ``lane_place`` of the ``places`` lanes that have statuses.
        ``states`` is scratch; see ``combine_edges``.
        """
        earlier = cuda.local.array(scalars, state_type)
        block, begins_before, goes_on, end = int32(row_block), before == edge_ids[0], after == edge_ids[edges - 1], int32(edges)
        last = end
        while end > 0:
            current, begin = edge_ids[end - 1], int32(end - 1)
            while begin > 0 and edge_ids[begin - 1] == current:
                begin = int32(begin - 1)
            reset(states)
            count, edge = int64(0), begin
            while edge < end:
                # most tiles of long runs have an edge of no rows
                if edge_counts[edge] > 0:
                    count += edge_counts[edge]
                    combine_right(states, edge_states, uint32(base + edge * (lanes * scalars) + lane), lanes)
                edge = int32(opaque(edge + 1))
            # the states are those of all blocks from ``first`` on; whether their run has begun before
            first, begun, ends = block, begin == 0 and begins_before, end < last or not goes_on
            if end == last and block + 1 < row_blocks:
                level, parts = int32(0), int32(block + 1)
                publish(run_status, place_of(block, 0, lane_place, places), places, states, count, THROUGH if begun else START)
                while parts & ((1 << SPAN_BITS) - 1) == 0:
                    parts = int32(parts >> SPAN_BITS)
                    start = int32(int32(parts - 1) << (SPAN_BITS * (level + 1)))
                    while begun and first > start:
                        count, begun, first = prepend(run_status, first, level, lane_place, places, states, count, earlier)
                    level = int32(level + 1)
                    publish(run_status, place_of(block, level, lane_place, places), places, states, count, THROUGH if begun else START)
            if ends and 0 <= current < segments:
                while begun:
                    level = int32(int32(cuda.ffs(first) - 1) >> (SPAN_BITS - 1))
                    count, begun, first = prepend(run_status, first, level, lane_place, places, states, count, earlier)
                store_result(output, current * output_row + output_offset, left, states, count, correction)
            end = begin

    return finish_runs
