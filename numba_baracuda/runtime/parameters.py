"""How a kernel declares its parameters: the annotations of its Python function are numba types.

    def fold(input: Ptr[value], output: Ptr[float32], rows: int64, empty: Scalar[state_type], shape: Extents[3]) -> None: ...

An element type is given as a numba type or by its short name, which ``value`` may hold: ``"f32"``. Annotations are read when the function is
defined, and may use variables of the factory: so a module of kernels must not have ``from __future__ import annotations``. Pointers come first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from numba.cuda import types

from ..core.spec import Parameter

SCALARS = {
    "i8": types.int8, "u8": types.uint8, "i16": types.int16, "u16": types.uint16, "i32": types.int32, "u32": types.uint32, "i64": types.int64,
    "u64": types.uint64, "f16": types.float16, "bf16": types.uint16, "f32": types.float32, "f64": types.float64, "bool": types.boolean,
}  # fmt: skip
_NAMES = {ty: name for name, ty in SCALARS.items() if name != "bf16"}


def _type(kind: Any) -> Any:
    """The numba type of an element type's short name, or a numba type as it is."""
    return SCALARS[kind] if isinstance(kind, str) else kind


class _Pointer:
    def __getitem__(self, element: Any) -> Any:
        return types.CPointer(_type("u8" if element == "bool" else element))


class _Scalar:
    def __getitem__(self, kind: Any) -> Any:
        return _type(kind)


class _Extents:
    def __getitem__(self, count: int) -> Any:
        return types.UniTuple(types.int64, count)


class _Tuple:
    def __getitem__(self, item: tuple[Any, int]) -> Any:
        return types.UniTuple(_type(item[0]), item[1])


#: ``Ptr[element]``: the address of an array's first element; truth values are read as bytes
Ptr: Any = _Pointer()
#: ``Scalar[kind]``: a number of a type that a variable holds
Scalar: Any = _Scalar()
#: ``Extents[n]``: n numbers of int64, such as a shape, or strides in elements
Extents: Any = _Extents()
#: ``Tuple[kind, n]``: n numbers
Tuple: Any = _Tuple()


def _name_of(ty: Any) -> str:
    """``*f32``, ``i64`` or ``3xi64``."""
    if isinstance(ty, types.CPointer):
        return f"*{_NAMES[ty.dtype]}"
    return f"{ty.count}x{_NAMES[ty.dtype]}" if isinstance(ty, types.UniTuple) else _NAMES[ty]


def types_of(kernel: Callable[..., None]) -> tuple[Any, ...]:
    """The numba types that a kernel declares, in the order of its parameters."""
    names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    declared = kernel.__annotations__
    bare = [name for name in names if isinstance(declared.get(name, ""), str)]
    if bare:
        raise TypeError(
            f"{kernel.__name__}: {', '.join(bare)} declares no type, wants numba types as annotations, such as Ptr[float32] or int64,"
            " in a module without 'from __future__ import annotations'"
        )
    return tuple(declared[name] for name in names)


def parameters_of(kernel: Callable[..., None]) -> tuple[Parameter, ...]:
    """Names and types of a kernel's parameters, as a :class:`Cubin` has them."""
    names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    found = tuple(Parameter(name, _name_of(ty)) for name, ty in zip(names, types_of(kernel), strict=True))
    late = [each.name for first, each in itertools.pairwise(found) if each.pointer and not first.pointer]
    if late:
        raise TypeError(f"{kernel.__name__}: {', '.join(late)} stands behind a scalar, wants pointers first")
    return found
