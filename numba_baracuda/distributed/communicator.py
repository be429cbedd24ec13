"""What ranks need to exchange arrays: the protocol, and how a group of another library becomes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..arrays.views import lineage
from ..core.errors import InvalidProblem
from ..core.options import refusal


class Pending(NamedTuple):
    """A collective that has been queued. ``wait()`` orders the stream that it was called on behind it, and returns its result."""

    result: Any
    order: Callable[[], Any] = lambda: None

    def wait(self) -> Any:
        """The result; the host does not wait for a GPU."""
        self.order()
        return self.result


@runtime_checkable
class Communicator(Protocol):
    """A group of ``size`` processes, of which this one has number ``rank``. Every rank makes the same calls in the same order.

    Arrays are contiguous, and of one shape and dtype on all ranks. A collective begins when the work that is queued on ``stream``, a handle as ops
    take it, is done. With ``beside``, what is queued there later may run beside it, until ``wait()`` of what is returned. Collectives of one group
    run in order.
    """

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    def exchange(self, text: str) -> list[str]:
        """The text of each rank, of any length; the host waits for all."""

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[size, *x.shape]``: the array of each rank, in the order of ranks, bit by bit."""

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The sum over all ranks, in the dtype of x and in its place."""

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[*x.shape[1:]]``: row ``rank`` of the sum over all ranks of x [size, …]."""


def _of_torch(given: Any) -> Communicator:
    from .torch_group import TorchCommunicator

    return TorchCommunicator(given)


def _of_cupy(given: Any) -> Communicator:
    from .nccl import NcclCommunicator

    return NcclCommunicator(given)


_ADAPTERS: dict[tuple[str, str], Callable[[Any], Communicator]] = {
    ("torch", "ProcessGroup"): _of_torch,
    ("torch", "DeviceMesh"): _of_torch,
    ("cupy_backends", "NcclCommunicator"): _of_cupy,
}
_adapted: dict[int, tuple[Any, Communicator]] = {}


def communicator(op: str, given: Any) -> Communicator:
    """A communicator as it is; that of a torch ``ProcessGroup`` or one-dimensional ``DeviceMesh``, or of a ``cupy.cuda.nccl.NcclCommunicator``."""
    known = _adapted.get(id(given))
    if known is None or known[0] is not given:
        make = next((_ADAPTERS[each] for each in lineage(type(given)) if each in _ADAPTERS), None)
        if make is None and isinstance(given, Communicator):
            return given
        if make is None:
            raise refusal(op, "group", given, "a communicator, a torch ProcessGroup or DeviceMesh, or a cupy.cuda.nccl.NcclCommunicator")
        known = _adapted[id(given)] = given, make(given)
    return known[1]


def part(op: str, comm: Communicator, total: int) -> tuple[int, int]:
    """(first, end) of this rank's part of ``total`` in parts of ⌈total / size⌉, of which the last ones may be smaller or empty."""
    if total < 0:
        raise InvalidProblem(f"{op}: the extent to divide is {total}, wants 0 or more")
    most = -(-total // comm.size)
    return min(comm.rank * most, total), min((comm.rank + 1) * most, total)


class Alone:
    """The communicator of a single process."""

    rank, size = 0, 1

    def exchange(self, text: str) -> list[str]:
        """The text."""
        return [text]

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[1, *x.shape]``: the array."""
        return Pending(x[None])

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The array."""
        return Pending(x)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The only row."""
        return Pending(x[0])
