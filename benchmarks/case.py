"""What a case is: a problem that is checked, timed and compared with peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numba_baracuda.core.dtypes import BY_NAME

from .checks import Truth

Arrays = dict[str, Any]
#: from one set of operands to the call that is timed, which puts an output that it makes among them
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
        """Of the values."""

    @property
    def segments(self) -> int:
        """How many there are; 0 for what knows none."""

    @property
    def indexed(self) -> bool:
        """Whether the ids come sorted, with their permutation, before the clock starts."""

    @property
    def specs(self) -> dict[str, Spec]:
        """The operands in the op's order."""

    @property
    def moved(self) -> dict[str, Spec]:
        """What must be read or written, each once."""

    def tiny(self) -> Case:
        """The same case small enough for the emulator."""

    def make(self, xp: Any) -> Arrays:
        """The operands, the same ones every time; outputs are not initialised."""

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        """What is right, the output among the operands for its shape only."""

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        """Who runs it, by name, and how: through the public API, with ``out=`` and ``workspace=`` given."""


def nbytes(case: Case) -> int:
    """What a case must move."""
    return sum(spec.nbytes for spec in case.moved.values())


def output_of(case: Case) -> str:
    """The name of what it computes."""
    return next(name for name, spec in case.specs.items() if spec.output)


def short(number: int) -> str:
    """``2M``, ``7.3M``, ``100k``, ``37``."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + name
    return str(number)
