"""Processes of a gloo group against one process: the loss of a tensor-parallel layer, reductions, scans, and DTensors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from torch_ranks import on_ranks, same

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda import distributed
from numba_baracuda.core.dtypes import element

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch has no distributed")
ROWS, WIDTH, CLASSES = 7, 4, 40
#: ends of the classes of three ranks, uneven and one of them empty, and of rows
ENDS, PARTS = (0, 23, 23, 40), (0, 3, 3, 7)
OPTIONS: dict[str, Any] = {"label_smoothing": 0.1, "lse_square_scale": 1e-3, "softcap": 4.0, "logit_scale": 1.25, "chunk": 4}


def problem(dtype: Any) -> tuple[Any, ...]:
    draw = torch.Generator().manual_seed(3)
    x, w, b = (torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype) for shape in ((ROWS, WIDTH), (CLASSES, WIDTH), (CLASSES,)))
    return x, w, b, torch.tensor([0, 39, -100, 22, 23, CLASSES, 3])


def losses(rank: int, size: int) -> dict[str, Any]:
    """Losses and gradients of a rank, by dtype and way."""
    from numba_baracuda.torch.distributed import linear_cross_entropy

    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        for rows in ("replicated", "sharded"):
            for reduction in ("mean", "none"):
                x, w, b, target = problem(dtype)
                mine = slice(PARTS[rank], PARTS[rank + 1]) if rows == "sharded" else slice(None)
                own = slice(ENDS[rank], ENDS[rank + 1])
                given = [each.clone().requires_grad_() for each in (x[mine], w[own], b[own])]
                both = []
                for _ in range(2):
                    ways = OPTIONS | {"linear_bias": given[2], "group": dist.group.WORLD, "rows": rows, "reduction": reduction}
                    loss = linear_cross_entropy(*given[:2], target[mine], **ways)
                    both.append((loss.detach(), *torch.autograd.grad(loss.sum() * 0.5, given)))
                assert all(same(a, b) for a, b in zip(*both, strict=True)), "two runs have not the same bits"
                found[f"{dtype} {rows} {reduction}"] = both[0]
    return found


def assert_close(mine: Any, wanted: Any, dtype: Any) -> None:
    """Within the tolerance of sums of 40 terms of elements of this dtype, scaled by the greatest of what is wanted."""
    allowed = element({torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]).tolerance(CLASSES) * max(float(wanted.abs().max()), 1.0)
    assert mine.shape == wanted.shape and float((mine.double() - wanted.double()).abs().max()) <= 4 * allowed


def test_three_processes_equal_one() -> None:
    """Loss and gradients in float32 and bfloat16, of rows that all ranks have and of parts of them, the same bits in every run."""
    made = on_ranks(3, losses)
    for dtype in (torch.float32, torch.bfloat16):
        for reduction in ("mean", "none"):
            x, w, b, target = problem(dtype)
            given = [each.requires_grad_() for each in (x, w, b)]
            loss = nbt.linear_cross_entropy(x, w, target, linear_bias=b, reduction=reduction, **OPTIONS)
            right = [loss.detach(), *torch.autograd.grad(loss.sum() * 0.5, given)]
            for rows in ("replicated", "sharded"):
                ranks = [each[f"{dtype} {rows} {reduction}"] for each in made]
                for k in (2, 3):
                    assert_close(torch.cat([each[k] for each in ranks]), right[k], dtype)
                for k in (0, 1):
                    parts = rows == "sharded" and (k == 1 or reduction == "none")
                    for each in ranks[:1] if parts else ranks:
                        assert_close(torch.cat([each[k] for each in ranks]) if parts else each[k], right[k], dtype)
                    assert parts or all(same(each[k], ranks[0][k]) for each in ranks)


def others(rank: int, size: int) -> tuple[Any, ...]:
    """A reduction, a scan, a layer of DTensors, and what a rank is told that disagrees."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from numba_baracuda.torch import distributed as sharded
    from numba_baracuda.torch.distributed import linear_cross_entropy

    x, w, _, target = problem(torch.float32)
    own, mesh = slice(PARTS[rank], PARTS[rank + 1]), init_device_mesh("cpu", (size,))
    variance = distributed.reduce_var(x[own].clone(), 0, group=mesh)
    scanned = distributed.cumsum(x[own].clone(), 0, group=mesh)
    weight, inputs = distribute_tensor(w, mesh, [Shard(0)]).requires_grad_(), distribute_tensor(x, mesh, [Replicate()]).requires_grad_()
    loss = linear_cross_entropy(inputs, weight, target)
    loss.backward()
    rows, ids = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_(), distribute_tensor(target % 3, mesh, [Shard(0)])
    for result in ("replicated", "sharded"):
        sums = sharded.unsorted_segment_sum(rows, ids, 4, result=result)
        right = nbt.unsorted_segment_sum(x, target % 3, 4)
        assert torch.allclose(sums.full_tensor(), right, atol=1e-6)
        (spread,) = torch.autograd.grad((sums * sums).sum(), rows)
        assert torch.allclose(spread.full_tensor(), 2 * right[target % 3], atol=1e-5)
    try:
        distributed.reduce_sum(x[:, : 2 + rank].clone(), 0, group=mesh)
        message = ""
    except nb.InvalidProblem as error:
        message = str(error)
    return variance, scanned, loss.to_local().detach(), weight.grad.full_tensor(), inputs.grad.full_tensor(), message


