"""Demo of the segment family: which modules of the standard library matter most, by PageRank of who imports whom."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .imports import ImportGraph, standard_library
from .pagerank import Ranking, pagerank, pagerank_float64

RELATIVE_TOLERANCE = 2e-5  #: float32 ranks against float64 ones after the same number of iterations
SHOWN = 10
_EMULATED_ELEMENTS = 300_000  #: most elements the emulator is given
_EMULATED_SECONDS = 12.0  #: it begins no iteration after that


def run(console: Console, xp: ModuleType, quick: bool) -> bool:
    """Rank the modules, print the ten most imported ones and the error against float64."""
    graph = read_graph(console)
    nodes, edges = len(graph.names), len(graph.sources)
    left_out = f" ({graph.unparsed} do not parse)" if graph.unparsed else ""
    say(console, f"Import graph of Python's standard library: {graph.parsed} files read{left_out}, {nodes} modules, {edges} imports.")
    if not edges:
        say(console, "This interpreter comes without the sources of its library: nothing to rank.")
        return True

    sources, targets = xp.asarray(graph.sources), xp.asarray(graph.targets)
    if xp is np:
        affordable = max(1, min(40, _EMULATED_ELEMENTS // edges - 3))
        ranking = pagerank(xp, sources, targets, nodes, max_iterations=affordable, time_limit=_EMULATED_SECONDS)
    else:
        ranking = pagerank(xp, sources, targets, nodes)
    truth = pagerank_float64(graph.sources, graph.targets, nodes, ranking.iterations)
    rank, in_degree, importer_rank = (host(each) for each in (ranking.rank, ranking.in_degree, ranking.importer_rank))

    console.print(_table(graph, rank, in_degree, importer_rank))
    absolute = float(np.abs(rank - truth).max())
    relative = float((np.abs(rank - truth) / truth).max())
    right = relative <= RELATIVE_TOLERANCE and bool(np.array_equal(in_degree, np.bincount(graph.targets, minlength=nodes)))
    verdict = "within" if right else "NOT WITHIN"
    say(
        console,
        f"PageRank in float32: {ranking.iterations} iterations, last change {ranking.change:.1e}. Against float64 NumPy: largest absolute error "
        f"{absolute:.1e}, largest relative error {relative:.1e}, {verdict} the tolerance of {RELATIVE_TOLERANCE:.0e}.",
    )
    say(console, _where(xp, ranking))
    return right


@functools.lru_cache(maxsize=1)
def read_graph(console: Console) -> ImportGraph:
    """The graph of the standard library, read once for all sections that print to this console."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Reading the standard library", total=None)
        return standard_library(lambda done, total: progress.update(task, completed=done, total=total))


def _table(graph: ImportGraph, rank: Any, in_degree: Any, importer_rank: Any) -> Table:
    table = Table(title=f"The {SHOWN} modules imported by most others")
    table.add_column("module")
    for title in ("imported by", "rank", "place by rank", "mean rank of its importers"):
        table.add_column(title, justify="right")
    place = {int(module): position for position, module in enumerate(np.argsort(-rank, kind="stable"), start=1)}
    for module in np.argsort(-in_degree, kind="stable")[:SHOWN]:
        cells = (f"{in_degree[module]:.0f}", f"{rank[module]:.5f}", str(place[int(module)]), f"{importer_rank[module]:.5f}")
        table.add_row(graph.names[module], *cells)
    return table


def _where(xp: ModuleType, ranking: Ranking) -> str:
    if xp is np:
        speed = f"{ranking.elements / ranking.seconds:,.0f} elements/s over {ranking.elements:,} elements"
        return f"No GPU is used: the kernels ran in the CPU emulator, lane by lane, at {speed}."
    from ..runtime.driver import device_name

    return f"The kernels ran on {device_name(xp.cuda.runtime.getDevice())}."


def host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


def say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
