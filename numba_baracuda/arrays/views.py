"""An array of any framework as an address and a form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import dtypes


def spell(dtype: str, shape: Iterable[int]) -> str:
    """A dtype and a shape as messages write them."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def lineage(kind: type) -> list[tuple[str, str]]:
    """A type and its bases by package and name, to recognise those of frameworks that may not be imported."""
    return [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]


class Form:
    """All of a view but its address. Arrays that a framework describes alike share one object, which memos of launches have as their key.

    ``strides`` count elements, ``element`` is a short name of :mod:`~numba_baracuda.core.dtypes`, ``device`` a CUDA ordinal or -1 for host memory,
    ``kind`` one of ``numpy numba cupy torch jax foreign``. ``number`` is the value of what was given as a Python number, which has no address.
    ``shared`` says whether arrays that come later get this object, so that a memo may have it in its keys.
    """

    __slots__ = ("device", "element", "empty", "itemsize", "kind", "number", "readonly", "shape", "shared", "strides")

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], element: str, device: int, kind: str, readonly: bool, number: float | None = None
    ) -> None:
        self.shape, self.strides, self.element, self.device, self.kind, self.readonly = shape, strides, element, device, kind, readonly
        self.number = number
        self.itemsize = dtypes.BY_NAME[element].itemsize
        self.empty = 0 in shape
        self.shared = False

    @property
    def sort(self) -> tuple[Any, ...]:
        """All of a form but its sizes."""
        return self.element, len(self.shape), self.device, self.kind, self.readonly

    @classmethod
    def of(cls, shape: tuple[int, ...], strides: tuple[int, ...], element: str, device: int, kind: str, readonly: bool) -> Form:
        """The one form with these fields."""
        key = (tuple(shape), tuple(strides), element, device, kind, readonly)
        return _forms.get(key) or cls(*key)._share(key)

    @classmethod
    def of_number(cls, value: float) -> Form:
        """The one form of a Python number; it is on no device."""
        key = ("number", repr(value))  # −0 and 0 have two keys, and NaN has one
        return _forms.get(key) or cls((), (), "f64", -1, "numpy", True, value)._share(key)

    def _share(self, key: tuple[Any, ...]) -> Form:
        self.shared = True
        return remember(_forms, key, self)  # type: ignore[no-any-return]


_forms: dict[Any, Form] = {}  #: fields -> the one form that has them
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
    """What a kernel needs of an operand: the address of its first element and its :class:`Form`; ``owner`` keeps the memory alive.

    ``name`` is the argument it was given as. For JAX arrays and objects that have only DLPack, ``owner`` is the CuPy array or torch tensor through
    which they are read. ``producer`` is the stream that the values are ready on, where the array names one. None stands for the current stream of
    its framework, or for values that are ready.
    """

    __slots__ = ("form", "name", "owner", "producer", "ptr")

    def __init__(self, ptr: int, form: Form, owner: Any, name: str, producer: int | None = None) -> None:
        self.ptr = ptr
        self.form = form
        self.owner = owner
        self.name = name
        self.producer = producer

    shape = property(lambda self: self.form.shape)
    strides = property(lambda self: self.form.strides)
    element = property(lambda self: self.form.element)
    device = property(lambda self: self.form.device)
    kind = property(lambda self: self.form.kind)
    readonly = property(lambda self: self.form.readonly)

    def seen_as(self, form: Form) -> View:
        """The same memory in another form."""
        return View(self.ptr, form, self.owner, self.name, self.producer)

    def __repr__(self) -> str:
        return f"{self.name}: {spell(self.element, self.shape)} of {self.kind} on device {self.device}"


class Bundle:
    """An argument that brings several operands: ``view_of(name)`` is the view of one of them."""

    def view_of(self, name: str) -> View:
        raise NotImplementedError
