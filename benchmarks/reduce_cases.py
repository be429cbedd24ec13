"""A problem of the reduce family: an op with a shape, the reduced axes, and a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numba_baracuda import OPS, ReduceBackwardDescriptor, ReduceDescriptor, select
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.plans.plan import Plan

from .case import Arrays, Bind, Spec
from .checks import Truth
from .reduce_truths import reduce_truth
from .values import cast, empty, factors, uniform

#: layouts of x: contiguous; one element after a multiple of 16 bytes; with its axes reversed; with a gap of a row after every row
LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda xp, x: x,
    "misaligned": lambda xp, x: xp.concatenate([x[:1, :1].reshape(1), x.reshape(-1)])[1:].reshape(x.shape),
    "transposed": lambda xp, x: xp.ascontiguousarray(x.T).T,
    "every_second_row": lambda xp, x: xp.repeat(x, 2, axis=0)[::2],
}


@dataclass(frozen=True)
class ReduceCase:
    """A row of the reduce family; operands other than x are contiguous."""

    op: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    element: str = "f32"
    lies: str = ""  #: of ``LAYOUTS``
    segments: int = 0
    indexed: bool = False

    @property
    def id(self) -> str:
        problem = f"{'x'.join(map(str, self.shape))}-axis{''.join(map(str, self.axes))}"
        return "-".join(filter(None, [problem, "" if self.element == "f32" else self.element, self.lies]))

    @property
    def _descriptor(self) -> Any:
        op = OPS[self.op]
        made = ReduceBackwardDescriptor if op.traits["backward"] else ReduceDescriptor
        return made(op.kind, self.shape, self.axes, self.element)

    @property
    def specs(self) -> dict[str, Spec]:
        descriptor = self._descriptor
        return {
            operand.name: Spec(getattr(descriptor, operand.axes[0]), descriptor.result if operand.index else self.element, operand.output)
            for operand in OPS[self.op].operands
        }

    @property
    def moved(self) -> dict[str, Spec]:
        return self.specs

    def tiny(self) -> ReduceCase:
        shape = tuple(min(extent, 24 if len(self.shape) < 3 else 6) for extent in self.shape)
        return replace(self, shape=shape)

    def make(self, xp: Any) -> Arrays:
        rng, specs = xp.random.default_rng(7), self.specs
        extent = math.prod(self.shape[axis] for axis in self.axes)
        made: Arrays = {}
        for name, spec in specs.items():
            if name == "x" and "prod" in self.op:
                made[name] = factors(xp, rng, spec.shape, self.element, extent)
            elif spec.output:
                made[name] = empty(xp, spec.shape, spec.element)
            elif name != "y":
                made[name] = uniform(xp, rng, spec.shape, self.element)
        if "y" in specs and "y" not in made:
            forward = {"x": made["x"], "y": made["dy"]}
            made["y"] = cast(xp, reduce_truth(xp, self.op.removesuffix("_backward"), forward).value, self.element)
        if "x" in made:
            made["x"] = LAYOUTS[self.lies](xp, made["x"])
        return {name: made[name] for name in specs}

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return reduce_truth(xp, self.op, operands)

    def plan(self) -> Plan:
        """The plan that is measured."""
        return select(self._descriptor)

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        plan = self.plan()

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            given = dict(operands)
            return lambda: plan.run(**given)

        return f"{plan.sku.variant} {BY_NAME[self.element].name} {plan.sku.arch.name}", bind
