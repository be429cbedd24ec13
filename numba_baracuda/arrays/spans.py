"""The memory that an array reaches."""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..core.axes import c_strides
from .views import View

#: pairs of blocks that are compared at most; arrays with more count as overlapping
_TRIES = 64


def reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The lowest byte of an array that is not empty, and the one behind the highest, counted from its first element."""
    low = high = 0
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low * itemsize, (high + 1) * itemsize


class Blocks(NamedTuple):
    """The bytes of an array: from ``low`` to ``high``, counted from its first element, as blocks of ``width`` contiguous bytes.

    ``levels`` are (pitch, count) in bytes from the widest pitch to the narrowest; the first block of all begins at ``low``.
    """

    low: int
    high: int
    width: int
    levels: tuple[tuple[int, int], ...]


def blocks(view: View) -> Blocks:
    """The bytes of an array."""
    return _blocks(view.shape, view.strides, view.itemsize)


@functools.lru_cache(4096)
def _blocks(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Blocks:
    if 0 in shape:
        return Blocks(0, 0, 0, ())
    low, high = reach(shape, strides, size)
    width, levels = size, list[tuple[int, int]]()
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if stride and extent > 1):
        if not levels and stride * size <= width:
            width += stride * size * (extent - 1)
        else:
            levels.insert(0, (stride * size, extent))
    return Blocks(low, high, width, tuple(levels))


@functools.lru_cache(4096)
def touch(a: Blocks, b: Blocks, distance: int) -> bool:
    """Whether two arrays, the first element of ``b`` ``distance`` bytes behind that of ``a``, have a byte in common.

    Exact for arrays of equal pitches, such as parts of the rows or columns of one array. Where other pitches leave too many blocks to compare, the
    answer is True.
    """
    pending = [(a.levels, b.levels, distance + b.low - a.low)]
    for _ in range(_TRIES):
        if not pending:
            return False
        of_a, of_b, behind = pending.pop()
        pitch = max(level[0] for level in (*of_a, *of_b, (0, 1)))
        if not pitch:
            if -b.width < behind < a.width:
                return True
            continue
        (rows_a, of_a), (rows_b, of_b) = _rows(of_a, pitch), _rows(of_b, pitch)
        # row k of a and row l of b overlap where k − l, times the pitch, lies between these
        least = max((behind - _length(of_a, a.width)) // pitch + 1, 1 - rows_b)
        most = min(-(-(behind + _length(of_b, b.width)) // pitch), rows_a) - 1
        if most - least >= _TRIES:
            return True
        pending += [(of_a, of_b, behind - k * pitch) for k in range(least, most + 1)]
    return True


_Levels = tuple[tuple[int, int], ...]


def _rows(levels: _Levels, pitch: int) -> tuple[int, _Levels]:
    """Number of rows of this pitch, and the levels of one row."""
    return (levels[0][1], levels[1:]) if levels and levels[0][0] == pitch else (1, levels)


def _length(levels: _Levels, width: int) -> int:
    return width + sum(pitch * (count - 1) for pitch, count in levels)


def nbytes(view: View) -> int:
    """Bytes of all elements together."""
    size = view.type.itemsize
    for extent in view.shape:
        size *= extent
    return size


@functools.lru_cache(4096)
def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return 0 in shape or all(extent == 1 or stride == dense for extent, stride, dense in zip(shape, strides, c_strides(shape), strict=True))


def is_contiguous(view: View) -> bool:
    """Whether elements follow one another in C order; the stride of an axis of one element does not matter."""
    return _dense(view.shape, view.strides)
