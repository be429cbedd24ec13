"""Gradients of rows, or of few neighbouring columns, whose lines lie apart: a block copies the lines to shared memory, and folds them there."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, STORE_STREAM, aligned_span
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.elements import accumulator_type, origin_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import ASYNC_BYTES, STAGED_STEPS, THREADS
from .loads import lane_of_group
from .results import row_results_of, special_of
from .vjp import ROW_TERMS, terms_at, vjp_of


@functools.cache
def lines_copy(vector: int, copiers: int) -> Any:
    """``copy(x, base, stride, lines, size, staged, first, pitch)``: the block copies lines of ``size`` elements to ``staged``.

    They begin at offset ``base`` of x and every ``stride`` elements from there, and go to ``staged[first]`` and every ``pitch`` from there, as far
    from an aligned vector as they were. ``copiers`` threads take a line: whole vectors go past the registers, the elements of others one by one. A
    barrier must follow before another thread's elements are used.
    """
    arrived, at_once = await_copies(0), THREADS // copiers

    @jit.device
    def copy(x: Any, base: Any, stride: Any, lines: Any, size: Any, staged: Any, first: Any, pitch: Any) -> None:
        line, lane = lane_of_group(copiers)
        while line < lines:
            begin, source = int32(first + line * pitch), base + line * stride
            end, at = int32(begin + size), int32((begin & -vector) + lane * vector)
            while at < end:
                if begin <= at <= end - vector:
                    copy_async(x, source + (at - begin), staged, int64(at))
                else:
                    own, behind = max(at, begin), min(int32(at + vector), end)
                    while own < behind:
                        staged[uint64(own)] = x[source + (own - begin)]
                        own = int32(own + 1)
                at = int32(at + copiers * vector)
            line = int32(line + at_once)
        commit_copies()
        arrived()

    return copy


@functools.cache
def lines_fold(monoid: str, value: str, lanes: int, inner: int) -> Any:
    """``fold(staged, begin, lines, line, pitch, lane)``: (accumulator, number of elements) of one lane's share of a row in ``staged``.

    The row has ``line`` elements on each of its ``lines``, ``inner`` apart from ``staged[begin]`` on, and so every ``pitch`` from there. Of all of
    them a lane takes every ``lanes``-th, ``STAGED_STEPS`` before it uses the first.
    """
    element, accumulator, steps = jit.SCALARS[value], thread_accumulator_of(monoid, value), STAGED_STEPS
    add, empty = accumulator.add_batch(steps, 1, 1, lanes), accumulator.empty

    @jit.device
    def fold(staged: Any, begin: Any, lines: Any, line: Any, pitch: Any, lane: Any) -> Any:
        batch = cuda.local.array(steps, element)
        acc, count, position, size = empty(), int32(0), int32(lane), int32(lines * line)
        above, down = uint32(lane) // uint32(line), uint32(lanes) // uint32(line)
        place, right = int32(lane - above * line), int32(lanes - down * line)
        index, step, wrap = int32(begin + above * pitch + place * inner), int32(down * pitch + right * inner), int32(pitch - line * inner)
        while position < size:
            valid = int32(0)
            for s in range(steps):
                inside = position + s * lanes < size
                batch[s] = staged[uint64(index if inside else begin)]
                valid = int32(valid + int32(inside))
                index, place = int32(index + step), int32(place + right)
                if place >= line:
                    index, place = int32(index + wrap), int32(place - line)
            acc = add(acc, batch, 0, int64(position), valid, count)
            count, position = int32(count + valid), int32(position + steps * lanes)
        return acc, count

    return fold


@functools.cache
def lines_store(element_vjp: Any, value: str, vector: int, inner: int, copiers: int) -> Any:
    """``store(staged, terms, dx, base, stride, lines, size, first, pitch, unit, inverse_extent)``: the block stores the gradient of lines.

    They lie as :func:`lines_copy` has them. Each is a row of units of ``unit`` elements, in which ``inner`` neighbouring columns alternate;
    ``terms`` are those of the columns of all units.
    """
    element, load, store, at_once = jit.SCALARS[value], LOAD[vector], STORE_STREAM[vector], THREADS // copiers

    @jit.device
    def store_lines(
        staged: Any, terms: Any, dx: Any, base: Any, stride: Any, lines: Any, size: Any, first: Any, pitch: Any, unit: Any, inverse_extent: Any
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, element)
        line, lane = lane_of_group(copiers)
        while line < lines:
            begin, target = int32(first + line * pitch), base + line * stride
            end, at = int32(begin + size), int32((begin & -vector) + lane * vector)
            while at < end:
                own = max(at, begin)
                number = uint32(own - begin) // uint32(unit)
                place = int32(own - begin - number * unit)
                inside = int32(uint32(place) % uint32(inner))
                column = int32(number * inner)
                if begin <= at <= end - vector:
                    load(staged, int64(at), batch, 0)
                    for v in range(vector):
                        batch[v] = element_vjp(batch[v], int64(0), inverse_extent, terms_at(terms, ROW_TERMS * (column + inside)))
                        inside, place = int32(inside + 1), int32(place + 1)
                        if inside == inner:
                            inside = int32(0)
                        if place == unit:
                            place, column = int32(0), int32(column + inner)
                    store(dx, target + (at - begin), batch, 0)
                else:
                    behind = min(int32(at + vector), end)
                    while own < behind:
                        here = terms_at(terms, ROW_TERMS * (column + inside))
                        dx[target + (own - begin)] = element_vjp(staged[uint64(own)], int64(0), inverse_extent, here)
                        own, inside, place = int32(own + 1), int32(inside + 1), int32(place + 1)
                        if inside == inner:
                            inside = int32(0)
                        if place == unit:
                            place, column = int32(0), int32(column + inner)
                at = int32(at + copiers * vector)
            line = int32(line + at_once)

    return store_lines


@jit.kernel
def fold_and_broadcast_staged_lines(
    *, gradient: str, monoid: str, value: str, lanes: int, copiers: int, inner: int, columns: int, kept: int
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_rows` for rows of dx and x whose lines lie apart, or are no multiple of a vector, and for few neighbouring columns.

    A *unit* is a row, or ``inner`` neighbouring columns: on each of its ``lines`` it has ``line`` elements of each column, all of them contiguous, and
    units may be neighbours on a line. A block copies all lines of a few neighbouring units to shared memory, with ``copiers`` threads for each line,
    ``lanes`` lanes fold each row there, only where a result of the block is no normal number if the gradient is guarded, and the terms of each row
    go to shared memory, too. Then the threads store dx in aligned vectors, which need not begin or end with a row or a line. Of gradients that count
    no positions. Dynamic shared memory: ``pitch`` · lines elements, and those of a vector. Bytes: rows · extent · value read and written.

    Constants and parameters as :mod:`.` lists them, and: ``columns``: the most rows or columns of a block. ``units``: the units of a block;
    ``across``: neighbouring units on a line; ``stride``, ``pitch``: the distance of neighbouring lines in memory and in shared memory, the same
    multiple of a vector and as much more. ``x_kept_strides`` are also those of dx.
    """
    element, wide, row_vjp, guarded = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded
    vector, groups = ASYNC_BYTES // BY_NAME[value].itemsize, THREADS // lanes
    copy, fold, load_row_terms = lines_copy(vector, copiers), lines_fold(monoid, value, lanes, inner), row_vjp.load_row_terms
    store_any, store_normal = (lines_store(each, value, vector, inner, copiers) for each in (row_vjp.element_vjp, row_vjp.element_vjp_normal))
    empty, reduce_lanes = thread_accumulator_of(monoid, value).empty, thread_accumulator_of(monoid, value).reduce_lanes(lanes)
    subtracts_origin, origin_from, row_results = monoid_of(monoid).subtracts_origin, origin_of(value), row_results_of(monoid, value)
    is_special, row_offset, rounds, terms_size = special_of(value), strided_offset_of(kept), -(-columns // groups), ROW_TERMS * columns

    def fold_and_broadcast_staged_lines(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        units: int64, across: int64, lines: int64, line: int64, stride: int64, pitch: int64, corrected_count: Scalar[wide],
        inverse_extent: Scalar[wide], kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept],
        y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        staged, terms = cuda.shared.array(0, element), cuda.shared.array(terms_size, wide)
        blocks_across = (int32(across) + int32(units) - 1) // int32(units)
        outer = uint32(cuda.blockIdx.x) // uint32(blocks_across)
        begin = int32(int32(cuda.blockIdx.x - outer * blocks_across) * units)
        first_row = (int64(outer) * across + begin) * inner
        unit, rows_here = int32(line * inner), int32(min(int32(units), int32(across) - begin) * inner)
        size, base = int32(rows_here * line), row_offset(first_row, kept_shape, x_kept_strides)
        first = int32((base - aligned_span(x, base, base + vector, vector)[0]) & (vector - 1))
        copy(x, base, stride, int32(lines), size, staged, first, int32(pitch))
        found = int32(not guarded)
        if guarded:
            row = int32(cuda.threadIdx.x)
            while row < rows_here:
                found |= is_special(y, row_offset(first_row + row, kept_shape, y_kept_strides))
                row = int32(row + THREADS)
            found = int32(cuda.syncthreads_or(found))
        else:
            cuda.syncthreads()
        group, lane = lane_of_group(lanes)
        for k in range(rounds):
            row = int32(group + k * groups)
            own = min(row, int32(rows_here - 1))
            y_offset, p_q = row_offset(first_row + own, kept_shape, y_kept_strides), (wide(0), wide(-1))
            number = uint32(own) // uint32(inner)
            at = int32(first + number * unit + (own - number * inner))
            if found:
                acc, count, origin = empty(), int32(0), wide(0)
                if row < rows_here:
                    acc, count = fold(staged, at, int32(lines), int32(line), int32(pitch), lane)
                if subtracts_origin:
                    origin = origin_from(staged[at])
                row_p_q = row_results(reduce_lanes(acc, count, origin), corrected_count)
                p_q = row_p_q if not guarded or is_special(y, y_offset) else p_q
            if lane == 0 and row < rows_here:
                dy_offset = row_offset(first_row + own, kept_shape, dy_kept_strides)
                load_row_terms(terms, own * ROW_TERMS, staged, dy, y, at, dy_offset, y_offset, p_q)
        cuda.syncthreads()
        if guarded and not found:
            store_normal(staged, terms, dx, base, stride, int32(lines), size, first, int32(pitch), unit, inverse_extent)
        else:
            store_any(staged, terms, dx, base, stride, int32(lines), size, first, int32(pitch), unit, inverse_extent)

    return fold_and_broadcast_staged_lines, lambda rows, across, units: (rows // (across * inner) * -(-across // units), THREADS, 0)
