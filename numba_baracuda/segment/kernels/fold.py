"""The ragged fold: rows of equal neighbouring ids become one row."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.build import opaque
from ...device.vector import LOAD_ONCE
from ...dtypes import BY_NAME
from ...runtime import jit
from ..tiling import FOLD_THREADS, GAP, UNROLL, Tiling
from .common import blank_writer, clamp, fold_of, place_of


@functools.cache
def _gap_filler(value: str, vector: int, dims: int) -> Any:
    """``fill_long_gaps``: empty segments in stretches longer than ``GAP``, each thread looking at one multiple of it."""
    place, write_empty = place_of(dims), blank_writer(value, vector)

    @jit.device
    def first_row(ids: Any, ids_step: Any, rows: Any, wanted: Any) -> Any:
        """The first row whose id is at least ``wanted``, for sorted ids."""
        low, high = int64(0), int64(rows)
        while low < high:
            middle = (low + high) >> 1
            if int64(ids[middle * ids_step]) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    @jit.device
    def fill_long_gaps(
        ids: Any, ids_step: Any, output: Any, rows: Any, columns: Any, segments: Any, block: Any,
        row_stride: Any, shape: Any, strides: Any, empty: Any,
    ) -> None:  # fmt: skip
        wanted = (block * FOLD_THREADS + cuda.threadIdx.x) * GAP
        first, last = int64(0), int64(0)
        if wanted < segments:
            row = first_row(ids, ids_step, rows, wanted)
            before = clamp(ids[(row - 1) * ids_step], segments) if row > 0 else int64(-1)
            after = clamp(ids[row * ids_step], segments) if row < rows else int64(segments)
            if before < wanted < after and (after - before - 1 > GAP or rows == 0):
                first = before + 1 if before >= wanted - GAP else wanted
                last = min(after, wanted + GAP)
        found = cuda.ballot_sync(-1, first < last)
        while found != 0:
            owner = cuda.ffs(found) - 1
            found = int32(found & (found - 1))
            begin = cuda.shfl_sync(-1, first, owner)
            end = cuda.shfl_sync(-1, last, owner)
            column = int64(cuda.laneid * vector)
            while column < columns:
                write_empty(output, begin, end, row_stride, place(column, shape, strides), empty)
                column = opaque(column + 32 * vector)

    return fill_long_gaps


@jit.kernel
def fold_tiles(*, monoid: str, value: str, index: str, vector: int, lanes: int, packed: bool, permuted: bool, dims: int) -> Any:
    """Folds rows of equal neighbouring ids: ``output[s] = finish(⊕ lift(input[r]))`` over the rows r with id s.

    A group of ``lanes`` lanes walks its tile of rows, every lane its own ``vector`` columns, ``UNROLL`` rows in flight. A run that begins and ends
    inside the tile is stored at once. The first and the last run of each tile meet in shared memory, where the block's first group joins them in
    order; the first and the last run of the block go to the carry arrays, which ``fold_carries`` joins. So the order of every fold is fixed by
    shapes and tile. Empty segments get ``empty``: short gaps from the lane that meets them, gaps longer than ``GAP`` from the blocks behind
    ``row_blocks · chunks``. Ids outside ``[0, segments)`` are dropped; ids in any order never lead outside the arrays. With ``permuted``, row r is
    ``input[permutation[r]]``. Bytes: rows · (columns · value + index) read, segments · columns · value written. Method: tiles with carry-out, as in
    Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication" (SC 2016).
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    fold = fold_of(monoid, value, vector)
    reset, take, join, write, park, scalars, state_type = fold.reset, fold.take, fold.join, fold.write, fold.park, fold.scalars, fold.state_type
    place, write_empty, fill_long_gaps = place_of(dims), blank_writer(value, vector), _gap_filler(value, vector, dims)
    index_vector = 16 // BY_NAME[index].itemsize
    load, load_ids = LOAD_ONCE[vector], LOAD_ONCE[index_vector]
    groups = FOLD_THREADS // lanes
    shift, low_bits = lanes.bit_length() - 1, lanes - 1
    edges, edge_size, batch_size, width = 2 * groups, lanes * scalars, UNROLL * vector, scalars // vector
    shared_states = edges * edge_size

    @jit.device
    def park_edge(ids: Any, counts: Any, kept: Any, edge: Any, lane: Any, segment: Any, count: Any, states: Any) -> None:
        park(ids, counts, kept, edge, edge * edge_size + lane, lanes, lane == 0, segment, count, states)

    @jit.device
    def park_carry(ids: Any, counts: Any, kept: Any, carry: Any, column: Any, columns: Any, segment: Any, count: Any, states: Any) -> None:
        park(ids, counts, kept, carry, (carry * columns + column) * width, 1, column == 0, segment, count, states)

    def fold_tiles(
        input: Any, ids: Any, permutation: Any, output: Any, carry_ids: Any, carry_counts: Any, carry_states: Any,
        rows: Any, columns: Any, segments: Any, tile: Any, row_blocks: Any, chunks: Any, empty: Any,
        ids_step: Any, input_row: Any, output_row: Any, shape: Any, input_strides: Any, output_strides: Any,
    ) -> None:  # fmt: skip
        edge_ids = cuda.shared.array(edges, int64)
        edge_counts = cuda.shared.array(edges, int64)
        edge_states = cuda.shared.array(shared_states, state_type)
        states = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(UNROLL, index_type)
        block = int64(cuda.blockIdx.x)
        row_block = block // chunks
        if row_block >= row_blocks:
            fill_long_gaps(ids, ids_step, output, rows, columns, segments, block - row_blocks * chunks, output_row, shape, output_strides, empty)
            return
        group, lane = int32(cuda.threadIdx.x >> shift), int32(cuda.threadIdx.x & low_bits)
        column = ((block - row_block * chunks) * lanes + lane) * vector
        input_offset = place(column, shape, input_strides)
        output_offset = place(column, shape, output_strides)
        reset(states)
        if column < columns:
            first = (row_block * groups + group) * tile
            length = int32(max(min(tile, rows - first), 0))
            current, begun, edge = index_type(-1), int32(0), 2 * group
            if length > 0:
                current = ids[first * ids_step]
                before = clamp(ids[(first - 1) * ids_step], segments) if first > 0 else int64(-1)
                if 0 < clamp(current, segments) - before - 1 <= GAP:
                    write_empty(output, before + 1, clamp(current, segments), output_row, output_offset, empty)
            position = int32(0)
            while position < length:
                if packed and position + UNROLL <= length:
                    for k in range(UNROLL // index_vector):
                        load_ids(ids, first + position + k * index_vector, batch_ids, k * index_vector)
                    for u in range(UNROLL):
                        source = int64(permutation[first + position + u]) if permuted else first + position + u
                        load(input, source * input_row + input_offset, batch, u * vector)
                else:
                    # rows past the end are loaded as the last one, so that no load waits for a branch
                    for u in range(UNROLL):
                        row = first + min(position + u, length - 1)
                        batch_ids[u] = ids[row * ids_step]
                        source = int64(permutation[row]) if permuted else row
                        load(input, source * input_row + input_offset, batch, u * vector)
                differs = index_type(0)
                for u in range(UNROLL):
                    differs |= batch_ids[u] ^ current
                if differs == 0 and position + UNROLL <= length:
                    for u in range(UNROLL):
                        take(states, batch, u * vector)
                    position = int32(position + UNROLL)
                else:
                    # rows pass through the front of the batch, so that the code of a run's end stands here once
                    stop = min(position + UNROLL, length)
                    while position < stop:
                        if batch_ids[0] != current:
                            segment, following = clamp(current, segments), clamp(batch_ids[0], segments)
                            if edge == 2 * group:
                                park_edge(edge_ids, edge_counts, edge_states, edge, lane, segment, position - begun, states)
                                edge += 1
                            elif 0 <= segment < segments:
                                write(output, segment * output_row + output_offset, states, position - begun)
                            if 0 < following - segment - 1 <= GAP:
                                write_empty(output, segment + 1, following, output_row, output_offset, empty)
                            current, begun = batch_ids[0], position
                            reset(states)
                        take(states, batch, 0)
                        for u in range(UNROLL - 1):
                            batch_ids[u] = batch_ids[u + 1]
                        for k in range(batch_size - vector):
                            batch[k] = batch[k + vector]
                        position = int32(opaque(position + 1))
            segment = clamp(current, segments) if length > 0 else segments
            if length > 0 and first + length == rows and 0 < segments - segment - 1 <= GAP:
                write_empty(output, segment + 1, segments, output_row, output_offset, empty)
            park_edge(edge_ids, edge_counts, edge_states, edge, lane, segment, length - begun, states)
            if edge == 2 * group:
                # the tile's only run: an empty twin keeps the ids of the edges in order
                edge += 1
                reset(states)
                park_edge(edge_ids, edge_counts, edge_states, edge, lane, segment, 0, states)
        cuda.syncthreads()
        if group == 0 and column < columns:
            reset(states)
            current, count, carry = edge_ids[0], int64(0), 2 * row_block
            # the number of edges is read from the launch: a constant would be unrolled
            for edge in range(cuda.blockDim.x >> shift << 1):
                if edge_ids[edge] != current:
                    if carry == 2 * row_block and row_blocks > 1:
                        park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
                        carry += 1
                    elif 0 <= current < segments:
                        write(output, current * output_row + output_offset, states, count)
                    current, count = edge_ids[edge], int64(0)
                    reset(states)
                count += edge_counts[edge]
                join(states, edge_states, edge * edge_size + lane, lanes)
            if row_blocks > 1:
                park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, count, states)
                if carry == 2 * row_block:
                    carry += 1
                    reset(states)
                    park_carry(carry_ids, carry_counts, carry_states, carry, column, columns, current, 0, states)
            elif 0 <= current < segments:
                write(output, current * output_row + output_offset, states, count)

    def launch_config(rows: int, columns: int, segments: int, tile: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, tile, FOLD_THREADS).fold_launch(segments)

    return fold_tiles, launch_config
