"""Tiles of rows that blocks scan at the same time: what comes before each, by words that blocks leave for one another.

A state travels in 64-bit pieces, each in one 128-bit word with a flag, so that no fence is needed. Tiles are numbered by a counter in the order in
which blocks begin, so that whatever a tile waits for is running or done.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import float32, float64, int32, int64, uint32

from ...device.bits import f32_as_u32, f64_as_i64, i64_as_f64, u32_as_f32
from ...device.block import reach_of
from ...device.order import load_relaxed_2, store_relaxed_2
from ...device.warp import States, fold_of
from ...runtime import jit
from ..tiling import HEAD, pieces_of

#: flags: the fold of a tile, and that of all tiles up to it
TILE, ALL = 1, 2


def _bits(kind: Any) -> tuple[Any, Any]:
    """To and from the low bits of an int64."""
    if kind == float32:
        return jit.device(lambda x: int64(f32_as_u32(x))), jit.device(lambda bits: u32_as_f32(uint32(bits)))
    if kind == float64:
        return jit.device(lambda x: f64_as_i64(x)), jit.device(lambda bits: i64_as_f64(bits))
    if kind == int32:
        return jit.device(lambda x: int64(uint32(x))), jit.device(lambda bits: int32(bits))
    return jit.device(lambda x: int64(x)), jit.device(lambda bits: int64(bits))


@functools.cache
def packing_of(kinds: tuple[Any, ...]) -> tuple[int, Any, Any]:
    """How many 64-bit pieces a state has, ``pack(state, piece)``, and ``unpack(item)``, of pieces each with its flag behind it."""
    width, places = len(kinds), pieces_of([kind.bitwidth for kind in kinds])
    (piece_0, shift_0), (piece_1, shift_1), (piece_2, shift_2), (piece_3, shift_3) = (*places, *[(-1, 0)] * 3)[:4]
    (to_0, from_0), (to_1, from_1), (to_2, from_2), (to_3, from_3) = (_bits(kind) for kind in (*kinds, *[kinds[0]] * 3)[:4])

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
    def unpack(item: Any) -> Any:
        first = from_0(item[2 * piece_0] >> shift_0)
        if width == 1:
            return first
        second = from_1(item[2 * piece_1] >> shift_1)
        if width == 2:
            return first, second
        third = from_2(item[2 * piece_2] >> shift_2)
        if width == 3:
            return first, second, third
        return first, second, third, from_3(item[2 * piece_3] >> shift_3)

    return places[-1][0] + 1, pack, unpack


class Chain:
    """``before(words, own, apart, tile, tiles, there, begin, total, told)``: what comes before a tile of a row, ``begin`` and the tiles before it.

    A block has tiles of ``count`` rows, each of which belongs to ``lanes`` of its first lanes: row r to those from r · lanes on. All threads call it,
    these with ``total``, the fold of their row's tile, and where that is in ``words``: ``own`` items behind ``HEAD`` words, and ``apart`` from those
    of the row's other tiles. It leaves the state in place r of ``told``, arrays in shared memory. Only rows that are ``there`` are waited for.
    """

    def __init__(self, states: States, group: int, count: int, threads: int) -> None:
        self.lanes = max(1, min(32, threads // count))
        self._states, self._group, self._count = states, group, count
        _, self._put = reach_of(len(states.kinds))
        self._pieces, pack, self._unpack = packing_of(states.kinds)
        pieces = self._pieces

        @jit.device
        def publish(words: Any, at: Any, state: Any, flag: Any) -> None:
            word = cuda.local.array(2, int64)
            for piece in range(pieces):
                word[0], word[1] = pack(state, piece), int64(flag)
                store_relaxed_2(words, HEAD + (int64(at) * pieces + piece) * 2, word, 0)

        @jit.device
        def peek(words: Any, at: Any, into: Any) -> Any:
            """Reads an item; its flag, 0 while it is not whole."""
            flag = int64(0)
            for piece in range(pieces):
                load_relaxed_2(words, HEAD + (int64(at) * pieces + piece) * 2, into, 2 * piece)
                flag = into[2 * piece + 1] if piece == 0 or flag == into[2 * piece + 1] else int64(0)
            return flag

        self._publish, self._peek = publish, peek
        self.before = self._in_order() if group else self._as_it_comes()

    def _in_order(self) -> Any:
        """The tiles of its group before it, and what comes before the group, which the last tile of the one before leaves: always the same folds.

        The last tile has all but what comes before the group ready when that arrives, as every group waits for those before it in turn.
        """
        states, publish, peek, unpack, put, lanes = self._states, self._publish, self._peek, self._unpack, self._put, self.lanes
        identity, combine, fold, room, busy = states.identity, states.combine, fold_of(states, lanes), 2 * self._pieces, self._count * lanes
        group, loads, lane_bits = self._group, -(-self._group // lanes), lanes.bit_length() - 1

        @jit.device
        def wait(words: Any, at: Any) -> Any:
            item = cuda.local.array(room, int64)
            while peek(words, at, item) == 0:
                pass
            return unpack(item)

        @jit.device
        def before(words: Any, own: Any, apart: Any, tile: Any, tiles: Any, there: Any, begin: Any, total: Any, told: Any) -> None:
            thread, place, heard = int32(cuda.threadIdx.x), int32(tile % group), there and tile < tiles - 1
            if thread < busy:
                lane, state = thread & (lanes - 1), identity()
                if lane == 0 and heard and place < group - 1:
                    publish(words, own, total, TILE)
                for k in range(loads):
                    at = lane * loads + k
                    if there and at < place:
                        state = combine(state, wait(words, own + (at - place) * apart))
                state = fold(state)
                if lane == 0:
                    waits = there and tile >= group
                    if heard and place == group - 1:
                        through = combine(state, total)
                        if waits:
                            begin = wait(words, own - group * apart)
                        publish(words, own, combine(begin, through), ALL)
                    elif waits:
                        begin = wait(words, own - (place + 1) * apart)
                    put(told, thread >> lane_bits, combine(begin, state))
            cuda.syncthreads()

        return before

    def _as_it_comes(self) -> Any:
        """As soon as known folds reach back to the row's beginning, after Merrill and Garland, "Single-pass parallel prefix scan" (2016)."""
        states, publish, peek, unpack, put, lanes = self._states, self._publish, self._peek, self._unpack, self._put, self.lanes
        identity, combine, fold, room, busy = states.identity, states.combine, fold_of(states, lanes), 2 * self._pieces, self._count * lanes
        own_bits, lane_bits = (1 << lanes) - 1, lanes.bit_length() - 1

        @jit.device
        def last_of(mask: Any) -> Any:
            """The last lane of the row's whose bit is set, −1 for none."""
            own = int64(uint32(mask)) >> (int32(cuda.laneid) & -lanes) & own_bits
            return 31 - cuda.clz(int32(own))

        @jit.device
        def before(words: Any, own: Any, apart: Any, tile: Any, tiles: Any, there: Any, begin: Any, total: Any, told: Any) -> None:
            item = cuda.local.array(room, int64)
            thread, heard = int32(cuda.threadIdx.x), there and tile < tiles - 1
            if thread < busy:
                lane, last, behind, looking = thread & (lanes - 1), tile, identity(), there and tile > 0
                if lane == 0 and heard:
                    publish(words, own, total if tile > 0 else combine(begin, total), TILE if tile > 0 else ALL)
                while cuda.ballot_sync(-1, looking) != 0:
                    at, flag, nearest, unknown, state = last - lanes + lane, int64(0), int32(-1), int32(0), identity()
                    while cuda.ballot_sync(-1, looking and unknown > nearest) != 0:
                        if looking:
                            flag = peek(words, own - (tile - max(at, int64(0))) * apart, item)
                        nearest, unknown = last_of(cuda.ballot_sync(-1, flag == ALL)), last_of(cuda.ballot_sync(-1, flag == 0))
                    if looking and lane >= nearest and at >= 0:
                        state = unpack(item)
                    behind = combine(fold(state), behind)
                    looking = looking and nearest < 0
                    last -= lanes
                if lane == 0:
                    if heard and tile > 0:
                        publish(words, own, combine(behind, total), ALL)
                    put(told, thread >> lane_bits, behind if tile > 0 else begin)
            cuda.syncthreads()

        return before


@functools.cache
def chain_of(states: States, group: int, count: int, threads: int) -> Chain:
    """The one :class:`Chain` for these."""
    return Chain(states, group, count, threads)
