"""The benchmark of first calls: every op has operands, and without a GPU it says why it measures nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda.arrays import arrays

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import first


def test_the_usual_ops_are_ops_of_every_family() -> None:
    assert {nb.OPS[name].family for name in first.USUAL} == {op.family for op in nb.OPS.values()}


@pytest.mark.parametrize("name", first.USUAL)
def test_a_plan_takes_the_operands(name: str) -> None:
    descriptor, operands = first.problem(name, np)
    views = nb.select(descriptor, device=-1).views(operands)
    assert {view.name for view in views} == operands.keys()


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(arrays, "emulating", lambda: True)
    monkeypatch.setattr(first, "figures", lambda *given: pytest.fail("measured"))
    assert first.main([]) == 2 and "no CUDA device" in capsys.readouterr().out
    assert first.main(["--op", "no_such_op"]) == 2 and "no op matches" in capsys.readouterr().out
    assert first.main([]) == 2


def test_rows_are_printed_and_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(arrays, "emulating", lambda: False)
    seconds = iter([3.0, 0.5, 2.0, 0.25])

    def measure(name: str, folder: str) -> dict[str, float]:
        assert Path(folder).is_dir()
        return dict.fromkeys(first.FIGURES[:-1], next(seconds))

    monkeypatch.setattr(first, "measure", measure)
    assert first.main(["--op", "segment_sum", "--repeats", "2", "--csv", str(tmp_path / "first.csv")]) == 0
    assert "segment_sum" in capsys.readouterr().out
    _, rows = first.results.read_csv(tmp_path / "first.csv")
    assert rows == [{"op": "segment_sum", "import": "2.000", "compile": "2.000", "call": "2.000", "total": "2.000", "again": "0.250"}]
