"""Work done by several processes of a gloo group on CPU tensors."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing


def _one(rank: int, size: int, port: int, work: Callable[[int, int], Any], results: Any) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        results[rank] = work(rank, size)
    finally:
        dist.destroy_process_group()


def on_ranks(size: int, work: Callable[[int, int], Any]) -> list[Any]:
    """What ``work(rank, size)``, a function of a module, returns in each of ``size`` processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        multiprocessing.start_processes(_one, (size, port, work, results), size, start_method="spawn")
        return [results[rank] for rank in range(size)]


def same(a: Any, b: Any) -> bool:
    """Whether two tensors have the same bits."""
    return bool(torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b))))
