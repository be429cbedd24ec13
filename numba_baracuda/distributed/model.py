"""On paper: the time and the bytes of a step of the vocabulary-parallel loss, for any number of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Machine:
    """What a GPU and its links do. The defaults are assumed for an H200: products and copies near what they reach, links by their data sheet."""

    products: float = 700e12  #: operations a second of large bfloat16 products
    memory: float = 4.2e12  #: bytes a second
    node: int = 8  #: ranks that are joined by the fast link
    fast: float = 400e9  #: bytes a second and direction of the link in a node
    slow: float = 45e9  #: the same between nodes
    fast_latency: float = 4e-6  #: seconds for a hop in a node
    slow_latency: float = 12e-6  #: seconds for a hop between nodes
    launch: float = 15e-6  #: seconds before a collective begins


class Step(NamedTuple):
    """Seconds of a step, and bytes that a rank receives."""

    compute: float  #: products and row kernels
    exchange: float  #: what no product hides of the gathers of statistics
    reduction: float  #: what no product hides of the sum of grad_input
    received: float  #: bytes

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.exchange + self.reduction


def gather_time(machine: Machine, ranks: int, nbytes: float) -> float:
    """Seconds of an all-gather of ``nbytes`` from each rank: log₂ of the ranks hops, and the bytes of all others through the slowest link."""
    if ranks == 1:
        return 0.0
    inside, nodes = min(ranks, machine.node), math.ceil(ranks / machine.node)
    hops = math.log2(inside) * machine.fast_latency + math.log2(nodes) * machine.slow_latency
    through = (ranks - 1) * nbytes / machine.fast if nodes == 1 else (ranks - inside) * nbytes / machine.slow + (inside - 1) * nbytes / machine.fast
    return machine.launch + hops + through


def reduce_time(machine: Machine, ranks: int, nbytes: float) -> float:
    """Seconds of an all-reduce of ``nbytes``: a reduce-scatter and an all-gather of a share for each rank."""
    return 2 * gather_time(machine, ranks, nbytes / ranks)


def step(rows: int, width: int, classes: int, ranks: int, chunk: int, machine: Machine = Machine(), terms: int = 3) -> Step:
    """A loss with its gradients in chunks of ``chunk`` rows: ``classes`` are divided among ranks, and ``terms`` numbers of a row exchanged.

    A gather is hidden by the first product of the next chunk; that of the last chunk is not. A chunk's sum of grad_input is hidden by the gradient of
    the weight, and by the first two products of the next. From the second chunk on, the gradient of the weight is read and written once more.
    """
    chunk, own = min(chunk, rows), classes / ranks
    chunks = math.ceil(rows / chunk)
    product = 2 * chunk * width * own / machine.products
    row_kernels = 3 * 2 * chunk * own / machine.memory  # two reads and a write of logits
    update = 2 * 2 * own * width / machine.memory
    compute = chunks * (3 * product + row_kernels) + (chunks - 1) * update
    gather, reduction = gather_time(machine, ranks, 4 * terms * chunk), reduce_time(machine, ranks, 2 * chunk * width) if ranks > 1 else 0.0
    exposed = (chunks - 1) * max(gather - product - row_kernels / 3, 0) + gather
    summed = (chunks - 1) * max(reduction - 3 * product, 0) + max(reduction - product, 0)
    return Step(compute, exposed, summed, (ranks - 1) * 4 * terms * rows + 2 * 2 * rows * width * (ranks - 1) / ranks)


def best_chunk(rows: int, width: int, classes: int, ranks: int, machine: Machine = Machine(), most: int = 1 << 20) -> int:
    """The number of rows, a power of two of at least 128, or all, whose step takes least; of equals the least."""
    sizes = [size for size in (128 << k for k in range(14)) if size < min(rows, most)] + [min(rows, most)]
    return min(sizes, key=lambda size: step(rows, width, classes, ranks, size, machine).total)
