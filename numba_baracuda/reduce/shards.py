"""Reductions whose elements are divided among ranks: the launches that leave states, and the one that merges those of all ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..algebra import monoid_of, state_of
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Launch, Layout, Recipe, Step, Target, contiguous, fresh_first
from ..core.spec import KernelSpec
from .descriptor import ReduceDescriptor
from .recipes import fold_of
from .tiling import THREADS


@dataclass(frozen=True)
class States:
    """The states of ``rows`` rows of elements of type ``value``: of each row one, then the origin of each, if the states are less an origin."""

    monoid: str
    value: str
    rows: int
    based: bool = False

    @classmethod
    def of_rows(cls, monoid: str, value: str, rows: int) -> States:
        """The states that reductions along an axis leave."""
        return cls(monoid, value, rows, monoid_of(monoid).subtracts_origin)

    @property
    def element(self) -> str:
        """The type of their scalars."""
        return monoid_of(self.monoid).kind or BY_NAME[self.value].accumulator

    @property
    def scalars(self) -> int:
        """Scalars of the states alone."""
        return self.rows * monoid_of(self.monoid).width

    @property
    def count(self) -> int:
        """All scalars."""
        return self.scalars + self.rows * self.based


def leave(states: States, descriptor: ReduceDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The fold of x to the operand ``states``, and of ``first``, the first element of each row, to ``origins``, if they are based."""
    if not states.rows:
        return Recipe(())
    y, kind = contiguous(descriptor.output_shape), states.element
    steps, slots = fold_of(descriptor, layouts["x"], y, target, state_of(states.monoid), "states", kind, alone=True)
    if "first" in layouts:
        one = ReduceDescriptor("sum", layouts["first"].shape, descriptor.axes, descriptor.element)
        more, _ = fold_of(one, layouts["first"], y, target, state_of("sum"), "origins", kind, source="first")
        steps += more
    return fresh_first(steps, slots)


def merge(
    states: States, shape: tuple[int, ...], y: Layout, result: str, ranks: int, *, count: int = 0, correction: float = 0, base_rank: int = 0,
    columns: int = 0, empty: float = 0, rank_stride: int = 0, count_stride: int = 0,
) -> list[Step]:  # fmt: skip
    """The launch that merges the operand ``gathered`` [ranks, scalars] to ``y`` of this shape and layout; with ``columns``, by ``counts``."""
    monoid, kept = monoid_of(states.monoid), (shape or (1,), y.strides or (1,))
    constants: dict[str, Any] = {
        "monoid": states.monoid, "value": states.value, "result": result, "based": states.based, "counted": columns > 0, "kept": len(kept[0]),
    }  # fmt: skip
    spec = KernelSpec("numba_baracuda.reduce.kernels:merge_states", tuple(sorted(constants.items())), THREADS, 0)
    arguments = {
        "states": "gathered", "counts": "counts" if columns else NULL, "y": "y", "rows": math.prod(shape), "columns": max(columns, 1), "ranks": ranks,
        "rank_stride": rank_stride or states.count, "count_stride": count_stride, "base_rank": base_rank, "count": count,
        "correction": correction if monoid.corrected else 0, "empty": empty, "kept_shape": kept[0], "y_kept_strides": kept[1],
    }  # fmt: skip
    return [Launch(spec, (ceil_div(math.prod(shape), THREADS), THREADS, 0), arguments)] if states.rows else []
