"""A kernel as data: enough to find its machine code in the cache and launch it without importing numba, or else to compile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .dtypes import BY_NAME
from .errors import InvalidProblem
from .sizes import WHOLE, Ratio, plain

#: how the name of a user's monoid begins, whose functions no other process knows
FOREIGN = "user:"
_ROOT = __name__.partition(".")[0]
#: elements that a kernel sees as integers of their size
_SEEN_AS = {"bf16": "u16", "bool": "u8"}


@dataclass(frozen=True)
class KernelSpec:
    """Names one compiled kernel.

    ``factory`` is ``"package.module:function"``; calling it with ``constants`` as keywords gives the Python kernel, whose annotations declare its
    parameters.
    """

    factory: str
    constants: tuple[tuple[str, int | str | bool], ...]
    max_threads: int = 1024  #: most threads a block is launched with
    min_blocks: int = 0  #: resident blocks a multiprocessor should hold; 0 leaves it to the compiler

    @property
    def kernel(self) -> str:
        """Name of the factory, e.g. ``fold_tiles``."""
        return self.factory.partition(":")[2]

    @property
    def name(self) -> str:
        """Readable identity, e.g. ``fold_tiles[monoid=sum,value=f32]``."""
        inner = ",".join(f"{key}={value}" for key, value in self.constants)
        return f"{self.kernel}[{inner}]"

    @property
    def portable(self) -> bool:
        """Whether any process can build the kernel: it is one of the package, and of no monoid of a user."""
        foreign = any(isinstance(value, str) and value.startswith(FOREIGN) for _, value in self.constants)
        return self.factory.partition(".")[0] == _ROOT and not foreign

    @property
    def effort(self) -> int:
        """Greater for a kernel that takes longer to compile, as a rule: one with more constants has more code."""
        return len(self.constants)

    def plain(self) -> KernelSpec:
        """The same where constants may be sizes of a trace: they are pinned."""
        constants = tuple((name, plain(each)) for name, each in self.constants)
        return replace(self, constants=constants, max_threads=plain(self.max_threads), min_blocks=plain(self.min_blocks))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: ``*f32`` is a pointer to float32, ``i64`` a scalar, ``3xi64`` a tuple of three scalars."""

    name: str
    type: str

    @property
    def pointer(self) -> bool:
        return self.type.startswith("*")


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel for one architecture, its parameters, pointers first, and what the linker says of it."""

    entry: str  #: name of the kernel inside the image
    image: bytes
    registers: int
    spills: int  #: bytes stored to and loaded from spill slots
    stack: int  #: bytes of local memory a thread
    shared: int  #: bytes of static shared memory a block
    parameters: tuple[Parameter, ...] = ()


class Bits(str):
    """Names an array whose elements a kernel takes as signed integers of their size."""

    __slots__ = ()


def check_names(kernel: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> None:
    """Raises unless every parameter has an argument, and every argument a parameter."""
    names = [each.name for each in parameters]
    if arguments.keys() != set(names):
        missing, unknown = [name for name in names if name not in arguments], [name for name in arguments if name not in names]
        got = "; ".join(f"{what} {', '.join(which)}" for what, which in (("no", missing), ("unknown", unknown)) if which)
        raise InvalidProblem(f"{kernel}: got {got}, wants {', '.join(f'{each.name}: {each.type}' for each in parameters)}")


def arrange(
    kernel: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any], elements: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Arguments by name in the order of a kernel's parameters: the names of what pointers point to, and the scalars.

    ``elements`` are the element types of the arrays by name; one of "" fits any pointer.
    """
    check_names(kernel, parameters, arguments)
    for each in parameters:
        _check(kernel, each, arguments[each.name], elements)
    pointers = tuple(arguments[each.name] for each in parameters if each.pointer)
    return pointers, tuple(arguments[each.name] for each in parameters if not each.pointer)


def _check(kernel: str, parameter: Parameter, given: Any, elements: Mapping[str, str]) -> None:
    """Raises unless an argument fits its parameter: an array of the element type, a number, or a tuple of so many numbers."""
    element = elements.get(given) if isinstance(given, str) else None
    if parameter.pointer:
        seen = f"i{8 * BY_NAME[element].itemsize}" if element and isinstance(given, Bits) else _SEEN_AS.get(element or "", element)
        fits = element is not None and (not element or seen == parameter.type[1:])
    else:
        count, _, kind = parameter.type.rpartition("x")
        numbers = given if count and isinstance(given, Sequence) else (given,)
        fits = len(numbers) == int(count or 1) and all(isinstance(each, (*WHOLE, float, Ratio) if kind[0] == "f" else WHOLE) for each in numbers)
    if not fits:
        got = f"{given!r} of {element}" if element else repr(given)
        raise InvalidProblem(f"{kernel}: {parameter.name} is {got}, wants {parameter.type}")


def capability_of(arch: str) -> tuple[int, int]:
    """``"sm_90"`` -> ``(9, 0)``."""
    digits = arch.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
