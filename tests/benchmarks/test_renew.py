"""Renewing results: which rows are stale and why, and that every benchmark is renewed."""

from __future__ import annotations

import fnmatch
import importlib
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cases, renew, report, results, stale

HEADER = {"commit": "abc1234; another: 9", "gpu": "NVIDIA H200", "driver": "580", "torch": "2.11.0", "numba-cuda": "0.30.4", "jax": "0.11"}
OURS = {"op": "reduce_sum", "who": "numba_baracuda fold f32 SM90"}
TORCH = {"op": "reduce_sum", "who": "torch sum"}
HOST = {"what": "launch", "value": "6", "unit": "us"}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What changed since any commit."""
    made: list[str] = []
    monkeypatch.setattr(stale, "changed", lambda commit: tuple(made))
    return made


def test_rows_hold_where_nothing_changed(files: list[str]) -> None:
    for row in (OURS, TORCH, HOST):
        assert stale.reasons(row, HEADER, HEADER) == []


def test_sources_concern_ours_alone(files: list[str]) -> None:
    files += ["scan/policy.py", "cli.py"]
    assert stale.reasons(OURS, HEADER, HEADER) == stale.reasons(TORCH, HEADER, HEADER) == []
    assert stale.reasons(HOST, HEADER, HEADER) == ["numba_baracuda changed since abc1234"]
    files += ["reduce/kernels/rows.py", "device/warp.py", "devices.py"]
    assert stale.reasons(OURS, HEADER, HEADER) == ["device, reduce changed since abc1234"]
    assert stale.reasons(TORCH, HEADER, HEADER) == []


@pytest.mark.parametrize(
    ("key", "ours", "torch"),
    [("driver", True, True), ("gpu", True, True), ("torch", False, True), ("numba-cuda", True, False), ("jax", False, False)],
)
def test_versions_concern_those_that_use_them(key: str, ours: bool, torch: bool, files: list[str]) -> None:
    now = {**HEADER, key: "new"}
    reason = [f"{key} {HEADER[key]} -> new"]
    assert stale.reasons(OURS, HEADER, now) == reason * ours
    assert stale.reasons(TORCH, HEADER, now) == reason * torch
    assert stale.stale(HEADER, [OURS, TORCH, TORCH], now)[0] == ours + 2 * torch


def test_what_is_unknown_now_is_no_reason(files: list[str]) -> None:
    assert stale.reasons(OURS, HEADER, {}) == []


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"op": "unsorted_segment_sum", "who": "numba_baracuda"}, ("segment", *stale.SHARED)),
        ({"case": "llama3", "who": "numba_baracuda auto"}, ("loss", *stale.SHARED)),
        ({"op": "SegmentIndex", "who": "numba_baracuda"}, ("",)),
        ({"op": "cumsum", "import": "0.2"}, ("scan", *stale.SHARED)),
        ({"case": "llama3", "who": "torch.compile"}, ()),
    ],
)
def test_sources_of_rows(row: results.Record, wanted: tuple[str, ...]) -> None:
    assert stale.folders(row) == wanted
    assert all((stale.ROOT / "numba_baracuda" / folder).is_dir() for folder in wanted)


def test_changes_are_those_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "numba_baracuda"
    (package / "scan").mkdir(parents=True)
    (package / "scan" / "ops.py").write_text("1")
    (tmp_path / "README.md").write_text("1")
    try:
        for command in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "first"]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
    except OSError:
        pytest.skip("there is no git")
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    stale.changed.cache_clear()
    assert stale.changed("HEAD") == ()
    stale.changed.cache_clear()
    for name in ("numba_baracuda/scan/ops.py", "README.md"):
        (tmp_path / name).write_text("2")
    assert stale.changed("HEAD-dirty") == ("scan/ops.py",)
    assert stale.changed("0123456") is None
    assert stale.reasons(OURS, {"commit": "0123456"}, {}) == ["commit 0123456 is unknown"]
    stale.changed.cache_clear()


def test_every_case_is_renewed() -> None:
    patterns = [step.arguments[1] for step in renew.STEPS if step.module == "run"]
    missed = {case.op for case in cases.matching("*", "*") if not any(fnmatch.fnmatchcase(case.op, pattern) for pattern in patterns)}
    assert not missed
    assert len({step.name for step in renew.STEPS}) == len(renew.STEPS)


@pytest.mark.parametrize("step", renew.STEPS, ids=lambda step: step.name)
def test_steps_are_commands_that_there_are(step: renew.Step, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"benchmarks.{step.module}")
    with pytest.raises(SystemExit, match="0"):
        module.main(["--help"])
    printed = capsys.readouterr().out
    assert step.command(Path("x.csv"))[2] == module.__name__
    assert all(word in printed for word in step.command(Path("x.csv"))[3:] if word.startswith("--"))


def test_survey_lists_what_is_missing_or_stale(files: list[str], tmp_path: Path) -> None:
    first, second, third = renew.STEPS[:3]
    results.write_csv(tmp_path / f"{first.name}_h200.csv", HEADER, [OURS])
    results.write_csv(tmp_path / f"{second.name}_h200.csv", {**HEADER, "driver": "1"}, [OURS, TORCH])
    table, wanted = renew.survey([first, second, third], "h200", HEADER, tmp_path)
    assert wanted == [second, third]
    assert [list(column.cells)[2] for column in table.columns] == ["reduce_h200.csv", "", "", "", "missing"]
    assert [str(cell) for cell in table.columns[4].cells][:2] == ["", "driver 1 -> 580 (2 rows)"]
    lines = list(renew.stale_rows([first, second, third], "h200", HEADER, tmp_path))
    assert lines == [f"{second.name}_h200.csv: reduce_sum, {row['who']}: driver 1 -> 580" for row in (OURS, TORCH)]


def test_a_failed_step_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **options: Any) -> Any:
        ran.append(command)
        return SimpleNamespace(returncode=int("benchmarks.sweep" in command))

    monkeypatch.setattr(renew, "subprocess", SimpleNamespace(run=run))
    screen = report.console()
    with screen.capture() as captured:
        assert renew.renew(renew.STEPS, "rtx_4090", screen, tmp_path) == ["sweep"]
    assert len(ran) == len(renew.STEPS) and captured.get().count("FAILED") == 1
    assert ran[0][-1] == str(tmp_path / f"{renew.STEPS[0].name}_rtx_4090.csv")


def test_listing_measures_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(renew, "renew", lambda *arguments: pytest.fail("measures"))
    assert renew.main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert all(step.name in printed for step in renew.STEPS)
    assert renew.main(["--only", "nothing"]) == 2
