"""The line that says what is compiled: on a terminal, in a notebook, and nowhere else."""

from __future__ import annotations

import io
import sys
import threading
import types
import warnings
from collections.abc import Callable

import pytest

from numba_baracuda.runtime import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Timers:
    """Timers that ring when the test says so."""

    def __init__(self) -> None:
        self.pending: list[Callable[[], object]] = []
        self.made = 0

    def __call__(self, seconds: float, ring: Callable[[], object]) -> types.SimpleNamespace:
        self.made += 1
        return types.SimpleNamespace(start=lambda: self.pending.append(ring), cancel=lambda: self.pending.remove(ring), daemon=False)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(threading, "Timer", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NUMBA_BARACUDA_PROGRESS", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    return made


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal; during a test, since pytest sets it for each."""

    def make() -> Terminal:
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        return made

    return make


@pytest.mark.parametrize(("kernels", "text"), [(2, "numba_baracuda: compiling 2 kernels for sm_90 …"), (1, "compiling 1 kernel for sm_90 …")])
def test_a_terminal_is_told_and_left_clean(timers: Timers, turn: Callable[[], Terminal], kernels: int, text: str) -> None:
    terminal = turn()
    with progress.telling(kernels, "sm_90"):
        assert terminal.getvalue() == ""
        timers.pending[0]()
        told = terminal.getvalue()
        assert text in told and "\n" not in told
    assert terminal.getvalue()[len(told) :].endswith("\x1b[2K")  # the line is erased
    assert timers.pending == []


def test_what_is_soon_over_says_nothing(timers: Timers, turn: Callable[[], Terminal]) -> None:
    terminal = turn()
    with progress.telling(2, "sm_90"):
        (ring,) = timers.pending
    ring()  # it was late already
    assert terminal.getvalue() == "" and timers.made == 1


def test_an_exception_takes_the_line_away(timers: Timers, turn: Callable[[], Terminal]) -> None:
    terminal = turn()
    with pytest.raises(KeyboardInterrupt), progress.telling(2, "sm_90"):
        timers.pending[0]()
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("\x1b[2K") and timers.pending == []


def test_nothing_where_nobody_reads(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    for stderr in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress.telling(2, "sm_90"):
            pass
    assert timers.made == 0


def test_the_variable_turns_it_off(timers: Timers, turn: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = turn()
    monkeypatch.setenv("NUMBA_BARACUDA_PROGRESS", "0")
    with progress.telling(2, "sm_90"):
        pass
    assert timers.made == 0 and terminal.getvalue() == ""


def test_a_notebook_is_told(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with progress.telling(2, "sm_90"):
        assert len(timers.pending) == 1


def test_a_notebook_without_widgets_is_told_without_a_warning(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    import rich.console

    printed: list[str] = []
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich.console.Console, "print", lambda screen, text, **options: printed.append(text))
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with warnings.catch_warnings(), progress.telling(2, "sm_90"):
        warnings.simplefilter("error")
        timers.pending[0]()
    assert printed == ["numba_baracuda: compiling 2 kernels for sm_90 …"]


def test_one_line_at_a_time(timers: Timers, turn: Callable[[], Terminal]) -> None:
    turn()
    with progress.telling(2, "sm_90"), progress.telling(3, "sm_90"):
        assert timers.made == 1
    with progress.telling(4, "sm_90"):
        assert timers.made == 2
