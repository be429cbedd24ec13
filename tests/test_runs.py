"""Gradients that look at runs of equal ids by the way: lengths around each warp, tile and stretch of the search outside the tile."""

from __future__ import annotations

import numpy as np
import pytest
import samples
from kinds import Kind
from samples import OPS, Sample, check

from numba_baracuda.segment.tiling import HALO, PIECES, THREADS

#: shorter and longer than a warp's rows, and than what a search sees at first, and in its second step
LENGTHS = (1, 1, 2, 31, 32, 33, 5, 127, 128, 129, 1, 32 * HALO + 1, 32 * HALO - 1, 3, 300, 64 * HALO, 64 * HALO + 1)


def _ids(lengths: tuple[int, ...], gap: int) -> samples.Ids:
    """Runs of these lengths, of every ``gap``-th id; the first run is outside, and so is the last."""

    def ids(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
        return np.repeat(np.arange(len(lengths)) * gap - 1, lengths)

    return ids


def _gradient(kind: Kind, op: str, name: str, lengths: tuple[int, ...], columns: int, gap: int = 1, **options: str) -> None:
    row, trailing = OPS[op], (columns,) if columns > 1 else ()
    sample = Sample(f"{name} {columns}", sum(lengths), trailing, (len(lengths) - 2) * gap, _ids(lengths, gap), **options)
    check(kind, row, row.variants[0], sample, samples.operands(row, sample))


@pytest.mark.parametrize("element", ["f32", "f16", "f64"])
@pytest.mark.parametrize("columns", [1, 3, 4, 16, 40])
def test_mean_of_runs_of_every_length(kind: Kind, columns: int, element: str) -> None:
    _gradient(kind, "segment_mean_backward", "lengths", LENGTHS, columns, 1 + columns % 2, element=element)


@pytest.mark.parametrize("columns", [1, 16])
def test_mean_of_runs_across_tiles(kind: Kind, columns: int) -> None:
    """Runs of several tiles; of one tile, from its first row to its last; and a run that ends where a tile does."""
    tile = PIECES * THREADS * 4 if columns == 1 else THREADS
    for lengths in ((tile, tile, tile), (1, tile, 4 * tile + 7, 2), (tile - 1, tile + 1, 1), (3 * tile,), (tile + 1, *[1] * 70, 1)):
        _gradient(kind, "segment_mean_backward", f"tiles {lengths[:4]}", (1, *lengths, 1), columns, index="i64")


@pytest.mark.parametrize("lengths", [LENGTHS[:11], LENGTHS[10:13], (1900, 1), (1,) * 1000])
def test_nothing_races(kind: Kind, lengths: tuple[int, ...]) -> None:
    """Few enough rows for the emulator's checked mode."""
    _gradient(kind, "segment_mean_backward", "checked", lengths, 1)
    if sum(lengths) <= 500:
        _gradient(kind, "segment_mean_backward", "checked", lengths, 4)


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", ["segment_max_backward", "segment_min_backward"])
def test_places_over_zeros(kind: Kind, op: str, element: str) -> None:
    """Long runs of single elements; every second segment, or four of five, empty."""
    _gradient(kind, op, "places", LENGTHS, 1, 2, element=element)
    _gradient(kind, op, "places", (1, 1990, 1), 1, 5, element=element)
    _gradient(kind, op, "places", (40, 9000, 600, 700, 40), 1, 2, element=element)
