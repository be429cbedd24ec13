"""Collectives of a warp, for any monoid: reduction, scan and segmented scan by shuffles.

Each function here is a factory, called where kernels are defined, never inside one. It gives a device function, always inlined; equal arguments give
the same function. ``monoid`` is a :class:`~numba_baracuda.algebra.Monoid`; ``kind`` is the numba type of its state (``types.float32``, or a short
name as ``"f32"``), a tuple of 2 to 4 such types if its state has as many scalars. A state is a scalar or a tuple, given and returned; what is given
is cast to ``kind`` first.

All lanes of a warp call a collective together. Lanes that the block's size leaves out of its last warp count as ended. The order of the operands is
the order of the lanes, so ``combine`` need not commute, and it is the same in every run. NaN goes the way of the monoid.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda import types
from numba.cuda.types import int32

from ..algebra import Monoid
from ..core.errors import InvalidProblem
from ..runtime import jit

KINDS = ("i32", "i64", "u32", "u64", "f32", "f64")
_BY_NAME = {name: jit.SCALARS[short] for short in KINDS for name in (short, str(jit.SCALARS[short]))}
_CARRIERS = {types.uint32: types.int32, types.uint64: types.int64}  #: shuffles take no unsigned integers


def kinds_of(where: str, monoid: Any, kind: Any) -> tuple[Any, ...]:
    """The numba types of a monoid's state, or :class:`InvalidProblem`."""
    if not isinstance(monoid, Monoid):
        raise InvalidProblem(f"{where}: monoid is {monoid!r}, wants a numba_baracuda.algebra.Monoid")
    given = kind if isinstance(kind, tuple) else (kind,)
    for each in given:
        if str(each) not in _BY_NAME:
            raise InvalidProblem(f"{where}: kind is {each}, wants one of {', '.join(KINDS)} or their numba types; widen smaller ones to these")
    if not isinstance(monoid.identity, tuple) or not 1 <= monoid.width <= 4:
        raise InvalidProblem(f"{where}: the identity of monoid {monoid.name} is {monoid.identity!r}, wants a tuple of 1 to 4 numbers")
    if len(given) != monoid.width:
        wants = "one type" if monoid.width == 1 else f"a tuple of {monoid.width}"
        raise InvalidProblem(f"{where}: kind is {_listed(given)}, wants {wants} for monoid {monoid.name}")
    found = tuple(_BY_NAME[str(each)] for each in given)
    for each, number in zip(found, monoid.identity, strict=True):
        if isinstance(each, types.Integer) and not (number == number and each.minval <= number <= each.maxval and number == int(number)):
            raise InvalidProblem(f"{where}: the identity of monoid {monoid.name} holds {number}, wants a value of {each}")
    return found


def _listed(given: tuple[Any, ...]) -> str:
    return str(given[0]) if len(given) == 1 else f"({', '.join(map(str, given))})"


def lanes_of(where: str, lanes: Any) -> int:
    """The size of a group of lanes, or :class:`InvalidProblem`."""
    if lanes not in (1, 2, 4, 8, 16, 32):
        raise InvalidProblem(f"{where}: lanes is {lanes!r}, wants a power of two from 1 to 32")
    return int(lanes)


def each_scalar(functions: tuple[Any, ...]) -> Any:
    """``f(state, operand)`` that applies one device function to each scalar of a state."""
    if len(functions) == 1:
        return functions[0]
    if len(functions) == 2:
        first, second = functions
        return jit.device(lambda state, operand: (first(state[0], operand), second(state[1], operand)))
    if len(functions) == 3:
        first, second, third = functions
        return jit.device(lambda state, operand: (first(state[0], operand), second(state[1], operand), third(state[2], operand)))
    first, second, third, fourth = functions
    return jit.device(
        lambda state, operand: (first(state[0], operand), second(state[1], operand), third(state[2], operand), fourth(state[3], operand))
    )


