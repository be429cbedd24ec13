"""The contestants: ours, and without a GPU one with the frameworks' algorithm, to compare errors with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

import numba_baracuda as nb

from .loss_cases import LossCase, Result, rounded
from .results import OURS
from .timing import Call, Timing
from .values import cast

#: the contestant that sets the tolerance of errors in bfloat16, and the one that sets the time
YARDSTICK, PRODUCTS = "torch eager", "torch, three whole products"


@dataclass(frozen=True)
class Contestant:
    """``make()`` returns the call that is timed, or raises. A call that computes the loss returns it with both gradients.

    ``flops`` and ``nbytes`` are those of a call, 0 where its rate is not reported.
    """

    who: str
    make: Callable[[], Call]
    flops: int = 0
    nbytes: int = 0
    loss: bool = True
    chunk: int = 0  #: rows of logits at a time, where that is known
    note: str = ""


class Ground(Protocol):
    """The framework and device of a measurement. ``xp`` computes the truth from arrays that ``take`` converts."""

    xp: Any

    def operands(self, case: LossCase) -> tuple[Any, Any, Any]:
        """Input, weight and targets."""

    def contestants(self, case: LossCase, x: Any, w: Any, target: Any) -> Iterator[Contestant]:
        """All contestants of a case; only its operands are in memory."""

    def take(self, array: Any) -> Any:
        """An array of ``xp``."""

    def watched(self, call: Call) -> tuple[Any, int | None]:
        """A call's result, and its peak bytes beyond those before it, where the framework reports them."""

    def times(self, calls: Sequence[Call], rounds: int) -> list[Timing | None]:
        """The timings of all calls, in turn; None without a GPU."""


def ours(case: LossCase, x: Any, w: Any, target: Any) -> Iterator[Contestant]:
    """Ours for every chunk size, with new gradients and without ``workspace=``; and the first of them with sums in float32."""

    def contestant(name: str, rows: int, note: str = "", **options: Any) -> Contestant:
        def call() -> Any:
            return nb.fused_linear_cross_entropy(x, w, target, grad_input=True, grad_weight=True, **options)[:3]

        return Contestant(f"{OURS} {name}", lambda: call, case.flops, chunk=rows, note=note)

    for rows, (name, *others) in case.chunks().items():
        chunk = name if name in ("auto", "lean") else rows
        yield contestant(name, rows, f"also {', '.join(others)}" if others else "", chunk=chunk)
    rows = case.descriptor("auto").chunk_size
    if rows < case.bt:
        yield contestant("auto, f32 sums", rows, "grad_weight_accum is f32", chunk="auto", grad_weight_accum="f32")


class Emulated:
    """NumPy and the emulator: results, but no times."""

    xp: Any = np

    def operands(self, case: LossCase) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(case.v)
        x, w = rng.standard_normal((case.bt, case.h), np.float32), rng.standard_normal((case.v, case.h), np.float32)
        return cast(np, x, "bf16"), cast(np, np.float32(0.02) * w, "bf16"), rng.integers(0, case.v, case.bt)

    def contestants(self, case: LossCase, x: Any, w: Any, target: Any) -> Iterator[Contestant]:
        def plain() -> tuple[Any, Any, Any]:
            found: Result = rounded(np, x, w, target)
            return found.loss, found.grad_input, found.grad_weight

        yield Contestant(YARDSTICK, lambda: plain, case.flops, note="by NumPy")
        yield from ours(case, x, w, target)

    def take(self, array: Any) -> Any:
        return array

    def watched(self, call: Call) -> tuple[Any, int | None]:
        return call(), None

    def times(self, calls: Sequence[Call], rounds: int) -> list[Timing | None]:
        return [None for _ in calls]
