"""The launches of a plan one by one, for programs that start the kernels themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import allocation, spans
from ..arrays.views import ArrayType, View
from ..core.dtypes import numpy_dtype
from ..core.errors import Unsupported
from ..core.op import NULL, Clear, Launch, Slot, Sort, Step, Verify
from ..core.spec import arrange
from ..runtime import jit
from .frames import Bound


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel of a plan: ``kernel[grid, block, stream, shared](*arguments)`` launches it by numba, and so does a call of this object.

    ``grid`` is in blocks, ``block`` in threads, ``shared`` in bytes of dynamic shared memory. ``kernel.parameters`` names the arguments. An array is
    given as a 1-D C-contiguous array from its first element to its last; numbers have the type that the kernel declares.
    """

    kernel: Any
    grid: int
    block: int
    shared: int
    arguments: tuple[Any, ...]
    emulated: bool

    def __call__(self, stream: Any = 0) -> None:
        if self.emulated:
            from ..emulator import emulator

            emulator.run(self.kernel.py_func, self.kernel.types, self.grid, self.block, self.arguments, dynamic_shared=self.shared)
        else:
            self.kernel[self.grid, self.block, stream, self.shared](*self.arguments)

    def __repr__(self) -> str:
        return f"KernelLaunch({self.kernel.__name__}[{self.grid}, {self.block}, 0, {self.shared}])"


@dataclass(frozen=True)
class LibraryStep:
    """A step of a plan that is no kernel of this package: ``what`` describes it; a call with a stream's handle runs it."""

    what: str
    run: Callable[[int], None]

    def __call__(self, stream: int = 0) -> None:
        self.run(stream)

    def __repr__(self) -> str:
        return f"LibraryStep({self.what})"


class _Flat:
    """Device memory as a 1-D C-contiguous array."""

    def __init__(self, ptr: int, count: int, dtype: np.dtype[Any], owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {"data": (ptr, False), "shape": (count,), "typestr": dtype.str, "strides": None, "version": 3}


def _elements(view: View) -> int:
    """The number of elements from the first in memory to the last."""
    block = spans.blocks(view)
    if block.low < 0:
        raise Unsupported(
            f"launches: {view.name} has strides {list(view.strides)}, wants none below 0, since a kernel's array begins at its first element"
        )
    return block.high // view.type.itemsize


def _flat(view: View, declared: Any) -> Any:
    """A view's memory as a 1-D array of the element type that a kernel declares."""
    dtype = np.dtype(str(declared))
    if view.device < 0:
        array = np.lib.stride_tricks.as_strided(allocation.in_host(view.owner), (_elements(view),), (view.itemsize,), writeable=not view.readonly)
        return array.view(dtype)
    from numba import cuda

    return cuda.as_cuda_array(_Flat(view.ptr, _elements(view), dtype, view.owner), sync=False)


def _number(value: Any, declared: Any) -> Any:
    """A number, or a tuple of them, of the type that a kernel declares."""
    if isinstance(value, tuple):
        return tuple(_number(each, declared.dtype) for each in value)
    return np.dtype(str(declared)).type(value)


def _slots(slots: Sequence[Slot], workspace: View | None, like: View) -> dict[str, View]:
    """The slots of a workspace as arrays."""
    found, offset = {}, 0
    for slot in slots:
        of_type = ArrayType.of(slot.element, 1, like.device, like.kind, False)
        if workspace is not None:
            owner = workspace.owner
            if like.device < 0:
                nbytes = slot.count * of_type.itemsize
                owner = owner.reshape(-1).view(np.uint8)[offset : offset + nbytes].view(numpy_dtype(slot.element))
            found[slot.name] = View(workspace.ptr + offset, (slot.count,), (1,), of_type, owner, slot.name)
        offset += slot.nbytes
    return found


def launches(bound: Bound, views: Sequence[View], stream: int) -> list[KernelLaunch | LibraryStep]:
    """The steps of a recipe for these operands, in order, with scratch of their own, which is allocated on ``stream``."""
    recipe, like = bound.recipe, views[0]
    workspace = allocation.scratch(like, bound.workspace, stream) if bound.workspace else None
    nothing = _slots([Slot(NULL, "u8", 16)], allocation.scratch(like, 16, stream), like)
    arrays = {view.name: view for view in views} | _slots(recipe.slots, workspace, like) | nothing
    made: list[KernelLaunch | LibraryStep] = []
    for k, step in enumerate(recipe.steps):
        if not isinstance(step, Launch):
            made.append(LibraryStep(_described(step), _alone(bound, k, [*views], workspace)))
            continue
        (blocks, threads, shared), kernel = step.config, jit.resolve(step.spec)
        pointers, scalars = arrange(step.spec.kernel, kernel.parameters, step.arguments, bound.frame.elements)
        given = [_flat(arrays[name], ty.dtype) for name, ty in zip(pointers, kernel.types, strict=False)]
        numbers = [_number(value, ty) for value, ty in zip(scalars, kernel.types[len(pointers) :], strict=True)]
        if blocks:
            made.append(KernelLaunch(kernel, blocks, threads, shared, (*given, *numbers), bound.frame.device < 0))
    return made


def _alone(bound: Bound, k: int, views: list[View], workspace: View | None) -> Callable[[int], None]:
    """One step of a recipe as a function of the stream."""
    if bound.frame.device < 0:
        emulated, owners = bound.emulated(), [view.owner for view in views]
        return lambda stream: emulated.step(emulated.recipe.steps[k], emulated.memories(owners, workspace, written=True))
    return bound.ready([view.ptr for view in views], workspace)[k]


def _described(step: Step) -> str:
    if isinstance(step, Clear):
        return f"set {step.slot}"
    if isinstance(step, Sort):
        return f"sort {step.keys}"
    return f"check {step.slot}" if isinstance(step, Verify) else "multiply matrices"
