"""Atomic updates of segments' rows, for ids in any order."""

from typing import Any

from numba import cuda
from numba.cuda.types import float32, float64, int32, int64, uint32

from ...core.dtypes import BY_NAME
from ...device.atomics import red_add_shared
from ...device.bits import recast
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_STREAM
from ...kernels.batch import typed_monoid
from ...kernels.elements import strided_offset_of
from ...kernels.factors import product_of_sums, scale_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr
from ..first_rows import FIRST
from ..policy import Crowds, PerId, RowWise, ScatterRows
from ..policy_of import scatter_items
from ..tiling import THREADS, Tiling
from .common import clearer_of, coded_type, frequent_of_warp, last_id_of
from .crowds import SLOTS, sector_shift, table_of
from .rows import ids_loader_of, position_of
from .updates import lift_of, updates_of

#: the monoid of each update
MONOIDS = {"add": "sum", "max": "max", "min": "min", "factor": "sum"} | dict.fromkeys(FIRST, "max")


@jit.kernel
def scatter_rows(
    *, update: str, value: str, index: str, about: str, pairs: str, guarded: bool, sampled: int, vector: int, lanes: int, cut: bool, dims: int,
    threads_per_block: int = RowWise.threads_per_block, items_per_thread: int = 0,
) -> Any:  # fmt: skip
    """Updates ``output[ids[r]]`` by ``input[r]`` atomically, in no fixed order; drops rows whose id is outside [low, high).

    A group takes ``items_per_thread`` rows at a time and issues all loads before the first update, and before them those of the ids of its next rows;
    blocks walk the rows in a grid-stride loop. The input is streamed, so that the output stays in L2. Updates of one address wait for each other. So
    where one id crowds the first 32 rows of a block, each lane folds the block's rows of that id in registers, and the block makes one update of all
    of them. Where ``sampled``, sums of other ids that crowd (:mod:`.crowds`) grow in shared memory until the end. Bytes: rows · (columns · value +
    index) read, of pairs the values of both operands, and as many updated.

    Constants and parameters as :mod:`.` lists them, and

    * ``update``: add, max or min; first_max or first_min, which find the greatest of :mod:`.candidates`; or factor, which makes the sums of
      :mod:`~...kernels.factors`
    * ``about``: the name of a monoid, whose terms about the pivot of segment and column are added, or ""; ``pivots`` [segments, columns]: these, of
      the accumulator's type, contiguous, encoded as in ``device.red_max``; any address where ``about`` is ""
    * ``pairs``: the name of a monoid whose states of the elements of ``input`` and ``other`` are added, or ""; ``other`` [rows, columns], with
      ``other_row`` and ``other_strides`` as those of ``input``: any address where ``pairs`` is ""
    * ``sampled``: rows of a thread among which a block looks for ids that crowd; 0, as for extremes, where it does not look
    * ``items_per_thread``: 0 stands for the 2 or 4 rows of the tuning policy
    * ``output`` [segments, columns]: of the accumulator's type, floats for max and min encoded as in ``device.red_max``; words of candidates;
      [segments, columns, 2] of factors
    * ``low``, ``high``: ids, the bounds of this pass; ``crowd``: how many of 32 rows make one
    """
    element, index_type, factors = jit.SCALARS[value], jit.SCALARS[index], update == "factor"
    state = "i64" if factors or update in FIRST else BY_NAME[value].accumulator
    state_type, load, offset_of = jit.SCALARS[state], LOAD_STREAM[vector], strided_offset_of(dims)
    update_output, lift = updates_of(update, state, vector), lift_of(update, value, vector, about, pairs)
    paired, pivoted, coded, load_pivots = pairs != "", about != "", coded_type(value), LOAD[vector if about else 1]
    monoid = typed_monoid(MONOIDS[update], state)
    combine, identity = jit.device(monoid.combine), monoid.identity[0]
    items, threads = items_per_thread or scatter_items(update), threads_per_block
    group_position = position_of(threads, lanes, vector, items, cut)
    groups, batch_size, shared_size = threads // lanes, items * vector, threads * vector
    load_ids = ids_loader_of(index, "", items, groups)
    last_id, greatest = last_id_of(index), index_type.maxval
    row_size = lanes * vector
    row_bytes = row_size * state_type.bitwidth // 8
    shift = sector_shift(row_bytes)
    # neighbouring lanes add to copies of a sum, where there is room for copies
    capacity = min(SLOTS, max(1, Crowds.sums_bytes // (row_bytes << shift)))
    copies = 1 << (Crowds.sums_bytes // (capacity * (row_bytes << shift))).bit_length() - 1
    clear = clearer_of(threads)
    find_crowds, place_of = table_of(index, threads, sampled, capacity, shift)
    tabled = sampled > 0
    # where there are registers to spare, opaque, or each row would compute them anew
    kept = opaque if tabled else jit.device(lambda offset: offset)
    slots = SLOTS if tabled else 1
    slots_and_one, places = slots + 1, slots << shift
    sums_size = max(shared_size, (capacity << shift) * row_size * copies if tabled else 0)

    def scatter_rows(
        input: Ptr[value], other: Ptr[value], ids: Ptr[index], pivots: Ptr[state_type], guard: Ptr[int32], output: Ptr[state_type],
        rows: int64, columns: int64, chunks: int64, low: int64, high: int64, crowd: int64, ids_step: int64,
        input_row: int64, other_row: int64, output_row: int64,
        shape: Extents[dims], input_strides: Extents[dims], other_strides: Extents[dims], output_strides: Extents[dims],
    ) -> None:  # fmt: skip
        shared_states = cuda.shared.array(sums_size, state_type)
        keys = cuda.shared.array(slots, index_type)
        numbers = cuda.shared.array(slots_and_one, int32)
        batch = cuda.local.array(batch_size, element)
        others = cuda.local.array(batch_size if paired else 1, element)
        batch_pivots = cuda.local.array(batch_size, coded)
        batch_ids = cuda.local.array(items, index_type)
        next_ids = cuda.local.array(items, index_type)
        states = cuda.local.array(vector, state_type)
        lifted = cuda.local.array(vector, state_type)
        if guarded and guard[0] == 0:
            return
        scale = scale_of(rows) if factors else float64(1)
        least = index_type(min(low, greatest))
        last = last_id(high) if low <= greatest else index_type(-1)
        first, column = group_position(columns, chunks)
        input_offset, output_offset = kept(offset_of(column, shape, input_strides)), kept(offset_of(column, shape, output_strides))
        other_offset = offset_of(column, shape, other_strides)
        step = int64(uint32(cuda.gridDim.x) // uint32(chunks)) * (groups * items)
        seen_row = int64(uint32(cuda.blockIdx.x) // uint32(chunks)) * (groups * items) + cuda.laneid
        seen_id = ids[seen_row * ids_step] if seen_row < rows else index_type(-1)
        frequent = frequent_of_warp(seen_id)
        crowded = cuda.popc(cuda.ballot_sync(-1, seen_id == frequent)) >= crowd and least <= frequent <= last
        for v in range(vector):
            states[v] = state_type(identity)
        thread, keeps = int32(cuda.threadIdx.x), False
        own = int32((thread - thread // lanes * lanes) * vector * copies + (cuda.laneid & (copies - 1)))
        if tabled:
            place = seen_row - cuda.laneid + cuda.threadIdx.x
            excluded = frequent if crowded else index_type(-1)
            keeps = find_crowds(ids, place, threads, rows, ids_step, least, last, excluded, keys, numbers)
            if keeps:
                clear(shared_states, sums_size, state_type(0))
        input_at, other_at = first * input_row + input_offset, first * other_row + other_offset
        load_ids(ids, ids, first, rows, ids_step, next_ids, next_ids)
        while column < columns and first < rows:
            for u in range(items):
                batch_ids[u] = next_ids[u]
            load_ids(ids, ids, first + step, rows, ids_step, next_ids, next_ids)
            for u in range(items):
                if least <= batch_ids[u] <= last:
                    load(input, input_at + u * groups * input_row, batch, u * vector)
                    if paired:
                        load(other, other_at + u * groups * other_row, others, u * vector)
                    if pivoted:
                        load_pivots(recast(pivots, coded), int64(batch_ids[u]) * columns + column, batch_pivots, u * vector)
            for u in range(items):
                if least <= batch_ids[u] <= last:
                    at = int64(batch_ids[u]) * output_row + output_offset
                    lift(lifted, batch, others, u * vector, first + u * groups, output, at, scale, batch_pivots)
                    if crowded and batch_ids[u] == frequent:
                        for v in range(vector):
                            states[v] = state_type(combine(states[v], lifted[v]))
                    else:
                        place = place_of(keys, numbers, batch_ids[u]) if keeps else int32(-1)
                        if place >= 0:
                            for v in range(vector):
                                red_add_shared(shared_states, uint32(place * row_size * copies + own + v * copies), lifted[v])
                        else:
                            update_output(output, at, lifted, 0)
            first, input_at = opaque(first + step), opaque(input_at + step * input_row)
            if paired:
                other_at = opaque(other_at + step * other_row)
        if keeps:
            cuda.syncthreads()
            place = int32(thread // lanes)
            while place < places and column < columns:
                slot, changed = int32(place >> shift), False
                if keys[slot] >= 0:
                    for v in range(vector):
                        first_copy = (numbers[slot] << shift | place & (1 << shift) - 1) * row_size * copies + (own & -copies) + v * copies
                        lifted[v] = shared_states[uint32(first_copy)]
                        for copy in range(1, copies):
                            lifted[v] += shared_states[uint32(first_copy + copy)]
                        changed |= lifted[v] != 0
                if changed:
                    identifier = (int64(keys[slot]) << shift) + (place & (1 << shift) - 1)
                    update_output(output, identifier * output_row + output_offset, lifted, 0)
                place = int32(opaque(place + groups))
            cuda.syncthreads()
        if crowded:
            for v in range(vector):
                shared_states[v * threads + thread] = states[v]
            cuda.syncthreads()
            left = int32(groups)
            while left > 1:
                half = int32((left + 1) >> 1)
                if thread < (left - half) * lanes:
                    for v in range(vector):
                        place = v * threads + thread
                        shared_states[place] = state_type(combine(shared_states[place], shared_states[place + half * lanes]))
                cuda.syncthreads()
                left = half
            if thread < lanes and column < columns:
                for v in range(vector):
                    states[v] = shared_states[v * threads + thread]
                update_output(output, int64(frequent) * output_row + output_offset, states, 0)

    def launch_config(rows: int, columns: int, multiprocessors: int) -> tuple[int, int, int]:
        return Tiling(rows, columns, vector, items, threads).persistent_launch(ScatterRows(), multiprocessors)

    return scatter_rows, launch_config


@jit.kernel
def finish_factors() -> Any:
    """``folded[k]`` = p and q of element k, of :func:`~...kernels.products.product_of_others`, by what :func:`scatter_rows` has made of factors.

    Bytes: elements · (16 + 8); none where no result is special.

    Parameters: ``sums`` [elements, 2]: words and tallies; ``folded`` [elements, 2]; ``guard`` as :mod:`.` lists it; ``elements``: of all segments;
    ``terms``: factors of all of them.
    """
    tile = THREADS * PerId.counted_per_thread

    def finish_factors(
        sums: Ptr[int64], guard: Ptr[int32], folded: Ptr[float32],
        elements: int64, terms: int64,
    ) -> None:  # fmt: skip
        if guard[0] == 0:
            return
        k = int64(cuda.blockIdx.x) * tile + cuda.threadIdx.x
        end = min(k + tile, elements)
        while k < end:
            p, q = product_of_sums(sums[2 * k], sums[2 * k + 1], scale_of(terms))
            folded[2 * k], folded[2 * k + 1] = p, q
            k = opaque(k + THREADS)

    return finish_factors, lambda elements: Tiling.of_counted(elements).launch
