"""A communicator whose ranks are threads of this process: for tests, and to try out more ranks than there are devices."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import allocation, arrays
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from .communicator import Pending


class _Board:
    """Where the ranks of a group put what the others read."""

    def __init__(self, size: int, timeout: float) -> None:
        self.barrier = threading.Barrier(size, timeout=timeout)
        self.given: list[Any] = [None] * size


class InProcessCommunicator:
    """One of ``size`` threads that exchange NumPy arrays or torch tensors in host memory.

    A collective of which a rank calls another one, or with another shape or dtype, raises on every rank. One that a rank does not reach within
    ``timeout`` seconds raises ``threading.BrokenBarrierError`` on those that wait.
    """

    def __init__(self, rank: int, board: _Board) -> None:
        self.rank, self.size, self._board = rank, len(board.given), board

    @classmethod
    def group(cls, size: int, timeout: float = 60.0) -> list[InProcessCommunicator]:
        """The communicators of ``size`` ranks."""
        board = _Board(size, timeout)
        return [cls(rank, board) for rank in range(size)]

    @classmethod
    def run(cls, size: int, work: Callable[[InProcessCommunicator], Any], timeout: float = 60.0) -> list[Any]:
        """What ``work(communicator)`` returns on each of ``size`` ranks, or the exception that it raises there."""
        group, results = cls.group(size, timeout), [None] * size

        def one(comm: InProcessCommunicator) -> None:
            try:
                results[comm.rank] = work(comm)
            except BaseException as failure:
                results[comm.rank] = failure  # type: ignore[call-overload]

        threads = [threading.Thread(target=contextvars.copy_context().run, args=(one, comm)) for comm in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def exchange(self, text: str) -> list[str]:
        """The text of each rank."""
        return self._shown("exchange", text)

    def _exchange(self, name: str, x: Any) -> list[Any]:
        """What each rank gave, as NumPy arrays of their own."""
        view = arrays.view(x, name, "x")
        return self._shown(f"{name} of {BY_NAME[view.element].numpy_name}{list(view.shape)}", np.array(allocation.in_host(x)))

    def _shown(self, call: str, given: Any) -> list[Any]:
        """What each rank gave to the same call."""
        self._board.given[self.rank] = call, given
        self._board.barrier.wait()
        shown = list(self._board.given)
        self._board.barrier.wait()
        for rank, (other, _) in enumerate(shown):
            if other != shown[0][0]:
                raise InvalidProblem(f"{call.partition(' ')[0]}: rank {rank} calls {other}, wants {shown[0][0]}, as rank 0")
        return [each for _, each in shown]

    def _made(self, x: Any, values: Any) -> Any:
        """An array of the kind of x with these values."""
        view = arrays.view(x, "made", "x")
        made = allocation.empty(view, values.shape, view.element, 0)
        allocation.in_host(made)[...] = values
        return made

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """``[size, *x.shape]``: the array of each rank."""
        return Pending(self._made(x, np.stack(self._exchange("all_gather", x))))

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """The sum over all ranks in the order of ranks, in the place of x."""
        allocation.in_host(x)[...] = _sum(self._exchange("all_reduce", x))
        return Pending(x)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> Pending:
        """Row ``rank`` of the sum over all ranks in the order of ranks."""
        return Pending(self._made(x, _sum(self._exchange("reduce_scatter", x))[self.rank]))


def _sum(given: list[Any]) -> Any:
    total = given[0]
    for each in given[1:]:
        total = (total + each).astype(total.dtype)
    return total
