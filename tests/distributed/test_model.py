"""The model of time and bytes: its limits, which must hold whatever the numbers of a machine are."""

from __future__ import annotations

import itertools

import pytest

from numba_baracuda.distributed.model import Machine, best_chunk, gather_time, step

LLAMA = 8192, 4096, 128256


def test_one_rank_exchanges_nothing() -> None:
    one = step(*LLAMA, ranks=1, chunk=8192)
    assert one.exchange == one.reduction == one.received == 0
    assert one.compute == pytest.approx(6 * 8192 * 4096 * 128256 / Machine().products + 6 * 8192 * 128256 / Machine().memory)


def test_bytes_do_not_depend_on_the_chunk() -> None:
    """Each rank receives the statistics of all others, and twice its share of grad_input from each."""
    for chunk in (512, 1024, 8192):
        assert step(*LLAMA, ranks=8, chunk=chunk).received == 7 * 12 * 8192 + 4 * 8192 * 4096 * 7 / 8


def test_more_ranks_compute_less_and_wait_longer() -> None:
    steps = [step(*LLAMA, ranks=1 << k, chunk=1024) for k in range(3, 15)]
    for fewer, more in itertools.pairwise(steps):
        assert more.compute < fewer.compute and more.exchange >= fewer.exchange


def test_the_best_chunk_is_no_worse_than_others() -> None:
    for ranks in (2, 8, 64, 1024, 16384):
        chunk = best_chunk(*LLAMA, ranks)
        least = step(*LLAMA, ranks, chunk).total
        assert all(step(*LLAMA, ranks, other).total >= least for other in (128, 512, 2048, 8192))


def test_a_gather_takes_its_hops_and_its_bytes() -> None:
    machine = Machine(node=4, fast=1e9, slow=1e8, fast_latency=1e-6, slow_latency=1e-5, launch=0)
    assert gather_time(machine, 4, 1000) == pytest.approx(2e-6 + 3e-6)
    assert gather_time(machine, 8, 1000) == pytest.approx(2e-6 + 1e-5 + 4e-5 + 3e-6)
