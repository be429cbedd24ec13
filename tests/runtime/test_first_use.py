"""The package used for the first time by several threads at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: The first thing each thread does. A process can do a thing for the first time but once, so each round is a process of its own.
CALLS = """
    lambda: nb.segment_sum(x, ids, 2).tolist() == [[2] * 3] * 2
    lambda: nb.reduce_sum(x, axis=1).tolist() == [[3]] * 4
    lambda: nb.cumsum(x, axis=0)[:, 0].tolist() == [1, 2, 3, 4]
    lambda: len(nb.OPS) == len(list(nb.OPS)) > 70
    lambda: nb.loss.FusedLinearCrossEntropyDescriptor(4, 3, 4, "f32")
    lambda: nb.select(nb.SegmentDescriptor("unsorted_segment_max", 4, 3, 2)).sku
    lambda: nb.device.warp_reduce
    lambda: nb.ScanDescriptor
"""
MODULES = """
    lambda: import_module("numba_baracuda.segment.kernels").fold_tiles
    lambda: import_module("numba_baracuda.reduce.kernels").fold_rows
    lambda: import_module("numba_baracuda.scan.kernels").scan_rows
    lambda: import_module("numba_baracuda.loss.kernels").assign
    lambda: nb.device.block_scan
    lambda: nb.OPS["cumsum"]
    lambda: nb.SegmentIndex(ids, 2)
    lambda: nb.ReduceDescriptor
"""
SCRIPT = """
    import sys, threading, traceback
    from importlib import import_module
    import numpy as np
    import numba_baracuda as nb

    sys.setswitchinterval(float(sys.argv[1]))
    x, ids = np.ones((4, 3), np.float32), np.array([0, 0, 1, 1], np.int32)
    start, failed = threading.Barrier(len(firsts := [FIRSTS])), []

    def use(first):
        start.wait()
        try:
            assert first(), "wrong"
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=use, args=(first,)) for first in firsts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit("".join(failed) or 0)
"""


@pytest.mark.parametrize("interval", [1e-6, 5e-3])
@pytest.mark.parametrize("firsts", [CALLS, MODULES], ids=["calls", "modules"])
def test_first_use_by_eight_threads_at_once(firsts: str, interval: float) -> None:
    lines = [line.strip() for line in firsts.strip().splitlines()]
    assert len(lines) == 8
    script = textwrap.dedent(SCRIPT).replace("FIRSTS", ", ".join(lines))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_BARACUDA_EMULATE": "1"}
    done = subprocess.run([sys.executable, "-c", script, str(interval)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
