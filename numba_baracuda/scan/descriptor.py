"""The descriptors of the scan family: problems without their arrays."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..dtypes import BY_NAME, element
from ..errors import InvalidProblem, Unsupported
from ..op import MAX_RANK, Layout, Op, Operand, typical_layouts
from ..vocabulary import ScanKind

_NAMES = {ScanKind.LOG_CUMSUM_EXP: "logcumsumexp"}
#: what a scan begins with where nothing is given
BEGINNING = {
    ScanKind.CUMSUM: 0.0, ScanKind.CUMPROD: 1.0, ScanKind.CUMMAX: -math.inf, ScanKind.CUMMIN: math.inf, ScanKind.LOG_CUMSUM_EXP: -math.inf,
}  # fmt: skip
#: kinds whose results are elements, so that there are places of them, and the dtypes of these, or of sums and products of integers
PLACED, INDICES = (ScanKind.CUMMAX, ScanKind.CUMMIN), ("i64", "i32")
PLACES = Operand("indices", ("input_shape",), index=True, output=True)
#: kinds whose results of integers and truth values are wider, and the dtypes of these, the first by default
WIDENED = (ScanKind.CUMSUM, ScanKind.CUMPROD)
RESULTS = {"i64": ("i64",), "i32": ("i64", "i32"), "bool": ("i64", "i32")}


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


def results_of(kind: Any, value: str) -> tuple[str, ...]:
    """Short names of the dtypes that results may have, the first by default."""
    return RESULTS.get(value, (value,)) if kind in WIDENED else (value,)


def initial_number(where: str, given: Any, result: str) -> float:
    """What stands before the first element, as a number of the result's type."""
    if not isinstance(given, numbers.Real) or isinstance(given, bool):
        raise InvalidProblem(f"{where}: initial is {given!r}, wants a number or None")
    kind: Any = BY_NAME[result]
    if not kind.whole:
        return float(given)
    number: Any = given
    if not (kind.limits[0] <= number <= kind.limits[1] and number == int(number)):
        raise InvalidProblem(f"{where}: initial is {given!r}, wants a whole number that {kind.numpy_name}, the dtype of the result, holds")
    return int(number)


@dataclass(frozen=True)
class ScanDescriptor:
    """A scan: ``kind`` is a :class:`ScanKind`, its name or number; ``scan_axis`` the axis along which it goes, ``reverse`` from its end.

    ``exclusive`` leaves each element out of its own result; ``initial`` stands before the first element. With ``index``, int64 or int32, cummax and
    cummin have a second result, ``indices``. ``result`` is the dtype of the result where there is a choice: that of cumsum and cumprod of integers
    and truth values, int64 by default, may be int32, but not for int64.
    """

    kind: ScanKind | str | int
    input_shape: tuple[int, ...]
    scan_axis: int
    reverse: bool = False
    element: str = "f32"
    exclusive: bool = False
    initial: float | None = None
    index: str = ""
    result: str = ""
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
        set_field(self, "result", element(self.result).name if self.result else results_of(self.kind, self.element)[0])
        if self.initial is not None:
            set_field(self, "initial", initial_number(name, self.initial, self.result))

    @property
    def beginning(self) -> float:
        """What stands before the first element."""
        start: Any = BEGINNING[ScanKind.parse(self.kind)] if self.initial is None else self.initial
        if not BY_NAME[self.result].whole:
            return float(start)
        least, greatest = BY_NAME[self.result].limits
        return least if start == -math.inf else greatest if start == math.inf else int(start)

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
        """Short name of the dtype of indices, else of results that are no elements, else ""."""
        return self.index or (self.result if self.result != self.element else "")

    @property
    def accumulator(self) -> str:
        """Short name of the type that states are kept in."""
        return BY_NAME[self.result].accumulator

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        if self.element not in op.elements:
            raise Unsupported(f"{op.name}: element is {self.element}, wants one of {', '.join(op.elements)}")
        for extent in self.input_shape:
            if extent < 0:
                raise InvalidProblem(f"{op.name}: input_shape is {list(self.input_shape)}, wants extents of 0 or more")
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")
        if self.result not in results_of(self.kind, self.element):
            wants = " or ".join(BY_NAME[name].numpy_name for name in results_of(self.kind, self.element))
            got, value = BY_NAME[self.result].numpy_name, BY_NAME[self.element].numpy_name
            raise Unsupported(f"{op.name}: dtype is {got}, wants {wants} for a scan of {value}")
        if self.index and (self.kind not in PLACED or self.index not in INDICES):
            wants = f"wants one of {', '.join(INDICES)}" if self.kind in PLACED else "wants none: its results are no elements"
            raise Unsupported(f"{op.name}: index is {self.index}, {wants}")

    def specialise(self, op: Op) -> Op:
        """The op, with the dtype of its result where that is another, and with a second result where there are indices."""
        if self.result != self.element:
            op = replace(op, operands=tuple(replace(each, element=self.result) if each.output else each for each in op.operands))
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
