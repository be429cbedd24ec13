"""An array of any framework as an address, a shape, strides and an array type."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core import dtypes


def spell(dtype: str, shape: Iterable[int]) -> str:
    """A dtype and a shape as messages write them."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def lineage(kind: type) -> list[tuple[str, str]]:
    """A type and its bases by package and name, to recognise those of frameworks that may not be imported."""
    return [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]


class ArrayType:
    """What arrays of one framework, device, dtype and number of axes have in common. There is one object of each, by which memos find it.

    ``element`` is a short name of :mod:`~numba_baracuda.core.dtypes`, ``rank`` the number of axes, ``device`` a CUDA ordinal or -1 for host memory,
    ``kind`` one of ``numpy numba cupy torch jax foreign``. ``number`` is the value of what was given as a Python number, which has no address.
    """

    __slots__ = ("device", "element", "itemsize", "kind", "number", "rank", "readonly")

    def __init__(self, element: str, rank: int, device: int, kind: str, readonly: bool, number: float | None = None) -> None:
        self.element, self.rank, self.device, self.kind, self.readonly, self.number = element, rank, device, kind, readonly, number
        self.itemsize = dtypes.BY_NAME[element].itemsize

    @staticmethod
    @functools.cache
    def of(element: str, rank: int, device: int, kind: str, readonly: bool) -> ArrayType:
        """The one type with these attributes."""
        return ArrayType(element, rank, device, kind, readonly)


@functools.lru_cache(1024)
def _type_of_number(text: str) -> ArrayType:
    return ArrayType("f64", 0, -1, "numpy", True, float(text))


_met: dict[int, None] = {}
#: entries of a memo at most, and those that it stores when their keys come for the first time
_MOST, _AT_ONCE = 4096, 64


def remember(memo: dict[Any, Any], key: Any, value: Any, most: int = _MOST) -> Any:
    """Stores in a memo of bounded size, which is emptied when it is full."""
    if len(memo) >= most:
        memo.clear()
    memo[key] = value
    return value


def remember_again(memo: dict[Any, Any], key: Any, value: Any) -> bool:
    """Stores in a memo that has few entries, or when the key comes for the second time: sizes that come once leave only a number, and no garbage.

    Returns whether it did.
    """
    mark = hash(key)
    if mark in _met or len(memo) < _AT_ONCE:
        remember(memo, key, value)
        return True
    remember(_met, mark, None)
    return False


class View:
    """What a kernel needs of an operand: the address of its first element, its shape, its strides in elements, and its :class:`ArrayType`.

    ``owner`` keeps the memory alive; for JAX arrays and objects that have only DLPack it is the CuPy array or torch tensor through which they are
    read. ``name`` is the argument it was given as. ``producer`` is the stream that the values are ready on, where the array names one. None stands
    for the current stream of its framework, or for values that are ready.
    """

    __slots__ = ("name", "owner", "producer", "ptr", "shape", "strides", "type")

    def __init__(
        self, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], of_type: ArrayType, owner: Any, name: str, producer: int | None = None
    ) -> None:  # fmt: skip
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.type = of_type
        self.owner = owner
        self.name = name
        self.producer = producer

    element = property(lambda self: self.type.element)
    device = property(lambda self: self.type.device)
    kind = property(lambda self: self.type.kind)
    readonly = property(lambda self: self.type.readonly)
    number = property(lambda self: self.type.number)
    itemsize = property(lambda self: self.type.itemsize)
    empty = property(lambda self: 0 in self.shape)

    @classmethod
    def of_number(cls, value: float, name: str) -> View:
        """What stands for a Python number; it is on no device."""
        return cls(0, (), (), _type_of_number(repr(value)), np.array(value), name)  # by text: −0 and 0 differ, and NaN is itself

    def seen_as(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
        """The same memory with other axes."""
        kept = self.type
        seen = ArrayType.of(kept.element, len(shape), kept.device, kept.kind, kept.readonly)
        return View(self.ptr, shape, strides, seen, self.owner, self.name, self.producer)

    def named(self, name: str, producer: int | None = None) -> View:
        """The same array as another argument; its values are ready, unless it names a ``producer``."""
        return View(self.ptr, self.shape, self.strides, self.type, self.owner, name, producer)

    def __repr__(self) -> str:
        return f"{self.name}: {spell(self.element, self.shape)} of {self.kind} on device {self.device}"


class Bundle:
    """An argument that brings several operands: ``view_of(name)`` is the view of one of them."""

    def view_of(self, name: str) -> View:
        raise NotImplementedError
