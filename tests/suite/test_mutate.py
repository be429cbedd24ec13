"""The mutation run itself: what it finds to change, what it makes of it, that its tables are true, and that a change is noticed."""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import os
import subprocess
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import mutants
import mutate
import mutations
import numpy as np
import pytest
import watched_cases
import watched_lines
from numba.cuda import types as kinds

from numba_baracuda.emulator import emulator, lowering
from numba_baracuda.emulator.races import Race

SOURCE = """
from numba import cuda
from numba.cuda.types import int32
from numba_baracuda.runtime import jit

def made(width):
    within = jit.device(lambda k, limit: 0 <= k < limit)

    @jit.device
    def turned(x, k, held, limit):
        held[k] = int32(0)
        cuda.syncthreads()
        if k < limit and width < 99:
            held[k] = x[k]
        cuda.syncthreads()
        return held[width - 1 - k] + cuda.shfl_sync(-1, 0, 0)

    def kernel(x, y, limit):
        held = cuda.shared.array(width, int32)
        k = cuda.threadIdx.x
        if within(k, limit):
            y[k] = turned(x, k, held, limit)

    return kernel
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[types.ModuleType, dict[str, mutations.Site]]:
    """A module of a kernel, and its sites by their text."""
    path = tmp_path / "toy.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    found = importlib.util.spec_from_file_location("toy", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module, {site.text: site for site in mutations.sites_of(path, tmp_path)}


def test_sites(toy: Any) -> None:
    assert {(site.kind, site.function.rpartition(".")[2], text) for text, site in toy[1].items()} == {
        ("guard", "lambda", "0 <= k in lambda k, limit: 0 <= k < limit"),
        ("guard", "lambda", "k < limit in lambda k, limit: 0 <= k < limit"),
        ("reset", "turned", "held[k] = int32(0)"),
        ("barrier", "turned", "cuda.syncthreads() before if k < limit and width < 99:"),
        ("guard", "turned", "k < limit in if k < limit and width < 99:"),
        ("barrier", "turned", "cuda.syncthreads() before return held[width - 1 - k] + cuda.shfl_sync(-1, 0, 0)"),
        ("mask", "turned", "cuda.shfl_sync(-1, 0, 0)"),
    }


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("mask", "cuda.shfl_sync(-1, 0, 0)", "cuda.shfl_sync(65535, 0, 0)"),
        ("guard", "k < limit in if k < limit and width < 99:", "if True and width < 99:"),
        ("guard", "0 <= k in lambda k, limit: 0 <= k < limit", "lambda k, limit: k < limit"),
        ("reset", "held[k] = int32(0)", "pass"),
    ],
)
def test_one_place_changes(toy: Any, kind: str, old: str, new: str) -> None:
    before, after = ast.unparse(ast.parse(SOURCE)).splitlines(), ast.unparse(mutations.mutant(toy[1][old], SOURCE)).splitlines()
    gone = [line for line in before if line not in after]
    assert len(gone) == 1 and any(new in line or "limit if True" in line for line in after if line not in before)


def test_a_mutant_is_noticed_and_the_sources_stay(toy: Any, tmp_path: Path) -> None:
    module, sites = toy
    kernel = module.made(64)
    array = kinds.Array(kinds.int32, 1, "C")

    def run() -> list[int]:
        y = np.full(64, -1, np.int32)
        emulator.run(kernel, (array, array, kinds.int64), 1, 64, [np.arange(64, dtype=np.int32), y, 64], mode=emulator.Mode(1))
        return y.tolist()

    assert run() == list(range(63, -1, -1))
    functions = mutate.functions_of("toy.py")
    mutate.swap(sites["k < limit in if k < limit and width < 99:"], functions)
    assert run() == list(range(63, -1, -1)), "all lanes are within the limit"
    with pytest.raises(LookupError, match="no test makes"):
        mutate.swap(sites["held[k] = int32(0)"], [])
    assert (tmp_path / "toy.py").read_text() == SOURCE


@pytest.mark.parametrize("barrier", ["before if k < limit and width < 99:", "before return held[width - 1 - k] + cuda.shfl_sync(-1, 0, 0)"])
def test_a_missing_barrier_is_a_race(toy: Any, barrier: str) -> None:
    module, sites = toy
    kernel, array = module.made(64), kinds.Array(kinds.int32, 1, "C")
    arguments: list[Any] = [np.arange(64, dtype=np.int32), np.zeros(64, np.int32), 64]
    emulator.run(kernel, (array, array, kinds.int64), 1, 64, arguments, mode=emulator.Mode(1))
    mutate.swap(sites[f"cuda.syncthreads() {barrier}"], mutate.functions_of("toy.py"))
    if barrier.startswith("before return"):
        with pytest.raises(Race):
            emulator.run(kernel, (array, array, kinds.int64), 1, 64, arguments, mode=emulator.Mode(1))
    else:  # each lane overwrites its own
        emulator.run(kernel, (array, array, kinds.int64), 1, 64, arguments, mode=emulator.Mode(1))


def test_lines_that_never_ran_under_the_race_detector(toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of unchecked runs do not count, nor does a branch that no lane takes."""
    monkeypatch.setattr(lowering.Lowering, "_block", lowering.Lowering._block)  # as it is afterwards
    watched_lines.watch()
    module, array = toy[0], kinds.Array(kinds.int32, 1, "C")

    def missing(limit: int, mode: emulator.Mode) -> set[str]:
        arguments: list[Any] = [np.arange(64, dtype=np.int32), np.zeros(64, np.int32), limit]
        emulator.run(module.made(64), (array, array, kinds.int64), 1, 64, arguments, mode=mode)
        return {text for _, _, text in watched_lines.missing(tmp_path, [tmp_path / "toy.py"])}

    assert "held[k] = x[k]" in missing(64, emulator.Mode()) and "cuda.syncthreads()" in missing(64, emulator.Mode())
    assert missing(64, emulator.Mode(1)) == set()


