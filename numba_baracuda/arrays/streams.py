"""Streams as the integers that the driver takes; without a stream, the one that a framework uses now."""

from __future__ import annotations

import functools
import numbers
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import InvalidProblem
from ..runtime import driver
from .views import View, lineage


@functools.cache
def torch_stream() -> Callable[[int], int]:
    """The function that gives the handle of torch's current stream on a device."""
    torch = sys.modules["torch"]
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return quick or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


@functools.cache
def _cupy_stream() -> Callable[[int], Any]:
    return sys.modules["cupy"].cuda.get_current_stream  # type: ignore[no-any-return]


def _of_torch(like: View) -> int:
    device = like.type.device
    return torch_stream()(device) if device >= 0 else 0


def _of_cupy(like: View) -> int:
    return _cupy_stream()(like.type.device).ptr  # type: ignore[no-any-return]


def _default(like: View) -> int:
    return 0


def _of_interface(like: View) -> int:
    return like.producer or 0


def current(framework: Any, device: int) -> int:
    """The current stream of CuPy or torch on a device."""
    return torch_stream()(device) if framework is sys.modules.get("torch") else _cupy_stream()(device).ptr


#: kinds of arrays that may name the stream which produces them
NAMING = frozenset(("foreign", "jax", "numba"))


def follow(views: Iterable[View | None], handle: int, device: int) -> None:
    """Makes a stream wait for the streams that produce these arrays; None stands for one that names no stream.

    A stream that is captured can wait only for streams of the same capture. The caller orders a replay behind other work.
    """
    for producer in {view.producer for view in views if view is not None} - {None, handle}:
        if producer is not None and (not driver.is_capturing(handle, device) or driver.is_capturing(producer, device)):
            driver.follow(handle, producer, device)


_Current = Callable[[View], int]
_BASES: dict[tuple[str, str], _Current] = {
    ("torch", "Tensor"): _of_torch,
    ("cupy", "ndarray"): _of_cupy,
    ("numba", "DeviceNDArrayBase"): _default,
    ("numpy", "ndarray"): _default,
}


class _Currents(dict[type, _Current]):
    """By type of the owner, which for JAX and DLPack is the CuPy array or torch tensor, the function that gives its current stream."""

    def __missing__(self, owner: type) -> _Current:
        found = self[owner] = next((_BASES[each] for each in lineage(owner) if each in _BASES), _of_interface)
        return found


currents = _Currents()


_WANTS = "an integer handle of 0 or more, or a stream of Numba, CuPy, torch or cuda.core"
_readers: dict[type, Callable[[Any], Any]] = {}


def _reader(kind: type) -> Callable[[Any], Any] | None:
    names = set(lineage(kind))
    integral = issubclass(kind, numbers.Integral)
    found: Callable[[Any], Any] | None = None
    if ("torch", "Stream") in names:
        found = operator.attrgetter("cuda_stream")
    elif ("cupy", "_BaseStream") in names or ("cupy", "Stream") in names:
        found = operator.attrgetter("ptr")
    elif hasattr(kind, "__cuda_stream__"):
        found = lambda stream: stream.__cuda_stream__()[1]  # noqa: E731
    elif names & {("numba", "Stream"), ("cuda", "CUstream"), ("cuda", "cudaStream_t")} or (integral and ("builtins", "bool") not in names):
        found = int
    if found is not None:
        _readers[kind] = found
    return found


def stream_handle(stream: Any, like: View, where: str = "numba_baracuda") -> int:
    """The integer handle of a stream given as an integer, a Numba, CuPy, torch or cuda.core stream, or anything with ``__cuda_stream__``.

    ``where`` is the op, for messages.

    ``None`` is the current stream of the framework that owns ``like``, so that an op runs in order with that framework's own operations. For Numba
    that is the default stream, which the driver binding itself makes the per-thread one if so configured; for JAX and DLPack, that of the
    framework the array is seen through; for others, the stream that ``__cuda_array_interface__`` names, else the default stream.

    Values of CuPy and torch arrays are taken to be ready on their framework's current stream: an op that is given another ``stream`` does not wait
    for that one. The stream of the op does wait for arrays that come through DLPack, and for those whose ``__cuda_array_interface__`` names a stream
    (:func:`follow`).
    """
    if stream is None:
        return currents[type(like.owner)](like)
    read = _readers.get(type(stream)) or _reader(type(stream))
    if read is None:
        raise InvalidProblem(f"{where}: stream is of type {type(stream).__name__}, wants {_WANTS}")
    handle = int(read(stream))
    if not 0 <= handle < 1 << 64:
        raise InvalidProblem(f"{where}: stream is {handle}, wants {_WANTS}")
    return handle
