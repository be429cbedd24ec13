"""Any array as an address, a shape and strides; results and scratch memory of the caller's own kind; streams as integers.

The only place that knows array frameworks. Importing it imports none of them: a type is recognised by the module that defines it, and a framework is
taken from ``sys.modules``, where the caller's arrays have put it.
"""

from __future__ import annotations

import functools
import numbers
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from . import dtypes
from .errors import BaracudaError, InvalidProblem, MisalignedOperand, Unsupported
from .runtime import launch

_INSTALL = "pip install 'numba-baracuda[cuda12]' or 'numba-baracuda[cuda13]' brings CuPy"
_At = tuple[str, str, str]  #: op, argument, and what the op takes there, for messages


class EmulationWarning(UserWarning):
    """An op runs in the CPU emulator."""


class View:
    """What a kernel needs of an operand; ``owner`` keeps the memory alive.

    ``strides`` count elements, ``element`` is a short name of :mod:`~numba_baracuda.dtypes`, ``device`` a CUDA ordinal or -1 for host memory,
    ``kind`` one of ``numpy numba cupy torch jax foreign``, ``name`` the argument it was given as. For JAX arrays and objects that have only DLPack,
    ``owner`` is the CuPy array or torch tensor through which they are seen.
    """

    __slots__ = ("device", "element", "kind", "name", "owner", "ptr", "readonly", "shape", "strides")

    def __init__(
        self, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], element: str, device: int, kind: str, owner: Any, readonly: bool, name: str
    ) -> None:
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.element = element
        self.device = device
        self.kind = kind
        self.owner = owner
        self.readonly = readonly
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name}: {_form(self.element, self.shape)} of {self.kind} on device {self.device}"


