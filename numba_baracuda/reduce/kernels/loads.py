"""Which rows, and which split of them, a block has; and the vectorized loads that a lane issues before it uses the first."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...device.vector import LOAD_ONCE, LOAD_STREAM, aligned_span
from ...kernels.elements import coordinates_of, quotient, strided_offset_of
from ...runtime import jit

_MOST = (1 << 31) - 1


@functools.cache
def block_of(last_first: bool) -> Any:
    """``block()``: the number of this block, with ``last_first`` counted from the last one."""
    if last_first:
        return jit.device(lambda: int64(uint32(cuda.gridDim.x - 1 - cuda.blockIdx.x)))
    return jit.device(lambda: int64(cuda.blockIdx.x))


@jit.device
def split_of(block: Any, splits: Any) -> Any:
    """(index of the block's rows, index of their split): consecutive blocks have the ``splits`` splits of the same rows."""
    row_block = int64(uint32(block) // uint32(splits)) if splits > 1 else block
    return row_block, block - row_block * splits


@jit.device
def column_split_of(block: Any, splits: Any, across: Any) -> Any:
    """(index of the block's columns, index of their split): consecutive blocks have the ``across`` neighbours of a line, then its next split."""
    lines = int64(uint32(block) // uint32(splits * across))
    first, rest = lines * across, block - lines * splits * across
    width = min(int64(across), int64(uint32(cuda.gridDim.x) // uint32(splits)) - first)
    split = int64(uint32(rest) // uint32(width))
    return first + rest - split * width, split


@jit.device
def lane_of_group(lanes: Any) -> Any:
    """(group, lane in the group) of this thread, where groups have ``lanes`` neighbouring lanes."""
    thread = uint32(cuda.threadIdx.x)
    group = thread // uint32(lanes)
    return int32(group), int32(thread - group * uint32(lanes))


@functools.cache
def walk_of(dims: int, stride: int) -> tuple[Any, Any]:
    """(``start``, ``advance``): the offsets of the positions of a row that are ``stride`` apart.

    ``start(base, position, shape, strides)`` is a walk in the row that begins at offset ``base``, and ``advance(walk, shape, strides)`` the walk
    ``stride`` positions further on. ``walk[0]`` is the offset in elements. Along two axes only the start divides by an extent, and the walk holds
    what each step adds.
    """
    offset_of = strided_offset_of(dims)
    if dims != 2:

        @jit.device
        def start(base: Any, position: Any, shape: Any, strides: Any) -> Any:
            return base + offset_of(position, shape, strides), base, position

        @jit.device
        def advance(walk: Any, shape: Any, strides: Any) -> Any:
            return walk[1] + offset_of(walk[2] + stride, shape, strides), walk[1], walk[2] + stride

        return start, advance

    @jit.device
    def start_of_two(base: Any, position: Any, shape: Any, strides: Any) -> Any:
        outer = quotient(position, shape[1])
        inner = position - outer * shape[1]
        whole = int64(uint32(stride) // uint32(min(shape[1], int64(_MOST))))
        rest = stride - whole * shape[1]
        step = whole * strides[0] + rest * strides[1]
        return base + outer * strides[0] + inner * strides[1], inner, rest, step, step + strides[0] - shape[1] * strides[1]

    @jit.device
    def advance_of_two(walk: Any, shape: Any, strides: Any) -> Any:
        offset, inner, rest, step, step_and_wrap = walk
        reached, wrapped = inner + rest, inner + (rest - shape[1])
        wraps = wrapped >= 0
        return offset + (step_and_wrap if wraps else step), wrapped if wraps else reached, rest, step, step_and_wrap

    return start_of_two, advance_of_two


@functools.cache
def walking_loads(value: str, vector: int, stride: int, dims: int, steps: int, reused: bool = False) -> tuple[Any, Any, Any]:
    """(``start``, ``fetch``, ``fetch_some``): :func:`vector_loads` along a walk, which full batches continue without a division.

    ``start(base, position, shape, strides)`` is the walk, ``fetch(x, walk, shape, strides, batch, batch_offset)`` loads the vectors and returns the
    walk behind them, and ``fetch_some(x, base, walk, position, end, safe, …)`` takes the walk from ``position``, or ``safe`` if that is the end.
    """
    load, (start, advance), offset_of = (LOAD_ONCE if reused else LOAD_STREAM)[vector], walk_of(dims, stride), strided_offset_of(dims)

    @jit.device
    def fetch(x: Any, walk: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any) -> Any:
        for s in range(steps):
            load(x, walk[0], batch, batch_offset + s * vector)
            walk = advance(walk, shape, strides)
        return walk

    @jit.device
    def fetch_some(
        x: Any, base: Any, walk: Any, position: Any, end: Any, safe: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any
    ) -> Any:  # fmt: skip
        valid = int32(0)
        for s in range(steps):
            inside = position + s * stride < end
            load(x, base + offset_of(position + s * stride if inside else safe, shape, strides), batch, batch_offset + s * vector)
            valid = int32(valid + int32(inside))
        return valid

    @jit.device
    def fetch_some_of_two(
        x: Any, base: Any, walk: Any, position: Any, end: Any, safe: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any
    ) -> Any:  # fmt: skip
        valid = int32(0)
        for s in range(steps):
            load(x, walk[0], batch, batch_offset + s * vector)
            valid = int32(valid + int32(position + s * stride < end))
            if position + (s + 1) * stride < end:
                walk = advance(walk, shape, strides)
        return valid

    return start, fetch, fetch_some_of_two if dims == 2 else fetch_some


@functools.cache
def vector_loads(value: str, vector: int, stride: int, dims: int, steps: int, reused: bool = False) -> tuple[Any, Any]:
    """(``fetch``, ``fetch_some``): a lane loads ``steps`` vectors of ``vector`` elements, ``stride`` positions from one to the next, into registers.

    ``fetch(x, base, position, shape, strides, batch, batch_offset)`` loads all of them to ``batch[batch_offset:]``. A position counts elements of a
    row, which begins at offset ``base`` of ``x`` and has extents ``shape`` [dims] and ``strides`` [dims], in elements.
    ``fetch_some(x, base, position, end, safe, …)`` loads the vectors that begin before position ``end`` and returns their number. Instead of
    the others it loads the vector at position ``safe``, or one again: the compiler would wait for a load inside a branch before it issues the next.
    It chooses positions, since LLVM drops a choice between two offsets where the loaded vector is not used.
    ``reused``: the row is read once more, so the loads let the caches keep it.
    """
    start, walk_on, walk_some = walking_loads(value, vector, stride, dims, steps, reused)

    @jit.device
    def fetch(x: Any, base: Any, position: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any) -> None:
        walk_on(x, start(base, position, shape, strides), shape, strides, batch, batch_offset)

    @jit.device
    def fetch_some(x: Any, base: Any, position: Any, end: Any, safe: Any, shape: Any, strides: Any, batch: Any, batch_offset: Any) -> Any:
        walk = start(base, position if position < end else safe, shape, strides)
        return walk_some(x, base, walk, position, end, safe, shape, strides, batch, batch_offset)

    return fetch, fetch_some


@functools.cache
def peeled_span_of(vector: int) -> Any:
    """``span(x, base, extent, split, lane)``: the aligned vectors of the row of ``extent`` elements at offset ``base``, and an element beside them.

    Returns the position of the first aligned vector, the one behind the last, and that of an element before or behind them: of split 0 each of the
    first lanes has one; other lanes get ``extent``.
    """

    @jit.device
    def span(x: Any, base: Any, extent: Any, split: Any, lane: Any) -> Any:
        first, last = aligned_span(x, base, base + extent, vector)
        first, last, single = first - base, last - base, int64(extent)
        if split == 0:
            single = int64(lane) if lane < first else last + (lane - first)
        return first, last, single

    return span


@functools.cache
def turned_of(vector: int, kept: int, outer: int) -> Any:
    """``turn(x, column, longer, width, kept_shape, strides, found)``: ragged columns, of which walks begin inside an aligned vector.

    A walk begins at each coordinate of the ``outer`` first axes, and a position of it has ``width`` elements. Its columns are turned by as many as
    the vector has elements of the walk before, so that a vector of columns is aligned at each position. ``column`` is the first of a vector; to
    ``found`` go the coordinates of the column that its first element belongs to, and the columns behind it are the next ones ``around`` the walk.
    Returns the offset of the vector at position 0, the number of that column, how many of the first elements at position 0 are of the walk before,
    1 if position ``extent`` has a whole vector, else 0, and how many first elements are of this walk one position behind the last whole vector, none
    if less than 1.
    """
    coordinates, offset = coordinates_of(kept)

    @jit.device
    def turn(x: Any, column: Any, longer: Any, width: Any, kept_shape: Any, strides: Any, found: Any) -> Any:
        coordinates(column, kept_shape, found)
        place, begin = offset(found, strides), int64(0)
        for k in range(outer):
            begin += found[k] * strides[k]
        own, before = place - begin, (begin - aligned_span(x, begin, begin + vector, vector)[0]) & (vector - 1)
        inner = own - before + (width if own < before else 0)
        if before != 0:
            coordinates(column - own + inner, kept_shape, found)
        left = longer + before - own
        more = int64(left >= vector)
        return place - before, column - own + inner, before if own < before else int64(0), more, left - width * more

    return turn


@functools.cache
def peeled_loads(value: str, vector: int, stride: int, dims: int, steps: int) -> Any:
    """``fetch_each(x, base, low, high, position, end, shape, strides, batch)``: ``fetch_some`` across columns, element by element.

    The elements of a vector belong to the ``vector`` columns from offset ``base`` on. Only the columns ``low`` to ``high`` − 1 of them exist; the
    elements of the others are set to 0.
    """
    element, offset_of = jit.SCALARS[value], strided_offset_of(dims)

    @jit.device
    def fetch_each(x: Any, base: Any, low: Any, high: Any, position: Any, end: Any, shape: Any, strides: Any, batch: Any) -> Any:
        valid = int32(0)
        for s in range(steps):
            inside = position + s * stride < end
            offset = base + offset_of(position + s * stride if inside else position, shape, strides)
            for v in range(vector):
                batch[s * vector + v] = element(0)
                if low <= v < high:
                    batch[s * vector + v] = x[offset + v]
            valid = int32(valid + int32(inside))
        return valid

    return fetch_each
