"""A problem of the scan family: an op with a shape, the axis and the direction of the scan, and a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numba_baracuda as nb
from numba_baracuda import OPS, PlanPreference, select
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.plans.plan import Plan

from .case import Arrays, Bind, Spec
from .checks import Truth
from .scan_truths import scan_truth
from .values import cast, empty, factors, uniform

_TINY = 960  #: elements, so that four operands in float32 are small


@dataclass(frozen=True)
class ScanCase:
    """A row of the scan family; operands are contiguous."""

    op: str
    shape: tuple[int, ...]
    axis: int
    element: str = "f32"
    reverse: bool = False
    deterministic: bool = True
    segments: int = 0
    indexed: bool = False

    @property
    def id(self) -> str:
        problem = f"{'x'.join(map(str, self.shape))}-axis{self.axis}"
        types = "" if self.element == "f32" else self.element
        return "-".join(filter(None, [problem, types, "reverse" if self.reverse else "", "" if self.deterministic else "any_order"]))

    @property
    def _descriptor(self) -> Any:
        op = OPS[self.op]
        made = nb.ScanBackwardDescriptor if op.traits["backward"] else nb.ScanDescriptor
        return made(op.kind, self.shape, self.axis, self.reverse, self.element)

    @property
    def specs(self) -> dict[str, Spec]:
        result = self._descriptor.result
        return {operand.name: Spec(self.shape, result if operand.output else self.element, operand.output) for operand in OPS[self.op].operands}

    @property
    def moved(self) -> dict[str, Spec]:
        return self.specs

    def tiny(self) -> ScanCase:
        """The same case with few elements; the scanned extent keeps its remainder by 8, so that rows have the same alignment."""
        last = len(self.shape) - 1
        shape = [min(extent, 8 if axis == last else 4) for axis, extent in enumerate(self.shape)]
        extent = self.shape[self.axis]
        shape[self.axis] = min(extent, _TINY * shape[self.axis] // math.prod(shape) // 8 * 8 + extent % 8)
        return replace(self, shape=tuple(shape))

    def make(self, xp: Any) -> Arrays:
        rng, specs = xp.random.default_rng(7), self.specs
        made: Arrays = {}
        for name, spec in specs.items():
            if spec.output:
                made[name] = empty(xp, spec.shape, spec.element)
            elif name == "x" and "prod" in self.op:
                made[name] = factors(xp, rng, spec.shape, self.element, self.shape[self.axis])
            elif name != "y":
                made[name] = uniform(xp, rng, spec.shape, self.element)
        if "y" not in made and "y" in specs:
            forward = replace(self, op=self.op.removesuffix("_backward"))
            made["y"] = xp.ascontiguousarray(cast(xp, forward.truth(xp, made).value, self.element))
        return {name: made[name] for name in specs}

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return scan_truth(xp, self.op, operands, self.axis, self.reverse)

    def plan(self) -> Plan:
        """The plan that is measured."""
        return select(self._descriptor, PlanPreference(deterministic=self.deterministic))

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        plan = self.plan()

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            given = dict(operands)
            return lambda: plan.run(**given)

        return f"{plan.sku.variant} {BY_NAME[self.element].name} {plan.sku.arch.name}", bind
