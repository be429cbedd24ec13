"""What is made of two arrays before rows are folded in the order of their ids, or gathered at random."""

from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...algebra import monoid_of
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...device.vector import LOAD_ONCE, STORE
from ...kernels.elements import accumulator_type, conversions_of, quotient
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..tiling import THREADS, Tiling


@jit.kernel
def lift_pairs(*, monoid: str, value: str) -> Any:
    """``lifted[k] = lift(input[k], other[k])``, of the accumulator's type, for each element k of two contiguous arrays.

    A fold that reads rows at random then reads one array instead of two. Bytes: elements · (2 · value + accumulator).

    Parameters: ``input``, ``other`` [elements], which begin at a multiple of 16 bytes; ``lifted`` [elements]; ``elements``: their number.
    """
    element, vector, wide = jit.SCALARS[value], BY_NAME[value].vector, BY_NAME[value].accumulator
    state, store_vector = accumulator_type(value), BY_NAME[wide].vector
    load, store = LOAD_ONCE[vector], STORE[store_vector]
    lift, widen = jit.device(monoid_of(monoid).lift), conversions_of(value)[0]

    def lift_pairs(
        input: Ptr[value], other: Ptr[value], lifted: Ptr[wide],
        elements: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, element)
        others = cuda.local.array(vector, element)
        states = cuda.local.array(vector, state)
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * vector
        if first + vector <= elements:
            load(input, first, batch, 0)
            load(other, first, others, 0)
            for k in range(vector):
                states[k] = lift(widen(batch[k]), widen(others[k]), state(1))
            for k in range(0, vector, store_vector):
                store(lifted, first + k, states, k)
        else:
            for k in range(vector):
                if first + k < elements:
                    lifted[first + k] = lift(widen(input[first + k]), widen(other[first + k]), state(1))

    return lift_pairs, lambda elements: Tiling.of_ids(ceil_div(elements, vector)).launch


@jit.kernel
def pair_rows(*, value: str, unit: int) -> Any:
    """Every ``columns`` elements of ``g``, and as many of ``y`` behind them, so that who gathers both finds them together.

    Bytes: elements · 4 · value.

    Parameters: ``g``, ``y`` [segments, columns of a segment], which begin at a multiple of 16 bytes; ``output``: as many elements as both have;
    ``elements``: of ``g``; ``columns``: elements that stay together, a row or an equal part of one. ``unit`` is ``columns`` where 16 bytes are a
    multiple of so many, else 0.
    """
    element, vector = jit.SCALARS[value], BY_NAME[value].vector
    load, store, taken, both = LOAD_ONCE[vector], STORE[vector], vector if unit else 1, 2 * vector

    def pair_rows(
        g: Ptr[value], y: Ptr[value], output: Ptr[value],
        elements: int64, columns: int64,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(vector, element)
        others = cuda.local.array(vector, element)
        pairs = cuda.local.array(both, element)
        first = (int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x) * taken
        if unit > 0 and first + taken <= elements:
            load(g, first, batch, 0)
            load(y, first, others, 0)
            for k in range(taken):
                at = k + k // max(unit, 1) * unit
                pairs[at], pairs[at + unit] = batch[k], others[k]
            store(output, 2 * first, pairs, 0)
            store(output, 2 * first + taken, pairs, taken)
        else:
            for k in range(taken):
                if first + k < elements:
                    at = first + k + quotient(first + k, columns) * columns
                    output[at], output[at + columns] = g[first + k], y[first + k]

    return pair_rows, lambda elements: Tiling.of_ids(ceil_div(elements, taken)).launch
