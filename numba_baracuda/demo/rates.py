"""Demo on a GPU only: how near ``segment_sum`` comes to the rate at which the card copies memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from rich.table import Table

from ..core.dtypes import BY_NAME
from .stage import Stage

_EPS = 2.0**-23


@dataclass(frozen=True)
class Case:
    """One problem: ``inputs`` rows of ``features`` float32 numbers (0: no feature dimension) in ``segments`` segments, int32 ids."""

    title: str
    inputs: int
    features: int
    segments: int
    skew: int  #: ids are the integer part of segments·uᵏ with uniform u: k = 1 is even, k = 3 a power law

    @property
    def row(self) -> int:
        return max(1, self.features)

    @property
    def bytes_moved(self) -> int:
        """Each operand once."""
        return 4 * (self.inputs * self.row + self.inputs + self.segments * self.row)

    def scaled(self, factor: float) -> Case:
        inputs, segments = max(1, int(self.inputs * factor)), max(1, int(self.segments * factor))
        return Case(self.title, inputs, self.features, segments, self.skew)


CASES = (
    Case("edges of a power-law graph", 100_000_000, 0, 1_000_000, skew=3),
    Case("rows of features", 2_000_000, 128, 100_000, skew=1),
)
_LARGEST = 6 << 30  #: bytes of memory the cases want at the size above


def run(stage: Stage) -> bool:
    """Check, then time, ``segment_sum`` of :data:`CASES`; does nothing without a GPU or when ``quick``."""
    if stage.quick or stage.emulated:
        return True
    stage.begin("Rates: segment_sum beside a copy of memory")
    xp, shares = stage.xp, dict[str, float]()
    free, _ = xp.cuda.runtime.memGetInfo()
    factor = min(1.0, 0.8 * free / _LARGEST)
    copy = _copy_rate(xp, int(factor * (1 << 30)))
    table = Table(title=f"segment_sum, float32, sorted int32 ids\na copy on the device moves {copy / 1e9:,.0f} GB/s, read and write counted")
    for title in ("problem", "time", "rate", "of copy", "error / tolerance"):
        table.add_column(title, justify="left" if title == "problem" else "right")
    right = True
    for case in (case.scaled(factor) for case in CASES):
        with stage.waiting(f"Measuring {case.title}"):
            seconds, error = _measure(xp, case)
        right = right and error <= 1
        rate = case.bytes_moved / seconds
        shares[case.title] = 100 * rate / copy
        problem = f"{case.title}\n{case.inputs:,} x {case.row} in {case.segments:,}"
        table.add_row(problem, f"{seconds * 1e6:,.0f} us", f"{rate / 1e9:,.0f} GB/s", f"{rate / copy:.0%}", f"{error:.2g}")
        xp.get_default_memory_pool().free_all_blocks()
    stage.console.print(table)
    stage.plot("rates", lambda axes: _draw(axes, shares))
    return right


def _draw(axes: Any, shares: dict[str, float]) -> None:
    axes.barh(list(shares), list(shares.values()))
    axes.axvline(100, color="grey", linestyle="--")
    axes.set(xlabel="% of the rate of a copy on the device")


def _copy_rate(xp: ModuleType, nbytes: int) -> float:
    """Bytes per second of a copy on the device, read and write counted."""
    source = xp.asarray(np.random.default_rng(2).random(nbytes // 4, np.float32))
    copies = [xp.empty_like(source) for _ in range(2)]
    return 2 * (nbytes // 4 * 4) / _median_seconds(xp, lambda turn: xp.copyto(copies[turn % 2], source))


def _measure(xp: ModuleType, case: Case) -> tuple[float, float]:
    """Seconds a call, and the largest error as a share of its tolerance ``4·eps·√n·Σ|terms| + eps·|sum|``, ``n`` the length of the segment."""
    import numba_baracuda as nb

    random = np.random.default_rng(1)  # CuPy's wants cuRAND, which the extras do not bring
    shape = (case.inputs, case.features) if case.features else (case.inputs,)
    inputs = [xp.asarray(random.random(shape, np.float32)) for _ in range(2)]  # larger than any cache, and not the same one twice running
    ids = xp.asarray((random.random(case.inputs, np.float32) ** case.skew * case.segments).astype(np.int32))
    xp.minimum(ids, case.segments - 1, out=ids)
    ids.sort()
    out = xp.empty((case.segments, *shape[1:]), dtype=xp.float32)

    nb.segment_sum(inputs[0], ids, case.segments, out=out)
    truth = _sums_float64(xp, inputs[0], ids, out.shape)
    lengths = xp.bincount(ids, minlength=case.segments).astype(xp.float64).reshape(-1, *[1] * (out.ndim - 1))
    allowed = BY_NAME["f32"].tolerance(lengths) * truth  # every term is positive
    error = float((xp.abs(out - truth) / xp.maximum(allowed, _EPS)).max())

    seconds = _median_seconds(xp, lambda turn: nb.segment_sum(inputs[turn % 2], ids, case.segments, out=out))
    return seconds, error


def _sums_float64(xp: ModuleType, values: Any, ids: Any, shape: tuple[int, ...]) -> Any:
    """The sums by another route, float64 atomic additions, a slab at a time to spare memory."""
    sums = xp.zeros(shape, dtype=xp.float64)
    slab = max(1, (16 << 20) // (values.size // len(values)))
    for start in range(0, len(values), slab):
        xp.add.at(sums, ids[start : start + slab], values[start : start + slab].astype(xp.float64))
    return sums


def _median_seconds(xp: ModuleType, call: Callable[[int], Any], repeats: int = 15) -> float:
    """Median time of ``call(0) … call(repeats − 1)`` on the device, between events queued without waiting; three calls go before to warm up."""
    for turn in range(3):
        call(turn)
    events = [(xp.cuda.Event(), xp.cuda.Event()) for _ in range(repeats)]
    for turn, (begin, end) in enumerate(events):
        begin.record()
        call(turn)
        end.record()
    xp.cuda.get_current_stream().synchronize()
    return float(statistics.median(xp.cuda.get_elapsed_time(begin, end) for begin, end in events)) / 1e3
