"""Processes of a gloo group against one process: the loss of a tensor-parallel layer, reductions, scans, and DTensors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
from rank_gradients import assert_close, check_gradients, check_second_gradients, gradients, second_gradients
from rank_placements import FEW, placed
from torch_ranks import on_ranks, same

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda import distributed

if dist.is_available():
    pass

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
        assert message == "reduce_sum: other extents of x is [3] on rank 1, wants [2], as on rank 0"


def layers(rank: int, size: int) -> None:
    """What DTensors, FSDP and autocast make of the loss equals that of one process; what is wrong on one rank is said on all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from numba_baracuda.torch import distributed as sharded

    x, w, b, target = problem(torch.float32)
    mesh, group, own = init_device_mesh("cpu", (size,)), dist.group.WORLD, slice(ENDS[rank], ENDS[rank + 1])
    factors = torch.linspace(0.5, 2, CLASSES)
    for reduction in ("mean", "none"):
        given = [each.clone().requires_grad_() for each in (x, w, b)]
        loss = nbt.linear_cross_entropy(*given[:2], target, linear_bias=given[2], weight=factors, reduction=reduction)
        loss.sum().backward()
        for classes in (Replicate(), Shard(0)):
            for rows in (Replicate(), Shard(0)):
                placed = [distribute_tensor(each, mesh, [at]).requires_grad_() for each, at in zip((x, w, b), (rows, classes, classes), strict=True)]
                ids, by_class = distribute_tensor(target, mesh, [rows]), distribute_tensor(factors, mesh, [Replicate()])
                made = nbt.linear_cross_entropy(*placed[:2], ids, linear_bias=placed[2], weight=by_class, reduction=reduction)
                mine = made.to_local() if hasattr(made, "to_local") else made
                assert_close(mine.detach(), loss.detach().chunk(size)[rank] if made is mine else loss.detach(), torch.float32)
                made.sum().backward()
                for each, right in zip(placed, given, strict=True):
                    assert_close(each.grad.full_tensor(), right.grad, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        made = sharded.linear_cross_entropy(x.bfloat16(), w[own], target, group=group)
    assert_close(made, nbt.linear_cross_entropy(x.bfloat16(), w.bfloat16(), target), torch.bfloat16)
    check_fully_sharded(x, target)
    parts = distribute_tensor(x, mesh, [Shard(0)])
    refused: list[tuple[Any, Any, str]] = [
        (
            lambda new: distributed.reduce_sum(x.clone().requires_grad_(rank == 1), 0, group=new),
            nb.Unsupported,
            r"\.torch\.distributed\.reduce_sum, w",
        ),
        (lambda new: sharded.linear_cross_entropy(x, w if rank - 1 else None, target, group=new), nb.InvalidProblem, "linear_weight is a NoneType"),
        (lambda new: sharded.unsorted_segment_sum(x if rank - 1 else x.to_sparse(), target, 4, group=new), nb.Unsupported, "input is .* layout"),
    ]
    for call, error, message in refused:
        new = dist.new_group()  # ranks have not agreed on a call yet
        with pytest.raises(error, match=("^" if rank == 1 else "^rank 1: ") + f".*{message}"):
            call(new)
    with pytest.raises(nb.Unsupported, match=r"x is a torch DTensor without memory of its own, wants .* x\.to_local"):
        distributed.reduce_max(parts, 0, group=group)


def check_fully_sharded(x: Any, target: Any) -> None:
    """A head that FSDP shards gives all ranks the loss and the gradient of one that is whole."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        return
    losses, slopes = [], []
    for wrap in (lambda module: module, fsdp.fully_shard):
        torch.manual_seed(0)
        head = wrap(nbt.FusedLinearCrossEntropyLoss(WIDTH, CLASSES))
        loss = head(x, target)
        loss.backward()
        losses.append(loss.detach())
        slopes.append(head.linear.weight.grad)
    assert_close(losses[1], losses[0], torch.float32)
    assert_close(slopes[1].full_tensor(), slopes[0], torch.float32)


def log_probs(rank: int, size: int) -> None:
    """Log-probabilities and entropies of classes in parts, and their gradients, equal those of one process."""
    from numba_baracuda.torch import distributed as sharded

    for dtype in (torch.float32, torch.bfloat16):
        x, w, b, target = problem(dtype)
        options: dict[str, Any] = {"temperature": 0.7, "softcap": 3.0, "chunk": 4}
        given = [each.clone().requires_grad_() for each in (x, w, b)]
        right, dy = nbt.linear_log_probs(*given[:2], target, given[2], **options), torch.linspace(-1, 1, ROWS)
        slopes = torch.autograd.grad([each * dy for each in right], given, [torch.ones(ROWS)] * 2)
        for rows in ("replicated", "sharded"):
            mine, own = slice(PARTS[rank], PARTS[rank + 1]) if rows == "sharded" else slice(None), slice(ENDS[rank], ENDS[rank + 1])
            parts = [each.clone().requires_grad_() for each in (x[mine], w[own], b[own])]
            made = sharded.linear_log_probs(*parts[:2], target[mine], parts[2], group=dist.group.WORLD, rows=rows, **options)
            pairs = [(each.detach(), whole.detach()[mine]) for each, whole in zip(made, right, strict=True)]
            found = torch.autograd.grad([each * dy[mine] for each in made], parts, [torch.ones_like(made[0])] * 2)
            pairs += [(each, whole[at]) for each, whole, at in zip(found, slopes, (mine, own, own), strict=True)]
            for each, part in pairs:
                assert each.shape == part.shape
                if part.numel():
                    assert_close(each, part, dtype)
        x.requires_grad_()
        only = sharded.linear_log_probs(x, w[own], target, group=dist.group.WORLD)[1].sum()  # gradients of one result alone
        whole = nbt.linear_log_probs(x, w, target)[1].sum()
        assert_close(*(torch.autograd.grad(each, x)[0] for each in (only, whole)), dtype)


def test_log_probs_of_three_processes() -> None:
    on_ranks(3, log_probs)


def test_layers_of_three_processes() -> None:
    on_ranks(3, layers)


TWICE = ("reduce_logsumexp", "cumsum", "segment_norm2", "unsorted_segment_softmax")


def few(rank: int, size: int) -> dict[str, Any]:
    return gradients(FEW, dist.group.WORLD, rank, size)


def test_gradients_of_three_processes() -> None:
    check_gradients(FEW, on_ranks(3, few))


def twice(rank: int, size: int) -> dict[str, Any]:
    return second_gradients(TWICE, dist.group.WORLD, rank, size)


def test_gradients_of_gradients_of_three_processes() -> None:
    check_second_gradients(TWICE, on_ranks(3, twice))


def test_placements() -> None:
    on_ranks(3, placed)
