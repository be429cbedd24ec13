"""Helpers of the tests of scans: the ops of the table, operands for each, and comparisons with :mod:`scan_reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scan_reference
from kinds import Kind
from references import Array, Truth
from scan_reference import REFERENCES, rounded_last
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import element, numpy_dtype
from numba_baracuda.core.op import Op

OPS = [op for op in nb.OPS.values() if op.family == "scan"]
FORWARD = [op for op in OPS if op.backward]
#: every scan by its name, those with indices of winners, and every scan with each of its dtypes
EVERY = pytest.mark.parametrize("name", [op.name for op in FORWARD])
PLACED = [op.name for op in FORWARD if op.traits["has_indices"]]
EVERY_FLOAT, EVERY_INTEGER = (
    pytest.mark.parametrize(("name", "dtype"), [(op.name, each) for op in FORWARD for each in op.elements if element(each).whole == whole])
    for whole in (False, True)
)


def values(name: str, shape: tuple[int, ...], dtype: str = "f32", spread: float = 0.1) -> Array:
    """Ordinary numbers; factors differ from 1 or −1 by a share of ``spread`` at most."""
    rng = np.random.default_rng(5)
    factors = REFERENCES[name].factors
    x = rng.uniform(1 - spread, 1 + spread, shape) * rng.choice([-1, 1], shape) if factors else rng.standard_normal(shape)
    return x.astype(numpy_dtype(dtype))


def operands(op: Op, x: Array, axis: int, **options: Any) -> dict[str, Array]:
    """The inputs of an op by name; y as the forward op rounds it."""
    name = op.name.removesuffix("_backward")
    given = {"x": x}
    if op.traits["backward"]:
        given["dy"] = np.random.default_rng(8).standard_normal(x.shape).astype(x.dtype)
        given["y"] = scan_reference.scanned(name, x, axis, **options).astype(x.dtype)
    return {operand.name: given[operand.name] for operand in op.operands[:-1]}


def operands_of(op: Op, shape: tuple[int, ...], axis: int, dtype: str = "f32") -> dict[str, Array]:
    """The inputs of an op for any extents: products stay in range, however many factors they have."""
    return operands(op, values(op.name.removesuffix("_backward"), shape, dtype, spread=min(0.5, max(1, shape[axis]) ** -0.5)), axis)


def run(op: Op, given: dict[str, Any], axis: int, **options: Any) -> Any:
    return getattr(nb, op.name)(*given.values(), axis, **options)


def truth(op: Op, given: dict[str, Array], axis: int, **options: Any) -> Truth:
    """The truth of an op for its inputs, each element with its own Σ |terms|."""
    name = op.name.removesuffix("_backward")
    if not op.traits["backward"]:
        return scan_reference.truth(name, given["x"], axis, **options)
    x = given.get("x", given["dy"])  # a gradient that does not take x depends neither on x nor on y
    made = scan_reference.gradient(name, given["dy"], x, given.get("y", x), axis, **options)
    return Truth(made.value, np.where(made.free, np.inf, made.size), np.full(x.shape, x.shape[axis] + 1.0))


def check(kind: Kind, name: str, x: Array, axis: int, given: Any = None, **options: Any) -> None:
    """Checks a scan of x, or of ``given``, an array of the kind with the same values."""
    op = nb.OPS[name]
    got = kind.numpy(run(op, {"x": kind.array(x) if given is None else given}, axis, **options))
    assert_close(got, rounded_last(truth(op, {"x": x}, axis, **options)), element(x.dtype).name, name)


def check_backward(kind: Kind, name: str, x: Array, axis: int, views: Any = None, **options: Any) -> None:
    """Checks the gradient of a scan of x, with operands as ``views`` makes them if given."""
    op = nb.OPS[f"{name}_backward"]
    given = operands(op, x, axis, **options)
    got = kind.numpy(run(op, {each: (views or kind.array)(array) for each, array in given.items()}, axis, **options))
    assert_close(got, rounded_last(truth(op, given, axis, **options)), element(x.dtype).name, op.name)


# ---------------------------------------------------------------- integers


def numbers(name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers from the whole range, whose sums and products wrap around."""
    rng = np.random.default_rng(5)
    if dtype == "bool":
        return rng.random(shape) < 0.97
    limits = np.iinfo(numpy_dtype(dtype))
    x = rng.integers(limits.min, limits.max, shape, endpoint=True, dtype=numpy_dtype(dtype))
    return x | 1 if REFERENCES[name].factors else x


def check_integers(kind: Kind, name: str, x: Any, axis: int, given: Any = None, dtype: str | None = None, **options: Any) -> None:
    asked = {} if dtype is None else {"dtype": dtype}
    got = kind.numpy(getattr(nb, name)(kind.array(x) if given is None else given, axis, **asked, **options))
    wanted = np.dtype(dtype or ("int64" if nb.OPS[name].traits["widened"] else x.dtype))
    assert got.dtype == wanted
    np.testing.assert_array_equal(got, scan_reference.scanned(name, x, axis, wanted, **options))
