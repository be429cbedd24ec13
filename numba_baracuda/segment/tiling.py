"""How lanes share rows and columns: geometry that kernels and their launches share. Imports no Numba."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..core.axes import ceil_div, power_of_two
from ..core.dtypes import BY_NAME
from ..core.policy import tuned
from ..core.sizes import apply, greatest, least, plain
from .policy import (
    BoundShortSegments,
    BroadcastToRows,
    CountFewIds,
    CountIds,
    FirstFault,
    FoldGaps,
    FoldNarrow,
    FoldRanges,
    FoldStaged,
    FoldTiles,
    PerId,
    RowWise,
    ScatterRows,
)
from .waves import even_steps

#: threads in a block of kernels with a thread for each id, and of those that fold ranges
THREADS = PerId.threads_per_block
#: empty segments between two rows that the lane which finds them fills itself
GAP = FoldGaps.items_per_thread
#: warps among which all longer ones are shared out
GAP_WARPS = FoldGaps.warps
#: the same where a pass over ids finds offsets, and those that a warp fills
LANE_GAP, WARP_GAP = BoundShortSegments.lane_gap, BoundShortSegments.warp_gap
#: rows of a tile of a range, segments of a range, and threads that search for its first row together
RANGE_BITS, RANGE_ROUNDS = FoldRanges.range_bits, FoldRanges.items_per_thread
RANGE_TILE, RANGE, SEARCHERS = RANGE_ROUNDS * THREADS, 1 << RANGE_BITS, FoldRanges.threads_per_search
#: offsets in the shared memory of a block of ``fold_ranges``, in words: behind the counters of the warps come the rows of each segment, the tile's
#: row indices in order, how the rows of each group begin, the segments of these rows, and the states
SEGMENT_COUNTS = THREADS // 32 * RANGE // 2
ORDERED_ROWS = SEGMENT_COUNTS + RANGE
GROUP_HEADS = ORDERED_ROWS + RANGE_TILE
ORDERED_KEYS = GROUP_HEADS + THREADS
RANGE_WORDS = ORDERED_KEYS + RANGE_TILE // 2
#: neighbouring single elements of a thread that divides by the lengths of their runs
MEANS_ROWS = 8
#: long runs whose lengths ``gather_means`` keeps at a time; a power of two
MEANS_LENGTHS = 64


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
    widest: int = RowWise.max_group_threads  #: most lanes of a group
    narrowest: int = 1  #: least lanes of a group, where the columns need as many

    @classmethod
    def of(
        cls, policy: FoldTiles, rows: int, columns: int, vector: int, itemsize: int, multiprocessors: int, short_state_bytes: int = 0
    ) -> Tiling:  # fmt: skip
        """For the fold: as many blocks as are resident at a time, or a whole multiple of that, so that the last of them are not alone.

        ``short_state_bytes`` are those of a column's state where runs may be short, else 0.
        """
        narrowest = policy.min_group_bytes // (vector * itemsize)
        shape = cls(rows, columns, vector, policy.max_tile_rows, policy.threads_per_block, policy.max_group_threads, narrowest)
        blocks = max(policy.grid_blocks_per_multiprocessor, policy.min_blocks_per_multiprocessor)
        resident, step = min(blocks, policy.max_blocks_per_multiprocessor) * multiprocessors, FoldTiles.items_per_thread

        def even(tile: int) -> Tiling:
            waves = greatest(1, ceil_div(replace(shape, tile=tile).row_blocks * shape.chunks, resident))
            groups = greatest(1, waves * resident // shape.chunks) * shape.groups
            return replace(shape, tile=greatest(1, ceil_div(rows, groups * step)) * step)

        usual = even(policy.max_tile_rows)
        if not short_state_bytes or rows * columns * itemsize > usual.tile * policy.run_bytes:
            return usual
        fewest = ceil_div(policy.carry_rows * short_state_bytes, itemsize * shape.groups)
        return even(least(policy.max_tile_rows, max(policy.short_tile_rows, fewest)))

    @staticmethod
    def most_entries(policy: FoldTiles, rows: int, multiprocessors: int, halves: int = 2, short: bool = False) -> int:
        """The most carries of a fold, whatever the layout of its rows: of every tile a carry at each end.

        Tiles have so many ``halves`` of the usual longest ones; ``short``: whether runs may be short.
        """
        tile = policy.max_tile_rows // 2 * halves
        if short:
            tile = least(tile, policy.short_tile_rows)
        full = ceil_div(rows, tile) + policy.max_blocks_per_multiprocessor * multiprocessors
        return 2 * min(ceil_div(rows, FoldTiles.items_per_thread), full)

    @classmethod
    def of_narrow(cls, policy: FoldNarrow, rows: int, multiprocessors: int, gaps: int = 0, known: bool = False) -> Tiling:
        """For the fold of narrow rows: a warp is a group, and walks 32 · items_per_thread rows at a time.

        So many blocks look for ``gaps``. ``known``: whether no more blocks are resident than must be.
        """
        steps = _steps(policy, ceil_div(rows, policy.threads_per_block * policy.items_per_thread), multiprocessors, gaps, known)
        return cls(rows, 32, 1, steps * 32 * policy.items_per_thread, policy.threads_per_block)

    @classmethod
    def of_staged(
        cls, policy: FoldStaged, rows: int, stage: int, multiprocessors: int, gaps: int = 0, known: bool = False, longer: bool = False
    ) -> Tiling:  # fmt: skip
        """For the fold of staged rows: a warp is a group, and walks ``stage`` rows at a time. It leaves no more carries than ``fold_tiles`` may.

        ``gaps`` and ``known`` as in :meth:`of_narrow`; ``longer`` as in :func:`~.waves.even_steps`.
        """
        block_rows, most = policy.threads_per_block // 32 * stage, max(1, cls.most_entries(tuned(FoldTiles()), rows, multiprocessors) // 2)
        steps = _steps(policy, ceil_div(rows, block_rows), multiprocessors, gaps, known, longer)
        return cls(rows, 32, 1, greatest(steps, ceil_div(rows, most * block_rows)) * stage, policy.threads_per_block)

    @classmethod
    def of_ids(cls, rows: int) -> Tiling:
        """A thread for every id."""
        return cls(rows, 1, 1, 1)

    @classmethod
    def of_counted(cls, rows: int) -> Tiling:
        """A thread for every ``counted_per_thread`` ids."""
        return cls.of_ids(ceil_div(rows, PerId.counted_per_thread))

    @property
    def lanes(self) -> int:
        """As many lanes as the columns need, or an even share of them, so that few lanes of a block are idle."""
        return lanes_for(plain(ceil_div(self.columns, self.vector)), self.threads, self.widest, self.narrowest)

    @property
    def groups(self) -> int:
        return self.threads // self.lanes

    @property
    def chunks(self) -> int:
        """How many shares of the columns there are; a plain number, as the lanes have pinned what it is computed from."""
        return ceil_div(plain(ceil_div(self.columns, self.vector)), self.lanes)

    @property
    def row_blocks(self) -> int:
        return ceil_div(self.rows, self.groups * self.tile)

    @property
    def entries(self) -> int:
        """The number of carries: the first and the last run of every row block."""
        return 2 * self.row_blocks

    @property
    def launch(self) -> tuple[int, int, int]:
        """Blocks, threads and dynamic shared bytes."""
        return self.row_blocks * self.chunks, self.threads, 0

    def persistent_launch(self, policy: BroadcastToRows | ScatterRows, multiprocessors: int) -> tuple[int, int, int]:
        """The same for blocks that walk the rows in a grid-stride loop; groups have fewer rows where multiprocessors would be idle."""
        rounds = max(1, min(policy.rows_per_group // self.tile, self.row_blocks // (policy.grid_blocks_per_multiprocessor * multiprocessors)))
        return ceil_div(self.row_blocks, rounds) * self.chunks, self.threads, 0

    def fold_launch(self, segments: int, gap: int = GAP) -> tuple[int, int, int]:
        """The same, and the blocks that look for gaps of more than ``gap`` segments."""
        blocks, threads, shared = self.launch
        return blocks + gap_blocks(segments, threads, gap), threads, shared


def _steps(policy: FoldNarrow | FoldStaged, blocks: int, multiprocessors: int, gaps: int, known: bool, longer: bool = False) -> int:
    """Steps of a block where there would be so many ``blocks`` of one step; the others as in :meth:`Tiling.of_staged`."""
    resident = policy.min_blocks_per_multiprocessor * multiprocessors if known else 0
    steps: int = apply(even_steps, blocks, policy.grid_blocks_per_multiprocessor * multiprocessors, resident, policy.max_tile_steps, gaps, longer)
    return steps


@functools.cache
def lanes_for(needed: int, threads: int, widest: int, narrowest: int = 1) -> int:
    """The widest group that cuts ``needed`` lanes' work evenly and leaves at most a tenth more of a block idle than the best cut does.

    It has 16 lanes or more where there is work for as many; and ``narrowest`` unless that would leave a quarter more of a block idle.
    """
    fewest = ceil_div(needed, ceil_div(needed, min(16, widest)))
    lanes = [each for each in range(min(widest, needed), fewest - 1, -1) if ceil_div(needed, ceil_div(needed, each)) == each]
    busy = {each: needed * (threads // each) / (ceil_div(needed, each) * threads) for each in lanes}
    lanes = [each for each in lanes if each >= min(narrowest, needed) and busy[each] >= 0.75 * max(busy.values())] or lanes
    best = max(busy[each] for each in lanes)
    return next(each for each in lanes if busy[each] >= 0.9 * best)


def columns_apart(columns: int, counts: Iterable[int], threads: int) -> int:
    """The first of ``counts`` columns of a thread that leaves few threads' columns behind the row's end, and ``threads`` threads to a row; else 1."""
    return next((each for each in counts if 5 * (ceil_div(columns, each) * each - columns) <= columns and threads * each <= columns), 1)


def reciprocal_of(columns: int) -> int:
    """The factor by which a product and a shift by 63 bits divide numbers by ``columns``, two or more: numbers whose product with ``columns`` is less
    than 2^63.
    """
    return (1 << 63) // columns + 1


def half_reciprocal_of(columns: int) -> int:
    """The factor of 32 bits by which a product and a shift by 31 bits divide small numbers by ``columns``."""
    return (1 << 31) // columns + 1


def elements_launch(rows: int, lane_items: int, threads: int, items: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes where a thread copies ``items`` times ``lane_items`` single elements."""
    return ceil_div(rows, items * threads * lane_items), threads, 0


