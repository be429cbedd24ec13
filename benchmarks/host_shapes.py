"""Host time of calls: with a known shape, with ``out=``, with a new shape every time, and bound; and of functions of PyTorch and CuPy.

Shapes are drawn at random: rows of ``COLUMNS`` columns in segments. Arrays are the leading rows of a few arrays of the largest shape.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numba_baracuda as nb
from numba_baracuda.runtime import cache

Shape = tuple[int, int]  #: rows and segments
COLUMNS = 64
ROWS, SEGMENTS = (20_000, 200_000), (200, 5_000)
BURST = 40  #: calls after which the host waits for the device, so that the queue never fills


@dataclass(frozen=True)
class Problem:
    """Operands of an op, and its output, each cut to rows (``n``), segments (``s``) or one row (``1``); and the ``given`` extents."""

    operands: tuple[tuple[str, str], ...]
    output: str
    given: tuple[str, ...] = ()
    axis: int | None = None


_FOLD = (("input", "n"), ("ids", "n"))
PROBLEMS: dict[str, Problem] = {
    "segment_sum": Problem(_FOLD, "s", ("s",)),
    "segment_max": Problem(_FOLD, "s", ("s",)),
    "segment_softmax": Problem(_FOLD, "n", ("s",)),
    "unsorted_segment_sum": Problem(_FOLD, "s", ("s",)),
    "segment_sum_backward": Problem((("results", "s"), ("ids", "n")), "n"),
    "segment_max_backward": Problem((("results", "s"), ("input", "n"), ("ids", "n")), "n"),
    "reduce_sum": Problem((("input", "n"),), "1", axis=0),
    "cumsum": Problem((("input", "n"),), "n", axis=0),
    "cumsum_backward": Problem((("input", "n"),), "n", axis=0),
}


@dataclass(frozen=True)
class Arrays:
    """The largest arrays of one framework, and the function that waits for its device."""

    input: Any
    results: Any
    ids: Any
    output: Any
    wait: Callable[[], Any]

    def call(self, op: str, shape: Shape, out: bool = False) -> Callable[[], Any]:
        """The function of an op with arrays of this shape."""
        problem, extents = PROBLEMS[op], {"n": shape[0], "s": shape[1], "1": 1}
        given = [getattr(self, name)[: extents[cut]] for name, cut in problem.operands] + [extents[each] for each in problem.given]
        options = ({} if problem.axis is None else {"axis": problem.axis}) | ({"out": self.output[: extents[problem.output]]} if out else {})
        return partial(getattr(nb, op), *given, **options)


def shapes(count: int, rows: Shape = ROWS, segments: Shape = SEGMENTS, seed: int = 0) -> list[Shape]:
    """Shapes with uniformly drawn numbers of rows and segments."""
    draw = random.Random(seed)
    return [(draw.randint(*rows), draw.randint(*segments)) for _ in range(count)]


def spans(calls: Sequence[Callable[[], Any]], wait: Callable[[], Any]) -> list[float]:
    """Microseconds of each call."""
    found = []
    for k, call in enumerate(calls):
        if k % BURST == 0:
            wait()
        start = time.perf_counter()
        call()
        found.append((time.perf_counter() - start) * 1e6)
    wait()
    return found


def figures(arrays: Arrays, seen: Shape, new: Sequence[Shape], warm: int, repeats: int = 400) -> Iterator[tuple[str, float, str]]:
    """Name, number and unit of each figure: for each op medians for a shape ``seen``, and for ``new`` shapes after the first ``warm``."""
    for op in PROBLEMS:
        for what, out in (("seen shape", False), ("seen shape with out=", True)):
            yield f"{op}, {what}", statistics.median(spans([arrays.call(op, seen, out)] * repeats, arrays.wait)[BURST:]), "us"
        spans([arrays.call(op, shape) for shape in new[:warm]], arrays.wait)
        kernels = len(cache._memory)
        times = sorted(spans([arrays.call(op, shape) for shape in new[warm:]], arrays.wait))
        yield f"{op}, new shape, median", statistics.median(times), "us"
        yield f"{op}, new shape, 99 of 100", times[len(times) * 99 // 100], "us"
        yield f"{op}, kernels built for {len(times)} new shapes", len(cache._memory) - kernels, ""


def nearest(xp: Any, arrays: Arrays, seen: Shape, repeats: int = 400) -> Iterator[tuple[str, float, str]]:
    """Figures of the most similar functions of PyTorch or CuPy, with and without ``out=``."""
    rows, segments = seen
    x, ids = arrays.input[:rows], arrays.ids[:rows]
    calls = {"sum": lambda: x.sum(0), "cumsum": lambda: x.cumsum(0)}
    if hasattr(xp, "index_add"):
        one = xp.empty(COLUMNS, dtype=x.dtype, device=x.device)
        calls |= {
            "sum with out=": lambda: xp.sum(x, 0, out=one),
            "zeros and index_add_": lambda: x.new_zeros((segments, COLUMNS)).index_add_(0, ids, x),
        }
    for name, call in calls.items():
        yield f"{xp.__name__} {name}", statistics.median(spans([call] * repeats, arrays.wait)[BURST:]), "us"


def resident() -> int:
    """Resident bytes of the process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(arrays: Arrays, op: str, new: Sequence[Shape], settled: int) -> tuple[str, float, str]:
    """The memory that all shapes after the first ``settled`` take, which are called as many at a time, so that their arrays take little."""
    before = 0
    for begin in range(0, len(new), settled):
        spans([arrays.call(op, shape) for shape in new[begin : begin + settled]], arrays.wait)
        before = before or resident()
    return f"{op}, memory of {len(new)} shapes beyond {settled}", (resident() - before) / 2**20, "MiB"
