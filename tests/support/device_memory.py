"""A lock for tests that need much device memory, so that many workers share a card of any size.

Tests marked ``memory(gigabytes)`` run one at a time across processes, and are skipped where their memory is not free. All others take less than
``SHARE``, and free pools that have more than ``KEPT``.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

GB = 10**9
SHARE = 1.0  #: gigabytes that a test without the mark may take
KEPT = 0.25  #: gigabytes that a worker's pools may keep from one test to the next
PATIENCE = 5.0  #: seconds that a test waits for others to free memory


def lock_file() -> Path:
    """The path of the lock, one for each user and choice of devices."""
    devices = "".join(each if each.isalnum() else "-" for each in os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    return Path(tempfile.gettempdir()) / f"numba_baracuda-tests-{os.getuid()}-{devices}.lock"


def give_back(above: float = 0.0) -> None:
    """Frees unused memory in the pools of CuPy and torch, if they have more than ``above`` gigabytes."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    held = cupy.get_default_memory_pool().total_bytes() if cupy else 0
    held += torch.cuda.memory_reserved() if torch and torch.cuda.is_available() else 0
    if held <= above * GB:
        return
    gc.collect()
    if cupy:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # an error of the test, which has reported it
            cupy.cuda.runtime.deviceSynchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()


def free() -> float:
    """Gigabytes of free device memory."""
    import cupy

    return float(cupy.cuda.runtime.memGetInfo()[0] / GB)


def wanted(gigabytes: float) -> float:
    """Gigabytes that must be free for a test that takes so many, while every other worker takes its share."""
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1
    return gigabytes + SHARE * others


@contextlib.contextmanager
def turn(gigabytes: float, patience: float = PATIENCE) -> Iterator[None]:
    """Holds the lock for a test that takes so many gigabytes; skips the test where they are not free."""
    with lock_file().open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        give_back()
        end = time.monotonic() + patience
        while free() < wanted(gigabytes) and time.monotonic() < end:
            time.sleep(0.2)
        if free() < wanted(gigabytes):
            pytest.skip(f"needs {wanted(gigabytes):.1f} GB of free device memory, {free():.1f} GB are")
        try:
            yield
        finally:
            give_back()