def means_launch(rows: int, threads: int, items: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes where a thread has ``items`` times ``MEANS_ROWS`` single elements, divided by the lengths of their runs."""
    return ceil_div(rows, threads * items * MEANS_ROWS), threads, 0


def fault_launch(rows: int, vector: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes where threads walk the ids, ``vector`` at a time, until they have found a fault."""
    return min(ceil_div(rows, THREADS * vector), tuned(FirstFault()).max_blocks), THREADS, 0


def bounded_ids(items: int, key: str) -> int:
    """Ids of a thread where a pass over ids of a type finds offsets."""
    return items * 4 // BY_NAME[key].itemsize


def bounded_launch(items: int, key: str, rows: int, segments: int) -> tuple[tuple[int, int, int], int]:
    """Where it does, and rows have one behind them: the launch, and its blocks that look for long gaps."""
    gap_blocks = ceil_div(segments // WARP_GAP * SEARCHERS, THREADS)
    return (gap_blocks + ceil_div(rows + 1, THREADS * bounded_ids(items, key)), THREADS, 0), gap_blocks


def counted_launch(rows: int, multiprocessors: int) -> tuple[int, int, int]:
    """Blocks, threads and shared bytes where warps that walk the ids count them."""
    blocks, threads, shared = Tiling.of_counted(rows).launch
    return min(blocks, tuned(CountIds()).grid_blocks_per_multiprocessor * multiprocessors), threads, shared


def few_counted_launch(policy: CountFewIds, rows: int, segments: int, multiprocessors: int) -> tuple[tuple[int, int, int], int, int]:
    """Where blocks that walk the ids count those of few segments, each fewer than 2^31: the launch, segments of a range, and ranges."""
    ranges = ceil_div(4 * segments, policy.shared_bytes_per_block)
    width = ceil_div(segments, ranges)
    parts = max(policy.grid_blocks_per_multiprocessor * multiprocessors // ranges, ceil_div(rows, policy.max_block_rows))
    parts = min(ceil_div(rows, policy.threads_per_block * policy.items_per_thread), parts)
    return (parts * ranges, policy.threads_per_block, 4 * width), width, ranges


def longest_gap(row_bytes: int) -> int:
    """The most empty segments that a warp fills as a range: ``GAP``, or more where a row of results has few bytes."""
    return max(GAP, power_of_two(tuned(FoldGaps()).range_bytes // row_bytes + 1) // 2)


def gap_blocks(segments: int, threads: int, gap: int = GAP) -> int:
    """Blocks that look for gaps of more than ``gap`` segments. A warp has up to 32 probes, one for each ``gap`` segments: few where these are for few
    warps.
    """
    return ceil_div(ceil_div(segments, gap), threads // 32 * least(32, ceil_div(segments, gap * GAP_WARPS)))


def vector_for(itemsize: int, columns: int, *operands: tuple[int, tuple[int, ...]]) -> int:
    """Elements of the widest load or store that every operand allows. An operand is (address, row and column strides in elements).

    A vector needs contiguous columns, and rows and addresses that are multiples of its length.
    """
    vector = max(1, tuned(RowWise()).vector_bytes // itemsize)
    while vector > 1:
        if columns % vector == 0 and all(
            address % (vector * itemsize) == 0 and strides[-1] == 1 and len(strides) == 2 and strides[0] % vector == 0
            for address, strides in operands
        ):
            return vector
        vector //= 2
    return 1
