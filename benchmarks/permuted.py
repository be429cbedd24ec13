"""The ragged fold through a permutation that is ready: an unsorted sum without its sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numba_baracuda import OPS, SegmentDescriptor, arrays
from numba_baracuda.binding import Bound
from numba_baracuda.op import Layout, Operand, Sort
from numba_baracuda.plan import target_of
from numba_baracuda.segment import recipes
from numba_baracuda.views import c_strides

from .cases import Arrays, Bind, Case, SegmentCase, Spec

_SUM = OPS["unsorted_segment_sum"]


@dataclass(frozen=True)
class PermutedCase:
    """``output[sorted_ids[k]] += input[permutation[k]]``: the launches of the deterministic ``unsorted_segment_sum``."""

    rows: int
    columns: int
    segments: int
    op: str = "fold_permuted"

    @property
    def _unsorted(self) -> SegmentCase:
        return SegmentCase(_SUM.name, "uniform", self.rows, self.columns, self.segments)

    @property
    def id(self) -> str:
        return self._unsorted.id.removesuffix("-deterministic")

    @property
    def specs(self) -> dict[str, Spec]:
        found = self._unsorted.specs
        return {
            "input": found["input"],
            "permutation": Spec((self.rows,), "i64"),
            "sorted_ids": Spec((self.rows,), "i32"),
            "output": found["output"],
        }

    def tiny(self) -> PermutedCase:
        small = self._unsorted.tiny()
        return replace(self, rows=small.rows, segments=small.segments)

    def make(self, xp: Any) -> Arrays:
        made = self._unsorted.make(xp)
        ids = made.pop("segment_ids")
        order = xp.argsort(ids).astype(xp.int64)
        return {"input": made["input"], "permutation": order, "sorted_ids": ids[order], "output": made["output"]}

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        device = -1 if xp.__name__ == "numpy" else 0
        target = target_of(device)
        descriptor = SegmentDescriptor(_SUM.name, self.rows, self.columns, self.segments)
        specs = self.specs
        layouts = {name: Layout(spec.shape, c_strides(spec.shape)) for name, spec in (specs | {"segment_ids": specs["sorted_ids"]}).items()}
        recipe = recipes.fold_permuted(_SUM, descriptor, layouts, target)
        recipe = replace(recipe, steps=tuple(step for step in recipe.steps if not isinstance(step, Sort)))
        op = replace(_SUM, name=self.op, operands=tuple(Operand(name, (), output=spec.output) for name, spec in specs.items()))
        workspace = arrays.view(xp.empty(recipe.workspace, xp.uint8), self.op, "workspace")

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            views = [arrays.view(operands[name], self.op, name) for name in specs]
            bound = Bound(op, recipe, views, target, device)
            return lambda: bound(0, [view.ptr for view in views], [*views], workspace)

        return f"ragged_permuted f32 i32 {target.arch}", bind


def permuted_cases() -> Iterator[Case]:
    """As many rows as the other cases of these widths."""
    yield PermutedCase(2_000_000, 128, 100_000)
    yield PermutedCase(20_000_000, 16, 1_000_000)
