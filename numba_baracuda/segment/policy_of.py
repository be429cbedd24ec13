"""The policy of a problem, where it depends on the architecture, the elements, the columns of a thread or the monoid."""

from __future__ import annotations

from dataclasses import replace

from ..algebra import KernelMonoid
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import Target
from ..core.policy import tuned
from .first_rows import EXTREMES, FIRST
from .policy import (
    BroadcastFlat,
    BroadcastToRows,
    Crowds,
    FoldAndBroadcast,
    FoldAndBroadcastShort,
    FoldAndBroadcastStaged,
    FoldAndBroadcastWide,
    FoldCarries,
    FoldNarrow,
    FoldRanges,
    FoldShortRuns,
    FoldStaged,
    FoldTiles,
    IdPasses,
    ScatterRows,
)
from .residency import (
    NARROW,
    NARROW_HEAVY,
    TILES,
    TILES_BY_REGISTERS,
    TILES_CHOSEN,
    TILES_HALVES,
    TILES_HEAVY,
    TILES_MEANS,
    TILES_MEANS_ALONE,
)
from .tiling import THREADS, vector_for


def _beyond(target: Target) -> bool:
    """Whether the architecture was not measured for spills: all but sm_90."""
    return target.capability[0] != 9


def narrow_items(row_bytes: int, rows: int, segments: int) -> int:
    """Neighbouring rows of ``row_bytes`` that a thread of ``fold_narrow`` takes: more of single elements in long segments; 0 where rows are wider.

    Bytes are those of both operands where there are two, since a thread has both in registers.
    """
    policy = tuned(FoldNarrow())
    if row_bytes > policy.max_row_bytes:
        return 0
    long = row_bytes <= policy.long_row_bytes and rows >= policy.long_segment_rows * segments
    return tuned(FoldNarrow(items_per_thread=16 if long else 8)).items_per_thread


def short_run_items(row_bytes: int, scalars: int, state_bytes: int, index: str, rows: int, segments: int) -> int:
    """The same of ``fold_short_runs``, for row states of ``scalars`` scalars of ``state_bytes``: as many as leave room for states in shared memory.

    0 where rows or their states are wider.
    """
    policy = tuned(FoldShortRuns())
    if row_bytes > policy.max_row_bytes or scalars > policy.max_state_scalars:
        return 0
    long = row_bytes <= policy.long_row_bytes and rows >= policy.long_segment_rows * segments
    wide = row_bytes > policy.wide_row_bytes or scalars * state_bytes > policy.wide_state_bytes
    items = tuned(FoldShortRuns(items_per_thread=4 if wide else 16 if long else 8)).items_per_thread
    while short_run_bytes(policy.threads_per_block, items, scalars * state_bytes, index) > policy.max_shared_bytes:
        items //= 2
    return items if items >= 4 else 0


def short_run_bytes(threads: int, items: int, states_bytes: int, index: str) -> int:
    """Bytes of shared memory of ``fold_short_runs``: of each row a state, an id and a number, with one left out after every 32; and edges."""
    warps = threads // 32
    return 33 * warps * items * (states_bytes + BY_NAME[index].itemsize + 2) + 2 * warps * (states_bytes + 16)


def fold_narrow(target: Target, value: str, index: str, columns: int, monoid: KernelMonoid, plan: FoldNarrow) -> FoldNarrow:
    """The policy ``plan`` of a fold of narrow rows, with resident blocks for rows of so many columns."""
    itemsize = BY_NAME[value].itemsize
    held = columns * (2 if monoid.pairs else 1)
    row_bytes, common = held * itemsize, {"wide_items": plan.items_per_thread == 16, "wide_ids": index == "i64"}
    if monoid.foreign:
        blocks = 0
    elif monoid.width > 1 or itemsize == 2:
        blocks = NARROW_HEAVY.left(**common, widening=1, scalars=held * monoid.width, wide_states=value == "f64")
    else:
        rows = {"long_row": row_bytes > 8, "longest_row": row_bytes > 12}
        finish = monoid.finishes and not common["wide_items"]  # the block that 16 rows take is enough for both
        blocks = NARROW.left(**common, **rows, finish=finish, beyond_sm_90=_beyond(target))
    return tuned(replace(plan, min_blocks_per_multiprocessor=blocks))


