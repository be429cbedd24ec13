"""Stable sorting of ids: by CuPy on a device, by NumPy in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..allocation import on_cupy
from ..dtypes import BY_NAME, BY_NUMPY_NAME, numpy_dtype
from ..spans import span
from ..views import Form, View


def sort_ids(ids: View, stream: int) -> tuple[View, View]:
    """``(permutation, sorted ids)``: ``sorted[k] = ids[permutation[k]]``, equal ids in their order. Both are contiguous, the permutation int64."""
    if ids.device < 0:
        order = np.argsort(ids.owner, kind="stable")
        return _host(order.astype(np.int64), "permutation"), _host(ids.owner[order], "sorted_ids")

    def sort(cupy: Any) -> tuple[Any, Any]:
        size = BY_NAME[ids.element].itemsize
        low, high = span(ids)
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(low, high - low, ids.owner, ids.device), ids.ptr - low)
        keys = cupy.ndarray(ids.shape, numpy_dtype(ids.element), memory, strides=tuple(stride * size for stride in ids.strides))
        order = cupy.argsort(keys)
        return order, keys[order]

    order, keys = on_cupy(ids.device, stream, sort)
    return (
        View(order.data.ptr, Form.of(order.shape, (1,), "i64", ids.device, "cupy", False), order, "permutation"),
        View(keys.data.ptr, Form.of(keys.shape, (1,), ids.element, ids.device, "cupy", False), keys, "sorted_ids"),
    )


def _host(array: np.ndarray[Any, Any], name: str) -> View:
    return View(array.ctypes.data, Form.of(array.shape, (1,), BY_NUMPY_NAME[array.dtype.name].name, -1, "numpy", False), array, name)
