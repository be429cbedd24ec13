"""What a lane keeps of the elements that it has folded so far, for any monoid over any type of elements."""

from __future__ import annotations

from typing import Any

from ..device.block import block_reduce
from ..device.warp import warp_reduce
from ..runtime import jit
from .batch import batch_of, state_accessors, state_functions, typed_monoid
from .transpose import transposed_fold


def group_reduce(monoid: str, value: str, lanes: int) -> Any:
    """``fold(state)`` over the lanes of a group, which is a block where there are more than 32; the same in all of them."""
    kinds = state_functions(monoid, value).kinds
    reduce = warp_reduce if lanes <= 32 else block_reduce
    return reduce(typed_monoid(monoid, value), kinds if len(kinds) > 1 else kinds[0], lanes)


class ThreadAccumulator:
    """A lane's tally is its state; where the monoid has sums about a pivot, it is (pivot, first, second), of ``width`` scalars.

    ``nothing()`` is the tally of no elements, ``state(tally, count, origin)`` the state of ``count``, of which the mean is taken less ``origin``.
    """

    def __init__(self, monoid: str, value: str) -> None:
        states = state_functions(monoid, value)
        self._monoid, self._value = monoid, value
        self.kind: Any = states.kinds[0]
        self.width: int = len(states.kinds)
        self.state_width: int = len(states.kinds)
        self.empty: Any = states.identity
        self.state: Any = jit.device(lambda accumulator, count, origin: accumulator)

    def add_batch(self, vectors: int, vector: int, element_stride: int, vector_stride: int) -> Any:
        """``take(tally, elements, at, position, valid, count)``: the tally with the first ``valid`` > 0 of ``runs`` runs of ``run`` elements.

        ``count`` elements are in it. Element k of run s is ``elements[at + (s · run + k) · step]``, and its place ``position + s · gap + k``.
        """
        batch_state, combine = (
            batch_of(self._monoid, self._value, vectors, vector, element_stride, vector_stride),
            state_functions(self._monoid, self._value).combine,
        )
        return jit.device(
            lambda accumulator, elements, offset, position, valid, count: combine(accumulator, batch_state(elements, offset, position, valid))
        )

    def add_columns(self, vectors: int, columns: int, vector_stride: int) -> Any:
        """``take(tallies, elements, position, valid, count)``: ``batch`` of one element a run for the tallies of ``columns``, one behind the other.

        Element k of a run belongs to column k.
        """
        return self._add_each(self.add_batch(vectors, 1, columns, vector_stride), columns)

    def _add_each(self, add: Any, columns: int) -> Any:
        (get, put), width = state_accessors(self.width), self.width

        @jit.device
        def add_each(accumulators: Any, elements: Any, position: Any, valid: Any, count: Any) -> None:
            for v in range(columns):
                put(accumulators, v * width, 1, add(get(accumulators, v * width, 1), elements, v, position, valid, count))

        return add_each

    def reduce_lanes(self, lanes: int) -> Any:
        """``fold(tally, count, origin)``: the state of a group of lanes, which is a block where there are more than 32; the same in all of them."""
        reduce = group_reduce(self._monoid, self._value, lanes)
        return jit.device(lambda accumulator, count, origin: reduce(accumulator))

    def reduce_rows(self, vectors: int, vector: int, vector_stride: int, lanes: int, height: int) -> Any:
        """``fold(elements, position, valid, lane, extent, out)``: states of ``height`` rows, each dealt to a group of ``lanes`` lanes.

        A lane has ``valid[h]`` of ``runs`` runs of row h, one row behind the other; ``out`` is as :func:`~.transpose.transposed_fold` leaves it.
        """
        batch_state, (_, put), width = batch_of(self._monoid, self._value, vectors, vector, 1, vector_stride), state_accessors(self.width), self.width
        transposed, row_size = transposed_fold(state_functions(self._monoid, self._value), lanes, height), vectors * vector

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            for h in range(height):
                put(out, h * width, 1, batch_state(elements, h * row_size, position, valid[h]))
            transposed(out, lane)

        return fold
