"""How many blocks of the folds a multiprocessor holds, by what takes registers; compiled for sm_90."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Residency:
    """Blocks of 128 threads that a multiprocessor holds without a spill, and how many fewer it holds for what takes registers."""

    blocks: int
    wide_items: int = 0  #: 16 rows in a thread
    wide_ids: int = 0  #: ids of 8 bytes
    wide_states: int = 0  #: states of 8 bytes
    permutation: int = 0  #: rows in permuted order
    lift: int = 0  #: states that are not the element itself
    finish: int = 0  #: results that are not the state itself
    long_row: int = 0  #: rows of more than 8 bytes
    longest_row: int = 0  #: rows of more than 12 bytes
    widening: int = 0  #: states of several scalars, or of halves
    scalars: float = 0  #: each scalar of a row's states
    beyond_sm_90: int = 0  #: architectures that were not measured for spills
    least: int = 1

    def left(self, **times: int) -> int:
        """Blocks that are left, where each keyword says how many times its field is subtracted."""
        return max(self.least, self.blocks - int(sum(getattr(self, name) * count for name, count in times.items())))


@dataclass(frozen=True)
class Registers:
    """Blocks that a multiprocessor holds without a spill, by the registers of a thread.

    It has one for each 4 bytes and each index of a row in flight, ``own`` ones, and those that the other fields name.
    """

    own: int
    scalar: int  #: each 4-byte scalar of its states
    most_blocks: int
    apart: int = 0  #: columns apart
    finish: int = 0  #: results that are not the state itself
    wide_ids: int = 8  #: ids of 8 bytes
    beyond_sm_90: int = 2  #: blocks fewer on architectures that were not measured for spills

    def held(self, threads: int, in_flight: int, scalars: int, apart: bool, finish: bool, wide_ids: bool, beyond_sm_90: bool) -> int:
        """Blocks of so many threads, where the flags say which fields count."""
        registers = self.own + in_flight + self.scalar * scalars + self.apart * apart + self.finish * finish + self.wide_ids * wide_ids
        return max(1, min(self.most_blocks, _REGISTERS // threads // registers) - self.beyond_sm_90 * beyond_sm_90)


#: registers of a multiprocessor
_REGISTERS = 65536
#: of ``fold_tiles`` with states of several scalars, and with sums about a pivot that rows choose
TILES_HEAVY, TILES_CHOSEN = Registers(47, 3, 6, apart=3), Registers(64, 3, 5)
#: the same of both with halves, and of the latter with columns apart, but of doubles, which would spill more
TILES_HALVES = Registers(33, 3, 7)
#: of ``fold_tiles`` with sums about the mean of rows; the same with one result that is no double, of loads of fewer than 16 bytes
TILES_MEANS, TILES_MEANS_ALONE = Registers(51, 3, 5), Registers(33, 3, 5)
#: of ``fold_tiles`` with halves or columns apart, where a state is one scalar
TILES_BY_REGISTERS = Registers(27, 1, 7, apart=31, finish=8, beyond_sm_90=3)
#: of ``fold_tiles`` with vectors of fewer than 16 bytes
TILES = Residency(8, wide_states=1, permutation=2, lift=1, finish=1, beyond_sm_90=1)
#: of ``fold_narrow``; and the same with states of several scalars, or of halves
NARROW = Residency(8, wide_items=3, wide_ids=1, long_row=1, longest_row=1, finish=1, beyond_sm_90=1)
NARROW_HEAVY = Residency(8, wide_items=2, wide_ids=1, wide_states=2, widening=1, scalars=0.5, least=2)
