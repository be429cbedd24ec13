"""Scans along another axis than the one on which neighbours lie side by side: lanes share out the columns, and walk down."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.build import opaque
from ...device.order import fetch_add
from ...device.warp import scan_of
from ...kernels.elements import strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from .chain import chain_of
from .law import law_of
from .stack import stack_of


@jit.kernel
def scan_columns(
    *, rule: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    place: str, kept: int,
) -> Any:  # fmt: skip
    """``scan_rows`` where x is not contiguous along the rows: here they are called columns.

    A block has ``lanes`` lanes beside each other, ``vector`` columns each, and threads / lanes below each other, which take ``steps`` neighbouring
    places each of a tile. Their folds meet in shared memory, where a thread for each column turns them into what lies before each, and keeps the
    carry of the next tile. Bytes and order as ``scan_rows``.
    """
    law = law_of(rule, value, result, exclusive, place)
    stack, states, wide = stack_of(law, vector, steps, reverse, index, False), law.states, law.wide
    fetch, fold, give, begin, combine, get, put = stack.fetch, stack.fold, stack.give, law.begin, states.combine, law.get, law.put
    depth, columns_a_block, column_of, size = threads // lanes, lanes * vector, strided_offset_of(kept), stack.size
    pitch, tile = columns_a_block + (lanes if lanes < 32 else 0), depth * steps
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = law.sizes(depth * pitch), law.kinds
    (few_0, few_1, few_2, few_3), size_q, size_r = law.sizes(vector), size if law.rule.items > 1 else 1, size if law.rule.items > 2 else 1

    def scan_columns(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], y: Ptr[result], z: Ptr[index or result],
        columns: int64, extent: int64, initial: Scalar[wide], origin: int64,
        kept_shape: Extents[kept], a_columns: Extents[kept], b_columns: Extents[kept], c_columns: Extents[kept], y_columns: Extents[kept],
        z_columns: Extents[kept], gaps: Extents[5],
    ) -> None:  # fmt: skip
        made = (cuda.local.array(size, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        met = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        before = (
            cuda.local.array(few_0, kind_0), cuda.local.array(few_1, kind_1), cuda.local.array(few_2, kind_2), cuda.local.array(few_3, kind_3),
        )  # fmt: skip
        thread = uint32(cuda.threadIdx.x)
        below, beside = int32(thread // uint32(lanes)), int32(thread % uint32(lanes))
        column = (int64(cuda.blockIdx.x) * lanes + beside) * vector
        there = column < columns
        column = min(column, int64(columns - vector))
        bases = column_of(column, kept_shape, a_columns), column_of(column, kept_shape, b_columns), column_of(column, kept_shape, c_columns)
        to_y, to_z = column_of(column, kept_shape, y_columns), column_of(column, kept_shape, z_columns)
        carry, first, end, own = begin(initial, origin), int64(0), int64(extent), below * pitch + beside
        while first < end:
            start = first + below * steps
            fetch((a, b, c), bases, gaps, start, end, initial, made)
            for v in range(vector):
                put(met, own + v * lanes, fold(made, v, start, end))
            cuda.syncthreads()
            if thread < columns_a_block:
                for d in range(depth):
                    total = get(met, d * pitch + thread)
                    put(met, d * pitch + thread, carry)
                    carry = combine(carry, total)
            cuda.syncthreads()
            # no barrier behind: these places are the thread's own again, and it alone overwrites them with the next tile's folds
            for v in range(vector):
                put(before, v, get(met, own + v * lanes))
            if there:
                give(y, z, to_y, to_z, gaps[3], gaps[4], made, start, end, before)
            first = opaque(first + tile)

    return scan_columns, lambda columns: (-(-columns // columns_a_block), threads, 0)


@jit.kernel
def scan_long_columns(
    *, rule: str, value: str, result: str, index: str, vector: int, lanes: int, steps: int, threads: int, reverse: bool, exclusive: bool,
    place: str, kept: int, group: int, times: int, again: bool,
) -> Any:  # fmt: skip
    """``scan_columns`` where there are few columns: a block scans one tile of a strip of them, and learns from other blocks what comes before it.

    A strip is what ``scan_columns`` gives to a block; here a lane takes ``times`` batches of places that follow one another. The first of ``words``
    hands out the ``tiles`` tiles of all ``strips``, those beside each other first; the others are those of the chain, an item for each column, as
    in ``scan_long_rows``. Bytes: every operand once, or, if a tile is more than one batch, twice, the second time from the caches where they hold it;
    and 16 for each piece of a tile's states, written, and read some times.
    """
    law = law_of(rule, value, result, exclusive, place)
    stack, states, wide = stack_of(law, vector, steps, reverse, index, again), law.states, law.wide
    fetch, fold, give, begin, combine, identity, get, put = (
        stack.fetch, stack.fold, stack.give, law.begin, states.combine, states.identity, law.get, law.put,
    )  # fmt: skip
    depth, beside_all, column_of, size = threads // lanes, lanes * vector, strided_offset_of(kept), stack.size
    pitch, places, high = beside_all + (lanes if lanes < 32 else 0), times * steps, depth * times * steps
    chain = chain_of(states, group, beside_all, threads)
    before_tile, own_lanes, group_reduce, of_lower, of_lane = chain.before, chain.lanes, scan_of(states, chain.lanes), states.of_lower, states.of_lane
    share, busy = depth // own_lanes, beside_all * own_lanes
    (size_0, size_1, size_2, size_3), (kind_0, kind_1, kind_2, kind_3) = law.sizes(depth * pitch), law.kinds
    (told_0, told_1, told_2, told_3), (few_0, few_1, few_2, few_3) = law.sizes(beside_all), law.sizes(vector)
    size_q, size_r = size if law.rule.items > 1 else 1, size if law.rule.items > 2 else 1

    @jit.device
    def descend(met: Any, column: Any) -> Any:
        """Turns the folds of lanes below each other into what lies before each; the fold of all."""
        lane = int32(cuda.threadIdx.x) & (own_lanes - 1)
        first, total = lane * share * pitch + column, identity()
        for d in range(share):
            total = combine(total, get(met, first + d * pitch))
        through = group_reduce(total)
        state = of_lower(through, int32(1))
        if lane == 0:
            state = identity()
        for d in range(share):
            total = get(met, first + d * pitch)
            put(met, first + d * pitch, state)
            state = combine(state, total)
        return of_lane(through, int32(cuda.laneid) | (own_lanes - 1))

    def scan_long_columns(
        a: Ptr[value], b: Ptr[value], c: Ptr[value], y: Ptr[result], z: Ptr[index or result], words: Ptr[int64],
        columns: int64, extent: int64, initial: Scalar[wide], origin: int64, tiles: int64, strips: int64,
        kept_shape: Extents[kept], a_columns: Extents[kept], b_columns: Extents[kept], c_columns: Extents[kept], y_columns: Extents[kept],
        z_columns: Extents[kept], gaps: Extents[5],
    ) -> None:  # fmt: skip
        made = (cuda.local.array(size, wide), cuda.local.array(size_q, wide), cuda.local.array(size_r, wide))
        met = (
            cuda.shared.array(size_0, kind_0), cuda.shared.array(size_1, kind_1), cuda.shared.array(size_2, kind_2),
            cuda.shared.array(size_3, kind_3),
        )  # fmt: skip
        told = (
            cuda.shared.array(told_0, kind_0), cuda.shared.array(told_1, kind_1), cuda.shared.array(told_2, kind_2),
            cuda.shared.array(told_3, kind_3),
        )  # fmt: skip
        before = (
            cuda.local.array(few_0, kind_0), cuda.local.array(few_1, kind_1), cuda.local.array(few_2, kind_2), cuda.local.array(few_3, kind_3),
        )  # fmt: skip
        ticket = cuda.shared.array(2, int64)
        thread = int32(cuda.threadIdx.x)
        if thread == 0:
            number = fetch_add(words, 0, int64(1))
            ticket[0] = number // strips
            ticket[1] = (number - ticket[0] * strips) * beside_all
        cuda.syncthreads()
        tile, strip = ticket[0], ticket[1]
        below, beside = int32(uint32(thread) // uint32(lanes)), int32(uint32(thread) % uint32(lanes))
        column = strip + beside * vector
        there = column < columns
        column = min(column, int64(columns - vector))
        bases = column_of(column, kept_shape, a_columns), column_of(column, kept_shape, b_columns), column_of(column, kept_shape, c_columns)
        to_y, to_z = column_of(column, kept_shape, y_columns), column_of(column, kept_shape, z_columns)
        end, own = int64(extent), below * pitch + beside
        first = tile * high + below * places
        for v in range(vector):
            put(before, v, identity())
        start = first
        while start < first + places:
            fetch((a, b, c), bases, gaps, start, end, initial, made)
            for v in range(vector):
                put(before, v, combine(get(before, v), fold(made, v, start, end)))
            start = opaque(start + steps)
        for v in range(vector):
            put(met, own + v * lanes, get(before, v))
        cuda.syncthreads()
        total, asked = identity(), int64(0)
        if thread < busy:
            number = thread // own_lanes
            total = descend(met, number)
            asked = strip + number % lanes * vector + number // lanes
        before_tile(words, tile * columns + asked, columns, tile, tiles, asked < columns, begin(initial, origin), total, told)
        for v in range(vector):
            put(before, v, combine(get(told, beside + v * lanes), get(met, own + v * lanes)))
        start = first
        while start < first + places:
            if times > 1:
                fetch((a, b, c), bases, gaps, start, end, initial, made)
            if there:
                give(y, z, to_y, to_z, gaps[3], gaps[4], made, start, end, before)
            start = opaque(start + steps)

    return scan_long_columns, lambda strips, tiles: (strips * tiles, threads, 0)
