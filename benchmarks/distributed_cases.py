"""Problems of several ranks: what one GPU computes, what all ranks do, and what other packages do with the same parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.distributed import Communicator, part

Call = Callable[[], Any]
Pairs = Callable[[Any, Any], list[tuple[Any, Any]]]


@dataclass(frozen=True)
class Work:
    """A problem of this rank."""

    one: Call  #: on one GPU
    several: Callable[[Any], Any]  #: on all ranks of a communicator
    pairs: Pairs  #: what of one GPU's result what of this rank's is to equal
    #: of other packages, which give what ``several`` does
    peers: dict[str, Call] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A problem."""

    name: str
    bars: dict[int, float]  #: the ratio of one GPU's time to that of all that is wanted, by number of ranks
    make: Callable[[Communicator, Any, Any], Work]
    allowed: float  #: how far off a result may be, as a share of its greatest number


class Silent:
    """A communicator of the same size whose collectives exchange nothing: a rank takes its own numbers for those of all."""

    def __init__(self, group: Communicator) -> None:
        self.rank, self.size, self.exchange = group.rank, group.size, group.exchange

    def all_gather(self, x: Any, stream: int = 0, beside: bool = False) -> distributed.Pending:
        """``[size, *x.shape]``, this rank's array everywhere."""
        return distributed.Pending(x.expand(self.size, *x.shape).contiguous())

    def all_reduce(self, x: Any, stream: int = 0, beside: bool = False) -> distributed.Pending:
        """x."""
        return distributed.Pending(x)

    def reduce_scatter(self, x: Any, stream: int = 0, beside: bool = False) -> distributed.Pending:
        """Row ``rank`` of x."""
        return distributed.Pending(x[self.rank])


def _loss(rows: int, width: int, classes: int, group: Communicator, mesh: Any, device: Any) -> Work:
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    w = torch.randn(classes, width, device=device, dtype=torch.bfloat16) / width**0.5
    target = torch.randint(0, classes, (rows,), device=device)
    first, end = part("loss", group, classes)
    own = w[first:end].clone()
    wanted: dict[str, Any] = {"grad_input": True, "grad_weight": True}

    def several(comm: Any) -> tuple[Any, Any, Any]:
        made = distributed.fused_linear_cross_entropy(x, own, target, group=comm, **wanted)
        return made.loss, made.grad_input, made.grad_weight

    return Work(
        lambda: nb.fused_linear_cross_entropy(x, w, target, **wanted),
        several,
        lambda single, made: list(zip((single.loss, single.grad_input, single.grad_weight[first:end]), made, strict=True)),
        {
            "torch loss_parallel": partial(_loss_parallel, x, own, target, mesh),
            "liger vocab_parallel": partial(_liger, x, own, target, mesh),
        },
    )


def _loss_parallel(x: Any, own: Any, target: Any, mesh: Any) -> tuple[Any, Any, Any]:
    """torch's loss of logits that are divided by classes, in float32."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    inputs, weight = x.detach().requires_grad_(), own.detach().requires_grad_()
    given = DTensor.from_local(inputs, mesh, [Replicate()], run_check=False)
    with loss_parallel():
        logits = torch.nn.functional.linear(given, DTensor.from_local(weight, mesh, [Shard(0)], run_check=False)).float()
        loss = torch.nn.functional.cross_entropy(logits, target)
        loss.backward()
    assert inputs.grad is not None and weight.grad is not None
    return loss.to_local() if isinstance(loss, DTensor) else loss, inputs.grad, weight.grad


def _liger(x: Any, own: Any, target: Any, mesh: Any) -> tuple[Any, Any, Any]:
    """Liger's loss of logits that are divided by classes, between torch's products."""
    from liger_kernel.transformers.vocab_parallel_cross_entropy import LigerVocabParallelCrossEntropy

    inputs, weight = x.detach().requires_grad_(), own.detach().requires_grad_()
    logits = torch.nn.functional.linear(inputs, weight)[:, None]
    loss = LigerVocabParallelCrossEntropy()(logits, target[:, None], mesh.get_group()).mean()
    loss.backward()
    assert inputs.grad is not None and weight.grad is not None
    torch.distributed.all_reduce(inputs.grad, group=mesh.get_group())
    return loss.detach(), inputs.grad, weight.grad


def _segments(in_order: bool, segments: int, result: str, group: Communicator, mesh: Any, device: Any) -> Work:
    rows = 4_000_000
    x, ids = torch.randn(rows, 128, device=device), torch.randint(0, segments, (rows,), device=device)
    name = "segment_sum" if in_order else "unsorted_segment_sum"
    ids = ids.sort()[0] if in_order else ids
    first, end = part("segments", group, rows)
    own, own_ids = x[first:end].clone(), ids[first:end].clone()
    mine = slice(*part("segments", group, segments)) if result == "sharded" else slice(None)
    return Work(
        lambda: getattr(nb, name)(x, ids, segments),
        lambda comm: getattr(distributed, name)(own, own_ids, segments, group=comm, result=result),
        lambda single, made: [(single[mine], made)],
    )


def _axis(op: str, whole: bool, group: Communicator, mesh: Any, device: Any) -> Work:
    """An op along the axis of 2²⁹ numbers; ``whole``: every rank gets the result of all."""
    x = torch.rand(1 << 29, device=device)
    first, end = part(op, group, 1 << 29)
    own = x[first:end].clone()
    return Work(
        lambda: getattr(nb, op)(x, 0),
        lambda comm: getattr(distributed, op)(own, 0, group=comm),
        lambda single, made: [(single if whole else single[first:end], made)],
    )


def cases() -> Iterator[Case]:
    """Those of two GPUs first, then the losses of more."""
    yield Case("loss, 8192 x 4096 x 128256, bf16", {2: 1.85}, partial(_loss, 8192, 4096, 128256), 0.02)
    for in_order, bars in ((True, {2: 1.9, 4: 3.6, 8: 7.0}), (False, {2: 1.7, 4: 3.2, 8: 6.0})):
        for segments in (1_000, 10_000, 100_000):
            for result in ("replicated", "sharded"):
                name = f"{'segment_sum' if in_order else 'unsorted_segment_sum'}, 4M x 128, {segments} segments, {result}"
                yield Case(name, bars, partial(_segments, in_order, segments, result), 1e-4)
    yield Case("cumsum, 2^29", {2: 1.85, 4: 3.6, 8: 7.0}, partial(_axis, "cumsum", False), 1e-4)
    yield Case("reduce_var, 2^29", {2: 1.9, 4: 3.7, 8: 7.2}, partial(_axis, "reduce_var", True), 1e-4)
    for rows in (8192, 32768):
        for width in (4096, 8192):
            for classes in (128256, 262144):
                bars = {4: 3.6, 8: 7.0} if classes == 262144 else {}
                if (rows, width, classes) != (8192, 4096, 128256):
                    yield Case(f"loss, {rows} x {width} x {classes}, bf16", bars, partial(_loss, rows, width, classes), 0.02)
