"""examples/: they learn, and with this package what they learn without."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SIZES = {
    "gat": ["--root", str(ROOT), "--steps", "2", "--width", "4", "--heads", "2"],
    "language_model": ["--steps", "2", "--width", "8", "--layers", "1", "--length", "6", "--batch", "2", "--vocabulary", "300"],
}


def test_every_example_has_sizes() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == SIZES.keys()


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
