"""The CUDA driver: what the cards are, which context is current, memory in the order of a stream.

``cuda.bindings`` is imported at the first call that needs a driver, so that importing this module costs nothing and works on a machine without one.
Devices are CUDA ordinals. Streams are integer handles; 0 is the default stream.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..core.errors import KernelLaunchError, Unsupported

#: bytes of shared memory that a block may use without asking
STATIC_SHARED = 48 << 10

MINIMUM_CAPABILITY = (8, 0)
LOST_CONTEXT = frozenset((3, 201, 709))  #: CUresult of not initialised, invalid context, context is destroyed
INSTALL_TOOLKIT = "pip install 'numba-baracuda[cuda12]' or 'numba-baracuda[cuda13]', whichever the driver serves"
_NOT_INITIALISED, _DESTROYED = 3, 709
_CAPTURE_IMPLICIT = 906  #: CUresult of work on the legacy default stream while a stream that it waits for is captured
Memo = TypeVar("Memo", bound="dict[Any, Any] | list[Any]")
_bindings: Any = None
_forked = False  #: a process that was forked from one that had started CUDA


class Forked(KernelLaunchError):
    """CUDA is used in a process that was forked after CUDA was started."""

    def __init__(self) -> None:
        way_out = "start processes by multiprocessing.get_context('spawn'), or fork before the first op"
        super().__init__(f"this process was forked from one that had started CUDA, which works in that one only: {way_out}", _NOT_INITIALISED)


def _after_fork() -> None:
    """Runs in a forked child: the parent's handles and contexts are void there."""
    global _forked
    if _bindings is not None:
        _forked = True
        reset()


os.register_at_fork(after_in_child=_after_fork)


def bindings() -> Any:
    """The initialised ``cuda.bindings.driver``; :class:`Unsupported` with the cure where the package or the driver is missing."""
    global _bindings
    if _bindings is None:
        if _forked:
            raise Forked
        try:
            from cuda.bindings import driver as found
        except ImportError as error:
            raise Unsupported(f"the CUDA bindings cannot be imported ({error}): {INSTALL_TOOLKIT}") from error
        try:
            code = found.cuInit(0)[0]
        except RuntimeError as error:
            raise Unsupported(f"no CUDA driver is installed: {error}") from error
        if code == _NOT_INITIALISED:  # another library had started it before the fork
            raise Forked
        if code:
            raise Unsupported(f"the CUDA driver does not start: {error_name(code)}")
        _bindings = found
    return _bindings


def error_name(code: Any) -> str:
    """A result of the driver, for messages."""
    return f"{getattr(code, 'name', 'CUresult')} ({int(code)})"


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call; :class:`KernelLaunchError` where it failed."""
    if result[0]:
        raise KernelLaunchError(f"{what}: {error_name(result[0])}", int(result[0]))
    return result[1] if len(result) > 1 else None


@functools.cache
def device_count() -> int:
    """Number of devices that this process sees; 0 for any reason there is none to use, but :class:`Forked`."""
    try:
        return int(check(bindings().cuDeviceGetCount(), "cuDeviceGetCount"))
    except Forked:
        raise
    except (Unsupported, KernelLaunchError):
        return 0


@functools.cache
def handle(device: int) -> Any:
    """The CUdevice of an ordinal."""
    return check(bindings().cuDeviceGet(device), f"cuDeviceGet({device})")


def allow_shared(kernel: Any, nbytes: int, device: int, name: str) -> None:
    """Lets a CUkernel have so many bytes of dynamic shared memory on a device."""
    which = bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    check(bindings().cuKernelSetAttribute(which, nbytes, kernel, handle(device)), f"{name}: {nbytes} bytes of dynamic shared memory")


@functools.cache
def _attribute(device: int, name: str) -> int:
    which = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(bindings().cuDeviceGetAttribute(which, handle(device)), f"cuDeviceGetAttribute({name})"))


@functools.cache
def compute_capability(device: int = 0) -> tuple[int, int]:
    """``(major, minor)``; a card below (8, 0) is :class:`Unsupported`."""
    found = (_attribute(device, "COMPUTE_CAPABILITY_MAJOR"), _attribute(device, "COMPUTE_CAPABILITY_MINOR"))
    if found < MINIMUM_CAPABILITY:
        wanted = "{}.{} or above".format(*MINIMUM_CAPABILITY)
        raise Unsupported(f"device {device} ({device_name(device)}) is compute capability {found[0]}.{found[1]}, wants {wanted}")
    return found


def multiprocessors(device: int = 0) -> int:
    """Streaming multiprocessors of the card."""
    return _attribute(device, "MULTIPROCESSOR_COUNT")


def l2_bytes(device: int = 0) -> int:
    """Size of the level 2 cache."""
    return _attribute(device, "L2_CACHE_SIZE")


@functools.cache
def driver_version() -> int:
    """The newest CUDA version the driver serves, ``13000`` for 13.0."""
    return int(check(bindings().cuDriverGetVersion(), "cuDriverGetVersion"))


@functools.cache
def device_name(device: int = 0) -> str:
    """The card's name."""
    raw: bytes = check(bindings().cuDeviceGetName(128, handle(device)), "cuDeviceGetName")
    return raw.split(b"\0")[0].decode(errors="replace")


def pointer_device(pointer: int) -> int:
    """Ordinal of the device that owns an address; the driver is not asked where there is only one."""
    if device_count() == 1 or not pointer:
        return 0
    which = bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(check(bindings().cuPointerGetAttribute(which, pointer), "cuPointerGetAttribute"))


@functools.cache
def _primary(device: int) -> Any:
    return check(bindings().cuDevicePrimaryCtxRetain(handle(device)), f"cuDevicePrimaryCtxRetain({device})")


