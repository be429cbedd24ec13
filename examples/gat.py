"""A graph attention network of two layers learns to tell modules' packages by what imports what, with numba_baracuda and with torch alone.

    python examples/gat.py [--root FOLDER] [--steps 60] [--width 64] [--heads 4]

The graph has a node for each module below FOLDER, by default the standard library, and an edge for each import, in both directions. Nodes have no
features but a vector each, which is learned. A layer is that of Veličković et al., "Graph Attention Networks" (2018). Both runs begin with the same
numbers; the last lines say how far their losses are apart. On a GPU where there is one, else in the emulator, which is slow: give it a small FOLDER.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.arrays.arrays import emulating
from numba_baracuda.demo.imports import ImportGraph, build_graph, standard_library


def softmax_of_torch(scores: Any, index: Any) -> Any:
    """The softmax of the edges of each node, [edges, heads]."""
    ids, nodes = index
    spread = ids[:, None].expand_as(scores)
    greatest = scores.new_zeros(nodes, scores.shape[1]).scatter_reduce(0, spread, scores.detach(), "amax", include_self=False)
    powers = (scores - greatest[ids]).exp()
    return powers / scores.new_zeros(nodes, scores.shape[1]).index_add(0, ids, powers)[ids]


def sum_of_torch(rows: Any, index: Any) -> Any:
    """The sum over the edges of each node, [nodes, …]."""
    ids, nodes = index
    return rows.new_zeros(nodes, *rows.shape[1:]).index_add(0, ids, rows)


#: by name: what makes an index of ids, the softmax and the sum over segments
WAYS: dict[str, tuple[Any, Any, Any]] = {
    "torch": (lambda ids, nodes: (ids, nodes), softmax_of_torch, sum_of_torch),
    "numba_baracuda": (lambda ids, nodes: nb.SegmentIndex(ids, nodes), nbt.unsorted_segment_softmax, nbt.unsorted_segment_sum),
}


class Attention(torch.nn.Module):  # type: ignore[misc]
    """A layer: rows of nodes to rows of ``heads`` times ``width`` numbers."""

    def __init__(self, inner: int, width: int, heads: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(inner, heads * width, bias=False)
        self.of_source, self.of_target = (torch.nn.Parameter(torch.randn(heads, width) / width**0.5) for _ in range(2))

    def forward(self, x: Any, source: Any, target: Any, index: Any, way: tuple[Any, Any, Any]) -> Any:
        _, softmax, total = way
        h = self.linear(x).view(len(x), *self.of_source.shape)
        scores = (h * self.of_source).sum(-1)[source] + (h * self.of_target).sum(-1)[target]
        share = softmax(torch.nn.functional.leaky_relu(scores, 0.2), index)
        return total(h[source] * share[..., None], index).flatten(1)


class Network(torch.nn.Module):  # type: ignore[misc]
    """Two layers, from a vector for each node to a logit for each class."""

    def __init__(self, nodes: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.randn(nodes, width))
        self.first, self.second = Attention(width, width, heads), Attention(heads * width, classes, 1)

    def forward(self, source: Any, target: Any, index: Any, way: tuple[Any, Any, Any]) -> Any:
        hidden = torch.nn.functional.elu(self.first(self.vectors, source, target, index, way))
        return self.second(hidden, source, target, index, way)


def problem(graph: ImportGraph, classes: int, device: str) -> tuple[Any, Any, Any]:
    """Sources and targets of edges, a loop at each node among them, and the class of each node: its package, or −100 outside of the largest."""
    packages = [name.partition(".")[0] for name in graph.names]
    largest = {name: k for k, (name, _) in enumerate(Counter(packages).most_common(classes))}
    forth, back, loops = torch.from_numpy(graph.sources), torch.from_numpy(graph.targets), torch.arange(len(packages), dtype=torch.int32)
    source, target = torch.cat([forth, back, loops]), torch.cat([back, forth, loops])
    return source.to(device), target.to(device), torch.tensor([largest.get(name, -100) for name in packages], device=device)


def train(way: str, graph: ImportGraph, steps: int, width: int, heads: int, device: str, classes: int = 8) -> tuple[list[float], float]:
    """The loss before each step, and seconds a step, the first left out."""
    torch.manual_seed(0)
    source, target, labels = problem(graph, classes, device)
    network, index = Network(len(graph.names), width, heads, classes).to(device), WAYS[way][0](target, len(graph.names))
    optimizer, losses, begin = torch.optim.Adam(network.parameters(), lr=5e-3), [], time.perf_counter()
    for step in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(source, target, index, WAYS[way]), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 0:
            begin = time.perf_counter()
    return losses, (time.perf_counter() - begin) / max(steps - 1, 1)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Trains in every way; the losses of each."""
    parser = argparse.ArgumentParser(description="A graph attention network on the graph of imports.")
    parser.add_argument("--root", type=Path, help="a folder of modules; the standard library by default")
    for name, usual in (("steps", 60), ("width", 64), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    graph, device = build_graph(given.root) if given.root else standard_library(), "cpu" if emulating() else "cuda"
    print(f"{len(graph.names)} modules, {len(graph.sources)} imports")
    found = {}
    for way in WAYS:
        found[way], seconds = train(way, graph, given.steps, given.width, given.heads, device)
        print(f"{way}: loss {found[way][0]:.4f} to {found[way][-1]:.4f}, {1e3 * seconds:.2f} ms a step")
    apart = max(abs(a - b) for a, b in zip(*found.values(), strict=True))
    print(f"losses at most {apart:.1e} apart")
    return found


if __name__ == "__main__":
    main()
