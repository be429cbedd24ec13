"""A strided problem in as few axes as it has: those that are kept, and those that are reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.axes import merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from .tiling import PEELED_BYTES, STAGED_BELOW, staged_lanes

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Operands of the full shape, ``full``, and of the shape whose reduced axes are 1, ``kept``; the first of ``full`` decides.

    Axes of either sort are put in the order of its strides, unless ``ordered`` reduced ones must stay in theirs, and merged where all operands walk
    them as one. ``along``: whether neighbours lie along the reduced axes. ``vector``: elements of the widest access that fits all of ``full``;
    ``peeled``: it fits the middle of each line of neighbours; ``staged``: it fits the rows as a whole, which have no gaps between them, and each is
    short.
    """

    kept_shape: Strides
    shape: Strides
    full_kept: list[Strides]
    full_reduced: list[Strides]
    kept_strides: list[Strides]
    row_contiguous: bool
    vector: int
    peeled: bool
    staged: bool
    rows: int = field(init=False)
    extent: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", math.prod(self.kept_shape))
        object.__setattr__(self, "extent", math.prod(self.shape))

    @classmethod
    def of(
        cls,
        axes: Sequence[int],
        full: Sequence[Layout],
        kept: Sequence[Layout],
        element: str,
        ordered: bool = False,
        peel: bool = False,
        column_bytes: int = 16,
    ) -> Problem:
        first = full[0]

        def by_stride(chosen: list[int]) -> list[int]:
            return sorted(chosen, key=lambda axis: -abs(first.strides[axis]))

        rank = len(first.shape)
        kept_axes = by_stride([axis for axis in range(rank) if axis not in axes])
        reduced_axes = list(axes) if ordered else by_stride(list(axes))
        operands = [*full, *kept]
        kept_shape, strides = merge_axes([first.shape[k] for k in kept_axes], *[[each.strides[k] for k in kept_axes] for each in operands])
        shape, reduced = merge_axes([first.shape[k] for k in reduced_axes], *[[each.strides[k] for k in reduced_axes] for each in full])
        full_kept, kept_strides = strides[: len(full)], strides[len(full) :]
        smallest = _smallest_stride(shape, reduced[0]), _smallest_stride(kept_shape, full_kept[0])
        row_contiguous = smallest[0] <= smallest[1]
        size, unit_stride = BY_NAME[element].itemsize, all(strides[-1] == 1 for strides in (reduced if row_contiguous else full_kept))
        widest = _widest_aligned(full, 16 if row_contiguous else column_bytes, size)
        vector, staged, peeled = _widest_fitting(widest, row_contiguous, full_kept, reduced, kept_shape, shape) if unit_stride else 1, False, False
        if peel and unit_stride and row_contiguous and len(shape) == 1:
            staged = vector * size < STAGED_BELOW and full_kept[0] == shape and staged_lanes(shape[0] * size) > 0
            peeled = not staged and vector * size < 16 and shape[0] * size > PEELED_BYTES
            vector = widest if staged else 16 // size if peeled else vector
        elif peel and unit_stride and not row_contiguous and len(kept_shape) == 1:
            wanted = column_bytes // size
            peeled = vector < wanted and kept_shape[0] * size > PEELED_BYTES and not any(step % wanted for step in reduced[0])
            vector = wanted if peeled else vector
        return cls(kept_shape, shape, full_kept, reduced, kept_strides, row_contiguous, vector, peeled, staged)

    @property
    def adjacent_vectors(self) -> int:
        """Accesses that follow one another in memory."""
        return max(1, (self.shape if self.row_contiguous else self.kept_shape)[-1] // self.vector)


def _smallest_stride(shape: Strides, strides: Strides) -> float:
    """The distance of the nearest neighbours along these axes."""
    return min((abs(stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1), default=float("inf"))


def _widest_aligned(full: Sequence[Layout], nbytes: int, size: int) -> int:
    """Elements of the widest access, of up to ``nbytes`` bytes, to whose multiples all addresses are aligned."""
    vector = nbytes // size
    while vector > 1 and any(layout.address % (vector * size) for layout in full):
        vector //= 2
    return vector


def _widest_fitting(widest: int, row_contiguous: bool, kept: list[Strides], reduced: list[Strides], kept_shape: Strides, shape: Strides) -> int:
    """Elements, up to ``widest``, of the widest access to whose multiples the line of neighbours begins and ends, wherever it lies."""
    (lines, line), (others, other) = ((reduced, shape), (kept, kept_shape)) if row_contiguous else ((kept, kept_shape), (reduced, shape))
    steps = [line[-1], *(step for strides in lines for step in strides[:-1])]
    steps += [step for strides in others for extent, step in zip(other, strides, strict=True) if extent > 1]
    return math.gcd(widest, *steps)
