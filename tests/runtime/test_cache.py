"""The cubin cache, with a compiler that only counts."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from numba_baracuda import cli
from numba_baracuda.core.spec import Cubin, KernelSpec
from numba_baracuda.runtime import cache, entries

ROOT = Path(__file__).parents[2]
SPEC = KernelSpec("numba_baracuda.segment.kernels:fold", (("value", "f32"), ("flag", True)), 256)

#: Put into a folder on PYTHONPATH as sitecustomize.py, this replaces the compiler in every process started from here.
STUB = """
    import os, sys, time, types

    def compile_cubin(spec, arch):
        from numba_baracuda.core.spec import Cubin
        with open(os.environ["COMPILED"], "a") as log:
            log.write(f"{spec.name}\\n")
        if dict(spec.constants).get("broken"):
            raise ValueError("cannot compile " + spec.name)
        time.sleep(0.2)
        return Cubin("entry", spec.name.encode() * 1000, 20, 0, 0, 0)

    jit = types.ModuleType("numba_baracuda.runtime.jit")
    jit.compile_cubin = compile_cubin
    sys.modules["numba_baracuda.runtime.jit"] = jit
"""


class Compiler:
    def __init__(self) -> None:
        self.compiled: list[tuple[KernelSpec, str]] = []
        self.seconds = 0.0

    def compile_cubin(self, spec: KernelSpec, arch: str) -> Cubin:
        self.compiled.append((spec, arch))
        time.sleep(self.seconds)
        return Cubin("entry", f"{spec.name} {arch}".encode(), 32, 4, 8, 1024)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    made = Compiler()
    monkeypatch.setattr("numba_baracuda.runtime.jit.compile_cubin", made.compile_cubin)
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_memory", {})
    monkeypatch.setattr(cache, "_told", False)
    return made


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Environment of processes that have the stub compiler; COMPILED is its log."""
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(STUB))
    return {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "NUMBA_BARACUDA_CACHE_DIR": str(tmp_path / "cache"),
        "COMPILED": str(tmp_path / "compiled"),
    }


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_memory", {})


def entry() -> Path:
    (only,) = cache.directory().glob("*.cubin")
    return only


def test_memory_then_disk_then_compiler(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cache.cubin(SPEC, "sm_90")
    assert cache.cubin(SPEC, "sm_90") is first
    forget(monkeypatch)
    second = cache.cubin(SPEC, "sm_90")
    assert second == first and second is not first
    assert compiler.compiled == [(SPEC, "sm_90")]
    assert cache.cubin(SPEC, "sm_80") != first
    assert cache.size() == (2, sum(path.stat().st_size for path in cache.directory().iterdir()))
    assert cache.clear() == 2 and cache.size() == (0, 0)
    cache.cubin(SPEC, "sm_90")
    assert len(compiler.compiled) == 3


def test_everything_that_changes_the_code_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [
        dataclasses.replace(SPEC, factory=SPEC.factory + "x"),
        dataclasses.replace(SPEC, constants=(("value", "f32"), ("flag", 1))),
        dataclasses.replace(SPEC, constants=(("value", "f64"), ("flag", True))),
        dataclasses.replace(SPEC, max_threads=128),
        dataclasses.replace(SPEC, min_blocks=2),
    ]
    keys = [cache.key(SPEC, "sm_90"), cache.key(SPEC, "sm_80"), *(cache.key(spec, "sm_90") for spec in changed)]
    monkeypatch.setattr(cache, "_sources", lambda: "other sources")
    keys.append(cache.key(SPEC, "sm_90"))
    monkeypatch.setattr(cache, "_versions", lambda: {"numba": "1"})
    keys.append(cache.key(SPEC, "sm_90"))
    assert len(set(keys)) == len(keys)
    assert cache.key(SPEC, "sm_90") == keys[-1]


def test_sources_and_versions_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert {"python", "numba", "numba-cuda", "llvmlite"} <= set(cache._versions())
    hashes = set()
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("b.py", "x = 2"), ("a.py", "x = 2")):
        for old in tmp_path.glob("*.py"):
            old.unlink()
        (tmp_path / name).write_text(text)
        hashes.add(cache._sources.__wrapped__())
    assert len(hashes) == 3


