"""The second half of the ragged fold: runs that cross row blocks."""

import math
from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...core.axes import ceil_div
from ...device.build import opaque
from ...device.vector import LOAD_ONCE
from ...kernels.elements import place_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import FoldCarries
from ..policy import fold_carries as policy_of
from ..tiling import Tiling
from .common import first_at_least
from .gaps import blank_writer
from .states import fold_of


@jit.kernel
def fold_carries(
    *, monoid: str, value: str, result: str, vector: int, lanes: int, blank: bool, guarded: bool, counted: bool, dims: int,
    threads_per_block: int = 0, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Joins carries of equal neighbouring ids, in order, and stores the finished rows.

    A group takes one carry; if a run begins there, it joins up to ``groups`` carries. A longer run, of which at most one begins in a block, is cut
    into as many equal parts as the block has groups, and the first group joins the parts in order. With ``blank`` a run of no rows gets ``empty``.
    With ``guarded`` nothing is done unless ``guard[0]`` is set; with ``counted`` that is how many carries there are, at most ``entries``, and blocks
    take turns at them. Bytes: entries · columns · state read.
    """
    fold = fold_of(monoid, value, vector, result=result)
    reset, join, park, scalars, state_type = fold.reset, fold.join, fold.park, fold.scalars, fold.state_type
    write_run, write_empty = fold.write, blank_writer(value, vector)
    piece = min(vector, 128 // state_type.bitwidth)
    place, load = place_of(dims), LOAD_ONCE[piece]
    policy, ahead = policy_of(monoid_of(monoid).heavy), FoldCarries.items_per_thread
    policy = replace(policy, threads_per_block=threads_per_block or policy.threads_per_block)
    groups = policy.threads_per_block // lanes
    bundle = math.isqrt(groups)
    bundles = ceil_div(groups, bundle)
    unroll = items_per_thread or policy.items_per_thread
    part_size, batch_size = lanes * scalars, unroll * scalars
    shared_states = groups * part_size

    @jit.device
    def same_until(ids: Any, first: Any, bound: Any) -> Any:
        """The first entry behind ``first``, at most ``bound``, with another id; ``ahead`` ids in flight."""
        identifier = ids[first]
        last, same = first + 1, ahead
        while same == ahead and last < bound:
            same = 0
            for u in range(ahead):
                if ids[min(last + u, bound - 1)] == identifier and same == u:
                    same = u + 1
            last += same
        return min(last, bound)

    @jit.device
    def join_span(states: Any, counts: Any, kept: Any, first: Any, last: Any, size: Any, inside: Any) -> Any:
        """Joins carries first … last − 1, several in flight, and returns the rows they stand for."""
        batch = cuda.local.array(batch_size, state_type)
        count = int64(0)
        entry = int64(first)
        while entry < last:
            taken = unroll if entry + unroll <= last else 1
            for u in range(unroll):
                if u < taken:
                    count += counts[entry + u]
                    for k in range(0, scalars, piece):
                        load(kept, (entry + u) * size + inside + k, batch, u * scalars + k)
            for u in range(unroll):
                if u < taken:
                    join(states, batch, u * scalars, 1)
            entry += taken
        return count

    @jit.device
    def join_parts(states: Any, counts: Any, kept: Any, lane: Any, first: Any, last: Any) -> Any:
        """Joins parts first … last − 1 in shared memory and returns the rows they stand for."""
        count = int64(0)
        part = int64(first)
        while part < last:
            count += counts[part]
            join(states, kept, part * part_size + lane, lanes)
            part = opaque(part + 1)
        return count

    @jit.device
    def write(output: Any, segment: Any, output_row: Any, offset: Any, states: Any, count: Any, empty: Any, correction: Any) -> None:
        if blank and count == 0:
            write_empty(output, segment, segment + 1, output_row, offset, empty)
        else:
            write_run(output, segment * output_row + offset, states, count, correction)

    def fold_carries(
        carry_ids: Ptr[int64], carry_counts: Ptr[int64], carry_states: Ptr[state_type], guard: Ptr[int32], output: Ptr[result or value],
        entries: int64, columns: int64, segments: int64, chunks: int64, empty: Scalar[state_type],
        correction: Scalar[state_type], output_row: int64,
        shape: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        if guarded and guard[0] == 0:
            return
        long_run = cuda.shared.array(1, int64)
        part_counts = cuda.shared.array(groups, int64)
        part_ids = cuda.shared.array(groups, int64)
        part_states = cuda.shared.array(shared_states, state_type)
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
            offset = place(column, shape, output_strides)
            inside = column * scalars // vector
            entry = int64(entry_block) * groups + group
            if cuda.threadIdx.x == 0:
                long_run[0] = int64(-1)
            cuda.syncthreads()
            reset(states)
            if column < columns and group < groups and entry < entries:
                current = carry_ids[entry]
                begins = entry == 0 or carry_ids[entry - 1] != current
                if begins and 0 <= current < segments:
                    last = same_until(carry_ids, entry, min(entries, entry + groups + 1))
                    if last - entry <= groups:
                        count = join_span(states, carry_counts, carry_states, entry, last, carry_size, inside)
                        write(output, current, output_row, offset, states, count, empty, correction)
                    elif lane == 0:
                        long_run[0] = entry
            cuda.syncthreads()
            first = long_run[0]
            if first >= 0:
                reset(states)
                last = first_at_least(carry_ids, 1, first + 1, entries, carry_ids[first] + 1)
                part = (last - first + groups - 1) // groups
                if column < columns and group < groups:
                    begin = min(first + group * part, last)
                    count = join_span(states, carry_counts, carry_states, begin, min(begin + part, last), carry_size, inside)
                    park(part_ids, part_counts, part_states, group, group * part_size + lane, lanes, lane == 0, carry_ids[first], count, states)
                cuda.syncthreads()
                # the parts are joined in two rounds, ``bundle`` of them by one group in the first
                begin = group * bundle
                reset(states)
                count = int64(0)
                if column < columns:
                    count = join_parts(states, part_counts, part_states, lane, begin, min(begin + bundle, groups))
                cuda.syncthreads()
                if begin < groups and column < columns:
                    park(part_ids, part_counts, part_states, group, group * part_size + lane, lanes, lane == 0, 0, count, states)
                cuda.syncthreads()
                if group == 0 and column < columns:
                    reset(states)
                    count = join_parts(states, part_counts, part_states, lane, 0, bundles)
                    write(output, carry_ids[first], output_row, offset, states, count, empty, correction)
            if not counted:
                return
            block = int32(opaque(block + cuda.gridDim.x))
            entry_block = int32(uint32(block) // uint32(chunks))
            cuda.syncthreads()

    def launch_config(entries: int, columns: int) -> tuple[int, int, int]:
        return Tiling.of_carries(policy, entries, columns, vector).launch

    return fold_carries, launch_config
