"""A scan operator as device functions for given element types."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from numba import cuda
from numba.cuda.types import float32, int32

from ...device.block import reach_of
from ...device.warp import States, states_of
from ...kernels.elements import accumulator_type, conversions_of, of_type
from ...runtime import jit
from ..operators import operator_of

#: elements from which on the sum of several together costs less than one by one; timed in float32 alone
MIN_TOGETHER = 4
#: the same of those that use all inputs; counted in instructions, not timed
MIN_INPUTS_TOGETHER = 8


class OperatorFunctions:
    """Types, states and functions of a scan operator, from elements of type ``value`` to results of type ``result``.

    ``position`` is the type that positions have in a state. ``emit(before, after, p, r, position)`` and ``initial_state(initial, position)`` are
    those of the operator. ``transform_into(transformed, at, a, b, c, neighbour)`` writes an element's p, q and r to item ``at`` of three arrays, and
    ``lift(transformed, at, position)`` returns its state. ``get`` and ``put`` read and write a state in a tuple of four arrays, as
    :func:`~...device.block.reach_of` says.
    """

    def __init__(self, operator: str, value: str, result: str, exclusive: bool, position: str) -> None:
        scan_operator, position_type = operator_of(operator, exclusive), jit.SCALARS[position]
        wide = jit.SCALARS[scan_operator.monoid.kind] if scan_operator.monoid.kind else accumulator_type(result)
        self.operator, self.exclusive, self.wide, self._value = scan_operator, exclusive, wide, value
        self.element: Any = jit.SCALARS["u8" if value == "bool" else value]
        self.result: Any = jit.SCALARS[result]
        self.widen, self.narrow = _widening(value, wide), conversions_of(result)[1]
        kinds = tuple(position_type if letter == "p" else wide for letter in scan_operator.kinds)
        self.width = len(kinds)
        identity = tuple(map(jit.number, kinds, scan_operator.monoid.identity))
        self.states: States = states_of(replace(scan_operator.monoid, identity=identity, combine=of_type(scan_operator.monoid.combine, wide)), kinds)
        extreme = scan_operator.extreme
        #: states of the winners' numbers alone, of an operator that scatters
        self.extremes: States = (
            states_of(replace(extreme, identity=identity[:1], combine=of_type(extreme.combine, wide)), (wide,)) if extreme else self.states
        )
        #: types of the four arrays that hold states, the last type repeated
        self.kinds = (*kinds, *[kinds[-1]] * 3)[:4]
        lift, emit, initial_state, transform = (
            jit.device(of_type(each, wide)) for each in (scan_operator.lift, scan_operator.emit, scan_operator.initial_state, scan_operator.transform)
        )
        cast, distinct = self.states.cast, scan_operator.distinct

        @jit.device
        def transform_into(transformed: Any, at: Any, a: Any, b: Any, c: Any, neighbour: Any) -> None:
            p, q, r = transform(a, b, c, neighbour, wide(1))
            transformed[0][at] = p
            if distinct > 1:
                transformed[1][at] = q
            if distinct > 2:
                transformed[2][at] = r

        self.transform_into = transform_into
        self.lift = jit.device(
            lambda transformed, at, position: cast(
                lift(transformed[0][at], transformed[1][at] if distinct > 1 else transformed[0][at], position_type(position), wide(1))
            )
        )
        self.initial_state = jit.device(lambda initial, position: cast(initial_state(wide(initial), position_type(position), wide(1))))
        self.emit = jit.device(lambda before, after, p, r, position: emit(before, after, p, r, position_type(position), wide(1)))
        self.get, self.put = reach_of(self.width)
        together = scan_operator.together, scan_operator.inputs_together
        self._together, self._inputs_together = (each and wide == float32 and of_type(each, wide) for each in together)
        if scan_operator.of_next and self.element == wide:  # the compiler would spill
            self._inputs_together = None

    def together_of(self, count: int, wanted: bool, inputs: bool = False) -> tuple[bool, tuple[Any, Any, Any]]:
        """(whether they are wanted and of use, (fold, fits, scan)) of ``count`` elements together, of all ``inputs`` or of p."""
        together, least = (self._inputs_together, MIN_INPUTS_TOGETHER) if inputs else (self._together, MIN_TOGETHER)
        if not wanted or not together or count < least:
            return False, (None, None, None)
        return True, together(count)

    def remaking(self) -> tuple[Any, Any]:
        """``begin(initial)``: the state before what is ``remade``; ``remake(state, x)``: (the state with element x more, the third input there)."""
        if not self.operator.remade:
            return None, None
        made, element = functions_of(self.operator.remade, self._value, self._value, self.exclusive, "i32"), self.element
        combine, lift, emit, narrow, wide, initial_state = made.states.combine, made.lift, made.emit, made.narrow, made.wide, made.initial_state

        @jit.device
        def remake(state: Any, x: Any) -> Any:
            number = cuda.local.array(1, wide)
            number[0] = x
            after = combine(state, lift((number, number, number), 0, int32(0)))
            return after, element(narrow(emit(state, after, number[0], number[0], int32(0))))

        return jit.device(lambda initial: initial_state(initial, int32(0))), remake

    def winner_index_of(self, reverse: bool, index: Any) -> Any:
        """``f(before, after, extent)``: the winner's position in memory as an index, −1 for none, of the states around an element."""
        exclusive = self.exclusive

        @jit.device
        def winner_index(before: Any, after: Any, extent: Any) -> Any:
            winner = before[1] if exclusive else after[1]
            return index(extent - 1 - winner if reverse and winner >= 0 else max(winner, -1))

        return winner_index

    def sizes(self, count: int) -> tuple[int, int, int, int]:
        """Elements of four arrays that hold ``count`` states; arrays that the state does not need have 1."""
        return tuple(count if k < self.width else 1 for k in range(4))  # type: ignore[return-value]


def _widening(value: str, wide: Any) -> Any:
    """``widen(x)`` from an element to the accumulator's type; a truth value becomes 0 or 1."""
    if value == "bool":
        return jit.device(lambda x: wide(x != 0))
    widen = conversions_of(value)[0]
    return widen if wide == accumulator_type(value) else jit.device(lambda x: wide(widen(x)))


@functools.cache
def functions_of(operator: str, value: str, result: str, exclusive: bool, position: str) -> OperatorFunctions:
    """The one :class:`OperatorFunctions` for these, so that kernels share its functions."""
    return OperatorFunctions(operator, value, result, exclusive, position)
