"""Tests that want much device memory take turns, and are skipped by name where it is not free."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import device_memory
import pytest


@pytest.fixture(autouse=True)
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card with 12 GB free, and a lock of its own."""
    monkeypatch.setattr(device_memory, "free", lambda: 12.0)
    monkeypatch.setattr(device_memory, "give_back", lambda above=0.0: None)
    monkeypatch.setattr(device_memory, "lock_file", lambda: tmp_path / "lock")
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)


def test_what_does_not_fit_is_skipped_by_name() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"needs 40\.0 GB of free device memory, 12\.0 GB are"), device_memory.turn(40, patience=0):
        pytest.fail("it ran")


def test_other_workers_keep_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with device_memory.turn(11, patience=0):
        pass
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "8")
    with pytest.raises(pytest.skip.Exception, match=r"needs 18\.0 GB"), device_memory.turn(11, patience=0):
        pytest.fail("it ran")


def test_memory_that_others_give_back_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = iter([2.0, 2.0, 9.0, 9.0, 9.0])
    monkeypatch.setattr(device_memory, "free", lambda: next(reports))
    ran = False
    with contextlib.suppress(pytest.skip.Exception), device_memory.turn(8, patience=60):  # a skip would hide that nobody waited
        ran = True
    assert ran


def test_one_at_a_time() -> None:
    inside, told, over = threading.Event(), threading.Event(), []

    def second() -> None:
        told.set()
        with device_memory.turn(1):
            over.append(inside.is_set())

    thread = threading.Thread(target=second)
    with device_memory.turn(1):
        inside.set()
        thread.start()
        told.wait(10)
        thread.join(0.3)
        assert not over and thread.is_alive()
        inside.clear()
    thread.join(10)
    assert over == [False]


def test_a_failure_ends_the_turn() -> None:
    with pytest.raises(ZeroDivisionError), device_memory.turn(1):
        raise ZeroDivisionError
    with device_memory.turn(1):
        pass
