"""The second launch of a ragged fold: it combines the states of runs that cross row blocks."""

import math
from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.axes import ceil_div
from ...device.build import opaque
from ...device.vector import LOAD_ONCE
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import FoldCarries
from ..policy_of import fold_carries as policy_of
from ..tiling import Tiling
from .gaps import blank_writer
from .states import run_states_of


@jit.kernel
def fold_carries(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, blank: bool, guarded: bool, counted: bool, dims: int,
    threads_per_block: int = 0, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Combines the carries of each run, in order, and stores its result.

    Each group has one carry. If a run of at most ``alone`` carries begins there, the group combines it. Longer runs, of which at most one begins
    among ``alone`` neighbouring groups, are taken in turn: a run is divided evenly among the groups of the block, whose partials the first group
    combines in order. Bytes: entries · columns · state read.

    Constants and parameters as :mod:`.` lists them, and

    * ``threads_per_block``, ``items_per_thread``: 0 stands for those of the tuning policy
    * ``entries``: the number of carries
    * ``blank``: whether a run of no rows gets ``empty``
    * ``counted``: whether ``guard[0]`` is the number of carries, at most ``entries``; blocks then walk them in a grid-stride loop
    """
    fold = run_states_of(monoid, value, vector, result)
    reset, combine_right, save_run, scalars, state_type = fold.reset, fold.combine_right, fold.save_run, fold.scalars, fold.state_type
    write_run, write_empty = fold.store_result, blank_writer(result, vector, fold.store_vector)
    load_size = min(vector, 128 // state_type.bitwidth)
    offset_of, load = strided_offset_of(dims), LOAD_ONCE[load_size]
    policy, ids_in_flight = policy_of(monoid_of(monoid).hungry), FoldCarries.items_per_thread
    policy = replace(policy, threads_per_block=threads_per_block or policy.threads_per_block)
    threads = policy.threads_per_block
    groups = threads // lanes
    bundle = math.isqrt(groups)
    bundles = ceil_div(groups, bundle)
    alone = min(groups, FoldCarries.alone)
    long_runs = ceil_div(groups, alone)
    unroll = items_per_thread or policy.items_per_thread
    partial_size, batch_size = lanes * scalars, unroll * scalars
    shared_states = groups * partial_size

    @jit.device
    def same_until(ids: Any, first: Any, bound: Any) -> Any:
        """The first entry after ``first`` with another id, at most ``bound``. ``ids_in_flight`` loads are issued at a time."""
        identifier = ids[first]
        last, same = first + 1, ids_in_flight
        while same == ids_in_flight and last < bound:
            same = 0
            for u in range(ids_in_flight):
                if ids[min(last + u, bound - 1)] == identifier and same == u:
                    same = u + 1
            last += same
        return min(last, bound)

    @jit.device
    def run_end(ids: Any, first: Any, entries: Any) -> Any:
        """The first entry after ``first`` with another id, or ``entries``. All threads of the block search together."""
        identifier, low, left = ids[first], int64(first), int64(entries - first)
        while left > 1:
            step = (left + threads - 1) // threads
            ahead = cuda.threadIdx.x * step
            same = cuda.syncthreads_count(int32(ahead < left and ids[min(low + ahead, entries - 1)] == identifier))
            passed = (same - 1) * step
            low, left = low + passed, min(step, left - passed)
        return low + 1

    @jit.device
    def combine_span(states: Any, counts: Any, saved_states: Any, first: Any, last: Any, size: Any, column_offset: Any) -> Any:
        """Combines the carries in [first, last), several loads in flight, and returns the number of rows that they stand for."""
        batch = cuda.local.array(batch_size, state_type)
        count = int64(0)
        entry = int64(first)
        while entry < last:
            taken = unroll if entry + unroll <= last else 1
            for u in range(unroll):
                if u < taken:
                    count += counts[entry + u]
                    for k in range(0, scalars, load_size):
                        load(saved_states, (entry + u) * size + column_offset + k, batch, u * scalars + k)
            for u in range(unroll):
                if u < taken:
                    combine_right(states, batch, u * scalars, 1)
            entry += taken
        return count

    @jit.device
    def combine_partials(states: Any, counts: Any, saved_states: Any, lane: Any, first: Any, last: Any) -> Any:
        """Combines the partials in [first, last) of shared memory and returns the number of rows that they stand for."""
        count = int64(0)
        partial = int64(first)
        while partial < last:
            count += counts[partial]
            combine_right(states, saved_states, partial * partial_size + lane, lanes)
            partial = opaque(partial + 1)
        return count

    @jit.device
    def store_result(
        output: Any, segment: Any, output_row: Any, offset: Any, left: Any, states: Any, count: Any, empty: Any, correction: Any
    ) -> None:
        if blank and count == 0:
            write_empty(output, segment, segment + 1, output_row, offset, left, empty)
        else:
            write_run(output, segment * output_row + offset, left, states, count, correction)

    def fold_carries(
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], guard: Ptr[int32], output: Ptr[result],
        entries: int64, columns: int64, segments: int64, chunks: int64, empty: Scalar[accumulator_type(result)],
        correction: Scalar[state_type], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        long_run_entries = cuda.shared.array(long_runs, int64)
        partial_counts = cuda.shared.array(groups, int64)
        partial_ids = cuda.shared.array(groups, int64)
        partial_states = cuda.shared.array(shared_states, state_type)
        states = cuda.local.array(scalars, state_type)
        group = int32(uint32(cuda.threadIdx.x) // uint32(lanes))
        lane = int32(cuda.threadIdx.x - group * lanes)
        carry_size = columns * scalars // vector
        if counted:
            entries = min(entries, int64(guard[0]))
        block = int32(cuda.blockIdx.x)
        entry_block = int32(uint32(block) // uint32(chunks))
        while int64(entry_block) * groups < entries:
            column = int64((block - entry_block * chunks) * lanes + lane) * vector
            offset = offset_of(column, shape, output_strides)
            column_offset = column * scalars // vector
            entry = int64(entry_block) * groups + group
            if cuda.threadIdx.x < long_runs:
                long_run_entries[cuda.threadIdx.x] = int64(-1)
            cuda.syncthreads()
            reset(states)
            if column < columns and group < groups and entry < entries:
                current = carry_ids[entry]
                begins = entry == 0 or carry_ids[entry - 1] != current
                if begins and 0 <= current < segments:
                    if entry + alone >= entries or carry_ids[entry + alone] != current:
                        last = same_until(carry_ids, entry, min(entries, entry + alone))
                        count = combine_span(states, carry_counts, carry_states, entry, last, carry_size, column_offset)
                        store_result(output, current, output_row, offset, columns - column, states, count, empty, correction)
                    elif lane == 0:
                        long_run_entries[int32(uint32(group) // uint32(alone))] = entry
            cuda.syncthreads()
            long_run = int32(0)
            while long_run < long_runs:
                first = long_run_entries[long_run]
                if first >= 0:
                    reset(states)
                    last = run_end(carry_ids, first, entries)
                    share = (last - first + groups - 1) // groups
                    if column < columns and group < groups:
                        begin = min(first + group * share, last)
                        count = combine_span(states, carry_counts, carry_states, begin, min(begin + share, last), carry_size, column_offset)
                        save_run(
                            partial_ids,
                            partial_counts,
                            partial_states,
                            group,
                            group * partial_size + lane,
                            lanes,
                            lane == 0,
                            carry_ids[first],
                            count,
                            states,
                        )
                    cuda.syncthreads()
                    # the partials are combined in two rounds; in the first each group combines ``bundle`` of them
                    begin = group * bundle
                    reset(states)
                    count = int64(0)
                    if column < columns:
                        count = combine_partials(states, partial_counts, partial_states, lane, begin, min(begin + bundle, groups))
                    cuda.syncthreads()
                    if begin < groups and column < columns:
                        save_run(partial_ids, partial_counts, partial_states, group, group * partial_size + lane, lanes, lane == 0, 0, count, states)
                    cuda.syncthreads()
                    if group == 0 and column < columns:
                        reset(states)
                        count = combine_partials(states, partial_counts, partial_states, lane, 0, bundles)
                        store_result(output, carry_ids[first], output_row, offset, columns - column, states, count, empty, correction)
                long_run = int32(opaque(long_run + 1))
            if not counted:
                return
            block = int32(opaque(block + cuda.gridDim.x))
            entry_block = int32(uint32(block) // uint32(chunks))
            cuda.syncthreads()

    def launch_config(entries: int, columns: int) -> tuple[int, int, int]:
        return Tiling.of_carries(policy, entries, columns, vector).launch

    return fold_carries, launch_config
