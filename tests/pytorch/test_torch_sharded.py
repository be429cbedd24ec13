"""Gradients of operands that are divided among ranks, which are threads, against those of one process."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

if not torch.distributed.is_available():
    pytest.skip("torch has no distributed", allow_module_level=True)

from rank_gradients import check_gradients, gradients, parts, ways

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda import distributed
from numba_baracuda.torch import distributed as sharded_ops
from numba_baracuda.torch.sharded import DIFFERENTIABLE


def test_every_gradient_of_the_table_is_there() -> None:
    forward = [name for name, op in nb.OPS.items() if op.backward and op.family in ("reduce", "scan", "segment")]
    assert {*forward} - {*DIFFERENTIABLE} == {"reduce_prod"}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_threads(name: str) -> None:
    for size in (1, 3, 8):
        made = distributed.InProcessCommunicator.run(size, lambda comm: gradients([name], comm, comm.rank, comm.size))
        for each in made:
            if isinstance(each, BaseException):
                raise each
        check_gradients([name], made)


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
