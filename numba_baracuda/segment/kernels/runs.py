"""How long the runs of equal ids are that the rows of a tile belong to, found where the ids are used, so that nothing else reads them."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...runtime import jit
from ..tiling import HALO, THREADS


@jit.device
def _reach(ids: Any, step: Any, origin: Any, way: Any, limit: Any) -> Any:
    """How many rows in a line from ``origin`` on, up or down by ``way``, hold its id; at most ``limit``. A warp's lanes look together.

    First at the nearest 32 · ``HALO``, then at powers of two of that distance, then at 32 places of what is left at a time.
    """
    lane = int64(cuda.laneid)
    wanted = ids[origin * step]
    low = int64(0)
    for k in range(HALO):
        distance = min(32 * k + lane + 1, limit)
        low += cuda.popc(cuda.ballot_sync(-1, 32 * k + lane < limit and ids[(origin + way * distance) * step] == wanted))
    high = low + 1
    if low == 32 * HALO:
        distance = low << (lane + 1)
        number = cuda.popc(cuda.ballot_sync(-1, distance <= limit and ids[(origin + way * min(distance, limit)) * step] == wanted))
        low <<= number
        high = min(low << 1, limit + 1)
    while high - low > 1:
        distance = low + ((high - low) * lane >> 5)
        number = cuda.popc(cuda.ballot_sync(-1, ids[(origin + way * distance) * step] == wanted))
        above = cuda.shfl_sync(-1, distance, min(number, 31))
        low = cuda.shfl_sync(-1, distance, max(number - 1, 0))
        if number == 0:
            high = low + 1
        elif number < 32:
            high = above
    return low


@functools.cache
def runs_of(count: str, share: int, pieces: int, warps: int = THREADS // 32) -> tuple[Any, Any, int]:
    """``find_edges`` and ``measure`` for a block whose thread t takes ``share`` rows from (u · THREADS + t) · ``share`` on, u < ``pieces``.

    Only the first ``warps`` have rows. Also how many numbers of type ``count`` each of their two shared arrays holds: the last row of every warp's
    rows that begins a run, behind the place where the tile's first run begins, and the first that does, before the place where its last run ends.
    ``find_edges`` fills in the two places, which the first and the last warp of the block look for outside the tile; there is a barrier in
    ``measure``.
    """
    number = jit.SCALARS[count]
    # no warp's rows begin a run so far behind, nor at the tile's first row, which belongs to the run that the left edge is of
    entries, unbegun, unended = warps * pieces, number.maxval, 0

    @jit.device
    def find_edges(ids: Any, step: Any, first: Any, height: Any, rows: Any, begins: Any, ends: Any) -> None:
        warp = cuda.threadIdx.x >> 5
        if warp == 0:
            before = _reach(ids, step, first, int64(-1), first)
            if cuda.laneid == 0:
                begins[0] = number(-before)
        if warp == THREADS // 32 - 1:
            last = first + height - 1
            behind = _reach(ids, step, last, int64(1), rows - 1 - last)
            if cuda.laneid == 0:
                ends[entries] = number(height + behind)

    @jit.device
    def measure(ids: Any, step: Any, first: Any, height: Any, here: Any, begins: Any, ends: Any, lengths: Any) -> None:
        """``lengths[u · share + k]`` of the runs that rows belong to; ``here`` holds their ids, those behind the tile as its last."""
        heads = cuda.local.array(pieces, int32)
        begun = cuda.local.array(pieces, number)
        ended = cuda.local.array(pieces, number)
        warp, lane = int32(cuda.threadIdx.x >> 5), int32(cuda.laneid)
        if warp < warps:
            for u in range(pieces):
                place = int32((u * THREADS + cuda.threadIdx.x) * share)
                previous = cuda.shfl_up_sync(-1, here[u * share + share - 1], 1)
                if lane == 0:
                    previous = ids[(first + min(max(place - 1, 0), height - 1)) * step]
                found = int32(here[u * share] != previous)
                for k in range(1, share):
                    if here[u * share + k] != here[u * share + k - 1]:
                        found = int32(found | 1 << k)
                heads[u] = found
                headed = cuda.ballot_sync(-1, found != 0)
                below, above = int32(headed & ((1 << lane) - 1)), int32(headed & ~((2 << lane) - 1))
                opening, closing = int32(place + 31 - cuda.clz(found)), int32(place + cuda.ffs(found) - 1)
                begun[u] = number(cuda.shfl_sync(-1, opening, (31 - cuda.clz(below)) & 31))
                ended[u] = number(cuda.shfl_sync(-1, closing, (cuda.ffs(above) - 1) & 31))
                if below == 0:
                    begun[u] = number(unbegun)
                    if found != 0 or lane == 31:
                        ends[u * warps + warp] = number(closing if found != 0 else unended)
                if above == 0:
                    ended[u] = number(unended)
                    if found != 0 or lane == 0:
                        begins[u * warps + warp + 1] = number(opening if found != 0 else unbegun)
        cuda.syncthreads()
        if warp < warps:
            for u in range(pieces):
                entry = int32(u * warps + warp)
                while begun[u] == unbegun:
                    begun[u] = begins[entry]
                    entry = int32(entry - 1)
                entry = int32(u * warps + warp + 1)
                while ended[u] == unended:
                    ended[u] = ends[entry]
                    entry = int32(entry + 1)
                place = (u * THREADS + cuda.threadIdx.x) * share
                begin, end = begun[u], ended[u]
                for k in range(share):
                    if heads[u] >> k & 1:
                        begin = number(place + k)
                    lengths[u * share + k] = begin
                for back in range(share):
                    k = share - 1 - back
                    lengths[u * share + k] = number(end - lengths[u * share + k])
                    if heads[u] >> k & 1:
                        end = number(place + k)

    return find_edges, measure, entries + 1
