"""Gradients of ops whose operands are divided among ranks, of a rank's own part, against those of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_ranks import same

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.core.dtypes import element

ROWS, TERMS = 7, 40


def assert_close(mine: Any, wanted: Any, dtype: Any) -> None:
    """Within the tolerance of sums of 40 terms of elements of this dtype, scaled by the greatest of what is wanted."""
    kind = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64"}[dtype]
    allowed = element(kind).tolerance(TERMS) * max(float(wanted.abs().max()), 1.0)
    assert mine.shape == wanted.shape and float((mine.double() - wanted.double()).abs().max()) <= 4 * allowed


def parts(size: int) -> tuple[int, ...]:
    """Ends of the rows of each rank."""
    return {1: (0, 7), 2: (0, 3, 7), 3: (0, 3, 3, 7), 8: (0, 0, 1, 1, 3, 4, 6, 7, 7), 64: (*range(8), *[7] * 57)}[size]


def gradients(names: Sequence[str], group: Any, rank: int, size: int, device: Any = "cpu") -> dict[str, Any]:
    """The gradients of ops of this rank's part, by name and options."""
    from numba_baracuda.torch import distributed as sharded

    found, own, most = {}, slice(*parts(size)[rank : rank + 2]), -(-4 // size)
    for name in names:
        for options in ways(name):
            x, dy, given = graded(name, device)
            part, kind = x[own].clone().requires_grad_(), family(name)
            mine = [each[own].clone() if isinstance(each, torch.Tensor) else each for each in given]
            y = getattr(sharded, name)(part, *mine, group=group, **options)
            (made,) = torch.autograd.grad(y, part, dy[own] if kind in ("scan", "rows") else dy)
            found[name, str(options)] = made
            if kind in ("segment", "rows"):
                index = nb.SegmentIndex(mine[0], mine[1])
                prepared = getattr(sharded, name)(part, index, group=group)
                torch.testing.assert_close(torch.autograd.grad(prepared, part, dy[own] if kind == "rows" else dy)[0], made, rtol=1e-5, atol=1e-5)
            if kind == "segment":
                shared = getattr(sharded, name)(part, *mine, group=group, result="sharded")
                assert same(shared.detach(), y.detach()[rank * most : (rank + 1) * most])
                assert same(torch.autograd.grad(shared, part, dy[rank * most : (rank + 1) * most])[0], made)
    return found


def second_gradients(names: Sequence[str], group: Any, rank: int, size: int) -> dict[str, Any]:
    """The gradients, of this rank's part of x and of what it has of dy, of the gradients of ops, by name and options."""
    from numba_baracuda.torch import distributed as sharded

    found, own, most = {}, slice(*parts(size)[rank : rank + 2]), -(-4 // size)
    for name in names:
        for options in ways(name):
            x, dy, given, weights = twice_graded(name)
            part, kind = x[own].clone().requires_grad_(), family(name)
            mine = [each[own].clone() if isinstance(each, torch.Tensor) else each for each in given]
            for result in ("replicated", "sharded") if kind == "segment" else ("",):
                at = own if kind in ("scan", "rows") else slice(rank * most, (rank + 1) * most) if result == "sharded" else slice(None)
                upstream = dy[at].clone().requires_grad_()
                chosen = {"result": result} if result else {}
                y = getattr(sharded, name)(part, *mine, group=group, **options, **chosen).clamp(-100)  # logsumexp of no rows is −∞
                (slope,) = torch.autograd.grad((y * y * upstream).sum(), part, create_graph=True)
                found[name, str(options), result] = torch.autograd.grad((slope * weights[own]).sum(), (part, upstream))
    return found


def check_second_gradients(names: Sequence[str], made: list[dict[str, Any]]) -> None:
    """They are those of one process."""
    for name in names:
        for options in ways(name):
            x, dy, given, weights = twice_graded(name)
            one, upstream = x.requires_grad_(), dy.requires_grad_()
            y = getattr(nbt, name)(one, *given, **options).clamp(-100)
            (slope,) = torch.autograd.grad((y * y * upstream.reshape(y.shape)).sum(), one, create_graph=True)
            right = torch.autograd.grad((slope * weights).sum(), (one, upstream))
            for result in {key[2] for key in made[0] if key[:2] == (name, str(options))}:
                of_x, of_dy = zip(*(each[name, str(options), result] for each in made), strict=True)
                assert_close(torch.cat(of_x), right[0], torch.float64)
                if family(name) in ("scan", "rows") or result == "sharded":
                    assert_close(torch.cat(of_dy), right[1], torch.float64)
                else:
                    assert all(same(each, of_dy[0]) for each in of_dy)
                    assert_close(of_dy[0], right[1], torch.float64)


def twice_graded(name: str) -> tuple[Any, Any, tuple[Any, ...], Any]:
    """:func:`graded` in float64, and the gradient of the gradient."""
    x, dy, given = graded(name)
    return x.double(), dy.double(), given, torch.randn(x.shape, generator=torch.Generator().manual_seed(8)).double()


def family(name: str) -> str:
    """What an op is to the tests: "reduce", "scan", "segment", or "rows" for one of segments that gives rows."""
    op = nb.OPS[name]
    return "rows" if op.family == "segment" and op.operands[-1].axes[0] == "num_inputs" else op.family


def ways(name: str) -> list[dict[str, Any]]:
    """Options that change the gradient."""
    return [{}, {"reverse": True}, {"exclusive": True}] if family(name) == "scan" else [{}]


def graded(name: str, device: Any = "cpu") -> tuple[Any, Any, tuple[Any, ...]]:
    """Input, upstream gradient, and what the op is given besides: an axis, or ids, of which some are out of range, and the number of segments."""
    draw, kind = torch.Generator().manual_seed(7), family(name)
    ids = torch.tensor([3, 0, -1, 3, 3, 0, 4])
    x = torch.randn(ROWS, 3, generator=draw).round(decimals=1)
    x[0, 0] = x[6, 0] = x[3, 0] = x[4, 0] = 9.0  # ties between ranks and within one
    x[1, 1] = x[5, 2] = 0.0  # factors of a product
    rows = {"reduce": 1, "segment": 4}.get(kind, ROWS)
    ids = (ids if "unsorted" in name else ids.sort()[0]).to(device)
    return x.to(device), torch.randn(rows, 3, generator=draw).to(device), (0,) if kind in ("reduce", "scan") else (ids, 4)


def check_gradients(names: Sequence[str], made: list[dict[str, Any]], device: Any = "cpu") -> None:
    """They are those of one process."""
    for name in names:
        for options in ways(name):
            x, dy, given = graded(name, device)
            x.requires_grad_()
            y = getattr(nbt, name)(x, *given, **options)
            (right,) = torch.autograd.grad(y, x, dy.reshape(y.shape))
            assert_close(torch.cat([each[name, str(options)] for each in made]), right.cpu(), torch.float32)
