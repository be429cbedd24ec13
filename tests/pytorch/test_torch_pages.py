"""The pages of docs/ whose code needs torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import pages
from kinds import Kind


@pytest.mark.parametrize("page", pages.TORCH)
def test_the_code_runs(page: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kind.emulated and not pages.blocks(page, kind):
        pytest.skip("every block of the page needs the emulator")
    if kind.emulated:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.compiler.reset()
    assert pages.run(page, kind) >= 1
