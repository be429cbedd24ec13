"""The benchmark of host costs by shape, on a few small shapes: its calls are right, and its rows complete."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from kinds import Kind

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import host_shapes
from benchmarks.host_shapes import COLUMNS, PROBLEMS, Arrays

FEW = ("segment_sum", "segment_sum_backward", "reduce_sum")
NEW = host_shapes.shapes(5, (20, 60), (3, 9))


@pytest.fixture
def arrays(emulator: Kind) -> Arrays:
    rng = np.random.default_rng(0)
    x, results, output = (rng.standard_normal((rows, COLUMNS), np.float32) for rows in (60, 9, 60))
    return Arrays(x, results, np.sort(rng.integers(0, 3, 60)).astype(np.int32), output, lambda: None)


@pytest.mark.parametrize("op", [op if op in FEW else pytest.param(op, marks=pytest.mark.full) for op in PROBLEMS])
def test_calls_are_of_the_shape(arrays: Arrays, op: str) -> None:
    """Results that are made and those that are given are equal, and have the extents that the table says."""
    rows, segments = 37, 5
    made, given = (arrays.call(op, (rows, segments), out)() for out in (False, True))
    assert made.shape == ({"n": rows, "s": segments, "1": 1}[PROBLEMS[op].output], COLUMNS)
    np.testing.assert_array_equal(made, given)
    assert np.shares_memory(given, arrays.output) and not np.shares_memory(made, arrays.output)


def test_every_op_has_its_rows(arrays: Arrays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_shapes, "PROBLEMS", {op: PROBLEMS[op] for op in FEW})
    rows = list(host_shapes.figures(arrays, (30, 4), NEW, warm=2, repeats=host_shapes.BURST + 1))
    assert len(rows) == 5 * len(FEW) == len({what for what, _, _ in rows})
    assert all(value > 0 for _, value, unit in rows if unit == "us") and all(value == 0 for _, value, unit in rows if not unit)


def test_peers_and_growth(arrays: Arrays) -> None:
    assert [what for what, _, _ in host_shapes.nearest(np, arrays, (30, 4), host_shapes.BURST + 1)] == ["numpy sum", "numpy cumsum"]
    what, grown, unit = host_shapes.growth(arrays, "segment_sum", NEW, 2)
    assert what == "segment_sum, memory of 5 shapes beyond 2" and unit == "MiB" and grown < 1000


def test_shapes_are_any(arrays: Arrays) -> None:
    """Of the same seed the same ones, within their ranges, few of them twice."""
    found = host_shapes.shapes(1000)
    assert found == host_shapes.shapes(1000) != host_shapes.shapes(1000, seed=1) and len(set(found)) > 990
    assert all(20_000 <= rows <= 200_000 and 200 <= segments <= 5_000 for rows, segments in found)
