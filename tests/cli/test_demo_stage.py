"""What sections of the demo share: verdicts, bars, plots, and tables that a terminal of 80 columns holds."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from numba_baracuda import cli, demo
from numba_baracuda.demo import attention, inequality, segments, sizes
from numba_baracuda.demo.imports import standard_library
from numba_baracuda.demo.stage import Stage

FRAME = re.compile("[│┃━╸╺┏┓┡┩└┘┳┴╇┬─╭╮╰╯\\s]+")


class Twice(Console):
    """Prints on another, wide console as well."""

    def __init__(self, width: int = 80) -> None:
        super().__init__(file=io.StringIO(), width=width)
        self.wide = Console(file=io.StringIO(), width=1000)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **options)
        self.wide.print(*objects, **options)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> list[str]:
    return sorted(filter(None, FRAME.split(text)))


def show(stage: Stage) -> None:
    """The tables of the standard library, with numbers that no kernel computed."""
    graph = standard_library()
    if not graph.parsed:
        pytest.skip("this interpreter comes without the sources of its library")
    nodes = len(graph.names)
    most = np.bincount(graph.targets, minlength=nodes)
    stage.console.print(segments._table(graph, np.argsort(-most)[:10], np.full(nodes, 1 / nodes), most, np.full(nodes, 0.5)))
    stage.console.print(attention._table(graph, np.random.default_rng(0).random(len(graph.sources), np.float32)))
    for section in (sizes, inequality):
        assert section.run(stage)


def test_no_word_is_broken_at_80_columns() -> None:
    console = Twice()
    show(Stage(console, demo.array_library(), True))
    assert max(map(len, printed(console).splitlines())) <= 80
    assert words(printed(console)) == words(printed(console.wide))


def test_a_narrow_terminal_breaks_words() -> None:
    """What the test above looks for can be found."""
    console = Twice(40)
    show(Stage(console, demo.array_library(), True))
    assert words(printed(console)) != words(printed(console.wide))


@pytest.mark.parametrize(("error", "also", "right"), [(1e-6, True, True), (1e-5, True, True), (2e-5, True, False), (0.0, False, False)])
def test_verdicts(error: float, also: bool, right: bool) -> None:
    console = Console(file=io.StringIO(), width=300)
    assert Stage(console, np).verdict("Sums", error, 1e-5, also) is right
    assert ("NOT WITHIN the tolerance" in printed(console)) is not right


def test_nan_is_no_success() -> None:
    console = Console(file=io.StringIO(), width=300)
    assert not Stage(console, np).verdict("Sums", float("nan"), 1e-5)


def test_a_bar_is_for_terminals() -> None:
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal)
        with Stage(console, np).waiting("Waiting", 3) as tell:
            tell(2, remark="so far")
        assert ("Waiting" in printed(console) and "so far" in printed(console)) is terminal


def test_plots_are_saved_where_wanted(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    console, folder = Console(file=io.StringIO(), width=300), tmp_path / "new" / "plots"
    for section in (sizes, inequality):
        assert section.run(Stage(console, demo.array_library(), True, folder))
    assert {path.name for path in folder.iterdir()} == {"sizes.png", "inequality.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    assert str(folder / "sizes.png") in printed(console)


def test_plots_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(stage: Stage) -> bool:
        raise AssertionError("nothing runs whose plots cannot be saved")

    find = demo.importlib.util.find_spec
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    monkeypatch.setattr(demo, "SECTIONS", (run,))
    assert cli.main(["demo", "--plot", "plots"]) == 2
    assert "--plot wants matplotlib" in capsys.readouterr().out
