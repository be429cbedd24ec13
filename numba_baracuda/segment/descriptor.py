"""The descriptor of the segment family: a problem without its arrays."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..algebra import Monoid, monoid_of
from ..dtypes import BY_NAME, element
from ..errors import InvalidProblem, Unsupported
from ..monoid import correction_of
from ..op import Layout, Op, Operand
from ..views import c_strides
from ..vocabulary import SegmentKind

_EXTENTS = ("num_inputs", "embedding_dim", "num_segments")
_TIES, _INDEXED = ("first", "all", "even"), ("", "sorted", "permuted")
Refusal = Callable[[Op, Any], "str | None"]


def whole(where: str, name: str, given: Any) -> int:
    """An extent as int; an array or a tensor of one element is refused, as reading it may wait for the device."""
    if isinstance(given, numbers.Integral) and not isinstance(given, bool):
        return int(given)
    raise InvalidProblem(f"{where}: {name} is {given!r}, wants a whole number, 0 or more")


@dataclass(frozen=True)
class SegmentDescriptor:
    """A segment problem: ``num_inputs`` rows of ``embedding_dim`` elements, ids below ``num_segments``.

    ``op_name`` is the name in ``OPS``, or the :class:`SegmentKind`; ``element`` and ``index`` are the dtypes of values and ids, by name or kind.
    ``empty`` is the value of empty segments: None for the op's own, a number, or ``"identity"``. ``check_ids`` makes every run wait for a check of
    the ids. ``indexed`` says that ids come as a :class:`SegmentIndex`: its ``descriptor_form``, ``"sorted"`` or ``"permuted"``. ``ties`` is the
    rule of gradients of max and min, ``correction`` what var and std take from the count.
    """

    op_name: str
    num_inputs: int
    embedding_dim: int
    num_segments: int
    element: str = "f32"
    index: str = "i32"
    empty: float | str | None = None
    check_ids: bool = False
    indexed: str = ""
    ties: str = "first"
    correction: float = 1

    def __post_init__(self) -> None:
        if isinstance(self.op_name, SegmentKind):
            object.__setattr__(self, "op_name", self.op_name.name.lower())
        for name in _EXTENTS:
            object.__setattr__(self, name, whole(self.op_name, name, getattr(self, name)))
        object.__setattr__(self, "correction", correction_of(self.op_name, self.correction))
        object.__setattr__(self, "element", element(self.element).name)
        object.__setattr__(self, "index", element(self.index).name)

    @property
    def element_name(self) -> str:
        return self.element

    @property
    def index_name(self) -> str:
        return self.index

    @property
    def count_type(self) -> str:
        """An integer that holds the rows of one segment."""
        return "i32" if self.num_inputs < 1 << 31 else "i64"

    @property
    def place_type(self) -> str:
        """An integer that holds a row's place."""
        return self.count_type

    @property
    def key_type(self) -> str:
        """An integer that holds an id, or the number of segments in its stead."""
        return "i32" if self.num_segments < (1 << 31) - 1 else "i64"

    @property
    def row_size(self) -> int:
        """Bytes of a row of values."""
        return self.embedding_dim * BY_NAME[self.element].itemsize

    def monoid(self, op: Op) -> Monoid:
        """What the op folds by."""
        return monoid_of(op.traits["narrow"].get(self.element, op.traits["monoid"]))

    def identity(self, op: Op) -> float:
        """What the fold of nothing is, in the element's range if that is one of integers."""
        found, (least, greatest) = self.monoid(op).identity[0], BY_NAME[self.element].limits
        if not BY_NAME[self.element].whole:
            return found
        return least if found == -math.inf else greatest if found == math.inf else int(found)

    def empty_value(self, op: Op) -> float:
        """What an empty segment gets."""
        if self.empty == "identity":
            return self.identity(op)
        least, greatest = BY_NAME[self.element].limits
        given: Any = op.traits["empty"] if self.empty is None else self.empty
        number: Any = {"least": least, "greatest": greatest, "-inf": -math.inf}.get(given, given)
        return int(number) if BY_NAME[self.element].whole else float(number)

    def counted(self, op: Op) -> bool:
        """Whether the result of a segment wants its count, be it only to tell that it is empty."""
        monoid = self.monoid(op)
        return monoid.counts or monoid.width > 1 or self.empty_value(op) != self.identity(op)

    def in_order(self, op: Op) -> bool:
        """Whether equal ids are neighbours."""
        return self.indexed == "sorted" or (op.traits["ordered"] and not self.indexed)

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        for name in _EXTENTS:
            if getattr(self, name) < 0:
                raise InvalidProblem(f"{op.name}: {name} is {getattr(self, name)!r}, wants a whole number, 0 or more")
        if self.element not in op.elements:
            raise Unsupported(f"{op.name}: element is {self.element}, wants one of {', '.join(op.elements)}")
        if self.index not in op.indices:
            raise Unsupported(f"{op.name}: index is {self.index}, wants one of {', '.join(op.indices)}")
        for name, wanted in (("ties", _TIES), ("indexed", _INDEXED)):
            if getattr(self, name) not in wanted:
                raise InvalidProblem(f"{op.name}: {name} is {getattr(self, name)!r}, wants one of {', '.join(map(repr, wanted))}")
        if self.empty is not None and self.empty != "identity":
            self._check_empty(op, self.empty)

    def _check_empty(self, op: Op, given: Any) -> None:
        kind = BY_NAME[self.element]
        if not isinstance(given, numbers.Real):
            raise InvalidProblem(f"{op.name}: empty is {given!r}, wants a number, 'identity' or None")
        empty: Any = given
        outside = (kind.whole or math.isfinite(empty)) and not kind.limits[0] <= empty <= kind.limits[1]
        if outside or (kind.whole and empty != int(empty)):
            raise InvalidProblem(f"{op.name}: empty is {empty!r}, wants a number that {self.element} holds")

    def specialise(self, op: Op) -> Op:
        """The op with what an index brings along among its operands."""
        if not self.indexed:
            return op
        parts = [Operand("sorted_ids", ("num_inputs",), element=self.key_type, part_of="segment_ids")]
        if self.indexed == "permuted":
            parts.append(Operand("permutation", ("num_inputs",), element=self.place_type, part_of="segment_ids"))
        if op.traits["monoid"] == "mean" and op.traits["backward"]:
            parts.append(Operand("counts", ("num_segments",), element=self.count_type, part_of="segment_ids"))
        return replace(op, operands=(*op.operands[:-1], *parts, op.operands[-1]))

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Contiguous operands at every alignment, which together need the largest workspace that any layout needs."""
        for address in (0, 8, 4, 2):
            yield {operand.name: contiguous(operand, self, address) for operand in op.operands}


def contiguous(operand: Operand, descriptor: SegmentDescriptor, address: int = 0) -> Layout:
    """An operand of rank 1 or 2, its rows side by side."""
    shape = tuple(getattr(descriptor, axis) for axis in operand.axes)
    return Layout(shape, c_strides(shape), address)


def out_of_order(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why equal ids may not be neighbours."""
    return None if descriptor.in_order(op) else "wants ids in order"


def unless_any_order(*refusals: Refusal) -> Refusal:
    """A refusal of ids in order, and of those with an index, before others."""

    def refuses(op: Op, descriptor: SegmentDescriptor) -> str | None:
        if op.traits["ordered"] or descriptor.indexed:
            return "is for ids in any order, without an index"
        return next(filter(None, (refusal(op, descriptor) for refusal in refusals)), None)

    return refuses
