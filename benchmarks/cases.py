"""What is measured: a case is an op, or a kernel of a user's, with extents, dtypes and a distribution of ids.

A family is a function in ``FAMILIES`` that yields cases; whatever else meets :class:`Case` is checked, timed and compared alike.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numba_baracuda import OPS, PlanPreference, SegmentDescriptor, arrays, select
from numba_baracuda.dtypes import BY_NAME, numpy_dtype

Arrays = dict[str, Any]
#: from one set of operands to the call that is timed
Bind = Callable[[Mapping[str, Any]], Callable[[], None]]


@dataclass(frozen=True)
class Spec:
    """An operand before it is made."""

    shape: tuple[int, ...]
    element: str
    output: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * BY_NAME[self.element].itemsize


class Case(Protocol):
    """A problem to measure."""

    @property
    def op(self) -> str:
        """Name in ``OPS``, or of the kernel."""

    @property
    def id(self) -> str:
        """Unique among the cases of the op."""

    @property
    def specs(self) -> dict[str, Spec]:
        """The operands in the op's order."""

    def tiny(self) -> Case:
        """The same case small enough for the emulator."""

    def make(self, xp: Any) -> Arrays:
        """The operands, the same ones every time; outputs are not initialised."""

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        """Who runs it, by name, and how: through the public API, with ``out=`` and ``workspace=`` given."""


def nbytes(case: Case) -> int:
    """What a case must move: every operand once."""
    return sum(spec.nbytes for spec in case.specs.values())


