"""A strided problem in as few axes as it has: those that are kept, and those that are reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.axes import merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .policy import Block, FoldStagedRows
from .tiling import staged_lanes

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
    along: bool
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
        across: int = Block.vector_bytes,
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
        size, unit = BY_NAME[element].itemsize, all(strides[-1] == 1 for strides in (reduced if along else full_kept))
        policy = tuned(Block())
        nbytes = policy.vector_bytes if along else min(across, policy.vector_bytes)
        widest, wanted = _widest(full, nbytes, size), max(1, nbytes // size)
        vector, staged, peeled = _fitting(widest, along, full_kept, reduced, kept_shape, shape) if unit else 1, False, False
        if peel and unit and along and len(shape) == 1:
            staged = vector * size < tuned(FoldStagedRows()).max_vector_bytes and full_kept[0] == shape and staged_lanes(shape[0] * size) > 0
            peeled = not staged and vector < wanted and shape[0] * size > policy.min_peeled_bytes
            vector = widest if staged else wanted if peeled else vector
        elif peel and unit and not along and len(kept_shape) == 1:
            peeled = vector < wanted and kept_shape[0] * size > policy.min_peeled_bytes and not any(step % wanted for step in reduced[0])
            vector = wanted if peeled else vector
        return cls(kept_shape, shape, full_kept, reduced, kept_strides, along, vector, peeled, staged)

    @property
    def contiguous(self) -> int:
        """Accesses that follow one another in memory."""
        return max(1, (self.shape if self.along else self.kept_shape)[-1] // self.vector)


def _nearest(shape: Strides, strides: Strides) -> float:
    """The distance of the nearest neighbours along these axes."""
    return min((abs(stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1), default=float("inf"))


def _widest(full: Sequence[Layout], nbytes: int, size: int) -> int:
    """Elements of the widest access, of up to ``nbytes`` bytes, to whose multiples all addresses are aligned."""
    vector = max(1, nbytes // size)
    while vector > 1 and any(layout.address % (vector * size) for layout in full):
        vector //= 2
    return vector


def _fitting(widest: int, along: bool, kept: list[Strides], reduced: list[Strides], kept_shape: Strides, shape: Strides) -> int:
    """Elements, up to ``widest``, of the widest access to whose multiples the line of neighbours begins and ends, wherever it lies."""
    (lines, line), (others, other) = ((reduced, shape), (kept, kept_shape)) if along else ((kept, kept_shape), (reduced, shape))
    steps = [line[-1], *(step for strides in lines for step in strides[:-1])]
    steps += [step for strides in others for extent, step in zip(other, strides, strict=True) if extent > 1]
    return math.gcd(widest, *steps)
