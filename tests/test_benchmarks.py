"""The benchmark harness: every case in its tiny form, the checks that guard the times, and what is made of samples."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from references import Truth as Reference
from tolerance import allowed

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import cases, checks, host, peers, report, results, run, timing

CASES = cases.matching()
#: one case for each kind of truth
KINDS = list({case.op.removeprefix("unsorted_"): case for case in CASES}.values())


def name_of(case: Any) -> str:
    return f"{case.op}-{case.id}"


@pytest.fixture
def xp(kind: Any) -> Any:
    return importlib.import_module(kind.name)


def ready(xp: Any, case: cases.Case) -> tuple[dict[str, Any], Any, checks.Truth]:
    """Operands, the call on them, and the truth."""
    operands = case.make(xp)
    return operands, case.prepare(xp)[1](operands), checks.truth(xp, case.op, operands)


def test_ids_are_unique() -> None:
    assert len({(case.op, case.id) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_tiny_case_is_right(xp: Any, case: cases.Case) -> None:
    tiny = case.tiny()
    assert tiny.op == case.op and cases.nbytes(tiny) < 20_000
    operands, call, wanted = ready(xp, tiny)
    assert run.verify(xp, tiny, operands, call, wanted) == ""
    assert list(operands) == list(tiny.specs)
    for name, spec in tiny.specs.items():
        assert operands[name].shape == spec.shape
        assert operands[name].nbytes == spec.nbytes


@pytest.mark.parametrize("case", KINDS, ids=name_of)
def test_planted_errors_are_found(xp: Any, case: cases.Case) -> None:
    tiny = case.tiny()
    operands, call, wanted = ready(xp, tiny)
    output = operands[run.output_of(tiny)]
    for added in (0.01, np.nan):

        def spoiled(added: float = added) -> None:
            call()
            output.reshape(-1)[-1:] += added

        assert run.verify(xp, tiny, operands, spoiled, wanted).startswith("1 of")
    assert "elements are wrong" in run.verify(xp, tiny, operands, lambda: None, wanted)
    assert "is of shape" in checks.complaint(xp, output[:-1], wanted)


def test_tolerance_is_that_of_the_tests() -> None:
    rng = np.random.default_rng(0)
    value, terms = rng.standard_normal((50, 3)), rng.integers(0, 100, 50)
    scale = abs(value) + rng.random((50, 3))
    for dtype, element in ((np.float32, "f32"), (np.float64, "f64")):
        limit = allowed(Reference(value, scale, terms), element, "segment_sum")
        wanted = checks.Truth(value.astype(dtype).astype(np.float64), scale, terms)
        for factor, verdict in ((0.5, ""), (2.0, "150 of 150")):
            got = (wanted.value + factor * limit).astype(dtype)
            assert checks.complaint(np, got, wanted).startswith(verdict) and bool(checks.complaint(np, got, wanted)) == bool(verdict)


@pytest.mark.parametrize(
    ("op", "case", "nbytes"),
    [
        ("segment_sum", "uniform-2Mx128-S100k", 4 * (2_000_000 * 128 + 2_000_000 + 100_000 * 128)),
        ("segment_mean", "uniform-100Mx1-S1M", 4 * (100_000_000 + 100_000_000 + 1_000_000)),
        ("segment_sum", "uniform-2Mx64-S100k-f64", 8 * 2_000_000 * 64 + 4 * 2_000_000 + 8 * 100_000 * 64),
        ("unsorted_segment_mean_backward", "uniform-20Mx16-S1M", 4 * (1_000_000 * 16 + 20_000_000 + 20_000_000 * 16)),
        ("row_sum", "16384x16384", 4 * (16384 * 16384 + 16384)),
    ],
)
def test_bytes_count_every_operand_once(op: str, case: str, nbytes: int) -> None:
    (found,) = cases.matching(op, case)
    assert cases.nbytes(found) == nbytes


def test_patterns_select() -> None:
    assert {case.op for case in cases.matching("unsorted_*_backward")} == {"unsorted_segment_sum_backward", "unsorted_segment_mean_backward"}
    zipf = [(case.op, case.id) for case in cases.matching("*segment_sum", "zipf-*")]
    orders = [("unsorted_segment_sum", f"zipf-2Mx128-S100k-{order}") for order in ("deterministic", "any_order")]
    assert zipf == [("segment_sum", "zipf-2Mx128-S100k"), *orders]
    assert cases.matching("no_such_op") == []


def test_distributions() -> None:
    rng = np.random.default_rng(3)
    ids = {name: draw(np, rng, 20_000, 20_000 if name == "each" else 100) for name, draw in cases.DISTRIBUTIONS.items()}
    for name, drawn in ids.items():
        assert drawn.min() >= 0 and drawn.max() < (20_000 if name == "each" else 100), name
    assert set(ids["even"]) == set(range(0, 100, 2)) and set(ids["uniform"]) == set(range(100))
    share = np.arange(1, 101) ** -1.3
    np.testing.assert_allclose(np.bincount(ids["zipf"], minlength=100)[:5] / 20_000, (share / share.sum())[:5], rtol=0.1)
    assert list(ids["each"]) == list(range(20_000))


def test_ids_are_sorted_where_the_op_wants_them() -> None:
    for case in cases.matching("*segment_sum", "uniform-2Mx128-*"):
        ids = case.tiny().make(np)["segment_ids"]
        assert bool((np.diff(ids) >= 0).all()) == (case.op == "segment_sum")


@pytest.mark.parametrize("main", [run.main, host.main])
def test_without_a_gpu_there_is_nothing_to_measure(emulator: Any, main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().out


def test_list_and_patterns_that_match_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list", "--op", "row_sum"]) == 0
    assert "16384x16384" in capsys.readouterr().out
    assert run.main(["--op", "no_such_op"]) == 2
    assert "no case matches" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["--against", "abacus"])


def test_percentiles() -> None:
    found = timing.Timing((5.0, 1.0, 3.0, 2.0, 4.0))
    assert (found.low, found.median, found.high) == (pytest.approx(1.4), 3.0, pytest.approx(4.6))
    assert timing.Timing((1.0, 2.0)).median == 1.5


def test_operand_sets_exceed_the_cache() -> None:
    for nbytes, cache, memory in ((1 << 30, 60 << 20, 80 << 30), (1 << 20, 60 << 20, 80 << 30), (100 << 20, 60 << 20, 80 << 30)):
        count = timing.set_count(nbytes, cache, memory)
        assert count >= 2 and count * nbytes > 2 * cache
    assert timing.set_count(1 << 30, 60 << 20, 1 << 20) == 2
    assert timing.set_count(1000, 60 << 20, 80 << 30) == timing.MOST_SETS


def test_short_calls_are_timed_together() -> None:
    assert timing.plan_samples(300.0, 25) == (25, 1)
    samples, calls = timing.plan_samples(5.0, 25)
    assert samples == 25 and calls * 5 >= timing.TOGETHER
    assert timing.plan_samples(1e6, 25) == (timing.FEWEST, 1)
    assert timing.plan_samples(1e6, 3) == (3, 1)


def test_wall_clock_divides_by_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * 4e-3))
    waited: list[str] = []
    found = timing.WallClock(waited.append)([lambda: "a", lambda: "b"], 7)
    assert found.samples == (pytest.approx(400.0),) * 7  # 4 ms by that clock for the 10 calls that 1000 us a call make of 10 ms
    assert waited[:4] == ["a", "b", "a", "b"] and len(waited) == 4 + 1 + 7


class Card:
    """What :class:`timing.Events` asks of CuPy, on clocks of its own: queueing takes the host 10 us, and the device runs what is queued in order."""

    def __init__(self) -> None:
        self.cuda = self
        self.host = self.device = 0.0  # microseconds
        self.held: list[float] = []

    def queue(self, microseconds: float) -> None:
        self.host += 10
        self.device = max(self.device, self.host) + microseconds

    def RawKernel(self, source: str, name: str) -> Any:
        def hold(blocks: Any, threads: Any, arguments: Any) -> None:
            self.held.append(float(arguments[0]) / 1e3)
            self.queue(self.held[-1])

        return hold

    def Event(self) -> Any:
        return Event(self)

    def Device(self) -> Any:
        return SimpleNamespace(synchronize=lambda: setattr(self, "host", max(self.host, self.device)))

    def get_elapsed_time(self, begin: Any, end: Any) -> float:
        return float(end.at - begin.at) / 1e3


class Event:
    def __init__(self, card: Card) -> None:
        self.card, self.at = card, 0.0

    def record(self) -> None:
        self.at = max(self.card.device, self.card.host)

    @property
    def done(self) -> bool:
        return self.card.host >= self.at


@pytest.mark.parametrize(("late", "holds", "dry"), [(range(0), 2, False), (range(6, 7), 3, False), (range(6, 10**6), 4, True)])
def test_the_queue_is_held_until_it_is_full(monkeypatch: pytest.MonkeyPatch, late: range, holds: int, dry: bool) -> None:
    """Late calls take the host 100 ms. Six calls warm up and estimate; a hold that was too short is tried again, and 2 s is the longest."""
    card, turns = Card(), itertools.count()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: card.host / 1e6))

    def call() -> None:
        card.host += 1e5 if next(turns) in late else 0.0
        card.queue(5.0)

    found = timing.Events(card)([call, call], 8)
    assert found.dry == dry and len(card.held) == holds and max(card.held) <= 2e6
    assert dry or found.samples == (pytest.approx(5.0),) * 8


ROWS = [
    results.Row("op", "case", "numba_baracuda kernel f32", 4_000_000, timing.Timing((2.0, 1.0, 3.0))),
    results.Row("op", "case", "torch right", 4_000_000, timing.Timing((4.0,), dry=True), note="by hand"),
    results.Row("op", "case", "torch slow", 4_000_000, timing.Timing((8.0,))),
    results.Row("op", "case", "torch, wrong", 4_000_000, timing.Timing((1.0,)), "WRONG: 3 of 4"),
    results.Row("op", "case", "jax", 4_000_000, None, 'failed: "quoted", # and\na new line'),
    results.Row("op", "other", "numba_baracuda kernel f32", 4_000_000, None, "WRONG: 1 of 4"),
]


COPIED = [dataclasses.replace(row, copy=4000.0) for row in ROWS]


def test_records_compare_with_the_copy_and_the_best_right_peer() -> None:
    ours, right, slow, wrong, failed, other = results.records(COPIED)
    assert (ours["median_us"], ours["gb_s"], ours["share_of_copy"], ours["vs_best_peer"]) == ("2.00", "2000.0", "0.5000", "2.000")
    assert (right["vs_best_peer"], slow["vs_best_peer"], wrong["vs_best_peer"]) == ("1.000", "0.500", "4.000")
    assert "by hand" in right["note"] and "ran dry" in right["note"]
    assert failed["median_us"] == other["median_us"] == "" and other["vs_best_peer"] == ""


def test_csv_round_trip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = {"gpu": "NVIDIA H200", "commit": "abc-dirty", "copy_gb_s": "4200.0", "empty": ""}
    path = tmp_path / "new" / "ops.csv"
    found = results.records(COPIED)
    results.write_csv(path, header, found)
    assert results.read_csv(path) == (header, found)
    assert report.main([str(path)]) == 0
    printed = capsys.readouterr().out
    assert "50.0%" in printed and "torch right" in printed and "torch slow" not in printed
    assert "torch slow" in render(report.case_table(found[:5]))


def render(table: Any) -> str:
    screen = report.console()
    with screen.capture() as captured:
        screen.print(table)
    return captured.get()


def test_stamp_names_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(results.COMMIT, "1234abc")
    assert results.stamp()["commit"] == "1234abc"
    assert {"date", "numpy", "numba-cuda", "python"} <= set(results.stamp())
    assert results.default_path("ops", "NVIDIA H200").name == "ops_h200.csv"
    assert results.default_path("host", "NVIDIA GeForce RTX 4090").name == "host_geforce_rtx_4090.csv"


@pytest.mark.parametrize("name", ["cupy", "torch", "jax"])
def test_peers_are_right(xp: Any, name: str) -> None:
    """On NumPy arrays the peers of CuPy are NumPy's functions of the same names."""
    if name != "cupy":
        pytest.importorskip(name)
    framework = peers.load(name, xp)
    for case in {case.op: case.tiny() for case in CASES}.values():
        operands = case.make(xp)
        wanted = checks.truth(xp, case.op, operands)
        assert framework.of(case.op), f"{name} has no peer for {case.op}"
        for peer in framework.of(case.op):
            run.poison(operands[run.output_of(case)])
            (call,) = framework.bind(peer, xp, [operands])
            got = call()
            got = got if isinstance(got, xp.ndarray) else xp.from_dlpack(got)
            assert checks.complaint(xp, got, wanted) == "", (peer.name, case.op)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results.write_csv(tmp_path / "ops.csv", {}, results.records(COPIED))
    assert report.main([str(tmp_path / "ops.csv"), "--plot", str(tmp_path / "ops.png")]) == 0
    assert (tmp_path / "ops.png").stat().st_size > 1000


@pytest.mark.gpu
def test_whole_run_on_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cupy")
    path = tmp_path / "ops.csv"
    arguments = ["--tiny", "--op", "segment_sum", "--case", "uniform-2Mx128-S100k", "--against", "cupy", "--repeats", "5", "--csv", str(path)]
    assert run.main(arguments) == 0
    header, rows = results.read_csv(path)
    assert {"gpu", "cuda", "driver", "commit", "copy_gb_s"} <= set(header)
    assert [row["who"].split()[0] for row in rows] == ["numba_baracuda", "cupy"]
    assert all(row["checked"] == "yes" and float(row["low_us"]) <= float(row["median_us"]) <= float(row["high_us"]) for row in rows)
    assert "copy" in capsys.readouterr().out
