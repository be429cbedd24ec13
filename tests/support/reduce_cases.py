"""Helpers of the tests of reductions: the ops of the table, operands for each, and comparisons with a segment op of one segment."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import references
from kinds import Kind
from references import Array, Truth
from samples import name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Launch, Layout, Op, Target, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.descriptor import reduced_axes
from numba_baracuda.reduce.policy import FoldAndBroadcastRows, FoldAndBroadcastStagedLines

CARD = Target((9, 0), 132)
FORWARD, BACKWARD, OTHER = (
    [op for op in nb.OPS.values() if op.family == "reduce" and select(op)]
    for select in (lambda op: op.backward, lambda op: op.traits["backward"], lambda op: not (op.backward or op.traits["backward"]))
)
OPS = FORWARD + BACKWARD
EVERY = pytest.mark.parametrize("op", OPS, ids=name_of)
NOTHING = {"mean": np.nan, "max": -np.inf, "min": np.inf, "prod": 1.0, "logsumexp": -np.inf}


def kind_of(op: Op) -> str:
    """The kind of an op: sum, mean, …"""
    return op.name.removeprefix("reduce_").removesuffix("_backward")


def function(op: Op) -> Any:
    return getattr(nb, op.name)


def lined_up(array: Array, axes: tuple[int, ...]) -> Array:
    """The array as [extent of the reduced axes, rows]: each column is folded to one element."""
    moved = np.moveaxis(array, axes, range(len(axes)))
    extent = int(np.prod([array.shape[axis] for axis in axes], dtype=int))
    return moved.reshape(extent, -1) if array.size else np.zeros((extent, int(np.prod(moved.shape[len(axes) :], dtype=int))), array.dtype)


def truth(op: Op, given: dict[str, Array], shape: tuple[int, ...], axes: tuple[int, ...], **options: Any) -> Truth:
    """The truth, by the reference of the segment op with one segment."""
    extent = int(np.prod([shape[axis] for axis in axes], dtype=int))
    named = {"dy": "d_output", "x": "input", "y": "output"}
    unused = "y" if kind_of(op) in ("max", "min", "var") else ""
    lines = {named[name]: lined_up(given[name], axes) for name in named if name in given and name != unused}
    empty = None if extent or not op.backward else NOTHING.get(kind_of(op), 0.0)
    lines["segment_ids"] = np.zeros(extent, np.int64)
    found = references.truth(f"segment_{op.name.removeprefix('reduce_')}", lines, 1, empty, **options)
    moved = (*[1 if op.backward else shape[axis] for axis in axes], *[each for axis, each in enumerate(shape) if axis not in axes])

    def back(array: Array) -> Array:
        whole = array.reshape(-1, *[1] * (found.value.ndim - array.ndim)) if 0 < array.ndim < found.value.ndim else array
        return np.moveaxis(np.broadcast_to(whole, found.value.shape).reshape(moved), range(len(axes)), axes)

    return Truth(back(found.value), back(found.scale), back(np.asarray(found.terms)))


def values(op: Op, shape: tuple[int, ...], element: str, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, zlib.crc32(op.name.encode())])
    if kind_of(op) == "prod":
        return (rng.uniform(0.8, 1.2, shape) * rng.choice([-1, 1], shape)).astype(numpy_dtype(element))
    return rng.standard_normal(shape).astype(numpy_dtype(element))


def operands(op: Op, shape: tuple[int, ...], axes: tuple[int, ...], element: str = "f32", **options: Any) -> dict[str, Array]:
    """The inputs of an op by name; a saved y is as precise as the element."""
    x = values(op, shape, element)
    if op.backward:
        return {"x": x}
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    given = {"dy": values(op, kept, element, 1)}
    if len(op.operands) > 2:
        forward = next(each for each in FORWARD if each.backward == op.name)
        chosen = {name: option for name, option in options.items() if name == "correction"}
        with np.errstate(all="ignore"):
            given |= {"x": x, "y": truth(forward, {"x": x}, shape, axes, **chosen).value.astype(x.dtype)}
    return given


def run(op: Op, given: dict[str, Any], shape: tuple[int, ...], axis: Any, **options: Any) -> Any:
    if op.backward:
        return function(op)(given["x"], axis, **options)
    return function(op)(*given.values(), axis=axis, **({} if "x" in given else {"input_shape": shape}), **options)


def check(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any, element: str = "f32", **options: Any) -> None:
    axes = reduced_axes(op.name, axis, len(shape))
    given = operands(op, shape, axes, element, **options)
    got = kind.numpy(run(op, {name: kind.array(array) for name, array in given.items()}, shape, axis, **options))
    assert_close(got, truth(op, given, shape, axes, **({"ties": "all"} if "ties" in op.traits["keywords"] else {}) | options), element, op.name)


def launches_of(op: Op, descriptor: Any, **layouts: Layout) -> list[Launch]:
    """What serves contiguous operands on a GPU, unless others are given."""
    given = {operand.name: contiguous(getattr(descriptor, operand.axes[0])) for operand in op.operands} | layouts
    return [step for step in op.variants[0].recipe(op, descriptor, given, CARD).steps if isinstance(step, Launch)]


@contextlib.contextmanager
def staging_lines(nbytes: int) -> Iterator[None]:
    """Blocks copy lines of small gradients as they do those of large ones, ``nbytes`` or more; nobody holds them."""
    any_line = {"min_line_bytes": 1, "whole_line_bytes": 1, "min_columns": 2, "max_column_bytes": 128, "max_item_bytes": 8}
    any_line |= {"max_wide_bytes": 128, "max_woven_elements": 1 << 20}
    few = using(FoldAndBroadcastStagedLines, min_bytes=1, grid_blocks_per_multiprocessor=1, min_bytes_per_block=nbytes, **any_line)
    with few, using(FoldAndBroadcastRows, max_uneven_elements=1):
        yield


def check_places(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    """An op of ``OTHER`` finds what NumPy finds: among ties, NaN wherever it lies, zeros, and different numbers."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    kept = [k for k in range(len(shape)) if k not in axes]
    ties = np.random.default_rng(0).integers(0, 2, shape).astype(np.float32)
    missing = np.where(np.random.default_rng(1).random(shape) < 0.02, np.nan, ties).astype(np.float32)
    for x in (ties, missing, np.zeros(shape, np.float32), np.random.default_rng(2).random(shape).astype(np.float32)):
        got = kind.numpy(function(op)(kind.array(x), axis, False))
        rows = np.transpose(x, (*kept, *axes)).reshape(*[shape[k] for k in kept], -1)
        wanted = {"any": rows.any(-1), "all": rows.all(-1), "count_nonzero": np.count_nonzero(rows, -1)}
        np.testing.assert_array_equal(got, wanted[kind_of(op)] if kind_of(op) in wanted else getattr(np, kind_of(op))(rows, axis=-1))
