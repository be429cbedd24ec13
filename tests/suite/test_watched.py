"""The cases of :mod:`watched_cases`, each under the race detector."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kinds import Kind
from watched_cases import CASES

#: what plain ``pytest`` runs of these: paths on which a barrier would be missed nowhere else
FEW = ("tiles, long runs", "ranges in parts, carries in turns", "cummax_backward of rows in several tiles", "cumsum of columns in several tiles")


@pytest.mark.parametrize("name", [name if name in FEW else pytest.param(name, marks=pytest.mark.full) for name in CASES])
def test_case(emulator: Kind, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    CASES[name](emulator, monkeypatch)


def test_cases_run_nothing_before_they_are_called() -> None:
    """The program for the sanitizer imports them on a GPU, where no op takes NumPy arrays."""
    support = Path(__file__).parents[1] / "support"
    program = "import warnings, numba_baracuda as nb; warnings.simplefilter('error', nb.EmulationWarning); import watched_cases"
    subprocess.run([sys.executable, "-c", program], cwd=support, check=True)
