"""Surfaces: the ranges of their cells, that cells follow from the seed, the statistics, and tiny cells from end to end."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from numpy_card import Xp

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

import numba_baracuda as nb
from benchmarks import checks, peers, report, results, run, surface, surface_cells, surface_kernels, surface_report, timing, values
from benchmarks.case import output_of
from benchmarks.reduce_cases import ReduceCase
from benchmarks.segment_cases import SegmentCase
from benchmarks.surface_cells import Cell, cells, draw
from numba_baracuda import OPS
from numba_baracuda.plans.steps import Kernel

MANY = 600
DRAWN = {family: [draw(family, 5, number) for number in range(MANY)] for family in surface_cells.FAMILIES}


def size(case: Any) -> int:
    return case.rows * case.columns if isinstance(case, SegmentCase) else math.prod(case.shape)


@pytest.mark.parametrize("family", DRAWN)
def test_what_is_drawn(family: str) -> None:
    """Sizes fill their range, dtypes come at 6 : 3 : 1, half of the cells are gradients, and every op of the family comes."""
    drawn = DRAWN[family]
    least, most = (2.0**power for power in (surface_cells.ROW_POWERS if family == "segment" else surface_cells.POWERS))
    sizes = [size(case) for case in drawn]
    assert least <= min(sizes) < 1.05 * least and most / 1.05 < max(sizes) <= most * 1.0001
    assert np.median(sizes) == pytest.approx(math.sqrt(least * most), rel=0.15)
    elements = Counter(case.element for case in drawn)
    for element, share in surface_cells.ELEMENTS.items():
        assert elements[element] / MANY == pytest.approx(share / 10, abs=4 * math.sqrt(0.25 / MANY))
    assert sum(OPS[case.op].traits["backward"] for case in drawn) / MANY == pytest.approx(0.5, abs=0.09)
    assert {case.op for case in drawn} == {name for name, op in OPS.items() if op.family == family}


@pytest.mark.parametrize("family", ["reduce", "scan"])
def test_arrays_of_any_shape(family: str) -> None:
    """One to four axes come equally often, extents of every size, few of them powers of two, and every choice of axes."""
    shapes = [case.shape for case in DRAWN[family]]
    assert min(Counter(map(len, shapes)).values()) > MANY / 6 and set(map(len, shapes)) == {1, 2, 3, 4}
    extents = [extent for shape in shapes for extent in shape]
    assert min(extents) == surface_cells.NARROWEST and sum(extent & (extent - 1) == 0 for extent in extents) < 0.25 * len(extents)
    assert {int(math.log2(extent)) for extent in extents} == set(range(1, 28))
    for axes in range(1, 5):
        of_rank = [case for case in DRAWN[family] if len(case.shape) == axes]
        chosen = {case.axes if isinstance(case, ReduceCase) else (case.axis,) for case in of_rank}
        every = range(1, axes + 1) if family == "reduce" else (1,)
        assert chosen == {subset for number in every for subset in itertools.combinations(range(axes), number)}


def test_segments_of_any_shape() -> None:
    drawn = DRAWN["segment"]
    columns, lengths = [case.columns for case in drawn], [case.rows / case.segments for case in drawn]
    assert min(columns) == 1 and 400 < max(columns) <= 512 and np.median(columns) == pytest.approx(math.sqrt(512), rel=0.5)
    assert 1.39 < min(lengths) < 1.6 and 3500 < max(lengths) < 4200 and np.median(lengths) == pytest.approx(math.sqrt(1.4 * 4096), rel=0.5)
    assert Counter(case.ids for case in drawn)["hot"] / MANY == pytest.approx(0.5, abs=0.09)
    ways = Counter((case.op.startswith("unsorted_"), case.deterministic, case.indexed) for case in drawn)
    assert set(ways) == {(False, True, False), (True, True, False), (True, False, False), (True, True, True)}
    assert min(ways.values()) > MANY / 6


def test_sparse_segments_are_mostly_empty() -> None:
    """Segments have as many elements as the rows of usual cells, and rows are down to a 256th of them."""
    drawn = [draw("segment", 5, number, sparse=True) for number in range(MANY)]
    ratios = [case.segments / case.rows for case in drawn if isinstance(case, SegmentCase)]
    assert len(ratios) == MANY and min(ratios) >= 1 and 128 < max(ratios) <= 260 and np.median(ratios) == pytest.approx(16, rel=0.3)
    usual = DRAWN["segment"]
    for case, other in zip(drawn, usual, strict=True):
        assert isinstance(case, SegmentCase) and isinstance(other, SegmentCase)
        assert (case.op, case.ids, case.columns, case.element, case.segments) == (other.op, other.ids, other.columns, other.element, other.rows)
    with pytest.raises(SystemExit):
        surface.main(["--family", "scan", "--seed", "1", "--sparse", "--list"])


@pytest.mark.parametrize("family", surface_cells.FAMILIES)
def test_cells_follow_from_the_seed(family: str) -> None:
    """A shorter run has the first cells of a longer one; another seed or attempt gives other cells."""
    some = list(cells(family, 3, "both", 20))
    assert list(cells(family, 3, "both", 8)) == some[:8] and list(cells(family, 3, "both", 20)) == some
    assert [cell.number for cell in some] == list(range(20))
    others = [draw(family, 4, number) for number in range(20)], [draw(family, 3, number, attempt=1) for number in range(20)]
    assert all(cell.case not in other for cell in some for other in others)
    for direction in ("forward", "backward"):
        drawn = [cell.case.op for cell in cells(family, 3, direction, 40)]
        assert {op.endswith("_backward") for op in drawn} == {direction == "backward"}


def test_cells_that_fit_in_no_memory_are_redrawn() -> None:
    plain, free = list(cells("scan", 2, "both", 30)), 8e9
    fitting = list(cells("scan", 2, "both", 30, free))
    assert all(surface_cells.memory(cell.case) <= free for cell in fitting)
    for before, after in zip(plain, fitting, strict=True):
        assert (after == before) == (surface_cells.memory(before.case) <= free) == (after.redrawn == 0)
        assert after.case == draw("scan", 2, after.number, "both", after.redrawn)
    assert 0 < sum(cell.redrawn > 0 for cell in fitting) < 30
    case = ReduceCase("reduce_sum", (4, 1000), (1,))
    assert surface_cells.memory(case) == 2 * 4 * (4000 + 4) + 16 * 8 * 4000
    with pytest.raises(MemoryError, match=r"cell 0 was drawn 1000 times and never fits in 0\.0 GB"):
        next(cells("reduce", 1, "both", 1, 1000.0))


def test_a_cell_in_words() -> None:
    facts = Cell(7, ReduceCase("reduce_max", (3, 5, 7), (0, 2), "bf16")).facts
    assert facts == {"cell": "7", "element": "bf16", "shape": "3x5x7", "axis": "0 2"}
    segment = SegmentCase("unsorted_segment_sum", "hot", 1234567, 3, 999, deterministic=False)
    assert Cell(8, segment).facts == {"cell": "8", "element": "f32", "shape": "1234567x3", "axis": "999 segments hot any_order"}


def _records(number: int, element: str, share: float, rivals: dict[str, tuple[float, str]], checked: str = "yes") -> list[results.Record]:
    """The records of a cell that takes 100 us, with a copy rate of 4000 GB/s. ``rivals``: name → how many times as long it takes, and its verdict."""
    case = ReduceCase("reduce_sum_backward" if number % 2 else "reduce_sum", (40, 50), (1,), element)
    nbytes = round(share * 4000 * 100 * 1e3)
    rows = [results.Row(case.op, case.id, "numba_baracuda fold", nbytes, timing.Timing((100.0,)) if checked == "yes" else None, checked)]
    for who, (ratio, right) in rivals.items():
        timed = None if right.startswith(("failed", "too slow")) else timing.Timing((100 * ratio,))
        rows.append(results.Row(case.op, case.id, who, nbytes, timed, right))
    return surface.records(Cell(number, case), [dataclasses.replace(row, copy=4000.0) for row in rows])


MADE = [
    *_records(0, "f32", 0.9, {"torch sum": (2.0, "yes"), "torch other": (1.5, "yes"), "jax sum": (1.2, "yes")}),
    *_records(1, "f32", 0.5, {"torch autograd": (0.94, "yes"), "jax vjp": (3.0, "yes")}),
    *_records(2, "bf16", 0.1, {"torch sum": (0.3, "WRONG: 3 of 4"), "jax sum": (0.75, "yes")}),
    *_records(3, "bf16", 0.7, {"torch autograd": (1.0, "failed: no memory"), "jax vjp": (1.0, "too slow: 3.0 s a call")}),
    *_records(4, "f64", 0.8, {"torch sum": (0.95, "yes"), "cupy sum": (0.1, "yes")}),
    *_records(5, "f64", 0.0, {}, "WRONG: 1 of 40"),
]


def test_statistics() -> None:
    """Wrong cells have no share; peers that are wrong, or of other libraries, are no rivals; a limit itself is not below it."""
    found = surface_report.lines(MADE)
    assert [line.us for line in found] == [100.0] * 5 + [0.0] and [line.right for line in found] == [True] * 5 + [False]
    assert [line.ratio for line in found] == [1.2, 0.94, 0.75, None, 0.95, None]
    assert dict(found[0].ratios) == {"torch": 1.5, "jax": 1.2}
    assert surface_report.percentiles(found) == pytest.approx({"worst": 0.1, "5 %": 0.18, "25 %": 0.5, "50 %": 0.7, "75 %": 0.8})
    assert surface_report.percentiles(found[5:]) == {}
    assert [surface_report.slower(found, limit) for limit in (0.95, 0.8, 0.7)] == [2, 1, 0]
    sizes = {name: len(group) for name, group in surface_report.groups(found).items()}
    assert list(sizes.items()) == [("all", 6), ("forward", 3), ("backward", 3), ("f32", 2), ("bf16", 2), ("f64", 2)]
    assert list(surface_report.groups(found[:1])) == ["all", "forward", "f32"]
    worst, slower = surface_report.worst(found).values()
    assert [line.facts["cell"] for line in worst] == ["2", "1", "3", "4", "0"] and [line.facts["cell"] for line in slower] == ["2", "1"]
    assert len(next(iter(surface_report.worst(found * 9).values()))) == surface_report.WORST == 20
    assert surface_report.verdicts(MADE) == {"jax too slow": 1, "torch WRONG": 1, "torch failed": 1}
    words = str(found[0]).split()
    assert words == ["0", "reduce_sum", "f32", "40x50", "1", "100.0", "us", "90.0%", "torch", "1.50", "x", "jax", "1.20", "x"]
    assert str(found[5]).endswith("WRONG: 1 of 40")


def test_csv_round_trip(tmp_path: Path) -> None:
    path, header = tmp_path / "new" / "surface.csv", {"family": "reduce", "seed": "3", "redrawn": "2"}
    results.write_csv(path, header, MADE)
    assert results.read_csv(path) == (header, MADE)
    assert surface_report.lines(results.read_csv(path)[1]) == surface_report.lines(MADE)


def concluded(found: list[results.Record], drawing: Path | None = None) -> tuple[int, str]:
    screen = report.console()
    with screen.capture() as captured:
        status = surface.conclude(found, {"family": "reduce", "seed": "3", "redrawn": "2"}, screen, drawing)
    return status, captured.get()


def test_a_wrong_cell_is_reported() -> None:
    status, printed = concluded(MADE)
    assert status == 1 and "6 cells done, 2 redrawn for want of memory, 1 wrong or failed" in printed
    assert "peers left out: jax too slow 1, torch WRONG 1, torch failed 1" in printed
    assert printed.splitlines()[-1].endswith("WRONG: 1 of 40") and "family reduce, seed 3" in printed
    everything = next(line.split() for line in printed.splitlines() if line.startswith("all "))
    assert everything == ["all", "6", "10.0%", "18.0%", "50.0%", "70.0%", "80.0%", "4", "2", "1"]
    assert concluded(MADE[:4])[0] == 0 and concluded([])[0] == 1


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "surface.png"
    assert concluded(MADE, path)[0] == 1
    assert path.stat().st_size > 1000


BENCH = run.Bench(Xp(), lambda calls, repeats: timing.Timing((1.0,)), (), 3, 1000)  # type: ignore[arg-type]
COPY: Any = SimpleNamespace(rate=lambda events, repeats: 4.0)


def surveyed(drawn: list[Cell], path: Path | None = None, until: float = math.inf) -> tuple[list[results.Record], results.Record, str]:
    header: results.Record = {"redrawn": "0"}
    screen = report.console()
    with screen.capture() as captured:
        found = surface.survey(drawn, BENCH, COPY, screen, path, header, until)
    return found, header, captured.get()


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("family", surface_cells.FAMILIES)
def test_tiny_cells_are_right(emulator: Any, family: str, direction: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    count = 3 if request.config.getoption("--full") else 1
    drawn = [Cell(cell.number, cell.case.tiny(), redrawn=1) for cell in cells(family, 1, direction, count)]
    path = tmp_path / "surface.csv"
    found, header, printed = surveyed(drawn, path)
    every = surface_report.lines(found)
    assert [(line.checked, line.op) for line in every] == [("yes", cell.case.op) for cell in drawn]
    assert all(line.share > 0 and line.us == 1.0 for line in every)
    assert results.read_csv(path) == (header, found)
    assert (header["cells"], header["redrawn"], header["copy_gb_s"]) == (str(count), str(count), "4.0 (4.0 to 4.0)")
    assert [line.split()[1] for line in printed.splitlines()] == [cell.case.op for cell in drawn]
    assert concluded(found)[0] == 0


def test_a_survey_ends_in_time(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell begins when time is up; a wrong cell does not end the survey."""
    clock = itertools.count()
    monkeypatch.setattr(surface, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    def truth(self: ReduceCase, xp: Any, operands: Any) -> checks.Truth:
        return checks.Truth(operands["x"].sum(1, keepdims=True) + (self.shape[0] == 3), np.ones((self.shape[0], 1)))

    monkeypatch.setattr(ReduceCase, "truth", truth)
    drawn = [Cell(number, ReduceCase("reduce_sum", (2 + number % 2, 5), (1,))) for number in range(9)]
    found, header, printed = surveyed(drawn, until=9.0)
    assert [row["checked"].partition(":")[0] for row in found] == ["yes", "WRONG", "yes"] and header["cells"] == "3"
    assert "3 of 3 elements are wrong" in printed and concluded(found)[0] == 1


@pytest.mark.parametrize("name", surface_report.RIVALS)
def test_rivals_take_any_axes(emulator: Any, name: str) -> None:
    """Peers in float32 are right for random axes and ids, and every op of the three families has one."""
    pytest.importorskip(name)
    framework, drawn = peers.load(name, np), dict[tuple[Any, ...], Any]()
    for family, number in itertools.product(surface_cells.FAMILIES, range(20)):
        case = draw(family, 6, number)
        if case.element == "f32":
            drawn[case.op, getattr(case, "axes", 0), len(getattr(case, "shape", ()))] = case.tiny()
    for case in drawn.values():
        operands = case.make(np)
        wanted = case.truth(np, operands)
        for each in framework.of(case):
            values.poison(operands[output_of(case)])
            (call,) = framework.bind(each, np, case, [operands])
            assert checks.complaint(np, framework.take(call()), wanted, conventions=False) == "", (each.name, case.op, case.id)
    for op in (op for family in surface_cells.FAMILIES for op in OPS if OPS[op].family == family):
        each = next(case for family in DRAWN.values() for case in family if case.op == op and (case.axis if hasattr(case, "axis") else 3) == 3)
        assert framework.of(each.tiny()), op


def test_without_a_gpu_there_is_nothing_to_measure(emulator: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert surface.main(["--family", "scan", "--seed", "1"]) == 2
    assert "benchmarks.surface: no CUDA device" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        surface.main(["--family", "loss", "--seed", "1"])


def test_cells_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert surface.main(["--family", "segment", "--seed", "9", "--cells", "5", "--list"]) == 0
    listed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert listed == [[str(cell.number), cell.case.op] for cell in cells("segment", 9, "both", 5)]


def test_the_kernels_of_all_cells_are_compiled_first(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: dict[Any, None] = {}
    monkeypatch.setattr(surface_kernels, "warm", lambda specs, arch: compiled.update(specs) or len(compiled))
    cases = [draw(family, 5, number).tiny() for family in surface_cells.FAMILIES for number in range(4)]
    assert surface_kernels.compile_all(cases) == len(compiled)
    for case in cases:
        plan, operands = case.plan(), case.make(np)
        if getattr(case, "indexed", False):
            operands["segment_ids"] = nb.SegmentIndex(operands["segment_ids"], case.segments, is_sorted=False)
        launched = {step.spec for step in plan.bound(plan.views(operands)).frame.steps if isinstance(step, Kernel)}
        assert launched and launched <= compiled.keys(), case.id
    assert surface_kernels.compile_all([]) == 0


@pytest.mark.gpu
@pytest.mark.memory(2 * (1 << 30) / 1e9 + 0.5)  # the buffers of the copy
@pytest.mark.parametrize("family", surface_cells.FAMILIES)
def test_surface_on_the_gpu(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    monkeypatch.setattr(surface_cells, "WORK", 0)
    path = tmp_path / "surface.csv"
    arguments = ["--family", family, "--seed", "1", "--cells", "4", "--tiny", "--against", "none", "--repeats", "3", "--csv", str(path)]
    assert surface.main(arguments) == 0
    header, rows = results.read_csv(path)
    assert header["cells"] == "4" and {"gpu", "copy_gb_s", "memory", "seed"} <= set(header)
    assert len(rows) == 4 and all(row["checked"] == "yes" and float(row["median_us"]) > 0 for row in rows)
