"""The PyTorch layer on a GPU: ``python -m benchmarks.torch_layers [--part host] [--part graphs] [--part decoder] [--csv FILE] [--tiny]``.

``host``: what an eager call costs the host beyond the functional one, forward and with its gradient, and what torch.sum costs. ``graphs``: a step of
networks of three layers of PyTorch Geometric, patched and not, with the greatest difference of their losses. ``decoder``: 50 steps of a decoder of
0.5 billion parameters with 151936 classes, patched and not, and with Liger's loss where it is installed: tokens a second, peak memory, losses.
``--tiny`` runs every part with a few numbers, in the emulator, too, where times say nothing.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from numba_baracuda.arrays import arrays

from . import results
from .host import microseconds

Line = tuple[str, float, str]
STEPS = 50


@dataclass(frozen=True)
class Sizes:
    """How large the problems are."""

    nodes: int = 100_000
    edges: int = 2_000_000
    hidden: int = 128
    graph_steps: int = 20
    layers: int = 24
    width: int = 896
    inner: int = 4864
    heads: int = 14
    classes: int = 151_936
    batch: int = 8
    length: int = 2048
    steps: int = STEPS
    rounds: int = 80


TINY = Sizes(6, 12, 4, 2, 1, 8, 8, 2, 19, 2, 4, 2, 1)


def device() -> str:
    """Where tensors are."""
    return "cpu" if arrays.emulating() else "cuda"


def wait() -> None:
    """Waits for the device."""
    import torch

    if device() == "cuda":
        torch.cuda.synchronize()


def host(sizes: Sizes) -> Iterator[Line]:
    """Microseconds of the host."""
    import torch

    import numba_baracuda as nb
    import numba_baracuda.torch as nbt

    def measured(call: Callable[[], Any]) -> float:
        return microseconds(call, wait, 60 if sizes.rounds > 1 else 1, sizes.rounds)

    x = torch.rand(1000, 4, device=device())
    ids, leaf = torch.arange(1000, device=device()) // 100, x.clone().requires_grad_()
    calls: dict[str, tuple[tuple[Any, ...], Callable[[Any], Any]]] = {
        "segment_sum": ((ids, 10), lambda dy: nb.segment_sum_backward(dy, ids)),
        "segment_max": ((ids, 10), lambda dy: nb.segment_max_backward(dy, x, ids)),
        "reduce_sum": ((0,), lambda dy: nb.reduce_sum_backward(dy, axis=0, input_shape=x.shape)),
        "cumsum": ((0,), lambda dy: nb.cumsum_backward(dy, 0)),
    }
    for name, (rest, gradient) in calls.items():
        plain, eager = getattr(nb, name), getattr(nbt, name)
        dy = torch.ones_like(plain(x, *rest))

        def both(plain: Any = plain, rest: Any = rest, gradient: Any = gradient, dy: Any = dy) -> None:
            plain(x, *rest)
            gradient(dy)

        base, base_both = measured(partial(plain, x, *rest)), measured(both)
        yield f"{name}, functional", base, "us"
        yield f"{name}, functional and its gradient", base_both, "us"
        yield f"{name}, eager without grad, beyond functional", measured(partial(eager, x, *rest)) - base, "us"
        yield f"{name}, eager with grad, beyond functional", measured(partial(eager, leaf, *rest)) - base, "us"
        recorded = measured(lambda eager=eager, rest=rest, dy=dy: torch.autograd.grad(eager(leaf, *rest), leaf, dy))  # type: ignore[misc]
        yield f"{name}, eager and backward, beyond functional and its gradient", recorded - base_both, "us"
    dy = torch.ones(4, device=device())
    yield "torch.sum", measured(lambda: x.sum(0)), "us"
    yield "torch.sum and backward", measured(lambda: torch.autograd.grad(leaf.sum(0), leaf, dy)), "us"


def median_step(step: Callable[[], Any], steps: int) -> tuple[list[float], float]:
    """The loss of each step, and the median of seconds, of steps after the third where there are so many."""
    losses, seconds = [], []
    for _ in range(steps):
        wait()
        start = time.perf_counter()
        loss = step()
        wait()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    return losses, statistics.median(seconds[min(3, steps - 1) :])


def apart(found: dict[str, list[float]]) -> float:
    """The greatest difference of the losses of any run from those of the first."""
    first, *others = found.values()
    return max((abs(a - b) for other in others for a, b in zip(first, other, strict=True)), default=0.0)


def graphs(sizes: Sizes) -> Iterator[Line]:
    """Networks of graphs whose edges' targets are uniform, or a few nodes most of the time."""
    import torch
    import torch_geometric.nn as nn

    from numba_baracuda.torch import pyg

    h, heads = sizes.hidden, 4
    layers: dict[str, Callable[[], Any]] = {
        "GAT": lambda: nn.GATConv(h, h // heads, heads=heads, add_self_loops=False),
        "GraphSAGE, mean": lambda: nn.SAGEConv(h, h, aggr="mean"),
        "GraphSAGE, max": lambda: nn.SAGEConv(h, h, aggr="max"),
    }
    draw = torch.Generator().manual_seed(0)
    uniform = torch.randint(0, sizes.nodes, (2, sizes.edges), generator=draw)
    weights = torch.arange(1, sizes.nodes + 1, dtype=torch.float64) ** -1.3
    zipf = torch.stack([uniform[0], torch.multinomial(weights, sizes.edges, replacement=True, generator=draw)])
    x, labels = torch.randn(sizes.nodes, h, generator=draw).to(device()), torch.randint(0, h, (sizes.nodes,), generator=draw).to(device())
    for spread, edges in (("uniform", uniform.to(device())), ("zipf(1.3)", zipf.to(device()))):
        for name, make in layers.items():
            found = {}
            for way, change in (("unpatched", pyg.unpatch), ("patched", pyg.patch)):
                change()
                torch.manual_seed(0)
                network = torch.nn.ModuleList(make() for _ in range(3)).to(device())
                optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

                def step(network: Any = network, optimizer: Any = optimizer, edges: Any = edges) -> Any:
                    rows = x
                    for layer in network:
                        rows = layer(rows, edges).relu()
                    loss = torch.nn.functional.cross_entropy(rows, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    return loss

                try:
                    found[way], seconds = median_step(step, sizes.graph_steps)
                finally:
                    pyg.unpatch()
                yield f"{name}, {spread}, {way}", seconds * 1e3, "ms a step"
            yield f"{name}, {spread}, losses apart", apart(found), ""


def decoder(sizes: Sizes) -> Iterator[Line]:
    """The same steps of the same model by each loss."""
    import torch

    from numba_baracuda.torch import hf

    from .torch_decoder import Decoder, liger_loss

    def patched(chunk: str) -> Callable[[Any], Any]:
        return lambda model: hf.patch(model, chunk=chunk)

    ways: dict[str, Callable[[Any], Any]] = {"unpatched": lambda model: model, "patched, auto": patched("auto"), "patched, lean": patched("lean")}
    try:
        importlib.import_module("liger_kernel")
        ways["liger"] = liger_loss
    except ImportError:
        print("liger-kernel is not installed: left out")
    draw, found = torch.Generator().manual_seed(0), {}
    weights = torch.arange(1, sizes.classes + 1, dtype=torch.float64) ** -1.1
    batches = torch.multinomial(weights, 4 * sizes.batch * sizes.length, replacement=True, generator=draw).view(4, sizes.batch, sizes.length)
    for way, change in ways.items():
        torch.manual_seed(0)
        model = change(Decoder(sizes.layers, sizes.width, sizes.inner, sizes.heads, sizes.classes).to(device(), torch.bfloat16))
        optimizer, taken = torch.optim.AdamW(model.parameters(), lr=1e-4), iter(range(sizes.steps))
        if device() == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

        def step(model: Any = model, optimizer: Any = optimizer, taken: Any = taken) -> Any:
            ids = batches[next(taken) % len(batches)].to(device())
            loss = model(ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        found[way], seconds = median_step(step, sizes.steps)
        yield f"decoder, {way}", sizes.batch * sizes.length / seconds, "tokens/s"
        if device() == "cuda":
            yield f"decoder, {way}, peak", torch.cuda.max_memory_allocated() / 2**20, "MiB"
        for k in sorted({0, sizes.steps // 2, sizes.steps - 1}):
            yield f"decoder, {way}, loss of step {k}", found[way][k], ""
        yield f"decoder, {way}, losses apart", apart({"unpatched": found["unpatched"], way: found[way]}), ""
        del model, optimizer, step


PARTS: dict[str, Callable[[Sizes], Iterator[Line]]] = {"host": host, "graphs": graphs, "decoder": decoder}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_layers", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*PARTS], help="what to measure (default: everything)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file (default: results/torch_<gpu>.csv)")
    parser.add_argument("--tiny", action="store_true", help="a few numbers of each, and no results file")
    given = parser.parse_args(argv)
    if arrays.emulating() and not given.tiny:
        print("benchmarks.torch_layers: no CUDA device to measure on, or NUMBA_BARACUDA_EMULATE is set; times hold only on a GPU")
        return 2
    rows = []
    for part in given.part or PARTS:
        for what, value, unit in PARTS[part](TINY if given.tiny else Sizes()):
            print(f"{what:72s} {value:>12.4g} {unit}", flush=True)
            rows.append({"measured": what, "value": f"{value:.6g}", "unit": unit})
    if not given.tiny:
        header = results.stamp()
        results.write_csv(given.csv or results.default_path("torch", header["gpu"]), header, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
