"""The levels of a block that scans columns: from what each folds to what comes before each."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32

from ...device.warp import scan_of
from ...runtime import jit
from .operator_functions import OperatorFunctions


class Levels:
    """``levels`` aggregates of each of a block's ``columns``, in shared memory; those of a level are ``pitch`` apart from those of the next.

    ``scan(shared_states, column, prefix)`` turns those of a column into the prefixes of its levels, from ``prefix`` on, and returns the fold of all.
    Each column has ``lanes`` adjacent threads of a block of ``threads``, which call it together: those of column c begin at thread c · lanes. Each
    takes some consecutive levels; shuffles scan what these fold to. Order: fixed by the constants.
    """

    def __init__(self, functions: OperatorFunctions, levels: int, columns: int, threads: int, pitch: int) -> None:
        self.lanes = lanes = max(1, min(32, threads // columns))
        states, get, put, levels_a_lane, even = functions.states, functions.get, functions.put, -(-levels // lanes), levels % lanes == 0
        combine, identity, of_lower, of_lane, lanes_scan = states.combine, states.identity, states.of_lower, states.of_lane, scan_of(states, lanes)

        @jit.device
        def scan(shared_states: Any, column: Any, prefix: Any) -> Any:
            lane = int32(cuda.threadIdx.x) & (lanes - 1)
            slot, aggregate = lane * levels_a_lane * pitch + column, identity()
            own_levels = levels - lane * levels_a_lane
            for d in range(levels_a_lane):
                if even or d < own_levels:
                    aggregate = combine(aggregate, get(shared_states, slot + d * pitch))
            total, state = aggregate, prefix
            if lanes > 1:  # a warp may have threads without a column if each column has only one
                inclusive = lanes_scan(aggregate)
                total, before = of_lane(inclusive, int32(cuda.laneid) | (lanes - 1)), of_lower(inclusive, int32(1))
                if lane > 0:
                    state = combine(prefix, before)
            for d in range(levels_a_lane):
                if even or d < own_levels:
                    aggregate = get(shared_states, slot + d * pitch)
                    put(shared_states, slot + d * pitch, state)
                    state = combine(state, aggregate)
            return total

        self.scan = scan


@functools.cache
def levels_of(functions: OperatorFunctions, levels: int, columns: int, threads: int, pitch: int) -> Levels:
    """The one :class:`Levels` for these."""
    return Levels(functions, levels, columns, threads, pitch)
