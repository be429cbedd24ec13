"""What a call costs the host: ``python -m benchmarks.host``, on a machine with a GPU.

Each figure is the least of several rounds of calls that queue work and do not wait for it. ``launch`` is one launch with its parameters ready,
so ``plan.run`` minus ``launch`` is the package's own share. ``first call`` is measured in a new process with a warm cache, after imports and context.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numba_baracuda.arrays import arrays

from . import host_shapes, results

ROWS, COLUMNS, SEGMENTS = 1000, 4, 10
_FIRST = """
import json, time
start = time.perf_counter()
import cupy as cp
x, ids, y = cp.ones((1000, 4), cp.float32), cp.zeros(1000, cp.int32), cp.empty((10, 4), cp.float32)
cp.cuda.Device().synchronize()
context = time.perf_counter()
import numba_baracuda as nb
nb.segment_sum
imported = time.perf_counter()
nb.segment_sum(x, ids, 10, out=y)
called = time.perf_counter()
nb.segment_sum(x, ids, 10, out=y)
again = time.perf_counter()
import sys
print(json.dumps({"import numba_baracuda": imported - context, "first call": called - imported, "second call": again - called,
    "numba imported": float("numba" in sys.modules)}))
"""


def microseconds(call: Callable[[], Any], wait: Callable[[], Any], calls: int = 60, rounds: int = 80) -> float:
    """Microseconds of host time for one call: the least mean of a round of calls, few enough that the host never waits for the queue."""
    best = float("inf")
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    wait()
    return best * 1e6


def figures() -> dict[str, float]:
    import cupy as cp
    import numba.cuda
    import torch

    import numba_baracuda as nb

    wait = cp.cuda.Device().synchronize
    x, ids = cp.ones((ROWS, COLUMNS), cp.float32), cp.sort(cp.random.randint(0, SEGMENTS, ROWS, dtype=cp.int32))
    y, dx = cp.empty((SEGMENTS, COLUMNS), cp.float32), cp.empty_like(x)
    plan = nb.select(nb.SegmentDescriptor("segment_sum_backward", ROWS, COLUMNS, SEGMENTS))
    found: dict[str, float] = {}
    kinds: dict[str, Callable[[Any], Any]] = {
        "cupy": lambda a: a,
        "torch": lambda a: torch.as_tensor(a, device="cuda"),
        "numba": numba.cuda.as_cuda_array,
    }
    for kind, make in kinds.items():
        a, b, c = make(y), make(ids), make(dx)
        operands = {"d_output": a, "segment_ids": b, "d_input": c}
        views = plan.views(operands)
        found["launch"] = microseconds(partial(plan.bound(views).ready([view.ptr for view in views], None)[0], 0), wait)
        found[f"plan.views, {kind}"] = microseconds(partial(plan.views, operands), wait)
        found[f"plan.bound, {kind}"] = microseconds(partial(plan.bound, views), wait)
        found[f"bound call, {kind}"] = microseconds(plan.bind(**operands), wait)
        found[f"plan.run, {kind}"] = microseconds(partial(plan.run, **operands), wait)
        found[f"functional with out=, {kind}"] = microseconds(partial(nb.segment_sum_backward, a, b, out=c), wait)
        found[f"functional, {kind}"] = microseconds(partial(nb.segment_sum_backward, a, b), wait)
        found[f"SegmentIndex, told, {kind}"] = microseconds(partial(nb.SegmentIndex, b, SEGMENTS, False), wait)
    two = nb.select(nb.SegmentDescriptor("segment_sum", 100 * ROWS, COLUMNS, SEGMENTS))
    big, many = cp.ones((100 * ROWS, COLUMNS), cp.float32), cp.zeros(100 * ROWS, cp.int32)
    workspace = cp.empty(two.workspace_size, cp.uint8)
    found["plan.run, two kernels, cupy"] = microseconds(partial(two.run, workspace=workspace, input=big, segment_ids=many, output=y), wait)
    found["torch.cumsum"] = microseconds(partial(torch.cumsum, torch.as_tensor(x, device="cuda"), 0), wait)
    return found


def by_shape() -> list[tuple[str, float, str]]:
    """Calls of functions by shape on arrays of each framework, and calls of the framework's own functions."""
    import cupy as cp
    import numba.cuda
    import torch

    most, wait = host_shapes.ROWS[1], cp.cuda.Device().synchronize
    whole = [cp.ones((each, host_shapes.COLUMNS), cp.float32) for each in (most, host_shapes.SEGMENTS[1])]
    whole += [cp.sort(cp.random.randint(0, host_shapes.SEGMENTS[0], most, dtype=cp.int32)), cp.empty((most, host_shapes.COLUMNS), cp.float32)]
    seen, new = (60_000, 1_000), host_shapes.shapes(1200)
    found: list[tuple[str, float, str]] = []
    kinds: dict[str, Callable[[Any], Any]] = {
        "torch": partial(torch.as_tensor, device="cuda"),
        "cupy": lambda each: each,
        "numba": numba.cuda.as_cuda_array,
    }
    for name, make in kinds.items():
        x, folded, ids, out = map(make, whole)
        arrays = host_shapes.Arrays(x, folded, ids, out, wait)
        found += [(f"{what}, {name}", value, unit) for what, value, unit in host_shapes.figures(arrays, seen, new, 200)]
        if name != "numba":
            found += host_shapes.nearest(torch if name == "torch" else cp, arrays, seen)
        if name == "torch":
            found.append(host_shapes.growth(arrays, "segment_sum", host_shapes.shapes(10_000, seed=1), 1000))
    return found


def first_call() -> dict[str, float]:
    """Milliseconds in a new process, with a cache that another process has filled by the same call."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True)
    return {name: value * 1e3 for name, value in json.loads(done.stdout).items()}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description=__doc__)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="results file (default: results/host_<gpu>.csv)")
    arguments = parser.parse_args(argv)
    if arrays.emulating():
        print("benchmarks.host: no CUDA device to measure on, or NUMBA_BARACUDA_EMULATE is set; times hold only on a GPU")
        return 2
    header = results.stamp()
    rows = [{"what": name, "value": f"{value:.2f}", "unit": "us"} for name, value in figures().items()]
    rows += [{"what": name, "value": f"{value:.2f}", "unit": unit} for name, value, unit in by_shape()]
    rows += [{"what": name, "value": f"{value:.2f}", "unit": "ms"} for name, value in first_call().items()]
    for row in rows:
        print(f"{row['what']:56s} {row['value']:>10s} {row['unit']}")
    results.write_csv(arguments.csv or results.default_path("host", header["gpu"]), header, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
