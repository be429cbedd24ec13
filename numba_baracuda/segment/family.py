"""The descriptor of the segment family and its calls: ``op(arrays …)`` describes the problem, selects the plan and runs it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import allocation, arrays, plan, streams
from ..dtypes import BY_NAME, element, numpy_dtype
from ..errors import InvalidProblem, Unsupported
from ..op import MAX_RANK, Layout, Op, Operand
from ..plan import PlanPreference
from ..views import View, c_strides, remember
from ..vocabulary import SegmentKind

_EXTENTS = ("num_inputs", "embedding_dim", "num_segments")


def _whole(where: str, name: str, given: Any) -> int:
    """An extent as int; an array or a tensor of one element is refused, as reading it may wait for the device."""
    if isinstance(given, numbers.Integral) and not isinstance(given, bool):
        return int(given)
    raise InvalidProblem(f"{where}: {name} is {given!r}, wants a whole number, 0 or more")


@dataclass(frozen=True)
class SegmentDescriptor:
    """A segment problem: ``num_inputs`` rows of ``embedding_dim`` elements, ids below ``num_segments``.

    ``op_name`` is the name in ``OPS``, or the :class:`SegmentKind`; ``element`` and ``index`` are the dtypes of values and ids, by name or kind.
    ``empty`` is the value of empty segments: None for the op's own (0 for sum and mean), a number, or ``"identity"``. ``check_ids`` makes every run
    wait for a check of the ids.
    """

    op_name: str
    num_inputs: int
    embedding_dim: int
    num_segments: int
    element: str = "f32"
    index: str = "i32"
    empty: float | str | None = None
    check_ids: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.op_name, SegmentKind):
            object.__setattr__(self, "op_name", self.op_name.name.lower())
        for name in _EXTENTS:
            object.__setattr__(self, name, _whole(self.op_name, name, getattr(self, name)))
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

    def empty_value(self, op: Op) -> float:
        """What an empty segment gets."""
        if self.empty is None:
            return float(op.traits["empty"])
        return float(op.traits["monoid"].identity[0]) if self.empty == "identity" else float(self.empty)

    def check(self, op: Op) -> None:
        """Raises for what no variant of the op could serve."""
        for name in _EXTENTS:
            extent = getattr(self, name)
            if extent < 0:
                raise InvalidProblem(f"{op.name}: {name} is {extent!r}, wants a whole number, 0 or more")
        if self.element not in op.elements:
            raise Unsupported(f"{op.name}: element is {self.element}, wants one of {', '.join(op.elements)}")
        if self.index not in op.indices:
            raise Unsupported(f"{op.name}: index is {self.index}, wants one of {', '.join(op.indices)}")
        if self.empty is not None and self.empty != "identity":
            if not isinstance(self.empty, numbers.Real):
                raise InvalidProblem(f"{op.name}: empty is {self.empty!r}, wants a number, 'identity' or None")
            if math.isfinite(self.empty) and abs(self.empty) > float(np.finfo(numpy_dtype(self.element)).max):
                raise InvalidProblem(f"{op.name}: empty is {self.empty!r}, wants a number that {self.element} holds")

    def typical_layouts(self, op: Op) -> Iterator[dict[str, Layout]]:
        """Contiguous operands at every alignment, which together need the largest workspace that any layout needs."""
        for address in (0, 8, 4, 2):
            yield {operand.name: contiguous(operand, self, address) for operand in op.operands}


def contiguous(operand: Operand, descriptor: SegmentDescriptor, address: int = 0) -> Layout:
    shape = tuple(getattr(descriptor, axis) for axis in operand.axes)
    return Layout(shape, c_strides(shape), address)


def _rows(view: View, op: Op) -> tuple[int, int]:
    """Leading extent and product of the others."""
    shape = view.shape
    if not shape or len(shape) > MAX_RANK:
        error = InvalidProblem if not shape else Unsupported
        raise error(f"{op.name}: {view.name} has {len(shape)} axes, wants 1 to {MAX_RANK}")
    columns = 1
    for extent in shape[1:]:
        columns *= extent
    return shape[0], columns


_plans: dict[Any, plan.Plan] = {}


def call(
    op: Op, given: Sequence[Any], num_segments: int | None, out: Any, stream: Any, workspace: Any,
    empty: float | str | None = None, check_ids: bool = False, deterministic: bool = True,
) -> Any:  # fmt: skip
    """The functional form of every op of the family: views, plan, output, run."""
    *inputs, output = op.operands
    views = [arrays.view(array, op.name, operand.name) for array, operand in zip(given, inputs, strict=True)]
    first, ids = views[0], views[-1]
    forward = output.axes[0] == "num_segments"
    if forward and num_segments is None:
        raise InvalidProblem(f"{op.name}: num_segments is None, wants the number of segments; finding it in segment_ids would wait for the device")
    if forward and type(num_segments) is not int:
        num_segments = _whole(op.name, "num_segments", num_segments)
    if not (empty is None or isinstance(empty, (str, numbers.Real))):
        raise InvalidProblem(f"{op.name}: empty is of type {type(empty).__name__}, wants a number, 'identity' or None")
    key = (op.name, first.form, ids.form, num_segments, empty, check_ids, deterministic)
    made = _plans.get(key)
    if made is None:
        extent, columns = _rows(first, op)
        rows = _rows(ids, op)[0]
        descriptor = SegmentDescriptor(
            op.name, rows, columns, num_segments if num_segments is not None else extent, first.element, ids.element, empty, check_ids
        )
        made = remember(_plans, key, plan.select(descriptor, PlanPreference(deterministic=deterministic), device=first.device))
    handle = streams.stream_handle(stream, first)
    if out is None:
        shape = (getattr(made.descriptor, output.axes[0]), *first.shape[1:])
        out = allocation.empty(first, shape, first.element, handle)
    views.append(arrays.view(out, op.name, output.name))
    made.execute(views, handle, workspace)
    return out


def forward_call(op: Op) -> Callable[..., Any]:
    """``op(input, segment_ids, num_segments)``."""

    def run(
        input: Any, segment_ids: Any, num_segments: int | None = None, *, out: Any = None, stream: Any = None, workspace: Any = None,
        empty: float | str | None = None, check_ids: bool = False, deterministic: bool = True,
    ) -> Any:  # fmt: skip
        return call(op, (input, segment_ids), num_segments, out, stream, workspace, empty, check_ids, deterministic)

    return _named(run, op)


def backward_call(op: Op) -> Callable[..., Any]:
    """``op(d_output, segment_ids)``."""

    def run(
        d_output: Any,
        segment_ids: Any,
        *,
        out: Any = None,
        stream: Any = None,
        workspace: Any = None,
        check_ids: bool = False,
        deterministic: bool = True,
    ) -> Any:
        return call(op, (d_output, segment_ids), None, out, stream, workspace, None, check_ids, deterministic)

    return _named(run, op)


def _named(run: Callable[..., Any], op: Op) -> Callable[..., Any]:
    run.__name__ = run.__qualname__ = op.name
    run.__module__ = "numba_baracuda.segment"
    values = ", ".join(BY_NAME[name].numpy_name for name in op.elements)
    indices = ", ".join(BY_NAME[name].numpy_name for name in op.indices)
    shapes = ", ".join(f"``{operand.name}`` [{', '.join(_AXES[axis] for axis in operand.axes)}]" for operand in op.operands)
    variants = "; ".join(f"``{variant.name}``{'' if variant.deterministic else ' with ``deterministic=False``'}" for variant in op.variants)
    run.__doc__ = _DOC.format(formula=op.formula, shapes=shapes, values=values, indices=indices, notes=op.traits["notes"], variants=variants)
    return run


_AXES = {"num_inputs": "N", "num_segments": "S", "embedding_dim": "…"}
_DOC = """{formula}

Shapes: {shapes}; the trailing axes may be any number up to rank 8, and none. Any operand may be a strided view. Values: {values}; ids: {indices}.
{notes}
Ids outside [0, S) are dropped. ``out=`` takes the result, ``stream=`` a stream or its handle, ``workspace=`` device bytes. ``check_ids=True`` waits
for the device and raises ``InvalidProblem`` at the first id out of range or, for sorted ops, the first descent; other calls never wait. Variants:
{variants}.

Raises ``InvalidProblem`` for operands that contradict each other, ``Unsupported`` for dtypes that the op does not have.
"""
