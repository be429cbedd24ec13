"""Gradients of rows that lie one behind the other: lanes share the elements of all rows, wherever a row ends."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..flat_tiling import flat_launch, rows_met
from ..policy import BroadcastFlat
from .common import count_of, first_row_of, row_of, short_reciprocal
from .gather import quotient_of
from .vjp import element_vjp_of, special_of

#: where a segment's row begins whose id is out of range: it stays negative whatever column is added
_NOWHERE = -(1 << 30)


@functools.cache
def _locator_of(pieces: int, units: int, unit: int, span: int, stride: int) -> Any:
    """``locate(bases, offset, pitch, reciprocal, places, tile_rows)``: where the segments of a batch have what its elements need.

    ``bases`` has, for each row of the tile, the place where its segment's row begins less that where it begins itself. A piece is ``units`` times
    ``unit`` elements, and these have one row. Unit k has what it needs from ``places[k]`` on, which is negative where an id is out of range.
    ``tile_rows[k]`` is its row in the tile. ``span``: see :func:`broadcast_flat`.
    """

    @jit.device
    def locate(bases: Any, offset: Any, pitch: Any, reciprocal: Any, places: Any, tile_rows: Any) -> None:
        for u in range(pieces):
            for v in range(units if span > 2 else 1):
                k, at = u * units + v, int32(offset + u * stride + v * unit)
                row = row_of(at, reciprocal)
                places[k], tile_rows[k] = int32(bases[uint32(row)] + at), row
                if span == 2:
                    left, next_place = int32((row + 1) * pitch - at), int32(bases[uint32(row + 1)] + at)
                    for w in range(1, units):
                        inside = w * unit < left
                        places[k + w] = int32((places[k] if inside else next_place) + w * unit)
                        tile_rows[k + w] = row if inside else int32(row + 1)

    return locate


@functools.cache
def flat_broadcaster_of(
    gradient: str, value: str, index: str, paired: bool, vector: int, unit: int, span: int, items_per_thread: int, threads_per_block: int,
    ids_per_thread: int, new: bool = False, ordered: bool = False, count: str = "", differences: bool = False,
) -> Any:  # fmt: skip
    """``broadcast_tile(block, blocks, x, w, ids, counts, …)``: what block ``block`` of ``blocks`` of :func:`broadcast_flat` does.

    ``new``: whether ``folded`` is written in the same launch. The other options are those of :func:`broadcast_flat`.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, element_vjp, element_vjp_normal = GRADIENTS[gradient], element_vjp_of(gradient, value), element_vjp_of(gradient, value, normal=True)
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    unsigned = jit.SCALARS["u" + index[1:]]
    # an id is needed once, what its segment has again and again
    results, gathers, threads, load_id = grad.results, grad.gathered > 0, threads_per_block, LOAD_STREAM[1]
    divided, rows_of, quotient, turn = count != "", count_of(differences), quotient_of(value), ids_per_thread * threads_per_block

    @functools.cache
    def step_of(pieces: int, width: int, checked: bool) -> Any:
        """``step(…, bases, begin, start, shift, …)`` stores the gradients of ``pieces`` pieces of ``width`` elements each."""
        stride, size, together = threads * width, pieces * width, min(unit, width)
        locate = _locator_of(pieces, width // together, together, span if width > together else 1, stride)
        load, store, load_once = LOAD_STREAM[width], STORE_STREAM[width], LOAD_ONCE[together]
        folded_width = min(BY_NAME[BY_NAME[value].accumulator].vector, together * max(results, 1))
        load_folded, units, folded_size = (LOAD if new else LOAD_ONCE)[folded_width], size // together, max(size * results, 1)
        at_once = paired and together == unit and 2 * together <= BY_NAME[value].vector
        load_both, both_size, tests, special = (
            LOAD_ONCE[2 * together if at_once else 1],
            2 * together,
            grad.guarded and not checked,
            special_of(value, size),
        )

        @jit.device
        def load_segment(g: Any, y: Any, place: Any, batch_g: Any, batch_y: Any, at: Any) -> None:
            """Loads what a segment has of a unit, from ``place`` on."""
            if paired:
                first = int32(2 * place - (place & (unit - 1) if together < unit else 0))
                if at_once:
                    both = cuda.local.array(both_size, element)
                    load_both(g, first, both, 0)
                    for k in range(together):
                        batch_g[at + k], batch_y[at + k] = both[k], both[together + k]
                else:
                    load_once(g, first, batch_g, at)
                    load_once(y, first + unit, batch_y, at)
            else:
                if has_g:
                    load_once(g, place, batch_g, at)
                if has_y:
                    load_once(y, place, batch_y, at)

        @jit.device
        def step(
            x: Any, w: Any, g: Any, y: Any, folded: Any, output: Any, bases: Any, counts_at: Any,
            begin: Any, start: Any, shift: Any, first: Any, pitch: Any, reciprocal: Any,
        ) -> None:  # fmt: skip
            batch_x = cuda.local.array(size, element)
            batch_w = cuda.local.array(size, element)
            batch_g = cuda.local.array(size, element)
            batch_y = cuda.local.array(size, element)
            batch_folded = cuda.local.array(folded_size, wide)
            places = cuda.local.array(units, int32)
            tile_rows = cuda.local.array(units, int32)
            here = cuda.local.array(units, int32)
            for u in range(pieces):
                if has_x:
                    load(x, begin + start + u * stride, batch_x, u * width)
                if has_w:
                    load(w, begin + start + u * stride, batch_w, u * width)
            locate(bases, int32(shift + start), pitch, reciprocal, places, tile_rows)
            for k in range(units):
                if divided:
                    here[k] = bases[uint32(counts_at + tile_rows[k])]
                if not checked or places[k] >= 0:
                    load_segment(g, y, places[k], batch_g, batch_y, k * together)
                    if gathers:
                        for r in range(0, together * results, folded_width):
                            load_folded(folded, places[k] * results + r, batch_folded, k * together * results + r)
            if divided:
                for at in range(size):
                    if not checked or places[at // together] >= 0:
                        batch_g[at] = quotient(batch_g[at], here[at // together])
            usual = False
            if tests:
                # one test of all y, so that normal ones need no branches
                usual = not special(batch_y, 0)
            if usual:
                for at in range(size):
                    batch_x[at] = element_vjp_normal(batch_x, batch_w, batch_g, batch_y, at, batch_folded, folded, 0, 0)
            else:
                for at in range(size):
                    k = at // together
                    if not checked or places[k] >= 0:
                        folded_index = (places[k] + at % together) * results
                        batch_x[at] = element_vjp(batch_x, batch_w, batch_g, batch_y, at, batch_folded, folded, folded_index, first + tile_rows[k])
                    else:
                        batch_x[at] = element(0)
            for u in range(pieces):
                store(output, begin + start + u * stride, batch_x, u * width)

        return step

    batch, piece, single = step_of(items_per_thread, vector, False), step_of(1, vector, True), step_of(1, 1, True)

    @jit.device
    def broadcast_tile(
        block: Any, blocks: Any, x: Any, w: Any, ids: Any, counts: Any, g: Any, y: Any, folded: Any, output: Any,
        rows: Any, columns: Any, segments: Any, tile: Any, tile_rows: Any, reciprocal: Any,
    ) -> None:  # fmt: skip
        bases = cuda.shared.array(0, int32)
        batch_ids = cuda.local.array(ids_per_thread, index_type)
        batch_counts = cuda.local.array(ids_per_thread, int32)
        thread, pitch = int32(cuda.threadIdx.x), int32(columns)
        begin = int64(blocks - block - 1) * tile
        length = int32(min(tile, rows * columns - begin))
        first, short = first_row_of(begin, reciprocal), short_reciprocal(reciprocal)
        shift, height, last = int32(begin - first * columns), int32(tile_rows), int32(min(tile_rows, rows - first) - 1)
        most, all_inside, row = unsigned(segments), True, thread
        # behind the bases of all turns
        counts_at = int32(uint32(height + turn - 1) // uint32(turn) * turn)
        if ordered:
            identifier = ids[first]
            if identifier == ids[first + row_of(int32(shift + length - 1), short)]:
                # then the ids between are equal, too
                all_inside = unsigned(identifier) < most
                base = int32(int32(identifier) * pitch if all_inside else _NOWHERE)
                here = int32(rows_of(counts, int64(identifier))) if divided and all_inside else int32(1)
                while row < height:
                    bases[uint32(row)] = int32(base - row * pitch)
                    if divided:
                        bases[uint32(counts_at + row)] = here
                    row = int32(opaque(row + threads))
        while row < height:
            for u in range(ids_per_thread):
                load_id(ids, first + min(int32(row + u * threads), last), batch_ids, u)
            for u in range(ids_per_thread):
                inside = unsigned(batch_ids[u]) < most
                all_inside &= inside
                bases[uint32(row + u * threads)] = int32((int32(batch_ids[u]) * pitch if inside else _NOWHERE) - (row + u * threads) * pitch)
            if divided:
                for u in range(ids_per_thread):
                    inside = unsigned(batch_ids[u]) < most
                    batch_counts[u] = int32(rows_of(counts, int64(batch_ids[u]))) if inside else int32(1)
                for u in range(ids_per_thread):
                    bases[uint32(counts_at + row + u * threads)] = batch_counts[u]
            row = int32(opaque(row + turn))
        limit = length if cuda.syncthreads_and(int32(all_inside)) and length == tile else int32(0)
        at = int32(0)
        while at < limit:
            batch(x, w, g, y, folded, output, bases, counts_at, begin, at + thread * vector, shift, first, pitch, short)
            at = int32(opaque(at + items_per_thread * threads * vector))
        start = int32(limit + thread * vector)
        while start + vector <= length:
            piece(x, w, g, y, folded, output, bases, counts_at, begin, start, shift, first, pitch, short)
            start = int32(opaque(start + threads * vector))
        start = int32(length - length % vector + thread)
        if start < length:
            single(x, w, g, y, folded, output, bases, counts_at, begin, start, shift, first, pitch, short)

    return broadcast_tile


@jit.kernel
def broadcast_flat(
    *, gradient: str, value: str, index: str, paired: bool, guarded: bool, vector: int, unit: int, span: int, items_per_thread: int,
    ordered: bool = False, count: str = "", differences: bool = False, threads_per_block: int = BroadcastFlat.threads_per_block,
    ids_per_thread: int = BroadcastFlat.ids_per_thread,
) -> Any:  # fmt: skip
    """:func:`broadcast_to_rows` where x, w and output are contiguous, as are g and y: lanes share pieces of ``vector`` elements of all rows.

    A block has ``tile`` elements, a multiple of those that its threads have in flight, and in shared memory what leads from an element of each row
    to that of its segment. Where all ids of a full tile are in range, no element asks again. The last tile comes first. Dynamic shared memory: 4
    bytes for each of ``tile_rows``, the rows that a tile may meet and one behind them, and for as many as one turn of the block loads; with counts,
    8 bytes.

    Constants and parameters as :mod:`.` lists them; ``x``, ``w``, ``g`` and ``y`` as in :func:`broadcast_to_rows`; and

    * ``unit``: elements that are in one row, and are aligned for one access: a part of a piece, or all of it
    * ``paired``: whether every ``unit`` elements of ``g`` are followed by as many of y; then ``y`` is the address of ``g``
    * ``span``: 1 where no piece meets two rows, 2 where one may meet two, 3 where it may meet more
    * ``items_per_thread``: pieces; ``ids_per_thread``: ids that a lane loads before it stores the first
    * ``ordered``: whether ids are in order, so that a block whose first and last row have the same loads no others
    * ``count``: the type of ``counts``, by which the ``g`` of a segment is divided first, or "" where it is not; no count has more than 31 bits
    * ``reciprocal``: :func:`~..tiling.reciprocal_of` the columns; its upper half divides exactly as long as (``tile`` + columns) · columns < 2^32
    """
    broadcast_tile = flat_broadcaster_of(
        gradient, value, index, paired, vector, unit, span, items_per_thread, threads_per_block, ids_per_thread, False, ordered, count,
        differences,
    )  # fmt: skip
    wide = accumulator_type(value)

    def broadcast_flat(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], counts: Ptr[count or int32], g: Ptr[value], y: Ptr[value], folded: Ptr[wide],
        guard: Ptr[int32], output: Ptr[value],
        rows: int64, columns: int64, segments: int64, tile: int64, tile_rows: int64, reciprocal: int64,
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        broadcast_tile(
            cuda.blockIdx.x, cuda.gridDim.x, x, w, ids, counts, g, y, folded, output, rows, columns, segments, tile, tile_rows, reciprocal
        )  # fmt: skip

    def launch_config(rows: int, columns: int, tile: int) -> tuple[int, int, int]:
        return flat_launch(rows * columns, tile, rows_met(tile, columns), threads_per_block, ids_per_thread, count != "")

    return broadcast_flat, launch_config
