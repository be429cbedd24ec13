"""The results of a fold are broadcast along ids in order: what a segment has is read and prepared once for a run of its rows."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...kernels.batch import state_accessors
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..policy import BroadcastRuns, RowWise
from ..tiling import Tiling
from .columns import FAR, columns_loader, columns_storer
from .rows import ids_loader_of
from .vjp import vjp_parts_of


@jit.kernel
def broadcast_runs(
    *, gradient: str, value: str, index: str, row_index: str, vector: int, apart: bool, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = BroadcastRuns.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`broadcast_to_rows` along ids in order: a group walks ``tile`` neighbouring rows, and reads what a segment has once for a run of them.

    It has ``items_per_thread`` rows in flight. Bytes: rows · columns · value for each of x, w and output, ids and permutation, and the row of a
    segment for each run of each tile.

    Constants and parameters as :mod:`.` lists them, and those of :func:`broadcast_to_rows` but for ``paired``.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, (segment_values, element_gradient) = GRADIENTS[gradient], vjp_parts_of(gradient, value)
    row_index_type, permuted = jit.SCALARS[row_index or "i32"], row_index != ""
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    results, gathers, (distance, width) = grad.results, grad.gathered > 0, (lanes, 1) if apart else (0, vector)
    offset_of, groups, size, step_of_column = strided_offset_of(dims), threads_per_block // lanes, vector * results, distance or 1
    folded_size, folded_width = max(size, 1), min(BY_NAME[BY_NAME[value].accumulator].vector, size & -size) if size and not apart else 1
    load, store = columns_loader(LOAD_STREAM[width], width, vector, distance), columns_storer(STORE_STREAM[width], width, vector, distance)
    load_once = columns_loader(LOAD_ONCE[width], width, vector, distance)
    load_folded = columns_loader(LOAD_ONCE[folded_width], folded_width, vector, distance, results)
    load_row_ids, (get, put) = ids_loader_of(index, row_index, items_per_thread, 1), state_accessors(4)
    batch_size, values_size = items_per_thread * vector, 4 * vector

    def broadcast_runs(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], g: Ptr[value], y: Ptr[value],
        folded: Ptr[wide], output: Ptr[value],
        rows: int64, columns: int64, tile: int64, chunks: int64, segments: int64, ids_step: int64, x_row: int64, w_row: int64, g_row: int64,
        y_row: int64, output_row: int64,
        shape: Extents[dims], x_strides: Extents[dims], w_strides: Extents[dims], g_strides: Extents[dims], y_strides: Extents[dims],
        output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch_x = cuda.local.array(batch_size, element)
        batch_w = cuda.local.array(batch_size, element)
        one_g = cuda.local.array(vector, element)
        one_y = cuda.local.array(vector, element)
        one_folded = cuda.local.array(folded_size, wide)
        values = cuda.local.array(values_size, wide)
        batch_ids = cuda.local.array(items_per_thread, index_type)
        row_indices = cuda.local.array(items_per_thread, row_index_type)
        block = int64(cuda.blockIdx.x)
        row_block = int64(uint32(block) // uint32(chunks)) if cut else block
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        column = (block - row_block * chunks) * (lanes * vector) + (cuda.threadIdx.x - group * lanes) * width
        left = int32(min(columns - column, FAR))
        x_offset, output_offset = offset_of(column, shape, x_strides), offset_of(column, shape, output_strides)
        w_offset, g_offset, y_offset = offset_of(column, shape, w_strides), offset_of(column, shape, g_strides), offset_of(column, shape, y_strides)
        first = (row_block * groups + group) * tile
        last = min(first + tile, rows) if column < columns and group < groups else first
        current = index_type(-1)
        while first < last:
            load_row_ids(ids, permutation, first, last, ids_step, batch_ids, row_indices)
            for u in range(items_per_thread):
                if first + u < last:
                    row = int64(row_indices[u]) if permuted else first + u
                    if has_x:
                        load(x, row * x_row + x_offset, batch_x, u * vector, left)
                    if has_w:
                        load(w, row * w_row + w_offset, batch_w, u * vector, left)
            for u in range(items_per_thread):
                inside = 0 <= batch_ids[u] < segments
                if batch_ids[u] != current and inside:
                    current = batch_ids[u]
                    segment = int64(current)
                    if has_g:
                        load_once(g, segment * g_row + g_offset, one_g, 0, left)
                    if has_y:
                        load_once(y, segment * y_row + y_offset, one_y, 0, left)
                    if gathers:
                        load_folded(folded, (segment * columns + column) * results, one_folded, 0, left)
                    for v in range(vector):
                        folded_index = (segment * columns + column + min(int32(v * step_of_column), left - int32(1))) * results
                        put(values, 4 * v, 1, segment_values(one_g, one_y, v, one_folded, folded, folded_index))
                for v in range(vector):
                    at = u * vector + v
                    batch_x[at] = element_gradient(batch_x, batch_w, at, first + u, get(values, 4 * v, 1)) if inside else element(0)
                if first + u < last:
                    store(output, (int64(row_indices[u]) if permuted else first + u) * output_row + output_offset, batch_x, u * vector, left)
            first = opaque(first + items_per_thread)

    def launch_config(rows: int, columns: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, tile, threads_per_block).launch

    return broadcast_runs, launch_config
