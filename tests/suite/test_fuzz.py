"""The fuzzer finds bugs that are planted, shrinks and repeats them, and refuses ops that it has no truth for."""

from __future__ import annotations

import dataclasses
from typing import Any

import fuzz
import fuzz_arrays
import fuzz_families
import numpy as np
import pytest
import references
import scan_cases
from fuzz_arrays import Layout, Placed
from fuzz_families import Case
from kinds import KINDS, Kind

import numba_baracuda as nb
from numba_baracuda.core.op import Op

#: what is fast in the emulator, in one element
SUM = [dataclasses.replace(nb.OPS["segment_sum"], elements=("f32",))]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Op]:
    """One op and few options, hence few kernels."""
    monkeypatch.setattr(fuzz_families, "CHOICES", {name: choices[:1] for name, choices in fuzz_families.CHOICES.items()})
    return SUM


def test_every_op_has_a_reference_and_values_of_all_its_options() -> None:
    fuzz.check_references(list(nb.OPS.values()))


def test_every_case_can_be_made() -> None:
    """Of every op; drawn again, it is the same."""
    ops = list(nb.OPS.values())
    for number in range(0, len(ops) * fuzz.BURST, fuzz.BURST):
        case = fuzz.make(ops, 5, number, 300)
        assert case == fuzz.make(ops, 5, number, 300)
    met = {fuzz.make(ops, 5, number, 300).op for number in range(0, len(ops) * fuzz.BURST, fuzz.BURST)}
    assert met == set(nb.OPS)


@pytest.mark.parametrize(("family", "name"), [("segment", "segment_median"), ("reduce", "reduce_mode"), ("scan", "cummean"), ("mesh", "segment_sum")])
def test_an_op_without_a_reference_is_an_error(emulator: Kind, capsys: pytest.CaptureFixture[str], monkeypatch: Any, family: str, name: str) -> None:
    like = {"segment": "segment_sum", "reduce": "reduce_sum", "scan": "cumsum", "mesh": "segment_sum"}[family]
    stranger = dataclasses.replace(nb.OPS[like], name=name, family=family)
    monkeypatch.setattr(nb.OPS, "_ops", {**nb.OPS, name: stranger})
    assert fuzz.main(["--seconds", "0", "--op", name]) == 1
    assert f"NO REFERENCE {name}" in capsys.readouterr().out


def test_an_option_without_values_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(fuzz_families.CHOICES, "empty")
    with pytest.raises(fuzz.NoReference, match="segment_sum: no values are known for the option empty"):
        fuzz.check_references(SUM)


def run_some(few: list[Op], monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr(nb.OPS, "_ops", {op.name: op for op in few})
    return fuzz.main(["--seed", "1", "--most", "60", *more])


def test_what_is_right_passes(emulator: Kind, few: list[Op], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_some(few, monkeypatch, "--case", "0") == 0
    assert capsys.readouterr().out.endswith("1 cases, 0 failed\n")


def test_a_planted_bug_is_found_and_repeated(
    emulator: Kind, few: list[Op], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = references.REFERENCES["segment_sum"]

    def wrong(*given: Any) -> Any:
        """Off by a little where there are three rows or more."""
        made = right(*given)
        return dataclasses.replace(made, value=made.value * np.where(fuzz_families.references._column(made.terms, made.value) > 2, 1.001, 1))

    monkeypatch.setitem(references.REFERENCES, "segment_sum", wrong)
    case = Case("segment_sum", "f32", (24, 3), {"segments": 4, "ids": "anywhere", "index": "i32", "form": "array"}, {"out": True, "twice": True})
    case = dataclasses.replace(case, layouts={"input": Layout(order=(1, 0), steps=(2, -1), late=1)})
    error = fuzz.failure_of(case)
    assert isinstance(error, AssertionError) and "elements are wrong" in str(error)
    least, other = fuzz.shrink(case, error)
    assert least.options == {} and least.layouts == {} and np.prod(least.shape) < 24
    text = fuzz.report(least, other, "again")
    assert "repeat: again" in text and f"run({least!r})" in text and "input = np.array(" in text
    assert eval(repr(least), vars(fuzz_families) | vars(fuzz_arrays) | {"nan": np.nan, "inf": np.inf}) == least

    monkeypatch.setattr(fuzz, "make", lambda ops, seed, number, most: case)
    assert run_some(few, monkeypatch, "--case", "7") == 1
    out = capsys.readouterr().out
    assert "FAILED segment_sum" in out and "python -m tests.fuzz --seed 1 --case 7 --most 60" in out and out.endswith("1 cases, 1 failed\n")


@pytest.mark.parametrize("fault", ["around", "input", "bits", "kept"])
def test_other_faults_are_found(emulator: Kind, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """What lies around an output or in an input is written, a second run gives other bits, another array than ``out`` is returned."""
    plain, calls = nb.cumsum, []

    def faulty(x: Any, axis: int, **options: Any) -> Any:
        calls.append(x)
        made = plain(x, axis, **options)
        if fault == "around":
            made.base.view(np.uint8)[made.ctypes.data - made.base.ctypes.data + made.nbytes] = 5
        elif fault == "input":
            x[...] = 0
        elif fault == "bits":
            made *= np.float32(1 + 1e-7 * (len(calls) == 2))
        return made.copy() if fault == "kept" else made

    monkeypatch.setattr(nb, "cumsum", faulty, raising=False)
    case = Case("cumsum", "f32", (4, 5), {"axis": 1}, {"out": True, "twice": True})
    says = {"around": "memory around", "input": "x was written", "bits": "other bits", "kept": "is not the array that was given"}[fault]
    assert says in str(fuzz.failure_of(case))
    monkeypatch.setattr(nb, "cumsum", plain)
    assert fuzz.failure_of(case) is None


def test_a_wrong_gradient_of_a_scan_is_found(emulator: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("cumsum_backward", "f32", (4, 5), {"axis": 1}, {"reverse": True})
    assert fuzz.failure_of(case) is None
    right = scan_cases.truth
    monkeypatch.setattr(scan_cases, "truth", lambda *given, **options: right(*given))
    assert isinstance(fuzz.failure_of(case), AssertionError)


def test_layouts() -> None:
    """Whatever a layout is, an array holds its values, and what is written around them shows."""
    rng, kind = np.random.default_rng(3), KINDS["numpy"]
    for _ in range(200):
        shape = fuzz_arrays.drawn_shape(rng, int(rng.integers(0, 5)), 60)
        layout = fuzz_arrays.drawn_layout(rng, len(shape))
        values = fuzz_arrays.repeated(rng.standard_normal(shape).astype(np.float32), layout)
        placed = Placed(kind, values, layout)
        np.testing.assert_array_equal(placed.array, values)
        np.testing.assert_array_equal(np.broadcast_to(placed.read(), shape), values)
        placed.check_unchanged("it")
        placed._flat[-1] = 1
        with pytest.raises(AssertionError, match="memory around an output was written"):
            placed.read()


def test_running_winners() -> None:
    from fuzz_scan import _winners

    x = np.array([[1, 3, np.nan, 5, np.nan], [2, 2, 1, 3, 3]])
    assert _winners("cummax", x, 1).tolist() == [[0, 1, 2, 2, 2], [0, 0, 0, 3, 3]]
    assert _winners("cummax", x, 1, reverse=True).tolist() == [[4, 4, 4, 4, 4], [4, 4, 4, 4, 4]]
    assert _winners("cummin", x, 1, exclusive=True, initial=2.0).tolist() == [[-1, 0, 0, 2, 2], [-1, -1, -1, 2, 2]]