def _caster(kind: Any) -> Any:
    return jit.device(lambda value, _operand: kind(value))


def _shuffle(instruction: Any, kind: Any) -> Any:
    """A shuffle of one scalar among all lanes of the warp."""
    carrier = _CARRIERS.get(kind, kind)
    return jit.device(lambda value, operand: kind(instruction(-1, carrier(value), operand)))


class States:
    """Device functions on states of one monoid and kind."""

    def __init__(self, monoid: Monoid, kinds: tuple[Any, ...]) -> None:
        self.kinds = kinds
        convert = each_scalar(tuple(map(_caster, kinds)))
        whole = [isinstance(kind, types.Integer) for kind in kinds]
        numbers = tuple(int(number) if exact else float(number) for exact, number in zip(whole, monoid.identity, strict=True))
        blank = numbers if len(kinds) > 1 else numbers[0]
        join = jit.device(monoid.combine)

        def shuffled(instruction: Any) -> Any:
            return each_scalar(tuple(_shuffle(instruction, kind) for kind in kinds))

        self.cast = jit.device(lambda state: convert(state, 0))
        self.identity = jit.device(lambda: convert(blank, 0))
        #: in the state's own types again, as numba widens integers
        self.combine = jit.device(lambda left, right: convert(join(left, right), 0))
        #: the state of another lane: by its id, by bits that differ, so many lanes below, so many above (the lane's own where there is none)
        self.of_lane, self.of_partner = shuffled(cuda.shfl_sync), shuffled(cuda.shfl_xor_sync)
        self.of_lower, self.of_upper = shuffled(cuda.shfl_up_sync), shuffled(cuda.shfl_down_sync)


@functools.cache
def states_of(monoid: Monoid, kinds: tuple[Any, ...]) -> States:
    """The one :class:`States` for these, so that collectives share its functions."""
    return States(monoid, kinds)


@functools.cache
def fold_of(states: States, lanes: int) -> Any:
    """``fold(state)``: a butterfly over every aligned group of ``lanes`` lanes, the lower half of each pair on the left."""
    combine, of_partner, steps = states.combine, states.of_partner, lanes.bit_length() - 1

    @jit.device
    def fold(state: Any) -> Any:
        lane = int32(cuda.laneid)
        for k in range(steps):
            step = int32(1 << k)
            other = of_partner(state, step)
            left = other if lane & step else state
            right = state if lane & step else other
            state = combine(left, right)
        return state

    return fold


@functools.cache
def scan_of(states: States, lanes: int) -> Any:
    """``scan(state)``: inclusive prefixes in every aligned group of ``lanes`` lanes."""
    segmented_scan, low_bits = segmented_scan_of(states, lanes), lanes - 1
    return jit.device(lambda state: segmented_scan(state, int32(cuda.laneid & low_bits)))


@functools.cache
def segmented_scan_of(states: States, lanes: int) -> Any:
    """``scan(state, below)``: inclusive prefixes in segments of adjacent lanes; the segment of a lane begins ``below`` lanes below it."""
    combine, of_lower, steps = states.combine, states.of_lower, lanes.bit_length() - 1

    @jit.device
    def scan(state: Any, below: Any) -> Any:
        for k in range(steps):
            step = int32(1 << k)
            before = of_lower(state, step)
            if below >= step:
                state = combine(before, state)
        return state

    return scan


def warp_reduce(monoid: Monoid, kind: Any, lanes: int = 32) -> Any:
    """``f(state)`` = state₀ ⊕ state₁ ⊕ … over an aligned group of ``lanes`` lanes (a power of two), the same in every lane of the group.

    Scope: the group; lanes k·lanes … k·lanes + lanes − 1. All lanes of the warp call it, in a block whose size is a multiple of ``lanes``.
    Cost: log₂ lanes shuffles a scalar (twice that for 64 bits) and as many combinations; no memory, no barrier.
    Order: a balanced tree over the lanes, left operand from the lower lanes (the butterfly of recursive doubling). NaN: the monoid's.
    Raises :class:`InvalidProblem` for a monoid, kind or ``lanes`` that is none.
    """
    states = states_of(monoid, kinds_of("warp_reduce", monoid, kind))
    return _warp_reduce(states, lanes_of("warp_reduce", lanes))


