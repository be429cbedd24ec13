"""What the first call of an op costs on a machine that has compiled nothing: ``python -m benchmarks.first``, on a machine with a GPU.

Each row is of a new process with an empty cache, after CuPy, the context and the operands are there. ``import`` is that of the op's family,
``compile`` is what the call waits for kernels and sorts that are compiled side by side, ``call`` is the whole call until its result is there, and
``total`` is ``import`` and ``call``. ``again`` is the total of another process, which finds what the first one left in the cache. All are seconds, of
``--repeats`` the least.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numba_baracuda import OPS
from numba_baracuda.arrays import arrays
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.runtime import helpers

from . import results

#: some of each family, with plans of one kernel to several
USUAL = (
    "segment_sum", "segment_softmax", "segment_sum_backward", "unsorted_segment_sum", "unsorted_segment_max", "reduce_sum", "reduce_std_backward",
    "cumsum", "cumprod_backward", "fused_linear_cross_entropy",
)  # fmt: skip
FIGURES = ("import", "compile", "call", "total", "again")
_CHILD = """
import json, sys, time
import cupy as cp
wait = cp.cuda.Device().synchronize
cp.zeros(1)
wait()
begin = time.perf_counter()
import numba_baracuda as nb
getattr(nb, sys.argv[1])
imported = time.perf_counter() - begin
from benchmarks.first import problem
from numba_baracuda.plans import first
descriptor, operands = problem(sys.argv[1], cp)
wait()
prepare, spent = first.prepare, []
def timed(*given):
    before = time.perf_counter()
    prepare(*given)
    spent.append(time.perf_counter() - before)
first.prepare = timed
begin = time.perf_counter()
nb.select(descriptor).run(**operands)
wait()
call = time.perf_counter() - begin
print(json.dumps({"import": imported, "compile": sum(spent), "call": call, "total": imported + call}))
"""


def problem(name: str, xp: Any) -> tuple[Any, dict[str, Any]]:
    """A descriptor of an op, and its operands, all of zeros: the first of the op's samples, of segments the first that has 128 columns."""
    op = OPS[name]
    usual = ((descriptor, layouts) for descriptor, layouts in op.samples(op) if getattr(descriptor, "embedding_dim", 128) == 128)
    descriptor, layouts = next(usual)
    operands: dict[str, Any] = {}
    for operand in descriptor.specialise(op).operands:
        if operand.name in layouts:
            element = operand.element.split()[0] if operand.element else descriptor.index_name if operand.index else descriptor.element_name
            operands[operand.name] = xp.zeros(layouts[operand.name].shape, BY_NAME[element].numpy_name)
    return descriptor, operands


def measure(name: str, folder: str) -> dict[str, float]:
    """Seconds of the first call of an op in a new process whose cache is this folder."""
    environment = {**os.environ, "NUMBA_BARACUDA_CACHE_DIR": folder, "NUMBA_BARACUDA_PROGRESS": "0"}
    command = [sys.executable, "-c", _CHILD, name]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def figures(name: str, repeats: int) -> dict[str, float]:
    """The least of each figure."""
    found = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold = measure(name, folder)
            found.append(cold | {"again": measure(name, folder)["total"]})
    return {figure: min(each[figure] for each in found) for figure in FIGURES}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first", description=__doc__)
    parser.add_argument("--op", metavar="PATTERN", help=f"ops whose names match, '*' for all (default: {', '.join(USUAL)})")
    parser.add_argument("--repeats", type=int, default=3, help="cold processes an op (default: %(default)s)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows there, too")
    arguments = parser.parse_args(argv)
    names = [name for name in OPS if (fnmatch.fnmatchcase(name, arguments.op) if arguments.op else name in USUAL)]
    if not names:
        print(f"benchmarks.first: no op matches {arguments.op!r}")
        return 2
    if arrays.emulating():
        print("benchmarks.first: no CUDA device to measure on, or NUMBA_BARACUDA_EMULATE is set; times hold only on a GPU")
        return 2
    print(f"{'':34s}" + "".join(f"{figure:>10s}" for figure in FIGURES) + f"   seconds, {helpers.cores()} cores")
    rows = []
    for name in names:
        found = figures(name, max(arguments.repeats, 1))
        print(f"{name:34s}" + "".join(f"{found[figure]:10.2f}" for figure in FIGURES), flush=True)
        rows.append({"op": name, **{figure: f"{found[figure]:.3f}" for figure in FIGURES}})
    if arguments.csv:
        results.write_csv(arguments.csv, results.stamp() | {"cores": str(helpers.cores())}, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
