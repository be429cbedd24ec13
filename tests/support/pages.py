"""README.md and the pages of docs/ as programs: the ``python`` blocks of a page, one after the other; ``py`` blocks are for reading alone.

A block behind ``<!-- needs MODULE -->`` is left out where the module is missing, one behind ``<!-- needs gpu -->`` in the emulator, and one behind
``<!-- needs emulator -->`` on a GPU; a block may need several.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kinds import Kind

ROOT = Path(__file__).parents[2]
_FILES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in _FILES if "generated" not in path.parts}
_BLOCK = re.compile(r"^(?:<!-- needs ([\w ]+) -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [page for page, text in TEXTS.items() if _BLOCK.search(text)]
#: those that only the tests of numba_baracuda.torch run
TORCH = [page for page in PAGES if re.search("^import torch$", TEXTS[page], re.MULTILINE)]
#: what a reader changes of the blocks: without a GPU, and with one
_CHANGES = {
    True: (("import cupy as xp", "import numpy as xp"),),
    False: (("import numpy as xp", "import cupy as xp"), ("device.emulate(kernel)", "kernel")),
}


def blocks(page: str, kind: Kind) -> list[re.Match[str]]:
    """The blocks of a page that run here."""
    here = {"gpu": not kind.emulated, "emulator": kind.emulated}
    needed = [(block, (block[1] or "").split()) for block in _BLOCK.finditer(TEXTS[page])]
    return [block for block, names in needed if all(here[name] if name in here else find_spec(name) for name in names)]


def run(page: str, kind: Kind) -> int:
    """The number of blocks that ran; lines of errors are those of the page."""
    scope: dict[str, Any] = {"__name__": "page"}
    found = blocks(page, kind)
    for block in found:
        code = block[2]
        for said, meant in _CHANGES[kind.emulated]:
            code = code.replace(said, meant)
        exec(compile("\n" * TEXTS[page].count("\n", 0, block.start(2)) + code, page, "exec"), scope)
    return len(found)
