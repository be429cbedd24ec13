"""How blocks share contiguous rows of any width, element by element. Imports no Numba."""

from __future__ import annotations

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.sizes import greatest, least, plain
from .policy import BroadcastFlat, BroadcastRuns, GatherFlat


def flat_ids(index: str) -> int:
    """Ids that a block of the flat gather has at most."""
    return GatherFlat.id_bytes // BY_NAME[index].itemsize


def flat_height(element: str, vector: int, lane_vectors: int) -> int:
    """Rows whose loads a thread of the flat gather issues before it stores the first; narrow elements have registers of their own."""
    registers = lane_vectors * max(1, vector * BY_NAME[element].itemsize // 4)
    return max(1, min(GatherFlat.max_rows_per_thread, GatherFlat.registers_per_thread // registers))


def flat_tile(policy: GatherFlat, rows: int, columns: int, element: str, index: str, multiprocessors: int, together: int) -> int:
    """Rows that a block of the flat gather stores, a multiple of 16 bytes: in whole rounds of those that its threads have ``together``, if it can.

    It has fewer where multiprocessors would be idle.
    """
    value = BY_NAME[element]
    most = min(policy.tile_bytes // (columns * value.itemsize), flat_ids(index))
    rows_each = ceil_div(rows, policy.grid_blocks_per_multiprocessor * multiprocessors)
    step = together if together <= most and together <= rows_each else value.vector
    return max(1, min(most // step, ceil_div(rows_each, step))) * step


def flat_lanes(columns: int, vector: int) -> tuple[int, int]:
    """Lanes of a row of the flat gather, and vectors that each has at a time: all of them, or an even number."""
    most, vectors = GatherFlat.lane_vectors, plain(ceil_div(columns, vector))
    lanes = min(32, power_of_two(ceil_div(vectors, most)))
    return lanes, vectors if lanes == 1 else min(most, 2 * ceil_div(vectors, 2 * lanes))


def broadcast_tile(policy: BroadcastFlat, elements: int, vector: int, multiprocessors: int) -> int:
    """Elements that a block of the flat broadcast has, in pieces of ``vector``: a multiple of those in flight."""
    in_flight = policy.items_per_thread * policy.threads_per_block * vector
    rounds = elements // (in_flight * policy.grid_blocks_per_multiprocessor * multiprocessors)
    tile: int = greatest(1, least(rounds, policy.tile_elements // in_flight)) * in_flight
    return tile


def runs_tile(policy: BroadcastRuns, rows: int, pieces: int, multiprocessors: int) -> int:
    """Rows that a block of ``broadcast_runs`` has, of so many pieces each: a multiple of those in flight."""
    in_flight = policy.items_per_thread * (policy.threads_per_block // pieces)
    turns = rows // (in_flight * policy.grid_blocks_per_multiprocessor * multiprocessors)
    tile: int = greatest(1, least(turns, policy.max_turns)) * in_flight
    return tile


def runs_launch(threads: int, rows: int, pieces: int, tile: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes of ``broadcast_runs``: whole warps for as many rows side by side as a block has ``threads`` for."""
    return ceil_div(rows, tile), ceil_div(threads // pieces * pieces, 32) * 32, 0


def rows_met(elements: int, columns: int) -> int:
    """The rows that so many neighbouring elements meet at most, and one behind them."""
    return elements // columns + 3


def flat_launch(elements: int, tile: int, tile_rows: int, threads: int, ids: int, divided: bool = False) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes of the flat broadcast: a word for each row, and for all ``ids`` that each thread loads in the last turn.

    Where it is ``divided``, two.
    """
    turn = threads * ids
    return ceil_div(elements, tile), threads, (8 if divided else 4) * turn * ceil_div(tile_rows, turn)
