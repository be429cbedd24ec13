"""The results of a fold are broadcast to the rows of each segment: gradients, and whatever else follows from a row and its segment, as softmax."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.atomics import red_max
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_ONCE, LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..policy import Elements, FindSpecial, RowWise
from ..tiling import elements_launch
from .columns import FAR, columns_loader, columns_storer
from .rows import ids_loader_of, position_of, rows_launch
from .vjp import element_vjp_of, special_of


@jit.kernel
def broadcast_to_rows(
    *, gradient: str, value: str, index: str, row_index: str, paired: bool, at_once: int, vector: int, apart: bool, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block,
) -> Any:  # fmt: skip
    """``output[r] = vjp(x[r], w[r], g[ids[r]], y[ids[r]], p[ids[r]], q[ids[r]])`` by the gradient's ``vjp``; 0 where the id is out of range.

    A group takes ``at_once`` rows, issues all loads before the first store, and meanwhile loads the ids of its next rows. Blocks walk the rows in a
    grid-stride loop. Bytes: rows · columns · value for each of x, w and output, ids and permutation, and the rows of segments that are gathered.

    Constants and parameters as :mod:`.` lists them, and

    * ``at_once``: rows that a group has in flight
    * ``paired``: whether each row of ``g`` is followed by the row of y; then ``y`` is the address of ``g``
    * ``apart``: whether the ``vector`` columns of a lane are ``lanes`` columns apart, and single accesses; then columns are contiguous
    * ``x``, ``w`` [rows, columns]: what the gradient has of each row; ``g``, ``y`` [segments, columns]: what it has of each segment; any address
      where the gradient has fewer
    * ``x_row``, ``w_row``, ``g_row``, ``y_row``: elements from one row to the next; ``x_strides``, ``w_strides``, ``g_strides``, ``y_strides``
      [dims]: strides of the trailing axes
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, element_vjp, element_vjp_normal = GRADIENTS[gradient], element_vjp_of(gradient, value), element_vjp_of(gradient, value, normal=True)
    row_index_type, permuted = jit.SCALARS[row_index or "i32"], row_index != ""
    guarded, special = grad.guarded, special_of(value, vector)
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    results, distance, width = grad.results, lanes if apart else 0, 1 if apart else vector
    offset_of, step_of_column = strided_offset_of(dims), distance or 1
    group_position = position_of(threads_per_block, lanes, vector, at_once, cut, apart=apart)
    groups, batch_size, size = threads_per_block // lanes, at_once * vector, vector * results
    load_row_ids = ids_loader_of(index, row_index, at_once, groups)
    folded_size, folded_width = max(at_once * size, 1), min(BY_NAME[BY_NAME[value].accumulator].vector, size & -size) if size and not apart else 1
    load, store = columns_loader(LOAD_STREAM[width], width, vector, distance), columns_storer(STORE_STREAM[width], width, vector, distance)
    load_once = columns_loader(LOAD_ONCE[width], width, vector, distance)
    load_folded = columns_loader(LOAD_ONCE[folded_width], folded_width, vector, distance, results)

    def broadcast_to_rows(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], permutation: Ptr[row_index or int64], g: Ptr[value], y: Ptr[value],
        folded: Ptr[wide], output: Ptr[value],
        rows: int64, columns: int64, chunks: int64, segments: int64, ids_step: int64, x_row: int64, w_row: int64, g_row: int64, y_row: int64,
        output_row: int64,
        shape: Extents[dims], x_strides: Extents[dims], w_strides: Extents[dims], g_strides: Extents[dims], y_strides: Extents[dims],
        output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch_x = cuda.local.array(batch_size, element)
        batch_w = cuda.local.array(batch_size, element)
        batch_g = cuda.local.array(batch_size, element)
        batch_y = cuda.local.array(batch_size, element)
        batch_folded = cuda.local.array(folded_size, wide)
        batch_ids = cuda.local.array(at_once, index_type)
        row_indices = cuda.local.array(at_once, row_index_type)
        next_ids = cuda.local.array(at_once, index_type)
        next_row_indices = cuda.local.array(at_once, row_index_type)
        first, column = group_position(columns, chunks)
        left = int32(min(columns - column, FAR))
        step = int64(uint32(cuda.gridDim.x) // uint32(chunks)) * (groups * at_once)
        x_offset, output_offset = offset_of(column, shape, x_strides), offset_of(column, shape, output_strides)
        w_offset, g_offset, y_offset = offset_of(column, shape, w_strides), offset_of(column, shape, g_strides), offset_of(column, shape, y_strides)
        if paired:
            y_offset += columns
        load_row_ids(ids, permutation, first, rows, ids_step, next_ids, next_row_indices)
        while column < columns and first < rows:
            for u in range(at_once):
                batch_ids[u] = next_ids[u]
                if permuted:
                    row_indices[u] = next_row_indices[u]
            load_row_ids(ids, permutation, first + step, rows, ids_step, next_ids, next_row_indices)
            for u in range(at_once):
                row = first + u * groups
                if row < rows:
                    operand_row = int64(row_indices[u]) if permuted else row
                    if has_x:
                        load(x, operand_row * x_row + x_offset, batch_x, u * vector, left)
                    if has_w:
                        load(w, operand_row * w_row + w_offset, batch_w, u * vector, left)
            for u in range(at_once):
                if 0 <= batch_ids[u] < segments:
                    identifier = int64(batch_ids[u])
                    if has_g:
                        load_once(g, identifier * g_row + g_offset, batch_g, u * vector, left)
                    if has_y:
                        load_once(y, identifier * y_row + y_offset, batch_y, u * vector, left)
                    if not guarded and results > 0:
                        load_folded(folded, (identifier * columns + column) * results, batch_folded, u * size, left)
            for u in range(at_once):
                row = first + u * groups
                if row < rows:
                    if 0 <= batch_ids[u] < segments:
                        # one test of all y of a row, so that normal ones need no branches; with more than 4 elements the compiler would
                        # have too much to unroll
                        if guarded and (vector > 4 or special(batch_y, u * vector)):
                            for v in range(vector):
                                at, other = u * vector + v, min(int32(v * step_of_column), left - int32(1))
                                folded_index = (int64(batch_ids[u]) * columns + column + other) * results
                                batch_x[at] = element_vjp(batch_x, batch_w, batch_g, batch_y, at, batch_folded, folded, folded_index, row)
                        else:
                            for v in range(vector):
                                at = u * vector + v
                                batch_x[at] = element_vjp_normal(batch_x, batch_w, batch_g, batch_y, at, batch_folded, folded, 0, row)
                    else:
                        for v in range(vector):
                            batch_x[u * vector + v] = element(0)
                    store(output, (int64(row_indices[u]) if permuted else row) * output_row + output_offset, batch_x, u * vector, left)
            first = opaque(first + step)

    return broadcast_to_rows, rows_launch(threads_per_block, vector, at_once)


@jit.kernel
def broadcast_to_elements(
    *, gradient: str, value: str, index: str, paired: bool, guarded: bool, ordered: bool = False,
    threads_per_block: int = Elements.threads_per_block, items_per_thread: int = Elements.items_per_thread,
) -> Any:  # fmt: skip
    """:func:`broadcast_to_rows` for one column, where rows and ids are contiguous: a lane takes as many neighbouring rows as fill 16 bytes of both.

    Constants and parameters as in :func:`broadcast_to_rows`: ``paired``, ``x``, ``w`` [rows], ``g``, ``y`` [segments], ``g_row``, ``y_row``;
    ``permutation`` is not used. ``ordered``: whether ids are in order, so that a block whose first and last row have the same loads no others.
    """
    element, index_type, wide = jit.SCALARS[value], jit.SCALARS[index], accumulator_type(value)
    grad, element_vjp = GRADIENTS[gradient], element_vjp_of(gradient, value)
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    vector, index_vector, results = BY_NAME[value].vector, BY_NAME[index].vector, grad.results
    lane_items, gathers = max(vector, index_vector), not grad.guarded
    load, load_ids, load_both, store = LOAD_STREAM[vector], LOAD_ONCE[index_vector], LOAD[2], STORE_STREAM[vector]
    stride, batch_size = threads_per_block * lane_items, items_per_thread * lane_items
    folded_size = max(batch_size * results, 1)

    @jit.device
    def load_segment(
        g: Any, y: Any, folded: Any, identifier: Any, g_row: Any, y_row: Any, batch_g: Any, batch_y: Any, batch_folded: Any, at: Any
    ) -> None:
        """Loads what a row's segment has to index ``at`` of the batches."""
        segment = int64(identifier)
        if paired:
            both = cuda.local.array(2, element)
            load_both(g, 2 * segment, both, 0)
            batch_g[at], batch_y[at] = both[0], both[1]
        else:
            if has_g:
                batch_g[at] = g[segment * g_row]
            if has_y:
                batch_y[at] = y[segment * y_row]
        if gathers:
            for k in range(results):
                batch_folded[at * results + k] = folded[segment * results + k]

    def broadcast_to_elements(
        x: Ptr[value], w: Ptr[value], ids: Ptr[index], permutation: Ptr[int64], g: Ptr[value], y: Ptr[value], folded: Ptr[wide],
        guard: Ptr[int32], output: Ptr[value],
        rows: int64, segments: int64, g_row: int64, y_row: int64,
    ) -> None:  # fmt: skip
        batch_x = cuda.local.array(batch_size, element)
        batch_w = cuda.local.array(batch_size, element)
        batch_g = cuda.local.array(batch_size, element)
        batch_y = cuda.local.array(batch_size, element)
        batch_folded = cuda.local.array(folded_size, wide)
        batch_ids = cuda.local.array(batch_size, index_type)
        if guarded and guard[0] == 0:
            return
        tile = int64(cuda.blockIdx.x) * (items_per_thread * stride)
        if tile + items_per_thread * stride <= rows:
            first = tile + cuda.threadIdx.x * lane_items
            alike = ordered and ids[tile] == ids[tile + items_per_thread * stride - 1]
            for u in range(items_per_thread):
                for k in range(0, lane_items, vector):
                    if has_x:
                        load(x, first + u * stride + k, batch_x, u * lane_items + k)
                    if has_w:
                        load(w, first + u * stride + k, batch_w, u * lane_items + k)
            if alike:
                for at in range(batch_size):
                    batch_ids[at] = ids[tile]
            else:
                for u in range(items_per_thread):
                    for k in range(0, lane_items, index_vector):
                        load_ids(ids, first + u * stride + k, batch_ids, u * lane_items + k)
            for at in range(batch_size):
                if 0 <= batch_ids[at] < segments:
                    load_segment(g, y, folded, batch_ids[at], g_row, y_row, batch_g, batch_y, batch_folded, at)
            for u in range(items_per_thread):
                for k in range(lane_items):
                    at = u * lane_items + k
                    if 0 <= batch_ids[at] < segments:
                        folded_index = int64(batch_ids[at]) * results
                        batch_x[at] = element_vjp(batch_x, batch_w, batch_g, batch_y, at, batch_folded, folded, folded_index, first + u * stride + k)
                    else:
                        batch_x[at] = element(0)
            for u in range(items_per_thread):
                for k in range(0, lane_items, vector):
                    store(output, first + u * stride + k, batch_x, u * lane_items + k)
        else:
            row = tile + cuda.threadIdx.x
            while row < rows:
                batch_ids[0], batch_x[0] = ids[row], element(0)
                if 0 <= batch_ids[0] < segments:
                    if has_x:
                        batch_x[0] = x[row]
                    if has_w:
                        batch_w[0] = w[row]
                    load_segment(g, y, folded, batch_ids[0], g_row, y_row, batch_g, batch_y, batch_folded, 0)
                    batch_x[0] = element_vjp(batch_x, batch_w, batch_g, batch_y, 0, batch_folded, folded, int64(batch_ids[0]) * results, row)
                output[row] = batch_x[0]
                row = opaque(row + threads_per_block)

    def launch_config(rows: int) -> tuple[int, int, int]:
        return elements_launch(rows, lane_items, threads_per_block, items_per_thread)

    return broadcast_to_elements, launch_config


@jit.kernel
def find_special(
    *, value: str, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = FindSpecial.items_per_thread,
) -> Any:  # fmt: skip
    """Sets ``guard[0]`` to 1 where an element of ``input`` is a zero, a subnormal, an infinity or NaN. Bytes: rows · columns · value read.

    Constants and parameters as :mod:`.` lists them, and ``tail``: elements behind the last row that are looked at, too; a block has more threads.
    """
    element, load, offset_of = jit.SCALARS[value], LOAD_ONCE[vector], strided_offset_of(dims)
    group_position = position_of(threads_per_block, lanes, vector, items_per_thread, cut)
    groups, batch_size = threads_per_block // lanes, items_per_thread * vector
    special, single_special, load_single = special_of(value, batch_size), special_of(value, 1), LOAD_ONCE[1]

    def find_special(
        input: Ptr[value], guard: Ptr[int32],
        rows: int64, tail: int64, columns: int64, chunks: int64, input_row: int64,
        shape: Extents[dims], input_strides: Extents[dims],
    ) -> None:  # fmt: skip
        batch = cuda.local.array(batch_size, element)
        first, column = group_position(columns, chunks)
        offset = offset_of(column, shape, input_strides)
        if column < columns:
            for u in range(items_per_thread):
                row = min(first + u * groups, rows - 1)
                load(input, row * input_row + offset, batch, u * vector)
            if special(batch, 0):
                red_max(guard, 0, int32(1))
        if cuda.blockIdx.x == 0 and cuda.threadIdx.x < tail:
            load_single(input, rows * input_row + cuda.threadIdx.x, batch, 0)
            if single_special(batch, 0):
                red_max(guard, 0, int32(1))

    return find_special, rows_launch(threads_per_block, vector, items_per_thread)
