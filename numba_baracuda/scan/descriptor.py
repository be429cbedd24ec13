"""The descriptors of the scan family: problems without their arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..core.dtypes import BY_NAME, element
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import MAX_RANK, Layout, Op, Operand, typical_layouts
from ..core.options import Described, axis, check_element, flag, representable, shape
from ..core.vocabulary import Named, ScanKind

_NAMES = {ScanKind.LOG_CUMSUM_EXP: "logcumsumexp"}
#: the number before the first element by default
BEGINNING = {
    ScanKind.CUMSUM: 0.0, ScanKind.CUMPROD: 1.0, ScanKind.CUMMAX: -math.inf, ScanKind.CUMMIN: math.inf, ScanKind.LOG_CUMSUM_EXP: -math.inf,
}  # fmt: skip
#: kinds whose results are elements, which have indices; and the dtypes of indices, and of sums and products of integers
INDEXED_KINDS, INDEX_ELEMENTS = (ScanKind.CUMMAX, ScanKind.CUMMIN), ("i64", "i32")
INDICES = Operand("indices", ("input_shape",), index=True, output=True)
#: kinds whose results of integers and truth values may be wider, and the dtypes of these results by element, the first by default
WIDENED = (ScanKind.CUMSUM, ScanKind.CUMPROD)
RESULTS = {"i64": ("i64",), "i32": ("i64", "i32"), "bool": ("i64", "i32")}


def op_name(kind: Any) -> str:
    """``cumsum`` for :attr:`ScanKind.CUMSUM`, its number or its name."""
    known = ScanKind.parse(kind)
    return _NAMES.get(known, known.name.lower())


def results_of(kind: Any, value: str) -> tuple[str, ...]:
    """Short names of the dtypes that results may have, the first by default."""
    return RESULTS.get(value, (value,)) if kind in WIDENED else (value,)


@dataclass(frozen=True, eq=False)
class ScanDescriptor(Described):
    """A scan: ``kind`` is a :class:`ScanKind`, its name or number; ``scan_axis`` the axis along which it runs, with ``reverse`` from its end.

    ``exclusive`` leaves each element out of its own result; ``initial`` is the value before the first element. With ``index``, "i64" or "i32", cummax
    and cummin have a second result, ``indices`` [the input's shape]. ``result`` is the dtype of the result where there is a choice: cumsum and
    cumprod of integers and truth values have int64 by default, and of int32 and bool may have int32.
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
    family = "scan"
    indexed = ""
    kinds: ClassVar[type[Named]] = ScanKind

    def __post_init__(self) -> None:
        self._settle(op_name(self.kind))

    def _settle(self, name: str) -> None:
        set_field = object.__setattr__
        set_field(self, "op_name", name)
        set_field(self, "kind", self.kinds.parse(self.kind))
        set_field(self, "input_shape", shape(name, "input_shape", self.input_shape))
        set_field(self, "scan_axis", axis(name, self.scan_axis, len(self.input_shape)))
        if min(self.input_shape, default=0) < 0:
            raise InvalidProblem(f"{name}: input_shape is {list(self.input_shape)}, wants extents of 0 or more")
        set_field(self, "element", element(self.element, name).name)
        set_field(self, "index", "" if isinstance(self.index, str) and not self.index else element(self.index, name, "index").name)
        usual = self.result is None or (isinstance(self.result, str) and not self.result)
        set_field(self, "result", results_of(self.kind, self.element)[0] if usual else element(self.result, name, "dtype").name)
        for each in ("reverse", "exclusive"):
            set_field(self, each, flag(name, each, getattr(self, each)))

    @property
    def beginning(self) -> float:
        """The number before the first element."""
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
        """Short name of the dtype of indices, else of results that differ from elements, else ""."""
        return self.index or (self.result if self.result != self.element else "")

    @property
    def accumulator(self) -> str:
        """Short name of the type of states."""
        return BY_NAME[self.result].accumulator

    def check(self, op: Op) -> None:
        """Raises for a problem that no variant of the op can serve."""
        if len(self.input_shape) > MAX_RANK:
            raise Unsupported(f"{op.name}: input_shape has {len(self.input_shape)} axes, wants at most {MAX_RANK}")
        check_element(op, self.element)
        if self.result not in results_of(self.kind, self.element):
            wants = " or ".join(BY_NAME[name].numpy_name for name in results_of(self.kind, self.element))
            got, value = BY_NAME[self.result].numpy_name, BY_NAME[self.element].numpy_name
            raise Unsupported(f"{op.name}: dtype is {got}, wants {wants} for a scan of {value}")
        if self.initial is not None:
            representable(op.name, "initial", self.initial, self.result, "a number or None")
        if self.index and (self.kind not in INDEXED_KINDS or self.index not in INDEX_ELEMENTS):
            wants = f"wants one of {', '.join(INDEX_ELEMENTS)}" if self.kind in INDEXED_KINDS else "wants none: its results are not elements"
            raise Unsupported(f"{op.name}: index is {self.index}, {wants}")

    def specialise(self, op: Op) -> Op:
        """The op, with the dtype of its result if that differs from the element, and with the operand ``indices`` if there are any."""
        if self.result != self.element:
            op = replace(op, operands=tuple(replace(each, element=self.result) if each.output else each for each in op.operands))
        return replace(op, operands=(*op.operands, INDICES)) if self.index else op

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Layouts that together need the largest workspace of all layouts."""
        return typical_layouts({operand.name: self.input_shape for operand in op.operands})


@dataclass(frozen=True, eq=False)
class ScanBackwardDescriptor(ScanDescriptor):
    """The gradient of a scan, with the fields of that scan."""

    @property
    def beginning(self) -> float:
        """The number before the first element of the scan, or of the gradient's own sum for cumsum."""
        return 0.0 if self.kind == ScanKind.CUMSUM else super().beginning

    def __post_init__(self) -> None:
        self._settle(f"{op_name(self.kind)}_backward")

    def check(self, op: Op) -> None:
        """Raises for a problem that no variant of the op can serve."""
        super().check(op)
        if self.index:
            raise Unsupported(f"{op.name}: index is {self.index}, wants none: a gradient has no indices")
