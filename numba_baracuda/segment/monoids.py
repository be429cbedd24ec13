"""``segment_reduce``: segment reductions by a user's monoid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..algebra import KernelMonoid, Monoid
from ..algebra.given import adopted, expected
from ..core.dtypes import BY_NAME, NUMBERS
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import Op, Variant
from ..core.options import flag, refusal
from ..core.vocabulary import MonoidKind, OpCategory
from ..plans.signatures import guarded
from .calls import function_of
from .descriptor import SegmentDescriptor, unless_any_order
from .ops import BINS, IDS, INPUT, OUTPUT, PAIRS, PERMUTED, SORTED
from .recipes import many

_TRAITS: dict[str, Any] = {"narrow": {}, "results": (), "empty": 0, "keywords": (), "notes": "", "backward": False}
_OP = Op(
    "segment_reduce", MonoidKind.SEGMENT_REDUCE, OpCategory.SEGMENT_OPS, "segment", "output[s] = finish(⊕ lift(input[n])) over segment_ids[n] = s",
    (INPUT, IDS, OUTPUT), (), NUMBERS, ("i32", "i64"), traits=_TRAITS,
)  # fmt: skip


def _in_order_only(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why rows may not be folded in another order."""
    return None if descriptor.monoid(op).commutes else "is for monoids that commute"


_UNSORTED = (SORTED, replace(BINS, refuses=unless_any_order(_in_order_only, many)), PAIRS, PERMUTED)


@functools.lru_cache(1024)
def _op_of(monoid: str, ordered: bool) -> Op:
    """The op of a monoid by the name that kernels know it by, over sorted ids or any."""
    variants = (SORTED, PERMUTED) if ordered else _UNSORTED
    return replace(_OP, variants=tuple(_named(each, monoid) for each in variants), traits=_TRAITS | {"monoid": monoid, "ordered": ordered})


def _named(variant: Variant, monoid: str) -> Variant:
    """The variant, with the monoid in its name."""
    return replace(variant, named=lambda op, descriptor, target: f"{variant.name}:{monoid}")


@dataclass(frozen=True, eq=False)
class SegmentReduceDescriptor(SegmentDescriptor):
    """A segment reduction by the user's monoid ``fold_by``; unless ``is_sorted``, ids are in any order.

    ``empty`` is a number, or None for ``finish(identity)``.
    """

    op_name: str = _OP.name
    num_inputs: int = 0
    embedding_dim: int = 1
    num_segments: int = 0
    fold_by: Monoid | None = None
    is_sorted: bool = True

    def __post_init__(self) -> None:
        expected(_OP.name, self.fold_by)
        object.__setattr__(self, "is_sorted", flag(_OP.name, "is_sorted", self.is_sorted))
        super().__post_init__()

    def find_op(self) -> Op:
        """The op of the monoid."""
        return _op_of(self._adopted.name, self.is_sorted)

    @property
    def accumulator(self) -> str:
        """Short name of the type that states are kept in."""
        return str(self._adopted.kind)

    @property
    def _adopted(self) -> KernelMonoid:
        return adopted(_OP.name, self.fold_by, self.element)

    def empty_value(self, op: Op) -> float:
        """The result of an empty segment."""
        if self.empty is not None:
            return super().empty_value(op)
        from ..kernels import given

        kind = BY_NAME[self.element]
        try:
            found = given.of_nothing(self._adopted.name)
        except Unsupported as error:
            raise Unsupported(f"{op.name}: finish(identity) cannot be computed here: {error}; wants empty=, a number") from error
        if kind.whole and not kind.limits[0] <= found <= kind.limits[1]:
            raise InvalidProblem(f"{op.name}: finish(identity) is {found}, wants a number that {self.element} holds, or empty=")
        return int(found) if kind.whole else found

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve, and for functions that cannot be compiled."""
        if isinstance(self.empty, str):
            raise refusal(op.name, "empty", self.empty, "a number or None")
        super().check(op)
        from ..kernels import given

        given.check(op.name, self.fold_by, self.element)
        self.empty_value(op)


@functools.lru_cache(1024)
def _function_of(monoid: Monoid, is_sorted: bool) -> Callable[..., Any]:
    return function_of(_OP, functools.partial(SegmentReduceDescriptor, fold_by=monoid, is_sorted=is_sorted))


@guarded
def segment_reduce(
    input: Any, segment_ids: Any, num_segments: int | None, monoid: Monoid, *, is_sorted: bool = True, empty: float | None = None,
    check_ids: bool = False, out: Any = None, stream: Any = None, workspace: Any = None,
) -> Any:  # fmt: skip
    """output[s] = finish(⊕ lift(input[n])) over segment_ids[n] = s

    in the order of the rows. ``monoid`` is a :class:`~numba_baracuda.Monoid`. Shapes: ``input`` [N, …], ``segment_ids`` [N], the result
    [``num_segments``, …]; the trailing axes may be any number up to rank 8, and none. Any operand may be a strided view. Values: float16, bfloat16,
    float32, float64, int32, int64, the result of the same dtype; ids: int32, int64, or a ``SegmentIndex``, with which ``num_segments`` may be None
    and nothing is sorted again. Ids ascend, or with ``is_sorted=False`` are in any order; those outside [0, num_segments) are dropped.

    Empty segments get ``finish`` of the identity, with a count of 0, or ``empty=``, a number. ``out=`` takes the result, ``stream=`` a
    stream or its handle, ``workspace=`` device bytes. ``check_ids=True`` waits for the device and raises ``InvalidProblem`` at the first id out of
    range or, of sorted ids, the first descent; other calls never wait. Every run gives the same bits.

    Raises ``InvalidProblem`` for arguments that contradict each other, ``Unsupported`` for dtypes that are not served and functions that Numba cannot
    compile.
    """
    function = _function_of(expected(_OP.name, monoid), flag(_OP.name, "is_sorted", is_sorted))
    return function(input, segment_ids, num_segments, empty=empty, check_ids=check_ids, out=out, stream=stream, workspace=workspace)
