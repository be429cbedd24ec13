"""Gradients of means over short segments of single elements by one launch, which counts the rows of each segment as it goes."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint16, uint32

from ...algebra import SUM
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.order import load_relaxed_2, store_relaxed_2
from ...device.vector import LOAD_ONCE, STORE_STREAM
from ...device.warp import warp_scan
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..policy import GatherMeans
from ..tiling import MEANS_LENGTHS, MEANS_ROWS, means_launch
from .common import from_below
from .gather import quotient_of


@jit.device
def _many_of_half(alike: Any) -> Any:
    """How many of the 16 lanes of half a warp say so."""
    return int32(cuda.popc(int32(cuda.ballot_sync(-1, alike) >> int32(cuda.laneid & 16)) & 0xFFFF))


@jit.device
def _is_alike(ids: Any, row: Any, rows: Any, identifier: Any) -> Any:
    return 0 <= row < rows and ids[row] == identifier


@jit.device
def _reach_of_half(ids: Any, origin: Any, step: Any, rows: Any, identifier: Any, near: Any) -> Any:
    """How many rows at the distances 1, 2 … from ``origin`` have the id, of which ``near`` of the first 16 do; ``step`` is 1 or −1.

    Where all 16 do, the lanes of half a warp look at distances that double, and then at 16 places between the last row of the run and the first
    behind it until these meet. Ids are in order.
    """
    lane = int32(cuda.laneid & 15)
    low, high = int64(near), int64(near + 1)  # the former is in the run, the latter not
    if cuda.ballot_sync(-1, near == 16) != 0:
        far = _many_of_half(_is_alike(ids, origin + step * (int64(32) << lane), rows, identifier))
        if near == 16:
            low, high = int64(16) << far, int64(32) << far if far < 16 else int64(rows + 1)
        while cuda.ballot_sync(-1, high - low > 1) != 0:
            base, width = low + 1, high - low - 1
            inside = _many_of_half(_is_alike(ids, origin + step * (base + (width * lane >> 4)), rows, identifier))
            low, high = base + (width * (inside - 1) >> 4) if inside > 0 else low, base + (width * inside >> 4)
    return low


@jit.kernel
def gather_means(
    *, value: str, index: str, count: str,
    threads_per_block: int = GatherMeans.threads_per_block, items_per_thread: int = GatherMeans.items_per_thread,
) -> Any:  # fmt: skip
    """``output[r] = source[ids[r]]``, divided by the number of rows that have the id; 0 where it is out of range. For one column and ids in order.

    A warp has a tile of 256 · ``items_per_thread`` rows, of which a lane takes 8 neighbours at a time. It lists where runs of equal ids begin in
    shared memory: each lane counts those that begin in its rows, and a scan of the warp numbers them. How far the first and the last run reach
    outside the tile is searched for; but of a run that reaches beyond both ends of a tile, a warp that has found the length leaves it to others. Then
    each lane takes every 32nd run, loads the segment's element, and divides it; and each row finds the quotient of its run. Bytes: rows ·
    (value + index), and the elements gathered, read or written once.

    Constants and parameters as :mod:`.` lists them; output and ids are contiguous, and begin at multiples of 16 bytes. A count is converted from
    ``count``. ``lengths`` [2 · ``MEANS_LENGTHS``], zeros before the launch: ids of long runs, plus 1, each with the rows that have it behind. The low
    bits of an id say where it is, unless another has replaced it.
    """
    element, index_type, count_type, unsigned = jit.SCALARS[value], jit.SCALARS[index], jit.SCALARS[count], jit.SCALARS["u" + index[1:]]
    vector, index_vector, warps, share = BY_NAME[value].vector, BY_NAME[index].vector, threads_per_block // 32, MEANS_ROWS
    load_ids, store, quotient = LOAD_ONCE[index_vector], STORE_STREAM[vector], quotient_of(value)
    stride, batch_size, tile, size = 32 * share, share * items_per_thread, 32 * share * items_per_thread, threads_per_block * share * items_per_thread
    begins_size, count_upto = size + threads_per_block, warp_scan(SUM, int32)

    def gather_means(
        source: Ptr[value], ids: Ptr[index], output: Ptr[value], lengths: Ptr[int64],
        rows: int64, segments: int64, source_row: int64,
    ) -> None:  # fmt: skip
        known = cuda.local.array(2, int64)
        begins = cuda.shared.array(begins_size, uint16)
        quotients = cuda.shared.array(size, element)
        batch_ids = cuda.local.array(batch_size, index_type)
        places = cuda.local.array(batch_size, int32)
        batch = cuda.local.array(batch_size, element)
        lane, warp, most = int32(cuda.laneid), int32(cuda.threadIdx.x >> 5), unsigned(segments)
        first = (int64(cuda.blockIdx.x) * warps + warp) * tile
        if first >= rows:
            return
        row, whole, lower = first + lane * share, first + tile <= rows, lane < 16
        # the 16 rows before the tile and those behind it, loaded along with those of the tile
        origin, step = first if lower else first + tile - 1, -1 if lower else 1
        outside = origin + step * ((lane & 15) + 1)
        there = 0 <= outside < rows
        near_id = ids[outside] if there else index_type(-1)
        if whole:
            for u in range(items_per_thread):
                for k in range(0, share, index_vector):
                    load_ids(ids, row + u * stride + k, batch_ids, u * share + k)
        else:
            for u in range(items_per_thread):
                for k in range(share):
                    batch_ids[u * share + k] = ids[row + u * stride + k] if row + u * stride + k < rows else index_type(-1)
        outer = cuda.shfl_sync(-1, batch_ids[0], 0), cuda.shfl_sync(-1, batch_ids[batch_size - 1], 31)
        outermost = outer[0] if lower else outer[1]
        near = _many_of_half(there and near_id == outermost)
        # else each of the many tiles of a long run would search for its ends; the tag of an id of −1 is 0, but its rows get 0 whatever their number
        long = whole and outer[0] == outer[1] and cuda.all_sync(-1, near == 16)
        tag, slot = int64(outer[0]) + 1, int64(int64(outer[0]) & (MEANS_LENGTHS - 1)) * 2
        known[0], known[1] = int64(0), int64(0)
        if long:
            load_relaxed_2(lengths, slot, known, 0)
        if long and cuda.shfl_sync(-1, known[0], 0) == tag:
            # all rows of the run, wherever they lie
            before_tile, behind_tile = cuda.shfl_sync(-1, known[1], 0) - tile, int64(0)
        else:
            reach = _reach_of_half(ids, origin, step, rows, outermost, near)
            before_tile, behind_tile = cuda.shfl_sync(-1, reach, 0), cuda.shfl_sync(-1, reach, 16)
            if long and lane == 0:
                known[0], known[1] = tag, before_tile + tile + behind_tile
                store_relaxed_2(lengths, slot, known, 0)

        held, counted = index_type(batch_ids[0] ^ index_type(1)), int32(0)  # any other id than the first of the tile
        for u in range(items_per_thread):
            past, held = from_below(batch_ids[u * share + share - 1], held)
            heads = int32(0)
            for k in range(share):
                heads = int32(heads + int32(batch_ids[u * share + k] != past))
                past, places[u * share + k] = batch_ids[u * share + k], int32(opaque(heads))
            counted = int32(counted + (heads << 16 * u))
        upto = count_upto(counted)
        totals, below = cuda.shfl_sync(-1, upto, 31), int32(upto - counted)
        at, spare = int32(warp * tile - 1), int32(size + cuda.threadIdx.x)  # of the run before the first, and where a lane stores what nobody reads
        runs = int32((totals & 0xFFFF) + (totals >> 16))
        for u in range(items_per_thread):
            base = int32(at + (below >> 16) + (totals & 0xFFFF)) if u == 1 else int32(at + (below & 0xFFFF))
            heads = int32(0)
            for k in range(share):
                began, heads = places[u * share + k] != heads, places[u * share + k]
                place = int32(base + heads)
                places[u * share + k] = place
                begins[uint32(place if began else spare)] = uint16(lane * share + u * stride + k)
        cuda.syncwarp()

        run = lane
        while run < runs:
            place, last = int32(at + 1 + run), run == runs - 1
            begin, end = int32(begins[uint32(place)]), int32(begins[uint32(place if last else place + 1)])
            identifier = ids[first + begin] if first + begin < rows else index_type(-1)
            length = count_type(int32((tile if last else end) - begin))
            if run == 0:
                length = count_type(length + before_tile)
            if last:
                length = count_type(length + behind_tile)
            result = element(0)
            if unsigned(identifier) < most:
                result = quotient(source[int64(identifier) * source_row], length)
            quotients[uint32(place)] = result
            run = int32(opaque(run + 32))
        cuda.syncwarp()

        for k in range(batch_size):
            batch[k] = quotients[uint32(places[k])]
        if whole:
            for u in range(items_per_thread):
                for k in range(0, share, vector):
                    store(output, row + u * stride + k, batch, u * share + k)
        else:
            for u in range(items_per_thread):
                for k in range(share):
                    if row + u * stride + k < rows:
                        output[row + u * stride + k] = batch[u * share + k]

    return gather_means, lambda rows: means_launch(rows, threads_per_block, items_per_thread)
