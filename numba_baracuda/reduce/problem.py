"""A strided reduction with as few axes as possible, kept and reduced ones apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.axes import c_strides, fitting, merge_axes
from ..core.dtypes import BY_NAME
from ..core.op import Layout
from ..core.policy import tuned
from .policy import Block
from .tiling import staged_lanes, stages_columns

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A reduction of operands of the full shape, ``full``, with operands whose reduced axes have extent 1, ``kept``.

    :meth:`of` sorts the kept and the reduced axes by the strides of the first full operand, and merges axes that all operands can walk as one.
    Reduced axes that are ``ordered`` stay in their order, as positions in a row need. Strides count elements.

    * ``kept_shape``, ``shape``: extents of the kept and of the reduced axes
    * ``full_kept``, ``full_reduced``: strides of the kept and of the reduced axes in each full operand; ``kept_strides``: those of each kept operand
    * ``row_contiguous``: whether the axis of the smallest stride is reduced
    * ``line``: contiguous elements along the axis of the smallest stride, and along further kept axes if all full operands walk them as one with it
    * ``vector``: elements of the widest vector that is aligned in all full operands wherever kernels begin one
    * ``peeled``: only the vectors in the middle of each line along the axis of the smallest stride are aligned, the same in all full operands
    * ``origin_kept``: strides of the kept axes that lead to the first element of the row, of which these rows may be parts
    * ``longer``: so many rows, the first ones, have one element more than ``extent``
    * ``ragged``: whether some have, or walks begin inside an aligned vector, alike in all full operands; ``outer``: kept axes outside of such walks
    * ``staged``: the rows, or few neighbouring columns, are short, and contiguous as a whole in all full operands; vectors are aligned in that whole,
      not in each row
    * ``rows``: the number of rows; ``extent``: elements of a row
    """

    kept_shape: Strides
    shape: Strides
    full_kept: list[Strides]
    full_reduced: list[Strides]
    kept_strides: list[Strides]
    row_contiguous: bool
    line: int
    vector: int
    peeled: bool
    staged: bool
    origin_kept: Strides
    longer: int
    ragged: bool
    outer: int
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
        peel_columns: bool = False,
        staged_below: int = 0,
        stage_columns: bool = False,
        column_bytes: int = Block.vector_bytes,
        origin: Layout | None = None,
        longer: int = 0,
        ragged: int = 0,
    ) -> Problem:
        """``peel``: rows may be peeled; ``peel_columns``: the line of columns may. ``staged_below``: rows with vectors of fewer bytes are staged,
        and, unless it is 0, those of single elements that are too short to be peeled.

        ``stage_columns``: few neighbouring columns may be.
        ``origin`` has the strides of ``origin_kept``. ``ragged``: elements of a vector of ragged columns, or 0.
        """
        first = full[0]

        def by_stride(chosen: list[int]) -> list[int]:
            return sorted(chosen, key=lambda axis: -abs(first.strides[axis]))

        rank = len(first.shape)
        kept_axes = by_stride([axis for axis in range(rank) if axis not in axes])
        reduced_axes = list(axes) if ordered else by_stride(list(axes))
        operands = [*full, *kept, origin or full[-1]]
        kept_shape, strides = merge_axes([first.shape[k] for k in kept_axes], *[[each.strides[k] for k in kept_axes] for each in operands])
        shape, reduced = merge_axes([first.shape[k] for k in reduced_axes], *[[each.strides[k] for k in reduced_axes] for each in full])
        if 0 in shape:  # nobody divides by the extents of rows without elements
            shape, reduced = (0,), [(1,)] * len(full)
        full_kept, kept_strides, origin_kept = strides[: len(full)], strides[len(full) : -1], strides[-1]
        smallest = _smallest_stride(shape, reduced[0]), _smallest_stride(kept_shape, full_kept[0])
        row_contiguous = smallest[0] <= smallest[1]
        size, unit_stride = BY_NAME[element].itemsize, all(strides[-1] == 1 for strides in (reduced if row_contiguous else full_kept))
        policy = tuned(Block())
        nbytes = policy.vector_bytes if row_contiguous else min(column_bytes, policy.vector_bytes)
        widest, wanted = widest_aligned(full, nbytes, size), max(1, nbytes // size)
        lines = (shape, reduced) if row_contiguous else merge_axes(kept_shape, *full_kept)
        others = (kept_shape, full_kept) if row_contiguous else (shape, reduced)
        vector, staged, peeled, outer = ragged or (_widest_fitting(widest, *lines, *others) if unit_stride else 1), False, False, 0
        if stage_columns and unit_stride and not row_contiguous and len(shape) == 1:
            inner = kept_shape[-1]
            gapless = *(step * inner * shape[0] for step in c_strides(kept_shape[:-1])), 1
            staged = all(strides == gapless for strides in full_kept) and all(strides == (inner,) for strides in reduced)
            staged = staged and stages_columns(shape[0], inner, math.prod(kept_shape), size, vector)
            vector = widest_aligned(full, policy.vector_bytes, size) if staged else vector
        while ragged and math.prod(kept_shape[outer:]) > lines[0][-1]:
            outer += 1
        if unit_stride and row_contiguous and len(shape) == 1:
            gapless = tuple(step * shape[0] for step in c_strides(kept_shape))
            narrow = vector * size < staged_below or (vector == 1 and staged_below > 0 and shape[0] * size <= policy.min_peeled_bytes)
            staged = narrow and all(strides == gapless for strides in full_kept) and staged_lanes(shape[0] * size) > 0
            peeled = peel and not staged and vector < wanted and shape[0] * size > policy.min_peeled_bytes and _alike(full, full_kept, wanted, size)
            vector = widest if staged else wanted if peeled else vector
        elif peel_columns and not (ragged or staged) and unit_stride and not row_contiguous and len(kept_shape) == 1:
            peeled = vector < wanted and kept_shape[0] * size > policy.min_peeled_bytes and not any(step % wanted for step in reduced[0])
            vector = wanted if peeled else vector
        return cls(
            kept_shape, shape, full_kept, reduced, kept_strides, row_contiguous, lines[0][-1], vector, peeled, staged, origin_kept, longer,
            ragged > 0, outer,
        )  # fmt: skip

    @property
    def adjacent_vectors(self) -> int:
        """The number of vectors that are contiguous along the axis of the smallest stride."""
        return max(1, self.line // self.vector)


def _smallest_stride(shape: Strides, strides: Strides) -> float:
    """The smallest distance, in elements, of neighbours along these axes."""
    return min((abs(stride) for extent, stride in zip(shape, strides, strict=True) if extent > 1), default=float("inf"))


def widest_aligned(full: Sequence[Layout], nbytes: int, size: int) -> int:
    """Elements of the widest vector, of at most ``nbytes`` bytes, to which all addresses are aligned."""
    vector = max(1, nbytes // size)
    while vector > 1 and any(layout.address % (vector * size) for layout in full):
        vector //= 2
    return vector


def _alike(full: Sequence[Layout], kept: list[Strides], vector: int, size: int) -> bool:
    """Whether each row begins equally far from an aligned vector in all full operands."""
    first = full[0].address, kept[0]
    return all(
        (layout.address - first[0]) % (vector * size) == 0 and all((a - b) % vector == 0 for a, b in zip(strides, first[1], strict=True))
        for layout, strides in zip(full, kept, strict=True)
    )


def _widest_fitting(widest: int, line: Strides, lines: list[Strides], other: Strides, others: list[Strides]) -> int:
    """Elements, at most ``widest``, of the widest vector that divides each line along the axis of the smallest stride, and its offset.

    ``line`` and ``lines`` are the extents and the strides of the axes on that axis' side, kept or reduced; ``other`` and ``others`` the other ones.
    """
    steps = [line[-1], *(step for strides in lines for step in strides[:-1])]
    steps += [step for strides in others for extent, step in zip(other, strides, strict=True) if extent > 1]
    return fitting(widest, steps)
