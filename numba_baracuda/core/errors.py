"""Status codes and the exceptions they stand for.

Every exception of the package is a :class:`BaracudaError` and also the Python built-in that a caller would catch without knowing the package.
A message names the op, the argument, what it got and what it wants.
"""

from __future__ import annotations

import copyreg
import enum
from typing import Any


class Status(enum.IntEnum):
    """Outcome of a plan, as the numbers a C interface would return."""

    OK = 0
    MISALIGNED_OPERAND = 1
    INVALID_PROBLEM = 2
    UNSUPPORTED = 3
    WORKSPACE_TOO_SMALL = 4
    LAUNCH_FAILURE = 5


class BaracudaError(Exception):
    """Base of everything the package raises on purpose."""

    status = Status.LAUNCH_FAILURE

    def __reduce__(self) -> tuple[Any, ...]:
        """The message and the attributes as they are: a constructor that writes the message takes other arguments."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidProblem(BaracudaError, ValueError):
    """Shapes, dtypes or values of the arguments contradict each other or the descriptor."""

    status = Status.INVALID_PROBLEM


class WrongArguments(InvalidProblem, TypeError):
    """A call lacks an argument, or has one that the function does not know."""


class Unsupported(BaracudaError, NotImplementedError):
    """The request makes sense but no kernel here serves it."""

    status = Status.UNSUPPORTED


class OutOfMemory(BaracudaError, MemoryError):
    """The host has no memory for a result or scratch of the CPU emulator; of device memory each framework raises its own error."""


class MisalignedOperand(BaracudaError, ValueError):
    """An operand does not start at a multiple of its element size."""

    status = Status.MISALIGNED_OPERAND


class _TooSmall(BaracudaError, ValueError):
    """Base of the two errors that carry a wanted and a given size."""

    unit = "elements"

    def __init__(self, where: str, needed: int, got: int) -> None:
        super().__init__(f"{where} holds {got} {self.unit}, wants {needed}")
        self.needed = needed
        self.got = got


class WorkspaceTooSmall(_TooSmall):
    """``workspace=`` has fewer bytes than ``plan.workspace_size``."""

    status = Status.WORKSPACE_TOO_SMALL
    unit = "bytes"


class BufferTooSmall(_TooSmall):
    """An operand's memory is shorter than the span its shape and strides reach."""

    status = Status.INVALID_PROBLEM


class KernelLaunchError(BaracudaError, RuntimeError):
    """The CUDA driver refused a call; ``code`` is its ``CUresult``."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


_BY_STATUS: dict[Status, type[BaracudaError]] = {
    Status.MISALIGNED_OPERAND: MisalignedOperand,
    Status.INVALID_PROBLEM: InvalidProblem,
    Status.UNSUPPORTED: Unsupported,
    Status.WORKSPACE_TOO_SMALL: WorkspaceTooSmall,
    Status.LAUNCH_FAILURE: KernelLaunchError,
}


def exception_for(status: Status) -> type[BaracudaError]:
    """The exception class that stands for a status other than ``OK``."""
    return _BY_STATUS[Status(status)]