@functools.cache
def _warp_reduce(states: States, lanes: int) -> Any:
    cast, fold = states.cast, fold_of(states, lanes)
    return jit.device(lambda state: fold(cast(state)))


def warp_scan(monoid: Monoid, kind: Any, lanes: int = 32, exclusive: bool = False) -> Any:
    """``f(state)`` = state₀ ⊕ … ⊕ stateₖ in lane k of an aligned group of ``lanes`` lanes; ``exclusive`` leaves stateₖ out: lane 0 has the identity.

    Scope: the group. All lanes of the warp call it, in a block of any size.
    Cost: log₂ lanes shuffles a scalar, one more if exclusive (twice that for 64 bits), and log₂ lanes combinations; no memory, no barrier.
    Order: step k joins the prefix that ends 2ᵏ lanes below, on the left, to the lane's own. NaN: the monoid's.
    After Hillis and Steele, "Data parallel algorithms" (1986). Raises :class:`InvalidProblem` for a monoid, kind or ``lanes`` that is none.
    """
    states = states_of(monoid, kinds_of("warp_scan", monoid, kind))
    return _warp_scan(states, lanes_of("warp_scan", lanes), bool(exclusive))


@functools.cache
def _warp_scan(states: States, lanes: int, exclusive: bool) -> Any:
    cast, identity, of_lower, scan, low_bits = states.cast, states.identity, states.of_lower, scan_of(states, lanes), lanes - 1

    @jit.device
    def warp_scan(state: Any) -> Any:
        prefix = scan(cast(state))
        if exclusive:
            before = of_lower(prefix, int32(1))
            prefix = before if cuda.laneid & low_bits else identity()
        return prefix

    return warp_scan


def segmented_warp_scan(monoid: Monoid, kind: Any) -> Any:
    """``f(state, head)`` = state_h ⊕ … ⊕ stateₖ in lane k, where h is the last lane up to k whose ``head`` is true; lane 0 is a head by itself.

    Scope: the warp; all its lanes call it, in a block of any size. A segment's total is in its last lane: the lane before the next head, or the last
    lane of the warp. Lane k is that lane if ``k == 31 or head of lane k + 1``, which one ``shfl_down_sync(-1, int32(head), 1)`` tells.
    Cost: one ballot, 5 shuffles a scalar (10 for 64 bits) and 5 combinations; no memory, no barrier.
    Order: as :func:`warp_scan`, within the segment. NaN: the monoid's, and it stays in its segment.
    After Blelloch, "Prefix sums and their applications" (1990), and Sengupta et al., "Scan primitives for GPU computing" (2007).
    Raises :class:`InvalidProblem` for a monoid or kind that is none.
    """
    return _segmented_warp_scan(states_of(monoid, kinds_of("segmented_warp_scan", monoid, kind)))


@functools.cache
def _segmented_warp_scan(states: States) -> Any:
    cast, combine, of_lower = states.cast, states.combine, states.of_lower

    @jit.device
    def segmented_warp_scan(state: Any, head: Any) -> Any:
        prefix = cast(state)
        lane = int32(cuda.laneid)
        heads = int32(cuda.ballot_sync(-1, head)) | 1
        # the bits up to this lane: of 2 << 31 nothing is left, and minus 1 gives all
        first = 31 - cuda.clz(int32(heads & (int32(2 << lane) - 1)))
        for k in range(5):
            step = int32(1 << k)
            before = of_lower(prefix, step)
            if lane - step >= first:
                prefix = combine(before, prefix)
        return prefix

    return segmented_warp_scan
