"""Stable radix sorting of (key, value) pairs by some of the bits of the keys.

``cuda.compute`` compiles the sort for one key type, one value type and one architecture in some seconds. The disk cache keeps the result with the
cubins. The first :func:`sorter` imports the library.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import sys
import threading
import warnings
from typing import Any

from ..core.errors import InvalidProblem, KernelLaunchError, Unsupported
from ..core.op import Sort
from . import cache, driver
from .launch import uncaptured

_ITEMSIZES = {"u8": 1, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}
_LIBRARIES = ("cuda-cccl", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12")


class _Memory:
    """An array for the library, of which each call sets the address."""

    __slots__ = ("__cuda_array_interface__", "nbytes")

    def __init__(self, itemsize: int) -> None:
        # Not null even while compiling: for a null address of values the library compiles a sort of keys alone.
        self.__cuda_array_interface__ = {"shape": (1,), "typestr": f"<u{itemsize}", "data": (256, False), "strides": None, "version": 3}
        self.nbytes = 0


class _Stream:
    """A stream's handle behind the CUDA stream protocol."""

    handle = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Sorter:
    """The sort for keys and values of given sizes on one device. Any number of threads may call the same object. :func:`sorter` makes it.

    Keys are compared as unsigned numbers. Outputs may overlap neither inputs, nor the workspace, nor each other.
    """

    def __init__(self, algorithm: Any, key_bytes: int, value_bytes: int, device: int) -> None:
        self.device = device
        self._stream, self._scratch = _Stream(), _Memory(1)
        keys, out_keys, values, out_values = _Memory(key_bytes), _Memory(key_bytes), _Memory(value_bytes), _Memory(value_bytes)
        self._memories = (self._scratch, keys, out_keys, values, out_values)
        self._sort = functools.partial(
            algorithm, d_in_keys=keys, d_out_keys=out_keys, d_in_values=values, d_out_values=out_values, stream=self._stream
        )
        self._lock = threading.Lock()  # the objects above, and the library's own, hold the addresses of one call at a time
        self._sizes = functools.lru_cache(4096)(self._size)

    def workspace(self, count: int, bits: int, first_bit: int = 0) -> int:
        """Bytes of scratch, 1 at least, for a sort of ``count`` pairs. The host computes them and keeps them in a memo."""
        return self._sizes(count, bits, first_bit)

    def _size(self, count: int, bits: int, first_bit: int) -> int:
        with driver.on_device(self.device), uncaptured(), self._lock:
            return self._call(None, count, bits, first_bit)

    def __call__(
        self, stream: int, workspace: int, nbytes: int, keys: int, sorted_keys: int, values: int, sorted_values: int,
        count: int, bits: int, first_bit: int = 0,
    ) -> None:  # fmt: skip
        """Queue a sort by bits ``first_bit`` to ``bits - 1``. ``nbytes`` is the size of the workspace, which may start at any address but null."""
        if not workspace:
            raise InvalidProblem("radix sort: workspace is null, wants an address")  # the library would answer with the size it wants
        # The driver loads a kernel at its first launch, which a thread that captures a stream may only do in relaxed mode.
        with driver.on_device(self.device), uncaptured(), self._lock:
            self._stream.handle = stream
            self._scratch.nbytes = nbytes
            for memory, address in zip(self._memories, (workspace, keys, sorted_keys, values, sorted_values), strict=True):
                memory.__cuda_array_interface__["data"] = (address, False)
            self._call(self._scratch, count, bits, first_bit)

    def _call(self, scratch: _Memory | None, count: int, bits: int, first_bit: int) -> int:
        """Sorts; without scratch, returns the bytes of scratch that a sort needs."""
        try:
            nbytes: int = self._sort(temp_storage=scratch, num_items=count, begin_bit=first_bit, end_bit=bits)
        except RuntimeError as error:
            raise KernelLaunchError(f"radix sort of {count} pairs by {bits} bits on device {self.device}: {error}") from error
        return nbytes


