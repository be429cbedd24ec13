"""Executes the notebooks of docs/notebooks: ``python -m tests.notebooks [NAME ...] [--write]``; ``--write`` stores what they output.

Needs the extra ``notebooks``. They run on a GPU where there is one, unchanged; what is stored is of the emulator. Where a cell is tagged ``varies``,
its output is that of one machine and one moment, such as a time.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
VARIES = "varies"
SECONDS = 300  #: that a cell may take
#: addresses and anonymous names, which change with every process
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_NUMBER = re.compile(r"((?<![\w.])\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w))")


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path) -> Any:
    """The notebook with the outputs of a fresh kernel, run in the notebook's folder; an error in a cell raises."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    roots = [str(FOLDER.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "NUMBA_BARACUDA_PROGRESS": "0"}
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", coalesce_streams=True, resources=folder).execute(env=environment)
    return tidy(notebook)


def tidy(notebook: Any) -> Any:
    """A copy without times, versions of the machine and empty metadata, with cells numbered in order."""
    made = copy.deepcopy(notebook)
    made.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {key: value for key, value in cell.metadata.items() if key == "tags" and value}
    return made


def texts(notebook: Any) -> Iterator[tuple[int, str]]:
    """What each cell that does not vary prints or shows as text: number of the cell, and text."""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and VARIES not in cell.metadata.get("tags", []):
            printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            shown = [output.data.get("text/html", output.data.get("text/plain", "")) for output in cell.outputs if "data" in output]
            yield number, _ADDRESS.sub("0x…", "\n".join([printed, *shown]))


def same(found: str, stored: str) -> bool:
    """Whether texts are alike, their numbers within a hundredth: a library's exponentials differ between processors."""
    one, other = (_NUMBER.split(text) for text in (found, stored))
    if len(one) != len(other) or one[::2] != other[::2]:
        return False
    return all(math.isclose(float(a), float(b), rel_tol=1e-2, abs_tol=1e-5) for a, b in zip(one[1::2], other[1::2], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of notebooks, without .ipynb (default: all)")
    parser.add_argument("--write", action="store_true", help="store what they output")
    arguments = parser.parse_args()
    import nbformat

    for path in paths():
        if arguments.names and path.stem not in arguments.names:
            continue
        print(path.stem, flush=True)
        made = execute(path)
        if arguments.write:
            nbformat.write(made, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
