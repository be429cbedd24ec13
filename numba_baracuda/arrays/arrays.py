"""Any array as an address, a shape and strides.

This module, ``allocation``, ``dlpack`` and ``streams`` are the only ones that know array frameworks. Importing them imports none: a type is
recognised by the module that defines it, and a framework is taken from ``sys.modules``, where the caller's arrays have put it.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from ..core import dtypes
from ..core.axes import c_strides
from ..core.errors import BaracudaError, InvalidProblem, MisalignedOperand, Unsupported
from ..runtime import driver
from . import autograd, dlpack, emulation
from .emulation import emulating as emulating
from .views import ArrayType, View, lineage, spell

At = tuple[str, str, str]  #: op, argument, and what the op takes there, for messages


def reset() -> None:
    """Decide again about emulation, and warn again."""
    _types.clear()
    emulation.reset()


_HOST = "a NumPy array or a torch tensor in host memory"


def _refuse(at: At, got: str, wants: str, error: type[BaracudaError] = Unsupported) -> NoReturn:
    raise error(f"{at[0]}: {at[1]} is {got}, wants {wants}")


def _on_device(at: At, what: str) -> None:
    """Admits an array in device memory, unless emulating."""
    if emulating():
        _refuse(at, what, f"{_HOST}, since ops run in the CPU emulator; where there is a CUDA device, unset NUMBA_BARACUDA_EMULATE")


def _in_host(at: At, what: str, cure: str) -> NoReturn:
    """Refuses an array that no kernel can reach."""
    _refuse(at, what, f"{_HOST}, since ops run in the CPU emulator" if emulating() else f"one in device memory: {cure}")


_types: dict[Any, ArrayType] = {}  #: dtype object of any framework, number of axes, device and so on -> the type


def _type(key: tuple[Any, int, int, str, bool], shape: Iterable[int], at: At) -> ArrayType:
    """The type of arrays that a framework describes by ``key``."""
    dtype, *rest = key
    spelled = str(dtype).removeprefix("torch.")  # a foreign byte order is spelled ">f4", which is in no table
    found = dtypes.BY_NUMPY_NAME.get(spelled)
    if found is None:
        _refuse(at, spell(spelled, shape), at[2] or "one of " + ", ".join(dtypes.BY_NUMPY_NAME), InvalidProblem)
    return _types.setdefault(key, ArrayType.of(found.name, *rest))


@functools.lru_cache(4096)
def in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...] | None:
    return None if any(stride % itemsize for stride in strides) else tuple(stride // itemsize for stride in strides)


def _assemble(
    obj: Any, at: At, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, device: int, kind: str, readonly: bool = False
) -> View:
    """The view of an array that its framework describes by these values; ``strides`` are in bytes."""
    key = (dtype, len(shape), device, kind, readonly)
    seen = _types.get(key) or _type(key, shape, at)
    counted = in_elements(strides, seen.itemsize)
    if counted is None:
        _refuse(at, f"of strides {strides} bytes", f"multiples of its element size {seen.itemsize}")
    if ptr % seen.itemsize:
        _misaligned(ptr, shape, seen, at)
    return View(ptr, shape, counted, seen, obj, at[1])


def _misaligned(ptr: int, shape: tuple[int, ...], seen: ArrayType, at: At) -> None:
    """Refuses an address that is no multiple of the element size, unless nothing is there."""
    if 0 not in shape:
        _refuse(at, f"at address {ptr:#x}", f"a multiple of its element size {seen.itemsize}", MisalignedOperand)


def _numpy(obj: Any, at: At) -> View:
    if not emulating():
        cure = "cupy.asarray(x) or numba.cuda.to_device(x) moves it there, NUMBA_BARACUDA_EMULATE=1 runs ops on NumPy arrays in the CPU emulator"
        _in_host(at, "a NumPy array", cure)
    return _assemble(obj, at, obj.ctypes.data, obj.shape, obj.strides, obj.dtype, -1, "numpy", not obj.flags.writeable)


def _masked(obj: Any, at: At) -> NoReturn:
    _refuse(at, "a NumPy masked array, whose mask no op knows", "a plain array: np.ma.filled(x, value) has a value where elements are masked")


def read_torch(obj: Any, at: At) -> View:
    if emulation.decided is not False and not (emulating() and obj.is_cpu):
        _on_device(at, f"a torch tensor on {obj.device}") if obj.is_cuda else _torch_in_host(obj, at)
    if obj.requires_grad:
        wants = autograd.instead(at[0])
        if wants:
            _refuse(at, "a torch tensor that requires grad", wants)
    try:
        ptr, shape, strides, device = obj.data_ptr(), tuple(obj.shape), obj.stride(), obj.get_device()
    except RuntimeError:  # sparse layouts and torch's own tracers
        _refuse(at, *(autograd.layout_of(obj) or autograd.traced(at[0])))
    if not ptr:  # DTensors and other wrappers, or nothing
        refused = autograd.layout_of(obj) or (autograd.wrapped(obj) if obj.numel() else None)
        if refused:
            _refuse(at, *refused)
    if obj.is_neg():
        _refuse(at, "a torch tensor whose negation is pending", "x.resolve_neg()")
    key = (obj.dtype, len(shape), device, "torch", False)
    seen = _types.get(key)
    if seen is None:
        if device < 0 and not emulating():
            _torch_in_host(obj, at)
        seen = _type(key, shape, at)
    if ptr % seen.itemsize:
        _misaligned(ptr, shape, seen, at)
    return View(ptr, shape, strides, seen, obj, at[1])


def _torch_in_host(obj: Any, at: At) -> NoReturn:
    _in_host(at, f"a torch tensor on {obj.device}", "x.cuda() moves it there")


def read_cupy(obj: Any, at: At) -> View:
    if emulation.decided is not False:
        _on_device(at, "a CuPy array")
    return _assemble(obj, at, obj.data.ptr, obj.shape, obj.strides, obj.dtype, obj.data.device_id, "cupy")


def _numba(obj: Any, at: At) -> View:
    if emulation.decided is not False:
        _on_device(at, "a Numba device array")
    ptr = obj.device_ctypes_pointer.value or 0
    view = _assemble(obj, at, ptr, obj.shape, obj.strides, obj.dtype, driver.pointer_device(ptr), "numba")
    view.producer = int(obj.stream) or None
    return view


def _jax(obj: Any, at: At) -> View:
    """Through DLPack, which makes a stream wait for the computation of the array; its ``__cuda_array_interface__`` makes nothing wait.

    The array must live until the stream has run the op: XLA knows nothing of that stream, and may give the memory of a dropped array to its next
    computation at once.
    """
    return _dlpack(obj, at, "jax")


def _foreign(obj: Any, at: At) -> View:
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is None:
        if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
            return _dlpack(obj, at, "foreign")
        _no_array(obj, at)
    what = f"a {type(obj).__name__}"
    if emulation.decided is not False:
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
            _refuse(at, f"{what} of typestr {typestr!r}, which does not say bfloat16", "a bfloat16 .dtype attribute, or a CuPy or torch array")
    view = _assemble(obj, at, ptr or 0, shape, tuple(strides), dtype, driver.pointer_device(ptr or 0), "foreign", bool(readonly))
    view.producer = _producer(interface.get("stream"), what, at)
    return view


def _producer(stream: Any, what: str, at: At) -> int | None:
    """The stream that ``__cuda_array_interface__`` names."""
    if stream is None:
        return None
    if isinstance(stream, numbers.Integral) and not isinstance(stream, bool) and int(stream) > 0:
        return int(stream)
    wants = "None, 1 for the legacy default stream, 2 for the per-thread default stream, or a handle"
    _refuse(at, f'{what} whose __cuda_array_interface__ has "stream": {stream!r}', wants, InvalidProblem)


def _dlpack(obj: Any, at: At, kind: str) -> View:
    what = f"a {type(obj).__name__}"
    try:
        if obj.__dlpack_device__()[0] not in (2, 13):  # CUDA and CUDA managed memory
            _in_host(at, f"{what} in host memory", "its framework can move it there")
        _on_device(at, f"{what} in device memory")
        alias, producer = dlpack.take(obj, at)
    except BaracudaError:
        raise
    except Exception as error:  # frameworks raise what they like
        raise Unsupported(f"{at[0]}: {at[1]} is {what} that cannot be shared through DLPack: {error}") from error
    seen = read(alias, at)
    of_type = ArrayType.of(seen.element, len(seen.shape), seen.device, kind, kind == "jax")
    return View(seen.ptr, seen.shape, seen.strides, of_type, seen.owner, seen.name, producer)


def _numbers(obj: Any, at: At) -> View:
    """A list or tuple of Python numbers, of which the emulator makes an array that no op can write."""
    what, of_what = f"of type {type(obj).__name__}", f" of {at[2]}" if at[2] else ""
    if not emulating():
        _refuse(at, what, f"an array{of_what} in device memory, which cupy.asarray(x) makes of it", InvalidProblem)
    try:
        made = np.asarray(obj)
    except ValueError:
        made = np.asarray(None)
    if made.dtype.kind not in "biuf":
        _refuse(at, f"{what}, not of numbers in rows of one length", f"an array{of_what}", InvalidProblem)
    made.flags.writeable = False
    return _numpy(made, at)


def _no_array(obj: Any, at: At) -> NoReturn:
    _refuse(at, "None" if obj is None else f"of type {type(obj).__name__}", f"an array of {at[2]}" if at[2] else "an array", InvalidProblem)


_Reader = Callable[[Any, At], View]
_BASES: dict[tuple[str, str], _Reader] = {
    ("torch", "Tensor"): read_torch,
    ("cupy", "ndarray"): read_cupy,
    ("numba", "DeviceNDArrayBase"): _numba,
    ("jaxlib", "ArrayImpl"): _jax,
    ("jax", "ArrayImpl"): _jax,
    ("numpy", "MaskedArray"): _masked,
    ("numpy", "ndarray"): _numpy,
    ("builtins", "list"): _numbers,
    ("builtins", "tuple"): _numbers,
    ("numba_baracuda", "View"): lambda view, at: view,
}


class _Readers(dict[type, _Reader]):
    """By type of array the function that reads it: the one for the first of the base classes that a framework defines."""

    def __missing__(self, kind: type) -> _Reader:
        names = lineage(kind)
        found = next((_BASES[each] for each in names if each in _BASES), _foreign)
        if ("jax", "Tracer") in names:
            found = _no_array
        self[kind] = found
        return found


readers = _Readers()


def view(obj: Any, op: str, name: str, wants: str = "") -> View:
    """The array given to ``op`` as argument ``name``; ``wants`` says in an error which elements the op takes there.

    Copies nothing and waits for nothing; a JAX array must live until the stream has run the op. Raises :class:`InvalidProblem` for what is no array
    or has an unknown dtype, :class:`Unsupported` for an array in host memory (of the emulator: in device memory) and for strides that are no
    multiples of the element size, and :class:`MisalignedOperand` for an address that is none.
    """
    return read(obj, (op, name, wants))


def read(obj: Any, at: At) -> View:
    """:func:`view` with ``op``, ``name`` and ``wants`` in one tuple."""
    return readers[type(obj)](obj, at)


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
