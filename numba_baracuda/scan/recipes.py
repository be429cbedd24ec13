"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

from collections.abc import Callable

from ..core.op import NULL, Launch, Layout, Op, Recipe, Target, contiguous
from .column_launches import ColumnScan
from .descriptor import ScanDescriptor


def _recipe(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target, ordered: bool, initials: str = NULL) -> Recipe:
    if 0 in descriptor.input_shape:
        return Recipe(())
    made = ColumnScan(op, descriptor, layouts, target, initials)
    if made.problem.along:
        return made.slices() or made.long_rows(ordered) or made.rows()
    return made.slices() or made.slabs(ordered) or made.long_columns(ordered) or made.columns()


def named(recipe: Callable[..., Recipe], variant: str) -> Callable[[Op, ScanDescriptor, Target], str]:
    """The variant's part of a SKU: its name, and the kernel that contiguous operands get."""

    def name(op: Op, descriptor: ScanDescriptor, target: Target) -> str:
        steps = recipe(op, descriptor, {operand.name: contiguous(descriptor.input_shape) for operand in op.operands}, target).steps
        return ":".join([variant, *[step.spec.factory.partition(":")[2] for step in steps if isinstance(step, Launch)]])

    return name


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """One launch; where blocks share rows or columns, the statuses of tiles are cleared first. The order of every fold is fixed."""
    return _recipe(op, descriptor, layouts, target, ordered=True)


def scan_carried(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan`` whose rows begin with the numbers of the operand ``initials`` [rows], in the order of contiguous operands."""
    return _recipe(op, descriptor, layouts, target, ordered=True, initials="initials")


def scan_lookback(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """``scan``, but blocks that share rows or columns combine tiles in the order in which these are done."""
    return _recipe(op, descriptor, layouts, target, ordered=False)
