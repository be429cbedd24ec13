"""The descriptors of the scan family: problems without their arrays."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import element
from ..errors import InvalidProblem, Unsupported
from ..op import MAX_RANK, Layout, Op
from ..reduce.descriptor import contiguous, transposed
from ..views import c_strides
from ..vocabulary import ScanKind

_NAMES = {ScanKind.LOG_CUMSUM_EXP: "logcumsumexp"}
#: what a scan begins with where nothing is given
BEGINNING = {
    ScanKind.CUMSUM: 0.0, ScanKind.CUMPROD: 1.0, ScanKind.CUMMAX: -math.inf, ScanKind.CUMMIN: math.inf, ScanKind.LOG_CUMSUM_EXP: -math.inf,
}  # fmt: skip


def op_name(kind: Any) -> str:
    """``cumsum`` for :attr:`ScanKind.CUMSUM`, its number or its name."""
    known = ScanKind.parse(kind)
    return _NAMES.get(known, known.name.lower())


def scanned_axis(where: str, given: Any, rank: int) -> int:
    """The axis that an ``axis`` names; negative ones count from the end."""
    if not isinstance(given, numbers.Integral) or isinstance(given, bool):
        raise InvalidProblem(f"{where}: axis is {given!r}, wants a whole number")
    axis = int(given)
    if not -rank <= axis < rank:
        raise InvalidProblem(f"{where}: axis is {axis}, wants a number from {-rank} to {rank - 1} for {rank} axes")
    return axis % rank


@dataclass(frozen=True)
class ScanDescriptor:
    """A scan: ``kind`` is a :class:`ScanKind`, its name or number; ``scan_axis`` the axis along which it goes, ``reverse`` from its end.

    ``exclusive`` leaves each element out of its own result; ``initial`` stands before the first element.
    """

    kind: ScanKind | str | int
    input_shape: tuple[int, ...]
    scan_axis: int
    reverse: bool = False
    element: str = "f32"
    exclusive: bool = False
    initial: float | None = None
    op_name: str = field(init=False)
    indexed = index_name = ""

    def __post_init__(self) -> None:
        name, set_field = op_name(self.kind), object.__setattr__
        set_field(self, "op_name", name)
        set_field(self, "kind", ScanKind.parse(self.kind))
        set_field(self, "element", element(self.element).name)
        for extent in self.input_shape:
            if not isinstance(extent, numbers.Integral) or isinstance(extent, bool):
                raise InvalidProblem(f"{name}: input_shape is {self.input_shape!r}, wants whole numbers")
        set_field(self, "input_shape", tuple(map(int, self.input_shape)))
        set_field(self, "scan_axis", scanned_axis(name, self.scan_axis, len(self.input_shape)))
        for flag in ("reverse", "exclusive"):
            if not isinstance(getattr(self, flag), bool):
                raise InvalidProblem(f"{name}: {flag} is {getattr(self, flag)!r}, wants True or False")
        if self.initial is not None:
            if not isinstance(self.initial, numbers.Real) or isinstance(self.initial, bool):
                raise InvalidProblem(f"{name}: initial is {self.initial!r}, wants a number or None")
            set_field(self, "initial", float(self.initial))

    @property
    def beginning(self) -> float:
        """What stands before the first element."""
        return BEGINNING[ScanKind.parse(self.kind)] if self.initial is None else self.initial

    @property
    def element_name(self) -> str:
        """Short name of the dtype of the values."""
        return self.element

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        if self.element not in op.elements:
            raise Unsupported(f"{op.name}: element is {self.element}, wants one of {', '.join(op.elements)}")
        for extent in self.input_shape:
            if extent < 0:
                raise InvalidProblem(f"{op.name}: input_shape is {list(self.input_shape)}, wants extents of 0 or more")
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")

    def specialise(self, op: Op) -> Op:
        """The op itself: no argument brings others along."""
        return op

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Operands at every alignment, transposed ones, and both with gaps."""
        names = [operand.name for operand in op.operands]
        for address in (0, 8, 4, 2):
            yield {name: contiguous(self.input_shape, address) for name in names}
        for gap in (1, 2):
            yield {name: transposed(self.input_shape, gap) for name in names}
        yield {name: Layout(self.input_shape, tuple(2 * stride for stride in c_strides(self.input_shape))) for name in names}
