"""Demo of the segment family: one step of a graph attention network on the import graph, each module attending to its importers.

The layer is that of P. Veličković et al., Graph Attention Networks, ICLR 2018, without its training and without a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from .imports import ImportGraph
from .segments import read_graph
from .stage import Stage, host

RELATIVE_TOLERANCE = 2e-5  #: of a float32 weight to the float64 one, and of a sum to that of its terms' magnitudes
SLOPE = 0.2  #: of the leaky rectifier below 0
HEADS, FEATURES = 4, 8
SHOWN, ATTENDED = 5, 3


@dataclass(frozen=True)
class Layer:
    """What is learned in a network, and drawn at random here; float32 arrays of one kind."""

    features: Any  #: ``[nodes, heads, features]``
    source_scores: Any  #: ``[heads, features]``, what a feature of the edge's source adds to its score
    target_scores: Any  #: ``[heads, features]``, likewise its target's


def draw_layer(graph: ImportGraph) -> Layer:
    """A random projection of the rows of the import matrix, so that modules that import the same are alike; the same at each call."""
    random = np.random.default_rng(7)
    nodes = len(graph.names)
    directions = random.standard_normal((nodes, HEADS, FEATURES))
    features = directions.copy()  # every module counts as importing itself
    np.add.at(features, graph.sources, directions[graph.targets])
    features /= np.sqrt(1 + np.bincount(graph.sources, minlength=nodes))[:, None, None]
    source_scores, target_scores = random.standard_normal((2, HEADS, FEATURES))
    return Layer(features.astype(np.float32), source_scores.astype(np.float32), target_scores.astype(np.float32))


def attend(xp: ModuleType, layer: Layer, sources: Any, targets: Any) -> tuple[Any, Any]:
    """The weight of each edge ``sources[i] -> targets[i]`` (int32) among those into its target, ``[edges, heads]``, and what each node receives.

    The latter, ``[nodes, heads, features]``, is the sum of its sources' features, each times the weight of the edge; 0 without an edge in.
    The edges are put in order by target once, and one index of them serves the softmax and the sum.
    """
    import numba_baracuda as nb

    order = xp.argsort(targets, kind="stable")
    by_target, source = targets[order], sources[order]
    index = nb.SegmentIndex(by_target, len(layer.features), is_sorted=True)

    from_source = (layer.features * layer.source_scores).sum(axis=-1)
    from_target = (layer.features * layer.target_scores).sum(axis=-1)
    scores = from_source[source] + from_target[by_target]
    ordered_weights = nb.segment_softmax(xp.where(scores > 0, scores, xp.float32(SLOPE) * scores), index)
    received = nb.segment_sum(ordered_weights[..., None] * layer.features[source], index)

    weights = xp.empty_like(ordered_weights)
    weights[order] = ordered_weights
    return weights, received


def attend_float64(layer: Layer, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> tuple[NDArray[np.float64], ...]:
    """The same in NumPy and float64, edge by edge in the order given: shares no code with :func:`attend`.

    A third result is the sum of the magnitudes of what each node receives, by which to judge the error of the sum.
    """
    features = np.asarray(layer.features, dtype=np.float64)
    nodes, heads, _ = features.shape
    scores = np.einsum("ehf,hf->eh", features[sources], layer.source_scores) + np.einsum("ehf,hf->eh", features[targets], layer.target_scores)
    scores = np.maximum(scores, SLOPE * scores)
    largest = np.full((nodes, heads), -np.inf)
    np.maximum.at(largest, targets, scores)
    weights = np.exp(scores - largest[targets])
    total = np.zeros((nodes, heads))
    np.add.at(total, targets, weights)
    weights /= total[targets]
    received, magnitude = np.zeros_like(features), np.zeros_like(features)
    np.add.at(received, targets, weights[:, :, None] * features[sources])
    np.add.at(magnitude, targets, weights[:, :, None] * np.abs(features[sources]))
    return weights, received, magnitude


def run(stage: Stage) -> bool:
    """Attend once over all edges, print whom the most imported modules attend to and the error against float64; no edges, nothing to do."""
    graph, xp = read_graph(stage), stage.xp
    if not len(graph.sources):
        return True
    stage.begin("Segments: one step of a graph attention network")

    drawn = draw_layer(graph)
    layer = Layer(*(xp.asarray(each) for each in (drawn.features, drawn.source_scores, drawn.target_scores)))
    with stage.waiting("Attending"):
        weights, received = (host(each) for each in attend(xp, layer, xp.asarray(graph.sources), xp.asarray(graph.targets)))
    true_weights, true_received, magnitude = attend_float64(drawn, graph.sources, graph.targets)

    stage.console.print(_table(graph, weights[:, 0]))
    errors = np.concatenate([np.abs(weights - true_weights).ravel(), np.abs(received - true_received).ravel()])
    scales = np.concatenate([true_weights.ravel(), magnitude.ravel()])
    worst = float((errors / np.maximum(scales, np.finfo(np.float32).tiny)).max())
    return stage.verdict(f"{HEADS} heads of {FEATURES} random features over {len(graph.sources)} imports, in float32,", worst, RELATIVE_TOLERANCE)


def _table(graph: ImportGraph, weights: NDArray[np.float32]) -> Table:
    table = Table(title=f"Whom the {SHOWN} most imported modules attend to (head 0)")
    table.add_column("module")
    table.add_column("imported by", justify="right")
    table.add_column("importers attended to most")
    table.add_column("weight", justify="right")
    for module in np.argsort(-np.bincount(graph.targets, minlength=len(graph.names)), kind="stable")[:SHOWN]:
        edges = np.flatnonzero(graph.targets == module)
        heaviest = edges[np.argsort(-weights[edges], kind="stable")[:ATTENDED]]
        importers = "\n".join(graph.names[source] for source in graph.sources[heaviest])
        table.add_row(graph.names[module], str(len(edges)), importers, "\n".join(f"{weight:.3f}" for weight in weights[heaviest]))
    return table
