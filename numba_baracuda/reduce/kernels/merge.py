"""The merge of states that several ranks have of the same rows."""

import math
from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...kernels.batch import state_accessors, state_functions, state_kind, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of, strided_offset_of
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .results import result_stores


@jit.kernel
def merge_states(*, monoid: str, value: str, result: str, based: bool, counted: bool, kept: int) -> Any:
    """``y[r] = finish(states[0, r] ⊕ … ⊕ states[ranks − 1, r])``, in the order of ranks; a thread for each row. Bytes: the states are read.

    Constants and parameters as :mod:`.` lists them, and: ``based``: the second scalar of a state is less an origin, which lies behind the states of
    its rank; it is made one less the origin of ``base_rank``. ``counted``: ranks without elements of a row are left out, by ``counts`` [ranks,
    ``count_stride``], one for each ``columns`` rows, and a row that no rank has elements of gets ``empty``; else each row has ``count`` elements.
    ``states`` [ranks, ``rank_stride``]: of each row one state, then one origin; ``ranks``: how many; ``correction``: what the count that ``finish``
    gets is less.
    """
    kind, typed, functions = jit.SCALARS[state_kind(monoid, value)], typed_monoid(monoid, value), state_functions(monoid, value)
    width, results = typed.width, typed.results
    identity, combine, (get, _), row_offset = functions.identity, functions.combine, state_accessors(width), strided_offset_of(kept)
    (store_result, _), infinity, (_, narrow) = result_stores(monoid, value, result), math.inf, conversions_of(result)

    @jit.device
    def origin_at(states: Any, at: Any) -> Any:
        origin = states[at]
        return origin if abs(origin) < kind(infinity) else kind(0)

    @jit.device
    def moved(state: Any, shift: Any) -> Any:
        if width == 2:
            return state[0], state[1] + shift
        return state[0], state[1] + shift, state[2]

    def merge_states(
        states: Ptr[state_kind(monoid, value)], counts: Ptr[int64], y: Ptr[result],
        rows: int64, columns: int64, ranks: int64, rank_stride: int64, count_stride: int64, base_rank: int64, count: int64,
        correction: Scalar[state_kind(monoid, value)], empty: Scalar[accumulator_type(result)],
        kept_shape: Extents[kept], y_kept_strides: Extents[kept],
    ) -> None:  # fmt: skip
        row = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if row < rows:
            merged, total = identity(), int64(0)
            for rank in range(ranks):
                present = int64(1)
                if counted:
                    present = counts[rank * count_stride + row // columns]
                if present > 0:
                    state = get(states, rank * rank_stride + row * width, 1)
                    if based:
                        shift = origin_at(states, rank * rank_stride + rows * width + row)
                        shift -= origin_at(states, base_rank * rank_stride + rows * width + row)
                        state = moved(state, shift)
                    merged = combine(merged, state)
                    total += present
            at = row_offset(row, kept_shape, y_kept_strides)
            if counted and total == 0:
                for w in range(results):
                    y[at * results + w] = narrow(empty)
            else:
                store_result(y, at, merged, kind(kind(total if counted else count) - correction))

    return merge_states, lambda rows: (-(-rows // THREADS), THREADS, 0)
