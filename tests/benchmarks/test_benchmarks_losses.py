"""The race of losses: who takes part, the truth and what is judged by it, and what is made of the times."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loss_reference import wanted as reference

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import loss_cases, loss_contestants, loss_report, losses, report, results
from benchmarks.loss_cases import CASES, Errors, LossCase
from benchmarks.loss_contestants import PRODUCTS, YARDSTICK, Contestant, Emulated
from benchmarks.loss_report import Entry
from benchmarks.timing import Timing
from numba_baracuda.loss.chunking import logits_row_stride

GPT2 = CASES[-1].tiny()


def render(table: Any) -> str:
    screen = report.console()
    with screen.capture() as captured:
        screen.print(table)
    return captured.get()


class Clocked(Emulated):
    """Where every call takes two rounds of 2 and 4 us."""

    def times(self, calls: Any, rounds: int) -> list[Timing | None]:
        return [Timing((2.0, 4.0)) for _ in calls]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_chunks_fit_their_slabs(case: LossCase) -> None:
    chunks = case.chunks()
    assert sorted(name for names in chunks.values() for name in names) == ["1 GiB", "2 GiB", "auto", "lean"]
    most = {"auto": 1 << 29, "1 GiB": 1 << 30, "2 GiB": 1 << 31, "lean": 1 << 28}
    for rows, names in chunks.items():
        assert rows * logits_row_stride(case.v) * 2 <= min(most[name] for name in names) and 1 <= rows <= case.bt
    assert len({*case.tiny().chunks()}) == 3 and case.tiny().v % 64 == case.v % 64


def test_truth_is_that_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_cases, "_SLAB", 5 * GPT2.v)  # chunks of 5, 5, 5 and 1 rows
    x, w, target = Emulated().operands(GPT2)
    found, wanted = loss_cases.truth(np, x, w, target), reference(x, w, target)
    assert found.loss == pytest.approx(float(wanted.out), rel=1e-13)
    for name in ("grad_input", "grad_weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-11, atol=1e-15)
    off = loss_cases.errors(np, loss_cases.rounded(np, x, w, target), found)
    assert 0 < off.loss < 0.03 and 1e-4 < off.grad_input < 2**-7 and 1e-4 < off.grad_weight < 2**-7


def test_what_is_right() -> None:
    framework, verdict = Errors(0.1, 1e-3, 2e-3), loss_cases.verdict
    assert verdict(Errors(0.1, 1.5e-3, 3e-3), framework, 10.0) == verdict(Errors(5e-5, 0, 0), Errors(0.0, 0, 0), 10.0) == "yes"
    assert verdict(Errors(0.11, 1e-3, 2e-3), framework, 10.0) == "less exact: loss is off by 0.11, a framework's by 0.1"
    assert verdict(Errors(0.0, 1.6e-3, 1.5e-2), framework, 10.0).startswith("less exact: grad_input is off by 0.0016, a framework's by 0.001; grad_w")
    wrong = verdict(Errors(0.0, float("nan"), 1.7e-2), framework, 10.0)
    assert wrong.startswith("WRONG: grad_input is off by nan") and "grad_weight is off by 0.017" in wrong
    assert verdict(Errors(0.011, 0, 0), Errors(5e-3, 1, 1), 10.0).startswith("WRONG: loss")


def test_an_error_is_of_every_element() -> None:
    right = loss_cases.Result(1.0, np.ones((3, 2)), np.full((4, 2), -2.0))
    got = dataclasses.replace(right, loss=1.5, grad_weight=np.full((4, 2), -2, np.float32))
    got.grad_weight[3, 1] += 0.5
    assert loss_cases.errors(np, got, right) == Errors(0.5, 0.0, 0.25)
    got.grad_weight[0, 0] = np.nan
    assert np.isnan(loss_cases.errors(np, got, right).grad_weight)
    with pytest.raises(ValueError, match=r"of shape \(3, 2\), wants \(4, 2\)"):
        loss_cases.errors(np, dataclasses.replace(got, grad_weight=got.grad_input), right)


def test_a_tiny_race_from_end_to_end(emulator: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "loss.csv"
    assert losses.main(["--tiny", "--case", "gpt2-*", "--csv", str(path)]) == 0
    header, rows = results.read_csv(path)
    assert {"commit", "rounds", "numpy"} <= set(header)
    assert [(row["who"], row["chunk"], row["median_ms"]) for row in rows] == [
        (YARDSTICK, "", ""),
        ("numba_baracuda auto", "16", ""),
        ("numba_baracuda 1 GiB", "4", ""),
        ("numba_baracuda 2 GiB", "8", ""),
    ]
    assert all(row["checked"].startswith(("yes", "less exact")) for row in rows) and rows[1]["checked"] == "yes"
    assert all(float(row["grad_weight_error"]) > 0 for row in rows) and "also lean" in rows[1]["note"]
    assert "numba_baracuda 2 GiB" in capsys.readouterr().out
    assert losses.main(["--case", "none"]) == 2


@pytest.mark.parametrize("which", ["loss", "grad_input", "grad_weight"])
def test_a_wrong_result_is_found(emulator: Any, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """One element of one result, off by an eighth of the greatest; it gets no time, and what it is compared with does."""

    def wrong(x: Any, w: Any, target: Any, **options: Any) -> Any:
        found = loss_cases.rounded(np, x, w, target)
        for array in (found.grad_input, found.grad_weight):
            if array is getattr(found, which):
                array[1, 2] += abs(array).max() / 8
        return found.loss * (1.01 if which == "loss" else 1.0), found.grad_input, found.grad_weight

    monkeypatch.setattr(loss_contestants.nb, "fused_linear_cross_entropy", wrong)
    yardstick, *ours = losses.race(GPT2, Clocked(), 2)
    assert yardstick.checked == "yes" and yardstick.timing
    assert len(ours) == 3 and all(entry.checked.startswith(f"WRONG: {which} is off by") and entry.timing is None for entry in ours)
    screen = report.console()
    with screen.capture() as captured:
        assert losses.run([GPT2], Clocked(), 2, screen, None) == 1
    assert f"{GPT2.id} numba_baracuda auto: WRONG: {which}" in captured.get()


def test_who_fails_says_how() -> None:
    def broken() -> Any:
        raise ImportError("no such peer\nat all")

    class Failing(Clocked):
        def contestants(self, case: LossCase, *operands: Any) -> Any:
            yield Contestant("missing", broken)
            yield Contestant("work", lambda: lambda: None, flops=10, loss=False)
            yield Contestant("peer", lambda: lambda: (11.0, *operands[:2]), case.flops)

    missing, work, peer = losses.race(GPT2, Failing(), 2)
    assert (missing.checked, missing.timing) == ("failed: ImportError: no such peer", None)
    assert (work.checked, work.errors, work.timing) == ("", None, Timing((2.0, 4.0)))
    assert peer.checked == f"not judged: {YARDSTICK} failed" and peer.timing
    rows = loss_report.records(GPT2, [missing, work, peer])
    assert "no such peer" in render(loss_report.case_table(GPT2, rows))


def test_ratios_are_of_the_same_rounds() -> None:
    """Of 3 rounds the second was slow for all; the floor is that of a product of 4 times the work, the share of copy that of 1000 bytes in 2 us."""
    case, errors = LossCase("case", 8, 4, 16), Errors(0.1, 0.2, 0.3)
    shared: dict[str, Any] = {"errors": errors, "checked": "yes", "peak": 3 << 20}
    rows = loss_report.records(
        case,
        [
            Entry(Contestant("copy", lambda: print, nbytes=1000, loss=False), Timing((2.0, 2.0, 2.0))),
            Entry(Contestant("product", lambda: print, 4 * case.flops, loss=False), Timing((8.0, 8.0, 8.0))),
            Entry(Contestant(PRODUCTS, lambda: print, case.flops, loss=False), Timing((2.0, 6.0, 2.5))),
            Entry(Contestant("numba_baracuda auto", lambda: print, case.flops, chunk=4), Timing((2.2, 6.0, 5.0)), **shared),
            Entry(Contestant("numba_baracuda row kernel", lambda: print, nbytes=500, loss=False, note="half"), Timing((4.0,), dry=True)),
            Entry(Contestant("liger", lambda: print, case.flops), Timing((10.0, 10.0, 10.0)), **shared),
            Entry(Contestant("cce", lambda: print, case.flops), Timing((1.0, 1.0, 1.0)), checked="WRONG: loss"),
        ],
    )
    copy, product, products, ours, kernel, liger, _ = rows
    assert (copy["share_of_copy"], product["share_of_floor"], products["share_of_floor"]) == ("1.0000", "", "0.8000")
    assert (ours["vs_products"], ours["median_ms"], ours["share_of_floor"], ours["peak_mib"]) == ("1.1000", "0.0050", "0.4000", "3.0")
    assert (kernel["share_of_copy"], kernel["gb_s"], kernel["vs_products"]) == ("0.2500", "0.1", "")
    assert kernel["note"] == "half; the queue ran dry: host time may be included"
    assert (ours["loss_error"], liger["vs_products"]) == ("0.1", "4.0000")
    table = render(loss_report.summary(rows, "title")).splitlines()
    assert len(table) == 3 and table[2].split() == f"{case.id} numba_baracuda auto 0.0050 1.1000 40.0% 3.0 liger 0.0100 2.00 yes".split()


@pytest.mark.gpu
@pytest.mark.memory(2 * (1 << 30) / 1e9 + 0.5)  # the buffers of the copy
def test_a_race_on_the_gpu(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    pytest.importorskip("torch")
    path = tmp_path / "loss.csv"
    assert losses.main(["--tiny", "--case", "gpt2-*", "--no-compile", "--rounds", "3", "--csv", str(path)]) == 0
    rows = {row["who"]: row for row in results.read_csv(path)[1]}
    assert {"copy", PRODUCTS, YARDSTICK, "numba_baracuda auto", "numba_baracuda row kernel", "liger", "cut-cross-entropy"} <= set(rows)
    assert float(rows["numba_baracuda auto"]["vs_products"]) > 0 and float(rows["numba_baracuda row kernel"]["share_of_copy"]) > 0
    assert float(rows["numba_baracuda auto"]["peak_mib"]) > 0