_sorters: dict[tuple[int, int, int], Sorter] = {}
_locks: dict[tuple[int, int, int], threading.Lock] = {}


def sorter(key: str, value: str, device: int) -> Sorter:
    """The sort for these short names of elements: from this process, from disk, or compiled now and kept. A stream may be captured meanwhile."""
    for role, name in (("keys", key), ("values", value)):
        if name not in _ITEMSIZES:
            raise Unsupported(f"radix sort: {role} are {name}, wants one of {', '.join(_ITEMSIZES)}")
    which = (_ITEMSIZES[key], _ITEMSIZES[value], device)
    found = _sorters.get(which)
    if found is None:
        with _locks.setdefault(which, threading.Lock()):
            found = _sorters.get(which)
            if found is None:
                found = _sorters[which] = _make(*which)
    return found


def sorter_of(step: Sort, device: int) -> Sorter:
    """The sort that a step of a recipe wants."""
    return sorter(f"u{8 * step.key_size}", f"u{8 * step.value_size}", device)


def begin(step: Sort, device: int) -> threading.Thread:
    """Begins to make the sort that a step wants in another thread. :func:`sorter_of` raises what goes wrong."""

    def make() -> None:
        with contextlib.suppress(Exception):
            sorter_of(step, device)

    with contextlib.suppress(Unsupported):
        _library()  # imports in one thread at a time
    thread = threading.Thread(target=make, name="numba_baracuda sort", daemon=True)
    thread.start()
    return thread


def _make(key_bytes: int, value_bytes: int, device: int) -> Sorter:
    capability = driver.compute_capability(device)
    library = _library()
    name = _name(key_bytes, value_bytes, capability)

    def load(blob: bytes) -> Sorter:
        made = Sorter(library.deserialize(blob), key_bytes, value_bytes, device)
        made.workspace(1, 1)  # the first call loads the code
        return made

    with driver.on_device(device), uncaptured():
        kept = cache.read_blob(name)
        if kept is not None:
            try:
                return load(kept)
            except (ValueError, RuntimeError):
                pass  # not what this library writes
        try:
            blob = _build(library, key_bytes, value_bytes, capability)
            made = load(blob)
        except Exception as error:  # whatever the compiler, its linker or the search for their files raises
            sizes = f"{key_bytes}-byte keys and {value_bytes}-byte values"
            raise Unsupported(f"cuda.compute does not build a radix sort of {sizes} for compute capability {capability}: {error}") from error
    cache.write_blob(name, blob)
    return made


def _build(library: Any, key_bytes: int, value_bytes: int, capability: tuple[int, int]) -> bytes:
    keys, values = _Memory(key_bytes), _Memory(value_bytes)
    made = library.make_radix_sort(
        d_in_keys=keys, d_out_keys=keys, d_in_values=values, d_out_values=values, order=library.SortOrder.ASCENDING, compute_capability=capability
    )
    blob: bytes = made.serialize()
    return blob


def _name(key_bytes: int, value_bytes: int, capability: tuple[int, int]) -> str:
    """The hash of everything that could change the machine code, or how it is read back."""
    parts = ["radix sort 1", cache.versions(_LIBRARIES), key_bytes, value_bytes, capability]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _library() -> Any:
    caught: Any = []
    with contextlib.ExitStack() as stack:
        if "cuda.compute" not in sys.modules:  # warnings are caught for all threads, so only once
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
        try:
            found = importlib.import_module("cuda.compute")
        except (ImportError, RuntimeError) as error:
            raise Unsupported(f"sorting takes cuda.compute, which cannot be imported ({error}): {driver.INSTALL_TOOLKIT}") from error
    if not found._BINDINGS_AVAILABLE:
        reason = "; ".join(str(warning.message) for warning in caught) or "its bindings are not available"
        raise Unsupported(f"sorting takes cuda.compute, which does not work here ({reason}): {driver.INSTALL_TOOLKIT}")
    return found
