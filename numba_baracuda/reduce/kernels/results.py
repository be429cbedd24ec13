"""How a fold stores the state of a row: as the result, or as the partial of one split, which a second launch combines with the others."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra import monoid_of
from ...device.bits import f32_as_i32, f64_as_i64
from ...device.build import opaque
from ...kernels.arrivals import last_to_arrive
from ...kernels.batch import narrow_of, state_accessors, state_functions, state_kind, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of, is_normal_of, position_code_of, strided_offset_of
from ...kernels.thread_accumulator import group_reduce
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..policy import CombinePartials, SinglePass
from ..tiling import THREADS, splits_in_flight
from .loads import lane_of_group, split_of


@functools.cache
def result_stores(monoid: str, value: str, result: str) -> tuple[Any, Any]:
    """(``store_result``, ``store_partial``) of the state of a row.

    ``store_result(y, offset, state, corrected_count)`` stores the finished state at ``y[offset]``; a monoid of several results has them side by side.
    ``store_partial(partials, index, state)`` stores the state as it is, as the state number ``index`` of ``partials``.
    """
    typed, kind = typed_monoid(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    finish, narrow, (_, put) = jit.device(typed.finish), narrow_of(monoid, value, result), state_accessors(typed.width)
    width, results = typed.width, typed.results

    @jit.device
    def store_result(y: Any, offset: Any, state: Any, corrected_count: Any) -> None:
        finished = finish(state, corrected_count, kind(1))
        if results == 1:
            y[offset] = narrow(finished)
        else:
            for w in range(results):
                y[offset * results + w] = narrow(finished[w])

    return store_result, jit.device(lambda partials, index, state: put(partials, index * width, 1, state))


@functools.cache
def special_of(value: str) -> Any:
    """``is_special(y, offset)``: 1 if ``y[offset]`` is zero, subnormal, infinite or NaN, else 0."""
    widen, is_normal = conversions_of(value)[0], is_normal_of(value)
    return jit.device(lambda y, offset: int32(not is_normal(widen(y[offset]))))


@functools.cache
def placed_of(monoid: str, value: str) -> Any:
    """``placed(state, first, scale)``: the state with position p moved to ``first + p · scale``; as it is where states hold no positions."""
    if not monoid_of(monoid).uses_positions:
        return jit.device(lambda state, first, scale: state)
    kind, position_code = state_kind(monoid, value), position_code_of(value)
    bits = {"f32": f32_as_i32, "f64": f64_as_i64}.get(kind, int64)
    return jit.device(lambda state, first, scale: (state[0], position_code(first + int64(bits(state[1])) * scale)))


@functools.cache
def row_results_of(monoid: str, value: str) -> Any:
    """``row_results(state, corrected_count)``: the results (p, q) of a row's fold, of which a gradient makes its terms; q is 0 where there is one."""
    finish, wide, single = jit.device(typed_monoid(monoid, value).finish), accumulator_type(value), monoid_of(monoid).results == 1

    @jit.device
    def row_results(state: Any, corrected_count: Any) -> Any:
        finished = finish(state, wide(corrected_count), wide(1))
        return (finished, wide(0)) if single else finished

    return row_results


