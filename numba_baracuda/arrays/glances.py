"""What memos tell arrays apart by, without a view of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import emulation
from .arrays import At, in_elements, read_cupy, read_torch, readers
from .views import View

#: address; what memos tell the array apart by, which is what arrays of a class share, shape and strides in elements; the view, if it had to be made.
#: Arrays of a class share dtype and device, or type and 0, number of axes, and address modulo 16.
Glance = tuple[int, tuple[tuple[Any, int, int, int], tuple[int, ...], tuple[int, ...]], View | None]


def _look(obj: Any, at: At) -> Glance:
    view = readers[type(obj)](obj, at)
    return view.ptr, ((view.type, 0, len(view.shape), view.ptr & 15), view.shape, view.strides), view


def _glance_torch(obj: Any, at: At) -> Glance:
    try:
        if emulation.decided is False and not (obj.requires_grad or obj.is_neg()):
            ptr = obj.data_ptr()
            if ptr:
                shape = obj.shape  # as good as a tuple, which takes longer
                return ptr, ((obj.dtype, obj.get_device(), len(shape), ptr & 15), shape, obj.stride()), None
    except RuntimeError:
        pass  # the reader says why
    return _look(obj, at)


def _glance_cupy(obj: Any, at: At) -> Glance:
    strides = in_elements(obj.strides, obj.itemsize) if emulation.decided is False else None
    if strides is None:
        return _look(obj, at)
    memory, shape = obj.data, obj.shape
    ptr = memory.ptr
    return ptr, ((obj.dtype, memory.device_id, len(shape), ptr & 15), shape, strides), None


class _Glances(dict[type, Callable[[Any, At], Glance]]):
    """By type of array the function that takes no more from it than memos tell arrays apart by.

    An array that differs from one that was read in shape and strides alone can be read, too, and has the same type.
    """

    def __missing__(self, kind: type) -> Callable[[Any, At], Glance]:
        found = readers[kind]
        self[kind] = _glance_torch if found is read_torch else _glance_cupy if found is read_cupy else _look
        return self[kind]


glances = _Glances()
