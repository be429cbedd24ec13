"""The descriptors of the scan family: problems without their arrays."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..dtypes import element
from ..errors import InvalidProblem, Unsupported
from ..op import MAX_RANK, Layout, Op, Operand, typical_layouts
from ..vocabulary import ScanKind

_NAMES = {ScanKind.LOG_CUMSUM_EXP: "logcumsumexp"}
#: what a scan begins with where nothing is given
BEGINNING = {
    ScanKind.CUMSUM: 0.0, ScanKind.CUMPROD: 1.0, ScanKind.CUMMAX: -math.inf, ScanKind.CUMMIN: math.inf, ScanKind.LOG_CUMSUM_EXP: -math.inf,
}  # fmt: skip
#: kinds whose results are elements, so that there are places of them, and the dtypes of these
PLACED, INDICES = (ScanKind.CUMMAX, ScanKind.CUMMIN), ("i64", "i32")
PLACES = Operand("indices", ("input_shape",), index=True, output=True)


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
        wants = f"wants a number from {-rank} to {rank - 1} for {rank} axes" if rank else "wants an array of at least one axis"
        raise InvalidProblem(f"{where}: axis is {axis}, {wants}")
    return axis % rank


@dataclass(frozen=True)
class ScanDescriptor:
    """A scan: ``kind`` is a :class:`ScanKind`, its name or number; ``scan_axis`` the axis along which it goes, ``reverse`` from its end.

    ``exclusive`` leaves each element out of its own result; ``initial`` stands before the first element. With ``index``, int64 or int32, cummax and
    cummin have a second result, ``indices``.
    """

    kind: ScanKind | str | int
    input_shape: tuple[int, ...]
    scan_axis: int
    reverse: bool = False
    element: str = "f32"
    exclusive: bool = False
    initial: float | None = None
    index: str = ""
    op_name: str = field(init=False)
    indexed = ""

    def __post_init__(self) -> None:
        self._settle(op_name(self.kind))

    def _settle(self, name: str) -> None:
        set_field = object.__setattr__
        set_field(self, "op_name", name)
        set_field(self, "kind", ScanKind.parse(self.kind))
        set_field(self, "element", element(self.element).name)
        set_field(self, "index", element(self.index).name if self.index else "")
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
    def extent(self) -> int:
        """Elements along the axis."""
        return self.input_shape[self.scan_axis]

    @property
    def element_name(self) -> str:
        """Short name of the dtype of the values."""
        return self.element

    @property
    def index_name(self) -> str:
        """Short name of the dtype of indices, "" without them."""
        return self.index

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        if self.element not in op.elements:
            raise Unsupported(f"{op.name}: element is {self.element}, wants one of {', '.join(op.elements)}")
        for extent in self.input_shape:
            if extent < 0:
                raise InvalidProblem(f"{op.name}: input_shape is {list(self.input_shape)}, wants extents of 0 or more")
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")
        if self.index and (self.kind not in PLACED or self.index not in INDICES):
            wants = f"wants one of {', '.join(INDICES)}" if self.kind in PLACED else "wants none: its results are no elements"
            raise Unsupported(f"{op.name}: index is {self.index}, {wants}")

    def specialise(self, op: Op) -> Op:
        """The op, with a second result where there are indices."""
        return replace(op, operands=(*op.operands, PLACES)) if self.index else op

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Those that together need the largest workspace that any layout needs."""
        return typical_layouts({operand.name: self.input_shape for operand in op.operands})


@dataclass(frozen=True)
class ScanBackwardDescriptor(ScanDescriptor):
    """The gradient of a scan, described as that is."""

    @property
    def beginning(self) -> float:
        """What stands before the first element of the scan, or of its gradient where that is a sum."""
        return 0.0 if self.kind == ScanKind.CUMSUM else super().beginning

    def __post_init__(self) -> None:
        self._settle(f"{op_name(self.kind)}_backward")

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        super().check(op)
        if self.index:
            raise Unsupported(f"{op.name}: index is {self.index}, wants none: a gradient has no indices")
