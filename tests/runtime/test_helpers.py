"""Kernels compiled side by side, with a compiler that only counts: in this process, and in helpers through ``sitecustomize``."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from numba_baracuda.core.op import Launch, Sort, Target
from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.core.spec import Cubin, KernelSpec
from numba_baracuda.plans import first
from numba_baracuda.runtime import cache, helpers, jit, radix

ROOT = Path(__file__).parents[2]
TARGET = Target((9, 0), 132)
LONG = KernelSpec("numba_baracuda.segment.kernels:long", (("flag", True), ("lanes", 1), ("value", "f32")), 256)
SHORT = KernelSpec("numba_baracuda.segment.kernels:short", (("value", "f32"),), 128, 2)
OTHER = KernelSpec("numba_baracuda.segment.kernels:other", (("flag", False), ("value", "f32")))
FOREIGN = KernelSpec("numba_baracuda.segment.kernels:long", (("monoid", "user:mine:123"), ("value", "f32")))

#: Replaces the compiler in every process started from here: it says which process compiles what, and then does as FATE says.
STUB = """
    import os, sys, time, types

    def compile_cubin(spec, arch):
        from numba_baracuda.core.spec import Cubin
        with open(os.environ["COMPILED"], "a") as log:
            log.write(f"{os.getpid()} {spec!r} {arch}\\n")
        exec(os.environ.get("FATE", ""))
        return Cubin("entry", spec.name.encode(), 20, 0, 0, 0)

    jit = types.ModuleType("numba_baracuda.runtime.jit")
    jit.compile_cubin = compile_cubin
    sys.modules["numba_baracuda.runtime.jit"] = jit
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache, and helpers that have the stub."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(STUB))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setenv("COMPILED", str(tmp_path / "compiled"))
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_memory", {})
    monkeypatch.setattr(cache, "_told", False)
    monkeypatch.setattr(helpers, "cores", lambda: 8)
    yield tmp_path
    assert helpers._running == {}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[KernelSpec]:
    """What this process compiles; ``interlude`` runs before each."""
    return _stub(monkeypatch, lambda: None)


def _stub(monkeypatch: pytest.MonkeyPatch, interlude: Callable[[], object]) -> list[KernelSpec]:
    compiled: list[KernelSpec] = []

    def compile_cubin(spec: KernelSpec, arch: str) -> Cubin:
        compiled.append(spec)
        interlude()
        return Cubin("entry", spec.name.encode(), 20, 0, 0, 0)

    monkeypatch.setattr("numba_baracuda.runtime.jit.compile_cubin", compile_cubin)
    return compiled


def prepare(*specs: KernelSpec) -> None:
    first.prepare([Launch(spec, (1, 32, 0), {}) for spec in specs], TARGET, 0)


def elsewhere(folder: Path) -> list[str]:
    """What helpers have compiled, without their process ids."""
    log = folder / "compiled"
    return sorted(line.partition(" ")[2] for line in log.read_text().splitlines()) if log.exists() else []


def test_this_process_compiles_the_longest_and_helpers_the_others(folder: Path, here: list[KernelSpec]) -> None:
    prepare(SHORT, LONG, OTHER, SHORT)
    assert here == [LONG]
    assert elsewhere(folder) == sorted(f"{spec!r} sm_90" for spec in (OTHER, SHORT))
    assert len({line.split()[0] for line in (folder / "compiled").read_text().splitlines()} | {str(os.getpid())}) == 3
    assert cache.size()[0] == 3
    assert [cache.cubin(spec, "sm_90").image.decode() for spec in (LONG, SHORT, OTHER)] == [spec.name for spec in (LONG, SHORT, OTHER)]
    prepare(SHORT, LONG, OTHER)
    assert here == [LONG] and len(elsewhere(folder)) == 2