def fold_items(load_bytes: int, index_bytes: int, vector: int, monoid: KernelMonoid, apart: bool = False) -> int:
    """Rows that a thread of a fold has in flight, each by a load of ``load_bytes``: more where loads of rows and ids are short.

    Fewer where states are more than an element, unless the ``vector`` states of a thread have few scalars, of which a division counts as one more:
    the compiler unrolls no more code. Nor are more rows of over 8 bytes worth their registers, unless one load brings them. Sums about a pivot are
    short; where a batch chooses the pivot, more rows are not faster with columns ``apart`` or wide elements.
    """
    usual = FoldTiles.items_per_thread
    if monoid.choose_pivot:
        if apart or load_bytes == 8 * vector:
            return usual // 2
        return 2 * usual if load_bytes <= 2 and index_bytes == 4 else usual
    if monoid.heavy and not monoid.any_pivot:
        few = vector * (monoid.width + monoid.divides) <= usual + 1 and (load_bytes == 16 or load_bytes * (2 if monoid.pairs else 1) <= 8)
        return usual if few else usual // 2
    return 2 * usual if load_bytes <= 4 and index_bytes == 4 else usual


def fold_apart(value: str, monoid: KernelMonoid) -> range:
    """How many columns of a thread of ``fold_tiles`` may lie apart, the best number first. Two would have too few bytes in flight, but for halves."""
    policy = tuned(FoldTiles())
    return range(policy.heavy_columns_apart if monoid.heavy else policy.columns_apart, 1 if BY_NAME[value].itemsize == 2 else 2, -1)


def fold_tiles(
    target: Target, value: str, index: str, vector: int, monoid: KernelMonoid, *, dims: int = 1, permuted: bool = False, paired: bool = False,
    apart: bool = False,
) -> FoldTiles:  # fmt: skip
    """The policy for rows of ``dims`` axes, of which a thread takes ``vector`` columns, as a vector or ``apart``. Rows are ``permuted`` or not;
    ``paired`` rows are of two operands.

    With 16-byte vectors 5 blocks are resident, or 4 where wide rows are permuted, or their result is more than the state. With states of several
    scalars, with halves and with columns apart, registers set the number; with several axes it is 4. For a user's monoid the compiler decides.
    """
    element = BY_NAME[value]
    wide, load_bytes = element.accumulator in ("f64", "i64"), vector * element.itemsize
    items = fold_items(load_bytes, BY_NAME[index].itemsize, vector, monoid, apart)
    if monoid.foreign:
        blocks = 0
    elif dims > 1:
        blocks = 4
    elif monoid.heavy or element.itemsize == 2 or apart:
        loaded = vector * max(element.itemsize, 4) if apart else max(load_bytes, 4)
        # a permuted batch has an index of each row, and where its mean is made registers for as many more
        in_flight = items * loaded // 4 * (2 if paired else 1) + items * (permuted + (permuted and monoid.any_pivot))
        scalars = vector * monoid.width * (2 if wide else 1)
        if not monoid.heavy:
            registers = TILES_BY_REGISTERS
        elif monoid.any_pivot:
            # of vectors of 16 bytes more blocks are slower where some segments are long and others short
            registers = TILES_MEANS if wide or monoid.results > 1 or load_bytes == 16 else TILES_MEANS_ALONE
        elif element.itemsize == 2 or (apart and monoid.choose_pivot and not wide):
            registers = TILES_HALVES
        else:
            registers = TILES_CHOSEN if monoid.choose_pivot else TILES_HEAVY
        blocks = registers.held(FoldTiles.threads_per_block, in_flight, scalars, apart, monoid.finishes, index == "i64", _beyond(target))
    elif load_bytes == 16:
        blocks = 4 if wide and (permuted or monoid.finishes) else 5
    else:
        blocks = TILES.left(wide_states=wide, permutation=permuted, lift=monoid.lifts, finish=monoid.finishes, beyond_sm_90=_beyond(target))
    return tuned(FoldTiles(items_per_thread=items, min_blocks_per_multiprocessor=blocks))


def fold_staged(value: str, vector: int, monoid: KernelMonoid, apart: bool) -> FoldStaged:
    """The policy for ``vector`` columns of a thread: fewer blocks are resident with wide states, fewest of those with sums about pivots, and with
    many scalars in a thread; but not with sums about any pivot, whose rows are few at a time, of columns that do not lie ``apart``.
    """
    plan, wide = FoldStaged(), BY_NAME[value].accumulator in ("f64", "i64")
    scalars, pivots = vector * monoid.width, monoid.pivot_terms != ""
    blocks = (3 if pivots else 4) if wide else 5 if scalars > 8 and (apart or not monoid.any_pivot) else plan.min_blocks_per_multiprocessor
    return tuned(replace(plan, min_blocks_per_multiprocessor=blocks))


