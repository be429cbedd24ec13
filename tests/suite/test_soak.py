"""The soak's own logic, and its scenarios in the emulator for a moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import soak
import soak_processes
import soak_scenarios
from kinds import Kind
from soak import Measure
from soak_scenarios import SCENARIOS, Scenario, Worker

import numba_baracuda as nb


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_without_a_device_it_says_so(emulator: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--seconds", "1"]) == 2
    assert "no CUDA device" in capsys.readouterr().out
    assert soak.main(["--emulate", "--only", "mixd"]) == 2
    assert "no scenario is named mixd; there are mixed, " in capsys.readouterr().out


def test_threads_in_the_emulator(emulator: Kind, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", "1")
    few = "mixed,same_bits,indexed,churn"
    code = soak.main(["--emulate", "--seconds", "3", "--threads", "2", "--most", "40", "--op", "segment_sum", "--only", few])
    out = capsys.readouterr().out
    assert code == 0, out
    assert all(f"\n{name}: " in out for name in few.split(",")) and "memory, host: " in out and out.endswith(" 0 failed\n")


def test_every_scenario_of_threads_runs_in_the_emulator(emulator: Kind) -> None:
    worker = Worker(3, 1, [nb.OPS["segment_sum"]], 40)
    for scenario in SCENARIOS:
        if scenario.weight and scenario.emulated:
            scenario.run(worker)


def test_a_failure_is_told_and_the_others_go_on(
    emulator: Kind, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(worker: Any) -> None:
        raise KeyError("planted")

    def sound(worker: Any) -> None:
        threading.Event().wait(0.001)

    monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", "1")
    monkeypatch.setattr(soak_scenarios, "SCENARIOS", (Scenario(sound, 30), Scenario(broken, 1), Scenario(sound, 0)))
    assert soak.main(["--emulate", "--seconds", "0.6", "--threads", "3"]) == 1
    out = capsys.readouterr().out
    assert "FAILED broken in thread" in out and "KeyError: 'planted'" in out and "sound: " in out


@pytest.mark.parametrize("fault", ["results", "one stream"])
def test_a_planted_fault_of_an_op_is_found(emulator: Kind, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    plain = nb.cumsum
    counts = iter(range(1000))
    monkeypatch.setattr(
        nb, "cumsum", lambda *given, **options: plain(*given, **options) * (1 + (fault == "results" or next(counts) == 2)), raising=False
    )
    worker = Worker(0, 0, [nb.OPS["cumsum"]], 30)
    scenario = soak_scenarios.mixed if fault == "results" else soak_scenarios.same_bits
    with pytest.raises(AssertionError, match=r"run\(Case\(op='cumsum'"):
        for _ in range(20):
            scenario(worker)


def test_growing_memory_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    before = Measure(1000, 500, 0, 10)
    assert soak.flat(before, Measure(1200, 600, 1, 10))
    assert soak.flat(before, Measure(1800, 600, 1, 120))
    assert not soak.flat(before, Measure(1800, 600, 1, 11))
    assert not soak.flat(before, Measure(1000, 900, 1, 11))
    assert not soak.flat(before, Measure(1000, 500, 40, 900))
    assert capsys.readouterr().out.count("GROWS") == 3


def test_a_hang_ends_the_process_with_all_stacks() -> None:
    code = f"""
        import sys, time
        sys.path[:0] = {sys.path!r}
        from watchdog import Watchdog
        with Watchdog(0.5) as dog:
            dog.pat("is done", "thread 1")
            dog.rest("thread 1")
            dog.pat("sleeps", "thread 2")
            def for_ever(): time.sleep(60)
            for_ever()
    """
    made = subprocess.run([sys.executable, "-c", "if True:" + code], capture_output=True, text=True, timeout=50)
    assert made.returncode == 1 and "HANGS: not done after 0.5 s: thread 2: sleeps" in made.stdout and "in for_ever" in made.stdout


@pytest.mark.compile
def test_the_cache_under_attack(emulator: Kind) -> None:
    soak_processes.cache_garbage(Worker(0, 0, [], 40))


def test_a_process_that_fails_is_told(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_processes, "_FIRST_USE", "raise ValueError('planted {emulating}')")
    with pytest.raises(AssertionError, match=r"a process exited with 1: (?s:.*)planted 1"):
        soak_processes.first_use(None)
