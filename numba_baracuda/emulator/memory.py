"""The emulator's memory: byte-exact, with checks of bounds, alignment, reads before writes, and races.

A :class:`Memory` is one allocation (an operand, a workspace, a shared array of one block, a local array of one lane); a :class:`Pointer` is a typed
address in it. In checked mode every access goes through :meth:`Lane.touch`, which preempts the lane and asks the race detector.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.dtypes import BY_NAME, numpy_dtype
from . import races
from .halves import f16_value

if TYPE_CHECKING:
    from ..core.op import Matrix
    from .lanes import Lane

#: struct codes of the element types a pointer can have
CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
    "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
OUTSIDE, POISON, WRITTEN = 0, 1, 2
#: struct code of as many bytes of state as an item has
MARKS = {1: "B", 2: "H", 4: "I", 8: "Q"}
#: by size: the marks of items all of whose bytes are POISON, or WRITTEN
UNIFORM = {size: tuple(int.from_bytes(bytes([state]) * size, "little") for state in (POISON, WRITTEN)) for size in MARKS}


class MemoryFault(RuntimeError):
    """An access that is an error on a GPU, or that a GPU would not report."""


class _HalfItems:
    """float16 items of a byte buffer; memoryview knows no such format."""

    def __init__(self, data: memoryview) -> None:
        self.bits = data.cast("H")

    def __getitem__(self, k: int) -> float:
        return f16_value(self.bits[k])

    def __setitem__(self, k: int, value: float) -> None:
        self.bits[k] = struct.unpack("H", np.float16(value).tobytes())[0]


class Memory:
    """One allocation. ``state`` holds a byte of OUTSIDE, POISON or WRITTEN for each byte of ``data``."""

    def __init__(self, name: str, data: memoryview, state: bytearray, *, cell: int, private: bool = False, readonly: bool = False) -> None:
        self.name, self.data, self.state = name, data, state
        self.private = private  #: seen by one lane only: no preemption, no races
        self.readonly = readonly
        self.cell = cell  #: bytes of the cells that the race detector distinguishes
        self.shadow: dict[int, races.Cell] = {}
        self.views: dict[str, tuple[Any, memoryview]] = {}
        self.owner: Any = None

    @classmethod
    def fresh(cls, name: str, count: int, code: str, *, alignment: int = 16, private: bool = False) -> tuple[Memory, int]:
        """Poisoned memory for ``count`` items of one type, and the index of the first, which is aligned to ``alignment`` bytes and no more."""
        size = struct.calcsize(code)
        before, nbytes = alignment % 16, count * size
        padded = -(-(before + nbytes) // 16) * 16
        state = bytearray(before) + bytearray([POISON]) * nbytes + bytearray(padded - before - nbytes)
        return cls(name, memoryview(bytearray(padded)), state, cell=size, private=private), before // size

    @classmethod
    def of(cls, name: str, array: np.ndarray[Any, Any], *, written: bool = True, readonly: bool = False) -> tuple[Memory, int]:
        """The memory that an array reaches, and the offset in bytes of its first element; bytes between its elements are OUTSIDE."""
        size = array.dtype.itemsize
        first = array.__array_interface__["data"][0]
        low = high = first
        for extent, stride in zip(array.shape, array.strides, strict=True):
            reach = (extent - 1) * stride
            low, high = low + min(reach, 0), high + max(reach, 0)
        base = low & ~15
        nbytes = -(-(high + size - base) // 16) * 16 if array.size else 0
        data = memoryview((ctypes.c_uint8 * nbytes).from_address(base)).cast("B")
        state = bytearray(nbytes)
        if array.size:
            marks = np.frombuffer(state, np.uint8)
            shape, strides = (*array.shape, size), (*array.strides, 1)
            np.lib.stride_tricks.as_strided(marks[first - base :], shape, strides)[...] = WRITTEN if written else POISON
        memory = cls(name, data, state, cell=size, readonly=readonly)
        memory.owner = array
        return memory, first - base

    def set_bytes(self, byte: int) -> None:
        """An asynchronous memset of the whole allocation."""
        self.data[:] = bytes([byte]) * len(self.data)
        self.state[:] = self.state.replace(b"\1", b"\2")

    def write(self, values: Any) -> None:
        """A library call's write to the whole allocation."""
        self.owner[...] = values
        self.state[:] = self.state.replace(b"\1", b"\2")

    def _matrix(self, first: int, matrix: Matrix) -> tuple[Any, Any]:
        """The elements of a matrix in an allocation whose first one is at byte ``first``, and their marks; a fault if it reaches out of bounds."""
        dtype, size = numpy_dtype(matrix.element), BY_NAME[matrix.element].itemsize
        start, step = first + matrix.offset * size, matrix.stride * size
        last = start + (matrix.rows - 1) * step + matrix.columns * size
        if not 0 <= start <= last <= len(self.data):
            raise MemoryFault(f"{self.name}: a matrix of {matrix.rows} rows {matrix.stride} apart is out of bounds")
        strided = np.lib.stride_tricks.as_strided
        values = strided(np.frombuffer(self.data, np.uint8)[start:last], (matrix.rows, matrix.columns, size), (step, size, 1))
        marks = strided(np.frombuffer(self.state, np.uint8)[start:last], (matrix.rows, matrix.columns, size), (step, size, 1))
        if (marks == OUTSIDE).any():
            raise MemoryFault(f"{self.name}: a matrix of {matrix.rows} rows {matrix.stride} apart is out of bounds")
        return (values.view(dtype)[..., 0] if values.size else np.empty((matrix.rows, matrix.columns), dtype)), marks

    def read_matrix(self, first: int, matrix: Matrix) -> Any:
        """A library call's read of a matrix; a fault if an element was never written."""
        values, marks = self._matrix(first, matrix)
        if (marks != WRITTEN).any():
            raise MemoryFault(f"{self.name}: a matrix was read before it was written")
        return values

    def write_matrix(self, first: int, matrix: Matrix, product: Any) -> None:
        """A library call's write of a matrix."""
        values, marks = self._matrix(first, matrix)
        if self.readonly:
            raise MemoryFault(f"{self.name} is an input and was written")
        values[...] = product.astype(values.dtype)
        marks[...] = WRITTEN

    def expect_written(self, whose: str) -> None:
        """A fault if an element was never written."""
        missing = self.state.find(POISON)
        if missing >= 0:
            raise MemoryFault(f"{whose}: {self.state.count(POISON)} bytes of {self.name} were never written, the first at byte {missing}")

    def view(self, code: str) -> tuple[Any, memoryview]:
        """The bytes, and their states, as items of one type."""
        if code not in self.views:
            items = _HalfItems(self.data) if code == "e" else self.data.cast(code)  # type: ignore[call-overload]
            self.views[code] = items, memoryview(self.state).cast(MARKS[struct.calcsize(code)])  # type: ignore[call-overload]
        return self.views[code]


