"""The CUDA driver: what the cards are, how a cubin becomes a kernel, how a kernel is launched.

``cuda.bindings`` is imported at the first call that needs a driver, so that importing this module costs nothing and works on a machine without one.
Devices are CUDA ordinals. Streams are integer handles; 0 is the default stream.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import InvalidProblem, KernelLaunchError, Unsupported
from .spec import Cubin

MINIMUM_CAPABILITY = (8, 0)
_STATIC_SHARED = 48 << 10  #: bytes of shared memory a block may use without asking
_LOST_CONTEXT = frozenset((3, 201, 709))  #: CUresult of not initialised, invalid context, context is destroyed
_driver: Any = None


def driver() -> Any:
    """The initialised ``cuda.bindings.driver``; :class:`Unsupported` with the cure where the package or the driver is missing."""
    global _driver
    if _driver is None:
        try:
            from cuda.bindings import driver as found
        except ImportError as error:
            cure = "pip install 'numba-baracuda[cuda12]' or 'numba-baracuda[cuda13]', whichever the driver serves"
            raise Unsupported(f"the CUDA bindings cannot be imported ({error}): {cure}") from error
        try:
            code = found.cuInit(0)[0]
        except RuntimeError as error:
            raise Unsupported(f"no CUDA driver is installed: {error}") from error
        if code:
            raise Unsupported(f"the CUDA driver does not start: {_name(code)}")
        _driver = found
    return _driver


def _name(code: Any) -> str:
    return f"{getattr(code, 'name', 'CUresult')} ({int(code)})"


def _check(result: tuple[Any, ...], what: str) -> Any:
    if result[0]:
        raise KernelLaunchError(f"{what}: {_name(result[0])}", int(result[0]))
    return result[1] if len(result) > 1 else None


@functools.cache
def device_count() -> int:
    """Number of devices that this process sees; 0 for any reason there is none to use."""
    try:
        return int(_check(driver().cuDeviceGetCount(), "cuDeviceGetCount"))
    except (Unsupported, KernelLaunchError):
        return 0


@functools.cache
def _handle(device: int) -> Any:
    return _check(driver().cuDeviceGet(device), f"cuDeviceGet({device})")


@functools.cache
def _attribute(device: int, name: str) -> int:
    which = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(driver().cuDeviceGetAttribute(which, _handle(device)), f"cuDeviceGetAttribute({name})"))


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
    return int(_check(driver().cuDriverGetVersion(), "cuDriverGetVersion"))


@functools.cache
def device_name(device: int = 0) -> str:
    """The card's name."""
    raw: bytes = _check(driver().cuDeviceGetName(128, _handle(device)), "cuDeviceGetName")
    return raw.split(b"\0")[0].decode(errors="replace")


def pointer_device(pointer: int) -> int:
    """Ordinal of the device that owns an address; never asks where there is only one."""
    if device_count() == 1 or not pointer:
        return 0
    which = driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(_check(driver().cuPointerGetAttribute(which, pointer), "cuPointerGetAttribute"))


@functools.cache
def _primary(device: int) -> Any:
    return _check(driver().cuDevicePrimaryCtxRetain(_handle(device)), f"cuDevicePrimaryCtxRetain({device})")


def _is_current(device: int) -> bool:
    code, context = driver().cuCtxGetCurrent()
    if code or not int(context):
        return False
    code, owner = driver().cuCtxGetDevice()
    return not code and int(owner) == int(_handle(device))


def ensure_context(device: int = 0) -> None:
    """Leave a context of ``device`` current: the one that is, when it belongs to the device, else the primary one, which CuPy and torch use too."""
    if not _is_current(device):
        _check(driver().cuCtxSetCurrent(_primary(device)), "cuCtxSetCurrent")


@contextmanager
def on_device(device: int) -> Iterator[None]:
    """A context of ``device`` is current inside; afterwards the one that was."""
    if _is_current(device):
        yield
        return
    previous = _check(driver().cuCtxGetCurrent(), "cuCtxGetCurrent")
    ensure_context(device)
    try:
        yield
    finally:
        driver().cuCtxSetCurrent(previous)


def _ask(name: str, device: int, *arguments: Any) -> Any:
    """Call a driver function that works in the current context, and again with a context of ``device`` where there was none."""
    call = getattr(driver(), name)
    if device_count() > 1:
        with on_device(device):
            return _check(call(*arguments), name)
    result = call(*arguments)
    if result[0] and int(result[0]) in _LOST_CONTEXT:
        ensure_context(device)
        result = call(*arguments)
    return _check(result, name)


