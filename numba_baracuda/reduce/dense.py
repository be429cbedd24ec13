"""A gradient of dense operands, in the order of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..algebra.gradients import Gradient
from ..core.axes import fitting, merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .passes import memory_order
from .policy import Block, BroadcastDense, Passes
from .problem import Problem, Strides

#: elements of an operand, so that 32 bits hold the position behind the last block
_MOST = (1 << 31) - (1 << 24)


@dataclass(frozen=True)
class Dense:
    """All axes of a problem in the order of memory, merged where all operands walk them as one.

    * ``kept_strides``: strides of each kept operand, and those that lead to the first element of the row; 0 along reduced axes
    * ``kept_line``: whether the innermost axis is kept
    * ``vector``: elements of the widest vector that is aligned in all full operands at once; ``head``: elements before the first one
    """

    shape: Strides
    kept_strides: list[Strides]
    kept_line: bool
    vector: int
    head: int
    elements: int

    @classmethod
    def of(cls, axes: Sequence[int], full: Sequence[Layout], kept: Sequence[Layout], element: str) -> Dense | None:
        """None if operands are not dense, or too large to count in 32 bits."""
        order = memory_order(full)
        if not order:
            return None
        first, size = full[0], BY_NAME[element].itemsize
        steps = [[0 if axis in axes else each.strides[axis] for axis in order] for each in (*kept, full[-1])]
        shape, strides = merge_axes([first.shape[axis] for axis in order], *steps)
        spans = [math.prod(shape), *(sum(abs(step) * extent for step, extent in zip(each, shape, strict=True)) for each in strides)]
        if any(span > _MOST for span in spans):
            return None
        vector = max(1, tuned(Block()).vector_bytes // size)
        while any((layout.address - first.address) % (vector * size) for layout in full):
            vector //= 2
        kept_line, line = order[-1] not in axes, fitting(vector, shape[-1:])
        if kept_line and shape[-1] < vector and line * size >= tuned(BroadcastDense()).min_vector_bytes:
            vector = line  # whole vectors of one line, of which there are more
        return cls(shape, strides, kept_line, vector, min(-first.address // size % vector, spans[0]), spans[0])

    def pays(self, gradient: Gradient, problem: Problem, size: int) -> bool:
        """Whether rows or columns, as in ``problem``, are slower. Many terms for each element take long, and so do terms that caches lose."""
        policy = tuned(BroadcastDense())
        small, whole = size < policy.min_item_bytes, problem.vector * size == tuned(Block()).vector_bytes and not problem.staged
        if gradient.fold:
            return not self.kept_line and not (small and problem.vector > 1)
        if self.kept_line:
            nbytes = self.shape[-1] * size
            short = nbytes < tuned(Block()).vector_bytes and problem.line * size >= tuned(Passes()).contiguous_bytes
            return not (gradient.divides or nbytes > policy.max_line_bytes or (whole and (short or small) and not gradient.rows))
        rows = problem.row_contiguous and len(problem.shape) == 1 and problem.extent * size >= policy.max_row_bytes
        return not (whole and rows and small and gradient.rows)

    def is_near(self, gradient: Gradient, size: int) -> bool:
        """Whether elements of a vector, most of which lie on one line, have terms that are neighbours in memory."""
        dy, y = self.kept_strides[0][-1], self.kept_strides[1][-1]
        unit = dy == 1 and (y == 1 or len(gradient.segments) == 1)
        policy = tuned(BroadcastDense())
        many = size < policy.min_item_bytes and self.shape[-1] >= policy.min_near_vectors * self.vector
        return self.kept_line and unit and self.vector > 1 and (many or self.shape[-1] == self.vector)

    def step(self, distance: int) -> Strides:
        """The coordinates of the element number ``distance``."""
        found: list[int] = []
        for extent in self.shape[:0:-1]:
            found.append(distance % extent)
            distance //= extent
        return (distance, *found[::-1])


def dense_of(gradient: Gradient, problem: Problem, axes: Sequence[int], full: Sequence[Layout], kept: Sequence[Layout], element: str) -> Dense | None:
    """The axes of a gradient that is faster in the order of memory; None for one that is not, by the rows or columns of ``problem``."""
    policy, size = tuned(BroadcastDense()), BY_NAME[element].itemsize
    if gradient.uses_positions or gradient.guarded or problem.rows * problem.extent * size < policy.min_bytes:
        return None
    dense = Dense.of(axes, full, kept, element)
    return dense if dense and dense.pays(gradient, problem, size) else None
