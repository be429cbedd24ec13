"""The benchmark of choices: its cells, a cell from end to end in the emulator, and its statistics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from kinds import Kind
from numpy_card import Xp

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import choice, report
from benchmarks.segment_cases import SegmentCase
from benchmarks.timing import Timing


def record(variant: str, us: str, chosen: str = "", ids: str = "hot", checked: str = "yes") -> dict[str, str]:
    fixed = str(variant != "atomic")
    cell = {"op": "unsorted_segment_sum", "element": "f32", "rows": "90", "columns": "2", "segments": "9", "ids": ids}
    return {**cell, "variant": variant, "deterministic": fixed, "chosen": chosen, "median_us": us, "checked": checked}


def test_cells_of_a_seed() -> None:
    drawn = choice.cells(1, 1 << 20)
    assert drawn != choice.cells(2, 1 << 20) and drawn == choice.cells(1, 1 << 20)
    assert len(set(drawn)) == len(drawn) == len(choice.KINDS) * len(choice.COLUMNS) * len(choice.LENGTHS) * len(choice.IDS)


def test_every_variant_of_a_cell(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice.peers, "release", lambda xp: None)
    cell = choice.Choice.of(SegmentCase("unsorted_segment_sum", "hot", 150, 2, 60))

    def timer(calls: Any, repeats: int) -> Timing:
        calls[0]()
        return Timing((float(repeats),))

    found = choice.measure(Xp(), cell, timer, 3)
    assert [each["variant"] for each in found] == ["bins", "atomic", "ragged_ranges", "ragged_pairs", "ragged_permuted"]
    assert {each["checked"] for each in found} == {"yes"} and {each["median_us"] for each in found} == {"3.00"}
    assert sum("default" in each["chosen"] for each in found) == sum("any_order" in each["chosen"] for each in found) == 1


def test_ratios_of_choices(capsys: pytest.CaptureFixture[str]) -> None:
    found = [record("bins", "4.0", "default"), record("atomic", "1.0", "any_order"), record("ragged_permuted", "2.0")]
    found += [record("bins", "3.0", "default any_order", "uniform"), record("atomic", "9.0", ids="uniform")]
    assert [ratio for ratio, _ in choice.ratios(found, "default")] == [2.0, 1.0]
    assert [ratio for ratio, _ in choice.ratios(found, "any_order")] == [1.0, 1.0]
    assert choice.conclude(found, report.console()) == 0
    assert "within 1.1 x in 50.0%" in capsys.readouterr().out
    assert choice.conclude([*found, record("bins", "", "default", "even", "2 of 9 elements are wrong")], report.console()) == 1
