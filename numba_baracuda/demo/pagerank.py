"""PageRank: once with this package's segment ops, for NumPy and CuPy arrays alike, and once in float64 NumPy to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.85


@dataclass(frozen=True)
class Ranking:
    """What :func:`pagerank` found; the arrays are of the kind it was given."""

    rank: Any  #: float32 ``[nodes]``, adds up to 1
    in_degree: Any  #: float32 ``[nodes]``
    importer_rank: Any  #: float32 ``[nodes]``, mean rank of the nodes with an edge to this one, 0 where there is none
    iterations: int
    change: float  #: Σ |rank − previous rank| in the last iteration
    elements: int  #: elements that went through segment ops
    seconds: float  #: wall time of everything


def pagerank(
    xp: ModuleType,
    sources: Any,
    targets: Any,
    nodes: int,
    *,
    tolerance: float = 1e-7,
    max_iterations: int = 40,
    time_limit: float = float("inf"),
    on_iteration: Callable[[int], None] = lambda done: None,
) -> Ranking:
    """Rank the ``nodes`` of the graph with the edges ``sources[i] -> targets[i]`` (int32), in float32.

    ``rank = (1 − d)/n + d·(Σ over edges of rank[source]/outdegree[source] + (rank of the nodes without an edge out)/n)``, repeated until ``rank``
    changes by less than ``tolerance`` in sum, ``max_iterations`` times at most, and no iteration is begun after ``time_limit`` seconds.
    ``on_iteration`` is told how many are done.
    The edges are sorted by target once, so that each iteration is one gather and one sorted segment sum.
    """
    import numba_baracuda as nb

    started = time.perf_counter()
    order = xp.argsort(targets)
    by_target, pulled_from = targets[order], sources[order]
    ones = xp.ones(len(sources), dtype=xp.float32)
    out_degree = nb.unsorted_segment_sum(ones, sources, nodes)
    in_degree = nb.segment_sum(ones, by_target, nodes)

    dangling = out_degree == 0
    share = xp.where(dangling, xp.float32(0), 1 / xp.maximum(out_degree, xp.float32(1)))
    rank = xp.full(nodes, 1 / nodes, dtype=xp.float32)
    iterations, change = 0, float("inf")
    while iterations < max_iterations and change >= tolerance and time.perf_counter() - started < time_limit:
        pulled = nb.segment_sum((rank * share)[pulled_from], by_target, nodes)
        lost = xp.where(dangling, rank, xp.float32(0)).sum()
        following = (1 - DAMPING) / nodes + DAMPING * (pulled + lost / nodes)
        change = float(xp.abs(following - rank).sum())
        rank = following
        iterations += 1
        on_iteration(iterations)

    importer_rank = nb.unsorted_segment_mean(rank[sources], targets, nodes)
    seconds = time.perf_counter() - started
    return Ranking(rank, in_degree, importer_rank, iterations, change, (3 + iterations) * len(sources), seconds)


def pagerank_float64(sources: NDArray[np.int32], targets: NDArray[np.int32], nodes: int, iterations: int) -> NDArray[np.float64]:
    """The same number of iterations in NumPy and float64, edge by edge in the order given: shares no code with :func:`pagerank`."""
    outgoing = np.bincount(sources, minlength=nodes)
    rank = np.full(nodes, 1.0 / nodes)
    for _ in range(iterations):
        received = np.zeros(nodes)
        np.add.at(received, targets, rank[sources] / outgoing[sources])
        received += rank[outgoing == 0].sum() / nodes
        rank = (1.0 - DAMPING) / nodes + DAMPING * received
    return rank
