"""Runs that cross tiles. The first and the last run of each tile, its edges, are saved in shared memory; those of each row block become carries."""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda.types import int64

from ...runtime import jit
from .states import run_states_of


@functools.cache
def edge_functions_of(
    monoid: str, value: str, vector: int, result: str, lanes: int, store_vector: int = 0, apart: int = 0
) -> tuple[Any, Any, Any]:  # fmt: skip
    """``save_edge``, ``save_last_edge`` and ``combine_edges`` for groups of ``lanes`` lanes with ``vector`` columns each.

    The edges of group g are entries 2 · g and 2 · g + 1. Columns of a lane are neighbours, or ``apart`` columns apart where that is not 0.
    """
    fold = run_states_of(monoid, value, vector, result, store_vector, apart)
    reset, combine_right, store_result, save_run, scalars = fold.reset, fold.combine_right, fold.store_result, fold.save_run, fold.scalars
    edge_size, width, distance = lanes * scalars, scalars // vector, apart or 1

    @jit.device
    def save_edge(ids: Any, counts: Any, saved_states: Any, edge: Any, lane: Any, segment: Any, count: Any, states: Any) -> None:
        save_run(ids, counts, saved_states, edge, edge * edge_size + lane, lanes, lane == 0, segment, count, states)

    @jit.device
    def save_last_edge(ids: Any, counts: Any, saved_states: Any, edge: Any, leading: Any, lane: Any, segment: Any, count: Any, states: Any) -> None:
        """Saves the tile's last run. Where that is the first, the ``leading`` edge, an edge of no rows follows it, so that ids of edges stay in
        order.
        """
        save_edge(ids, counts, saved_states, edge, lane, segment, count, states)
        if edge == leading:
            reset(states)
            save_edge(ids, counts, saved_states, edge + 1, lane, segment, 0, states)

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
        edges: Any, lane: Any, column: Any, columns: Any, segments: Any, row_block: Any, row_blocks: Any,
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
            count += edge_counts[edge]
            combine_right(states, edge_states, edge * edge_size + lane, lanes)
        if row_blocks > 1:
            save_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
            if carry == 2 * row_block:
                carry += 1
                reset(states)
                save_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, 0, states)
        elif 0 <= current < segments:
            store_result(output, current * output_row + output_offset, left, states, count, correction)

    return save_edge, save_last_edge, combine_edges
