"""Decoupled look-back: blocks scan tiles of a row at the same time, and each gets the prefix of the tiles before its own.

A block publishes a *status* of its tile in global memory: first the tile's aggregate, later its inclusive prefix. Later blocks poll it. A state
travels in 64-bit pieces; each piece and its flag are one 128-bit word, stored and loaded at once, so no fence is needed. Tiles are numbered in the
order in which their blocks start, so each tile that a block waits for is running or done. Source: Merrill and Garland, "Single-pass parallel prefix
scan with decoupled look-back" (2016).
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.block import reach_of
from ...device.order import load_relaxed_2, store_relaxed_2
from ...device.vector import prefetch
from ...device.warp import States, fold_of
from ...kernels.elements import bit_casts
from ...runtime import jit
from ..tiling import pieces_of

#: flags of a status: it holds the fold of its tile, or that of all tiles up to it
AGGREGATE, INCLUSIVE_PREFIX = 1, 2
#: pieces of statuses that a lane reads before it waits for the first, unless a kernel wants more
READ_AHEAD = 2


@functools.cache
def packing_of(kinds: tuple[Any, ...]) -> tuple[int, Any, Any]:
    """(64-bit pieces of a state, ``pack(state, piece)``, ``unpack(statuses, at)``); a status is [piece, flag, piece, flag, …], int64, from ``at``."""
    width, layout = len(kinds), pieces_of([kind.bitwidth for kind in kinds])
    (piece_0, shift_0), (piece_1, shift_1), (piece_2, shift_2), (piece_3, shift_3) = (*layout, *[(-1, 0)] * 3)[:4]
    (to_0, from_0), (to_1, from_1), (to_2, from_2), (to_3, from_3) = (bit_casts(kind) for kind in (*kinds, *[kinds[0]] * 3)[:4])

    @jit.device
    def pack(state: Any, piece: Any) -> Any:
        bits = int64(0)
        if width == 1:
            return to_0(state)
        if piece == piece_0:
            bits |= to_0(state[0]) << shift_0
        if piece == piece_1:
            bits |= to_1(state[1]) << shift_1
        if width > 2 and piece == piece_2:
            bits |= to_2(state[2]) << shift_2
        if width > 3 and piece == piece_3:
            bits |= to_3(state[3]) << shift_3
        return bits

    @jit.device
    def unpack(statuses: Any, at: Any) -> Any:
        first = from_0(statuses[at + 2 * piece_0] >> shift_0)
        if width == 1:
            return first
        second = from_1(statuses[at + 2 * piece_1] >> shift_1)
        if width == 2:
            return first, second
        third = from_2(statuses[at + 2 * piece_2] >> shift_2)
        if width == 3:
            return first, second, third
        return first, second, third, from_3(statuses[at + 2 * piece_3] >> shift_3)

    return layout[-1][0] + 1, pack, unpack


class Lookback:
    """The look-back of blocks that have a tile of each of ``rows`` rows.

    ``look_back(tile_status, own_index, index_stride, tile, tiles, active, initial, aggregate, tile_prefixes)`` publishes the status of each row's
    tile and leaves its exclusive prefix, from ``initial`` on, in slot r of ``tile_prefixes``, arrays in shared memory. All threads of the block call
    it. Row r has the ``lanes`` threads from r · lanes on. They give: ``own_index``, the number of the tile's status in ``tile_status``;
    ``index_stride``, statuses from one tile of the row to the next; ``tile`` of ``tiles``, its number in the row; ``active``, whether the row exists;
    ``aggregate``, the fold of its tile.

    ``fetch(tile_status, own_index)`` brings a status to the level 2 cache, before a block publishes it and others wait for it.
    """

    def __init__(self, states: States, group_tiles: int, rows: int, threads: int, read_ahead: int) -> None:
        self.lanes = max(1, min(32, threads // rows))
        self._states, self._group_tiles, self._rows, self._read_ahead = states, group_tiles, rows, read_ahead
        _, self._put = reach_of(len(states.kinds))
        self._pieces, pack, self._unpack = packing_of(states.kinds)
        pieces = self._pieces

        @jit.device
        def publish(tile_status: Any, index: Any, state: Any, flag: Any) -> None:
            word = cuda.local.array(2, int64)
            for piece in range(pieces):
                word[0], word[1] = pack(state, piece), int64(flag)
                store_relaxed_2(tile_status, (int64(index) * pieces + piece) * 2, word, 0)

        @jit.device
        def fetch(tile_status: Any, index: Any) -> None:
            prefetch(tile_status, int64(index) * (2 * pieces))

        @jit.device
        def read(tile_status: Any, index: Any, statuses: Any, at: Any) -> None:
            for piece in range(pieces):
                load_relaxed_2(tile_status, (int64(index) * pieces + piece) * 2, statuses, at + 2 * piece)

        @jit.device
        def flag_of(statuses: Any, at: Any) -> Any:
            """The flag of a status that was read, 0 while pieces are missing or differ in their flags."""
            flag = statuses[at + 1]
            for piece in range(1, pieces):
                flag = flag if flag == statuses[at + 2 * piece + 1] else int64(0)
            return flag

        self._publish, self._read, self._flag_of, self.fetch = publish, read, flag_of, fetch
        self.look_back = self._fixed_order() if group_tiles else self._arrival_order()

    def _fixed_order(self) -> Any:
        """Look-back in groups of ``group_tiles`` tiles, with the same folds in every run.

        A tile folds the aggregates of the tiles before it in its group, and gets what comes before the group from the last tile of the group before.
        Groups wait for each other in turn; so the last tile of a group folds all others first, and combines the group's prefix last. Until it has
        that, it publishes the fold of the group in the place of its own aggregate: the group after need wait only for the one before both.
        """
        states, publish, read, flag_of, unpack, put, lanes = (
            self._states, self._publish, self._read, self._flag_of, self._unpack, self._put, self.lanes,
        )  # fmt: skip
        identity, combine, fold = states.identity, states.combine, fold_of(states, lanes)
        status_words, lookback_threads = 2 * self._pieces, self._rows * lanes
        group_tiles, tiles_a_lane, lane_bits = self._group_tiles, -(-self._group_tiles // lanes), lanes.bit_length() - 1
        ahead = min(max(1, self._read_ahead // self._pieces), tiles_a_lane)
        words_ahead = ahead * status_words

        @jit.device
        def await_read(tile_status: Any, index: Any, statuses: Any, at: Any, flag: Any) -> Any:
            """The state of a status that was read, which is read again until it has this flag or a later one."""
            while flag_of(statuses, at) < flag:
                read(tile_status, index, statuses, at)
            return unpack(statuses, at)

        @jit.device
        def prefix_up_to(tile_status: Any, index: Any) -> Any:
            """The inclusive prefix of a group whose last tile has this status."""
            status = cuda.local.array(status_words, int64)
            read(tile_status, index, status, 0)
            return await_read(tile_status, index, status, 0, INCLUSIVE_PREFIX)

        @jit.device
        def prefix_before(tile_status: Any, index: Any, group_stride: Any) -> Any:
            """The same of the group before, or of the one before that, and the fold of the group between."""
            status = cuda.local.array(status_words, int64)
            read(tile_status, index - group_stride, status, 0)
            state = await_read(tile_status, index - group_stride, status, 0, AGGREGATE)
            if flag_of(status, 0) == AGGREGATE:
                state = combine(prefix_up_to(tile_status, index - 2 * group_stride), state)
            return state

        @jit.device
        def look_back(
            tile_status: Any, own_index: Any, index_stride: Any, tile: Any, tiles: Any, active: Any, initial: Any, aggregate: Any, tile_prefixes: Any
        ) -> None:
            statuses = cuda.local.array(words_ahead, int64)
            thread, rank, awaited = int32(cuda.threadIdx.x), int32(tile % group_tiles), active and tile < tiles - 1
            if thread < lookback_threads:
                lane, state = thread & (lanes - 1), identity()
                if lane == 0 and awaited and rank < group_tiles - 1:
                    publish(tile_status, own_index, aggregate, AGGREGATE)
                # how many of the tiles before this one in its group are for the lane, and the status of the first
                mine = min(rank - lane * tiles_a_lane, tiles_a_lane) if active else 0
                first_index = own_index + (lane * tiles_a_lane - rank) * index_stride
                for start in range(0, tiles_a_lane, ahead):
                    for k in range(ahead):
                        if start + k < mine:
                            read(tile_status, first_index + (start + k) * index_stride, statuses, k * status_words)
                    for k in range(ahead):
                        if start + k < mine:
                            index = first_index + (start + k) * index_stride
                            state = combine(state, await_read(tile_status, index, statuses, k * status_words, AGGREGATE))
                state = fold(state)
                if lane == 0:
                    waits = active and tile >= group_tiles
                    if awaited and rank == group_tiles - 1:
                        inclusive = combine(state, aggregate)
                        if waits:
                            publish(tile_status, own_index, inclusive, AGGREGATE)
                            initial = prefix_before(tile_status, own_index, group_tiles * index_stride)
                        publish(tile_status, own_index, combine(initial, inclusive), INCLUSIVE_PREFIX)
                    elif waits:
                        initial = prefix_up_to(tile_status, own_index - (rank + 1) * index_stride)
                    put(tile_prefixes, thread >> lane_bits, combine(initial, state))
            cuda.syncthreads()

        return look_back

    def _arrival_order(self) -> Any:
        """Look-back over windows of ``lanes`` tiles, until one of them has its inclusive prefix: the folds depend on which tiles are done."""
        states, publish, read, flag_of, unpack, put, lanes = (
            self._states, self._publish, self._read, self._flag_of, self._unpack, self._put, self.lanes,
        )  # fmt: skip
        identity, combine, fold = states.identity, states.combine, fold_of(states, lanes)
        status_words, lookback_threads = 2 * self._pieces, self._rows * lanes
        lane_mask, lane_bits = (1 << lanes) - 1, lanes.bit_length() - 1

        @jit.device
        def last_of(mask: Any) -> Any:
            """The last lane of the caller's row whose bit is set, −1 for none."""
            bits = int64(uint32(mask)) >> (int32(cuda.laneid) & -lanes) & lane_mask
            return 31 - cuda.clz(int32(bits))

        @jit.device
        def look_back(
            tile_status: Any, own_index: Any, index_stride: Any, tile: Any, tiles: Any, active: Any, initial: Any, aggregate: Any, tile_prefixes: Any
        ) -> None:
            status = cuda.local.array(status_words, int64)
            thread, awaited = int32(cuda.threadIdx.x), active and tile < tiles - 1
            if thread < lookback_threads:
                lane, window_end, prefix, looking = thread & (lanes - 1), tile, identity(), active and tile > 0
                if lane == 0 and awaited:
                    publish(
                        tile_status, own_index, aggregate if tile > 0 else combine(initial, aggregate), AGGREGATE if tile > 0 else INCLUSIVE_PREFIX
                    )
                while cuda.ballot_sync(-1, looking) != 0:
                    candidate, flag, last_prefix, last_missing, state = window_end - lanes + lane, int64(0), int32(-1), int32(0), identity()
                    while cuda.ballot_sync(-1, looking and last_missing > last_prefix) != 0:
                        if looking:
                            read(tile_status, own_index - (tile - max(candidate, int64(0))) * index_stride, status, 0)
                            flag = flag_of(status, 0)
                        last_prefix, last_missing = last_of(cuda.ballot_sync(-1, flag == INCLUSIVE_PREFIX)), last_of(cuda.ballot_sync(-1, flag == 0))
                    if looking and lane >= last_prefix and candidate >= 0:
                        state = unpack(status, 0)
                    prefix = combine(fold(state), prefix)
                    looking = looking and last_prefix < 0
                    window_end -= lanes
                if lane == 0:
                    if awaited and tile > 0:
                        publish(tile_status, own_index, combine(prefix, aggregate), INCLUSIVE_PREFIX)
                    put(tile_prefixes, thread >> lane_bits, prefix if tile > 0 else initial)
            cuda.syncthreads()

        return look_back


@functools.cache
def lookback_of(states: States, group_tiles: int, rows: int, threads: int, read_ahead: int = READ_AHEAD) -> Lookback:
    """The one :class:`Lookback` for these."""
    return Lookback(states, group_tiles, rows, threads, read_ahead)
