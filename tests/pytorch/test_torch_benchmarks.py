"""benchmarks.torch_layers, with a few numbers of each part."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks import torch_layers


@pytest.mark.parametrize("part", torch_layers.PARTS)
def test_a_part_with_a_few_numbers(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    if part == "graphs":
        pytest.importorskip("torch_geometric")
    assert torch_layers.main(["--tiny", "--part", part]) == 0
    found = {line[:72].strip(): float(line[72:].split()[0]) for line in capsys.readouterr().out.splitlines() if len(line) > 72}
    differences = [value for what, value in found.items() if what.endswith("losses apart")]
    assert len(differences) in {"host": (0,), "graphs": (6,), "decoder": (3, 4)}[part] and all(each <= 0.05 for each in differences)
    assert part != "host" or {"torch.sum", "segment_max, functional"} <= found.keys()
