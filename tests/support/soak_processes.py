"""The soak's scenarios in processes of their own: functions of a worker, which raise on failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.runtime import cache

CHILD_SECONDS = 150.0


def child(go: str) -> None:
    """The work of a child process once the file ``go`` exists: builds or loads kernels, and checks their results."""
    while not Path(go).exists():
        time.sleep(0.01)
    if arrays.emulating():
        for spec in kernel_specs("segment_sum_backward")[:1]:
            assert len(cache.cubin(spec, "sm_90").image) > 1000
    else:
        ops = [nb.OPS[name] for name in ("segment_sum", "unsorted_segment_max", "reduce_var", "cumsum")]
        for number in range(0, len(ops) * fuzz.BURST, 5):
            fuzz.run(replace(fuzz.make(ops, 0, number, 20_000), values="whole", schedule=None))
    print("right", flush=True)


def _start(code: str, folder: Path) -> subprocess.Popen[str]:
    paths = f"import sys; sys.path[:0] = {sys.path!r}\n"
    env = {**os.environ, "NUMBA_BARACUDA_CACHE_DIR": str(folder), "PYTHONWARNINGS": "default"}
    return subprocess.Popen([sys.executable, "-c", paths + code], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _child(go: Path, folder: Path) -> subprocess.Popen[str]:
    return _start(f"import soak_processes; soak_processes.child({str(go)!r})", folder)


def _ended(process: subprocess.Popen[str]) -> str:
    """The error output of a process; raises unless the process printed ``right``."""
    try:
        out, err = process.communicate(timeout=CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"a process was not done after {CHILD_SECONDS} s: {err[-2000:]}") from None
    assert process.returncode == 0 and out.endswith("right\n"), f"a process exited with {process.returncode}: {err[-2000:]}"
    return err


@contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="numba_baracuda-soak-"))
    (made / "go").touch()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def cache_deleted(worker: Any) -> None:
    """The cache is deleted again and again while a process fills it."""
    with _folder() as home:
        process, end = _child(home / "go", home / "cache"), time.monotonic() + CHILD_SECONDS
        while process.poll() is None and time.monotonic() < end:
            shutil.rmtree(home / "cache", ignore_errors=True)
            time.sleep(0.05)
        _ended(process)


def cache_read_only(worker: Any) -> None:
    """The cache cannot be written: a process warns, and its results are right."""
    with _folder() as home:
        refused = home / "go" / "cache"  # below a file, where not even root can make a folder
        assert "compiled kernels are not kept" in _ended(_child(home / "go", refused))


def cache_garbage(worker: Any) -> None:
    """Every entry of the cache is damaged, each in another way."""
    with _folder() as home:
        _ended(_child(home / "go", home / "cache"))
        entries = sorted(path for path in (home / "cache").iterdir() if path.is_file())
        assert entries, "a process left no entry"
        for place, path in enumerate(entries):
            whole = path.read_bytes()
            flipped = bytearray(whole)
            flipped[int(worker.rng.integers(len(whole)))] ^= 1 + int(worker.rng.integers(255))
            path.write_bytes([b"", whole[: len(whole) // 2], bytes(flipped), worker.rng.bytes(len(whole)), whole + b"!"][place % 5])
        _ended(_child(home / "go", home / "cache"))


def cache_shared(worker: Any) -> None:
    """Processes that start at the same time fill one cache."""
    with _folder() as home:
        (home / "go").unlink()
        processes = [_child(home / "go", home / "cache") for _ in range(2 if arrays.emulating() else 8)]
        time.sleep(2)
        (home / "go").touch()
        failures = []
        for process in processes:
            try:
                _ended(process)
            except AssertionError as error:
                failures.append(str(error))
        assert not failures, "\n".join(failures)


_FIRST_USE = """
import threading
if not int({emulating}): import cupy as xp
else: import numpy as xp
start, failures = threading.Barrier(8), []
def work(number):
    start.wait()
    try:
        import numba_baracuda as nb
        x, ids = xp.ones((100, 4), "float32"), xp.zeros(100, "int32")
        calls = [lambda: nb.reduce_sum(x, 0), lambda: nb.cumsum(x, 0)[-1:], lambda: nb.segment_sum(x, ids, 1), lambda: nb.reduce_norm2(x, 0) * 10]
        assert calls[number % 4]().tolist() == [[100.0] * 4]
    except BaseException as error:
        failures.append(f"{{type(error).__name__}}: {{error}}")
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failures, failures
print("right", flush=True)
"""


def first_use(worker: Any) -> None:
    """Eight threads import the package and call it at the same time."""
    with _folder() as home:
        _ended(_start(_FIRST_USE.format(emulating=int(arrays.emulating())), home / "cache"))


ALL = (first_use, cache_shared, cache_garbage, cache_deleted, cache_read_only)
