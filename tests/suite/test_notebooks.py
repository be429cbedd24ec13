"""The notebooks of docs/notebooks: what is stored in them, and that they run and output what is stored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import notebooks
import pytest

from numba_baracuda.arrays import arrays

NAMES = {"quickstart", "segments_on_a_graph", "your_own_kernel", "scans_and_determinism", "tiny_language_model", "where_the_time_goes"}
EVERY = pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
MOST_BYTES = 300_000
#: of a machine that the outputs were made on
TRACES = re.compile(r"/(?:home|root|tmp|usr|work|opt|Users)/|site-packages|ipykernel_\d|Traceback|Warning:")


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks() -> None:
    assert {path.stem for path in notebooks.paths()} == NAMES


@EVERY
def test_outputs_are_stored(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run from the top, every cell once"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert path.stat().st_size < MOST_BYTES
    assert not TRACES.search(json.dumps(outputs))


@EVERY
def test_claims_are_asserted(path: Path) -> None:
    sources = ["".join(cell["source"]) for cell in cells(path, "code")]
    assert sum(bool(re.search(r"^ *assert ", source, re.M)) for source in sources) >= 2


@EVERY
def test_links_lead_somewhere(path: Path) -> None:
    links = [link for cell in cells(path, "markdown") for link in re.findall(r"\]\(([^)#]+)", "".join(cell["source"]))]
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize(
    ("found", "stored", "alike"),
    [
        ("1.000 nats", "1.001 nats", True),
        ("1.0 nats", "1.1 nats", False),
        ("2 steps of fold", "2 steps of scan", False),
        ("[1. nan]", "[1. 2.]", False),
        ("bits 3dcccccd", "bits 3dcccccc", False),
        ("f32 2e-06", "f32 3e-06", True),
        ("a", "a 1", False),
    ],
)
def test_what_is_alike(found: str, stored: str, alike: bool) -> None:
    assert notebooks.same(found, stored) is alike


@EVERY
def test_notebooks_run(path: Path) -> None:
    """With what is stored in the emulator; on a GPU, by their own assertions. ``python -m tests.notebooks --write`` renews what is stored."""
    for module in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(module)
    nbformat = pytest.importorskip("nbformat")
    found, stored = notebooks.execute(path), nbformat.read(path, as_version=4)
    drawn, kept = ([len(cell.outputs) for cell in each.cells if cell.cell_type == "code"] for each in (found, stored))
    assert drawn == kept
    if arrays.emulating():
        for (number, text), (_, wanted) in zip(notebooks.texts(found), notebooks.texts(stored), strict=True):
            assert notebooks.same(text, wanted), f"cell {number} outputs {text!r}, stored is {wanted!r}"
