"""examples/: they learn, and with this package what they learn without."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SIZES = {
    "gat": ["--root", str(ROOT), "--steps", "2", "--width", "4", "--heads", "2"],
    "language_model": ["--steps", "2", "--width", "8", "--layers", "1", "--length", "6", "--batch", "2", "--vocabulary", "300"],
}


#: the example of several processes
PARALLEL = ROOT / "examples" / "tensor_parallel.py"


def test_every_example_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*SIZES, PARALLEL.stem}


@pytest.mark.skipif(0 < torch.cuda.device_count() < 2, reason="wants a GPU for each process")
def test_two_processes_learn_with_a_layer_in_two_parts() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PARALLEL)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    first, last = map(float, re.search(r"2 ranks, .*: loss ([\d.]+) to ([\d.]+)", printed).groups())  # type: ignore[union-attr]
    assert last < first / 2


@pytest.mark.parametrize("name", SIZES)
def test_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec: Any = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    losses = example.main(SIZES[name])
    assert losses.keys() == {"torch", "numba_baracuda"}
    torch.testing.assert_close(*map(torch.tensor, losses.values()), rtol=1e-4, atol=1e-4)
    assert len(losses["torch"]) == 2 and losses["torch"][0] != losses["torch"][-1]
    assert "apart" in capsys.readouterr().out