def short(number: int) -> str:
    """``2M``, ``7.3M``, ``100k``, ``37``."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number / unit:.1f}".removesuffix(".0") + name
    return str(number)


Ids = Callable[[Any, Any, int, int], Any]


def _fraction(xp: Any, rng: Any, rows: int, segments: int) -> Any:
    return xp.minimum((rng.random(rows) * segments).astype(xp.int64), segments - 1)


def _zipf(xp: Any, rng: Any, rows: int, segments: int) -> Any:
    share = xp.cumsum(xp.arange(1, segments + 1, dtype=xp.float64) ** -1.3)
    return xp.minimum(xp.searchsorted(share, rng.random(rows) * share[-1]), segments - 1)


#: How ids are drawn from [0, S); for ops that take sorted ids they are sorted afterwards.
#: uniform: each id alike. zipf: P(id = k) ∝ (k + 1)^−1.3, so that of 100,000 segments the first holds 26 % of the rows. even: uniform among
#: the even ids, half of the segments empty. each: row n has id n.
DISTRIBUTIONS: dict[str, Ids] = {
    "uniform": _fraction,
    "zipf": _zipf,
    "even": lambda xp, rng, rows, segments: 2 * _fraction(xp, rng, rows, (segments + 1) // 2),
    "each": lambda xp, rng, rows, segments: xp.arange(rows),
}


def _random(rng: Any, xp: Any, spec: Spec) -> Any:
    """Uniform in [−½, ½)."""
    values = rng.random(spec.shape, dtype=numpy_dtype(spec.element).type)
    values -= 0.5
    return values


@dataclass(frozen=True)
class SegmentCase:
    """A row of the segment family; arrays of one column are of rank 1."""

    op: str
    ids: str
    rows: int
    columns: int
    segments: int
    element: str = "f32"
    index: str = "i32"
    deterministic: bool = True

    @property
    def id(self) -> str:
        extents = f"{self.ids}-{short(self.rows)}x{self.columns}-S{short(self.segments)}"
        types = "".join(f"-{type_}" for type_, usual in ((self.element, "f32"), (self.index, "i32")) if type_ != usual)
        choice = len({variant.deterministic for variant in OPS[self.op].variants}) > 1
        return extents + types + (("-deterministic" if self.deterministic else "-any_order") if choice else "")

    @property
    def specs(self) -> dict[str, Spec]:
        extents = {"num_inputs": self.rows, "embedding_dim": self.columns, "num_segments": self.segments}
        found = {}
        for operand in OPS[self.op].operands:
            shape = tuple(extents[axis] for axis in operand.axes if axis != "embedding_dim" or self.columns != 1)
            found[operand.name] = Spec(shape, self.index if operand.index else self.element, operand.output)
        return found

    def tiny(self) -> SegmentCase:
        rows = max(8, 200 // self.columns)
        return replace(self, rows=rows, segments=max(min(3, self.segments), rows * self.segments // self.rows))

    def make(self, xp: Any) -> Arrays:
        rng = xp.random.default_rng(7)
        made = {}
        for name, spec in self.specs.items():
            if spec.output:
                made[name] = xp.empty(spec.shape, numpy_dtype(spec.element))
            elif name == "segment_ids":
                ids = DISTRIBUTIONS[self.ids](xp, rng, self.rows, self.segments).astype(numpy_dtype(spec.element))
                made[name] = xp.sort(ids) if OPS[self.op].traits["ordered"] else ids
            else:
                made[name] = _random(rng, xp, spec)
        return made

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        descriptor = SegmentDescriptor(self.op, self.rows, self.columns, self.segments, self.element, self.index)
        plan = select(descriptor, PlanPreference(deterministic=self.deterministic))
        workspace = xp.empty(plan.workspace_size, xp.uint8) if plan.workspace_size else None
        sku = plan.sku
        return f"{sku.variant} {self.element} {self.index} {sku.arch.name}", lambda operands: lambda: plan.run(workspace=workspace, **operands)


def segment_cases() -> Iterator[Case]:
    """Sorted and unsorted sums and means, forward and backward."""
    million, cells = 1_000_000, 1 << 28
    large = [("uniform", 2 * million, 128, 100_000), ("zipf", 2 * million, 128, 100_000), ("uniform", 20 * million, 16, million)]
    large.append(("uniform", 100 * million, 1, million))
    edges = [("uniform", 2 * million, 128, 1), ("each", million, 128, million), ("even", 2 * million, 128, 200_000)]
    odd = [("uniform", cells // columns, columns, cells // columns // 20) for columns in (37, 100, 257)]
    for op in ("segment_sum", "segment_mean"):
        for extents in [*large, *edges, *odd]:
            yield SegmentCase(op, *extents)
        yield SegmentCase(op, "uniform", 2 * million, 64, 100_000, element="f64")
    for deterministic in (True, False):
        for extents in large:
            yield SegmentCase("unsorted_segment_sum", *extents, deterministic=deterministic)
    for op in ("segment_sum", "segment_mean", "unsorted_segment_sum", "unsorted_segment_mean"):
        for extents in large:
            if extents[0] == "uniform":
                yield SegmentCase(f"{op}_backward", *extents)


@dataclass(frozen=True)
class RowSumCase:
    """The kernel of ``benchmarks/rowsum.py``, as a user of ``numba.cuda.jit`` and the device library would write and launch it."""

    rows: int
    columns: int
    op: str = "row_sum"

    @property
    def id(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def specs(self) -> dict[str, Spec]:
        return {"x": Spec((self.rows, self.columns), "f32"), "y": Spec((self.rows,), "f32", output=True)}

    def tiny(self) -> RowSumCase:
        return replace(self, rows=2, columns=300)

    def make(self, xp: Any) -> Arrays:
        specs = self.specs
        return {"x": _random(xp.random.default_rng(7), xp, specs["x"]), "y": xp.empty(specs["y"].shape, xp.float32)}

    def prepare(self, xp: Any) -> tuple[str, Bind]:
        from numba import cuda

        from . import rowsum

        if arrays.emulating():
            from numba_baracuda.device.emulate import emulate

            kernel: Any = emulate(rowsum.row_sum)
        else:
            kernel = rowsum.row_sum
        launched = kernel[rowsum.launch(self.rows, self.columns)]

        def bind(operands: Mapping[str, Any]) -> Callable[[], None]:
            x, y = operands["x"].reshape(-1), operands["y"]
            if not arrays.emulating():  # given CuPy arrays, every launch would wait for their stream
                x, y = cuda.as_cuda_array(x), cuda.as_cuda_array(y)
            return lambda: launched(x, y, self.columns)

        return "row_sum f32", bind


def kernel_cases() -> Iterator[Case]:
    """Kernels that are not ops."""
    from .permuted import permuted_cases

    yield RowSumCase(16384, 16384)
    yield from permuted_cases()


FAMILIES = (segment_cases, kernel_cases)


def matching(op: str = "*", case: str = "*") -> list[Case]:
    """The cases whose op and id match two patterns of the shell."""
    every = (each for family in FAMILIES for each in family())
    return [each for each in every if fnmatch.fnmatchcase(each.op, op) and fnmatch.fnmatchcase(each.id, case)]
