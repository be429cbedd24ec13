"""Array kinds under test, and strided views made by each framework's own slicing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from numba_baracuda.core.dtypes import numpy_dtype


class Kind:
    """NumPy arrays, which the emulator takes."""

    name = "numpy"
    emulated = True

    def array(self, values: Any) -> Any:
        """A C-contiguous copy that starts at a multiple of 16 bytes."""
        values = np.asarray(values)
        raw = np.empty(values.nbytes + 16, np.uint8)
        skip = -raw.ctypes.data % 16
        made = raw[skip : skip + values.nbytes].view(values.dtype).reshape(values.shape)
        made[...] = values
        return made

    def numpy(self, array: Any) -> Any:
        return array

    def transpose(self, base: Any, axes: tuple[int, ...]) -> Any:
        return base.transpose(axes)

    def broadcast(self, base: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(base, shape)

    def owns(self, array: Any) -> bool:
        """Whether an array is of this kind."""
        return type(array) is np.ndarray

    def poisoned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A fresh array of garbage."""
        return self.array(np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xA5, np.uint8).view(dtype).reshape(shape))

    def workspace(self, nbytes: int, skip: int = 0) -> Any:
        """``nbytes`` bytes of garbage, ``skip`` bytes after a multiple of 16."""
        return self.array(np.full(nbytes + skip, 0xA5, np.uint8))[skip:]

    @contextlib.contextmanager
    def schedule(self, seed: int | None) -> Iterator[None]:
        """The emulator's schedule inside the block: checked with this seed, or fast."""
        from numba_baracuda.emulator.emulated import mode
        from numba_baracuda.emulator.emulator import Mode

        with mode(Mode(seed)):
            yield


class Cupy(Kind):
    name = "cupy"
    emulated = False

    def array(self, values: Any) -> Any:
        import cupy

        return cupy.array(np.asarray(values, order="C"))

    def numpy(self, array: Any) -> Any:
        import cupy

        return cupy.asnumpy(cupy.asarray(array))

    def broadcast(self, base: Any, shape: tuple[int, ...]) -> Any:
        import cupy

        return cupy.broadcast_to(base, shape)

    def owns(self, array: Any) -> bool:
        import cupy

        return isinstance(array, cupy.ndarray)

    @contextlib.contextmanager
    def schedule(self, seed: int | None) -> Iterator[None]:
        yield


class Torch(Cupy):
    name = "torch"

    def array(self, values: Any) -> Any:
        import torch

        values = np.array(values, order="C")
        if values.dtype.name == "bfloat16":
            return torch.from_numpy(values.view(np.int16)).cuda().view(torch.bfloat16)
        return torch.from_numpy(values).cuda()

    def numpy(self, array: Any) -> Any:
        import torch

        if array.dtype == torch.bfloat16:
            return array.cpu().view(torch.int16).numpy().view(numpy_dtype("bf16"))
        return array.cpu().numpy()

    def transpose(self, base: Any, axes: tuple[int, ...]) -> Any:
        return base.permute(axes)

    def broadcast(self, base: Any, shape: tuple[int, ...]) -> Any:
        return base.expand(shape)

    def owns(self, array: Any) -> bool:
        import torch

        return isinstance(array, torch.Tensor)


class Numba(Cupy):
    """Views are made by CuPy and read through the interface: Numba's own arrays support little slicing."""

    name = "numba"

    def view(self, array: Any) -> Any:
        from numba import cuda

        return cuda.as_cuda_array(array)

    def owns(self, array: Any) -> bool:
        from numba.cuda.cudadrv.devicearray import DeviceNDArrayBase

        return isinstance(array, DeviceNDArrayBase)


KINDS: dict[str, Kind] = {kind.name: kind for kind in (Kind(), Cupy(), Torch(), Numba())}

Layout = Callable[[Kind, Any], Any]


def _apart(values: Any, axis: int) -> Any:
    """``values`` with garbage after each element along an axis, which doubles the extent."""
    shape = list(values.shape)
    shape[axis] *= 2
    out = np.full(shape, 99, values.dtype)
    out[(slice(None),) * (axis % len(shape)) + (slice(None, None, 2),)] = values
    return out


def _padded(values: Any, before: int, after: int) -> Any:
    """``values`` with garbage columns on both sides."""
    return np.pad(values, [*[(0, 0)] * (values.ndim - 1), (before, after)], constant_values=99)


def _late(kind: Kind, values: Any, elements: int) -> Any:
    flat = kind.array(np.concatenate([np.full(elements, 99, values.dtype), values.reshape(-1)]))
    return flat[elements:].reshape(values.shape)


def _outermost(kind: Kind, values: Any) -> Any:
    last = values.ndim - 1
    return kind.transpose(kind.array(np.moveaxis(values, 0, last)), (last, *range(last)))


def _swapped(kind: Kind, values: Any) -> Any:
    axes = (*range(values.ndim - 2), values.ndim - 1, values.ndim - 2)
    return kind.transpose(kind.array(values.transpose(axes)), axes)


#: for arrays of rank 1 and above
ROW_LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda kind, values: kind.array(values),
    "every second row": lambda kind, values: kind.array(_apart(values, 0))[::2],
    "rows backwards": lambda kind, values: kind.array(values[::-1])[::-1],
    "one element late": lambda kind, values: _late(kind, values, 1),
    "two elements late": lambda kind, values: _late(kind, values, 2),
}
#: for arrays of rank 3 and above
LAYOUTS: dict[str, Layout] = {
    **ROW_LAYOUTS,
    "columns of a wider array": lambda kind, values: kind.array(_padded(values, 1, 2))[..., 1:-2],
    "first columns of a wider array": lambda kind, values: kind.array(_padded(values, 0, 16))[..., :-16],
    "every second column": lambda kind, values: kind.array(_apart(values, -1))[..., ::2],
    "columns backwards": lambda kind, values: kind.array(values[..., ::-1])[..., ::-1],
    "rows innermost": _outermost,
    "trailing axes swapped": _swapped,
}


def lay(kind: Kind, layout: str, values: Any) -> Any:
    """``values`` in a layout, as an array of this kind; skips the test where the framework has no such view."""
    if kind.name == "torch" and layout.endswith("backwards"):
        pytest.skip("torch has no negative strides")
    return see(kind, LAYOUTS[layout](kind, np.asarray(values, order="C")))


def see(kind: Kind, array: Any) -> Any:
    """A CuPy array as a Numba device array, any other unchanged."""
    return kind.view(array) if isinstance(kind, Numba) else array
