"""Reductions of several states over the lanes of a group at once: each step halves the states of a lane and doubles the lanes that they stand for."""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda.types import int32

from ..device.warp import States
from ..runtime import jit
from .batch import state_accessors


@functools.cache
def transposed_fold(states: States, lanes: int, height: int) -> Any:
    """``fold(array, lane)``: reduces each of the ``height`` states in ``array`` over a group of ``lanes`` lanes. Both numbers are powers of two.

    Afterwards the first max(1, height / lanes) states in a lane's array are the reduced states from index :func:`first_state_index` on. Cost: about
    ``height`` shuffles a scalar, where a butterfly for each state takes height · log₂ lanes. The order over lanes is that of
    :func:`~..device.warp.warp_reduce`. After the recursive halving of Rabenseifner, "Optimization of collective reduction operations" (2004).
    """
    return _levels(lanes, height, lambda level, states_left: _fold_level(states, level, states_left))


@functools.cache
def transposed_choice(lanes: int, height: int) -> Any:
    """``choose(array, lane)``: moves those of ``height`` numbers to the front whose indices :func:`transposed_fold` leaves to the lane."""
    return _levels(lanes, height, _choice_level)


@functools.cache
def first_state_index(lanes: int, height: int) -> Any:
    """``first_index(lane)``: the index of the first state that :func:`transposed_fold` leaves to a lane; lanes from ``height`` on repeat others."""
    levels = min(lanes, height).bit_length() - 1

    @jit.device
    def first_index(lane: Any) -> Any:
        index = int32(0)
        for level in range(levels):
            index += (lane >> level & 1) * (height >> (level + 1))
        return index

    return first_index


def _levels(lanes: int, height: int, level_of: Any) -> Any:
    """The steps of all levels, one after another; ``level_of(level, states_left)`` gives one."""
    steps = jit.device(lambda array, lane: None)
    for level in range(lanes.bit_length() - 1):
        steps = _then(steps, level_of(level, max(1, height >> level)))
    return steps


def _then(first: Any, second: Any) -> Any:
    @jit.device
    def run_both(array: Any, lane: Any) -> None:
        first(array, lane)
        second(array, lane)

    return run_both


def _fold_level(states: States, level: int, states_left: int) -> Any:
    combine, of_partner, width, step = states.combine, states.of_partner, len(states.kinds), 1 << level
    (get, put), half = state_accessors(width), states_left // 2

    @jit.device
    def halve(array: Any, lane: Any) -> None:
        upper = lane & step != 0
        for k in range(half):
            low, high = get(array, k * width, 1), get(array, (k + half) * width, 1)
            own = high if upper else low
            other = of_partner(low if upper else high, int32(step))
            put(array, k * width, 1, combine(other if upper else own, own if upper else other))

    @jit.device
    def fold(array: Any, lane: Any) -> None:
        upper, own = lane & step != 0, get(array, 0, 1)
        other = of_partner(own, int32(step))
        put(array, 0, 1, combine(other if upper else own, own if upper else other))

    return halve if half else fold


def _choice_level(level: int, states_left: int) -> Any:
    step, half = 1 << level, states_left // 2

    @jit.device
    def choose(array: Any, lane: Any) -> None:
        for k in range(half):
            if lane & step:
                array[k] = array[k + half]

    return choose