def memset_async(pointer: int, nbytes: int, stream: int, value: int = 0, device: int = 0) -> None:
    """Fill bytes, ordered on ``stream``."""
    if nbytes:
        _ask("cuMemsetD8Async", device, pointer, value, nbytes, stream)


def alloc_async(nbytes: int, stream: int, device: int = 0) -> int:
    """Address of fresh memory that work queued on ``stream`` from now on may use; 0 for no bytes."""
    return int(_ask("cuMemAllocAsync", device, nbytes, stream)) if nbytes else 0


def free_async(pointer: int, stream: int, device: int = 0) -> None:
    """Give memory of :func:`alloc_async` back once the work now queued on ``stream`` is done."""
    if pointer:
        _ask("cuMemFreeAsync", device, pointer, stream)


class Kernel:
    """A loaded cubin: valid in every context, usable from every thread. :func:`load` makes it."""

    __slots__ = ("_lock", "_ready", "_shared", "cubin", "function", "handle")

    def __init__(self, cubin: Cubin, handle: Any) -> None:
        self.cubin = cubin
        self.handle = handle  #: CUkernel, for attributes
        self.function = driver().CUfunction(int(handle))  #: the same, in the type a launch takes
        self._ready: set[int] = set()
        self._shared: dict[int, int] = {}
        self._lock = threading.Lock()

    def prepare(self, device: int) -> None:
        """Put the code on the card now: the driver would do it at the first launch, where it costs time and may break a stream capture."""
        if device in self._ready:
            return
        with on_device(device), _uncaptured():
            function = _check(driver().cuKernelGetFunction(self.handle), f"{self.cubin.entry}: cuKernelGetFunction")
            try:
                code = driver().cuFuncLoad(function)[0]
            except (AttributeError, RuntimeError):
                code = 0  # CUDA before 12.4 has no such call and loads at the first launch
        _check((code,), f"{self.cubin.entry}: cuFuncLoad")
        self._ready.add(device)


_kernels: dict[Cubin, Kernel] = {}
_loading = threading.Lock()