def _form(dtype: str, shape: Iterable[int]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


_emulating: bool | None = None
_warned = False


def emulating() -> bool:
    """Whether ops run in the CPU emulator: ``NUMBA_BARACUDA_EMULATE=1``, or no CUDA device. Decided at the first question."""
    global _emulating
    if _emulating is None:
        _emulating = os.environ.get("NUMBA_BARACUDA_EMULATE", "0") not in ("", "0") or launch.device_count() == 0
    return _emulating


def warn_emulated() -> None:
    """For an op that is about to run emulated; warns once in a process."""
    global _warned
    if not _warned:
        _warned = True
        speed = "about 10^5 elements/s in the CPU emulator"
        warnings.warn(f"numba_baracuda runs without a CUDA device: {speed}, which serves tests and small examples", EmulationWarning, stacklevel=3)


def reset() -> None:
    """Decide again about emulation, and warn again."""
    global _emulating, _warned
    _emulating, _warned = None, False


def _refuse(at: _At, got: str, wants: str, error: type[BaracudaError] = Unsupported) -> NoReturn:
    raise error(f"{at[0]}: {at[1]} is {got}, wants {wants}")


def _on_device(at: _At, what: str) -> None:
    """Admits an array in device memory, unless emulating."""
    if emulating():
        _refuse(at, what, "a NumPy array, since ops run in the CPU emulator; where there is a CUDA device, unset NUMBA_BARACUDA_EMULATE")


def _in_host(at: _At, what: str, cure: str) -> NoReturn:
    """Refuses an array that no kernel can reach."""
    _refuse(at, what, "a NumPy array, since ops run in the CPU emulator" if emulating() else f"one in device memory: {cure}")


_elements: dict[Any, tuple[str, int]] = {}  #: dtype object of any framework -> short name, bytes


def _element(dtype: Any, shape: Iterable[int], at: _At) -> tuple[str, int]:
    spelled = str(dtype).removeprefix("torch.")  # a foreign byte order is spelled ">f4", hence not found
    found = dtypes.BY_NUMPY_NAME.get(spelled)
    if found is None:
        _refuse(at, _form(spelled, shape), at[2] or "one of " + ", ".join(dtypes.BY_NUMPY_NAME), InvalidProblem)
    known = _elements[dtype] = (found.name, found.itemsize)
    return known


@functools.lru_cache(4096)
def _in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    return None if any(stride % itemsize for stride in strides) else tuple(stride // itemsize for stride in strides)


@functools.lru_cache(4096)
def c_strides(shape: tuple[int, ...], itemsize: int = 1) -> tuple[int, ...]:
    """Strides of a C-contiguous array: in elements, or in bytes with ``itemsize``."""
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * extent)
    return tuple(strides[::-1]) if shape else ()


def _misaligned(at: _At, ptr: int, itemsize: int) -> NoReturn:
    _refuse(at, f"at address {ptr:#x}", f"a multiple of its element size {itemsize}", MisalignedOperand)


def _assemble(
    obj: Any, at: _At, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: int, kind: str, readonly: bool = False
) -> View:
    """A view from strides in bytes."""
    element, itemsize = _elements.get(dtype) or _element(dtype, shape, at)
    counted = _in_elements(strides, itemsize)
    if counted is None:
        _refuse(at, f"of strides {strides} bytes", f"multiples of its element size {itemsize}")
    if ptr % itemsize and 0 not in shape:
        _misaligned(at, ptr, itemsize)
    return View(ptr, shape, counted, element, device, kind, obj, readonly, at[1])


def _numpy(obj: Any, at: _At) -> View:
    if not emulating():
        cure = "cupy.asarray(x) or numba.cuda.to_device(x) moves it there, NUMBA_BARACUDA_EMULATE=1 runs ops on NumPy arrays in the CPU emulator"
        _in_host(at, "a NumPy array", cure)
    return _assemble(obj, at, obj.ctypes.data, obj.shape, obj.strides, obj.dtype, -1, "numpy", not obj.flags.writeable)


def _torch(obj: Any, at: _At) -> View:
    if not obj.is_cuda:
        _in_host(at, f"a torch tensor on {obj.device}", "x.cuda() moves it there")
    if _emulating is not False:
        _on_device(at, "a torch tensor on the device")
    try:
        ptr, shape, strides = obj.data_ptr(), obj.shape, obj.stride()
    except RuntimeError as error:  # sparse layouts and torch's own tracers
        raise Unsupported(f"{at[0]}: {at[1]} is a torch tensor without plain memory: {error}") from error
    if obj.is_neg():
        _refuse(at, "a torch tensor whose negation is pending", "x.resolve_neg()")
    element, itemsize = _elements.get(obj.dtype) or _element(obj.dtype, shape, at)
    if ptr % itemsize and 0 not in shape:
        _misaligned(at, ptr, itemsize)
    return View(ptr, shape, strides, element, obj.get_device(), "torch", obj, False, at[1])


def _cupy(obj: Any, at: _At) -> View:
    if _emulating is not False:
        _on_device(at, "a CuPy array")
    memory = obj.data
    return _assemble(obj, at, memory.ptr, obj.shape, obj.strides, obj.dtype, memory.device_id, "cupy")


def _numba(obj: Any, at: _At) -> View:
    if _emulating is not False:
        _on_device(at, "a Numba device array")
    ptr = obj.device_ctypes_pointer.value or 0
    return _assemble(obj, at, ptr, obj.shape, obj.strides, obj.dtype, launch.pointer_device(ptr), "numba")


def _jax(obj: Any, at: _At) -> View:
    """Through DLPack, which queues CuPy's current stream behind the computation of the array; its ``__cuda_array_interface__`` orders nothing."""
    return _dlpack(obj, at, "jax")


def _foreign(obj: Any, at: _At) -> View:
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is None:
        if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
            return _dlpack(obj, at, "foreign")
        _no_array(obj, at)
    what = f"a {type(obj).__name__}"
    if _emulating is not False:
        _on_device(at, f"{what} in device memory")
    if interface.get("mask") is not None:
        _refuse(at, f"{what} with a mask", "a plain array")
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    ptr, readonly = interface["data"]
    dtype: Any = np.dtype(typestr)
    strides = interface.get("strides")
    if strides is None:
        strides = c_strides(shape, dtype.itemsize)
    if typestr[1:] == "V2":
        dtype = getattr(obj, "dtype", None)
        if not str(dtype).endswith("bfloat16"):
            _refuse(at, f"{what} of typestr {typestr!r}, which does not say bfloat16", "a bfloat16 .dtype beside it, or a CuPy or torch array")
    return _assemble(obj, at, ptr or 0, shape, tuple(strides), dtype, launch.pointer_device(ptr or 0), "foreign", bool(readonly))


def _dlpack(obj: Any, at: _At, kind: str) -> View:
    what = f"a {type(obj).__name__}"
    try:
        if obj.__dlpack_device__()[0] not in (2, 13):  # CUDA and CUDA managed memory
            _in_host(at, f"{what} in host memory", "its framework can move it there")
        _on_device(at, f"{what} in device memory")
        alias = _importer(at).from_dlpack(obj)
    except BaracudaError:
        raise
    except Exception as error:  # frameworks raise what they like
        raise Unsupported(f"{at[0]}: {at[1]} is {what} that cannot be shared through DLPack: {error}") from error
    seen = view(alias, *at)
    seen.kind, seen.readonly = kind, kind == "jax"
    return seen


def _importer(at: _At) -> Any:
    """A framework that takes DLPack capsules."""
    try:
        import cupy

        return cupy
    except ImportError as error:
        if "torch" in sys.modules:
            return sys.modules["torch"]
        raise Unsupported(f"{at[0]}: {at[1]} can be read through DLPack only, which takes CuPy, or torch if imported: {_INSTALL}") from error


def _no_array(obj: Any, at: _At) -> NoReturn:
    _refuse(at, "None" if obj is None else f"of type {type(obj).__name__}", f"an array of {at[2]}" if at[2] else "an array", InvalidProblem)


_Converter = Callable[[Any, _At], View]
_BASES: dict[tuple[str, str], _Converter] = {
    ("torch", "Tensor"): _torch,
    ("cupy", "ndarray"): _cupy,
    ("numba", "DeviceNDArrayBase"): _numba,
    ("jaxlib", "ArrayImpl"): _jax,
    ("jax", "ArrayImpl"): _jax,
    ("numpy", "ndarray"): _numpy,
}
_converters: dict[type, _Converter] = {}


def _converter(kind: type) -> _Converter:
    """How arrays of a type are read, found once by the first base that a framework defines."""
    names = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
    found = next((_BASES[each] for each in names if each in _BASES), _foreign)
    if ("jax", "Tracer") in names:
        found = _no_array
    _converters[kind] = found
    return found


def view(obj: Any, op: str, name: str, wants: str = "") -> View:
    """The array given to ``op`` as argument ``name``; ``wants`` says in an error which elements the op takes there.

    Copies nothing and waits for nothing. Raises :class:`InvalidProblem` for what is no array or holds other elements than the package knows,
    :class:`Unsupported` for memory on the wrong side and strides of broken elements, :class:`MisalignedOperand`.
    """
    return (_converters.get(type(obj)) or _converter(type(obj)))(obj, (op, name, wants))


def check_one_device(op: str, views: Iterable[View]) -> int:
    """The device that all operands are on; :class:`InvalidProblem` if there are several. An empty array without an address may be anywhere."""
    first = None
    for each in views:
        if first is None or (not first.ptr and each.ptr):
            first = each
        elif each.device != first.device and each.ptr:
            here, there = ("the host" if v.device < 0 else f"device {v.device}" for v in (first, each))
            raise InvalidProblem(f"{op}: {each.name} is on {there}, wants {here}, where {first.name} is")
    return -1 if first is None else first.device


def on_cupy(device: int, stream: int, make: Callable[[Any], Any]) -> Any:
    """``make(cupy)`` with this device and stream current: CuPy's pool gives a block back to the stream it was taken on."""
    try:
        import cupy
    except ImportError as error:
        raise Unsupported(f"results for these arrays are CuPy arrays: {_INSTALL}") from error
    if cupy.cuda.runtime.getDevice() == device and cupy.cuda.get_current_stream().ptr == stream:
        return make(cupy)
    with cupy.cuda.Device(device):
        if stream == 0:
            current = cupy.cuda.Stream.null
        elif hasattr(cupy.cuda.Stream, "from_external"):
            current = cupy.cuda.Stream.from_external(_Protocol(stream))
        else:
            current = cupy.cuda.ExternalStream(stream, device)
        with current:
            return make(cupy)


class _Protocol:
    """A handle as the CUDA stream protocol wants it."""

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _torch_stream(device: int) -> int:
    torch = sys.modules["torch"]
    try:
        return torch._C._cuda_getCurrentRawStream(device)  # type: ignore[no-any-return]
    except AttributeError:
        return int(torch.cuda.current_stream(device).cuda_stream)


def _on_torch(device: int, stream: int, shape: tuple[int, ...], element: str) -> Any:
    """A tensor from torch's caching allocator, which ties a block to the stream that was current."""
    torch = sys.modules["torch"]
    dtype = getattr(torch, dtypes.BY_NAME[element].numpy_name)
    where = torch.device("cuda", device)
    if _torch_stream(device) == stream:
        return torch.empty(shape, dtype=dtype, device=where)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=where) if stream > 1 else torch.cuda.default_stream(where)):
        return torch.empty(shape, dtype=dtype, device=where)


