"""Gradients of rows, or of few neighbouring columns, whose lines lie apart: a block copies the lines to shared memory, and folds them there."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, STORE_STREAM, aligned_span
from ...kernels.elements import accumulator_type, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import ASYNC_BYTES, THREADS
from .line_walk import lines_apply, lines_fold
from .loads import lane_of_group
from .results import row_results_of, special_of
from .vjp import ROW_TERMS, vjp_of

#: scalars of the terms of a row in shared memory, of which the first are loaded at once
_ROOM = 8


@functools.cache
def terms_of(value: str) -> tuple[Any, Any]:
    """(``keep``, ``find``): ``keep(terms, row, own)`` puts the terms of a row to shared memory, and ``find(terms, row)`` returns them."""
    wide, width = accumulator_type(value), ASYNC_BYTES // BY_NAME[BY_NAME[value].accumulator].itemsize
    load, size = LOAD[width], ROW_TERMS + width

    @jit.device
    def keep(terms: Any, row: Any, own: Any) -> None:
        for k in range(ROW_TERMS):
            terms[uint64(row * _ROOM + k)] = own[k]

    @jit.device
    def find(terms: Any, row: Any) -> Any:
        own = cuda.local.array(size, wide)
        for k in range(0, ROW_TERMS - 1, width):
            load(terms, int64(row * _ROOM + k), own, k)
        last = terms[uint64(row * _ROOM + ROW_TERMS - 1)]
        return own[0], own[1], own[2], own[3], last

    return keep, find


@functools.cache
def lines_mover(value: str, vector: int, copiers: int, writes: bool, element_vjp: Any = None) -> Any:
    """``move(array, base, stride, lines, size, staged, first, pitch, …)``: the block copies lines of ``size`` elements to ``staged``, or writes them.

    They begin at offset ``base`` of the array and every ``stride`` elements from there, and at ``staged[first]`` and every ``pitch`` from there, as
    far from an aligned vector as they are in the array. ``copiers`` threads take a line: whole vectors at once, those that come past the registers,
    the elements of others one by one. What is written passes through ``element_vjp``, if given, with ``inverse_extent`` and ``own_terms``, the last
    arguments. A barrier must follow a copy before another thread's elements are used.
    """
    element, load, store, arrived, at_once = jit.SCALARS[value], LOAD[vector], STORE_STREAM[vector], await_copies(0), THREADS // copiers

    @jit.device
    def move(
        array: Any, base: Any, stride: Any, lines: Any, size: Any, staged: Any, first: Any, pitch: Any, inverse_extent: Any, own_terms: Any
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, element)
        line, lane = lane_of_group(copiers)
        while line < lines:
            begin, source = int32(first + line * pitch), base + line * stride
            end, at = int32(begin + size), int32((begin & -vector) + lane * vector)
            while at < end:
                if begin <= at <= end - vector:
                    if writes:
                        load(staged, int64(at), batch, 0)
                        if element_vjp is not None:
                            for v in range(vector):
                                batch[v] = element_vjp(batch[v], int64(0), inverse_extent, own_terms)
                        store(array, source + (at - begin), batch, 0)
                    else:
                        copy_async(array, source + (at - begin), staged, int64(at))
                else:
                    own, behind = max(at, begin), min(int32(at + vector), end)
                    while own < behind:
                        if not writes:
                            staged[uint64(own)] = array[source + (own - begin)]
                        elif element_vjp is not None:
                            array[source + (own - begin)] = element_vjp(staged[uint64(own)], int64(0), inverse_extent, own_terms)
                        else:
                            array[source + (own - begin)] = staged[uint64(own)]
                        own = int32(opaque(own + 1))
                at = int32(opaque(at + copiers * vector))
            line = int32(opaque(line + at_once))
        if not writes:
            commit_copies()
            arrived()

    return move


@jit.kernel
def fold_and_broadcast_staged_lines(
    *, gradient: str, monoid: str, value: str, lanes: int, copiers: int, inner: int, columns: int, alone: bool, flat: bool, woven: bool, kept: int,
) -> Any:  # fmt: skip
    """:func:`fold_and_broadcast_rows` for rows whose lines lie apart, or are no multiple of a vector, and for few neighbouring columns.

    A *unit* is a row, or ``inner`` neighbouring columns: on each of its ``lines`` it has ``line`` elements of each column, all of them contiguous;
    units may be neighbours on a line. If rows are ``woven``, it is a contiguous range of all ``lines`` of ``unit_rows`` rows, which alternate in it,
    and is copied and stored as one line. A block copies all lines of a few neighbouring units to shared memory, with ``copiers`` threads for each,
    ``lanes`` lanes fold each row there, only where a result of the block is no normal number if the gradient is guarded, and the terms of each row
    go to shared memory, too. Then the lanes of a row set it to its gradient there, unless it is the block's only one, and the threads store dx in
    aligned vectors, which need not begin or end with a row or a line. Of gradients that count no positions. Dynamic shared memory: the bytes of
    ``lines`` · ``pitch`` elements, or of units that are woven, and of a vector. Bytes: rows · extent · value read and written.

    Constants and parameters as :mod:`.` lists them, and: ``columns``: rows or columns of a block, or more, a power of two; ``alone``: whether it
    has one; ``flat``: whether there is one line. ``units``: those of a block; ``across``: neighbouring units; ``unit_rows``: the rows or columns of
    one; ``stride``, ``pitch``: the distance of neighbouring lines in memory and in shared memory, alike modulo a vector. ``x_kept_strides`` are also
    those of dx.
    """
    element, wide, row_vjp, guarded = jit.SCALARS[value], accumulator_type(value), vjp_of(gradient, value), GRADIENTS[gradient].guarded
    vector, groups = ASYNC_BYTES // BY_NAME[value].itemsize, THREADS // lanes
    vjps = row_vjp.element_vjp, row_vjp.element_vjp_normal
    copy, fold = lines_mover(value, vector, copiers, writes=False), lines_fold(monoid, value, lanes, inner, flat)
    apply_any, apply_normal = (lines_apply(each, value, lanes, inner, flat) for each in vjps)
    write_any, write_normal = (lines_mover(value, vector, copiers, True, each if alone else None) for each in vjps)
    load_row_terms, row_results, (keep, find) = row_vjp.load_row_terms, row_results_of(monoid, value), terms_of(value)
    is_special, row_offset, rounds, terms_size = special_of(value), strided_offset_of(kept), -(-columns // groups), _ROOM * columns

    @jit.device
    def begin_of(row: Any, first: Any, each: Any, unit: Any, line: Any) -> Any:
        """Where a row of the block begins, whose units begin at ``first`` and have so many rows ``each``."""
        number = int32(uint32(row) // uint32(each))
        return int32(first + number * unit + (row - number * each) * (int32(line) if woven else int32(1)))

    def fold_and_broadcast_staged_lines(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], dx: Ptr[value],
        units: int64, across: int64, unit_rows: int64, lines: int64, line: int64, stride: int64, pitch: int64, corrected_count: Scalar[wide],
        inverse_extent: Scalar[wide], kept_shape: Extents[kept], x_kept_strides: Extents[kept], dy_kept_strides: Extents[kept],
        y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        staged, terms = cuda.shared.array(0, element), cuda.shared.array(terms_size, wide, alignment=16)
        row_terms = cuda.local.array(ROW_TERMS, wide)
        blocks_across = (int32(across) + int32(units) - 1) // int32(units)
        outer = uint32(cuda.blockIdx.x) // uint32(blocks_across)
        begin = int32(int32(cuda.blockIdx.x - outer * blocks_across) * units)
        each = int32(unit_rows) if woven else int32(inner)
        units_here, unit, copied = min(int32(units), int32(int32(across) - begin)), int32(line * inner), int32(lines)
        if woven:
            unit, copied = int32(lines * stride), int32(1)
        first_row, rows_here = (int64(outer) * across + begin) * each, int32(units_here * each)
        size, base = int32(units_here * unit), row_offset(first_row, kept_shape, x_kept_strides)
        first = int32((base - aligned_span(x, base, base + vector, vector)[0]) & (vector - 1))
        copy(x, base, stride, copied, size, staged, first, int32(pitch), None, None)
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
            at = begin_of(own, first, each, unit, line)
            if found:
                state = fold(staged, at, int32(lines), int32(line), int32(pitch), row < rows_here, lane)
                row_p_q = row_results(state, corrected_count)
                p_q = row_p_q if not guarded or is_special(y, y_offset) else p_q
            if lane == 0 and row < rows_here:
                dy_offset = row_offset(first_row + own, kept_shape, dy_kept_strides)
                load_row_terms(row_terms, 0, staged, dy, y, at, dy_offset, y_offset, p_q)
                keep(terms, own, row_terms)
        cuda.syncthreads()
        normal = guarded and not found
        if not alone:
            for k in range(rounds):
                row = int32(group + k * groups)
                if row < rows_here:
                    at, own_terms = begin_of(row, first, each, unit, line), find(terms, row)
                    if normal:
                        apply_normal(staged, at, int32(lines), int32(line), int32(pitch), lane, own_terms, inverse_extent)
                    else:
                        apply_any(staged, at, int32(lines), int32(line), int32(pitch), lane, own_terms, inverse_extent)
            cuda.syncthreads()
        own_terms = find(terms, int32(0))
        if alone and normal:
            write_normal(dx, base, stride, copied, size, staged, first, int32(pitch), inverse_extent, own_terms)
        else:
            write_any(dx, base, stride, copied, size, staged, first, int32(pitch), inverse_extent, own_terms)

    return fold_and_broadcast_staged_lines, lambda rows, across, unit_rows, units: (rows // (across * unit_rows) * -(-across // units), THREADS, 0)