def fold_and_broadcast(target: Target, value: str, monoid: KernelMonoid, in_place: bool = False, odd: bool = False) -> FoldAndBroadcast:
    """The policy: 4 blocks are resident, for which elements of 8 bytes spill some registers; with sums about a pivot of halves 3 are. A block fewer
    took longer. A thread has fewer rows at a time with such sums. Of rows that are replaced ``in_place``, and of ``odd`` ones, no vectors, other ones
    are narrow.
    """
    blocks, items = 3 if monoid.any_pivot and BY_NAME[value].itemsize == 2 else 4, 2 if monoid.any_pivot else FoldAndBroadcast.items_per_thread
    plan = tuned(FoldAndBroadcast(items_per_thread=items, min_blocks_per_multiprocessor=0 if _beyond(target) else blocks))
    if odd:
        return replace(plan, narrow_row_bytes=plan.narrow_odd_bytes)
    if not in_place:
        return plan
    return replace(
        plan, held_bytes=plan.held_halves_bytes, most_held_bytes=plan.most_held_halves_bytes, narrow_row_bytes=plan.narrow_halves_bytes,
        held_segments=plan.held_halves_segments, wanted_segments=plan.wanted_halves_segments,
    )  # fmt: skip


def fold_and_broadcast_staged(target: Target, value: str, monoid: KernelMonoid, wide: bool) -> FoldAndBroadcastStaged:
    """The policy: with sums about a pivot fewer blocks are resident, and a thread has fewer columns; with elements of 8 bytes it has one. Rows may be
    ``wide``.
    """
    columns, blocks = (1, 0) if BY_NAME[value].itemsize == 8 else (2, 4) if monoid.any_pivot else (3, 5)
    kind = FoldAndBroadcastWide if wide else FoldAndBroadcastStaged
    return tuned(kind(columns_per_thread=columns, min_blocks_per_multiprocessor=0 if _beyond(target) else blocks))


def fold_and_broadcast_short(target: Target, value: str, columns: int) -> FoldAndBroadcastShort:
    """The policy: 4 blocks are resident of single elements, 3 where there are two, 2 of elements of 8 bytes or two halves; more of them spill."""
    itemsize = BY_NAME[value].itemsize
    blocks = 4 if columns == 1 and itemsize < 8 else 3 if itemsize == 4 else 2
    return tuned(FoldAndBroadcastShort(min_blocks_per_multiprocessor=0 if _beyond(target) else blocks))


def fold_carries(heavy: bool, joins: bool = False) -> FoldCarries:
    """The policy; a thread has fewer columns of ``heavy`` states, which need more registers, and a block fewer threads where it ``joins`` carries."""
    plan = tuned(FoldCarries(vector_bytes=8 if heavy else 16))
    return replace(plan, threads_per_block=min(plan.threads_per_block, plan.join_threads)) if joins else plan


def range_items(value: str, index: str, vector: int, monoid: KernelMonoid) -> int:
    """Rows of a range that a thread has in flight: no more than a group of one thread has in a tile, and fewer of states of many scalars."""
    most = FoldRanges.items_per_thread // (2 if monoid.heavy and vector * monoid.width > 4 else 1)
    return min(fold_items(vector * BY_NAME[value].itemsize, BY_NAME[index].itemsize, vector, monoid), most)


def fold_ranges(value: str, vector: int, lanes: int, monoid: KernelMonoid) -> FoldRanges:
    """The policy for ``vector`` columns of each of so many ``lanes``: more blocks where states take few registers."""
    itemsize, state = BY_NAME[value].itemsize, BY_NAME[BY_NAME[value].accumulator]
    words = vector * monoid.width * state.itemsize // 4
    few = words <= 3 or (words == 4 == itemsize and lanes == 1)
    return tuned(FoldRanges(min_blocks_per_multiprocessor=3 if few else 2))


