"""Turns for tests that want much device memory, so that many workers share a card of any size.

A test marked ``memory(gigabytes)`` runs while no other such test does, whichever process it is in, and is skipped where its memory is not free.
All others keep below ``SHARE``, and give back what pools hold of more than ``KEPT``.
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
PATIENCE = 30.0  #: seconds for others to give memory back


def lock_file() -> Path:
    """One for each user and choice of devices."""
    devices = "".join(each if each.isalnum() else "-" for each in os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    return Path(tempfile.gettempdir()) / f"numba_baracuda-tests-{os.getuid()}-{devices}.lock"


def give_back(above: float = 0.0) -> None:
    """Frees what the pools of CuPy and torch hold and nobody uses, if they hold more than so many gigabytes."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    held = cupy.get_default_memory_pool().total_bytes() if cupy else 0
    held += torch.cuda.memory_reserved() if torch and torch.cuda.is_available() else 0
    if held <= above * GB:
        return
    gc.collect()
    if cupy:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # of the test, which has reported it
            cupy.cuda.runtime.deviceSynchronize()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()


def free() -> float:
    """Gigabytes of device memory that nobody has."""
    import cupy

    return float(cupy.cuda.runtime.memGetInfo()[0] / GB)


def wanted(gigabytes: float) -> float:
    """What must be free for a test that takes so much, while every other worker takes its share."""
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1
    return gigabytes + SHARE * others


@contextlib.contextmanager
def turn(gigabytes: float, patience: float = PATIENCE) -> Iterator[None]:
    """Waits for the turn of a test that takes so many gigabytes; skips it where they are not free."""
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
