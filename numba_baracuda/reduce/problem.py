"""A strided problem in as few axes as it has: those that are kept, and those that are reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..axes import merge_axes
from ..dtypes import BY_NAME
from ..op import Layout
from .tiling import WARP_ACCESSES

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Operands of the full shape, ``full``, and of the shape whose reduced axes are 1, ``kept``; the first of ``full`` decides.

    Axes of either sort are put in the order of its strides, unless ``ordered`` reduced ones must stay in theirs, and merged where all operands walk
    them as one. ``along``: whether neighbours lie along the reduced axes. ``vector``: elements of the widest access that fits all of ``full``;
    ``peeled``: it fits the middle of each row.
    """

    kept_shape: Strides
    shape: Strides
    full_kept: list[Strides]
    full_reduced: list[Strides]
    kept_strides: list[Strides]
    along: bool
    vector: int
    peeled: bool
    rows: int = field(init=False)
    extent: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", math.prod(self.kept_shape))
        object.__setattr__(self, "extent", math.prod(self.shape))

    @classmethod
    def of(
        cls, axes: Sequence[int], full: Sequence[Layout], kept: Sequence[Layout], element: str, ordered: bool = False, peel: bool = False
    ) -> Problem:
        first = full[0]

        def by_stride(chosen: list[int]) -> list[int]:
            return sorted(chosen, key=lambda axis: -abs(first.strides[axis]))

        rank = len(first.shape)
        stay = by_stride([axis for axis in range(rank) if axis not in axes])
        gone = list(axes) if ordered else by_stride(list(axes))
        everyone = [*full, *kept]
        kept_shape, strides = merge_axes([first.shape[k] for k in stay], *[[each.strides[k] for k in stay] for each in everyone])
        shape, reduced = merge_axes([first.shape[k] for k in gone], *[[each.strides[k] for k in gone] for each in full])
        full_kept, kept_strides = strides[: len(full)], strides[len(full) :]
        nearest = _nearest(shape, reduced[0]), _nearest(kept_shape, full_kept[0])
        along = nearest[0] <= nearest[1]
        vector, peeled = _access(BY_NAME[element].itemsize, along, full, full_kept, reduced, kept_shape, shape, peel)
        return cls(kept_shape, shape, full_kept, reduced, kept_strides, along, vector, peeled)

    @property
    def contiguous(self) -> int:
        """Accesses that follow one another in memory."""
        return max(1, (self.shape if self.along else self.kept_shape)[-1] // self.vector)


def _nearest(shape: Strides, strides: Strides) -> float:
    """The distance of the nearest neighbours along these axes."""
    return min((abs(stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1), default=float("inf"))


def _access(
    size: int, along: bool, full: Sequence[Layout], kept: list[Strides], reduced: list[Strides], kept_shape: Strides, shape: Strides, peel: bool
) -> tuple[int, bool]:
    """The widest access, in elements, and whether rows must be peeled for it."""
    lines, line = (reduced, shape) if along else (kept, kept_shape)
    others = [(*strides[:-1], *rest) for strides, rest in zip(lines, kept if along else reduced, strict=True)]
    if any(strides[-1] != 1 for strides in lines):
        return 1, False

    def fits(vector: int) -> bool:
        aligned = all(layout.address % (vector * size) == 0 for layout in full)
        return aligned and line[-1] % vector == 0 and not any(step % vector for steps in others for step in steps)

    widest = 16 // size
    if peel and along and len(shape) == 1 and line[-1] > WARP_ACCESSES * widest:
        return widest, not fits(widest)
    vector = widest
    while vector > 1 and not fits(vector):
        vector //= 2
    return vector, False
