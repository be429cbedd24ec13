"""Sums over all targets before a loss, and over all rows after it: one block each, in a fixed order."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_reduce
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..geometry import GRADIENT, LOSS, PLAIN, SHARE, SQUARE, SQUARES, WEIGHTS
from ..geometry import TOTAL_THREADS as THREADS


@functools.cache
def _sums(*kinds: Any) -> Any:
    """``fold(state)``: the sum over the block of each scalar of a state."""
    if len(kinds) == 1:
        return block_reduce(Monoid("sum", (0,), lambda a, b: a + b), kinds[0], THREADS)
    return block_reduce(Monoid("sums", (0,) * 3, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])), kinds, THREADS)


@jit.kernel
def total_targets(*, value: str, label: str, upstream: str, mean: bool, weighted: bool, smoothed: bool, apart: bool) -> Any:
    """What gradients and losses are to be multiplied by, to ``factors``; nobody is asked but the device.

    n = targets that are not ``ignore``; with ``weighted`` their weights, which the mean is taken over, and with ``smoothed`` the sum of all classes'.
    Nothing is divided by zero: where all targets are left out, every factor is 0; where the weights of the others sum to 0, the mean is taken over n,
    and the factor of all but squares is 0. The gradient's factor has ``number`` and what ``upstream``, an element type or "", holds; with ``apart``
    it goes to ``alpha`` instead, for products, and ``zero`` and ``one`` are written for them too. One block of 1024 threads.
    Bytes: rows targets and classes weights.
    """
    wide, held = accumulator_type(value), upstream != ""
    widen = conversions_of(upstream or value)[0]
    fold = _sums(int32, wide, wide)

    def total_targets(
        target: Ptr[label], class_weight: Ptr[wide], dy: Ptr[upstream or wide],
        factors: Ptr[wide], alpha: Ptr[wide], zero: Ptr[wide], one: Ptr[wide],
        rows: int64, classes: int64, stride: int64, ignore: int64, number: Scalar[wide], scale: Scalar[wide],
    ) -> None:  # fmt: skip
        count, picked, every = int32(0), wide(0), wide(0)
        row = int64(cuda.threadIdx.x)
        while row < rows:
            which = int64(target[row * stride])
            count = int32(count + int32(which != ignore))
            if weighted and which != ignore and 0 <= which < classes:
                picked += class_weight[which]
            row += THREADS
        if weighted and smoothed:
            column = int64(cuda.threadIdx.x)
            while column < classes:
                every += class_weight[column]
                column += THREADS
        count, picked, every = fold((count, picked, every))
        if cuda.threadIdx.x == 0:
            whole = wide(count)
            weighs = picked != wide(0) or not (weighted and mean)
            divisor = picked if weighted and weighs else whole
            share = wide(1) / whole if count > 0 else wide(0)
            per_loss = (wide(1) / divisor if count > 0 else wide(0)) if mean else wide(int32(count > 0))
            gradient = per_loss * wide(number) * wide(scale)
            if held:
                gradient *= wide(widen(dy[0]))
            if apart:
                alpha[0], zero[0], one[0] = gradient, wide(0), wide(1)
                gradient = wide(1)
            factors[GRADIENT], factors[LOSS], factors[SHARE] = gradient, per_loss, share
            factors[SQUARES], factors[SQUARE] = share if mean else wide(1), divisor * share if mean else wide(1)
            factors[PLAIN] = wide(int32(weighs))
            factors[WEIGHTS] = every if weighted else wide(classes)

    return total_targets, lambda: (1, THREADS, 0)


@jit.kernel
def fold_losses(*, value: str, result: str, each: bool, factor: int) -> Any:
    """``out[0] = Σ losses · factors[factor]``, or ``out[i] = losses[i]`` of each row; one rounding. Bytes: rows numbers read."""
    wide, narrow, fold = accumulator_type(value), conversions_of(result)[1], _sums(accumulator_type(value))

    def fold_losses(
        losses: Ptr[wide], factors: Ptr[wide], out: Ptr[result],
        rows: int64, stride: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if each:
            if row < rows:
                out[row * stride] = narrow(losses[row])
        else:
            total = wide(0)
            while row < rows:
                total += losses[row]
                row += THREADS
            total = fold(total)
            if cuda.threadIdx.x == 0:
                out[0] = narrow(total * factors[factor])

    return fold_losses, lambda rows: (-(-rows // THREADS) if each else 1, THREADS, 0)