def test_a_factory_outside_the_package_brings_its_own_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    spec = KernelSpec("users_kernels:make", ())
    keys = set()
    for text in ("x = 1", "x = 2"):
        (tmp_path / "users_kernels.py").write_text(text)
        cache._foreign_source.cache_clear()
        keys.add(cache.key(spec, "sm_90"))
    cache._foreign_source.cache_clear()
    assert len(keys) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:-1],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw[:-40] + b"\xff" + raw[-39:],
        lambda raw: b"something else entirely",
        lambda raw: raw + b"x",
    ],
    ids=["empty", "short", "half", "flipped", "foreign", "long"],
)
def test_a_damaged_entry_is_built_again(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, damage) -> None:
    good = cache.cubin(SPEC, "sm_90")
    intact = entry().read_bytes()
    entry().write_bytes(damage(intact))
    forget(monkeypatch)
    assert cache.cubin(SPEC, "sm_90") == good
    assert len(compiler.compiled) == 2
    assert entry().read_bytes() == intact


def test_an_entry_under_another_name_is_not_taken(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.cubin(SPEC, "sm_90")
    entry().rename(cache.directory() / f"{cache.key(SPEC, 'sm_80')}.cubin")
    forget(monkeypatch)
    assert cache.cubin(SPEC, "sm_80").image.endswith(b"sm_80")
    assert len(compiler.compiled) == 2


def test_an_entry_holds_no_code_but_machine_code(compiler: Compiler) -> None:
    made = cache.cubin(SPEC, "sm_90")
    raw = entry().read_bytes()
    start = len(entries.MAGIC) + 4
    header = json.loads(raw[start : start + int.from_bytes(raw[start - 4 : start], "little")])
    assert header["cubin"] == {"entry": "entry", "registers": 32, "spills": 4, "stack": 8, "shared": 1024, "parameters": []}
    assert raw[:-32].endswith(made.image)


def test_without_a_writable_folder_it_warns_once_and_works(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(cache.CacheWarning, match="NUMBA_BARACUDA_CACHE_DIR") as caught:
        cache.cubin(SPEC, "sm_90")
        cache.cubin(SPEC, "sm_80")
        cache.cubin(SPEC, "sm_80")
    assert len(caught) == 1
    assert len(compiler.compiled) == 2
    assert cache.size() == (0, 0) and cache.clear() == 0


def test_a_failed_write_leaves_nothing(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(cache.os, "replace", refuse)
    with pytest.warns(cache.CacheWarning, match="disk full"):
        cache.cubin(SPEC, "sm_90")
    assert list(cache.directory().iterdir()) == []


def test_the_folder_is_the_users_own(compiler: Compiler) -> None:
    cache.cubin(SPEC, "sm_90")
    assert cache.directory().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("mode", "owner", "reason"), [(0o777, 0, "written by others"), (0o770, 0, "chmod go-w"), (0o700, 12345, "belongs to user 12345")]
)
def test_a_folder_that_others_can_fill_is_not_used(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, reason: str) -> None:
    """Neither what lies there is loaded, nor is anything put there."""
    good = cache.cubin(SPEC, "sm_90")
    cache.write_blob("sort", b"code")
    before = sorted(cache.directory().iterdir())
    cache.directory().chmod(mode)
    if owner:
        real = cache._status
        monkeypatch.setattr(cache, "_status", lambda: SimpleNamespace(st_uid=owner, st_mode=real().st_mode))
    forget(monkeypatch)
    with pytest.warns(cache.CacheWarning, match=reason) as caught:
        assert cache.cubin(SPEC, "sm_90") == good
        assert cache.read_blob("sort") is None
        cache.cubin(SPEC, "sm_80")
    assert len(caught) == 1 and "set NUMBA_BARACUDA_CACHE_DIR" in str(caught[0].message)
    assert len(compiler.compiled) == 3 and sorted(cache.directory().iterdir()) == before


def test_a_tilde_is_the_home(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", "~/kernels")
    cache.cubin(SPEC, "sm_90")
    assert entry().parent == tmp_path / "kernels"


def test_what_dead_writers_left_is_removed_and_counted(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(name: str, seconds: float) -> Path:
        path = cache.directory() / name
        path.write_bytes(b"half")
        os.utime(path, (time.time() - seconds,) * 2)
        return path

    cache.cubin(SPEC, "sm_90")
    old, fresh = leave("old.tmp", 7200), leave("fresh.tmp", 60)
    assert cache.size()[0] == 1 and cache.sweep() == 1 and cache.sweep() == 0
    assert fresh.exists() and not old.exists()
    leave("old.tmp", 7200)
    assert cli.main(["info"]) == 0
    assert "1 kernels, 0.0 MB, 1 abandoned temporary files removed" in capsys.readouterr().out
    leave("old.tmp", 7200)
    monkeypatch.setattr(cache, "_swept", False)
    cache.cubin(SPEC, "sm_80")  # the first write of a process looks
    assert fresh.exists() and not old.exists()


def test_threads_compile_a_kernel_once_and_different_ones_at_a_time(compiler: Compiler) -> None:
    compiler.seconds = 0.1
    specs = [SPEC, dataclasses.replace(SPEC, max_threads=64)]
    got: list[Cubin] = []
    threads = [threading.Thread(target=lambda spec=spec: got.append(cache.cubin(spec, "sm_90"))) for spec in specs * 8]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 16 and len({id(each) for each in got}) == 2
    assert collections.Counter(spec for spec, _ in compiler.compiled) == {specs[0]: 1, specs[1]: 1}
    assert time.perf_counter() - start < 1.0


def test_a_failed_compilation_can_be_tried_again(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    good = compiler.compile_cubin

    def fail(spec: KernelSpec, arch: str) -> Cubin:
        raise ValueError("no compiler")

    monkeypatch.setattr(sys.modules["numba_baracuda.runtime.jit"], "compile_cubin", fail)
    with pytest.raises(ValueError, match="no compiler"):
        cache.cubin(SPEC, "sm_90")
    monkeypatch.setattr(sys.modules["numba_baracuda.runtime.jit"], "compile_cubin", good)
    assert cache.cubin(SPEC, "sm_90").entry == "entry"


ASK = """
    import sys, hashlib
    from numba_baracuda.runtime import cache
    from numba_baracuda.core.spec import KernelSpec
    print(hashlib.sha256(cache.cubin(KernelSpec("numba_baracuda.x:make", (("n", 3),)), "sm_90").image).hexdigest())
    print(sorted({"numba", "cuda.core", "cuda.bindings", "llvmlite", "cupy"} & set(sys.modules)))
"""


def test_processes_race_for_one_key_and_a_later_one_compiles_nothing(elsewhere: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(ASK)]
    racing = [subprocess.Popen(command, env=elsewhere, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in racing]
    compiled = (tmp_path / "compiled").read_text().count("\n")
    assert 1 <= compiled <= 2
    later = subprocess.run(command, env=elsewhere, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    assert set(answers) == {later} and later.endswith("[]\n")
    assert (tmp_path / "compiled").read_text().count("\n") == compiled
    (only,) = (tmp_path / "cache").iterdir()
    assert only.suffix == ".cubin"


WARM = """
    import dataclasses
    from numba_baracuda.runtime import cache
    from numba_baracuda.runtime.warm import warm
    from numba_baracuda.core.spec import KernelSpec

    if __name__ == "__main__":
        specs = [KernelSpec("numba_baracuda.x:make", (("n", n), ("broken", n == BROKEN))) for n in (0, 1, 2, 1)]
        cache.cubin(specs[0], "sm_90")
        seen = []
        try:
            print(warm(specs, "sm_90", 2, lambda spec: seen.append(dict(spec.constants)["n"])))
        except ValueError as error:
            print(error)
        print(seen[0], sorted(seen), cache.size()[0])
        print(warm(specs, "sm_90", 2) if BROKEN < 0 else "")
"""


@pytest.mark.parametrize(
    ("broken", "printed"),
    [(-1, "2\n0 [0, 1, 1, 2] 3\n0\n"), (1, "cannot compile make[n=1,broken=True]\n0 [0, 1, 1, 2] 2\n\n")],
)
def test_warm_compiles_in_other_processes(elsewhere: dict[str, str], tmp_path: Path, broken: int, printed: str) -> None:
    script = tmp_path / "warm.py"
    script.write_text(f"BROKEN = {broken}\n" + textwrap.dedent(WARM))
    done = subprocess.run([sys.executable, str(script)], env=elsewhere, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    assert done.stdout == printed
    compiled = collections.Counter((tmp_path / "compiled").read_text().split())
    assert set(compiled.values()) == {1} and len(compiled) == 3
