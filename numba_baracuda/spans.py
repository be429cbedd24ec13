"""The memory that an array reaches."""

from __future__ import annotations

import functools

from .views import View, c_strides


@functools.lru_cache(4096)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Lowest and highest element, counted from the first."""
    low = high = 0
    for extent, stride in zip(shape, strides, strict=True):
        low, high = low + min((extent - 1) * stride, 0), high + max((extent - 1) * stride, 0)
    return low, high


def span(view: View) -> tuple[int, int]:
    """Addresses of the first byte that an array reaches and of the one after the last."""
    if 0 in view.shape:
        return view.ptr, view.ptr
    low, high = _reach(view.shape, view.strides)
    itemsize = view.form.itemsize
    return view.ptr + low * itemsize, view.ptr + (high + 1) * itemsize


def nbytes(view: View) -> int:
    """Bytes of all elements together."""
    size = view.form.itemsize
    for extent in view.shape:
        size *= extent
    return size


@functools.lru_cache(4096)
def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return 0 in shape or all(extent == 1 or stride == dense for extent, stride, dense in zip(shape, strides, c_strides(shape), strict=True))


def is_contiguous(view: View) -> bool:
    """Whether elements follow one another in C order; the stride of an axis of one element does not matter."""
    return _dense(view.shape, view.strides)
