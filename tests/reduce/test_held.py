"""Reductions of rows and columns of so few elements that a thread holds several whole ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import EVERY, OTHER, check, function, kind_of
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Layout, Op, Target, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import FoldHeld

CARD = Target((9, 0), 132)
#: rows and columns, in one piece or several, and some left over; along kept axes apart
SHAPES = [
    ((70, 3), 1),
    ((301, 2), 1),
    ((1030, 4), 1),
    ((1031, 5), 1),
    ((66, 8), 1),
    ((3, 70), 0),
    ((2, 1100), 0),
    ((3, 4, 301), 1),
    ((5, 3, 2, 7), 1),
    ((7, 2, 4), 1),
]

#: rows of several lines, along one kept axis and along two
LINES = [
    ((3, 2, 300, 5), (0, 1, 3)), ((7, 31, 2), (0, 2)), ((2, 260, 4), (0, 2)), ((9, 40, 12), (0, 2)), ((7, 5, 30, 2), (1, 3)), ((3, 9, 31, 3), (1, 3)),
]  # fmt: skip


#: rows of gradients that groups of lanes hold: one step and several, peeled, of a block, of several lines
LONG = [
    ((9, 96), 1), ((11, 300), 1), ((3, 3, 301), 2), ((1030, 24), 1), ((2, 2100), 1), ((2, 3101), 1), ((3, 1025), 1), ((5, 1023), 1),
    ((3, 20, 37), (0, 2)), ((2, 11, 128), (0, 2)), ((5, 301, 3), (0, 2)), ((2, 3, 2, 61), (1, 3)),
]  # fmt: skip


@contextlib.contextmanager
def held(pieces: int = 8) -> Iterator[None]:
    """Few rows are held as many are."""
    with using(FoldHeld, min_bytes=1, min_line_rows=1, max_pieces=pieces):
        yield


def launch(name: str, shape: tuple[int, ...], axis: Any, element: str = "f32", **layouts: Layout) -> Launch:
    """The first launch for contiguous operands, unless others are given."""
    op = nb.OPS[f"reduce_{name}"]
    kind = nb.ReduceBackwardDescriptor if name.endswith("_backward") else nb.ReduceDescriptor
    descriptor = kind(op.kind, shape, axis, element)
    given = {operand.name: contiguous(getattr(descriptor, operand.axes[0])) for operand in op.operands} | layouts
    first = op.variants[0].recipe(op, descriptor, given, CARD).steps[0]
    assert isinstance(first, Launch)
    return first


@EVERY
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_values(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    with held():
        check(kind, op, shape, axis)


@EVERY
@pytest.mark.parametrize(("shape", "axes"), LINES)
def test_lines(kind: Kind, op: Op, shape: tuple[int, ...], axes: Any) -> None:
    with held():
        check(kind, op, shape, axes)


@pytest.mark.parametrize(("shape", "axis"), LONG)
@pytest.mark.parametrize("name", ["var", "std", "max"])
def test_rows_of_gradients(kind: Kind, name: str, shape: tuple[int, ...], axis: Any) -> None:
    for element in ("f32", "bf16", "f64"):
        with held():
            check(kind, nb.OPS[f"reduce_{name}_backward"], shape, axis, element, **({"ties": "even"} if name == "max" else {}))


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@EVERY
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 66, 2), (0, 2)), ((70, 3), 1), ((130, 2), 1), ((67, 4), 1), ((67, 8), 1), ((3, 302), 0), ((2, 2, 41), 1)]
)
def test_elements(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any, element: str) -> None:
    with held(pieces=2):
        check(kind, op, shape, axis, element)


@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((9, 41, 3), (0, 2))])
@pytest.mark.parametrize("op", OTHER, ids=name_of)
def test_places_and_truth(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    """Of ties the first wins, and NaN wherever it lies."""
    ties = np.random.default_rng(0).integers(0, 2, shape).astype(np.float32)
    missing = np.where(np.random.default_rng(1).random(shape) < 0.1, np.nan, ties).astype(np.float32)
    for x in (ties, missing):
        with held():
            got = kind.numpy(function(op)(kind.array(x), axis, False))
        axes = axis if isinstance(axis, tuple) else (axis,)
        kept = [k for k in range(len(shape)) if k not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(*[shape[k] for k in kept], -1)
        wanted = {"any": rows.any(-1), "all": rows.all(-1), "count_nonzero": np.count_nonzero(rows, -1)}
        np.testing.assert_array_equal(got, wanted[kind_of(op)] if kind_of(op) in wanted else getattr(np, kind_of(op))(rows, axis=-1))


@pytest.mark.parametrize(("shape", "axis"), [((300, 7), 1), ((7, 300), 0)])
def test_variance_far_from_zero(kind: Kind, shape: tuple[int, ...], axis: int) -> None:
    x = (1e6 + np.random.default_rng(0).integers(-8, 9, shape)).astype(np.float32)
    with held():
        got = kind.numpy(nb.reduce_var(kind.array(x), axis, keepdims=False, correction=0))
    np.testing.assert_allclose(got, x.astype(np.float64).var(axis), rtol=1e-5)


@pytest.mark.parametrize(("extent", "far"), [(16, (0, 4)), (16, (8, 12)), (13, (0, 3)), (10, (4, 6))])
@pytest.mark.parametrize("axis", [0, 1])
def test_variance_is_as_exact_as_from_deviations(kind: Kind, extent: int, far: tuple[int, ...], axis: int) -> None:
    """Within n + 4 roundings, as Σ (x − mean)² of a second pass: Chan, Golub and LeVeque, "Algorithms for Computing the Sample Variance" (1983)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, -0.45, (500, extent)).astype(np.float32)
    x[:, far] = rng.uniform(0.5, 0.55, (500, len(far)))
    x = np.ascontiguousarray(x if axis else x.T)
    with held():
        got = kind.numpy(nb.reduce_var(kind.array(x), axis, keepdims=False))
    np.testing.assert_allclose(got, x.astype(np.float64).var(axis, ddof=1), rtol=(extent + 4) * 2.0**-24)


