"""How a cubin becomes a kernel, and a kernel a launch that wants only a stream, addresses and sizes."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..core.errors import InvalidProblem, KernelLaunchError
from ..core.spec import Cubin
from . import driver


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
            driver.allow_shared(kernel.handle, nbytes, device, kernel.cubin.entry)
            kernel._shared[device] = nbytes


#: each scalar in its 8-byte slot
_SLOTS = {
    "bool": "?7x", "i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x", "i32": "i4x", "u32": "I4x", "i64": "q", "u64": "Q",
    "f16": "e6x", "bf16": "H6x", "f32": "f4x", "f64": "d",
}  # fmt: skip


class _Block:
    """The parameters of a launch: values in 8-byte slots, and the address of the array that points to each. ``scalars`` are those packed last."""

    __slots__ = ("_table", "address", "scalars", "values")

    def __init__(self, size: int) -> None:
        count = size // 8
        self.values = bytearray(size)
        start = ctypes.addressof((ctypes.c_char * size).from_buffer(self.values)) if count else 0
        self._table = (ctypes.c_void_p * max(count, 1))(*range(start, start + 8 * count, 8))
        self.address = ctypes.addressof(self._table)
        self.scalars: tuple[Any, ...] | None = None


def _word(element: str, value: Any) -> Any:
    """A scalar as :mod:`struct` packs it: a bfloat16 as its bits, rounded to nearest even."""
    if element != "bf16":
        return value
    word: int = struct.unpack("=I", struct.pack("=f", value))[0]
    return (word >> 16) | 0x40 if value != value else (word + 0x7FFF + (word >> 16 & 1)) >> 16


def _scalars(signature: str) -> list[tuple[int, str]]:
    """Count, 0 where there is no tuple, and element of each scalar of a ``KernelSpec.signature``."""
    found = [token.rpartition("x") for token in signature.split() if not token.startswith("*")]
    return [(int(count or 0), element) for count, _, element in found]


def words(signature: str, scalars: Sequence[Any]) -> tuple[Any, ...]:
    """What a launch packs for the scalars of a kernel: one value each, for ``NxT`` those of a sequence, one behind the other."""
    wanted = _scalars(signature)
    if len(wanted) != len(scalars):
        raise InvalidProblem(f"launch: got {len(scalars)} scalars, signature {signature!r} wants {len(wanted)}")
    found: list[Any] = []
    for (count, element), value in zip(wanted, scalars, strict=True):
        values = tuple(value) if count else (value,)
        if element not in _SLOTS or len(values) != (count or 1):
            raise InvalidProblem(f"launch: got {value!r} for {f'{count}x' if count else ''}{element} of signature {signature!r}")
        found += [_word(element, each) for each in values]
    return tuple(found)


@functools.lru_cache(1024)
def _stream(handle: int) -> Any:
    """A stream's handle in the type that a launch takes; of a number each launch would make one."""
    return driver.bindings().CUstream(handle)


class Launch:
    """A kernel on a device, with everything settled that its sizes and addresses do not change.

    ``threads`` is the size of a one-dimensional block. Any number of threads of the host may call the same object. :func:`of` makes it.
    """

    __slots__ = ("_allowed", "_call", "_pack_pointers", "_pack_scalars", "_pool", "_several", "_sizes", "device", "kernel", "threads")

    def __init__(self, kernel: Kernel, signature: str, threads: int, *, device: int = 0, cooperative: bool = False) -> None:
        self.kernel, self.threads, self.device = kernel, threads, device
        pointers = struct.Struct("=" + "Q" * sum(token.startswith("*") for token in signature.split()))
        scalars = struct.Struct("=" + "".join(_SLOTS[element] * (count or 1) for count, element in _scalars(signature)))
        self._pack_pointers, self._pack_scalars, self._sizes = pointers.pack_into, scalars.pack_into, (pointers.size, scalars.size)
        self._allowed = driver.STATIC_SHARED - kernel.cubin.shared
        self._several = driver.device_count() > 1
        call: Callable[..., Any] = _cooperative if cooperative else driver.bindings().cuLaunchKernel
        self._call = call, kernel.function
        # The driver binding releases the GIL while it reads the block, so a block belongs to one caller at a time: list.pop and append are atomic.
        self._pool: list[_Block] = []
        kernel.prepare(device)

    def _block(self) -> _Block:
        return _Block(sum(self._sizes))

    def queue(self, stream: int, pointers: Sequence[int], blocks: int, shared: int = 0, scalars: tuple[Any, ...] = ()) -> None:
        """Queues ``blocks`` blocks with ``shared`` bytes of dynamic shared memory each; none launch nothing. ``scalars`` are :func:`words`.

        The driver has copied the parameters when this returns, so the block is free for the next caller.
        """
        if not blocks:
            return
        if shared > self._allowed:
            self._allow(shared)
        try:
            block = self._pool.pop()
        except IndexError:
            block = self._block()
        if block.scalars is not scalars:
            self._pack_scalars(block.values, self._sizes[0], *scalars)
            block.scalars = scalars
        self._pack_pointers(block.values, 0, *pointers)
        self._start(blocks, shared, block, stream)
        self._pool.append(block)

    def ready(self, pointers: Sequence[int], blocks: int, shared: int = 0, scalars: tuple[Any, ...] = ()) -> Callable[[int], None]:
        """``queue`` as a function of the stream alone, with a parameter block that nobody else changes."""
        if shared > self._allowed:
            self._allow(shared)
        block = self._block()
        self._pack_pointers(block.values, 0, *pointers)
        self._pack_scalars(block.values, self._sizes[0], *scalars)
        return partial(self._start, blocks, shared, block) if blocks else lambda stream: None

    def _allow(self, shared: int) -> None:
        set_dynamic_shared(self.kernel, shared, self.device)
        self._allowed = max(self._allowed, shared)

    def _start(self, blocks: int, shared: int, block: _Block, stream: int) -> None:
        if self._several and not driver.is_current(self.device):
            with driver.on_device(self.device):
                return self._start(blocks, shared, block, stream)
        call, function = self._call
        queue = _stream(stream)
        code = call(function, blocks, 1, 1, self.threads, 1, 1, shared, queue, block.address, 0)[0]
        if code:
            if int(code) in driver.LOST_CONTEXT:
                driver.recover(int(code), self.device)
                code = call(function, blocks, 1, 1, self.threads, 1, 1, shared, queue, block.address, 0)[0]
            if code:
                where = f"{blocks} blocks of {self.threads} threads, {shared} bytes of dynamic shared memory, device {self.device}"
                raise KernelLaunchError(f"{self.kernel.cubin.entry}: {driver.error_name(code)}; {where}", int(code))


_launches: dict[Any, Launch] = {}


def of(kernel: Kernel, signature: str, threads: int, device: int) -> Launch:
    """The one launch of a kernel with so many threads on a device."""
    key = kernel, signature, threads, device
    found = _launches.get(key)
    if found is None:
        found = _launches.setdefault(key, Launch(kernel, signature, threads, device=device))
    return found


def _cooperative(function: Any, *arguments: Any) -> Any:
    return driver.bindings().cuLaunchCooperativeKernel(function, *arguments[:-1])


def reset() -> None:
    """Forget the loaded kernels, and the driver they were loaded by."""
    _kernels.clear()
    _launches.clear()
    _stream.cache_clear()
    driver.reset()
