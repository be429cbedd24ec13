"""How blocks share the carries of a fold. Kernels and launches share it. Imports no Numba."""

from __future__ import annotations

from ..core.axes import ceil_div, power_of_two
from ..core.sizes import plain
from .policy import FoldCarries


def carries_shape(policy: FoldCarries, entries: int, columns: int, vector: int) -> tuple[int, int, int]:
    """Columns of a thread, at most ``vector``, and lanes of a group, both powers of two, and carries of a group at a time."""
    width, known, threads, share = vector, plain(columns), policy.threads_per_block, policy.items_per_thread
    while True:
        lanes = min(policy.max_group_threads, power_of_two(known // width + 1) // 2)
        if carries_launch(entries, columns, width, lanes, threads, share)[0][0] >= policy.wide_blocks:
            return width, lanes, share
        if width == 1:
            break
        width //= 2
    while 2 * width <= min(vector, known // policy.chunks):
        width *= 2
    lanes = min(lanes, power_of_two(ceil_div(ceil_div(known, width), policy.chunks)))
    (blocks, _, _), _, chunks = carries_launch(entries, columns, width, lanes, threads, share)
    one_tile = blocks > max(chunks, policy.chunks) and entries < threads // lanes * 2 * share
    return width, lanes, 2 * share if one_tile else share


def carries_launch(
    entries: int, columns: int, vector: int, lanes: int, threads: int, share: int, joins: bool = False
) -> tuple[tuple[int, int, int], int, int]:  # fmt: skip
    """The launch that combines carries, of which a group has ``share`` at a time, how far tiles lie apart, and the number of chunks.

    Behind the last carry, the last tile has room for one more, as has each tile that is ``joined``. Of several other tiles, each leaves its last warp
    for the first carries of the next one, if it has several warps.
    """
    reach, chunks = threads // lanes * share, ceil_div(columns, lanes * vector)
    tile = reach - 1 if joins else reach if threads == 32 or entries < reach else reach - 32 // lanes * share
    return (ceil_div(entries, tile) * chunks, threads, 0), tile, chunks