@functools.cache
def splits_fold(monoid: str, value: str, vector: int, lanes: int, stride: int, most: int = SinglePass.items_per_thread) -> Any:
    """``fold(partials, group, splits, first, end, lane, states, each, scale, step)``: combines some splits of a group of rows.

    They are ``first``, ``first + stride``, …, all before ``end``. ``partials`` is [groups, splits, scalars of ``vector`` states, ``lanes``]; a lane
    has ``vector`` rows, and their states go to ``states``. It issues several loads at a time, of ``most`` splits at most. Position p in split s
    becomes p · ``scale`` + s // ``each`` · ``step``.
    """
    functions, kind = state_functions(monoid, value), jit.SCALARS[state_kind(monoid, value)]
    identity, combine, width = functions.identity, functions.combine, len(functions.kinds)
    (get, put), scalars, in_flight = state_accessors(width), vector * width, min(splits_in_flight(vector * width), most)
    size, placed = in_flight * scalars, placed_of(monoid, value)

    @jit.device
    def fold(partials: Any, group: Any, splits: Any, first: Any, end: Any, lane: Any, states: Any, each: Any, scale: Any, step: Any) -> None:
        loaded = cuda.local.array(size, kind)
        for v in range(vector):
            put(states, v * width, 1, identity())
        split = int64(first)
        while split < end:
            for u in range(in_flight):
                index = (group * splits + min(split + u * stride, end - 1)) * scalars
                for k in range(scalars):
                    loaded[u * scalars + k] = partials[(index + k) * lanes + lane]
            for u in range(in_flight):
                if split + u * stride < end:
                    for v in range(vector):
                        partial = placed(get(loaded, u * scalars + v * width, 1), int64(uint32(split + u * stride) // uint32(each)) * step, scale)
                        put(states, v * width, 1, combine(get(states, v * width, 1), partial))
            split = opaque(split + in_flight * stride)

    return fold


@jit.kernel
def combine_partials(*, monoid: str, value: str, result: str, lanes: int, guarded: bool, special: bool, in_parts: bool, kept: int) -> Any:
    """``y[r] = finish(partials[r, 0] ⊕ … ⊕ partials[r, splits - 1])``: the second launch of a fold whose rows are split.

    A group of ``lanes`` lanes has a row. Lane l folds the partials l, l + ``lanes``, …, or neighbouring ones where the monoid does
    not commute; then the group reduces the states of its lanes. ``in_parts``: a block has a part of a row instead, and the last block of the row to
    finish combines the states of the parts likewise. Order: fixed by the constants. Bytes: the partials are read, rows · result written.

    Constants and parameters as :mod:`.` lists them, and: ``each``, ``scale``, ``step``: position p of a partial s is p · ``scale`` + s // ``each`` ·
    ``step`` in its row; ``parts``: into which the partials of a row are cut, 1 if not ``in_parts``; ``arrivals`` [rows]: how many parts of each have
    been combined, 0 before and after; ``joined`` [rows, parts, scalars of a state]: their states.
    """
    states, width, ordered = state_functions(monoid, value), typed_monoid(monoid, value).width, not monoid_of(monoid).commutes
    identity, combine, reduce_lanes = states.identity, states.combine, group_reduce(monoid, value, lanes)
    (get, _), (store_result, store_partial) = state_accessors(width), result_stores(monoid, value, result)
    kind = jit.SCALARS[state_kind(monoid, value)]
    is_special: Any = special_of(value) if special else None
    groups, row_offset, scalars = THREADS // lanes, strided_offset_of(kept), width
    few = lanes < CombinePartials.max_group_threads  # fewer lanes have no more partials each than these items
    fold_splits = splits_fold(monoid, value, 1, 1, lanes, CombinePartials.items_per_thread if few else SinglePass.items_per_thread)

    def combine_partials(
        guard: Ptr[value if special else int32], arrivals: Ptr[int32], partials: Ptr[state_kind(monoid, value)],
        joined: Ptr[state_kind(monoid, value)], y: Ptr[result],
        rows: int64, splits: int64, parts: int64, each: int64, scale: int64, step: int64, corrected_count: Scalar[state_kind(monoid, value)],
        kept_shape: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        folded = cuda.local.array(scalars, kind)
        if guarded and guard[0] == 0:
            return
        group, lane = lane_of_group(lanes)
        row, part = int64(cuda.blockIdx.x) * groups + group, int64(0)
        if in_parts:
            row, part = split_of(int64(cuda.blockIdx.x), parts)
        state, folds = identity(), row < rows
        if special and folds:
            folds = is_special(guard, row_offset(row, kept_shape, y_kept_strides)) != 0
        if folds:
            if ordered:  # of one part
                share = (splits + lanes - 1) // lanes
                for split in range(min(lane * share, splits), min((lane + 1) * share, splits)):
                    state = combine(state, get(partials, (row * splits + split) * width, 1))
            else:
                share = (splits + parts - 1) // parts
                fold_splits(partials, row, splits, part * share + lane, min((part + 1) * share, splits), 0, folded, each, scale, step)
                state = get(folded, 0, 1)
        state = reduce_lanes(state)
        if in_parts:
            if lane == 0:
                store_partial(joined, row * parts + part, state)
            if not last_to_arrive(arrivals, row, parts):
                return
            fold_splits(joined, row, parts, int64(lane), parts, 0, folded, int64(1), int64(1), int64(0))
            state = reduce_lanes(get(folded, 0, 1))
        if lane == 0 and folds:
            store_result(y, row_offset(row, kept_shape, y_kept_strides), state, corrected_count)

    return combine_partials, lambda rows, parts: (-(-rows // groups) * parts, THREADS, 0)
