"""What a thread holds of the elements that it has folded so far, for any monoid over elements of any type."""

from __future__ import annotations

from typing import Any

from ..device.block import block_reduce
from ..device.warp import warp_reduce
from ..runtime import jit
from .batch import batch_of, state_accessors, state_functions, typed_monoid
from .transpose import transposed_fold


def group_reduce(monoid: str, value: str, lanes: int) -> Any:
    """``fold(state)``: the states of a group of lanes combined, in each lane. More than 32 lanes are a whole block."""
    kinds = state_functions(monoid, value).kinds
    reduce = warp_reduce if lanes <= 32 else block_reduce
    return reduce(typed_monoid(monoid, value), kinds if len(kinds) > 1 else kinds[0], lanes)


class ThreadAccumulator:
    """Factories of the device functions of an accumulator, which here is a state of the monoid. Subclasses accumulate sums about a pivot instead.

    ``kind`` is the type of its scalars, ``width`` their number, ``state_width`` that of a state. ``empty()`` is the accumulator of no elements.
    ``state(accumulator, count, origin)`` is the state of an accumulator of ``count`` elements; a monoid that ``subtracts_origin`` has its mean less
    ``origin`` there.

    A lane has a batch of ``vectors`` vectors of ``vector`` elements in registers. Element k of vector s is ``elements[offset + (s · vector + k) ·
    element_stride]``, and its position in the row is ``position + s · vector_stride + k``.
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
        """``add(accumulator, elements, offset, position, valid, count)``: the accumulator of ``count`` elements and the first ``valid`` vectors.

        ``valid`` is at least 1.
        """
        batch_state = batch_of(self._monoid, self._value, vectors, vector, element_stride, vector_stride)
        combine = state_functions(self._monoid, self._value).combine
        return jit.device(
            lambda accumulator, elements, offset, position, valid, count: combine(accumulator, batch_state(elements, offset, position, valid))
        )

    def add_columns(self, vectors: int, columns: int, vector_stride: int) -> Any:
        """``add(accumulators, elements, position, valid, count)``: :meth:`add_batch` for each of ``columns`` accumulators, one behind the other.

        Vectors have ``columns`` elements; element k belongs to accumulator k.
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
        """``fold(accumulator, count, origin)``: the state of a group of lanes, in each lane. More than 32 lanes are a whole block."""
        reduce = group_reduce(self._monoid, self._value, lanes)
        return jit.device(lambda accumulator, count, origin: reduce(accumulator))

    def reduce_rows(self, vectors: int, vector: int, vector_stride: int, lanes: int, height: int) -> Any:
        """``fold(elements, position, valid, lane, extent, out)``: the states of ``height`` rows of ``extent`` elements, each over ``lanes`` lanes.

        ``elements`` [height, vectors, vector] are the lane's elements, of which it has the first ``valid[h]`` vectors of row h. The states go to
        ``out`` [height, scalars of a state], as :func:`~.transpose.transposed_fold` leaves them to the lanes.
        """
        batch_state = batch_of(self._monoid, self._value, vectors, vector, 1, vector_stride)
        (_, put), width, row_size = state_accessors(self.width), self.width, vectors * vector
        transposed = transposed_fold(state_functions(self._monoid, self._value), lanes, height)

        @jit.device
        def fold(elements: Any, position: Any, valid: Any, lane: Any, extent: Any, out: Any) -> None:
            for h in range(height):
                put(out, h * width, 1, batch_state(elements, h * row_size, position, valid[h]))
            transposed(out, lane)

        return fold
