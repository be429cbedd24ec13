"""A gradient of dense operands, in the order of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..algebra.gradients import Gradient
from ..core.axes import merge_axes
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
    * ``columns``: of lines that a vector has whole ones of, along the innermost axis behind a reduced one; then both are merged, and the last one of
      each operand's strides is that of its columns. Else 1
    * ``kept_line``: whether the innermost axis is kept, and not merged
    * ``vector``: elements of the widest vector that is aligned in all full operands at once; ``head``: elements before the first one
    """

    shape: Strides
    kept_strides: list[Strides]
    columns: int
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
        head, kept_line, columns = min(-first.address // size % vector, spans[0]), order[-1] not in axes, 1
        behind = kept_line and len(shape) > 1 and not any(each[-2] for each in strides)
        if behind and vector % shape[-1] == 0 and head % shape[-1] == 0 and shape[-2] * shape[-1] >= vector:
            columns, kept_line = shape[-1], False
            shape, strides = (*shape[:-2], shape[-2] * columns), [(*each[:-2], each[-1]) for each in strides]
        return cls(shape, strides, columns, kept_line, vector, head, spans[0])

    @property
    def whole(self) -> bool:
        """Whether no vector reaches the next line, of lines that are not kept."""
        return not self.kept_line and self.head == 0 and self.shape[-1] % self.vector == 0

    @property
    def short(self) -> bool:
        """Whether a vector reaches several lines."""
        return self.shape[-1] < self.vector

    def pays(self, gradient: Gradient, problem: Problem, size: int) -> bool:
        """Whether rows or columns, as in ``problem``, are slower. Many terms for each element take long, and so do terms that caches lose."""
        policy = tuned(BroadcastDense())
        small, whole = size < policy.min_item_bytes, problem.vector * size == tuned(Block()).vector_bytes and not problem.staged
        if gradient.fold:
            return not self.kept_line and self.columns == 1 and not (small and problem.vector > 1)
        if self.kept_line or self.columns > 1:
            nbytes = (self.shape[-1] if self.kept_line else self.columns) * size
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
        return self.kept_line and unit and self.vector > 1 and many

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
