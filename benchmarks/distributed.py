"""Ops of two GPUs against one: ``torchrun --nproc-per-node 2 -m benchmarks.distributed [--case PATTERN] [--repeats N]``.

Each case runs on one GPU and on all ranks, in turn. A time is the median over repeats of the slowest rank's, between CUDA events behind a barrier.
Every result is checked against that of one GPU before it is timed; after a wrong one the exit status is 1. Every rank makes the inputs from a seed.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.distributed import Communicator, TorchCommunicator, part


@dataclass(frozen=True)
class Case:
    """Two calls that compute the same, and what of one GPU's result this rank's is to equal, within ``allowed`` of its greatest number."""

    name: str
    bar: float  #: the ratio of times that is wanted
    make: Callable[[Communicator, Any], tuple[Callable[[], Any], Callable[[], Any], Callable[[Any, Any], list[tuple[Any, Any]]]]]
    allowed: float


def _loss(group: Communicator, device: Any) -> Any:
    rows, width, classes = 8192, 4096, 128256
    x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    w = torch.randn(classes, width, device=device, dtype=torch.bfloat16) / width**0.5
    target = torch.randint(0, classes, (rows,), device=device)
    first, end = part("loss", group, classes)
    own = w[first:end].clone()
    wanted: dict[str, Any] = {"grad_input": True, "grad_weight": True}

    def pairs(single: Any, several: Any) -> list[tuple[Any, Any]]:
        return [(single.loss, several.loss), (single.grad_input, several.grad_input), (single.grad_weight[first:end], several.grad_weight)]

    return (
        lambda: nb.fused_linear_cross_entropy(x, w, target, **wanted),
        lambda: distributed.fused_linear_cross_entropy(x, own, target, group=group, **wanted),
        pairs,
    )


def _segments(result: str) -> Any:
    def make(group: Communicator, device: Any) -> Any:
        rows, segments = 4_000_000, 100_000
        x, ids = torch.randn(rows, 128, device=device), torch.randint(0, segments, (rows,), device=device)
        first, end = part("segments", group, rows)
        own, own_ids = x[first:end].clone(), ids[first:end].clone()
        mine = slice(*part("segments", group, segments)) if result == "sharded" else slice(None)
        several: Any = distributed.unsorted_segment_sum  # type: ignore[attr-defined]
        return (
            lambda: nb.unsorted_segment_sum(x, ids, segments),
            lambda: several(own, own_ids, segments, group=group, result=result),
            lambda single, made: [(single[mine], made)],
        )

    return make


def _axis(op: str, whole: bool, **options: Any) -> Any:
    """An op along the axis of 2²⁹ numbers; ``whole``: every rank gets the result of all."""

    def make(group: Communicator, device: Any) -> Any:
        x = torch.rand(1 << 29, device=device)
        first, end = part(op, group, 1 << 29)
        own = x[first:end].clone()
        return (
            lambda: getattr(nb, op)(x, 0, **options),
            lambda: getattr(distributed, op)(own, 0, group=group, **options),
            lambda single, made: [(single if whole else single[first:end], made)],
        )

    return make


CASES = (
    Case("loss, 8192 x 4096 x 128256, bf16", 1.85, _loss, 0.02),
    Case("unsorted_segment_sum, 4M x 128, replicated", 1.0, _segments("replicated"), 1e-4),
    Case("unsorted_segment_sum, 4M x 128, sharded", 1.0, _segments("sharded"), 1e-4),
    Case("cumsum, 2^29", 1.0, _axis("cumsum", False), 1e-4),
    Case("reduce_var, 2^29", 1.85, _axis("reduce_var", True), 1e-4),
)  # fmt: skip


def slowest(call: Callable[[], Any], repeats: int, device: Any) -> float:
    """The median of the slowest rank's milliseconds."""
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        taken = torch.tensor(begin.elapsed_time(end), device=device)
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        times.append(float(taken))
    return statistics.median(times)


def off(single: Any, several: Any) -> float:
    """The greatest difference, as a share of the greatest number."""
    return float((single.double() - several.double().reshape(single.shape)).abs().max() / single.double().abs().max().clamp(min=1e-30))


def run(case: Case, group: Communicator, device: Any, repeats: int) -> bool:
    """Prints a line; whether the results agree on every rank."""
    torch.manual_seed(1)
    one, all_ranks, pairs = case.make(group, device)
    worst = torch.tensor(max(off(*each) for each in pairs(one(), all_ranks())), device=device)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    right = float(worst) <= case.allowed
    single, several = slowest(one, repeats, device), slowest(all_ranks, repeats, device)
    if group.rank == 0:
        verdict = "right" if right else "WRONG"
        print(f"{case.name}: {single:.3f} ms, {several:.3f} ms, {single / several:.2f} x (bar {case.bar}), off by {float(worst):.1e}: {verdict}")
    return right


def main() -> int:
    """Runs the cases that match."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="*")
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a GPU for each rank", file=sys.stderr)
        return 2
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    group = TorchCommunicator()
    results = [run(case, group, device, given.repeats) for case in CASES if fnmatch.fnmatch(case.name, given.case)]
    dist.destroy_process_group()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
