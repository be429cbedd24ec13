"""Ids that crowd: a block finds some among its first rows, and what it adds to them stays in its shared memory until the end.

Additions to one address of global memory wait for each other, and so do those of all blocks to an id that many rows have. To a lesser degree that
holds for neighbours in memory. So the table that a block makes is of sectors, which are the ids whose results share 32 bytes.
"""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, uint32

from ...device.build import opaque
from ...runtime import jit
from ..policy import Crowds

SLOTS = 512  #: of a block's table. A sector belongs in one of them.
_SHIFT = 32 - 9  #: from 32 bits to those of a slot
_SECTOR_BYTES = 32
TOGETHER = 2  #: sampled rows whose loads a thread issues before it uses the first; it reads them again, from L1, where it needs them again


def sector_shift(id_bytes: int) -> int:
    """How many bits of an id tell it from others of its sector: none where its bytes do not fill 32 evenly."""
    return (_SECTOR_BYTES // id_bytes).bit_length() - 1 if _SECTOR_BYTES % id_bytes == 0 else 0


@jit.device
def slot_of(key: Any) -> Any:
    """The slot of a sector, by Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, section 6.4).

    Each block has another function, so sectors that meet in a slot of one block, which has room for one of them, seldom meet in others.
    """
    mixed = uint32(uint32(key) ^ uint32(uint32(cuda.blockIdx.x) * uint32(0x85EBCA6B)))
    return int32(uint32(mixed * uint32(0x9E3779B9)) >> uint32(_SHIFT))


@functools.cache
def table_of(index: str, threads: int, sampled: int, capacity: int, shift: int) -> Any:
    """(``find``, ``place_of``) of a table of at most ``capacity`` sectors of 2^``shift`` ids, for blocks of so many threads.

    ``find(ids, first, step, rows, ids_step, least, last, other, keys, numbers)``: whether a fair share of rows ``first + k · step``, k < ``sampled``,
    each thread with others, has ids that crowd, among ids of [``least``, ``last``] but ``other``, which may differ between warps. If so,
    ``keys[slot]`` is then the sector of a slot, or −1, and ``numbers[slot]`` its number among all of them. ``keys`` [SLOTS] and ``numbers``
    [SLOTS + 1] are in shared memory. All threads of the block call it.

    ``place_of(keys, numbers, identifier)``: the place of an id, 0 or more, among those of all sectors, in [0, capacity · 2^shift), or −1.
    """
    index_type, mask = jit.SCALARS[index], (1 << shift) - 1
    least_rows = max(2 + sampled // 2, sampled * threads // (2 * capacity))
    least_threads = threads // Crowds.threads_for_each

    @jit.device
    def load(ids: Any, first: Any, step: Any, rows: Any, ids_step: Any, least: Any, last: Any, other: Any, sectors: Any) -> None:
        """The sectors of some rows, or −1."""
        for u in range(TOGETHER):
            row = first + u * step
            sectors[u] = ids[row * ids_step] if row < rows else index_type(-1)
        for u in range(TOGETHER):
            sectors[u] = sectors[u] >> shift if sectors[u] != other and least <= sectors[u] <= last else index_type(-1)

    @jit.device
    def find(
        ids: Any, first: Any, step: Any, rows: Any, ids_step: Any, least: Any, last: Any, other: Any, keys: Any, numbers: Any
    ) -> Any:  # fmt: skip
        sectors = cuda.local.array(TOGETHER, index_type)
        thread = int32(cuda.threadIdx.x)
        slot = thread
        while slot < SLOTS:
            keys[slot], numbers[slot] = index_type(-1), int32(0)
            slot = int32(opaque(slot + threads))
        if thread == 0:
            numbers[SLOTS] = int32(0)
        cuda.syncthreads()
        k = int32(0)
        while k < sampled:
            load(ids, first + k * step, step, rows, ids_step, least, last, other, sectors)
            for u in range(TOGETHER):
                # the last of so many rows that crowd a slot is likely of the sector that has most of them
                if sectors[u] >= 0 and cuda.atomic.add(numbers, slot_of(sectors[u]), int32(1)) == least_rows - 1:
                    keys[slot_of(sectors[u])] = sectors[u]
            k = int32(opaque(k + TOGETHER))
        cuda.syncthreads()
        # the upper half counts the rows of the sector itself
        k = int32(0)
        while k < sampled:
            load(ids, first + k * step, step, rows, ids_step, least, last, other, sectors)
            for u in range(TOGETHER):
                if sectors[u] >= 0 and keys[slot_of(sectors[u])] == sectors[u]:
                    cuda.atomic.add(numbers, slot_of(sectors[u]), int32(1 << 16))
            k = int32(opaque(k + TOGETHER))
        cuda.syncthreads()
        found, k = False, int32(0)
        while k < sampled:
            load(ids, first + k * step, step, rows, ids_step, least, last, other, sectors)
            for u in range(TOGETHER):
                slot = slot_of(sectors[u])
                found |= sectors[u] >= 0 and keys[slot] == sectors[u] and numbers[slot] >> 16 >= least_rows
            k = int32(opaque(k + TOGETHER))
        if cuda.syncthreads_count(int32(found)) < least_threads:
            return False
        slot = thread
        while slot < SLOTS:
            taken = numbers[slot] >> 16 >= least_rows
            numbers[slot] = cuda.atomic.add(numbers, SLOTS, int32(1)) if taken else int32(0)
            if not taken or numbers[slot] >= capacity:
                keys[slot] = index_type(-1)
            slot = int32(opaque(slot + threads))
        cuda.syncthreads()
        return True

    @jit.device
    def place_of(keys: Any, numbers: Any, identifier: Any) -> Any:
        key = index_type(identifier >> shift)
        slot = slot_of(key)
        return int32(numbers[slot] << shift | int32(identifier & mask)) if keys[slot] == key else int32(-1)

    return find, place_of
