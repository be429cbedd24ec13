"""What plans, SKUs, the table of ops and indexes show in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from benchmarks import report
from numba_baracuda.core import html


class Read(HTMLParser):
    """The cells of each table row and the text of each SVG element; every tag must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.rows, self.texts = list[str](), list[list[str]](), list[tuple[str, str]]()
        self.bars: list[float] = []
        self.feed(text)
        self.close()
        assert self.open == [], "tags are left open"

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        assert tag == "rect"
        self.bars.append(float(dict(attributes)["height"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        else:
            self.texts.append((self.open[-1], data))


EVIL = '<script>alert("&")</script>'


def test_everything_is_escaped() -> None:
    for made in (html.table([EVIL], [[EVIL]], EVIL), html.histogram([1], [EVIL], EVIL)):
        assert "<script" not in made
        read = Read(made)
        assert EVIL in [*(cell for row in read.rows for cell in row), *(text for _, text in read.texts)]


def test_html_within_html_is_kept() -> None:
    inner = html.table((), [["a", 1]])
    assert inner in html.table((), [[inner]])
    assert Read(inner).rows == [["a", "1"]]


def test_bars_are_as_high_as_their_counts() -> None:
    read = Read(html.histogram([0, 5, 10], ["x", "y", "z"], "title"))
    assert read.bars == [0, 60, 120]
    assert [text for tag, text in read.texts if tag == "text"] == ["x", "5", "y", "10", "z"]
    assert Read(html.histogram([], [], "nothing")).bars == [] == [bar for bar in Read(html.histogram([0], ["0"], "zero")).bars if bar]


DESCRIPTORS = [
    nb.SegmentDescriptor("segment_sum", 1000, 8, 20),
    nb.ReduceDescriptor("mean", (40, 300), 0),
    nb.ScanDescriptor("cumsum", (40, 300), 1),
    nb.FusedLinearCrossEntropyDescriptor(bt=8, h=20, v=33),
]


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda each: type(each).__name__)
def test_plans_and_skus(descriptor: Any) -> None:
    plan = nb.select(descriptor)
    shown, sku = Read(plan._repr_html_()), Read(plan.sku._repr_html_())
    assert ["computes", plan.op.formula] in shown.rows
    assert ["workspace_size", f"{plan.workspace_size:,} bytes"] in shown.rows
    assert ["variant", plan.sku.variant] in sku.rows and ["variant", plan.sku.variant] in shown.rows
    assert ["deterministic", str(plan.precision_guarantee.deterministic)] in sku.rows
    assert not [row for row in sku.rows if "None" in row[1] or "<" in row[1]], "what is unknown is left out, and enums are names"


def test_the_table_of_ops() -> None:
    head, *rows = Read(nb.OPS._repr_html_()).rows  # type: ignore[attr-defined]
    assert head[:2] == ["op", "computes"]
    gradients = {op.backward for op in nb.OPS.values()}
    assert [row[0] for row in rows] == [name for name in nb.OPS if name not in gradients]
    assert all(row[1] == nb.OPS[row[0]].formula for row in rows)


@pytest.mark.parametrize(
    ("lengths", "texts"),
    [
        ([3, 0, 1, 0, 9, 2], ["2", "0", "1", "1", "2", "2 to 3", "4 to 7", "1", "8 to 15"]),
        ([1, 1], ["0", "2", "1"]),
        ([0, 0], ["2", "0"]),
        ([7, 8], ["0", "1", "2 to 3", "1", "4 to 7", "1", "8 to 15"]),
        ([], []),
    ],
)
@pytest.mark.parametrize("ascending", [True, False])
def test_an_index_shows_the_lengths_of_its_segments(lengths: list[int], texts: list[str], ascending: bool, kind: Kind) -> None:
    ids = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    index = nb.SegmentIndex(kind.array(ids if ascending else ids[::-1].copy()), len(lengths), None if ascending else False)
    read = Read(index._repr_html_())
    assert [text for tag, text in read.texts if tag == "text"] == texts
    assert ["num_inputs", str(sum(lengths))] in read.rows and ["num_segments", str(len(lengths))] in read.rows
    if lengths:
        assert ["rows a segment", f"{min(lengths)} to {max(lengths)}, {np.mean(lengths):.1f} in the mean"] in read.rows


def test_tables_of_benchmarks_show_themselves() -> None:
    row = dict.fromkeys(("gb_s", "low_us", "high_us", "vs_best_peer", "note"), "")
    row |= {"op": "cumsum", "case": "<a>", "who": "numba_baracuda scan", "median_us": "2", "share_of_copy": "0.5", "checked": "yes"}
    shown = report.summary([row], "title")._repr_mimebundle_([], [])
    assert "50.0%" in shown["text/html"] and "&lt;a&gt;" in shown["text/html"]
