"""Runs that cross tiles: the first and the last run of each tile, the edges, meet in shared memory; those of each row block become carries."""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda.types import int64

from ...runtime import jit
from .states import fold_of


@functools.cache
def edges_of(monoid: str, value: str, vector: int, result: str, lanes: int, access: int = 0) -> tuple[Any, Any, Any]:
    """``park_edge``, ``park_last_edge`` and ``join_edges`` for groups of ``lanes`` lanes with ``vector`` columns each.

    A group's edges are 2 · group and the next.
    """
    fold = fold_of(monoid, value, vector, result, access)
    reset, join, write, park, scalars = fold.reset, fold.join, fold.write, fold.park, fold.scalars
    edge_size, width = lanes * scalars, scalars // vector

    @jit.device
    def park_edge(ids: Any, counts: Any, kept: Any, edge: Any, lane: Any, segment: Any, count: Any, states: Any) -> None:
        park(ids, counts, kept, edge, edge * edge_size + lane, lanes, lane == 0, segment, count, states)

    @jit.device
    def park_last_edge(ids: Any, counts: Any, kept: Any, edge: Any, leading: Any, lane: Any, segment: Any, count: Any, states: Any) -> None:
        """Parks the tile's last run, which may be its first, the ``leading`` edge: then an empty twin keeps the ids of the edges in order."""
        park_edge(ids, counts, kept, edge, lane, segment, count, states)
        if edge == leading:
            reset(states)
            park_edge(ids, counts, kept, edge + 1, lane, segment, 0, states)

    @jit.device
    def park_carry(ids: Any, counts: Any, kept: Any, carry: Any, column: Any, columns: Any, segment: Any, count: Any, states: Any) -> None:
        park(ids, counts, kept, carry, (carry * columns + column) * width, 1, column == 0, segment, count, states)

    @jit.device
    def join_edges(
        edge_ids: Any, edge_counts: Any, edge_states: Any, carry_ids: Any, carry_counts: Any, carry_states: Any, states: Any,
        edges: Any, lane: Any, column: Any, columns: Any, segments: Any, row_block: Any, row_blocks: Any,
        output: Any, output_row: Any, output_offset: Any, correction: Any,
    ) -> None:  # fmt: skip
        """One group joins the block's edges in order: runs inside the block are stored, its first and its last run become carries.

        ``states`` is scratch. With one row block nothing is carried. ``edges`` is best computed from the launch: a constant would be unrolled.
        """
        reset(states)
        current, count, carry = edge_ids[0], int64(0), 2 * row_block
        for edge in range(edges):
            if edge_ids[edge] != current:
                if carry == 2 * row_block and row_blocks > 1:
                    park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
                    carry += 1
                elif 0 <= current < segments:
                    write(output, current * output_row + output_offset, states, count, correction)
                current, count = edge_ids[edge], int64(0)
                reset(states)
            count += edge_counts[edge]
            join(states, edge_states, edge * edge_size + lane, lanes)
        if row_blocks > 1:
            park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
            if carry == 2 * row_block:
                carry += 1
                reset(states)
                park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, 0, states)
        elif 0 <= current < segments:
            write(output, current * output_row + output_offset, states, count, correction)

    return park_edge, park_last_edge, join_edges
