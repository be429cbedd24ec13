"""Checks of operands against a plan: shapes, dtypes, addresses, and the workspace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..arrays import arrays, spans
from ..arrays.views import View
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, MisalignedOperand, Unsupported, WorkspaceTooSmall
from ..core.op import MAX_RANK, Op, Operand

#: elements of 8 bytes whose bytes fit 64 bits, and threads of the largest launch with blocks of 256
_MOST_ELEMENTS, _MOST_THREADS = 1 << 60, 1 << 39


def check(op: Op, descriptor: Any, views: Sequence[View]) -> None:
    """Raises for wrong shapes, in the order of the op, then for dtypes, then for outputs that cannot be written."""
    given = dict(zip(op.operands, views, strict=True))
    check_shapes(op, descriptor, [(operand, given[operand]) for operand in op.looked_at()])
    for operand, view in zip(op.operands, views, strict=True):
        wanted = (operand.element or (descriptor.index_name if operand.index else descriptor.element_name)).split()
        if view.element not in wanted and view.number is None:
            got = BY_NAME[view.element].numpy_name
            raise InvalidProblem(f"{op.name}: {operand.name} is {got}, wants {' or '.join(BY_NAME[each].numpy_name for each in wanted)}")
        if operand.output and view.readonly:
            raise InvalidProblem(f"{op.name}: {operand.name} is read-only, wants memory that can be written")
        if operand.output and not _distinct_addresses(tuple(view.shape), tuple(view.strides)):
            got = f"a broadcast or overlapping view (strides {tuple(view.strides)})"
            raise InvalidProblem(f"{op.name}: {operand.name} is {got}, wants an address of its own for each element")


def check_shapes(op: Op, descriptor: Any, given: Sequence[tuple[Operand, View]]) -> None:
    """Raises for the first operand whose shape is not that of the descriptor."""
    trailing: tuple[int, ...] | None = None
    for operand, view in given:
        if view.number is None:
            trailing = _check_shape(op, descriptor, operand, tuple(view.shape), trailing)


def check_extents(op: Op, descriptor: Any) -> None:
    """Raises for extents above the threads of a launch, and for operands whose bytes exceed 64 bits."""
    for operand in op.operands:
        extents = {axis: getattr(descriptor, axis) for axis in (*operand.axes, *descriptor.extents)}
        for axis, each in extents.items():
            if max(each if isinstance(each, tuple) else (each,), default=0) >= _MOST_THREADS:
                raise Unsupported(f"{op.name}: {axis} is {list(each) if isinstance(each, tuple) else each}, wants extents below 2^39")
        shape = [number for axis in operand.axes for number in (extents[axis] if isinstance(extents[axis], tuple) else [extents[axis]])]
        if math.prod(shape) >= _MOST_ELEMENTS:
            raise Unsupported(f"{op.name}: {operand.name} has shape {shape}, wants fewer than 2^60 elements")


def _distinct_addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether no two elements share an address, for nested strides; interleaved ones, which slicing cannot make, count as overlapping."""
    reach = 0
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        if stride <= reach:
            return 0 in shape
        reach += stride * (extent - 1)
    return True


def _check_shape(op: Op, descriptor: Any, operand: Operand, shape: tuple[int, ...], trailing: tuple[int, ...] | None) -> tuple[int, ...] | None:
    wanted = [getattr(descriptor, axis) for axis in operand.axes]
    if len(operand.axes) == 1:
        wanted = list(wanted[0]) if isinstance(wanted[0], tuple) else wanted
        if shape != tuple(wanted):
            raise InvalidProblem(f"{op.name}: {operand.name} has shape {list(shape)}, wants {wanted}")
        return trailing
    if len(shape) > MAX_RANK:
        raise Unsupported(f"{op.name}: {operand.name} has {len(shape)} axes, wants 1 to {MAX_RANK}")
    rest = 1
    for extent in shape[1:]:
        rest *= extent
    if not shape or shape[0] != wanted[0] or rest != wanted[1]:
        raise InvalidProblem(f"{op.name}: {operand.name} has shape {list(shape)}, wants {wanted} or trailing axes of that product")
    if trailing is not None and shape[1:] != trailing:
        raise InvalidProblem(f"{op.name}: {operand.name} has trailing axes {list(shape[1:])}, wants {list(trailing)} as the operand before it")
    return shape[1:]


def check_workspace(name: str, workspace: View, first: View, needed: int) -> None:
    """Raises unless a caller's memory can be the workspace of an op on ``first``'s device."""
    arrays.check_one_device(name, [first, workspace])
    size = spans.nbytes(workspace)
    if size < needed:
        raise WorkspaceTooSmall(f"{name}: workspace", needed, size)
    if workspace.readonly:
        raise InvalidProblem(f"{name}: workspace is read-only, wants memory that can be written")
    if not spans.is_contiguous(workspace):
        raise Unsupported(f"{name}: workspace has strides {workspace.strides}, wants contiguous memory")
    if workspace.ptr & 15 and not workspace.empty:
        raise MisalignedOperand(f"{name}: workspace is at address {workspace.ptr:#x}, wants a multiple of 16")
