"""What a case is: a problem that is checked, timed and compared with peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numba_baracuda.core.dtypes import BY_NAME

from .checks import Truth

Arrays = dict[str, Any]
#: operands -> the call that is timed, which adds an output that it makes to the operands
Bind = Callable[[Arrays], Callable[[], None]]


@dataclass(frozen=True)
class Spec:
    """An operand before it is made."""

    shape: tuple[int, ...]
    element: str
    output: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * BY_NAME[self.element].itemsize


class Case(Protocol):
    """A problem to measure."""

    @property
    def op(self) -> str:
        """Name in ``OPS``, or of the kernel."""

    @property
    def id(self) -> str:
        """Unique among the cases of the op."""

    @property
    def element(self) -> str:
        """Short name of the dtype of the values."""

    @property
    def segments(self) -> int:
        """The number of segments; 0 for ops without segments."""

    @property
    def indexed(self) -> bool:
        """Whether the ids come sorted, with their permutation, before the clock starts."""

    @property
    def specs(self) -> dict[str, Spec]:
        """The operands in the op's order."""

    @property
    def moved(self) -> dict[str, Spec]:
        """The operands that must be read or written, each once."""

    def tiny(self) -> Case:
        """The same case small enough for the emulator."""

    def make(self, xp: Any) -> Arrays:
        """The operands, the same ones every time; outputs are not initialised."""

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        """The truth; of the output only the shape is used."""

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        """The kernel's name, and the function that makes the timed call by the public API.

        With ``out=``, and without ``workspace=``, as most programs call it: small workspaces are then memory that the stream keeps.
        """


def nbytes(case: Case) -> int:
    """Bytes that a case must read or write."""
    return sum(spec.nbytes for spec in case.moved.values())


def output_of(case: Case) -> str:
    """The name of the output."""
    return next(name for name, spec in case.specs.items() if spec.output)


def short(number: int) -> str:
    """``2M``, ``7.3M``, ``100k``, ``37``."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + name
    return str(number)
