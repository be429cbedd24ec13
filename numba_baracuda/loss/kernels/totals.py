"""Sums over all targets before the losses, and over all rows after them: one block each, in a fixed order."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_reduce
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Ptr, Scalar
from ..geometry import CLASS_WEIGHTS, CROSS_ENTROPY, GRADIENT, INVERSE_COUNT, LOSS, LSE_SQUARE, Z_LOSS
from ..geometry import TOTAL_THREADS as THREADS


@functools.cache
def _block_sums(*kinds: Any) -> Any:
    """``reduce_block(state)``: the sum over the block of each scalar of a state."""
    if len(kinds) == 1:
        return block_reduce(Monoid("sum", (0,), lambda a, b: a + b), kinds[0], THREADS)
    return block_reduce(Monoid("sums", (0,) * 3, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])), kinds, THREADS)


@jit.kernel
def total_targets(*, value: str, label: str, upstream: str, mean: bool, weighted: bool, smoothed: bool, gemm_scaled: bool, stage: str = "") -> Any:
    """Stores ``factors``, what losses and gradients are multiplied by. The device computes them, so that the host need not wait.

    ``mean``: the mean is over n, the number of targets that are not ``ignore``; with ``weighted`` over the sum of their classes' weights. Nothing is
    divided by 0: if n is 0, every factor is 0; if the weights sum to 0, the squares are divided by n, and the factor of all else is 0. The factor of
    gradients includes ``number``, ``scale``, and ``dy`` if ``upstream`` is not "". One block.
    Bytes: rows · label, and classes weights, read.

    Constants: ``stage``: "count" stores the count and the weight of the targets to ``sums`` [2] instead, and "factors" reads them there, so that
    ranks can add them up between the two; ``gemm_scaled``: the gradient's factor goes to ``alpha`` instead, for matrix products to apply.
    Parameters: ``alpha``, ``zero`` and ``one`` [1]: scalars that matrix products read, stored only if ``gemm_scaled``; ``number``: the upstream
    gradient where it is no array, else 1. Others as :mod:`.` lists them.
    """
    wide, has_upstream = accumulator_type(value), upstream != ""
    widen = conversions_of(upstream or value)[0]
    reduce_block = _block_sums(int32, wide, wide)

    def total_targets(
        target: Ptr[label], class_weight: Ptr[wide], dy: Ptr[upstream or wide],
        sums: Ptr[wide], factors: Ptr[wide], alpha: Ptr[wide], zero: Ptr[wide], one: Ptr[wide],
        rows: int64, classes: int64, target_stride: int64, ignore: int64, number: Scalar[wide], scale: Scalar[wide],
    ) -> None:  # fmt: skip
        count, target_weight_sum, class_weight_sum = int32(0), wide(0), wide(0)
        row = int64(cuda.threadIdx.x)
        while stage != "factors" and row < rows:
            target_class = int64(target[row * target_stride])
            count = int32(count + int32(target_class != ignore))
            if weighted and target_class != ignore and 0 <= target_class < classes:
                target_weight_sum += class_weight[target_class]
            row += THREADS
        if weighted and smoothed:
            column = int64(cuda.threadIdx.x)
            while column < classes:
                class_weight_sum += class_weight[column]
                column += THREADS
        count, target_weight_sum, class_weight_sum = reduce_block((count, target_weight_sum, class_weight_sum))
        counted = wide(count)
        if stage == "factors":
            counted, target_weight_sum = sums[0], sums[1]
        if cuda.threadIdx.x == 0 and stage == "count":
            sums[0], sums[1] = counted, target_weight_sum
        elif cuda.threadIdx.x == 0:
            has_weight = target_weight_sum != wide(0) or not (weighted and mean)
            divisor = target_weight_sum if weighted and has_weight else counted
            inverse_count = wide(1) / counted if counted > 0 else wide(0)
            per_loss = (wide(1) / divisor if counted > 0 else wide(0)) if mean else wide(int32(counted > 0))
            gradient = per_loss * wide(number) * wide(scale)
            if has_upstream:
                gradient *= wide(widen(dy[0]))
            if gemm_scaled:
                alpha[0], zero[0], one[0] = gradient, wide(0), wide(1)
                gradient = wide(1)
            factors[GRADIENT], factors[LOSS], factors[INVERSE_COUNT] = gradient, per_loss, inverse_count
            factors[Z_LOSS], factors[LSE_SQUARE] = inverse_count if mean else wide(1), divisor * inverse_count if mean else wide(1)
            factors[CROSS_ENTROPY] = wide(int32(has_weight))
            factors[CLASS_WEIGHTS] = class_weight_sum if weighted else wide(classes)

    return total_targets, lambda: (1, THREADS, 0)


@jit.kernel
def fold_losses(*, value: str, result: str, each: bool, factor: int) -> Any:
    """``out[0] = Σ losses · factors[factor]``; with ``each``, ``out[i] = losses[i]`` instead; rounded once. Bytes: rows accumulators read.

    Constants: ``result``: the element type of out; ``factor``: an index of factors. Parameters: ``out`` [1], or [rows] with ``each``; ``out_stride``:
    elements from one result to the next. Others as :mod:`.` lists them.
    """
    wide, narrow, reduce_block = accumulator_type(value), conversions_of(result)[1], _block_sums(accumulator_type(value))

    def fold_losses(
        losses: Ptr[wide], factors: Ptr[wide], out: Ptr[result],
        rows: int64, out_stride: int64,
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if each:
            if row < rows:
                out[row * out_stride] = narrow(losses[row])
        else:
            total = wide(0)
            while row < rows:
                total += losses[row]
                row += THREADS
            total = reduce_block(total)
            if cuda.threadIdx.x == 0:
                out[0] = narrow(total * factors[factor])

    return fold_losses, lambda rows: (-(-rows // THREADS) if each else 1, THREADS, 0)