def passes(segments: int, segment_bytes: int, pass_bytes: int, cache_bytes: int) -> int:
    """Passes over ids in any order, each for segments of which the cache holds what is updated, ``segment_bytes`` of each.

    That and the number of passes multiply to at most ``pass_bytes``: the more bytes a row has, the longer it takes to read it again. One pass is made
    where twice as many would not do.
    """
    policy = tuned(IdPasses())
    wanted = ceil_div(segments * segment_bytes, int(policy.cache_share * cache_bytes))
    most = min(policy.max_passes, pass_bytes // max(segment_bytes, 1))
    return min(wanted, most) if 1 < wanted <= 2 * most else 1


def pass_bytes(update: str, itemsize: int, columns: int) -> int:
    """What :func:`passes` wants to know of atomics: half as many bytes where a thread has one column of several."""
    policy, single = tuned(ScatterRows()), vector_for(itemsize, columns) == 1 < columns
    return (policy.pass_bytes if update == "add" else policy.extreme_pass_bytes) // (2 if single else 1)


def sampled_rows(rows: int, row_bytes: int, update: str, multiprocessors: int) -> int:
    """Rows of a thread among which blocks that add rows of so many bytes, or count ids of so many, look for ids that crowd; 0 for none."""
    policy = tuned(Crowds())
    if update in EXTREMES or row_bytes > policy.max_row_bytes or rows * row_bytes < policy.min_input_bytes:
        return 0
    enough = policy.rows_for_each * ScatterRows.grid_blocks_per_multiprocessor * multiprocessors * THREADS
    return next((sampled for sampled in (8, 4) if sampled <= policy.most_sampled and rows >= sampled * enough), 2)


def scatter_items(update: str) -> int:
    """Rows that a thread has in flight: more for extremes, of whose rows of one segment only one is an update."""
    return ScatterRows.items_per_thread * (2 if update in EXTREMES else 1)


def scatter_blocks(target: Target, update: str, state_bytes: int, vector: int, dims: int) -> int:
    """Resident blocks that update ``vector`` columns a thread, of rows of ``dims`` axes: as many as there are without a table of ids that crowd, and
    a few more than the compiler makes of extremes. It decides where they might spill.
    """
    if dims > 1 or _beyond(target):
        return 0
    if update in FIRST:
        return {1: 5, 2: 4}.get(vector, 0)
    if update in EXTREMES:
        return ({1: 5, 2: 5, 4: 4} if state_bytes == 4 else {1: 4, 2: 4}).get(vector, 0)
    return {1: 6, 2: 5, 4: 5}.get(vector, 0) if update == "add" and state_bytes == 4 else 0


def scatter_rows(update: str, blocks: int = 0) -> ScatterRows:
    return tuned(ScatterRows(items_per_thread=scatter_items(update), min_blocks_per_multiprocessor=blocks))


def broadcast_to_rows(
    target: Target, itemsize: int, vector: int, dims: int, operands: int, divides: bool, apart: bool
) -> BroadcastToRows:  # fmt: skip
    """The policy for a gradient of so many ``operands`` in ``vector`` columns a thread, ``apart`` or not, of rows of ``dims`` axes.

    A thread that takes single columns has two rows; so has one of vectors with few operands, or that ``divides`` and waits for that. Blocks are as
    many as fit without a spill on sm_90; on other architectures, and for rows of several axes, the compiler decides.
    """
    items, blocks = 2 if vector * itemsize <= 4 else 1, {2: 4, 4: 5, 8: 3}[itemsize] - (operands > 4)
    if apart:
        items, blocks = 1, min(blocks, 4) if divides else blocks
    elif operands <= 2:
        items, blocks = 2, {2: 4, 4: 6, 8: 5}[itemsize]
    elif divides and operands == 3 and itemsize > 2:
        items, blocks = 2, {4: 4, 8: 3}[itemsize]
    return tuned(BroadcastToRows(items_per_thread=items, min_blocks_per_multiprocessor=0 if dims > 1 or _beyond(target) else blocks))


def broadcast_flat(target: Target, itemsize: int, guarded: bool) -> BroadcastFlat:
    """The policy: for a gradient that is ``guarded``, whose special elements take many registers, as many blocks as fit without a spill on sm_90.

    Blocks have twice as many halves as other elements.
    """
    blocks = 0 if not guarded or _beyond(target) else 5 if itemsize == 4 else 4
    tile = BroadcastFlat.tile_elements * (2 if itemsize == 2 else 1)
    return tuned(BroadcastFlat(min_blocks_per_multiprocessor=blocks, tile_elements=tile))
