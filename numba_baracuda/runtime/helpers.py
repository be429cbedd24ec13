"""Processes that compile kernels next to this one and leave them in the cache on disk. Numba compiles under the GIL, so threads would take turns.

A helper is a fresh interpreter: it knows nothing of CUDA here, and imports nothing of the caller's program. One that fails, or takes too long, leaves
its kernel to this process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any

from ..core.spec import KernelSpec

_PATIENCE = 10.0  #: seconds that a helper may take when this process has nothing else to compile
_CODE = """
import json, sys
given = json.load(sys.stdin)
sys.path[:] = given["path"]
from numba_baracuda.runtime import helpers
helpers.work(given)
"""
_running: dict[str, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


def _forked() -> None:
    """The helpers are the parent's."""
    global _lock
    _lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forked)


def cores() -> int:
    """On how many this process may run."""
    return len(os.sched_getaffinity(0))


@contextmanager
def running(kernels: Mapping[str, KernelSpec], arch: str) -> Iterator[None]:
    """Inside the block helpers compile these kernels, by the names of their entries. Those that are still at work when it ends are stopped."""
    begun: list[str] = []
    try:
        for name, spec in kernels.items():
            with _lock:
                if name not in _running and not getattr(sys, "frozen", False):
                    begun.append(name)
                    _start(name, spec, arch)
        yield
    finally:
        for name in begun:
            process = _running.pop(name, None)
            if process is not None:
                process.kill()
                process.wait()


def _start(name: str, spec: KernelSpec, arch: str) -> None:
    given = json.dumps({"path": sys.path, "spec": dataclasses.asdict(spec), "arch": arch}).encode()
    silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        process = subprocess.Popen([os.fsdecode(spawn.get_executable()), "-c", _CODE], stdin=subprocess.PIPE, **silent)
    except OSError:  # no more processes, or no interpreter
        return
    _running[name] = process
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(given)
    except OSError:  # it has ended, as wait() will see
        return


def wait(name: str) -> bool:
    """Waits for the helper that compiles an entry, and stops one that takes too long; False where there is none."""
    process = _running.get(name)
    if process is None:
        return False
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _running.pop(name, None)
    return True


def work(given: dict[str, Any]) -> None:
    """What a helper does: it compiles the kernel that it was given on its standard input."""
    from . import cache

    constants = tuple((name, value) for name, value in given["spec"].pop("constants"))
    cache.cubin(KernelSpec(constants=constants, **given["spec"]), given["arch"])
