"""Stages of rows in shared memory: how many rows they have, which columns a lane takes, and their bytes. Kernels and recipes share it."""

from __future__ import annotations

from ..core.axes import ceil_div
from ..core.sizes import greatest, least
from .policy import FoldAndBroadcast, FoldAndBroadcastStaged, FoldStaged

#: rows that a block of ``fold_and_broadcast_staged`` has at most, of which a thread has a few
STAGED_ROWS = 1024


def staged_rows(policy: FoldStaged, row_bytes: int, id_bytes: int, itemsize: int, rows: int, multiprocessors: int) -> int:
    """Rows of a stage of the staged fold, 1024 at most: such that rows and ids are multiples of 16 bytes; 0 where they are too wide.

    There are fewer where a wave would have too few blocks: as many for ids of 4 and of 8 bytes, so that the order of a small fold is the same.
    """
    unit = 16 // min(itemsize, 4)
    most = min(policy.stage_bytes // (row_bytes + id_bytes + 2) // unit * unit, 1024)
    share = ceil_div(rows, policy.least_blocks_per_multiprocessor * multiprocessors * (policy.threads_per_block // 32) * unit)
    return min(most, max(1, share) * unit)


def staged_columns(policy: FoldStaged, columns: int, vector: int, may_spread: bool, halves: bool = False, short: bool = False) -> tuple[int, int]:
    """Columns of a lane of ``fold_staged`` where operands allow vectors of ``vector`` elements, and how far they lie apart, as they ``may``; or 0.

    Of many columns that are no vectors it has 4 or 3: as many as leave fewer lanes idle where a run is long, and shared by a power of two lanes. Of
    ``halves`` whose states are one scalar it has more, and neighbours, so that one load of a word brings two, even where vectors have two. Of few
    others, fewer where runs are ``short``, it has one, but all of three.
    """
    few_columns = policy.short_few_columns if short else policy.few_columns
    most, narrow, few = (policy.halves_per_thread, 2, 0) if halves else (policy.columns_per_thread, 1, few_columns)
    if vector > narrow or most < 3 or not may_spread or 3 != columns <= few:
        return min(vector, most), 0

    def busy(count: int) -> float:
        lanes = ceil_div(columns, count)
        used = lanes << (32 // lanes).bit_length() - 1 if lanes <= 32 else lanes
        return columns * used / (count * lanes * ceil_div(used, 32) * 32)

    count = max(range(most, most // 2, -1), key=busy)
    return count, 1 if halves else ceil_div(columns, count)


def staged_bytes(policy: FoldStaged, stage: int, row_bytes: int, id_bytes: int, states_bytes: int) -> int:
    """Bytes of shared memory of the staged fold: of each warp a stage, the states of two edges, and the numbers of heads, of 16 bits."""
    return policy.threads_per_block // 32 * (stage * (row_bytes + id_bytes) + 2 * states_bytes + 2 * stage + 4)


def staged_runs_rows(policy: FoldAndBroadcastStaged, row_bytes: int, id_bytes: int, itemsize: int) -> tuple[int, int]:
    """Rows of a tile of ``fold_and_broadcast_staged``, and of what may lie behind it: such that rows and ids of both are multiples of 16 bytes.

    A tile has 0 rows where there is no room for it.
    """
    reach, unit, both_bytes = 2 * policy.long_rows, 16 // min(itemsize, id_bytes), row_bytes + id_bytes
    room = (policy.shared_bytes_per_block - reach * both_bytes - 2) // (both_bytes + 4)
    tile = max(unit, min(policy.stage_bytes // row_bytes, STAGED_ROWS - reach, room) // unit * unit)
    return tile if policy.min_tile_rows <= tile <= room else 0, reach


def staged_runs_columns(policy: FoldAndBroadcastStaged, columns: int) -> tuple[int, int, bool]:
    """Lanes that have a row of ``fold_and_broadcast_staged``, columns of each, and whether these lie apart.

    What a lane does once for a run is shared by its columns. Of an odd number, neighbours would be no vectors.
    """
    most = policy.columns_per_thread
    vector = 3 if most == 3 and columns % 6 == 3 else 2 if most > 1 and (columns % 2 == 0 or columns > 4) else 1
    return ceil_div(columns, vector), vector, vector > 1 and columns % 2 == 1


def staged_runs_bytes(tile: int, reach: int, row_bytes: int, id_bytes: int) -> int:
    """Bytes of its shared memory: rows of ``row_bytes`` in all operands, their ids, and where runs begin and in which order they come, of 16 bits."""
    return (tile + reach) * (row_bytes + id_bytes) + 2 * (2 * tile + 1)


def held_rows(policy: FoldAndBroadcast, row_bytes: int, given_bytes: int, rows: int, segments: int, most_rows: int) -> tuple[int, int, int]:
    """Rows of a tile of ``fold_and_broadcast_runs``, rows that a block holds, ``most_rows`` at most, and segments; 0 where segments are too long.

    Each row has ``row_bytes`` in all operands, each segment ``given_bytes``. Behind the rows of a tile there is room for those of one and a half
    segments, and for half as many segments more than in the mean.
    """
    both_bytes = row_bytes + 3 * segments * given_bytes // (2 * rows)
    most = least(policy.most_held_bytes // both_bytes, most_rows)
    if policy.held_segments * rows > most * segments:
        return 0, 0, 0
    room = least(greatest(policy.held_bytes // both_bytes, ceil_div(policy.wanted_segments * rows, segments)), most)
    return room - 3 * rows // (2 * segments), room, least(room, 3 * room * segments // (2 * rows) + 4)


def held_bytes(room: int, row_bytes: int, operands: int, most: int, given_bytes: int) -> int:
    """Bytes of its shared memory: rows of ``row_bytes`` in all operands, of which each has a piece before it and one behind it, and what is given."""
    return room * row_bytes + 32 * operands + most * given_bytes
