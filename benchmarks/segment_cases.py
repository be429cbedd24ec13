"""Problems of the segment family: an op with extents, dtypes and a distribution of ids; and ids that are put in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numba_baracuda import OPS, PlanPreference, SegmentDescriptor, SegmentIndex, select
from numba_baracuda.arrays import arrays
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.plans.plan import Plan, target_of

from .case import Arrays, Bind, Spec, short
from .checks import Truth
from .segment_truths import segment_truth
from .values import cast, empty, factors, uniform

#: element of the permutation of a ``SegmentIndex``
PERMUTATION = "i32"
#: ops that read rows in the order of memory, and so need no permutation
_IN_PLACE = ("sum_backward", "mean_backward")

Ids = Callable[[Any, Any, int, int], Any]


def _fraction(xp: Any, rng: Any, rows: int, segments: int) -> Any:
    return xp.minimum((rng.random(rows) * segments).astype(xp.int64), segments - 1)


def _zipf(xp: Any, rng: Any, rows: int, segments: int) -> Any:
    share = xp.cumsum(xp.arange(1, segments + 1, dtype=xp.float64) ** -1.3)
    return xp.minimum(xp.searchsorted(share, rng.random(rows) * share[-1]), segments - 1)


#: How ids are drawn from [0, S); for ops that take sorted ids they are sorted afterwards.
#: uniform: each id alike. zipf: P(id = k) ∝ (k + 1)^−1.3, so that of 100,000 segments the first holds 26 % of the rows. even: uniform among
#: the even ids, half of the segments empty. each: row n has id n. hot: nine rows of ten in the middle segment, the others uniform.
DISTRIBUTIONS: dict[str, Ids] = {
    "uniform": _fraction,
    "zipf": _zipf,
    "even": lambda xp, rng, rows, segments: 2 * _fraction(xp, rng, rows, (segments + 1) // 2),
    "each": lambda xp, rng, rows, segments: xp.arange(rows),
    "hot": lambda xp, rng, rows, segments: xp.where(rng.random(rows) < 0.9, segments // 2, _fraction(xp, rng, rows, segments)),
}


@dataclass(frozen=True)
class SegmentCase:
    """A row of the segment family; arrays of one column are of rank 1.

    ``indexed``: the op takes an existing ``SegmentIndex``. ``variant`` overrides the choice of ``select``.
    """

    op: str
    ids: str
    rows: int
    columns: int
    segments: int
    element: str = "f32"
    index: str = "i32"
    deterministic: bool = True
    indexed: bool = False
    variant: str = ""

    @property
    def id(self) -> str:
        extents = f"{self.ids}-{short(self.rows)}x{self.columns}-S{short(self.segments)}"
        types = [type_ for type_, usual in ((self.element, "f32"), (self.index, "i32")) if type_ != usual]
        return "-".join([extents, *types, *self._choice()])

    def _choice(self) -> list[str]:
        """The parts of the id that name a variant, an index or ``deterministic=False``."""
        if self.indexed or self.variant:
            return [*(["indexed"] if self.indexed else []), *([self.variant] if self.variant else [])]
        choice = len({variant.deterministic for variant in OPS[self.op].variants}) > 1
        return ["deterministic" if self.deterministic else "any_order"] if choice else []

    @property
    def specs(self) -> dict[str, Spec]:
        extents = {"num_inputs": self.rows, "embedding_dim": self.columns, "num_segments": self.segments}
        found = {}
        for operand in OPS[self.op].operands:
            shape = tuple(extents[axis] for axis in operand.axes if axis != "embedding_dim" or self.columns != 1)
            element = (operand.element.split() or [self.index if operand.index else self.element])[0]
            found[operand.name] = Spec(shape, element, operand.output)
        return found

    @property
    def moved(self) -> dict[str, Spec]:
        """The operands, with the permutation and sorted ids of an index instead of ids."""
        found = self.specs
        if self.indexed and not self.op.endswith(_IN_PLACE):
            found["sorted_ids"] = found.pop("segment_ids")
            found["permutation"] = Spec((self.rows,), PERMUTATION)
        return found

    def tiny(self) -> SegmentCase:
        rows = max(8, 200 // self.columns)
        return replace(self, rows=rows, segments=max(min(3, self.segments), rows * self.segments // self.rows))

    def make(self, xp: Any) -> Arrays:
        rng, specs = xp.random.default_rng(7), self.specs
        ids = DISTRIBUTIONS[self.ids](xp, rng, self.rows, self.segments).astype(numpy_dtype(self.index))
        made = {"segment_ids": xp.sort(ids) if OPS[self.op].traits["ordered"] else ids}
        most = int(xp.bincount(ids).max()) if "prod" in self.op else 0
        for name, spec in specs.items():
            if spec.output:
                made[name] = empty(xp, spec.shape, spec.element)
            elif name == "input" and most:
                made[name] = factors(xp, rng, spec.shape, spec.element, most)
            elif name in ("input", "d_output"):
                made[name] = uniform(xp, rng, spec.shape, spec.element)
        if "output" in specs and "output" not in made:
            made["output"] = self._saved(xp, rng, made)
        return {name: made[name] for name in specs}

    def _saved(self, xp: Any, rng: Any, made: Arrays) -> Any:
        """The output of the forward op, which the gradient reads."""
        given = {"input": uniform(xp, rng, made["d_output"].shape, self.element), **made, "output": made["d_output"]}
        return cast(xp, segment_truth(xp, self.op.removesuffix("_backward"), given).value, self.element)

    def plan(self) -> Plan:
        """The plan that is measured."""
        indexed = "permuted" if self.indexed else ""
        descriptor = SegmentDescriptor(self.op, self.rows, self.columns, self.segments, self.element, self.index, indexed=indexed)
        if not self.variant:
            return select(descriptor, PlanPreference(deterministic=self.deterministic))
        op, target = OPS[self.op], target_of(-1 if arrays.emulating() else 0)
        variant = next(each for each in op.variants if each.name == self.variant)
        return Plan(op, descriptor, variant, target)

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return segment_truth(xp, self.op, operands)

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        plan = self.plan()

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            given = dict(operands)
            if self.indexed:
                given["segment_ids"] = SegmentIndex(given["segment_ids"], self.segments, is_sorted=False)
            return lambda: plan.run(**given)

        return f"{plan.sku.variant} {self.element} {self.index} {plan.sku.arch.name}", bind


@dataclass(frozen=True)
class IndexCase:
    """A ``SegmentIndex`` of ids in any order, which waits for the device to find that out, or is ``told``."""

    rows: int
    segments: int
    told: bool = False
    ids: str = "uniform"
    element: str = "i32"
    op: str = "SegmentIndex"
    indexed: bool = False

    @property
    def id(self) -> str:
        return f"{self.ids}-{short(self.rows)}-S{short(self.segments)}" + ("-told" if self.told else "")

    @property
    def specs(self) -> dict[str, Spec]:
        return {"segment_ids": Spec((self.rows,), self.element), "permutation": Spec((self.rows,), PERMUTATION, output=True)}

    @property
    def moved(self) -> dict[str, Spec]:
        """With what an index has besides."""
        ends = {"offsets": Spec((self.segments + 1,), PERMUTATION), "counts": Spec((self.segments,), PERMUTATION)}
        return {**self.specs, "sorted_ids": Spec((self.rows,), self.element), **ends}

    def tiny(self) -> IndexCase:
        return replace(self, rows=200, segments=max(3, 200 * self.segments // self.rows))

    def make(self, xp: Any) -> Arrays:
        ids = DISTRIBUTIONS[self.ids](xp, xp.random.default_rng(7), self.rows, self.segments).astype(numpy_dtype(self.element))
        return {"segment_ids": ids, "permutation": empty(xp, (self.rows,), PERMUTATION)}

    def truth(self, xp: Any, operands: Mapping[str, Any]) -> Truth:
        return Truth(xp.argsort(operands["segment_ids"], kind="stable"))

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        is_sorted = False if self.told else None

        def bind(operands: Arrays) -> Callable[[], None]:
            def call() -> None:
                operands["permutation"] = SegmentIndex(operands["segment_ids"], self.segments, is_sorted).permutation

            return call

        return f"SegmentIndex {self.element}", bind
