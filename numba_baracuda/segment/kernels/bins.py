"""The fold into few segments: each lane has a state of its own for each segment, in shared memory."""

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.build import opaque
from ...device.vector import LOAD_STREAM
from ...kernels.elements import strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..policy import FoldBins
from .common import last_id_of
from .states import run_states_of


@jit.kernel
def fold_bins(
    *, monoid: str, value: str, index: str, vector: int, lanes: int, counted: bool, dims: int,
    threads_per_block: int = FoldBins.threads_per_block, items_per_thread: int = FoldBins.items_per_thread,
) -> Any:  # fmt: skip
    """Folds rows of ids in any order into one carry for each segment and row block. :func:`fold_carries` combines the carries.

    A group of ``lanes`` lanes walks every ``groups``-th row of the block's tile, each lane its own ``vector`` columns, and folds each row into the
    state of its segment. Scalar k of segment s and thread t is word (s · scalars + k) · threads + t, so the lanes of a warp never meet in a bank.
    Then the block combines the states of its groups, in order. So shapes and tile fix the order of every fold. Dynamic shared memory: segments ·
    (threads · scalars · state + 4 · groups) bytes, without the last term if not ``counted``. Bytes: rows · (columns · value + index) read.

    Constants and parameters as :mod:`.` lists them, and ``counted``: whether carries count rows; else each counts 1. Carry s · ``row_blocks`` + b is
    segment s in block b.
    """
    element, index_type = jit.SCALARS[value], jit.SCALARS[index]
    fold = run_states_of(monoid, value, vector, value)
    reset, add_row, combine_right = fold.reset, fold.add_row, fold.combine_right
    save_run, scalars, state_type = fold.save_run, fold.scalars, fold.state_type
    load, offset_of, last_id = LOAD_STREAM[vector], strided_offset_of(dims), last_id_of(index)
    groups, batch_size, state_words = threads_per_block // lanes, items_per_thread * vector, state_type.bitwidth // 32
    width, threads = scalars // vector, threads_per_block

    def fold_bins(
        input: Ptr[value], ids: Ptr[index], carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type],
        rows: int64, columns: int64, segments: int64, tile: int64, row_blocks: int64, chunks: int64, ids_step: int64, input_row: int64,
        shape: Extents[dims], input_strides: Extents[dims],
    ) -> None:  # fmt: skip
        bins = cuda.shared.array(0, state_type)
        counts = cuda.shared.array(0, int32)
        states = cuda.local.array(scalars, state_type)
        batch = cuda.local.array(batch_size, element)
        batch_ids = cuda.local.array(items_per_thread, index_type)
        block, thread = int64(cuda.blockIdx.x), int32(cuda.threadIdx.x)
        row_block = int64(uint32(block) // uint32(chunks))
        group = int32(uint32(thread) // uint32(lanes))
        lane = int32(thread - group * lanes)
        column = ((block - row_block * chunks) * lanes + lane) * vector
        offset = offset_of(column, shape, input_strides)
        first, counts_at = row_block * tile, int32(segments * scalars * threads * state_words)
        length, last = int32(max(min(tile, rows - first), 0)), last_id(segments)
        reset(states)
        segment = int32(0)
        while segment < segments:
            for k in range(scalars):
                bins[(segment * scalars + k) * threads + thread] = states[k]
            if counted and lane == 0 and group < groups:
                counts[counts_at + segment * groups + group] = 0
            segment = int32(opaque(segment + 1))
        tile_row = group
        if column < columns and group < groups:
            while tile_row < length:
                for u in range(items_per_thread):
                    row = int32(tile_row + u * groups)
                    batch_ids[u] = ids[(first + row) * ids_step] if row < length else index_type(-1)
                for u in range(items_per_thread):
                    if 0 <= batch_ids[u] <= last:
                        load(input, (first + tile_row + u * groups) * input_row + offset, batch, u * vector)
                for u in range(items_per_thread):
                    if 0 <= batch_ids[u] <= last:
                        slot = uint32(int32(batch_ids[u]) * scalars * threads + thread)
                        for k in range(scalars):
                            states[k] = bins[slot + k * threads]
                        add_row(states, batch, batch, u * vector, first + tile_row + u * groups)
                        for k in range(scalars):
                            bins[slot + k * threads] = states[k]
                        if counted and lane == 0:
                            counts[uint32(counts_at + int32(batch_ids[u]) * groups + group)] += int32(1)
                tile_row = int32(opaque(tile_row + items_per_thread * groups))
        cuda.syncthreads()
        segment = group
        while segment < segments:
            if column < columns and group < groups:
                reset(states)
                count = int64(not counted)
                other_group = int32(0)
                while other_group < groups:
                    combine_right(states, bins, uint32(segment * scalars * threads + other_group * lanes + lane), threads)
                    if counted:
                        count += counts[uint32(counts_at + segment * groups + other_group)]
                    other_group = int32(opaque(other_group + 1))
                entry = segment * row_blocks + row_block
                save_run(carry_ids, carry_counts, carry_states, entry, (entry * columns + column) * width, 1, column == 0, segment, count, states)
            segment = int32(opaque(segment + groups))

    return fold_bins