def empty(like: View, shape: tuple[int, ...], element: str, stream: int) -> Any:
    """A new C-contiguous array on ``like``'s device for an op that writes it on ``stream``.

    NumPy, Numba and torch callers get their own kind, all others CuPy: JAX arrays are immutable. Numba's allocator knows no streams and cannot be
    captured.
    """
    if like.kind == "torch":
        return _on_torch(like.device, stream, shape, element)
    dtype = dtypes.numpy_dtype(element)
    if like.kind == "numpy":
        return np.empty(shape, dtype)
    if like.kind == "numba":
        from numba import cuda

        if launch.device_count() < 2:
            return cuda.device_array(shape, dtype)
        with cuda.gpus[like.device]:
            return cuda.device_array(shape, dtype)
    return on_cupy(like.device, stream, lambda cupy: cupy.empty(shape, dtype))


class _Block:
    """Memory of the driver's stream-ordered pool, freed in the order of the stream it was made for."""

    __slots__ = ("device", "ptr", "stream")

    def __init__(self, nbytes: int, stream: int, device: int) -> None:
        self.ptr = 0
        self.stream, self.device = stream, device
        self.ptr = launch.alloc_async(nbytes, stream, device)

    def __del__(self) -> None:
        if self.ptr and not sys.is_finalizing():
            launch.free_async(self.ptr, self.stream, self.device)


