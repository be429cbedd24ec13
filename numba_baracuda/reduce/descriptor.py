"""Descriptors of reductions and their gradients: problems without arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..algebra import KernelMonoid
from ..core.dtypes import element
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import MAX_RANK, Layout, Op, typical_layouts
from ..core.options import Described, check_element, choice, correction, shape
from ..core.options import axes as reduced_axes
from ..core.vocabulary import Named, ReduceKind

TIES = ("first", "all", "even")
_NAMES = {ReduceKind.LOG_SUM_EXP: "logsumexp"}
_ARG = (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
#: result dtypes of kinds whose result is no element of the input; the first is the default
RESULTS: dict[Any, tuple[str, ...]] = dict.fromkeys(_ARG, ("i64", "i32")) | {
    ReduceKind.ANY: ("bool",),
    ReduceKind.ALL: ("bool",),
    ReduceKind.COUNT_NONZERO: ("i64",),
}


def op_name(kind: Any) -> str:
    """``reduce_sum`` for :attr:`ReduceKind.SUM`, its number or its name."""
    known = ReduceKind.parse(kind)
    return f"reduce_{_NAMES.get(known, known.name.lower())}"


@dataclass(frozen=True, eq=False)
class ReduceDescriptor(Described):
    """A reduction. ``kind`` is a :class:`ReduceKind`, its name or its number; ``reduce_axis`` is one axis, several, or None for all.

    The result has the shape ``output_shape``: that of the input with extent 1 for every reduced axis. ``correction`` is subtracted from the count in
    var and std. ``result`` is the dtype of the result where there is a choice: int64 or int32 for argmax and argmin.
    """

    kind: ReduceKind | str | int
    input_shape: tuple[int, ...]
    reduce_axis: Any
    element: str = "f32"
    correction: float = 1
    result: str = ""
    op_name: str = field(init=False)
    axes: tuple[int, ...] = field(init=False)
    family = "reduce"
    indexed = ""
    kinds: ClassVar[type[Named]] = ReduceKind

    def __post_init__(self) -> None:
        self._settle(op_name(self.kind))

    def _settle(self, name: str) -> None:
        set_field = object.__setattr__
        set_field(self, "op_name", name)
        set_field(self, "kind", self.kinds.parse(self.kind))
        set_field(self, "input_shape", shape(name, "input_shape", self.input_shape))
        set_field(self, "axes", reduced_axes(name, self.reduce_axis, len(self.input_shape)))
        set_field(self, "reduce_axis", self.axes)
        if min(self.input_shape, default=0) < 0:
            raise InvalidProblem(f"{name}: input_shape is {list(self.input_shape)}, wants extents of 0 or more")
        set_field(self, "element", element(self.element, name).name)
        usual = self.result is None or (isinstance(self.result, str) and not self.result)
        set_field(self, "result", RESULTS.get(self.kind, ("",))[0] if usual else element(self.result, name, "dtype").name)
        set_field(self, "correction", correction(name, self.correction))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(self.input_shape))

    @property
    def extent(self) -> int:
        """The number of elements that are reduced to one."""
        return math.prod(self.input_shape[axis] for axis in self.axes)

    @property
    def element_name(self) -> str:
        """Short name of the dtype of the values."""
        return self.element

    @property
    def index_name(self) -> str:
        """Short name of the result's dtype if it is not that of the values, else ""."""
        return self.result

    def corrected_count(self, monoid: KernelMonoid) -> float:
        """The count that a monoid's ``finish`` gets: elements of a row less the correction; 0 where ``finish`` does not use it."""
        return self.extent - (self.correction if monoid.corrected else 0) if monoid.counts else 0

    def check(self, op: Op) -> None:
        """Raises if no variant of the op could serve the problem."""
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")
        check_element(op, self.element)
        if self.result not in (op.indices or ("",)):
            raise Unsupported(f"{op.name}: the dtype of the result is {self.result}, wants one of {', '.join(op.indices) or op.elements}")
        if self.kind in _ARG and not self.extent:
            raise InvalidProblem(f"{op.name}: input_shape is {list(self.input_shape)}, wants at least one element along the reduced axes")

    def specialise(self, op: Op) -> Op:
        """The op itself: no argument of a reduction brings several operands."""
        return op

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Layouts that together need the largest workspace of all layouts."""
        return typical_layouts({operand.name: getattr(self, operand.axes[0]) for operand in op.operands})


@dataclass(frozen=True, eq=False)
class ReduceBackwardDescriptor(ReduceDescriptor):
    """The gradient of a reduction. ``input_shape`` is the shape of x and dx, ``dy_shape`` that of dy and y; ``ties`` is the rule of max and min."""

    ties: str = "all"

    def __post_init__(self) -> None:
        self._settle(f"{op_name(self.kind)}_backward")

    @property
    def dy_shape(self) -> tuple[int, ...]:
        """The shape of the result and of its gradient."""
        return self.output_shape

    def check(self, op: Op) -> None:
        """Raises if no variant of the op could serve the problem."""
        super().check(op)
        choice(op.name, "ties", self.ties, TIES)
