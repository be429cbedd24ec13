"""Demo of the segment family: which modules of the standard library matter most, by PageRank of who imports whom."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from rich.table import Table

from .imports import ImportGraph, standard_library
from .pagerank import Ranking, pagerank, pagerank_float64
from .stage import Stage, host

RELATIVE_TOLERANCE = 2e-5  #: float32 ranks against float64 ones after the same number of iterations
SHOWN = 10
_EMULATED_ELEMENTS = 60_000  #: most elements the emulator is given
_EMULATED_SECONDS = 8.0  #: it begins no iteration after that


def run(stage: Stage) -> bool:
    """Rank the modules, print the ten most imported ones and the error against float64."""
    stage.begin("Segments: PageRank of who imports whom")
    graph, xp = read_graph(stage), stage.xp
    nodes, edges = len(graph.names), len(graph.sources)
    left_out = f" ({graph.unparsed} do not parse)" if graph.unparsed else ""
    stage.say(f"Import graph of Python's standard library: {graph.parsed} files read{left_out}, {nodes} modules, {edges} imports.")
    if not edges:
        stage.say("This interpreter comes without the sources of its library: nothing to rank.")
        return True

    sources, targets = xp.asarray(graph.sources), xp.asarray(graph.targets)
    most, limit = (max(1, min(40, _EMULATED_ELEMENTS // edges - 3)), _EMULATED_SECONDS) if stage.emulated else (40, float("inf"))
    with stage.waiting("Ranking the modules", most) as tell:
        ranking = pagerank(xp, sources, targets, nodes, max_iterations=most, time_limit=limit, on_iteration=tell)
    truth = pagerank_float64(graph.sources, graph.targets, nodes, ranking.iterations)
    rank, in_degree, importer_rank = (host(each) for each in (ranking.rank, ranking.in_degree, ranking.importer_rank))

    shown = np.argsort(-in_degree, kind="stable")[:SHOWN]
    stage.console.print(_table(graph, shown, rank, in_degree, importer_rank))
    stage.say(_where(stage, ranking))
    stage.plot("pagerank", lambda axes: _draw(axes, [graph.names[module] for module in shown], rank[shown]))
    counted = bool(np.array_equal(in_degree, np.bincount(graph.targets, minlength=nodes)))
    worst = float((np.abs(rank - truth) / truth).max())
    return stage.verdict(f"{ranking.iterations} iterations in float32, last change {ranking.change:.1e},", worst, RELATIVE_TOLERANCE, counted)


@functools.lru_cache(maxsize=1)
def read_graph(stage: Stage) -> ImportGraph:
    """The graph of the standard library, read once for all sections of a stage."""
    with stage.waiting("Reading the standard library") as tell:
        return standard_library(tell)


def _table(graph: ImportGraph, shown: Any, rank: Any, in_degree: Any, importer_rank: Any) -> Table:
    table = Table(title=f"The {SHOWN} modules imported by most others")
    table.add_column("module")
    for title in ("imported by", "rank", "place by rank", "mean rank\nof importers"):
        table.add_column(title, justify="right")
    place = {int(module): position for position, module in enumerate(np.argsort(-rank, kind="stable"), start=1)}
    for module in shown:
        cells = (f"{in_degree[module]:.0f}", f"{rank[module]:.5f}", str(place[int(module)]), f"{importer_rank[module]:.5f}")
        table.add_row(graph.names[module], *cells)
    return table


def _draw(axes: Any, names: list[str], rank: Any) -> None:
    axes.barh(names, rank)
    axes.invert_yaxis()
    axes.set(xlabel="PageRank", title=f"The {len(names)} modules imported by most others")


def _where(stage: Stage, ranking: Ranking) -> str:
    if stage.emulated:
        speed = f"{ranking.elements / ranking.seconds:,.0f} elements/s over {ranking.elements:,} elements"
        return f"No GPU is used: the kernels ran in the CPU emulator, lane by lane, at {speed}."
    from ..runtime.driver import device_name

    return f"The kernels ran on {device_name(stage.xp.cuda.runtime.getDevice())}."
