"""Gradients of operands that are divided among ranks, which are threads, against those of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

if not torch.distributed.is_available():
    pytest.skip("torch has no distributed", allow_module_level=True)

from rank_gradients import check_gradients, check_second_gradients, gradients, parts, second_gradients, ways

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda import distributed
from numba_baracuda.torch import distributed as sharded_ops
from numba_baracuda.torch.operators import stem_of
from numba_baracuda.torch.second import RULES
from numba_baracuda.torch.sharded import FUNCTIONS

DIFFERENTIABLE = [name for name in FUNCTIONS if nb.OPS[name].backward]


def on_threads(size: int, work: Callable[[Any], Any]) -> list[Any]:
    """What each of ``size`` ranks makes; raises what one raises."""
    made = distributed.InProcessCommunicator.run(size, work)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


def test_every_gradient_of_the_table_is_there() -> None:
    assert {*DIFFERENTIABLE} == {name for name, op in nb.OPS.items() if op.backward and op.family in ("reduce", "scan", "segment")}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_threads(name: str) -> None:
    for size in (1, 3, 8):
        check_gradients([name], on_threads(size, lambda comm: gradients([name], comm, comm.rank, comm.size)))


TWICE = [name for name in DIFFERENTIABLE if stem_of(name) in RULES]


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients(name: str) -> None:
    for size in (1, 3, 8):
        made = on_threads(size, lambda comm: second_gradients([name], comm, comm.rank, comm.size))
        check_second_gradients([name], made)


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name not in TWICE])
def test_others_are_differentiable_once(name: str) -> None:
    stem = stem_of(name)
    for failure in distributed.InProcessCommunicator.run(3, lambda comm: second_gradients([name], comm, comm.rank, comm.size)):
        assert isinstance(failure, nb.Unsupported)
        assert str(failure).startswith(f"distributed.{nb.OPS[name].backward} has no gradient: {stem} is differentiable once; ")


def test_64_ranks() -> None:
    """Most have nothing."""
    once, twice = ("reduce_prod",), ("reduce_logsumexp",)
    check_gradients(once, on_threads(64, lambda comm: gradients(once, comm, comm.rank, comm.size)))
    check_second_gradients(twice, on_threads(64, lambda comm: second_gradients(twice, comm, comm.rank, comm.size)))


def test_scans_of_infinities_and_zeros() -> None:
    """Products of which a factor is 0 on an earlier rank, extremes among −∞, and sums of exponentials of −∞ alone; the first rank has nothing."""
    x = torch.tensor([2.0, 0.0, 3.0, 5.0, 0.0, 0.5, 4.0])
    low = torch.tensor([-torch.inf, -torch.inf, -torch.inf, 1.0, 1.0, torch.inf, torch.nan])
    dy = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    for name, given in (("cumprod", x), ("cummax", low), ("cummin", -low), ("logcumsumexp", low[:5])):
        for options in ways(name)[:1]:
            one = given.clone().requires_grad_()
            (right,) = torch.autograd.grad(getattr(nbt, name)(one, 0, **options), one, dy[: len(given)])

            def work(comm: Any, name: str = name, given: Any = given, options: Any = options) -> Any:
                own = slice(*parts(8)[comm.rank : comm.rank + 2])
                part = given[own].clone().requires_grad_()
                y = getattr(sharded_ops, name)(part, 0, group=comm, **options)
                return torch.autograd.grad(y, part, dy[: len(given)][own])[0]

            made = distributed.InProcessCommunicator.run(8, work)
            torch.testing.assert_close(torch.cat(made), right, equal_nan=True, msg=lambda text, at=(name, options): f"{at}: {text}")
