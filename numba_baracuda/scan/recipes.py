"""From a descriptor and layouts to launches. Pure functions; importing them imports no numba."""

from __future__ import annotations

import math

from ..axes import ceil_div, merge_axes
from ..dtypes import BY_NAME
from ..op import Launch, Layout, Op, Recipe, Target
from ..runtime.spec import KernelSpec
from .descriptor import ScanDescriptor
from .tiling import COLUMN_LANES, COLUMN_THREADS, THREADS, row_lanes, steps_of


def _width(axis: int, layouts: list[Layout], element: str, line: int) -> int:
    """Elements of the widest access to whose multiples all operands lie along an axis of unit stride; ``line`` is its extent."""
    size = BY_NAME[element].itemsize
    if any(layout.strides[axis] != 1 for layout in layouts):
        return 1
    vector = 16 // size
    while vector > 1 and any(layout.address % (vector * size) for layout in layouts):
        vector //= 2
    others = [step for layout in layouts for k, step in enumerate(layout.strides) if k != axis and layout.shape[k] > 1]
    return math.gcd(vector, line, *others)


def scan(op: Op, descriptor: ScanDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """A forward op."""
    if 0 in descriptor.input_shape:
        return Recipe(())
    x, y, axis, value = layouts["x"], layouts["y"], descriptor.scan_axis, descriptor.element
    rank, extent = len(x.shape), x.shape[axis]
    kept = sorted((k for k in range(rank) if k != axis), key=lambda k: -abs(x.strides[k]))
    shape, (from_x, to_y) = merge_axes([x.shape[k] for k in kept], [x.strides[k] for k in kept], [y.strides[k] for k in kept])
    rows, state = math.prod(shape), BY_NAME[value].accumulator
    nearest = min((abs(x.strides[k]) for k in kept if x.shape[k] > 1), default=math.inf)
    along = abs(x.strides[axis]) <= nearest or extent == 1
    constants = {"monoid": op.traits["monoid"], "value": value, "reverse": descriptor.reverse, "exclusive": descriptor.exclusive, "kept": len(shape)}
    tuples = " ".join([f"{len(shape)}xi64"] * 3)
    signature = f"*{value} *{value} i64 i64 {state} {tuples} i64 i64"
    scalars = (rows, extent, descriptor.beginning, shape, from_x, to_y, x.strides[axis], y.strides[axis])
    if along:
        vector = _width(axis, [x, y], value, extent)
        lanes = row_lanes(ceil_div(extent, vector), steps_of(value, vector))
        constants |= {"vector": vector, "lanes": lanes}
        spec = KernelSpec("numba_baracuda.scan.kernels:scan_rows", tuple(sorted(constants.items())), signature, THREADS, 0)
        return Recipe((Launch(spec, (ceil_div(rows, THREADS // lanes), THREADS, 0), ("x", "y"), scalars),))
    inner = kept[-1]
    vector = _width(inner, [x, y], value, shape[-1]) if from_x[-1] == to_y[-1] == 1 else 1
    constants |= {"vector": vector, "lanes": COLUMN_LANES, "threads": COLUMN_THREADS}
    spec = KernelSpec("numba_baracuda.scan.kernels:scan_columns", tuple(sorted(constants.items())), signature, COLUMN_THREADS, 0)
    return Recipe((Launch(spec, (ceil_div(rows, COLUMN_LANES * vector), COLUMN_THREADS, 0), ("x", "y"), scalars),))