def test_reductions_scans_and_dtensors() -> None:
    made = on_ranks(3, others)
    x, w, _, target = problem(torch.float32)
    given = [x.requires_grad_(), w.requires_grad_()]
    loss = nbt.linear_cross_entropy(x, w, target)
    right = [loss.detach(), *torch.autograd.grad(loss, given)]
    assert_close(torch.cat([each[1] for each in made]), x.detach().cumsum(0), torch.float32)
    for variance, _, mine, grad_weight, grad_input, message in made:
        assert_close(variance, x.detach().var(0, keepdim=True), torch.float32)
        assert_close(mine, right[0], torch.float32)
        assert_close(grad_input, right[1], torch.float32)
        assert_close(grad_weight, right[2], torch.float32)
        assert message == "reduce_sum: other extents is [3] on rank 1, wants [2], as on rank 0"


def gradients(rank: int, size: int) -> dict[str, Any]:
    """The gradient of each op with one, of this rank's part, by name and options."""
    from numba_baracuda.torch import distributed as sharded
    from numba_baracuda.torch.sharded import DIFFERENTIABLE

    found, own, group = {}, slice(PARTS[rank], PARTS[rank + 1]), dist.group.WORLD
    for name in DIFFERENTIABLE:
        for options in ways(name):
            x, dy, given = graded(name)
            part, kind = x[own].clone().requires_grad_(), family(name)
            mine = [each[own].clone() if isinstance(each, torch.Tensor) else each for each in given]
            y = getattr(sharded, name)(part, *mine, group=group, **options)
            (found[name, str(options)],) = torch.autograd.grad(y, part, dy[own] if kind in ("scan", "rows") else dy, retain_graph=True)
            if kind == "segment":
                shared = getattr(sharded, name)(part, *mine, group=group, result="sharded")
                assert same(shared, y[rank * 2 : rank * 2 + 2])
                assert same(torch.autograd.grad(shared, part, dy[rank * 2 : rank * 2 + 2])[0], found[name, str(options)])
    return found


def family(name: str) -> str:
    """What an op is to the tests: "reduce", "scan", "segment", or "rows" for one of segments that gives rows."""
    op = nb.OPS[name]
    return "rows" if op.family == "segment" and op.operands[-1].axes[0] == "num_inputs" else op.family


def ways(name: str) -> list[dict[str, Any]]:
    """Options that change the gradient."""
    return [{}, {"reverse": True}, {"exclusive": True}] if family(name) == "scan" else [{}]


def graded(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Input, upstream gradient, and what the op is given besides: an axis, or ids, of which some are out of range, and the number of segments."""
    draw, kind = torch.Generator().manual_seed(7), family(name)
    ids = torch.tensor([3, 0, -1, 3, 3, 0, 4])
    x = torch.randn(ROWS, 3, generator=draw).round(decimals=1)
    x[0, 0] = x[6, 0] = x[3, 0] = x[4, 0] = 9.0  # ties between ranks and within one
    x[1, 1] = x[5, 2] = 0.0  # factors of a product
    rows = {"reduce": 1, "segment": 4}.get(kind, ROWS)
    return x, torch.randn(rows, 3, generator=draw), (0,) if kind in ("reduce", "scan") else (ids if "unsorted" in name else ids.sort()[0], 4)


def test_gradients_are_those_of_one_process() -> None:
    from numba_baracuda.torch.sharded import DIFFERENTIABLE

    made = on_ranks(3, gradients)
    assert {name for name, _ in made[0]} == {*DIFFERENTIABLE} and len(DIFFERENTIABLE) == 8 + 5 + 2 * 11
    for name in DIFFERENTIABLE:
        for options in ways(name):
            x, dy, given = graded(name)
            x.requires_grad_()
            y = getattr(nbt, name)(x, *given, **options)
            (right,) = torch.autograd.grad(y, x, dy.reshape(y.shape))
            assert_close(torch.cat([each[name, str(options)] for each in made]), right, torch.float32)