def test_functions_are_found_beside_proxies_of_what_is_gone(toy: Any) -> None:
    held = weakref.proxy(set())
    with pytest.raises(ReferenceError):
        isinstance(held, types.FunctionType)
    assert toy[0].made in mutate.functions_of("toy.py")


def test_tables_name_what_is_there() -> None:
    assert mutate.stale(mutate.sites()) == []
    named = {each for names in mutants.TESTS.values() for each in names}
    assert all(fnmatch.filter(watched_cases.CASES, each) for each in named if ".py" not in each)
    assert all(Path(mutate.path_to(each).partition("::")[0]).is_file() for each in (*named, *mutants.WATCHED) if ".py" in each)
    reasons = [*mutants.UNWATCHED.values(), *(reason for keys in mutants.KNOWN.values() for reason in keys.values())]
    assert all(len(reason) > 20 for reason in reasons)


def test_an_entry_that_matches_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mutate.sites()
    monkeypatch.setitem(mutants.KNOWN, "segment/fold", {"f: barrier: cuda.syncthreads()": "it went"})
    monkeypatch.setitem(mutants.TESTS, "segment/other", ("bins",))
    said = mutate.stale(found)
    assert len(said) == 2 and "what is not there" in said[0] and "segment/other" in said[1]


def test_the_command_lists(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["mutate", "--list", "--kernel", "segment/kernels/carries"])
    assert mutate.main() == 0
    listed = capsys.readouterr().out.splitlines()
    barriers = (mutate.ROOT / "numba_baracuda/segment/kernels/carries.py").read_text().count("cuda.syncthreads()")
    assert sum("barrier: cuda.syncthreads()" in line for line in listed) == barriers > 0 and all("carries.py" in line for line in listed)


def test_the_import_changes_no_environment() -> None:
    """Other tests of the process start children, which are to see what the user has set."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_BARACUDA_EMULATE"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (mutate.ROOT, mutate.TESTS, mutate.TESTS / "support")))
    command = [sys.executable, "-c", "import os, mutate; print('NUMBA_BARACUDA_EMULATE' in os.environ)"]
    assert subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout == "False\n"


def test_a_pattern_that_matches_nothing_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for asked in (["--kernel", "segment/kernels/carry"], ["--site", "no such place"], ["--lines", "--kernel", "segment/kernels/carry"]):
        monkeypatch.setattr("sys.argv", ["mutate", *asked])
        with pytest.raises(SystemExit, match="2"):
            mutate.main()
        assert "no place to change" in capsys.readouterr().err


def test_lines_of_some_kernels_run_their_watched_tests() -> None:
    compact, pull = "numba_baracuda/loss/kernels/compact.py", "numba_baracuda/segment/kernels/vjp.py"
    assert mutate.watched_arguments([compact]) == [f"{mutate.path_to(mutate.WATCHED)}::test_case[losses without ignored rows]"]
    everything = [mutate.path_to(each) for each in mutants.WATCHED]
    assert mutate.watched_arguments([compact, pull]) == mutate.watched_arguments(mutate.with_device_functions()) == everything
