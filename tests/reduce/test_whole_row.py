"""Gradients of one long row, whose blocks hold elements on the chip from the fold on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import FORWARD, OTHER, check, function, kind_of
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Layout, Op, Target, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import WholeRow

CARD = Target((9, 0), 132)


@contextlib.contextmanager
def whole(items: int = 1) -> Iterator[None]:
    """Small rows are long ones, and blocks have room for two rounds."""
    with using(WholeRow, min_bytes=1, groups=2, items_per_thread=items):
        yield


def launches(name: str, shape: tuple[int, ...], axis: Any, element: str = "f32", capability: int = 9, **options: Any) -> list[str]:
    """The kernels that serve contiguous operands, unless others are given."""
    op = nb.OPS[f"reduce_{name}_backward"]
    layouts = {key: options.pop(key) for key in ("x", "dx") if key in options}
    descriptor = nb.ReduceBackwardDescriptor(op.kind, shape, axis, element, **options)
    given = {operand.name: contiguous(getattr(descriptor, operand.axes[0])) for operand in op.operands} | layouts
    steps = op.variants[0].recipe(op, descriptor, given, Target((capability, 0), 132)).steps
    return [step.spec.factory.split(":")[1] for step in steps if isinstance(step, Launch)]


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("extent", [1, 3, 1029, 5000, 9217])
@pytest.mark.parametrize("name", ["var", "std"])
def test_values(kind: Kind, name: str, extent: int, items: int) -> None:
    with whole(items):
        check(kind, nb.OPS[f"reduce_{name}_backward"], (extent,), 0)


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", FORWARD, ids=name_of)
@pytest.mark.parametrize("shape", [(1,), (7, 571), (9217,)])
def test_folds(kind: Kind, op: Op, shape: tuple[int, ...], element: str) -> None:
    with whole(2):
        check(kind, op, shape, None, element)


@pytest.mark.parametrize("op", OTHER, ids=name_of)
def test_places_and_truth(kind: Kind, op: Op) -> None:
    """Of ties in several shares the first wins, and NaN wherever it lies."""
    ties = np.random.default_rng(0).integers(0, 2, 9219).astype(np.float32)
    late = np.where(np.arange(9219) == 9218, np.nan, ties).astype(np.float32)
    for x in (ties, late, np.zeros(9219, np.float32)):
        with whole():
            got = kind.numpy(function(op)(kind.array(x), 0, False))
        wanted = {"any": x.any(), "all": x.all(), "count_nonzero": np.count_nonzero(x)}
        assert got == (wanted[kind_of(op)] if kind_of(op) in wanted else getattr(np, kind_of(op))(x))


@pytest.mark.parametrize("ties", ["even"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_ties(kind: Kind, name: str, ties: str) -> None:
    with whole():
        check(kind, nb.OPS[f"reduce_{name}_backward"], (53, 101), (0, 1), ties=ties)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_elements(kind: Kind, name: str, element: str) -> None:
    with whole():
        check(kind, nb.OPS[f"reduce_{name}_backward"], (83, 91), None, element)


@pytest.mark.parametrize("shift", [1, 3])
def test_shifted(kind: Kind, shift: int) -> None:
    """The elements before the first aligned vector, and behind the last."""
    rng = np.random.default_rng(0)
    wide, dy = rng.standard_normal(3000 + shift), np.ones(1)
    x, dx = kind.array(wide.astype(np.float32))[shift:], kind.array(np.zeros(3000 + shift, np.float32))[shift:]
    row = wide[shift:].astype(np.float32).astype(np.float64)
    with whole():
        nb.reduce_var_backward(kind.array(dy.astype(np.float32)), x, kind.array(row.var(keepdims=True).astype(np.float32)), axis=0, out=dx)
    np.testing.assert_allclose(kind.numpy(dx), 2 * (row - row.mean()) / 2999, rtol=1e-5, atol=1e-9)


def test_kernel() -> None:
    assert launches("var", (42704173,), 0, "bf16") == ["fold_and_broadcast_whole_row"]
    assert launches("std", (3358, 20769), None) == ["fold_and_broadcast_whole_row"]
    for others in (
        launches("var", (1 << 20,), 0), launches("var", (3, 1 << 26), 1), launches("prod", (1 << 26,), 0),
        launches("max", (1 << 26,), 0, ties="first"),
        launches("var", (1 << 26,), 0, capability=8), launches("var", (1 << 25,), 0, x=Layout((1 << 25,), (2,))),
        launches("var", (1 << 26,), 0, x=contiguous((1 << 26,), 4)),
    ):  # fmt: skip
        assert "fold_and_broadcast_whole_row" not in others