class Pointer:
    """A typed address in a :class:`Memory`; ``base`` is in elements."""

    __slots__ = ("base", "code", "good", "items", "limit", "marks", "memory", "poisoned", "size", "watched")

    def __init__(self, memory: Memory, code: str, base: int = 0) -> None:
        self.memory, self.code, self.base = memory, code, base
        self.size = struct.calcsize(code)
        self.items, self.marks = memory.view(code)
        self.poisoned, self.good = UNIFORM[self.size]  #: the marks of an element that was not written, and of one that was
        self.limit = len(memory.data) // self.size
        self.watched = not (memory.private or memory.readonly)

    def offset(self, count: int) -> Pointer:
        return Pointer(self.memory, self.code, self.base + count)

    def cast(self, code: str) -> Pointer:
        where, rest = divmod(self.base * self.size, struct.calcsize(code))
        if rest:
            raise MemoryFault(f"{self.memory.name}: byte {self.base * self.size} is not aligned for a {struct.calcsize(code)}-byte element")
        return Pointer(self.memory, code, where)

    def _reach(self, lane: Lane, index: int, count: int, site: str, kind: int) -> int:
        """Checks an access of ``count`` elements and returns the index of its first element in ``items``."""
        k = self.base + index
        if not 0 <= k <= self.limit - count:
            raise MemoryFault(f"{site}: {self.memory.name}[{index}] is out of bounds")
        if count > 1:
            self.expect_aligned(index, count, site)
        memory = self.memory
        low, nbytes = k * self.size, count * self.size
        if kind & races.WRITE:
            if memory.readonly:
                raise MemoryFault(f"{site}: {memory.name} is an input and was written")
            if memory.state.count(OUTSIDE, low, low + nbytes):
                raise MemoryFault(f"{site}: {memory.name}[{index}] is out of bounds")
        if self.watched:
            if lane.checked:
                lane.touch(memory, low, nbytes, site, kind)
            elif kind & races.ATOMIC and not kind & races.WRITE:
                lane.pause()  # it may be waiting for another lane
            elif kind & races.ATOMIC and not kind & races.READ:
                lane.launch.idle_turns = 0
        if kind & races.READ and memory.state.count(WRITTEN, low, low + nbytes) != nbytes:
            what = "out of bounds" if memory.state.count(OUTSIDE, low, low + nbytes) else "read before it was written"
            raise MemoryFault(f"{site}: {memory.name}[{index}] is {what}")
        if kind & races.WRITE:
            memory.state[low : low + nbytes] = b"\2" * nbytes
        return k

    def expect_aligned(self, index: int, count: int, site: str) -> None:
        """A vectorized load or store starts at a multiple of its length; memory itself starts at a multiple of 16 bytes."""
        if (self.base + index) % count:
            raise MemoryFault(f"{site}: {self.memory.name}[{index}] is not aligned to its {count * self.size}-byte access")

    def load(self, lane: Lane, index: int, site: str, kind: int = races.READ) -> Any:
        k = self.base + index
        if (self.watched and lane.checked) or kind != races.READ or not 0 <= k < self.limit or self.marks[k] != self.good:
            self._reach(lane, index, 1, site, kind)
        return self.items[k]

    def store(self, lane: Lane, index: int, value: Any, site: str, kind: int = races.WRITE) -> None:
        k = self.base + index
        if (self.watched and lane.checked) or kind != races.WRITE or self.memory.readonly or not 0 <= k < self.limit:
            self._reach(lane, index, 1, site, kind)
        elif self.marks[k] == self.poisoned:
            self.marks[k] = self.good
        elif self.marks[k] != self.good:
            self._reach(lane, index, 1, site, kind)
        self.items[k] = value

    def expect_global(self, site: str) -> Pointer:
        """The pointer itself; a fault if it is not to global memory, which an instruction requires."""
        if self.memory.owner is None:
            raise MemoryFault(f"{site}: {self.memory.name} is not in global memory, which is all that this instruction reaches")
        return self

    def expect_shared(self, site: str) -> Pointer:
        """The pointer itself; a fault if it is not to shared memory, which an instruction requires."""
        if self.memory.owner is not None or self.memory.private:
            raise MemoryFault(f"{site}: {self.memory.name} is not in shared memory, which is all that this instruction reaches")
        return self

    def give_away(self, lane: Lane, index: int, count: int, site: str) -> None:
        """Poisons elements that an asynchronous copy will write: until then a read is a fault."""
        first = self._reach(lane, index, count, site, races.WRITE) * self.size
        self.memory.state[first : first + count * self.size] = bytes([POISON]) * (count * self.size)

    def load_vector(self, lane: Lane, index: int, count: int, site: str, kind: int = races.READ) -> tuple[Any, ...]:
        k = self._reach(lane, index, count, site, kind)
        return tuple(self.items[k + j] for j in range(count))

    def store_vector(self, lane: Lane, index: int, values: tuple[Any, ...], site: str, kind: int = races.WRITE) -> None:
        k = self._reach(lane, index, len(values), site, kind)
        for j, value in enumerate(values):
            self.items[k + j] = value

    def update(self, lane: Lane, index: int, change: Any, site: str, release: bool = False, acquire: bool = False) -> Any:
        """An atomic read-modify-write: stores ``change(old)`` and returns ``old``."""
        kind = races.READ | races.WRITE | races.ATOMIC | (races.RELEASE if release else 0) | (races.ACQUIRE if acquire else 0)
        k = self._reach(lane, index, 1, site, kind)
        old = self.items[k]
        new = change(old)
        self.items[k] = new
        if new != old:
            lane.launch.idle_turns = 0
        elif not lane.checked:
            lane.pause()  # it may be waiting for another lane
        return old