def is_current(device: int) -> bool:
    """Whether this thread's context is one of ``device``."""
    code, context = bindings().cuCtxGetCurrent()
    if code or not int(context):
        return False
    code, owner = bindings().cuCtxGetDevice()
    return not code and int(owner) == int(handle(device))


def ensure_context(device: int = 0) -> None:
    """Makes a context of ``device`` current, unless one is: the primary context, which CuPy and torch use too."""
    if not is_current(device):
        check(bindings().cuCtxSetCurrent(_primary(device)), "cuCtxSetCurrent")


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """A context of ``device`` is current inside the block; afterwards the one before it is again."""
    if is_current(device):
        yield
        return
    previous = check(bindings().cuCtxGetCurrent(), "cuCtxGetCurrent")
    ensure_context(device)
    try:
        yield
    finally:
        bindings().cuCtxSetCurrent(previous)


def recover(code: int, device: int) -> None:
    """Makes a context of ``device`` current after a call that failed for want of one; what a destroyed one held is forgotten."""
    if code == _DESTROYED:
        _forget()
    ensure_context(device)


def _ask(name: str, device: int, *arguments: Any) -> Any:
    """Call a driver function that needs a current context; if there is none, call it again with a context of ``device``."""
    call = getattr(_bindings or bindings(), name)
    if device_count() > 1:
        with on_device(device):
            return check(call(*arguments), name)
    result = call(*arguments)
    if not result[0]:
        return result[1] if len(result) > 1 else None
    if int(result[0]) in LOST_CONTEXT:
        recover(int(result[0]), device)
        result = call(*arguments)
    return check(result, name)


def memset_async(pointer: int, nbytes: int, stream: int, value: int = 0, device: int = 0) -> None:
    """Fill bytes, ordered on ``stream``."""
    if nbytes:
        _ask("cuMemsetD8Async", device, pointer, value, nbytes, stream)


def alloc_async(nbytes: int, stream: int, device: int = 0) -> int:
    """Address of fresh memory that work queued on ``stream`` from now on may use; 0 for no bytes."""
    return int(_ask("cuMemAllocAsync", device, nbytes, stream)) if nbytes else 0


def free_async(pointer: int, stream: int, device: int = 0) -> None:
    """Free memory of :func:`alloc_async` once the work now queued on ``stream`` is done. In a forked process, which owns none, do nothing."""
    if pointer and not _forked:
        _ask("cuMemFreeAsync", device, pointer, stream)


def is_capturing(stream: int, device: int = 0) -> bool:
    """Whether a stream is being captured; the legacy default stream never is."""
    return stream not in (0, 1) and meets_capture(stream, device)


def meets_capture(stream: int, device: int = 0) -> bool:
    """Whether a stream is being captured or, as the legacy default stream, would wait for one that is, which breaks the capture."""
    try:
        return bool(_ask("cuStreamIsCapturing", device, stream))
    except KernelLaunchError as error:
        if error.code != _CAPTURE_IMPLICIT:
            raise
        return True


def stream_number(stream: int, device: int = 0) -> int:
    """The number of a stream. No other stream ever has it, whereas a new one may get the handle of one that is gone but still has work to do."""
    return int(_ask("cuStreamGetId", device, stream))


@functools.cache
def _default_per_thread() -> bool:
    """Whether the bindings were told so when they were imported."""
    return os.environ.get("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "0") != "0"


def per_thread(stream: int) -> bool:
    """Whether every thread has a stream of its own under this handle: 2, and 0 where the bindings are told so."""
    return stream == 2 or (stream == 0 and _default_per_thread())


_of_contexts: list[Any] = []


def of_contexts(memo: Memo) -> Memo:
    """A dictionary or list of what contexts hold, such as addresses: it is emptied when they are gone."""
    _of_contexts.append(memo)
    return memo


def _forget() -> None:
    for each in _of_contexts:
        each.clear()


_events: dict[int, list[Any]] = of_contexts({})  #: by device; events that are free for the next use


def follow(stream: int, producer: int, device: int = 0) -> None:
    """Work queued on ``stream`` from now on waits for the work queued on ``producer`` so far."""
    pool = _events.setdefault(device, [])
    try:
        event = pool.pop()
    except IndexError:
        event = _ask("cuEventCreate", device, int(bindings().CUevent_flags.CU_EVENT_DISABLE_TIMING))
    _ask("cuEventRecord", device, event, producer)
    _ask("cuStreamWaitEvent", device, stream, event, 0)
    pool.append(event)


@functools.cache
def idle_stream(device: int) -> int:
    """A stream of the package's own, on which nothing runs and which nobody captures."""
    return int(_ask("cuStreamCreate", device, int(bindings().CUstream_flags.CU_STREAM_NON_BLOCKING)))


def read_back(pointer: int, count: int, stream: int, device: int = 0, size: int = 8, reason: str = "check_ids=True") -> list[int]:
    """``count`` integers of ``size`` bytes from the device, once ``stream`` has run what is queued on it; ``reason`` is the option that asks."""
    if _ask("cuStreamIsCapturing", device, stream):
        raise Unsupported(f"{reason} waits for the device, which a stream that is being captured cannot; drop {reason} or end the capture")
    words = ((ctypes.c_int64 if size == 8 else ctypes.c_int32) * count)()
    _ask("cuMemcpyDtoHAsync", device, ctypes.addressof(words), pointer, ctypes.sizeof(words), stream)
    _ask("cuStreamSynchronize", device, stream)
    return list(words)


def reset() -> None:
    """Forget the driver and all that was read from it."""
    global _bindings
    _bindings = None
    _forget()
    for cached in (device_count, handle, _attribute, compute_capability, driver_version, device_name, _primary, idle_stream, _default_per_thread):
        cached.cache_clear()
