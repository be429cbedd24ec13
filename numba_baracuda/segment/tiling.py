"""How rows and columns are dealt to lanes: geometry that kernels and their launches share. Imports no numba."""

from __future__ import annotations

from dataclasses import dataclass

#: threads in a block of the row-wise kernels
THREADS = 256
#: threads in a block that folds tiles: small, so that registers for ``UNROLL`` rows a lane leave room for many blocks
FOLD_THREADS = 128
#: threads in a block that joins carries: all that a block can have, since one block joins the longest run
CARRY_THREADS = 1024
#: resident blocks that the registers of a fold leave room for, without a spill on any architecture; a finish wants registers of its own
FOLD_BLOCKS, FINISHING_FOLD_BLOCKS = 5, 4
#: rows whose loads a lane issues before it uses the first
UNROLL = 8
#: empty segments that the lane which finds them fills itself; longer gaps are filled by blocks of their own
GAP = 64
#: most rows one group of lanes walks, a multiple of ``UNROLL``
TILE = 192


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


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

    @classmethod
    def of(cls, rows: int, columns: int, vector: int, multiprocessors: int) -> Tiling:
        """For the fold: a tile short enough that every multiprocessor gets two full blocks, where there are that many rows."""
        shape = cls(rows, columns, vector, TILE, FOLD_THREADS)
        wanted = 2 * multiprocessors * shape.groups
        tile = ceil_div(max(1, ceil_div(rows * shape.chunks, wanted)), UNROLL) * UNROLL
        return cls(rows, columns, vector, min(TILE, tile), FOLD_THREADS)

    @property
    def lanes(self) -> int:
        """A power of two, so that a warp holds whole groups."""
        needed = ceil_div(self.columns, self.vector)
        lanes = 1
        while lanes < min(needed, 32):
            lanes *= 2
        return lanes

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

    def fold_launch(self, segments: int) -> tuple[int, int, int]:
        """The same with the blocks that look for gaps behind the others."""
        blocks, threads, shared = self.launch
        return blocks + gap_blocks(segments), threads, shared

    @classmethod
    def of_carries(cls, entries: int, columns: int, vector: int) -> Tiling:
        """A group for every carry."""
        return cls(entries, columns, vector, 1, CARRY_THREADS)

    @classmethod
    def of_ids(cls, rows: int) -> Tiling:
        """A thread for every id."""
        return cls(rows, 1, 1, 1)


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
