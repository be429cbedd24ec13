"""Plots of results: their numbers, what is drawn of them, and that those in docs/ are of the results in benchmarks/results."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import drawing, pictures, report, results, scaling
from benchmarks.loss_cases import WRONG
from benchmarks.pictures import Cell, Picture
from numba_baracuda import FusedLinearCrossEntropyDescriptor
from numba_baracuda.distributed.model import step

COMMITTED = pictures.pictures(results.RESULTS)


def row(op: str, case: str, who: str, us: float, share: float, checked: str = "yes") -> results.Record:
    return {"op": op, "case": case, "who": who, "median_us": f"{us}", "share_of_copy": f"{share}", "checked": checked}


OLD = [
    row("cumsum", "a", "numba_baracuda scan f32", 4, 0.4),
    row("cumsum", "a", "cupy cumsum", 1, 1.6),
    row("cumsum", "b", "numba_baracuda scan f32", 2, 0.8),
    row("cumsum", "b", "torch cumsum", 1, 1.6),
]
NEW = [
    row("cumsum", "a", "numba_baracuda scan f32", 2, 0.8),
    row("cumsum", "a", "torch slow", 6, 0.2),
    row("cumsum", "a", "torch cumsum", 4, 0.4),
    row("cumsum", "a", "jax cumsum", 1, 1.6, "WRONG: 1 of 4"),
    row("cumsum", "b", "numba_baracuda scan f32", 1.6, 1.0),
    row("reduce_sum_backward", "c", "numba_baracuda broadcast f32", 2, 0.9),
    row("reduce_sum_backward", "c", "torch expand", 0.01, 180.0),
    row("unsorted_segment_sum", "d", "numba_baracuda atomic f32", 2, 0.5),
    row("unsorted_segment_sum", "d", "jax segment_sum", 1, 1.0),
]
FOUND: list[tuple[results.Record, list[results.Record]]] = [({"date": "1"}, OLD), ({"date": "2"}, NEW), ({}, [{"what": "launch"}]), ({}, [])]


def test_the_newest_right_and_fastest_count() -> None:
    a, b, c, d = pictures.cells(FOUND)
    assert a == Cell("cumsum", "a", {"numba_baracuda": 0.8, "torch": 0.4}, {"torch": 2.0})
    assert b == Cell("cumsum", "b", {"numba_baracuda": 1.0, "torch": 1.6}, {"torch": 0.5}), "the newer file has no peer of this case"
    assert c == Cell("reduce_sum_backward", "c", {"numba_baracuda": 0.9}, {}, ["torch expand"])
    assert d.ratios == {"jax": 0.5}
    assert [each.family for each in (a, c, d, Cell("SegmentIndex", ""))] == ["scan", "reduce", "segment, unsorted", "others"]


def test_slower_cells_are_counted() -> None:
    numbers = pictures.peers_numbers(pictures.cells(FOUND), lambda cell: cell.family)
    assert list(numbers) == ["reduce", "scan", "segment, unsorted"]
    assert [(each["slower"], each["compared"], each["cells"], each["views"]) for each in numbers.values()] == [
        (0, 0, 1, 1),
        (1, 2, 2, 0),
        (1, 1, 1, 0),
    ]
    assert numbers["scan"]["slowest"] == [0.5, "cumsum", "b"]
    assert numbers["scan"]["shares"] == {"numba_baracuda": [80.0, 100.0], "torch": [40.0, 160.0]}


def test_numbers_of_losses() -> None:
    names = ("case", "who", "median_ms", "peak_mib", "checked")
    lines = [
        ("c", "torch, three whole products", "3.0", "", ""),
        ("c", "liger", "9.0", "100", "WRONG: loss"),
        ("c", "numba_baracuda auto", "3.5", "200", "yes"),
        ("c", "numba_baracuda lean", "", "", "FAILED"),
        ("d", "copy", "1.0", "", ""),
    ]
    found = pictures.loss_numbers([dict(zip(names, line, strict=True)) for line in lines])
    assert found == {"c": {"products": 3.0, "contestants": {"liger": [9.0, 100.0, WRONG], "numba_baracuda auto": [3.5, 200.0, "yes"]}}}


def test_numbers_of_the_host() -> None:
    lines = [
        ("launch", 6),
        ("plan.run, cupy", 12),
        ("plan.run, two kernels, cupy", 25),
        ("op, new shape, median, torch", 40),
        ("op, seen shape, cupy", 9),
    ]
    rows = [{"what": what, "value": str(value), "unit": "us"} for what, value in lines] + [{"what": "first call", "value": "38", "unit": "ms"}]
    calls = {"plan.run": {"cupy": 12.0}, "plan.run, two kernels": {"cupy": 25.0}}
    assert pictures.host_numbers(rows) == {"calls": calls, "shapes": {"op": {"new shape, median": 40.0}}, "others": {"launch": 6.0}}


SURFACE = [
    {"cell": cell, "op": "cumsum", "element": "f32", "shape": "2", "axis": "0", "case": "x", **row("cumsum", "x", who, us, share)}
    for cell, (who, us, share) in itertools.product("01", [("numba_baracuda scan", 2.0, 0.5), ("torch cumsum", 4.0, 0.25)])
]


def test_a_surface_is_drawn_where_there_is_one(tmp_path: Path) -> None:
    assert pictures.pictures(tmp_path) == {}
    for seed in "12":
        results.write_csv(tmp_path / f"surface_scan_{seed}.csv", {"family": "scan", "seed": seed}, SURFACE)
    (picture,) = pictures.pictures(tmp_path).values()
    assert list(pictures.pictures(tmp_path)) == ["surface-scan"]
    assert picture.numbers == {"shares": {"f32": [50.0] * 4}, "ratios": {"torch": [2.0] * 4}}, "two files of two cells each"


def test_every_library_has_a_colour() -> None:
    assert all(set(pictures.LIBRARIES) == set(colours) for colours in drawing.COLOURS.values())


def test_the_results_have_pictures() -> None:
    assert {"peers", "peers-reduce", "peers-scan", "peers-segment", "peers-segment-unsorted", "loss", "host", "sweep"} <= set(COMMITTED)


@pytest.mark.parametrize("name", COMMITTED)
def test_plots_in_docs_are_of_the_results(name: str) -> None:
    """Each file says of which numbers it was drawn. ``python -m benchmarks.report`` renews them."""
    for theme, suffix in itertools.product(drawing.THEMES, ("svg", "png")):
        text = (report.PLOTS / f"{name}-{theme}.{suffix}").read_bytes()
        assert re.findall(rb"numbers ([0-9a-f]{64})", text) == [drawing.digest(COMMITTED[name].numbers).encode()], f"{name}-{theme}.{suffix}"


def test_docs_have_no_other_plots() -> None:
    wanted = {f"{name}-{theme}.{suffix}" for name in COMMITTED for theme in drawing.THEMES for suffix in ("svg", "png")}
    assert {path.name for path in report.PLOTS.iterdir()} == wanted


@pytest.fixture
def figures() -> Any:
    pytest.importorskip("matplotlib")
    return lambda picture: drawing.figure(picture.paint, picture.numbers, picture.size, "light")


def drawn_points(axes: Any) -> list[float]:
    return sorted(float(x) for dots in axes.collections for x, _ in dots.get_offsets())


@pytest.mark.parametrize("name", [name for name in COMMITTED if name.startswith("peers")])
def test_every_cell_is_a_dot(name: str, figures: Any) -> None:
    left, right = figures(COMMITTED[name]).axes
    numbers = COMMITTED[name].numbers
    for axes, what in ((left, "shares"), (right, "ratios")):
        assert drawn_points(axes) == sorted(value for group in numbers.values() for values in group[what].values() for value in values)
    low, high = right.get_xlim()
    assert all(low <= x <= high for x in drawn_points(right)), "slower cells are in sight"
    labels = [tick.get_text() for tick in left.get_yticklabels()]
    assert [label.partition("\n")[0] for label in labels] == list(numbers)


def test_every_contestant_of_a_loss_is_drawn(figures: Any) -> None:
    numbers = COMMITTED["loss"].numbers
    panels = {axes.get_title(): axes for axes in figures(COMMITTED["loss"]).axes if axes.get_title()}
    assert list(panels) == list(numbers) and len(numbers) >= 6
    for name, case in numbers.items():
        points = {(line.get_xdata()[0], line.get_ydata()[0]) for line in panels[name].lines if len(line.get_xdata()) == 1}
        assert points == {(mib, ms) for ms, mib, _ in case["contestants"].values()}


def test_every_host_cost_is_a_bar(figures: Any) -> None:
    numbers = COMMITTED["host"].numbers
    for axes, what in zip(figures(COMMITTED["host"]).axes, ("calls", "shapes"), strict=True):
        widths = sorted(bar.get_width() for bar in axes.patches)
        assert widths == sorted([value for each in numbers[what].values() for value in each.values()] + [*numbers["others"].values()])


def test_curves_of_surfaces_and_sweeps(tmp_path: Path, figures: Any) -> None:
    results.write_csv(tmp_path / "surface_scan.csv", {"family": "scan", "seed": "1"}, SURFACE)
    left, _ = figures(pictures.pictures(tmp_path)["surface-scan"]).axes
    assert [list(line.get_xdata()) for line in left.lines] == [[50.0, 50.0]]
    sweep = figures(COMMITTED["sweep"]).axes
    assert [len(axes.lines) for axes in sweep] == [len(curves) for curves in COMMITTED["sweep"].numbers.values()]


def test_drawing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results.write_csv(tmp_path / "host.csv", {}, [{"what": "launch", "value": "6", "unit": "us"}])
    both = [report.draw(tmp_path, tmp_path / folder) for folder in "ab"]
    assert [path.name for path in both[0]] == ["host-light.svg", "host-light.png", "host-dark.svg", "host-dark.png"]
    assert [path.read_bytes() for path in both[0]] == [path.read_bytes() for path in both[1]]
    light, dark = both[0][0].read_text(), both[0][2].read_text()
    assert "#0d1117" in dark and "#0d1117" not in light and "<dc:date>" not in light


def test_plots_of_lost_results_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "gone-light.svg").write_text("")
    assert report.draw(tmp_path / "nothing", tmp_path) == [] and not list(tmp_path.iterdir())


def test_committed_svg_is_what_this_code_draws(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    found: Picture = COMMITTED["peers"]
    committed = (report.PLOTS / "peers-light.svg").read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in committed:
        pytest.skip(f"the plots in docs/ are of another matplotlib than {matplotlib.__version__}")
    path = tmp_path / "peers.svg"
    drawing.save(path, found.paint, found.numbers, found.size)
    assert path.read_text() == committed
    assert importlib.import_module("xml.etree.ElementTree").fromstring(committed).tag.endswith("svg")


def test_scaling_stands_beside_the_model() -> None:
    shared = {"case": "loss, 8192 x 4096 x 128256, bf16", "exposed_ms": "", "checked": "yes"}
    rows = [
        shared | {"who": "one GPU", "ranks": "4", "ms": "36.0"},
        shared | {"who": "numba_baracuda", "ranks": "4", "ms": "9.0", "exposed_ms": "0.5"},
    ]
    rows += [shared | {"who": "torch loss_parallel", "ranks": "4", "ms": "15.0", "checked": ""}, shared | {"case": "cumsum, 2^29", "ms": "1"}]
    ((case, by_ranks),) = scaling.numbers([rows, [shared | {"who": "one GPU", "ranks": "2", "ms": "35.0"}]]).items()
    chunks = [FusedLinearCrossEntropyDescriptor(8192, 4096, classes, "bf16").chunk_size for classes in (128256, 32064)]
    one, four = (step(8192, 4096, 128256, ranks, chunk) for ranks, chunk in zip((1, 4), chunks, strict=True))
    assert case == "8192 x 4096 x 128256"
    assert by_ranks["1"] == [36.0, pytest.approx(one.total * 1e3, abs=1e-3), 0, 0]
    assert by_ranks["4"] == [9.0, pytest.approx(four.total * 1e3, abs=1e-3), 0.5, pytest.approx((four.exchange + four.reduction) * 1e3, abs=1e-3)]
