"""Device functions on rows of logits, and the formulas of a row's loss and of the gradients of its logits."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...device.block import block_reduce
from ...device.build import opaque
from ...device.vector import LOAD
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ..geometry import CLASS_WEIGHTS, CROSS_ENTROPY, LSE_SQUARE
from .logits import NO_CLASS, finite_base_of, log_ratio_of, logit_functions_of, shifted_exp_of, softmax_monoid_of, state_updates_of
from .prefetch import prefetch_of

_SUM = Monoid("sum", (0,), lambda a, b: a + b)


class RowFunctions:
    """Device functions of a block of ``threads`` threads that has a row of logits. The state of a lane is as in :func:`~.logits.state_updates_of`.

    ``copies_in_flight`` vectors of a lane are prefetched ahead by ``fold_rest``, if ``prefetches``. ``entropy``: whether the state serves the row's
    entropy; ``entropic``: whether gradients are those of entropies, too.
    """

    def __init__(
        self, value: str, vector: int, steps: int, threads: int, smoothed: bool, scaled: bool, capped: bool, exact_tanh: bool, biased: bool,
        weighted: bool, argmax: bool, prefetches: bool = False, copies_in_flight: int = 0, entropy: bool = False, entropic: bool = False,
    ) -> None:  # fmt: skip
        wide, (widen, narrow), element = accumulator_type(value), conversions_of(value), jit.SCALARS[value]
        monoid, shifted_exp, finite_base = softmax_monoid_of(value, argmax), shifted_exp_of(wide), finite_base_of(value)
        log_ratio, (adjust, slope) = log_ratio_of(wide), logit_functions_of(value, scaled, capped, exact_tanh)
        infinity, size, vector_stride, load = wide(math.inf), steps * vector, threads * vector, LOAD[vector]
        reduce_state, reduce_sum = block_reduce(monoid, (wide, wide, int32)[: monoid.width], threads), block_reduce(_SUM, wide, threads)
        prefetch_vectors = prefetch_of(value, vector, vector_stride, steps)

        @jit.device
        def logit(x: Any, bias: Any, column: Any, scale: Any, cap: Any) -> Any:
            return adjust(widen(x) + widen(bias[column]) if biased else widen(x), scale, cap)

        @jit.device
        def weight_of(class_weight: Any, column: Any) -> Any:
            return class_weight[column] if weighted else wide(1)

        add_vector, add_vectors, add_logit = state_updates_of(
            value, vector, steps, vector_stride, logit, weight_of, weighted, smoothed, argmax, entropy
        )  # fmt: skip

        @jit.device
        def no_logits() -> Any:
            return -infinity, wide(0), int32(NO_CLASS), wide(0), wide(0), wide(0)

        @jit.device
        def gradient_of(x: Any, column: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, row_terms: Any) -> Any:
            """The gradient of a class that is not the target; ``row_terms``: m = the greatest logit, a, b, d in exp(z − m) (a + d (z − m)) − b."""
            z = logit(x, bias, column, scale, cap)
            factor = row_terms[1]
            if entropic:
                factor += row_terms[3] * log_ratio(z, row_terms[0])
            result = factor * shifted_exp(z, row_terms[0])
            if smoothed:
                result -= row_terms[2] * weight_of(class_weight, column)
            return narrow(result * slope(z, cap) if capped else result)

        @jit.device
        def fold_rest(
            state: Any, x: Any, base: Any, next_base: Any, shared_end: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any,
        ) -> Any:  # fmt: skip
            """The state after the lane's share of the classes from ``shared_end`` on."""
            values = cuda.local.array(size, element)
            vector_end = classes // vector * vector
            column, vector_index = shared_end + int64(cuda.threadIdx.x) * vector, int32(copies_in_flight)
            while column < vector_end:
                valid = int32(0)
                for s in range(steps):
                    inside = column + s * vector_stride < vector_end
                    load(x, base + (column + s * vector_stride if inside else column), values, s * vector)
                    valid = int32(valid + int32(inside))
                if prefetches:
                    prefetch_vectors(x, base, next_base, shared_end, vector_end, vector_index)
                    vector_index = int32(vector_index + steps)
                state = add_vectors(state, values, column, valid, bias, class_weight, scale, cap)
                column = opaque(column + steps * vector_stride)
            tail = vector_end + cuda.threadIdx.x
            if tail < classes:
                state = add_logit(state, logit(x[base + tail], bias, tail, scale, cap), tail, class_weight)
            return state

        @jit.device
        def reduce_block(state: Any) -> Any:
            """(maximum, sum, argmax) of the logits of all lanes."""
            if argmax:
                return reduce_state((state[0], state[1], state[2]))
            greatest, total = reduce_state((state[0], state[1]))
            return greatest, total, state[2]

        @jit.device
        def rebased_sum(weighted_sum: Any, weight_sum: Any, previous: Any, greatest: Any) -> Any:
            """Σ wⱼ (zⱼ − greatest) from the sum about ``previous``, the greatest of these classes."""
            return weighted_sum + weight_sum * finite_base(previous - finite_base(greatest))

        @jit.device
        def rebased_log_sum(log_sum: Any, total: Any, previous: Any, greatest: Any) -> Any:
            """Σ exp(zⱼ − greatest) (zⱼ − greatest) from this sum and ``total``, both about ``previous``, the greatest of these classes."""
            base = finite_base(greatest)
            return (log_sum + total * log_ratio(previous, base)) * shifted_exp(previous, base)

        self.logit, self.weight_of, self.slope, self.shifted_exp = logit, weight_of, slope, shifted_exp
        self.add_vector, self.no_logits, self.gradient_of, self.fold_rest = add_vector, no_logits, gradient_of, fold_rest
        self.reduce_block, self.reduce_sum, self.rebased_sum, self.rebased_log_sum = reduce_block, reduce_sum, rebased_sum, rebased_log_sum


