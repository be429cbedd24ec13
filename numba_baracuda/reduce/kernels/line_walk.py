"""How lanes walk a row whose lines lie in shared memory: they fold it, and set it to its gradient."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32, uint64

from ...algebra import monoid_of
from ...device.build import opaque
from ...kernels.accumulators import thread_accumulator_of
from ...kernels.elements import accumulator_type, origin_of
from ...runtime import jit
from ..tiling import STAGED_STEPS
from .staged import group_fold_of


@functools.cache
def lines_walk(lanes: int, inner: int, flat: bool) -> tuple[Any, Any]:
    """(``start``, ``go_on``) of a lane that takes every ``lanes``-th element of a row in shared memory.

    The row has ``line`` elements on each line, of which there is one if ``flat``, ``inner`` apart from element ``begin`` on, and so every ``pitch``
    from there. ``start(begin, line, pitch, lane)`` returns the index of the lane's first element, its place on its line, and the strides from one to
    the next: of indices, of places, and what more is added to an index on a line further down. ``go_on(index, place, line, strides)`` returns index
    and place of the next.
    """

    @jit.device
    def start(begin: Any, line: Any, pitch: Any, lane: Any) -> Any:
        above, down = uint32(0), uint32(0)
        if not flat:
            above, down = uint32(lane) // uint32(line), uint32(lanes) // uint32(line)
        place, right = int32(lane - above * line), int32(lanes - down * line)
        index, step, wrap = int32(begin + above * pitch + place * inner), int32(down * pitch + right * inner), int32(pitch - line * inner)
        return index, place, (step, right, wrap)

    @jit.device
    def go_on(index: Any, place: Any, line: Any, strides: Any) -> Any:
        step, right, wrap = strides
        index = int32(index + step)
        if not flat:
            place = int32(place + right)
            if place >= line:
                index, place = int32(index + wrap), int32(place - line)
        return index, place

    return start, go_on


@functools.cache
def _batch_fold(monoid: str, value: str, lanes: int, inner: int, steps: int) -> Any:
    """``take(acc, count, index, place, staged, lane, size, line, strides)``: the first four after ``steps`` more elements of a row of ``size``.

    They are as they were if fewer are left. ``index``, ``place`` and ``strides`` are those of :func:`lines_walk`.
    """
    element, add = jit.SCALARS[value], thread_accumulator_of(monoid, value).add_batch(steps, 1, 1, lanes)
    _, go_on = lines_walk(lanes, inner, flat=False)

    @jit.device
    def take(acc: Any, count: Any, index: Any, place: Any, staged: Any, lane: Any, size: Any, line: Any, strides: Any) -> Any:
        batch = cuda.local.array(steps, element)
        position = int32(lane + count * lanes)
        if position < int32(size - (steps - 1) * lanes):
            for s in range(steps):
                batch[s] = staged[uint64(index)]
                index, place = go_on(index, place, line, strides)
            acc = add(acc, batch, 0, int64(position), steps, count)
            count = int32(count + steps)
        return acc, count, index, place

    return take


@functools.cache
def lines_fold(monoid: str, value: str, lanes: int, inner: int, flat: bool) -> Any:
    """``fold(staged, begin, lines, line, pitch, exists, lane)``: the state of a row in ``staged``, in the first of its ``lanes`` lanes.

    The row lies on its ``lines`` as :func:`lines_walk` has it, from ``staged[begin]`` on. A lane takes batches as :func:`~.staged.group_fold_of`
    does.
    """
    accumulator, wide, origin_from = thread_accumulator_of(monoid, value), accumulator_type(value), origin_of(value)
    empty, reduce_lanes, subtracts_origin = accumulator.empty, accumulator.reduce_lanes(lanes), monoid_of(monoid).subtracts_origin
    take_8, take_4, take_2, take_1 = (_batch_fold(monoid, value, lanes, inner, STAGED_STEPS >> halved) for halved in range(4))
    fold_flat, (start, _) = group_fold_of(monoid, value, lanes, inner), lines_walk(lanes, inner, flat=False)

    @jit.device
    def fold(staged: Any, begin: Any, lines: Any, line: Any, pitch: Any, exists: Any, lane: Any) -> Any:
        acc, count, origin, size = empty(), int32(0), wide(0), int32(lines * line)
        if exists:
            index, place, strides = start(begin, line, pitch, lane)
            while lane + count * lanes < int32(size - (STAGED_STEPS - 1) * lanes):
                acc, count, index, place = take_8(acc, count, index, place, staged, lane, size, line, strides)
            acc, count, index, place = take_4(acc, count, index, place, staged, lane, size, line, strides)
            acc, count, index, place = take_2(acc, count, index, place, staged, lane, size, line, strides)
            acc, count, index, place = take_1(acc, count, index, place, staged, lane, size, line, strides)
            if subtracts_origin:
                origin = origin_from(staged[uint64(begin)])
        return reduce_lanes(acc, count, origin)

    if flat:
        return jit.device(lambda staged, begin, lines, line, pitch, exists, lane: fold_flat(staged, begin, line, exists, lane))
    return fold


@functools.cache
def lines_apply(element_vjp: Any, value: str, lanes: int, inner: int, flat: bool) -> Any:
    """``apply(staged, begin, lines, line, pitch, lane, own, inverse_extent)``: a row in ``staged`` becomes its gradient, by its terms ``own``.

    The row lies as :func:`lines_fold` has it, and its lanes take the same elements.
    """
    element, steps, (start, go_on) = jit.SCALARS[value], STAGED_STEPS // 2, lines_walk(lanes, inner, flat)

    @jit.device
    def apply(staged: Any, begin: Any, lines: Any, line: Any, pitch: Any, lane: Any, own: Any, inverse_extent: Any) -> None:
        batch, at = cuda.local.array(steps, element), cuda.local.array(steps, int32)
        size = int32(lines * line)
        index, place, strides = start(begin, line, pitch, lane)
        position = int32(lane)
        while position < int32(size - (steps - 1) * lanes):
            for s in range(steps):
                at[s], batch[s] = index, staged[uint64(index)]
                index, place = go_on(index, place, line, strides)
            for s in range(steps):
                staged[uint64(at[s])] = element_vjp(batch[s], int64(0), inverse_extent, own)
            position = int32(opaque(position + steps * lanes))
        while position < size:
            staged[uint64(index)] = element_vjp(staged[uint64(index)], int64(0), inverse_extent, own)
            index, place = go_on(index, place, line, strides)
            position = int32(opaque(position + lanes))

    return apply
