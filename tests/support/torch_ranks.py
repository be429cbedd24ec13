"""Work done by several processes of a group of torch: gloo on CPU tensors, or NCCL on a GPU for each."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing


def _one(rank: int, size: int, port: int, backend: str, work: Callable[[int, int], Any], results: Any) -> None:
    own = {}
    if backend == "nccl":
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
        own = {"device_id": torch.device("cuda", rank)}
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, **own)
    try:
        results[rank] = on_host(work(rank, size))
    finally:
        dist.destroy_process_group()


def on_host(given: Any) -> Any:
    """Tensors in containers, on the CPU."""
    if isinstance(given, torch.Tensor):
        return given.cpu()
    if isinstance(given, dict):
        return {name: on_host(each) for name, each in given.items()}
    return type(given)(map(on_host, given)) if isinstance(given, (tuple, list)) else given


def on_ranks(size: int, work: Callable[[int, int], Any], backend: str = "gloo") -> list[Any]:
    """What ``work(rank, size)``, a function of a module, returns in each of ``size`` processes; with "nccl", new tensors are on the rank's GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.start_processes(_one, (size, port, backend, work, results), size, start_method="spawn")
        return [results[rank] for rank in range(size)]


def same(a: Any, b: Any) -> bool:
    """Whether two tensors have the same bits."""
    return bool(torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b))))
