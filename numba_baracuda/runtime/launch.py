"""How a cubin becomes a kernel, and a kernel a launch that wants only a stream and addresses."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.errors import InvalidProblem, KernelLaunchError
from ..core.spec import Cubin
from . import driver

_STATIC_SHARED = 48 << 10  #: bytes of shared memory a block may use without asking


class Kernel:
    """A loaded cubin: valid in every context, usable from every thread. :func:`load` makes it."""

    __slots__ = ("_lock", "_ready", "_shared", "cubin", "function", "handle")

    def __init__(self, cubin: Cubin, handle: Any) -> None:
        self.cubin = cubin
        self.handle = handle  #: CUkernel, for attributes
        self.function = driver.bindings().CUfunction(int(handle))  #: the same, in the type a launch takes
        self._ready: set[int] = set()
        self._shared: dict[int, int] = {}
        self._lock = threading.Lock()

    def prepare(self, device: int) -> None:
        """Put the code on the card now: the driver would do it at the first launch, where it costs time and may break a stream capture."""
        if device in self._ready:
            return
        with driver.on_device(device), uncaptured():
            function = driver.check(driver.bindings().cuKernelGetFunction(self.handle), f"{self.cubin.entry}: cuKernelGetFunction")
            try:
                code = driver.bindings().cuFuncLoad(function)[0]
            except (AttributeError, RuntimeError):
                code = 0  # CUDA before 12.4 has no such call and loads at the first launch
        driver.check((code,), f"{self.cubin.entry}: cuFuncLoad")
        self._ready.add(device)


_kernels: dict[Cubin, Kernel] = {}
_loading = threading.Lock()


@contextmanager
def uncaptured() -> Iterator[None]:
    """Loading code allocates memory, which a thread that captures a stream may only do in relaxed mode."""
    code, previous = driver.bindings().cuThreadExchangeStreamCaptureMode(driver.bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        if not code:
            driver.bindings().cuThreadExchangeStreamCaptureMode(previous)


def load(cubin: Cubin) -> Kernel:
    """The kernel of a cubin, loaded once in a process."""
    kernel = _kernels.get(cubin)
    if kernel is None:
        with _loading:
            kernel = _kernels.get(cubin)
            if kernel is None:
                with uncaptured():
                    library = driver.check(
                        driver.bindings().cuLibraryLoadData(cubin.image, [], [], 0, [], [], 0), f"{cubin.entry}: cuLibraryLoadData"
                    )
                    handle = driver.check(driver.bindings().cuLibraryGetKernel(library, cubin.entry.encode()), f"{cubin.entry}: cuLibraryGetKernel")
                kernel = _kernels[cubin] = Kernel(cubin, handle)
    return kernel


def set_dynamic_shared(kernel: Kernel, nbytes: int, device: int = 0) -> None:
    """Allow launches of ``kernel`` on ``device`` up to ``nbytes`` of dynamic shared memory; never lowers what was allowed before."""
    with kernel._lock:
        if nbytes > kernel._shared.get(device, 0):
            which = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            what = f"{kernel.cubin.entry}: {nbytes} bytes of dynamic shared memory"
            driver.check(driver.bindings().cuKernelSetAttribute(which, nbytes, kernel.handle, driver.handle(device)), what)
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
        self._several = driver.device_count() > 1
        if not self._empty:
            kernel.prepare(device)
            if shared + kernel.cubin.shared > _STATIC_SHARED:
                set_dynamic_shared(kernel, shared, device)
        call: Callable[..., Any] = _cooperative if cooperative else driver.bindings().cuLaunchKernel
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
        """Queue the kernel on ``stream``."""
        self.queue(stream, pointers)

    def queue(self, stream: int, pointers: Sequence[int]) -> None:
        """``launch(stream, *pointers)``. The driver has copied the parameters when this returns, so the block is free for the next caller."""
        if self._empty:
            return
        if self._several and not driver.is_current(self.device):
            with driver.on_device(self.device):
                return self.queue(stream, pointers)
        call, function, x, y, z, threads, shared, pack, pool = self._hot
        try:
            block = pool.pop()
        except IndexError:
            block = self._block()
        pack(block[0], 0, *pointers)
        code = call(function, x, y, z, threads, 1, 1, shared, stream, block[1], 0)[0]
        if code:
            if int(code) in driver.LOST_CONTEXT:
                driver.ensure_context(self.device)
                code = call(function, x, y, z, threads, 1, 1, shared, stream, block[1], 0)[0]
            if code:
                where = f"grid {self.grid}, block {threads}, {shared} bytes of dynamic shared memory, device {self.device}"
                raise KernelLaunchError(f"{self.kernel.cubin.entry}: {driver.error_name(code)}; {where}", int(code))
        pool.append(block)


def _cooperative(function: Any, *arguments: Any) -> Any:
    return driver.bindings().cuLaunchCooperativeKernel(function, *arguments[:-1])


def reset() -> None:
    """Forget the loaded kernels, and the driver they were loaded by."""
    _kernels.clear()
    driver.reset()
