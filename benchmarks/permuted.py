"""The ragged fold through a permutation that is ready: an unsorted sum without its sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numba_baracuda import OPS, SegmentDescriptor
from numba_baracuda.op import NULL, Launch, Layout
from numba_baracuda.plan import target_of
from numba_baracuda.runtime import cache, driver, emulator, jit, launch
from numba_baracuda.segment import recipes
from numba_baracuda.views import c_strides

from .cases import Arrays, Bind, Case, SegmentCase, Spec

_ROWS = OPS["unsorted_segment_sum"]


@dataclass(frozen=True)
class PermutedCase:
    """``output[sorted_ids[k]] += input[permutation[k]]``: the launches of the deterministic ``unsorted_segment_sum``."""

    rows: int
    columns: int
    segments: int
    op: str = "fold_permuted"

    @property
    def _sum(self) -> SegmentCase:
        return SegmentCase(_ROWS.name, "uniform", self.rows, self.columns, self.segments)

    @property
    def id(self) -> str:
        return self._sum.id.removesuffix("-deterministic")

    @property
    def specs(self) -> dict[str, Spec]:
        found = self._sum.specs
        return {
            "input": found["input"],
            "permutation": Spec((self.rows,), "i64"),
            "sorted_ids": Spec((self.rows,), "i32"),
            "output": found["output"],
        }

    def tiny(self) -> PermutedCase:
        small = self._sum.tiny()
        return replace(self, rows=small.rows, segments=small.segments)

    def make(self, xp: Any) -> Arrays:
        made = self._sum.make(xp)
        ids = made.pop("segment_ids")
        order = xp.argsort(ids).astype(xp.int64)
        return {"input": made["input"], "permutation": order, "sorted_ids": ids[order], "output": made["output"]}

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        descriptor = SegmentDescriptor(_ROWS.name, self.rows, self.columns, self.segments)
        emulated = xp.__name__ == "numpy"
        target = target_of(-1 if emulated else 0)
        layouts = {name: Layout(spec.shape, c_strides(spec.shape)) for name, spec in (self.specs | {"segment_ids": self.specs["sorted_ids"]}).items()}
        recipe = recipes.fold_permuted(_ROWS, descriptor, layouts, target)
        slots = {slot.name: xp.empty(max(slot.nbytes, 16), xp.uint8) for slot in recipe.slots}
        run = _emulated if emulated else _queued(target.arch)
        steps = [step for step in recipe.steps if isinstance(step, Launch)]

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            calls = [run(step, {**operands, **slots}) for step in steps]

            def call() -> None:
                for each in calls:
                    each()

            return call

        return f"ragged_permuted f32 i32 {target.arch}", bind


def _queued(arch: str) -> Callable[[Launch, Mapping[str, Any]], Callable[[], None]]:
    def make(step: Launch, arrays: Mapping[str, Any]) -> Callable[[], None]:
        blocks, threads, shared = step.config
        made = launch.Launch(launch.load(cache.cubin(step.spec, arch)), step.spec.signature, (blocks, 1, 1), threads, shared, step.scalars)
        pointers = [0 if name == NULL else arrays[name].data.ptr for name in step.pointers]
        return lambda: made(0, *pointers)

    driver.ensure_context(0)
    return make


def _emulated(step: Launch, arrays: Mapping[str, Any]) -> Callable[[], None]:
    blocks, threads, _ = step.config
    types = jit.parse_signature(step.spec.signature)
    given = [
        np.zeros(1, str(ty.dtype)) if name == NULL else arrays[name].reshape(-1).view(str(ty.dtype))
        for name, ty in zip(step.pointers, types, strict=False)
    ]
    return lambda: emulator.run(jit.resolve(step.spec).py_func, types, blocks, threads, [*given, *step.scalars])


def permuted_cases() -> Iterator[Case]:
    """As many rows as the other cases of these widths."""
    yield PermutedCase(2_000_000, 128, 100_000)
    yield PermutedCase(20_000_000, 16, 1_000_000)
