"""The garbage collector rests while anybody compiles, and is left as it was."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from numba_baracuda.core.lazy import uncollected


@pytest.fixture(autouse=True)
def _collecting() -> None:
    assert gc.isenabled()


class Inside(threading.Thread):
    """A thread that has ``entered`` the block, and stays there until it may ``leave``."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.leave = threading.Event(), threading.Event()

    def run(self) -> None:
        with uncollected():
            self.entered.set()
            self.leave.wait(60)


def test_the_collector_rests_until_the_last_has_left() -> None:
    other = Inside()
    with uncollected():
        other.start()
        assert other.entered.wait(60)
        with uncollected():
            assert not gc.isenabled()
    assert not gc.isenabled()
    other.leave.set()
    other.join()
    assert gc.isenabled()


def test_exceptions_wake_it() -> None:
    with pytest.raises(KeyboardInterrupt), uncollected():
        raise KeyboardInterrupt
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_fork_while_another_thread_compiles_collects() -> None:
    other = Inside()
    other.start()
    assert other.entered.wait(60) and not gc.isenabled()
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    other.leave.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0 and gc.isenabled()
