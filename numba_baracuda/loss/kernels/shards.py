"""Cross entropy of rows whose classes are divided among ranks: statistics of each part, their merge, and the gradients of a part."""

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.vector import LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar, Tuple
from ..geometry import GRADIENT, MERGE_THREADS, ROW_TERMS, statistics_width
from .compact import target_class_of
from .logits import NO_CLASS, log_ratio_of, logit_functions_of, softmax_monoid_of
from .row_functions import RowFunctions, row_formulas_of


@jit.kernel
def row_statistics(
    *, value: str, label: str, vector: int, steps: int, threads: int, smoothed: bool, scaled: bool, capped: bool, exact_tanh: bool, biased: bool,
    weighted: bool, argmax: bool, entropy: bool,
) -> Any:  # fmt: skip
    """``statistics[r]`` = (m, Σ exp(z − m), the target's logit or 0, …) of the row's classes on this rank, with m the greatest of their logits.

    Further numbers are, with ``argmax``, the first class whose logit is m, or −1; with ``entropy``, Σ exp(zⱼ − m) (zⱼ − m); with ``smoothed``,
    Σ wⱼ (zⱼ − m) and Σ wⱼ. A row without a target is not read; its statistics are 0. A block for each row. Bytes: rows · classes · value read, and
    the statistics written.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, terms = accumulator_type(value), statistics_width(argmax, smoothed, entropy)
    functions = RowFunctions(value, vector, steps, threads, smoothed, scaled, capped, exact_tanh, biased, weighted, argmax, entropy=entropy)
    logit, no_logits, fold_rest, rebased_sum = functions.logit, functions.no_logits, functions.fold_rest, functions.rebased_sum
    reduce_block, reduce_sum, rebased_log_sum = functions.reduce_block, functions.reduce_sum, functions.rebased_log_sum

    def row_statistics(
        x: Ptr[value], target: Ptr[label], bias: Ptr[value], shard_weight: Ptr[wide], statistics: Ptr[wide],
        first_row: int64, classes: int64, first_class: int64, total_classes: int64, row_stride: int64, target_stride: int64, ignore: int64,
        scale: Scalar[wide], cap: Tuple[wide, 2],
    ) -> None:  # fmt: skip
        index = int64(cuda.blockIdx.x)
        target_class = target_class_of(target, (first_row + index) * target_stride, ignore, total_classes)
        base, at = index * row_stride, index * terms
        if target_class < 0:
            if cuda.threadIdx.x < terms:
                statistics[at + cuda.threadIdx.x] = wide(0)
        else:
            state = fold_rest(no_logits(), x, base, int64(-1), int64(0), classes, bias, shard_weight, scale, cap)
            greatest, total, best_class = reduce_block(state)
            weighted_sum, weight_sum, log_sum = wide(0), wide(0), wide(0)
            if entropy:
                log_sum = reduce_sum(rebased_log_sum(state[5], state[1], state[0], greatest))
            if smoothed:
                weighted_sum, weight_sum = reduce_sum(rebased_sum(state[3], state[4], state[0], greatest)), reduce_sum(state[4])
            if cuda.threadIdx.x == 0:
                shard_class, target_logit = target_class - first_class, wide(0)
                if 0 <= shard_class < classes:
                    target_logit = logit(x[base + shard_class], bias, shard_class, scale, cap)
                statistics[at], statistics[at + 1], statistics[at + 2] = greatest, total, target_logit
                if argmax:
                    statistics[at + 3] = wide(first_class + best_class) if best_class < NO_CLASS else wide(-1)
                if entropy:
                    statistics[at + (4 if argmax else 3)] = log_sum
                if smoothed:
                    statistics[at + terms - 2], statistics[at + terms - 1] = weighted_sum, weight_sum

    return row_statistics, lambda rows: (rows, threads, 0)


@jit.kernel
def merge_statistics(
    *, value: str, label: str, upstream: str, entropy_upstream: str, gradient: bool, smoothed: bool, squared: bool, capped: bool, weighted: bool,
    row_weighted: bool, argmax: bool, entropy: bool,
) -> Any:  # fmt: skip
    """The loss of each row from the ``statistics`` [ranks, rows, numbers of a row] of all ranks, merged in the order of ranks; a thread for each row.

    With ``gradient``, ``row_terms[r]`` holds what the gradients of its logits are made of: the greatest logit, the factor of exp(z − greatest), the
    subtrahend, the gradient of the target's logit, and the factor of exp(z − greatest) (z − greatest). Every rank computes the same bits. Bytes: the
    statistics read.

    Constants and parameters as :mod:`.` lists them, and: ``ranks``: how many there are.
    """
    wide, terms, monoid = accumulator_type(value), statistics_width(argmax, smoothed, entropy), softmax_monoid_of(value, argmax)
    functions = RowFunctions(value, 1, 1, 32, smoothed, False, capped, True, False, weighted, argmax)
    rebased_sum, rebased_log_sum, shifted_exp = functions.rebased_sum, functions.rebased_log_sum, functions.shifted_exp
    slope, log_ratio, entropic = logit_functions_of(value, False, capped, True)[1], log_ratio_of(wide), entropy_upstream != ""
    weights_of_row, loss_of_row, terms_of_row, target_gradient_of = row_formulas_of(value, smoothed, squared, weighted)
    combine, dy_widen, infinity = jit.device(monoid.combine), conversions_of(upstream or value)[0], wide(math.inf)
    upstream_widen = conversions_of(entropy_upstream or value)[0]

    @jit.device
    def state_at(statistics: Any, at: Any) -> Any:
        if argmax:
            best_class = int32(statistics[at + 3])
            return statistics[at], statistics[at + 1], best_class if best_class >= 0 else int32(NO_CLASS)
        return statistics[at], statistics[at + 1]

    def merge_statistics(
        statistics: Ptr[wide], target: Ptr[label], class_weight: Ptr[wide], row_weight: Ptr[wide], dy: Ptr[upstream or wide],
        dy_entropy: Ptr[entropy_upstream or wide], factors: Ptr[wide], losses: Ptr[wide], squares: Ptr[wide], hits: Ptr[wide], lse: Ptr[wide],
        predicted: Ptr[int64], entropies: Ptr[wide], row_terms: Ptr[wide],
        ranks: int64, first_row: int64, rows: int64, total_classes: int64, ignore: int64, smoothing: Scalar[wide], lse_square_scale: Scalar[wide],
        cap: Tuple[wide, 2], strides: Extents[7],
    ) -> None:  # fmt: skip
        index = int64(cuda.blockIdx.x) * MERGE_THREADS + cuda.threadIdx.x
        if index < rows:
            row, row_loss, square, hit, row_lse, predicted_class = first_row + index, wide(0), wide(0), wide(0), wide(0), int64(-1)
            row_entropy = wide(0)
            target_class = target_class_of(target, row * strides[0], ignore, total_classes)
            if target_class >= 0:
                state, target_logit = state_at(statistics, index * terms), statistics[index * terms + 2]
                for rank in range(1, ranks):
                    at = (rank * rows + index) * terms
                    state = combine(state, state_at(statistics, at))
                    target_logit += statistics[at + 2]
                greatest, total = state[0], state[1]
                log_total, smoothing_sum = wide(math.log(total)), wide(0)
                row_lse = greatest + log_total if greatest < infinity else greatest
                if smoothed:
                    for rank in range(ranks):
                        at = (rank * rows + index) * terms
                        weight_sum = statistics[at + terms - 1]
                        smoothing_sum += weight_sum * log_total - rebased_sum(statistics[at + terms - 2], weight_sum, statistics[at], greatest)
                if entropy:
                    log_sum = wide(0)
                    for rank in range(ranks):
                        at = (rank * rows + index) * terms
                        log_sum += rebased_log_sum(statistics[at + (4 if argmax else 3)], statistics[at + 1], statistics[at], greatest)
                    row_entropy = log_total - log_sum / total
                target_weight = class_weight[target_class] if weighted else wide(1)
                weights = weights_of_row(target_weight, factors, smoothing, total_classes, lse_square_scale, row_lse)
                row_factor = row_weight[row * strides[1]] if row_weighted else wide(1)
                row_loss = row_factor * loss_of_row(weights, greatest, log_total, target_logit, smoothing_sum, row_lse)
                if squared:
                    square = row_factor * lse_square_scale * row_lse * row_lse
                if argmax:
                    predicted_class = int64(state[2]) if state[2] < NO_CLASS else int64(0)  # all logits are −∞
                    hit = wide(int32(predicted_class == target_class))
                if gradient:
                    row_factor *= factors[GRADIENT]
                    entropy_factor = -factors[GRADIENT] * wide(upstream_widen(dy_entropy[row * strides[6]])) / total if entropic else wide(0)
                    entropy_term = entropy_factor * (row_entropy - log_total) if entropic else wide(0)
                    if upstream != "":
                        row_factor *= wide(dy_widen(dy[row * strides[2]]))
                    made, at = terms_of_row(weights, factors, greatest, total, row_factor, entropy_term, entropy_factor), index * ROW_TERMS
                    target_gradient = target_gradient_of(
                        weights, factors, target_weight, greatest, total, row_factor, target_logit, slope(target_logit, cap)
                    )
                    if entropic:
                        target_term = entropy_term + entropy_factor * log_ratio(target_logit, greatest)
                        target_gradient += shifted_exp(target_logit, greatest) * target_term * slope(target_logit, cap)
                    row_terms[at], row_terms[at + 1], row_terms[at + 2] = made[0], made[1], made[2]
                    row_terms[at + 3], row_terms[at + 4] = target_gradient, made[3]
            losses[row], lse[row * strides[3]] = row_loss, row_lse
            if squared:
                squares[row] = square
            if argmax:
                hits[row], predicted[row * strides[4]] = hit, predicted_class
            if entropy:
                entropies[row * strides[5]] = row_entropy

    return merge_statistics, lambda rows: (-(-rows // MERGE_THREADS), MERGE_THREADS, 0)


@jit.kernel
def row_gradients(
    *, value: str, label: str, vector: int, threads: int, smoothed: bool, scaled: bool, capped: bool, exact_tanh: bool, biased: bool, weighted: bool,
    entropic: bool,
) -> Any:  # fmt: skip
    """``x[r, j] = (softmax(z[r])ⱼ − 1[j = target[r]]) · factor`` in the place of the logits, by ``row_terms`` [rows, 5]; 0 in rows without a target.

    A block for each row. Bytes: rows · classes · value read and written.

    Constants and parameters as :mod:`.` lists them.
    """
    wide, element, narrow = accumulator_type(value), jit.SCALARS[value], conversions_of(value)[1]
    functions = RowFunctions(value, vector, 1, threads, smoothed, scaled, capped, exact_tanh, biased, weighted, False, entropic=entropic)
    gradient_of, load, store = functions.gradient_of, LOAD_STREAM[vector], STORE_STREAM[vector]

    def row_gradients(
        x: Ptr[value], target: Ptr[label], bias: Ptr[value], shard_weight: Ptr[wide], row_terms: Ptr[wide],
        first_row: int64, classes: int64, first_class: int64, total_classes: int64, row_stride: int64, target_stride: int64, ignore: int64,
        scale: Scalar[wide], cap: Tuple[wide, 2],
    ) -> None:  # fmt: skip
        values = cuda.local.array(vector, element)
        index = int64(cuda.blockIdx.x)
        target_class = target_class_of(target, (first_row + index) * target_stride, ignore, total_classes)
        base, at, shard_class, vector_end = index * row_stride, index * ROW_TERMS, target_class - first_class, classes // vector * vector
        terms, target_gradient = (wide(0), wide(0), wide(0), wide(0)), wide(0)
        if target_class >= 0:
            terms, target_gradient = (row_terms[at], row_terms[at + 1], row_terms[at + 2], row_terms[at + 4]), row_terms[at + 3]
        column = int64(cuda.threadIdx.x) * vector
        while column < vector_end:
            if target_class >= 0:
                load(x, base + column, values, 0)
            for k in range(vector):
                result = narrow(wide(0))
                if target_class >= 0:
                    result = gradient_of(values[k], column + k, bias, shard_weight, scale, cap, terms)
                values[k] = narrow(target_gradient) if column + k == shard_class else result
            store(x, base + column, values, 0)
            column += threads * vector
        tail = vector_end + cuda.threadIdx.x
        if tail < classes:
            result = narrow(wide(0))
            if target_class >= 0:
                result = gradient_of(x[base + tail], tail, bias, shard_weight, scale, cap, terms)
            x[base + tail] = narrow(target_gradient) if tail == shard_class else result

    return row_gradients, lambda rows: (rows, threads, 0)