@pytest.mark.parametrize("values", [(3e38, 3e38), (3e38, -3e38, 0), (np.inf, 1), (np.nan, 1)])
def test_variance_of_what_has_no_mean(kind: Kind, values: tuple[float, ...]) -> None:
    x = np.resize(np.array(values, np.float32), (40, 12))
    with held():
        got = kind.numpy(nb.reduce_var(kind.array(x), 1, keepdims=False))
    np.testing.assert_array_equal(got, np.full(40, 0 if values[0] == values[1] else np.nan, np.float32))


@pytest.mark.parametrize(
    ("name", "shape", "axis", "element", "kernel", "constants"),
    [
        ("std", (45, 2, 1285160), 1, "f64", "fold_held_columns", {"vector": 2, "extent": 2, "pieces": 1, "stored": 2}),
        ("sum", (3, 11, 4900959), 1, "bf16", "fold_held_columns", {"vector": 1, "pieces": 1, "stored": 1}),
        ("sum", (16, 1 << 20), 0, "f32", "fold_held_columns", {"vector": 2, "pieces": 1}),
        ("var", (246338, 235, 2), 2, "bf16", "fold_held_rows", {"vector": 8, "height": 4, "pieces": 4, "stored": 4}),
        ("sum", (1 << 24, 3), 1, "f32", "fold_held_rows", {"vector": 4, "height": 4, "pieces": 1, "stored": 4}),
        ("argmax", (1 << 24, 3), 1, "f32", "fold_held_rows", {"height": 4, "stored": 2}),
        ("min", (3, 2, 2267732, 5), (0, 1, 3), "f32", "fold_held_lines", {"vector": 4, "extent": 5, "height": 4, "pieces": 1, "stored": 4}),
        ("argmin", (8, 8858055, 2), (0, 2), "bf16", "fold_held_lines", {"vector": 2, "extent": 2, "height": 1, "pieces": 8, "stored": 1}),
        ("prod", (19490, 5, 584, 2), (1, 3), "f32", "fold_held_lines", {"vector": 4, "extent": 2, "height": 2, "pieces": 3, "kept": 2}),
        ("sum", (1949, 5, 5841, 2), (1, 3), "f32", "fold_held_lines", {"vector": 2, "height": 1, "pieces": 5}),
        ("sum", (1949, 5, 5844, 3), (1, 3), "bf16", "fold_held_lines", {"vector": 4, "height": 4, "pieces": 2}),
        ("sum", (19490, 5, 58, 2), (1, 3), "f64", "fold_held_lines", {"vector": 2, "height": 1}),
        ("sum", (1 << 24, 9), 1, "bf16", "fold_held_rows", {"vector": 4, "height": 4}),
        ("sum", (1 << 24, 5), 1, "f32", "fold_held_rows", {"vector": 4, "height": 4}),
        ("sum", (1 << 24, 7), 1, "f32", "fold_staged_rows", {"vector": 4, "lanes": 1}),
        ("min", (1 << 22, 49), 1, "f64", "fold_staged_rows", {"vector": 2, "lanes": 4}),
        ("min", (1 << 20, 129), 1, "f64", "fold_rows", {"vector": 2, "peeled": True}),
        ("sum", (1 << 24, 11), 1, "f32", "fold_staged_rows", {}),
        ("sum", (1 << 24, 12), 1, "f32", "fold_held_rows", {"vector": 4, "height": 1}),
        ("prod_backward", (1 << 24, 4), 1, "bf16", "broadcast_held_rows", {"vector": 8, "extent": 4, "pieces": 1, "loaded": 2}),
        ("mean_backward", (1 << 24, 4), 1, "bf16", "broadcast_held_rows", {"vector": 8, "extent": 4, "pieces": 2, "loaded": 2}),
        ("std_backward", (1 << 24, 4), 1, "f32", "broadcast_held_rows", {"vector": 4, "loaded": 1}),
        ("max_backward", (1 << 23, 8), 1, "f32", "broadcast_dense", {}),
        ("prod_backward", (1 << 24, 3), 1, "f32", "broadcast_staged_rows", {}),
        ("std_backward", (26629, 3008), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 24, "peeled": False}),
        ("std_backward", (26629, 1024), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 8}),
        ("std_backward", (26629, 2001), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 16, "peeled": True}),
        ("std_backward", (26629, 2401), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 256, "steps": 3, "peeled": True}),
        ("std_backward", (26629, 3001), 1, "bf16", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 12, "peeled": True}),
        ("std_backward", (26629, 3201), 1, "bf16", "fold_and_broadcast_rows", {"lanes": 32, "peeled": True}),
        ("std_backward", (26629, 4201), 1, "bf16", "fold_and_broadcast_held_rows", {"lanes": 256, "steps": 3, "peeled": True}),
        ("var_backward", (26629, 8192), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 256, "steps": 8}),
        ("var_backward", (16384, 16384), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 256, "steps": 16}),
        ("var_backward", (16384, 16388), 1, "f32", "fold_and_broadcast_rows", {"lanes": 256}),
        ("var_backward", (16384, 28001), 1, "bf16", "fold_and_broadcast_rows", {"lanes": 256}),
        ("var_backward", (1000, 2048), 1, "f32", "fold_and_broadcast_held_rows", {"lanes": 256, "steps": 2}),
        ("var_backward", (26629, 3000), 1, "bf16", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 12}),
        ("std_backward", (7, 172460, 173), (0, 2), "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "lines": 7, "steps": 6, "vector": 1}),
        ("std_backward", (7, 172460, 180), (0, 2), "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "lines": 7, "steps": 2, "vector": 4}),
        ("std_backward", (3, 172460, 40), (0, 2), "f32", "fold_and_broadcast_held_rows", {"lanes": 16, "lines": 3, "steps": 1, "vector": 4}),
        ("std_backward", (7, 172460, 133), (0, 2), "f32", "fold_and_broadcast_held_rows", {"lanes": 32, "steps": 5, "vector": 1}),
        ("std_backward", (9, 17246, 2002), (0, 2), "f32", "fold_and_broadcast_rows", {"vector": 2}),
        ("prod_backward", (26629, 3008), 1, "f32", "fold_and_broadcast_rows", {}),
    ],
)
def test_kernel(name: str, shape: tuple[int, ...], axis: Any, element: str, kernel: str, constants: dict[str, int]) -> None:
    spec = launch(name, shape, axis, element).spec
    assert spec.factory.endswith(f":{kernel}")
    assert dict(spec.constants) | constants == dict(spec.constants)


def test_others() -> None:
    """Rows that are longer, few or have gaps, and results that have gaps, are left to other kernels."""
    wide, tall = (1 << 24, 3), (3, 1 << 24)
    gap, apart, below = Layout(wide, (4, 1)), Layout((1 << 24, 1), (2, 1)), Layout((1, 1 << 24), (2 << 24, 2))
    for given in (launch("sum", (1 << 22, 17), 1), launch("sum", (1 << 12, 3), 1), launch("sum", wide, 1, x=gap), launch("sum", wide, 1, y=apart)):
        assert "held" not in given.spec.factory
    for given in (launch("sum", (17, 1 << 22), 0), launch("sum", (3, 1 << 12), 0), launch("sum", tall, 0, y=below)):
        assert "held" not in given.spec.factory


def test_alignment() -> None:
    """Elements and results that are less aligned are loaded and stored by fewer at a time."""
    rows = (1 << 24, 3)
    loaded, stored = launch("sum", rows, 1, x=contiguous(rows, 8)), launch("sum", rows, 1, y=contiguous((1 << 24, 1), 4))
    assert dict(loaded.spec.constants) | {"vector": 2, "height": 2} == dict(loaded.spec.constants)
    assert dict(stored.spec.constants)["stored"] == 1
