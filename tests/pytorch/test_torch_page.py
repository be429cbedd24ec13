"""docs/torch.md."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"


def test_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba_baracuda.arrays import arrays

    if arrays.emulating():
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch.compiler.reset()
    text = PAGE.read_text()
    blocks = [(match.start(), match.group(1)) for match in re.finditer(r"```python\n(.*?)```", text, re.S)]
    assert len(blocks) >= 6
    scope: dict[str, Any] = {}
    for start, block in blocks:
        needed = re.search(r"<!-- needs (\w+) -->\n\Z", text[:start])
        if needed and find_spec(needed.group(1)) is None:
            continue
        exec(compile("\n" * text[:start].count("\n") + "\n" + block, str(PAGE), "exec"), scope)
