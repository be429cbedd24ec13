"""The problems of ``benchmarks.tune``: an op with a shape, and defaults for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numba_baracuda as nb
from numba_baracuda.core import registry
from numba_baracuda.core.axes import c_strides
from numba_baracuda.core.dtypes import BY_NAME, element
from numba_baracuda.core.errors import InvalidProblem
from numba_baracuda.core.op import Launch, Layout, Target
from numba_baracuda.core.options import axis as one_axis
from numba_baracuda.plans.plan import Plan

from .case import Arrays, Bind, Spec
from .reduce_cases import ReduceCase
from .scan_cases import ScanCase
from .segment_cases import SegmentCase
from .values import empty, uniform

#: names of a shape's numbers, by family
SHAPES = {"segment": "ROWS COLUMNS SEGMENTS", "reduce": "EXTENT…", "scan": "EXTENT…", "loss": "BT H V"}
#: the card that launches are printed for without a GPU
CARD = Target((9, 0), 132, 50 << 20)


class Problem(Protocol):
    """An op with a shape; the cases of ``benchmarks.run`` are problems."""

    @property
    def op(self) -> str:
        """Name in ``OPS``."""

    @property
    def id(self) -> str:
        """Names the problem."""

    @property
    def specs(self) -> dict[str, Spec]:
        """The operands in the op's order."""

    def make(self, xp: Any) -> Arrays:
        """The operands."""

    def plan(self) -> Plan:
        """The plan that is measured."""

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        """The kernel's name, and the function that makes the timed call."""


@dataclass(frozen=True)
class LossProblem:
    """The mean loss of a linear layer, with the gradients of input and weight; all targets count."""

    bt: int
    h: int
    v: int
    element: str
    op: str = "fused_linear_cross_entropy"

    @property
    def id(self) -> str:
        return f"{self.bt}x{self.h}x{self.v}" + ("" if self.element == "f32" else f"-{self.element}")

    @property
    def specs(self) -> dict[str, Spec]:
        rows, classes, wide = (self.bt, self.h), (self.v, self.h), BY_NAME[self.element].accumulator
        return {
            "input": Spec(rows, self.element), "weight": Spec(classes, self.element), "target": Spec((self.bt,), "i64"),
            "out": Spec((1,), wide, True), "grad_input": Spec(rows, self.element, True), "grad_weight": Spec(classes, self.element, True),
        }  # fmt: skip

    def make(self, xp: Any) -> Arrays:
        rng, specs = xp.random.default_rng(7), self.specs
        made = {name: uniform(xp, rng, specs[name].shape, self.element) for name in ("input", "weight")}
        made["target"] = rng.integers(0, self.v, self.bt)
        return made | {name: empty(xp, spec.shape, spec.element) for name, spec in specs.items() if spec.output}

    def plan(self) -> Plan:
        return nb.select(nb.FusedLinearCrossEntropyDescriptor(self.bt, self.h, self.v, self.element))

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        plan = self.plan()
        workspace = xp.empty(plan.workspace_size, xp.uint8)

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            return lambda: plan.run(workspace=workspace, **operands)

        return plan.sku.variant, bind


def problem_of(name: str, shape: list[int], dtype: str = "f32", index: str = "i32", axis: int = -1, any_order: bool = False) -> Problem:
    """The problem that a command line names; raises for a wrong one."""
    op = registry.find(name)
    value, ids = element(dtype, name).name, element(index, name, "index").name
    if value not in op.elements:
        raise InvalidProblem(f"{name}: dtype is {value}, wants one of {', '.join(op.elements)}")
    if min(shape) < 1 or (op.family in ("segment", "loss") and len(shape) != 3):
        raise InvalidProblem(f"{name}: shape is {shape}, wants {SHAPES[op.family]}, each 1 or more")
    if op.family == "segment":
        rows, columns, segments = shape
        return SegmentCase(name, "uniform", rows, columns, segments, value, ids, not any_order)
    if op.family == "loss":
        if name != LossProblem.op:
            raise InvalidProblem(f"{name} multiplies gradients in place, which nothing is tuned for; wants {LossProblem.op}")
        return LossProblem(shape[0], shape[1], shape[2], value)
    extents, along = tuple(shape), one_axis(name, axis, len(shape))
    return ReduceCase(name, extents, (along,), value) if op.family == "reduce" else ScanCase(name, extents, along, value, deterministic=not any_order)


def launches_of(problem: Problem, target: Target = CARD) -> list[Launch]:
    """The kernels that are launched for contiguous operands on a device."""
    plan = problem.plan()
    layouts = {name: Layout(spec.shape, c_strides(spec.shape), 0, spec.element) for name, spec in problem.specs.items()}
    return [step for step in plan.variant.recipe(plan.op, plan.descriptor, layouts, target).steps if isinstance(step, Launch)]
