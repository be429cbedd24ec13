"""The descriptor of the segment family: a problem without its arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..algebra import KernelMonoid, monoid_of
from ..arrays.views import Bundle, View
from ..core.axes import c_strides
from ..core.dtypes import BY_NAME, element
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Layout, Op, Operand
from ..core.options import Described, check_element, choice, correction, flag, representable, whole
from ..core.vocabulary import Named

_EXTENTS = ("num_inputs", "embedding_dim", "num_segments")
_TIES, _INDEXED = ("first", "all", "even"), ("", "sorted", "permuted")
Refusal = Callable[[Op, Any], "str | None"]


class OrderedIds(Bundle):
    """The part of a :class:`SegmentIndex` that descriptors use: its number of segments, and whether its ids are ``"sorted"`` or ``"permuted"``."""

    num_segments: int
    descriptor_form: str


@dataclass(frozen=True, eq=False)
class SegmentDescriptor(Described):
    """A segment problem: ``num_inputs`` rows of ``embedding_dim`` elements, ids below ``num_segments``.

    ``op_name`` is the name in ``OPS``, or the ``SegmentKind``; ``element`` and ``index`` are the dtypes of values and ids, by name or kind. ``empty``
    is the value of empty segments: None for the op's own, a number, or ``"identity"``. ``check_ids`` makes every run wait for a check of the ids.
    ``indexed`` is the ``descriptor_form`` of a :class:`SegmentIndex`, ``"sorted"`` or ``"permuted"``, or "" for an array of ids. ``ties`` is the rule
    of gradients of max and min, ``correction`` what var and std subtract from the count. ``bounded=False`` puts every id of 0 or more in range, for
    gradients that have no row for each segment; ``num_segments`` is then ``num_inputs``, as there are no more. ``result`` is the dtype of the result
    where there is a choice (argmax and argmin: int64 or int32).
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
    bounded: bool = True
    result: str = ""
    family = "segment"
    extents = ("num_segments",)

    def __post_init__(self) -> None:
        if isinstance(self.op_name, Named):
            object.__setattr__(self, "op_name", self.op_name.name.lower())
        for name in _EXTENTS:
            object.__setattr__(self, name, whole(self.op_name, name, getattr(self, name), 0))
        object.__setattr__(self, "correction", correction(self.op_name, self.correction))
        object.__setattr__(self, "element", element(self.element, self.op_name).name)
        object.__setattr__(self, "index", element(self.index, self.op_name, "index").name)
        usual = self.result is None or (isinstance(self.result, str) and not self.result)
        object.__setattr__(self, "result", "" if usual else element(self.result, self.op_name, "dtype").name)
        for name in ("check_ids", "bounded"):
            object.__setattr__(self, name, flag(self.op_name, name, getattr(self, name)))

    @property
    def element_name(self) -> str:
        return self.element

    @property
    def index_name(self) -> str:
        return self.index

    @property
    def count_type(self) -> str:
        """An integer type that holds the number of rows of a segment."""
        return "i32" if self.num_inputs < 1 << 31 else "i64"

    @property
    def row_index_type(self) -> str:
        """An integer type that holds the index of a row."""
        return self.count_type

    @property
    def key_type(self) -> str:
        """An integer type that holds an id, and the number of segments."""
        return "i32" if self.limit < (1 << 31) - 1 else "i64"

    @property
    def limit(self) -> int:
        """Ids from 0 up to this one are in range; where they are not bounded, all but the greatest two of their type."""
        return self.num_segments if self.bounded else int(BY_NAME[self.index].limits[1]) - 1

    @property
    def row_size(self) -> int:
        """Bytes of a row of values."""
        return self.embedding_dim * BY_NAME[self.element].itemsize

    @property
    def finds_first_at_once(self) -> bool:
        """Whether one atomic finds an extreme and the first row that has it: a word of 64 bits holds both."""
        return BY_NAME[BY_NAME[self.element].accumulator].itemsize == 4

    def monoid(self, op: Op) -> KernelMonoid:
        """The monoid of the op."""
        return monoid_of(op.traits["narrow"].get(self.element, op.traits["monoid"]))

    def result_of(self, op: Op) -> str:
        """Short name of the dtype of the result."""
        return self.result or (*op.traits["results"], self.element)[0]

    def identity(self, op: Op) -> float:
        """The fold of no rows; of integers, within the element's range."""
        found, (least, greatest) = self.monoid(op).identity[0], BY_NAME[self.element].limits
        if not BY_NAME[self.element].whole:
            return found
        return least if found == -math.inf else greatest if found == math.inf else int(found)

    def empty_value(self, op: Op) -> float:
        """The result of an empty segment."""
        if self.empty == "identity":
            return self.identity(op)
        least, greatest = BY_NAME[self.element].limits
        given: Any = op.traits["empty"] if self.empty is None else self.empty
        number: Any = {"least": least, "greatest": greatest, "-inf": -math.inf}.get(given, given)
        return int(number) if BY_NAME[self.result_of(op)].whole else float(number)

    def counted(self, op: Op) -> bool:
        """Whether the result of a segment needs its count, if only to tell whether the segment is empty."""
        monoid = self.monoid(op)
        return monoid.counts or monoid.width > 1 or self.empty_value(op) != self.identity(op)

    def in_order(self, op: Op) -> bool:
        """Whether equal ids are neighbours."""
        return self.indexed == "sorted" or (op.traits["ordered"] and not self.indexed)

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        if not self.bounded and (needs_segments(op) or self.indexed or self.num_segments != self.num_inputs):
            wants = f"no index and num_segments = {self.num_inputs}, the rows" if not needs_segments(op) else "True: the op must know num_segments"
            raise InvalidProblem(f"{op.name}: bounded is False, wants {wants}")
        check_element(op, self.element)
        if self.index not in op.indices:
            raise Unsupported(f"{op.name}: index is {self.index}, wants one of {', '.join(op.indices)}")
        choice(op.name, "ties", self.ties, _TIES)
        choice(op.name, "indexed", self.indexed, _INDEXED)
        results = op.traits["results"]
        if self.result and self.result not in results:
            wants = f"one of {', '.join(results)}" if results else "none, as it is that of the values"
            raise Unsupported(f"{op.name}: the dtype of the result is {self.result}, wants {wants}")
        most = min(BY_NAME[self.element].distinct_positions, BY_NAME[self.result_of(op)].distinct_positions) if results else self.num_inputs + 1
        if self.num_inputs >= most:
            types = f"{self.element} and {self.result_of(op)} tell apart"
            raise Unsupported(f"{op.name}: num_inputs is {self.num_inputs}, wants fewer than {most}, the rows that {types}")
        if self.empty is not None and not (isinstance(self.empty, str) and self.empty == "identity" and not results):
            representable(op.name, "empty", self.empty, self.result_of(op), "a number or None" if results else "a number, 'identity' or None")

    def specialise(self, op: Op) -> Op:
        """The op with the dtype of its result, and with the operands that an index brings."""
        if op.traits["results"]:
            op = replace(op, operands=(*op.operands[:-1], replace(op.operands[-1], element=self.result_of(op))))
        if not self.indexed:
            return op
        elements = {"sorted_ids": self.key_type, "permutation": self.row_index_type, "counts": self.count_type}
        extents = {"counts": "num_segments"}
        parts = [
            Operand(name, (extents.get(name, "num_inputs"),), element=elements[name], part_of="segment_ids") for name in part_names(op, self.indexed)
        ]
        return replace(op, operands=(*op.operands[:-1], *parts, op.operands[-1]))

    def part(self, op: Op, given: Any, name: str) -> View:
        """An operand of the index that the descriptor names; the ids where it names none."""
        if not isinstance(given, OrderedIds):
            raise InvalidProblem(f"{op.name}: segment_ids is of type {type(given).__name__}, wants a SegmentIndex, as the descriptor says")
        if self.indexed and (given.descriptor_form, given.num_segments) != (self.indexed, self.num_segments):
            got = f"a {given.descriptor_form} SegmentIndex of {given.num_segments} segments"
            raise InvalidProblem(f"{op.name}: segment_ids is {got}, wants a {self.indexed} one of {self.num_segments}, as the descriptor says")
        return given.view_of(name)

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Contiguous operands at every alignment, then others, which together need the largest workspace that any layout needs.

        A layout decides how many columns of a lane are a vector, whether rows have one axis, and whether those of the inputs are contiguous.
        """
        for address in (0, 8, 4, 2):
            yield {operand.name: contiguous(operand, self, 0 if operand.output and operand.element else address) for operand in op.operands}
        for address in (8, 4, 2):
            yield {operand.name: contiguous(operand, self, address if operand.output and not operand.element else 0) for operand in op.operands}
        columns = self.embedding_dim
        divisor = next((each for each in range(2, math.isqrt(columns) + 1) if columns % each == 0), 1)
        for inner, gap in ((1, 1), (1, 2), (divisor, 2), *((vector, 1) for vector in (2, 4, 8) if columns % vector == 0)):
            yield {operand.name: _apart(operand, self, inner, gap) for operand in op.operands}


def part_names(op: Op, indexed: str) -> list[str]:
    """The operands that an index of this form brings for an op."""
    if not indexed:
        return []
    counts = ["counts"] if op.traits["backward"] and op.traits["monoid"] == "mean" else []
    return ["sorted_ids", *(["permutation"] if indexed == "permuted" else []), *counts]


def needs_segments(op: Op) -> bool:
    """Whether the number of segments must be known: by all ops but gradients that have no row for each segment."""
    return not op.traits["backward"] or any("num_segments" in operand.axes for operand in op.operands)


def contiguous(operand: Operand, descriptor: SegmentDescriptor, address: int = 0) -> Layout:
    """A contiguous operand of rank 1 or 2."""
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


def _apart(operand: Operand, descriptor: SegmentDescriptor, inner: int, gap: int) -> Layout:
    """An operand whose rows lie apart; their columns are in groups of ``inner`` that lie apart, too, and ``gap`` elements from one to the next."""
    made = contiguous(operand, descriptor)
    if len(made.shape) < 2:
        return made
    rows, columns = made.shape
    if inner == 1:
        return Layout(made.shape, (2 * columns * gap, gap))
    return Layout((rows, columns // inner, inner), (2 * columns * gap, 2 * inner * gap, gap))
