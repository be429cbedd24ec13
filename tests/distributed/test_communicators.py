"""Communicators of threads and of gloo: what collectives give, and what ranks are told that disagree."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda.distributed import InProcessCommunicator, communicator
from numba_baracuda.distributed.agreement import Call, agree


@pytest.mark.parametrize("size", [1, 3, 8, 64])
def test_collectives_are_in_the_order_of_ranks(size: int) -> None:
    def work(comm: InProcessCommunicator) -> tuple[Any, ...]:
        mine = np.array([comm.rank, 10.0 * comm.rank], np.float32)
        rows = np.arange(size * 2, dtype=np.float32).reshape(size, 2)
        return comm.all_gather(mine).wait(), comm.all_reduce(mine.copy()).wait(), comm.reduce_scatter(rows).wait(), comm.exchange(str(comm.rank))

    every = np.arange(size, dtype=np.float32)
    for rank, (gathered, total, row, texts) in enumerate(InProcessCommunicator.run(size, work)):
        assert np.array_equal(gathered, np.stack([every, 10 * every], 1))
        assert np.array_equal(total, [every.sum(), 10 * every.sum()])
        assert np.array_equal(row, size * np.array([2.0 * rank, 2 * rank + 1]))
        assert texts == [str(each) for each in range(size)]


def test_other_collectives_are_refused_on_every_rank() -> None:
    results = InProcessCommunicator.run(3, lambda comm: comm.all_gather(np.zeros(2 + (comm.rank == 1), np.float32)).wait())
    for failure in results:
        assert isinstance(failure, nb.InvalidProblem)
        assert str(failure) == "all_gather: rank 1 calls all_gather of float32[3], wants all_gather of float32[2], as rank 0"


def test_a_rank_that_never_comes_breaks_the_barrier() -> None:
    results = InProcessCommunicator.run(2, lambda comm: comm.rank or comm.exchange("here"), timeout=0.2)
    assert isinstance(results[0], threading.BrokenBarrierError) and results[1] == 1


def test_ranks_agree_once_for_each_class_of_calls() -> None:
    def work(comm: InProcessCommunicator) -> list[Any]:
        described = []

        def describe() -> Call:
            described.append(comm.rank)
            return Call({"dtype": "float32"}, comm.rank)

        return [agree("an_op", comm, "class", describe) for _ in range(3)] + described

    for rank, (first, second, third, *described) in enumerate(InProcessCommunicator.run(3, work)):
        assert first == second == third == [0, 1, 2] and described == [rank]


def test_every_rank_is_told_who_disagrees() -> None:
    def work(comm: InProcessCommunicator) -> Any:
        return agree("an_op", comm, None, lambda: Call({"dtype": "float32", "h": 4 + (comm.rank == 2)}))

    for failure in InProcessCommunicator.run(3, work):
        assert isinstance(failure, nb.InvalidProblem) and str(failure) == "an_op: h is 5 on rank 2, wants 4, as on rank 0"


def test_every_rank_is_told_what_another_raises() -> None:
    def describe(rank: int) -> Call:
        if rank == 1:
            raise nb.Unsupported("an_op: input is int8[2], wants floats")
        return Call({})

    results = InProcessCommunicator.run(3, lambda comm: agree("an_op", comm, None, lambda: describe(comm.rank)))
    assert all(isinstance(failure, nb.Unsupported) for failure in results)
    assert [str(failure) for failure in results] == [f"{'' if rank == 1 else 'rank 1: '}an_op: input is int8[2], wants floats" for rank in range(3)]


def test_no_communicator() -> None:
    with pytest.raises(nb.InvalidProblem, match=r"an_op: group is 3, wants a communicator, a torch ProcessGroup"):
        communicator("an_op", 3)
