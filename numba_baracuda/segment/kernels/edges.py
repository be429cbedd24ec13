"""Runs that cross tiles. The first and the last run of each tile, its edges, are saved in shared memory; those of each row block become carries."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...runtime import jit
from ..tiling import GAP
from .common import NOTHING, clamp
from .gaps import short_gap_fillers
from .lookback import ids_around, run_finisher_of
from .states import run_states_of


@functools.cache
def edge_functions_of(monoid: str, value: str, vector: int, result: str, store_vector: int = 0, apart: int = 0) -> tuple[Any, Any, Any]:
    """``save_edge``, ``save_last_edge`` and ``combine_edges`` for groups of ``lanes`` lanes with ``vector`` columns each.

    The edges of group g are entries 2 · g and 2 · g + 1. Their states are in shared memory from index ``base`` on: scalar k of lane l of edge e has
    number (e · scalars + k) · ``lanes`` + l. Columns of a lane are neighbours, or ``apart`` columns apart where that is not 0.
    """
    fold = run_states_of(monoid, value, vector, result, store_vector, apart)
    reset, combine_right, store_result, save_run, scalars = fold.reset, fold.combine_right, fold.store_result, fold.save_run, fold.scalars
    width, distance = scalars // vector, apart or 1

    @jit.device
    def save_edge(
        ids: Any, counts: Any, saved_states: Any, edge: Any, base: Any, lanes: Any, lane: Any, segment: Any, count: Any, states: Any
    ) -> None:  # fmt: skip
        save_run(ids, counts, saved_states, uint32(edge), uint32(base + edge * (lanes * scalars) + lane), lanes, lane == 0, segment, count, states)

    @jit.device
    def save_last_edge(
        ids: Any, counts: Any, saved_states: Any, edge: Any, leading: Any, base: Any, lanes: Any, lane: Any, segment: Any, count: Any, states: Any
    ) -> None:  # fmt: skip
        """Saves the tile's last run. Where that is the first, the ``leading`` edge, an edge of no rows follows it, so that ids of edges stay in
        order.
        """
        save_edge(ids, counts, saved_states, edge, base, lanes, lane, segment, count, states)
        if edge == leading:
            reset(states)
            save_edge(ids, counts, saved_states, edge + 1, base, lanes, lane, segment, 0, states)

    @jit.device
    def save_carry(ids: Any, counts: Any, saved_states: Any, carry: Any, column: Any, columns: Any, segment: Any, count: Any, states: Any) -> None:
        for v in range(vector):
            if v * distance < columns - column:
                for w in range(width):
                    saved_states[(carry * columns + column + v * distance) * width + w] = states[v * width + w]
        if column == 0:
            ids[carry] = segment
            counts[carry] = count

    @jit.device
    def combine_edges(
        edge_ids: Any, edge_counts: Any, edge_states: Any, carry_ids: Any, carry_counts: Any, carry_states: Any, states: Any,
        edges: Any, base: Any, lanes: Any, lane: Any, column: Any, columns: Any, segments: Any, row_block: Any, row_blocks: Any,
        output: Any, output_row: Any, output_offset: Any, correction: Any,
    ) -> None:  # fmt: skip
        """One group combines the block's edges in order: it stores runs inside the block; the block's first and last run become carries.

        ``states`` is scratch. One row block alone leaves no carries. ``edges`` is best computed from the launch: the compiler would unroll a
        constant.
        """
        reset(states)
        current, count, carry, left = edge_ids[0], int64(0), 2 * row_block, columns - column
        for edge in range(edges):
            if edge_ids[edge] != current:
                if carry == 2 * row_block and row_blocks > 1:
                    save_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
                    carry += 1
                elif 0 <= current < segments:
                    store_result(output, current * output_row + output_offset, left, states, count, correction)
                current, count = edge_ids[edge], int64(0)
                reset(states)
            # most tiles of long runs have an edge of no rows
            if edge_counts[edge] > 0:
                count += edge_counts[edge]
                combine_right(states, edge_states, uint32(base + edge * (lanes * scalars) + lane), lanes)
        if row_blocks > 1:
            save_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
            if carry == 2 * row_block:
                carry += 1
                reset(states)
                save_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, 0, states)
        elif 0 <= current < segments:
            store_result(output, current * output_row + output_offset, left, states, count, correction)

    return save_edge, save_last_edge, combine_edges


@functools.cache
def tile_end_of(
    monoid: str, value: str, columns: int, result: str, store_vector: int, fills: bool, looks_back: bool, longest: int = GAP
) -> Any:  # fmt: skip
    """``end(edge_ids, …, open_states, edge, current, begun, first, length, …)`` where each warp walks a tile, and lane 0 has what is open at its end.

    The run of id ``current`` from row ``begun`` of the tile on, whose states are ``open_states``, becomes edge ``edge``. Behind the last row of all a
    gap is filled. Then the block combines its edges, and leaves carries or looks back. All threads of the block call it.
    """
    _, save_last_edge, combine_edges = edge_functions_of(monoid, value, columns, result, store_vector)
    finish_runs = run_finisher_of(monoid, value, columns, result, store_vector)
    fill_short_gap, _ = short_gap_fillers("i64", result, columns, store_vector, fills=fills, longest=longest)

    @jit.device
    def end(
        edge_ids: Any, edge_counts: Any, edge_states: Any, carry_ids: Any, carry_counts: Any, carry_states: Any, run_status: Any, open_states: Any,
        edge: Any, current: Any, begun: Any, ids: Any, first: Any, length: Any, tile: Any, rows: Any,
        segments: Any, block: Any, row_blocks: Any, output: Any, output_row: Any, empty: Any, correction: Any,
    ) -> None:  # fmt: skip
        if cuda.laneid == 0:
            leading, segment = int32(cuda.threadIdx.x >> 5 << 1), clamp(current, segments)
            if length > 0 and first + length == rows:
                fill_short_gap(output, segment, segments, output_row, 0, columns, empty)
            save_last_edge(edge_ids, edge_counts, edge_states, edge, leading, 0, 1, 0, segment, length - begun, open_states)
        id_before, id_after, edges = int64(NOTHING), int64(NOTHING), cuda.blockDim.x >> 4
        if looks_back and cuda.threadIdx.x == 0:
            id_before, id_after = ids_around(ids, 1, block, (edges >> 1) * tile, rows, segments)
        cuda.syncthreads()
        if looks_back and cuda.threadIdx.x == 0:
            finish_runs(
                edge_ids, edge_counts, edge_states, run_status, open_states, edges, 0, 1, 0, id_before, id_after, 0, 1, columns, segments,
                block, row_blocks, output, output_row, 0, correction,
            )  # fmt: skip
        elif cuda.threadIdx.x == 0:
            combine_edges(
                edge_ids, edge_counts, edge_states, carry_ids, carry_counts, carry_states, open_states, edges, 0, 1, 0,
                0, columns, segments, block, row_blocks, output, output_row, 0, correction,
            )  # fmt: skip

    return end