def test_what_is_on_disk_needs_no_helper(folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(LONG)
    monkeypatch.setattr(cache, "_memory", {})
    prepare(LONG, SHORT)
    assert here == [LONG, SHORT] and elsewhere(folder) == []


@pytest.mark.parametrize(("cores", "others"), [(1, []), (2, [OTHER])])
def test_there_are_no_more_processes_than_cores(
    folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch, cores: int, others: list[KernelSpec]
) -> None:
    monkeypatch.setattr(helpers, "cores", lambda: cores)
    prepare(SHORT, LONG, OTHER)
    assert here == [spec for spec in (LONG, OTHER, SHORT) if spec not in others]
    assert elsewhere(folder) == [f"{spec!r} sm_90" for spec in others]


def test_what_only_this_process_can_build_stays_here(folder: Path, here: list[KernelSpec]) -> None:
    outside = KernelSpec("json:kernel", ())
    prepare(LONG, FOREIGN, outside)
    assert here == [FOREIGN, outside] and elsewhere(folder) == [f"{LONG!r} sm_90"]


@pytest.mark.parametrize("fate", ["os._exit(3)", "raise ValueError('no compiler')", "os.kill(os.getpid(), 9)"])
def test_the_kernel_of_a_helper_that_fails_is_compiled_here(folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch, fate: str) -> None:
    monkeypatch.setenv("FATE", fate)
    prepare(LONG, SHORT)
    assert here == [LONG, SHORT] and elsewhere(folder) == [f"{SHORT!r} sm_90"]


def test_a_helper_that_is_killed_before_it_begins(here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _stub(monkeypatch, lambda: [os.kill(process.pid, signal.SIGKILL) for process in helpers._running.values()])
    prepare(LONG, SHORT)
    assert compiled == [LONG, SHORT]


def test_a_helper_that_takes_too_long_is_stopped(here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: started.append(real(*given, **named)) or started[-1])
    monkeypatch.setenv("FATE", "time.sleep(600)")
    monkeypatch.setattr(helpers, "_PATIENCE", 0.1)
    prepare(LONG, SHORT)
    assert here == [LONG, SHORT]
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_helpers_stop_when_this_process_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[subprocess.Popen[bytes]] = []

    def interrupt() -> None:
        running.extend(helpers._running.values())
        raise KeyboardInterrupt

    _stub(monkeypatch, interrupt)
    monkeypatch.setenv("FATE", "time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        prepare(LONG, SHORT, OTHER)
    assert [process.returncode for process in running] == [-signal.SIGKILL] * 2


def test_no_interpreter_no_helper(folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.spawn, "get_executable", lambda: str(folder / "nothing"))
    prepare(LONG, SHORT)
    assert here == [LONG, SHORT]


def test_a_cache_that_cannot_be_written_has_no_helpers(folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_bytes(b"")
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(folder / "file" / "cache"))
    with pytest.warns(cache.CacheWarning, match="every process compiles its own"):
        prepare(LONG, SHORT)
    assert here == [LONG, SHORT] and elsewhere(folder) == []


def test_a_sort_is_made_here_and_the_kernels_elsewhere(folder: Path, here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str, int]] = []
    monkeypatch.setattr(radix, "_library", lambda: None)
    monkeypatch.setattr(radix, "sorter", lambda key, value, device: made.append((key, value, device)))
    sort = Sort("keys", "sorted_keys", "values", "sorted_values", 4, 8, 100, 10)
    first.prepare([Launch(LONG, (1, 32, 0), {}), sort], TARGET, 3)
    assert made == [("u32", "u64", 3)]
    assert here == [] and elsewhere(folder) == [f"{LONG!r} sm_90"]


def test_a_sort_that_fails_leaves_the_error_to_the_call(here: list[KernelSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise ValueError("no sort")

    monkeypatch.setattr(radix, "sorter", fail)
    sort = Sort("keys", "sorted_keys", "values", "sorted_values", 4, 8, 100, 10)
    first.prepare([Launch(LONG, (1, 32, 0), {}), sort], TARGET, 3)
    with pytest.raises(ValueError, match="no sort"):
        radix.sorter_of(sort, 3)


SCRIPT = """
    from numba_baracuda.core.op import Launch, Target
    from numba_baracuda.core.spec import KernelSpec
    from numba_baracuda.plans import first
    from numba_baracuda.runtime import helpers

    print("begins")
    helpers.cores = lambda: 2
    specs = [KernelSpec("numba_baracuda.x:make", (("n", n),)) for n in (1, 2)]
    first.prepare([Launch(spec, (1, 32, 0), {}) for spec in specs], Target((9, 0), 132), 0)
    print("ends")
"""


def test_a_script_without_a_guard_runs_once(folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == "begins\nends\n"
    assert len({line.split()[0] for line in (folder / "compiled").read_text().splitlines()}) == 2


@pytest.mark.compile
def test_a_helper_makes_the_code_that_this_process_would(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sitecustomize.py").unlink()
    specs = [next(spec for spec in kernel_specs("unsorted_segment_sum") if spec.kernel == name) for name in ("fold_tiles", "sort_keys")]
    here: list[KernelSpec] = []
    real = jit.compile_cubin
    monkeypatch.setattr(jit, "compile_cubin", lambda spec, arch: here.append(spec) or real(spec, arch))
    monkeypatch.setattr(helpers, "_PATIENCE", 300.0)
    prepare(*specs)
    assert here == specs[:1]
    helped, own = cache.cubin(specs[1], "sm_90"), real(specs[1], "sm_90")
    assert dataclasses.replace(helped, entry="", image=b"") == dataclasses.replace(own, entry="", image=b"")
    assert helped.entry.encode() in helped.image and helped.registers > 0