@contextmanager
def _uncaptured() -> Iterator[None]:
    """Loading code allocates memory, which a thread that captures a stream may only do in relaxed mode."""
    code, previous = driver().cuThreadExchangeStreamCaptureMode(driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        if not code:
            driver().cuThreadExchangeStreamCaptureMode(previous)


def load(cubin: Cubin) -> Kernel:
    """The kernel of a cubin, loaded once in a process."""
    kernel = _kernels.get(cubin)
    if kernel is None:
        with _loading:
            kernel = _kernels.get(cubin)
            if kernel is None:
                with _uncaptured():
                    library = _check(driver().cuLibraryLoadData(cubin.image, [], [], 0, [], [], 0), f"{cubin.entry}: cuLibraryLoadData")
                    handle = _check(driver().cuLibraryGetKernel(library, cubin.entry.encode()), f"{cubin.entry}: cuLibraryGetKernel")
                kernel = _kernels[cubin] = Kernel(cubin, handle)
    return kernel


def set_dynamic_shared(kernel: Kernel, nbytes: int, device: int = 0) -> None:
    """Allow launches of ``kernel`` on ``device`` up to ``nbytes`` of dynamic shared memory; never lowers what was allowed before."""
    with kernel._lock:
        if nbytes > kernel._shared.get(device, 0):
            which = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"{kernel.cubin.entry}: {nbytes} bytes of dynamic shared memory"
            _check(driver().cuKernelSetAttribute(which, nbytes, kernel.handle, _handle(device)), what)
            kernel._shared[device] = nbytes


_FORMATS = {
    "bool": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
    "f16": "e", "bf16": "bf16", "f32": "f", "f64": "d",
}  # fmt: skip


def _pack(form: str, value: Any) -> bytes:
    """One scalar in its 8-byte slot."""
    if form == "bf16":
        word: int = struct.unpack("=I", struct.pack("=f", value))[0]
        nan = value != value
        rounded = (word >> 16) | 0x40 if nan else (word + 0x7FFF + (word >> 16 & 1)) >> 16  # to nearest even
        return struct.pack("=H6x", rounded)
    return struct.pack("=" + form, value).ljust(8, b"\0")


def _layout(signature: str, scalars: Sequence[Any]) -> tuple[int, bytes]:
    """Number of pointers, and the packed scalars, of a ``KernelSpec.signature``."""
    tokens = signature.split()
    pointers = 0
    while pointers < len(tokens) and tokens[pointers].startswith("*"):
        pointers += 1
    wanted = tokens[pointers:]
    if len(wanted) != len(scalars):
        raise InvalidProblem(f"launch: got {len(scalars)} scalars, signature {signature!r} wants {len(wanted)}")
    packed = b""
    for token, value in zip(wanted, scalars, strict=True):
        count, _, element = token.rpartition("x")
        values = tuple(value) if count else (value,)
        if element not in _FORMATS or len(values) != int(count or 1):
            raise InvalidProblem(f"launch: got {value!r} for {token!r} of signature {signature!r}")
        packed += b"".join(_pack(_FORMATS[element], each) for each in values)
    return pointers, packed


class Launch:
    """A kernel with everything settled but its stream and its addresses: ``launch(stream, *pointers)``.

    ``grid`` is in blocks, ``threads`` the size of a one-dimensional block, ``shared`` bytes of dynamic shared memory. ``scalars`` has one value for
    each scalar of the signature, a sequence for ``NxT``. A grid with a zero launches nothing. Any number of threads may call the same object.
    """

    __slots__ = ("_empty", "_hot", "_image", "_several", "cooperative", "device", "grid", "kernel", "shared", "threads")

    def __init__(
        self,
        kernel: Kernel,
        signature: str,
        grid: tuple[int, int, int],
        threads: int,
        shared: int = 0,
        scalars: Sequence[Any] = (),
        *,
        device: int = 0,
        cooperative: bool = False,
    ) -> None:
        self.kernel, self.grid, self.threads, self.shared, self.device, self.cooperative = kernel, grid, threads, shared, device, cooperative
        pointers, packed = _layout(signature, scalars)
        self._image = bytes(8 * pointers) + packed
        self._empty = 0 in grid
        self._several = device_count() > 1
        if not self._empty:
            kernel.prepare(device)
            if shared + kernel.cubin.shared > _STATIC_SHARED:
                set_dynamic_shared(kernel, shared, device)
        call: Callable[..., Any] = _cooperative if cooperative else driver().cuLaunchKernel
        # The driver binding releases the GIL while it reads the block, so a block belongs to one caller at a time: list.pop and append are atomic.
        pool: list[tuple[bytearray, int, Any]] = []
        self._hot = (call, kernel.function, *grid, threads, shared, struct.Struct(f"={pointers}Q").pack_into, pool)

    def _block(self) -> tuple[bytearray, int, Any]:
        """Parameter block: the values in 8-byte slots, the address of the array that points to each, and that array."""
        values = bytearray(self._image)
        count = len(values) // 8
        start = ctypes.addressof((ctypes.c_char * len(values)).from_buffer(values)) if count else 0
        table = (ctypes.c_void_p * max(count, 1))(*range(start, start + 8 * count, 8))
        return values, ctypes.addressof(table), table

    def __call__(self, stream: int, *pointers: int) -> None:
        """Queue the kernel on ``stream``. The driver has copied the parameters when this returns, so the block is free for the next caller."""
        if self._empty:
            return
        if self._several and not _is_current(self.device):
            with on_device(self.device):
                return self(stream, *pointers)
        call, function, x, y, z, threads, shared, pack, pool = self._hot
        try:
            block = pool.pop()
        except IndexError:
            block = self._block()
        pack(block[0], 0, *pointers)
        code = call(function, x, y, z, threads, 1, 1, shared, stream, block[1], 0)[0]
        if code:
            if int(code) in _LOST_CONTEXT:
                ensure_context(self.device)
                code = call(function, x, y, z, threads, 1, 1, shared, stream, block[1], 0)[0]
            if code:
                where = f"grid {self.grid}, block {threads}, {shared} bytes of dynamic shared memory, device {self.device}"
                raise KernelLaunchError(f"{self.kernel.cubin.entry}: {_name(code)}; {where}", int(code))
        pool.append(block)


def _cooperative(function: Any, *arguments: Any) -> Any:
    return driver().cuLaunchCooperativeKernel(function, *arguments[:-1])


def reset() -> None:
    """Forget the driver and everything learned from it."""
    global _driver
    _driver = None
    _kernels.clear()
    for cached in (device_count, _handle, _attribute, compute_capability, driver_version, device_name, _primary):
        cached.cache_clear()
