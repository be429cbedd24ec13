"""A scan of strided arrays as rows along the scanned axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.axes import fitting, merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .policy import Elements
from .tiling import MAX_VECTOR_BYTES

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Operands as rows. Kept axes are merged into as few as strides allow, in the order of the first operand's strides.

    ``shape`` and ``kept`` are the extents of the kept axes, and their strides in each operand; ``axis_strides`` is the stride of the scanned axis in
    each operand, and ``extent`` its elements. ``along`` says that the scanned axis has the smallest stride. ``vector`` is the number of elements of
    the widest load or store that is aligned in all operands: up to ``along_bytes`` of the first operand along rows, or ``across`` bytes across them.
    A vector of more than 16 bytes of another operand takes several loads or stores. Where vectors are aligned only in the middle of each row, rows
    are ``peeled``, and ``misalignment`` is the number of elements from the last aligned address to the first operand, by its address modulo 16.
    Peeled rows are ``gapless`` if they follow one another without a gap in all operands; they may then be short.
    Unless rows are ``alike_rows``, which begin with one number, they count as not gapless.
    Where the columns of a slice are one contiguous range in all operands, or all rows are, ``dense`` is the number of elements of the widest load or
    store that is aligned at the beginning of all operands, else 0.
    """

    shape: Strides
    kept: list[Strides]
    axis_strides: Strides
    extent: int
    along: bool
    vector: int = 1
    peeled: bool = False
    gapless: bool = False
    misalignment: int = 0
    dense: int = 0

    @property
    def rows(self) -> int:
        return math.prod(self.shape)

    @property
    def longest(self) -> int:
        """Elements of a row, and of its first vector before it."""
        return self.extent + (self.vector - 1 if self.peeled else 0)

    def are_multiples(self, elements: int) -> bool:
        """Whether columns that lie side by side are so many ``elements`` from the next in all operands, or a multiple of them."""
        strides = *self.axis_strides, *[step for each in self.kept for step in each[:-1]]
        return all(step % elements == 0 for step in strides)

    @classmethod
    def of(
        cls, axis: int, operands: Sequence[Layout], elements: Sequence[str], across: int, along_bytes: int = MAX_VECTOR_BYTES, alike_rows: bool = True
    ) -> Problem:
        first, sizes = operands[0], [BY_NAME[element].itemsize for element in elements]
        extent = first.shape[axis]
        chosen = sorted((k for k in range(len(first.shape)) if k != axis), key=lambda k: -abs(first.strides[k]))
        shape, kept = merge_axes([first.shape[k] for k in chosen], *[[each.strides[k] for k in chosen] for each in operands])
        axis_strides = tuple(each.strides[axis] for each in operands)
        nearest = min((abs(step) for count, step in zip(shape, kept[0], strict=True) if count > 1), default=math.inf)
        along = extent > 1 and abs(axis_strides[0]) <= nearest
        plain = cls(shape, kept, axis_strides, extent, along)
        if any(step != 1 for step in (axis_strides if along else (strides[-1] for strides in kept))):
            return plain
        widest = aligned = max(1, (along_bytes if along else across) // sizes[0])
        for each, size in zip(operands, sizes, strict=True):
            while aligned > 1 and each.address % min(MAX_VECTOR_BYTES, aligned * size):
                aligned //= 2
        steps = [step for strides in kept for count, step in zip(shape, strides, strict=True) if count > 1]
        others = steps if along else [*(axis_strides if extent > 1 else ()), *(step for step in steps if step != 1)]
        vector = fitting(aligned, [extent if along else shape[-1], *others])
        misalignment = first.address // sizes[0] % widest
        alike = all(
            (each.address // size - misalignment) % width == 0
            and all((step - other) % width == 0 for step, other in zip(strides, kept[0], strict=True))
            for each, size, width, strides in zip(operands, sizes, [min(widest, MAX_VECTOR_BYTES // size) for size in sizes], kept, strict=True)
        )
        dense, rows_follow = 0, all(strides == (extent,) for strides in kept)
        if (rows_follow if along else extent > 1 and all(step == shape[-1] for step in axis_strides)) and len(set(sizes)) == 1:
            dense = fitting(MAX_VECTOR_BYTES // sizes[0], [each.address // sizes[0] for each in operands])
        gapless = alike_rows and rows_follow and shape[0] * extent >= 2 * widest
        if along and vector < widest and alike and (gapless or extent * sizes[0] > tuned(Elements()).min_peeled_bytes):
            return cls(shape, kept, axis_strides, extent, along, widest, True, gapless, misalignment, dense)
        return cls(shape, kept, axis_strides, extent, along, vector, dense=dense)
