"""How places and rows are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.axes import ceil_div, power_of_two
from ..core.policy import tuned
from .policy import Elements, ScanLongColumns, ScanLongRows, ScanRows

#: bytes that memory is read by at most, where a tile had better begin
LINE_BYTES = Elements.line_bytes
#: words before those that blocks leave for one another
HEAD = 2


def steps_of(nbytes: int, vector: int, size: int) -> int:
    """Accesses of ``vector`` elements of ``size`` bytes for ``nbytes`` of a tile in a lane, as far as it may have so many; a power of two."""
    policy = tuned(Elements())
    most = min(min(nbytes // size, policy.max_elements_per_thread) // vector, policy.max_items_per_thread)
    return max(1, power_of_two(most + 1) // 2)


def dealt_row(policy: ScanRows, accesses: int, steps: int) -> tuple[int, int, int]:
    """(lanes, steps, threads) for rows of so many accesses: some lanes of a warp where these need few steps, else a block."""
    threads = policy.threads_per_block
    if accesses <= 32 * steps:
        steps = max(1, min(steps, power_of_two(accesses) // policy.adjacent_threads))
        return power_of_two(ceil_div(accesses, steps)), steps, threads
    threads = min(threads, max(64, power_of_two(ceil_div(accesses, steps))))
    return threads, steps, threads


def column_lanes(accesses: int, nbytes: int, beside: int) -> int:
    """Lanes beside each other, for rows that are ``accesses`` of ``nbytes`` wide where they are contiguous, ``beside`` bytes if there are as many."""
    return max(1, min(32, beside // nbytes, power_of_two(accesses)))


def pieces_of(bits: Sequence[int]) -> list[tuple[int, int]]:
    """(number of a 64-bit piece, shift in it) for each scalar of a state, of so many bits; two of 32 that follow one another share one."""
    places: list[tuple[int, int]] = []
    for each in bits:
        piece, shift = places[-1] if places else (-1, 32)
        places.append((piece, 32) if each == 32 and shift == 0 and bits[len(places) - 1] == 32 else (piece + 1, 0))
    return places


def resident_blocks(policy: ScanLongRows, tile_bytes: int) -> int:
    """Blocks that a multiprocessor should hold, each with a tile of so many bytes in shared memory."""
    return max(1, min(policy.min_blocks_per_multiprocessor, policy.shared_bytes_per_multiprocessor // tile_bytes) - policy.fewer_blocks)


def tall_tile(policy: ScanLongColumns, bits: Sequence[int], places: int, nbytes: int) -> tuple[int, int]:
    """(batches of so many places, their places) of a tile of columns, so that the words of its states are few beside its elements of ``nbytes``."""
    times = ceil_div(policy.bytes_per_status_byte * 16 * (pieces_of(bits)[-1][0] + 1), places * nbytes)
    return times, times * places


def group_of(policy: ScanLongColumns, strips: int) -> int:
    """Tiles of a strip that are joined at once."""
    return max(policy.min_group_tiles, min(policy.max_group_tiles, power_of_two(ceil_div(policy.concurrent_tiles, strips))))


def words_of(bits: Sequence[int], items: int) -> int:
    """64-bit words for chains of so many states."""
    return HEAD + 2 * items * (pieces_of(bits)[-1][0] + 1)
