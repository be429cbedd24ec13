"""Results and scratch memory of the caller's own kind, taken from the framework's pool in the order of the stream that will use it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.axes import c_strides
from ..core.errors import Unsupported
from ..runtime import driver
from .dlpack import INSTALL_CUPY
from .streams import torch_stream
from .views import ArrayType, View


def on_cupy(device: int, stream: int, make: Callable[[Any], Any]) -> Any:
    """``make(cupy)`` with this device and stream current: CuPy's pool returns a block to the stream that it was allocated on."""
    try:
        import cupy
    except ImportError as error:
        raise Unsupported(f"results for these arrays are CuPy arrays: {INSTALL_CUPY}") from error
    if cupy.cuda.runtime.getDevice() == device and cupy.cuda.get_current_stream().ptr == stream:
        return make(cupy)
    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(_Protocol(stream)) if stream else cupy.cuda.Stream.null:
        return make(cupy)


class _Protocol:
    """A stream's handle behind the CUDA stream protocol."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@functools.cache
def _torch_dtype(element: str) -> Any:
    return getattr(sys.modules["torch"], dtypes.BY_NAME[element].numpy_name)


@functools.cache
def _torch_empty(device: int, element: str) -> Callable[..., Any]:
    """``empty_strided`` of a device and element type, which costs the host a microsecond less than ``empty``."""
    torch = sys.modules["torch"]
    where = torch.device("cuda", device) if device >= 0 else torch.device("cpu")
    return functools.partial(torch.empty_strided, dtype=_torch_dtype(element), device=where)


def _on_torch(device: int, stream: int, shape: tuple[int, ...], strides: tuple[int, ...], element: str) -> Any:
    """A tensor from torch's caching allocator, which ties a block to the stream that was current."""
    make = _torch_empty(device, element)
    if device < 0 or torch_stream()(device) == stream:
        return make(shape, strides)
    torch = sys.modules["torch"]
    where = torch.device("cuda", device)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=where) if stream > 1 else torch.cuda.default_stream(where)):
        return make(shape, strides)


def empty(like: View, shape: tuple[int, ...], element: str, stream: int, strides: tuple[int, ...] | None = None) -> Any:
    """A new C-contiguous array on ``like``'s device for an op that writes it on ``stream``. ``strides`` are its strides, if the caller knows them.

    NumPy, Numba and torch callers get their own kind, all others CuPy: JAX arrays are immutable. Numba's allocator knows no streams and cannot be
    captured.
    """
    kind = like.type.kind
    if kind == "torch":
        return _on_torch(like.type.device, stream, shape, strides or c_strides(shape), element)
    dtype = dtypes.numpy_dtype(element)
    if kind == "numpy":
        return np.empty(shape, dtype)
    if kind == "numba":
        from numba import cuda

        if driver.device_count() < 2:
            return cuda.device_array(shape, dtype)
        with cuda.gpus[like.device]:
            return cuda.device_array(shape, dtype)
    return on_cupy(like.device, stream, lambda cupy: cupy.empty(shape, dtype))


_ADDRESSES: dict[str, Callable[[Any], int]] = {
    "torch": lambda array: array.data_ptr(),
    "numpy": lambda array: array.ctypes.data,
    "numba": lambda array: array.device_ctypes_pointer.value or 0,
}


def address(made: Any, kind: str) -> int:
    """The address of an array that :func:`empty` made for this kind of arrays; kinds that are not in the table get CuPy arrays."""
    read = _ADDRESSES.get(kind)
    return read(made) if read else int(made.data.ptr)


def in_host(owner: Any) -> Any:
    """The NumPy array that shares the host memory of a torch tensor; anything else as it is."""
    if not hasattr(owner, "detach"):
        return owner
    halves = owner.dtype is _torch_dtype("bf16")
    dtype = np.dtype(np.int16 if halves else str(owner.dtype).removeprefix("torch."))
    shared = np.asarray(_Shared(owner, dtype)) if owner.numel() else np.empty(tuple(owner.shape), dtype)
    return shared.view(dtypes.numpy_dtype("bf16")) if halves else shared


class _Shared:
    """The memory of a torch tensor, for NumPy. By ``tensor.numpy()`` torch would no longer free the storage, as FSDP wants after a layer."""

    def __init__(self, tensor: Any, dtype: Any) -> None:
        self.tensor = tensor
        strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
        data = {"shape": tuple(tensor.shape), "strides": strides, "typestr": dtype.str, "data": (tensor.data_ptr(), False), "version": 3}
        self.__array_interface__ = data


def as_element(made: Any, element: str) -> Any:
    """The memory of an array that :func:`empty` made, as elements of another type; the last axis becomes longer where these are smaller."""
    return made.view(_torch_dtype(element) if hasattr(made, "detach") else dtypes.numpy_dtype(element))


class _Block:
    """Memory of the driver's stream-ordered pool, freed in the order of the stream it was made for."""

    __slots__ = ("device", "ptr", "stream")

    def __init__(self, nbytes: int, stream: int, device: int) -> None:
        self.ptr = 0
        self.stream, self.device = stream, device
        self.ptr = driver.alloc_async(nbytes, stream, device)

    def __del__(self) -> None:
        if self.ptr and not sys.is_finalizing():
            driver.free_async(self.ptr, self.stream, self.device)


def scratch(like: View, nbytes: int, stream: int) -> View:
    """Uninitialised bytes for work on ``stream``, at least 16-byte aligned. Drop the view once that work is queued: memory is reused in stream order.

    Every replay of a CUDA graph writes to the same scratch. So memory that is allocated during a capture belongs to the graph: ``torch.cuda.graph``
    has a pool for it, and otherwise the driver captures the allocation and the release. CuPy's pool would reuse the memory for later allocations.

    When emulating, ``owner`` is a NumPy array of uint32 words.
    """
    owner: Any
    if like.device < 0:
        words = np.empty(-(-nbytes // 4) + 3, np.uint32)
        skip = -words.ctypes.data % 16 // 4
        owner = words[skip : skip + -(-nbytes // 4)]
        ptr = owner.ctypes.data
    elif like.kind == "torch":
        owner = _on_torch(like.device, stream, (nbytes,), (1,), "u8")
        ptr = owner.data_ptr()
    else:
        pooled = "cupy" in sys.modules and not driver.is_capturing(stream, like.device)
        owner = on_cupy(like.device, stream, lambda cupy: cupy.cuda.alloc(nbytes)) if pooled else _Block(nbytes, stream, like.device)
        ptr = owner.ptr
    return View(ptr, (nbytes,), (1,), ArrayType.of("u8", 1, like.device, like.kind, False), owner, "workspace")
