"""Launches of the element-wise kernels on matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import NULL, Launch, Layout, Matrix
from ..core.policy import constants, tuned
from ..core.spec import KernelSpec
from .policy import Assign


def kernel_spec(kernel: str, max_threads: int, min_blocks: int = 0, **given: Any) -> KernelSpec:
    """The spec of a kernel of the family."""
    return KernelSpec(f"numba_baracuda.loss.kernels:{kernel}", tuple(given.items()), max_threads, min_blocks)


def _flat(matrix: Matrix) -> Matrix:
    """A matrix of a single row, if the rows are contiguous; else the matrix itself."""
    if matrix.rows == 1 or matrix.stride != matrix.columns:
        return matrix
    return replace(matrix, rows=1, columns=matrix.rows * matrix.columns, stride=matrix.rows * matrix.columns)


def _vector_of(*matrices: Matrix) -> int:
    """Elements of the widest vectorized load and store, up to 16 bytes, that the extents and alignment of all matrices allow."""
    sizes = [BY_NAME[each.element].itemsize for each in matrices]
    vector = 16 // max(sizes)
    while any(
        each.columns % vector or (each.rows > 1 and each.stride % vector) or (each.offset * size + each.address) % (vector * size)
        for each, size in zip(matrices, sizes, strict=True)
    ):
        vector //= 2
    return vector


def assign(
    y: Matrix, number: float = 1.0, x: Matrix | None = None, *,
    factor: str = "", factor_element: str = "", accumulate: bool = False, column_stride: int = 1,
) -> Launch:  # fmt: skip
    """The launch of ``y = number · factor · x``, plus y with ``accumulate``; x is 1 if it is None.

    ``factor`` names an operand [1] of type ``factor_element``, or is "". ``column_stride``: elements from one column of y, and of x if x is y, to the
    next.
    """
    if x is None or x.stride == x.columns:
        y, x = _flat(y), x and _flat(x) if y.stride == y.columns else x
    vector = _vector_of(x or y, y) if column_stride == 1 else 1
    policy = tuned(Assign())
    blocks_per_row = ceil_div(y.columns, policy.threads_per_block * policy.items_per_thread * vector)
    given = {
        "source": x.element if x else "", "value": y.element, "factor": factor_element, "vector": vector, "accumulate": accumulate,
        **constants(policy),
    }  # fmt: skip
    spec = kernel_spec("assign", policy.threads_per_block, **given)
    arguments = {
        "x": x.name if x else NULL, "factor_value": factor or NULL, "y": y.name, "number": number, "columns": y.columns,
        "blocks_per_row": blocks_per_row, "x_row_stride": x.stride if x else 0, "y_row_stride": y.stride,
        "x_column_stride": column_stride if x and x.name == y.name else 1, "y_column_stride": column_stride,
    }  # fmt: skip
    return Launch(spec, (y.rows * blocks_per_row, policy.threads_per_block, 0), arguments)


def mask(x: Matrix, y: Matrix, first_row: int, target: Layout, ignore_index: int, classes: int) -> Launch:
    """The launch of ``y = x``, with zeros for rows without a gradient; row 0 of x has target ``first_row``."""
    vector, target_stride, policy = _vector_of(x, y), target.strides[0], tuned(Assign())
    blocks_per_row = ceil_div(x.columns, policy.threads_per_block * policy.items_per_thread * vector)
    given = {"value": x.element, "label": target.element or "i64", "vector": vector, **constants(policy)}
    spec = kernel_spec("mask_rows", policy.threads_per_block, **given)
    arguments = {
        "x": x.name, "target": "target", "y": y.name, "columns": x.columns, "blocks_per_row": blocks_per_row, "x_offset": x.offset,
        "x_row_stride": x.stride, "y_offset": y.offset, "y_row_stride": y.stride,
        "target_offset": first_row * target_stride, "target_stride": target_stride, "ignore": ignore_index, "classes": classes,
    }  # fmt: skip
    return Launch(spec, (x.rows * blocks_per_row, policy.threads_per_block, 0), arguments)
