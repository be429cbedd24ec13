"""What a call costs the host: ``python -m benchmarks.host [--csv FILE]``, on a machine with a GPU.

Each figure is the least of several rounds of calls that queue work and do not wait for it. ``launch`` is one launch with its parameters ready,
so ``plan.run`` minus ``launch`` is the package's own share. ``first call`` is measured in a new process with a warm cache, after imports and context.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Host time of one call: the least mean of a round of calls, few enough that the queue never makes the host wait."""
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
    kinds = {"cupy": lambda a: a, "torch": lambda a: torch.as_tensor(a, device="cuda"), "numba": numba.cuda.as_cuda_array}
    for kind, make in kinds.items():
        a, b, c = make(y), make(ids), make(dx)
        views = plan.views({"d_output": a, "segment_ids": b, "d_input": c})
        act, pointers = plan.bind(views).acts[0], [*(view.ptr for view in views), 0]
        found["launch"] = microseconds(lambda act=act, pointers=pointers: act(0, pointers, []), wait)
        found[f"plan.views, {kind}"] = microseconds(lambda a=a, b=b, c=c: plan.views({"d_output": a, "segment_ids": b, "d_input": c}), wait)
        found[f"plan.bind, {kind}"] = microseconds(lambda views=views: plan.bind(views), wait)
        found[f"plan.run, {kind}"] = microseconds(lambda a=a, b=b, c=c: plan.run(d_output=a, segment_ids=b, d_input=c), wait)
        found[f"functional with out=, {kind}"] = microseconds(lambda a=a, b=b, c=c: nb.segment_sum_backward(a, b, out=c), wait)
        found[f"functional, {kind}"] = microseconds(lambda a=a, b=b: nb.segment_sum_backward(a, b), wait)
    two = nb.select(nb.SegmentDescriptor("segment_sum", 100 * ROWS, COLUMNS, SEGMENTS))
    big, many = cp.ones((100 * ROWS, COLUMNS), cp.float32), cp.zeros(100 * ROWS, cp.int32)
    workspace = cp.empty(two.workspace_size, cp.uint8)
    found["plan.run, two kernels, cupy"] = microseconds(lambda: two.run(workspace=workspace, input=big, segment_ids=many, output=y), wait)
    tensor = torch.as_tensor(x, device="cuda")
    found["torch.cumsum"] = microseconds(lambda: torch.cumsum(tensor, 0), wait)
    return found


def first_call() -> dict[str, float]:
    """Milliseconds in a new process; the cache is warm because a process before it has made the same call."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True)
    return {name: value * 1e3 for name, value in json.loads(done.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    rows = [(name, round(value, 2), "us") for name, value in figures().items()]
    rows += [(name, round(value, 2), "ms") for name, value in first_call().items()]
    for name, value, unit in rows:
        print(f"{name:36s} {value:10.2f} {unit}")
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("what", "value", "unit"), *rows])


if __name__ == "__main__":
    main()
