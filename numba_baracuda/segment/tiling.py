"""How rows and columns are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..algebra import KernelMonoid
from ..core.axes import ceil_div

#: threads in a block of the row-wise kernels
THREADS = 256
#: threads in a block that folds tiles: small, so that registers for ``UNROLL`` rows a lane leave room for many blocks
FOLD_THREADS = 128
#: rows whose loads a lane of the fold issues before it uses the first
UNROLL = 8
#: rows that a lane copies, or adds, at a time, all loads before the first store; and pieces of 16 bytes that it copies where rows are single elements
COPIES, SUMS, PIECES = 4, 2, 2
#: neighbouring rows that a group copies along ids in order
RUN = 8
#: rows that a group takes in turns, one after the other, and blocks a multiprocessor has at least where there are turns
TURN_ROWS, TURN_BLOCKS = 32, 8
#: bytes of shared memory that the states of all segments may fill where they are kept there, blocks that share a multiprocessor then, and most rows
#: of such a block's tile
BINS_BYTES, BINS_BLOCKS, BINS_TILE = 64 << 10, 3, 1 << 24
#: elements that a block of the flat gather writes, as near as whole rows allow; rows of more columns than ``FLAT_COLUMNS`` are gathered as rows
FLAT_TILE, FLAT_COLUMNS = 8192, 2048
#: empty segments that the lane which finds them fills itself; longer gaps are filled by blocks of their own
GAP = 64
#: most rows one group of lanes walks, a multiple of ``2 · UNROLL``
TILE = 192
#: most steps a warp takes over its tile of narrow rows
STEPS = 16
#: bits of an id that tell the segments of one range apart, rows of a range that a thread ranks at a time, and rows of such a tile
RANGE_BITS, RANGE_ROUNDS = 9, 8
RANGE_TILE = RANGE_ROUNDS * THREADS
#: tiles that a block folds at least, and blocks a multiprocessor among which the rows are dealt out
PART_TILES, PART_BLOCKS = 4, 8
#: segments of a range, and lanes that search for its first row together
RANGE, SEARCHERS = 1 << RANGE_BITS, 16
#: where in such a block's shared memory, in words: behind the warps' counters the segments' rows, a tile's rows in order, how each group's rows
#: begin, the rows' segments, and the states
TALLIES = THREADS // 32 * RANGE // 2
HELD = TALLIES + RANGE
BEGUN = HELD + RANGE_TILE
ORDERED = BEGUN + THREADS
RANGE_WORDS = ORDERED + RANGE_TILE // 2
#: most bytes that the states of the segments may fill
RANGE_STATES = 64 << 10


@dataclass(frozen=True)
class Tiling:
    """``lanes`` neighbouring lanes, ``vector`` columns each, form a group that walks a tile of rows; a block holds ``groups`` of them.

    Rows wider than a group are cut into ``chunks``. Block ``b`` works on row block ``b // chunks`` and chunk ``b % chunks``.
    """

    rows: int
    columns: int
    vector: int
    tile: int
    threads: int = THREADS
    widest: int = 128  #: most lanes of a group

    @classmethod
    def of(cls, rows: int, columns: int, vector: int, multiprocessors: int) -> Tiling:
        """For the fold: a tile short enough that every multiprocessor gets two full blocks, where there are that many rows."""
        shape = cls(rows, columns, vector, TILE, FOLD_THREADS)
        wanted = 2 * multiprocessors * shape.groups
        tile = ceil_div(max(1, ceil_div(rows * shape.chunks, wanted)), UNROLL) * UNROLL
        return cls(rows, columns, vector, min(TILE, tile), FOLD_THREADS)

    @classmethod
    def of_narrow(cls, rows: int, share: int, multiprocessors: int) -> Tiling:
        """For the fold of narrow rows: a warp is a group and takes ``share`` rows a lane at a time."""
        step = 32 * share
        wanted = 2 * multiprocessors * (FOLD_THREADS // 32)
        steps = max(1, ceil_div(rows, wanted * step))
        return cls(rows, 32, 1, min(STEPS, steps) * step, FOLD_THREADS)

    @property
    def lanes(self) -> int:
        """As many as the columns need, or an even share of them, so that few lanes of a block are idle."""
        return lanes_for(ceil_div(self.columns, self.vector), self.threads, self.widest)

    @property
    def groups(self) -> int:
        return self.threads // self.lanes

    @property
    def chunks(self) -> int:
        return ceil_div(self.columns, self.lanes * self.vector)

    @property
    def row_blocks(self) -> int:
        return ceil_div(self.rows, self.groups * self.tile)

    @property
    def entries(self) -> int:
        """Carries: the first and the last run of every row block."""
        return 2 * self.row_blocks

    @property
    def launch(self) -> tuple[int, int, int]:
        """Blocks, threads and dynamic shared bytes."""
        return self.row_blocks * self.chunks, self.threads, 0

    def launch_in_turns(self, multiprocessors: int) -> tuple[int, int, int]:
        """The same for blocks that take turns at the rows, ``TURN_ROWS`` of a group in all, or fewer where multiprocessors would be idle."""
        turns = max(1, min(TURN_ROWS // self.tile, self.row_blocks // (TURN_BLOCKS * multiprocessors)))
        return ceil_div(self.row_blocks, turns) * self.chunks, self.threads, 0

    def fold_launch(self, segments: int) -> tuple[int, int, int]:
        """The same with the blocks that look for gaps behind the others."""
        blocks, threads, shared = self.launch
        return blocks + gap_blocks(segments), threads, shared

    @classmethod
    def of_carries(cls, entries: int, columns: int, vector: int, heavy: bool = False) -> Tiling:
        """A group for every carry."""
        return cls(entries, columns, vector, 1, carry_threads(heavy), widest=32)

    @classmethod
    def of_ids(cls, rows: int) -> Tiling:
        """A thread for every id."""
        return cls(rows, 1, 1, 1)


@functools.cache
def lanes_for(needed: int, threads: int, widest: int) -> int:
    """The widest group that cuts ``needed`` lanes' work evenly and leaves at most a tenth more of a block idle than the best cut does."""
    fewest = ceil_div(needed, ceil_div(needed, 16))
    lanes = [each for each in range(min(widest, needed), fewest - 1, -1) if ceil_div(needed, ceil_div(needed, each)) == each]
    busy = [needed * (threads // each) / (ceil_div(needed, each) * threads) for each in lanes]
    return next(each for each, share in zip(lanes, busy, strict=True) if share >= 0.9 * max(busy))


def unroll_for(access: int, index_size: int, vector: int, monoid: KernelMonoid) -> int:
    """Rows whose loads a lane of the fold issues before it uses the first; ``access`` in bytes. More where both loads are short.

    Fewer where states are more than an element, unless all ``vector`` states of a lane have few scalars: the compiler unrolls no more code than that.
    A division takes as much code, and registers, as one more scalar of each state.
    """
    if monoid.heavy:
        return UNROLL if access == 16 and vector * (monoid.width + monoid.divides) <= UNROLL else UNROLL // 2
    return 2 * UNROLL if access <= 4 and index_size == 4 else UNROLL


def carry_threads(heavy: bool) -> int:
    """Threads in a block that joins carries: all that a block can have, since one block joins the longest run, unless states want more registers."""
    return 256 if heavy else 1024


def share_for(row_size: int, rows: int, segments: int) -> int:
    """Neighbouring rows of ``row_size`` bytes that a lane takes where rows are narrow, so that 16-byte accesses fit; 0 where rows are wider.

    More of single elements, unless segments are so short that many runs end among the rows of a lane.
    """
    if row_size > 16:
        return 0
    return 16 if row_size <= 4 and rows >= 16 * segments else 8


def spread_shape(operands: int, divides: bool, size: int) -> tuple[int, int]:
    """Rows that a lane gives back what their segments were folded into, all loads before the first store; and blocks that share a multiprocessor.

    Two rows where each has few ``operands``, or where it ``divides`` and waits for that. As many blocks as fit without a spill and made it faster on
    an H200, by the ``size`` of elements.
    """
    if operands <= 2:
        return 2, {2: 4, 4: 6, 8: 5}[size]
    if divides and operands == 3 and size > 2:
        return 2, {4: 4, 8: 3}[size]
    return 1, {2: 4, 4: 5, 8: 3}[size] - (operands > 4)


def flat_tile(columns: int, vector: int) -> int:
    """Rows that a block of the flat gather writes: together a multiple of ``vector`` elements."""
    return ceil_div(FLAT_TILE, columns * vector) * vector


def elements_launch(rows: int, share: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes where a lane copies ``PIECES`` times ``share`` single elements."""
    return ceil_div(rows, PIECES * THREADS * share), THREADS, 0


def gap_blocks(segments: int) -> int:
    """Blocks that look for long gaps, one thread for every ``GAP`` segments."""
    return ceil_div(ceil_div(segments, GAP), FOLD_THREADS)


def vector_for(itemsize: int, columns: int, *places: tuple[int, tuple[int, ...]]) -> int:
    """The widest access, in elements, that every operand allows; a place is (address, row and column strides in elements).

    A vector needs neighbouring columns, and rows and addresses that are multiples of its length.
    """
    vector = 16 // itemsize
    while vector > 1:
        if columns % vector == 0 and all(
            address % (vector * itemsize) == 0 and strides[-1] == 1 and len(strides) == 2 and strides[0] % vector == 0 for address, strides in places
        ):
            return vector
        vector //= 2
    return 1
