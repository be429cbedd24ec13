"""Cross entropy of rows of logits: the loss of each row, and the gradients of its logits in their place."""

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...core.dtypes import BY_NAME
from ...device.build import opaque, opaque_pointer
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD_SHARED, LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar, Tuple
from ..geometry import GRADIENT
from .compact import target_class_of
from .logits import NO_CLASS, log_ratio_of
from .prefetch import prefetch_of
from .row_functions import RowFunctions, row_formulas_of


@jit.kernel
def cross_entropy_rows(
    *, value: str, label: str, upstream: str, entropy_upstream: str, vector: int, steps: int, copies_in_flight: int, threads: int,
    shared_classes: int, gradient: bool, smoothed: bool, squared: bool, scaled: bool, capped: bool, exact_tanh: bool, biased: bool, weighted: bool,
    row_weighted: bool, argmax: bool, entropy: bool,
) -> Any:  # fmt: skip
    """``losses[r] = lse(z[r]) − z[r, target[r]]`` and, with ``gradient``, ``x[r, j] = (softmax(z[r])ⱼ − 1[j = target[r]]) · factor``.

    Persistent blocks of ``threads`` threads take rows in a grid-stride loop. Each copies the first ``shared_classes`` classes of a row to shared
    memory, asynchronously, and folds a vector ``copies_in_flight`` vectors of a lane after it has issued its copy. The gradients of these classes are
    computed from shared memory; as soon as a lane has stored those of a vector, it copies the vector of the next row to the same address. Only one
    lane uses an address, so no barrier is needed. The other classes are loaded to registers, ``steps`` vectors in flight for each lane, and once more
    for their gradients, while L2 has them. The lane that has the target's vector computes the gradient of the target in the accumulator's type.
    A row without a gradient is not read; its loss and gradients are 0.

    Bytes: rows · classes · value read once, twice beyond ``shared_classes``, and written once.

    With ``entropy``, also ``entropies[r] = −Σⱼ pⱼ log pⱼ`` for p = softmax(z[r]), the entropy of a class of probability 0 being 0; its gradient, −pⱼ
    (log pⱼ + entropies[r]), is added times ``dy_entropy[r]``.

    Constants and parameters as :mod:`.` lists them, and: ``copies_in_flight``, ``shared_classes``.
    """
    wide, (_, narrow), element = accumulator_type(value), conversions_of(value), jit.SCALARS[value]
    log_ratio, entropic, upstream_widen = log_ratio_of(wide), entropy_upstream != "", conversions_of(entropy_upstream or value)[0]
    functions = RowFunctions(
        value, vector, steps, threads, smoothed, scaled, capped, exact_tanh, biased, weighted, argmax, gradient, copies_in_flight, entropy, entropic,
    )  # fmt: skip
    weights_of_row, loss_of_row, terms_of_row, target_gradient_of = row_formulas_of(value, smoothed, squared, weighted)
    logit, weight_of, slope, no_logits, add_vector, fold_rest = (
        functions.logit, functions.weight_of, functions.slope, functions.no_logits, functions.add_vector, functions.fold_rest,
    )  # fmt: skip
    gradient_of, reduce_block, reduce_sum, rebased_sum, shifted_exp, rebased_log_sum = (
        functions.gradient_of, functions.reduce_block, functions.reduce_sum, functions.rebased_sum, functions.shifted_exp, functions.rebased_log_sum,
    )  # fmt: skip
    infinity, size, vector_stride = wide(math.inf), steps * vector, threads * vector
    load_last, load_shared, store = LOAD_STREAM[vector], LOAD_SHARED[vector], STORE_STREAM[vector]
    await_oldest, dy_widen = await_copies(copies_in_flight), conversions_of(upstream or value)[0]
    prefetch_vector = prefetch_of(value, vector, vector_stride, 1)

    @jit.device
    def store_gradient(
        x: Any, base: Any, row_terms: Any, column: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, tile: Any, values: Any
    ) -> None:
        """Stores the gradients of one vector of the previous row, whose logits are in shared memory."""
        load_shared(tile, column, values, 0)
        for k in range(vector):
            values[k] = gradient_of(values[k], column + k, bias, class_weight, scale, cap, row_terms)
        store(x, base + column, values, 0)

    @jit.device
    def fold_arrived(state: Any, folded_column: Any, bias: Any, class_weight: Any, scale: Any, cap: Any, tile: Any, values: Any) -> Any:
        """Commits the copies issued so far, waits for those of ``folded_column``, and returns the state after this vector."""
        commit_copies()
        await_oldest()
        load_shared(tile, folded_column, values, 0)
        return add_vector(state, values, folded_column, int32(1), bias, class_weight, scale, cap)

    @jit.device
    def pipeline_rows(
        x: Any, has_previous: Any, previous_base: Any, row_terms: Any, has_next: Any, base: Any, next_base: Any, shared_end: Any, vector_end: Any,
        bias: Any, class_weight: Any, scale: Any, cap: Any, tile: Any,
    ) -> Any:  # fmt: skip
        """Stores the gradients of the previous row's shared classes while it copies those of the next row and folds them to the state returned."""
        values = cuda.local.array(vector, element)
        state = no_logits()
        column, folded_column, vector_index = int32(cuda.threadIdx.x * vector), int32(cuda.threadIdx.x * vector), int32(0)
        if not has_next:
            while has_previous and column < shared_end:
                store_gradient(x, previous_base, row_terms, column, bias, class_weight, scale, cap, tile, values)
                column = int32(opaque(column + vector_stride))
            return state
        while vector_index < copies_in_flight:  # no copy has arrived yet
            if column < shared_end:
                if has_previous:
                    store_gradient(x, previous_base, row_terms, column, bias, class_weight, scale, cap, tile, values)
                copy_async(x, base + column, tile, column)
            commit_copies()
            column, vector_index = int32(opaque(column + vector_stride)), int32(vector_index + 1)
        while column < shared_end:
            if has_previous:
                store_gradient(x, previous_base, row_terms, column, bias, class_weight, scale, cap, tile, values)
            copy_async(x, base + column, tile, column)
            state = fold_arrived(state, folded_column, bias, class_weight, scale, cap, tile, values)
            column, folded_column = int32(opaque(column + vector_stride)), int32(folded_column + vector_stride)
        vector_index = int32(0)
        while folded_column < shared_end:  # all copies are issued
            prefetch_vector(x, base, next_base, shared_end, vector_end, vector_index)
            state = fold_arrived(state, folded_column, bias, class_weight, scale, cap, tile, values)
            folded_column, vector_index = int32(opaque(folded_column + vector_stride)), int32(vector_index + 1)
        return state

    @jit.device
    def store_rest(x: Any, base: Any, row_terms: Any, shared_end: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any) -> None:
        """Stores the gradients of the lane's share of these classes, the last first, as L2 keeps what was read last."""
        values = cuda.local.array(size, element)
        vector_end = classes // vector * vector
        tail = vector_end + cuda.threadIdx.x
        if tail < classes:
            x[base + tail] = gradient_of(x[base + tail], tail, bias, class_weight, scale, cap, row_terms)
        begin = shared_end + int64(cuda.threadIdx.x) * vector
        batches = (max(vector_end - begin, int64(0)) + steps * vector_stride - 1) // (steps * vector_stride)
        while batches > 0:
            batches -= 1
            column = begin + batches * (steps * vector_stride)
            for s in range(steps):
                load_last(x, base + (column + s * vector_stride if column + s * vector_stride < vector_end else begin), values, s * vector)
            for s in range(steps):
                if column + s * vector_stride < vector_end:
                    for k in range(vector):
                        at, class_index = s * vector + k, column + s * vector_stride + k
                        values[at] = gradient_of(values[at], class_index, bias, class_weight, scale, cap, row_terms)
                    store(x, base + column + s * vector_stride, values, s * vector)

    @jit.device
    def clear_row(x: Any, base: Any, classes: Any) -> None:
        zeros = cuda.local.array(vector, element)
        for k in range(vector):
            zeros[k] = narrow(wide(0))
        vector_end = classes // vector * vector
        column = int64(cuda.threadIdx.x) * vector
        while column < vector_end:
            store(x, base + column, zeros, 0)
            column += vector_stride
        if vector_end + cuda.threadIdx.x < classes:
            x[base + vector_end + cuda.threadIdx.x] = zeros[0]

    def cross_entropy_rows(
        x: Ptr[value], target: Ptr[label], bias: Ptr[value], class_weight: Ptr[wide], row_weight: Ptr[wide],
        dy: Ptr[upstream or wide], dy_entropy: Ptr[entropy_upstream or wide], factors: Ptr[wide], losses: Ptr[wide],
        squares: Ptr[wide], hits: Ptr[wide], lse: Ptr[wide], predicted: Ptr[int64], entropies: Ptr[wide],
        first_row: int64, rows: int64, classes: int64, row_stride: int64, ignore: int64, smoothing: Scalar[wide],
        lse_square_scale: Scalar[wide], scale: Scalar[wide], cap: Tuple[wide, 2],
        strides: Extents[7],
    ) -> None:  # fmt: skip
        tile = opaque_pointer(cuda.shared.array(0, element, 16))
        lane, grid_stride, vector_end = int32(cuda.threadIdx.x), int64(cuda.gridDim.x), classes // vector * vector
        shared_end = int32(min(vector_end, int64(shared_classes)))
        previous_class, previous_base, owns_target, target_gradient, row_terms = (
            int64(-1), int64(0), False, wide(0), (wide(0), wide(0), wide(0), wide(0)),
        )  # fmt: skip
        index = int64(cuda.blockIdx.x)
        while index < (rows + grid_stride if gradient else rows):
            row, base = first_row + index, index * row_stride
            target_class = target_class_of(target, row * strides[0], ignore, classes) if index < rows else int64(-1)
            state = no_logits()
            next_base = base + grid_stride * row_stride if index + grid_stride < rows else int64(-1)
            if gradient:
                if previous_class >= 0:
                    store_rest(x, previous_base, row_terms, shared_end, classes, bias, class_weight, scale, cap)
                state = pipeline_rows(
                    x, previous_class >= 0, previous_base, row_terms, target_class >= 0, base, next_base, shared_end, vector_end, bias,
                    class_weight, scale, cap, tile,
                )  # fmt: skip
                if previous_class >= 0 and owns_target:
                    x[previous_base + previous_class] = narrow(target_gradient)
            if target_class >= 0:
                state = fold_rest(state, x, base, next_base, shared_end, classes, bias, class_weight, scale, cap)
                greatest, total, best_class = reduce_block(state)
                owner = target_class // vector % threads if target_class < vector_end else target_class - vector_end
                owns_target, log_total = lane == owner, wide(0)
                if smoothed or squared or entropy or owns_target:
                    log_total = wide(math.log(total))
                row_lse = greatest + log_total if greatest < infinity else greatest
                target_weight = weight_of(class_weight, target_class)
                weights = weights_of_row(target_weight, factors, smoothing, classes, lse_square_scale, row_lse)
                row_factor = row_weight[row * strides[1]] if row_weighted else wide(1)
                smoothing_sum = wide(0)
                if smoothed:
                    smoothing_sum = reduce_sum(state[4] * log_total - rebased_sum(state[3], state[4], state[0], greatest))
                row_entropy, target_logit = wide(0), wide(0)
                if entropy:
                    row_entropy = log_total - reduce_sum(rebased_log_sum(state[5], state[1], state[0], greatest)) / total
                if owns_target:
                    target_logit = logit(x[base + target_class], bias, target_class, scale, cap)
                    if squared:
                        squares[row] = row_factor * lse_square_scale * row_lse * row_lse
                    losses[row] = row_factor * loss_of_row(weights, greatest, log_total, target_logit, smoothing_sum, row_lse)
                    if argmax:
                        predicted_class = int64(best_class) if best_class < NO_CLASS else int64(0)  # all logits are −∞
                        hits[row], predicted[row * strides[4]] = wide(int32(predicted_class == target_class)), predicted_class
                    if entropy:
                        entropies[row * strides[5]] = row_entropy
                    lse[row * strides[3]] = row_lse
                if gradient:
                    row_factor *= factors[GRADIENT]
                    entropy_factor = -factors[GRADIENT] * wide(upstream_widen(dy_entropy[row * strides[6]])) / total if entropic else wide(0)
                    entropy_term = entropy_factor * (row_entropy - log_total) if entropic else wide(0)
                    if upstream != "":
                        row_factor *= wide(dy_widen(dy[row * strides[2]]))
                    row_terms = terms_of_row(weights, factors, greatest, total, row_factor, entropy_term, entropy_factor)
                    if owns_target:
                        target_gradient = target_gradient_of(
                            weights, factors, target_weight, greatest, total, row_factor, target_logit, slope(target_logit, cap)
                        )
                        if entropic:
                            target_term = entropy_term + entropy_factor * log_ratio(target_logit, greatest)
                            target_gradient += shifted_exp(target_logit, greatest) * target_term * slope(target_logit, cap)
            elif index < rows:
                if gradient:
                    clear_row(x, base, classes)
                if lane == 0:
                    losses[row] = wide(0)
                    if squared:
                        squares[row] = wide(0)
                    if argmax:
                        hits[row], predicted[row * strides[4]] = wide(0), int64(-1)
                    if entropy:
                        entropies[row * strides[5]] = wide(0)
                    lse[row * strides[3]] = wide(0)
            previous_class, previous_base = target_class, base
            index += grid_stride

    return cross_entropy_rows, lambda rows: (rows, threads, shared_classes * BY_NAME[value].itemsize)
