"""What the tests of scans share: the ops of the table, operands for each, and runs that are compared with :mod:`scan_reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scan_reference
from kinds import Kind
from references import Array
from scan_reference import REFERENCES
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.dtypes import element, numpy_dtype
from numba_baracuda.core.op import Op

OPS = [op for op in nb.OPS.values() if op.family == "scan"]
FORWARD = [op for op in OPS if op.backward]
#: every scan by its name, and those that can tell which element won, and those of integers
EVERY = pytest.mark.parametrize("name", [op.name for op in FORWARD])
PLACED = [op.name for op in FORWARD if op.traits["placed"]]
INTEGERS = [(op.name, each) for op in FORWARD for each in op.elements if element(each).whole]


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


def run(op: Op, given: dict[str, Any], axis: int, **options: Any) -> Any:
    return getattr(nb, op.name)(*given.values(), axis, **options)


def check(kind: Kind, name: str, x: Array, axis: int, given: Any = None, **options: Any) -> None:
    """A scan of x, or of an array of the kind that holds the same."""
    got = kind.numpy(getattr(nb, name)(kind.array(x) if given is None else given, axis, **options))
    assert_close(got, scan_reference.truth(name, x, axis, **options), element(x.dtype).name, name)


def check_backward(kind: Kind, name: str, x: Array, axis: int, views: Any = None, **options: Any) -> None:
    """The gradient of a scan of x, with operands as they are or as ``views`` makes them."""
    op = nb.OPS[f"{name}_backward"]
    given = operands(op, x, axis, **options)
    got = kind.numpy(run(op, {each: (views or kind.array)(array) for each, array in given.items()}, axis, **options))
    known = {"x": x, "y": scan_reference.scanned(name, x, axis, **options)} | given
    assert_close(got, scan_reference.gradient_truth(name, known["dy"], known["x"], known["y"], axis, **options), element(x.dtype).name, op.name)
