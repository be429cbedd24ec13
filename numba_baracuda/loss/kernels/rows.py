"""Cross entropy of rows of logits: the loss of each row, and the gradients of its logits in their place."""

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...algebra import Monoid
from ...core.dtypes import BY_NAME
from ...device.block import block_reduce
from ...device.build import opaque, opaque_pointer
from ...device.stage import await_copies, commit_copies, copy_async
from ...device.vector import LOAD, LOAD_SHARED, LOAD_STREAM, STORE_STREAM
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar, Tuple
from ..geometry import CLASS_WEIGHTS, CROSS_ENTROPY, GRADIENT, LSE_SQUARE
from .compact import target_class_of
from .logits import NO_CLASS, finite_base_of, log_ratio_of, logit_functions_of, shifted_exp_of, softmax_monoid_of, state_updates_of
from .prefetch import prefetch_of

_SUM = Monoid("sum", (0,), lambda a, b: a + b)


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

    Constants: ``exact_tanh``: tanh without an error of its own, for large caps; ``argmax``: whether ``predicted`` and ``hits`` are stored;
    ``entropy_upstream``: the element type of ``dy_entropy``, or "" where there is none.
    Parameters: ``x`` [rows, classes]: the products, then the gradients; ``first_row``: the input's row that row 0 of x belongs to; ``row_stride``:
    elements from one row of x to the next; ``strides``: elements from one row to the next of target, row_weight, dy, lse, predicted, entropies and
    dy_entropy. Others as :mod:`.` lists them.
    """
    wide, (widen, narrow), element = accumulator_type(value), conversions_of(value), jit.SCALARS[value]
    monoid, shifted_exp, finite_base = softmax_monoid_of(value, argmax), shifted_exp_of(wide), finite_base_of(value)
    log_ratio, entropic, upstream_widen = log_ratio_of(wide), entropy_upstream != "", conversions_of(entropy_upstream or value)[0]
    adjust, slope = logit_functions_of(value, scaled, capped, exact_tanh)
    infinity, size, vector_stride = wide(math.inf), steps * vector, threads * vector
    reduce_state, reduce_sum = block_reduce(monoid, (wide, wide, int32)[: monoid.width], threads), block_reduce(_SUM, wide, threads)
    load, load_last, load_shared, store = LOAD[vector], LOAD_STREAM[vector], LOAD_SHARED[vector], STORE_STREAM[vector]
    await_oldest, dy_widen = await_copies(copies_in_flight), conversions_of(upstream or value)[0]

    @jit.device
    def logit(x: Any, bias: Any, column: Any, scale: Any, cap: Any) -> Any:
        return adjust(widen(x) + widen(bias[column]) if biased else widen(x), scale, cap)

    @jit.device
    def weight_of(class_weight: Any, column: Any) -> Any:
        return class_weight[column] if weighted else wide(1)

    add_vector, add_vectors, add_logit = state_updates_of(value, vector, steps, vector_stride, logit, weight_of, weighted, smoothed, argmax, entropy)

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

    prefetch_vector, prefetch_vectors = prefetch_of(value, vector, vector_stride, 1), prefetch_of(value, vector, vector_stride, steps)

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
        state = -infinity, wide(0), int32(NO_CLASS), wide(0), wide(0), wide(0)
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
    def fold_rest(
        state: Any, x: Any, base: Any, next_base: Any, shared_end: Any, classes: Any, bias: Any, class_weight: Any, scale: Any, cap: Any,
    ) -> Any:  # fmt: skip
        """The state after the lane's share of the classes that are not in shared memory."""
        values = cuda.local.array(size, element)
        vector_end = classes // vector * vector
        column, vector_index = shared_end + int64(cuda.threadIdx.x) * vector, int32(copies_in_flight)
        while column < vector_end:
            valid = int32(0)
            for s in range(steps):
                inside = column + s * vector_stride < vector_end
                load(x, base + (column + s * vector_stride if inside else column), values, s * vector)
                valid = int32(valid + int32(inside))
            if gradient:
                prefetch_vectors(x, base, next_base, shared_end, vector_end, vector_index)
                vector_index = int32(vector_index + steps)
            state = add_vectors(state, values, column, valid, bias, class_weight, scale, cap)
            column = opaque(column + steps * vector_stride)
        tail = vector_end + cuda.threadIdx.x
        if tail < classes:
            state = add_logit(state, logit(x[base + tail], bias, tail, scale, cap), tail, class_weight)
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
    def reduce_block(state: Any) -> Any:
        """(maximum, sum, argmax) of the logits of all lanes."""
        if argmax:
            return reduce_state((state[0], state[1], state[2]))
        greatest, total = reduce_state((state[0], state[1]))
        return greatest, total, state[2]

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
            state = -infinity, wide(0), int32(NO_CLASS), wide(0), wide(0), wide(0)
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
                target_weight = weight_of(class_weight, target_class) * (wide(1) - smoothing if smoothed else wide(1))
                class_share = smoothing / wide(classes) if smoothed else wide(0)
                if weighted:
                    target_weight, class_share = target_weight * factors[CROSS_ENTROPY], class_share * factors[CROSS_ENTROPY]
                row_factor = row_weight[row * strides[1]] if row_weighted else wide(1)
                lse_term = lse_square_scale * factors[LSE_SQUARE] * row_lse if squared else wide(0)
                smoothing_sum = wide(0)
                if smoothed:
                    smoothing_sum = reduce_sum(state[4] * log_total - (state[3] + state[4] * finite_base(state[0] - finite_base(greatest))))
                row_entropy, target_logit = wide(0), wide(0)
                if entropy:
                    lane_base = finite_base(greatest)
                    log_sum = (state[5] + state[1] * log_ratio(state[0], lane_base)) * shifted_exp(state[0], lane_base)
                    row_entropy = log_total - reduce_sum(log_sum) / total
                if owns_target:
                    target_logit = logit(x[base + target_class], bias, target_class, scale, cap)
                    loss = target_weight * ((greatest - target_logit) + log_total)
                    if smoothed:
                        loss += class_share * smoothing_sum
                    if squared:
                        loss += lse_term * row_lse
                        squares[row] = row_factor * lse_square_scale * row_lse * row_lse
                    losses[row] = row_factor * loss
                    if argmax:
                        predicted_class = int64(best_class) if best_class < NO_CLASS else int64(0)  # all logits are −∞
                        hits[row], predicted[row * strides[4]] = wide(int32(predicted_class == target_class)), predicted_class
                    if entropy:
                        entropies[row * strides[5]] = row_entropy
                    lse[row * strides[3]] = row_lse
                if gradient:
                    row_factor *= factors[GRADIENT]
                    entropy_factor = -factors[GRADIENT] * wide(upstream_widen(dy_entropy[row * strides[6]])) / total if entropic else wide(0)
                    if upstream != "":
                        row_factor *= wide(dy_widen(dy[row * strides[2]]))
                    softmax_weight, per_exp = target_weight, row_factor / total
                    if smoothed:
                        softmax_weight += class_share * factors[CLASS_WEIGHTS]
                    if squared:
                        softmax_weight += wide(2) * lse_term
                    entropy_term = entropy_factor * (row_entropy - log_total) if entropic else wide(0)
                    row_terms = greatest, softmax_weight * per_exp + entropy_term, row_factor * class_share, entropy_factor
                    if owns_target:  # the difference of nearly equal numbers comes first
                        target_exp = shifted_exp(target_logit, greatest)
                        target_gradient = target_weight * (target_exp - total)
                        if smoothed:
                            target_gradient += class_share * (factors[CLASS_WEIGHTS] * target_exp - weight_of(class_weight, target_class) * total)
                        if squared:
                            target_gradient += wide(2) * lse_term * target_exp
                        target_gradient *= per_exp * slope(target_logit, cap)
                        if entropic:
                            target_term = entropy_term + entropy_factor * log_ratio(target_logit, greatest)
                            target_gradient += target_exp * target_term * slope(target_logit, cap)
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