@functools.cache
def row_formulas_of(value: str, smoothed: bool, squared: bool, weighted: bool) -> tuple[Any, Any, Any, Any]:
    """(``weights_of_row``, ``loss_of_row``, ``terms_of_row``, ``target_gradient_of``).

    The first gives the factors of the target's term, of the terms of all classes, and of lse; others take them as ``weights``.
    """
    wide, shifted_exp = accumulator_type(value), shifted_exp_of(accumulator_type(value))

    @jit.device
    def weights_of_row(class_weight: Any, factors: Any, smoothing: Any, classes: Any, lse_square_scale: Any, row_lse: Any) -> Any:
        target_weight = class_weight * (wide(1) - smoothing if smoothed else wide(1))
        class_share = smoothing / wide(classes) if smoothed else wide(0)
        if weighted:
            target_weight, class_share = target_weight * factors[CROSS_ENTROPY], class_share * factors[CROSS_ENTROPY]
        return target_weight, class_share, lse_square_scale * factors[LSE_SQUARE] * row_lse if squared else wide(0)

    @jit.device
    def loss_of_row(weights: Any, greatest: Any, log_total: Any, target_logit: Any, smoothing_sum: Any, row_lse: Any) -> Any:
        loss = weights[0] * ((greatest - target_logit) + log_total)
        if smoothed:
            loss += weights[1] * smoothing_sum
        if squared:
            loss += weights[2] * row_lse
        return loss

    @jit.device
    def terms_of_row(weights: Any, factors: Any, greatest: Any, total: Any, row_factor: Any, entropy_term: Any, entropy_factor: Any) -> Any:
        """The ``row_terms`` of gradients; the entropy adds ``entropy_term`` to the second of them and is the last."""
        softmax_weight = weights[0]
        if smoothed:
            softmax_weight += weights[1] * factors[CLASS_WEIGHTS]
        if squared:
            softmax_weight += wide(2) * weights[2]
        return greatest, softmax_weight * (row_factor / total) + entropy_term, row_factor * weights[1], entropy_factor

    @jit.device
    def target_gradient_of(
        weights: Any, factors: Any, class_weight: Any, greatest: Any, total: Any, row_factor: Any, target_logit: Any, slope: Any
    ) -> Any:
        """The gradient of the target's logit; the difference of nearly equal numbers comes first."""
        target_exp = shifted_exp(target_logit, greatest)
        gradient = weights[0] * (target_exp - total)
        if smoothed:
            gradient += weights[1] * (factors[CLASS_WEIGHTS] * target_exp - class_weight * total)
        if squared:
            gradient += wide(2) * weights[2] * target_exp
        return gradient * (row_factor / total * slope)

    return weights_of_row, loss_of_row, terms_of_row, target_gradient_of