def scratch(like: View, nbytes: int, stream: int) -> View:
    """Uninitialised bytes for work on ``stream``, at least 16-byte aligned. Drop the view once that work is queued: memory is reused in stream order.

    When emulating, ``owner`` is a NumPy array of uint32 words.
    """
    owner: Any
    if like.kind == "numpy":
        words = np.empty(-(-nbytes // 4) + 3, np.uint32)
        skip = -words.ctypes.data % 16 // 4
        owner = words[skip : skip + -(-nbytes // 4)]
        ptr = owner.ctypes.data
    elif like.kind == "torch":
        owner = _on_torch(like.device, stream, (nbytes,), "u8")
        ptr = owner.data_ptr()
    else:
        pooled = "cupy" in sys.modules
        owner = on_cupy(like.device, stream, lambda cupy: cupy.cuda.alloc(nbytes)) if pooled else _Block(nbytes, stream, like.device)
        ptr = owner.ptr
    return View(ptr, (nbytes,), (1,), "u8", like.device, like.kind, owner, False, "workspace")


def _current(like: View) -> int:
    """The stream that ``like``'s framework uses now.

    Numba: the default stream, which the driver binding itself makes the per-thread one if so configured. JAX and DLPack: that of the framework the
    array is seen through. Other objects: the stream their ``__cuda_array_interface__`` names, else the default stream.
    """
    reads = _converters.get(type(like.owner), _foreign)
    if reads is _torch:
        return _torch_stream(like.device)
    if reads is _cupy:
        return sys.modules["cupy"].cuda.get_current_stream(like.device).ptr  # type: ignore[no-any-return]
    if reads is _foreign:
        return int(getattr(like.owner, "__cuda_array_interface__", {}).get("stream") or 0)
    return 0


_readers: dict[type, Callable[[Any], Any]] = {}


def _reader(kind: type) -> Callable[[Any], Any] | None:
    names = {(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__}
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


def stream_handle(stream: Any, like: View) -> int:
    """The integer handle of a stream given as an integer, a Numba, CuPy, torch or cuda.core stream, or anything with ``__cuda_stream__``.

    ``None`` is the current stream of the framework that owns ``like``, so that an op takes its place among that framework's own operations.
    """
    if stream is None:
        return _current(like)
    read = _readers.get(type(stream)) or _reader(type(stream))
    if read is None:
        wants = "an integer handle or a stream of Numba, CuPy, torch or cuda.core"
        raise InvalidProblem(f"stream is of type {type(stream).__name__}, wants {wants}")
    return int(read(stream))


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
    itemsize = dtypes.BY_NAME[view.element].itemsize
    return view.ptr + low * itemsize, view.ptr + (high + 1) * itemsize


def overlaps(a: View, b: View) -> bool:
    """Whether the spans of two arrays meet; interleaved strided arrays count as overlapping, empty ones never do."""
    (a_low, a_high), (b_low, b_high) = span(a), span(b)
    return a_low < b_high and b_low < a_high and a_low < a_high and b_low < b_high


@functools.lru_cache(4096)
def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return 0 in shape or all(extent == 1 or stride == dense for extent, stride, dense in zip(shape, strides, c_strides(shape), strict=True))


def is_contiguous(view: View) -> bool:
    """Whether elements follow one another in C order; the stride of an axis of one element does not matter."""
    return _dense(view.shape, view.strides)
