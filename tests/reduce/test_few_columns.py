"""Reductions of few neighbouring columns: blocks copy short ones to shared memory, and groups fold long ones like rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import EVERY, FORWARD, OTHER, check, check_places, function, launches_of, values
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Layout
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import FoldHeld, FoldLines, FoldRows, FoldStagedRows

#: one block and several, of which the last has fewer columns; columns shared by lanes; kept axes before
STAGED = [((40, 33, 2), 1), ((9, 171, 3), 1), ((5, 7, 43), 1), ((3, 4, 70, 5), 2), ((4, 3, 5, 6), (1, 2)), ((2, 2500, 2), 1), ((1, 30, 7), 1)]


#: lines of a warp and of a block, one split and several; lines that begin inside a vector, and some that are shorter than a few of them
LINES = [((9, 171, 2), 1), ((3, 9, 150, 2), 2), ((11000, 2), 0), ((2, 5001, 2), 1), ((40, 33, 2), 1), ((20, 5, 2), 1)]


@contextlib.contextmanager
def staged() -> Iterator[None]:
    """Few columns are staged as many are."""
    with using(FoldStagedRows, min_column_bytes=1), using(FoldHeld, max_extent=1):
        yield


@contextlib.contextmanager
def in_lines() -> Iterator[None]:
    """Short lines are folded as long ones are, long ones in splits."""
    with using(FoldLines, min_line_bytes=1, min_bytes=1), using(FoldHeld, max_extent=1), using(FoldRows, min_split_batches=1):
        yield


def name_of_case(given: Any) -> Any:
    return getattr(given, "__name__", None)


#: (how, shape, axis)
EACH = pytest.mark.parametrize(
    ("how", "shape", "axis"), [*[(staged, *given) for given in STAGED], *[(in_lines, *given) for given in LINES]], ids=name_of_case
)


def launches(name: str, shape: tuple[int, ...], axis: Any, element: str = "f32", **layouts: Layout) -> list[Launch]:
    """What serves contiguous operands on a GPU, unless others are given."""
    op = nb.OPS[f"reduce_{name}"]
    return launches_of(op, nb.ReduceDescriptor(op.kind, shape, axis, element), **layouts)


@EVERY
@EACH
def test_values(kind: Kind, op: Any, how: Any, shape: tuple[int, ...], axis: Any) -> None:
    with how():
        check(kind, op, shape, axis)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@EVERY
@pytest.mark.parametrize(
    ("how", "shape", "axis"),
    [(staged, (40, 33, 2), 1), (staged, (5, 90, 7), 1), (in_lines, (7, 171, 2), 1), (in_lines, (3, 175, 4), 1)],
    ids=name_of_case,
)
def test_elements(kind: Kind, op: Any, how: Any, shape: tuple[int, ...], axis: Any, element: str) -> None:
    with how():
        check(kind, op, shape, axis, element)


@EACH
@pytest.mark.parametrize("op", OTHER, ids=name_of)
def test_places_and_truth(kind: Kind, op: Any, how: Any, shape: tuple[int, ...], axis: Any) -> None:
    """Of ties the first wins, and NaN wherever it lies."""
    with how():
        check_places(kind, op, shape, axis)


@pytest.mark.parametrize(("how", "shape"), [(staged, (9, 171, 3)), (in_lines, (9, 171, 2))], ids=name_of_case)
@pytest.mark.parametrize("name", ["var", "std"])
def test_far_from_zero(kind: Kind, name: str, how: Any, shape: tuple[int, ...]) -> None:
    """The states of a column's lanes are less one origin."""
    x = (1e6 + np.random.default_rng(0).integers(-8, 9, shape)).astype(np.float32)
    with how():
        got = kind.numpy(function(nb.OPS[f"reduce_{name}"])(kind.array(x), 1))
    np.testing.assert_allclose(got, getattr(x.astype(np.float64), name)(1, ddof=1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize(("how", "shape"), [(staged, (9, 171, 3)), (in_lines, (9, 171, 2))], ids=name_of_case)
@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var")], ids=name_of)
def test_misaligned_and_transposed(kind: Kind, op: Any, how: Any, shape: tuple[int, ...]) -> None:
    """Columns that begin inside a vector, and results that lie otherwise."""
    x = values(op, shape, "f32")
    flat = np.zeros(x.size + 1, np.float32)
    flat[1:] = x.reshape(-1)
    with how():
        plain = kind.numpy(function(op)(kind.array(x), 1))
        shifted = kind.numpy(function(op)(kind.array(flat)[1:].reshape(shape), 1))
        out = kind.array(np.zeros((shape[2], 1, 9), np.float32))
        function(op)(kind.array(x), 1, out=out.transpose(2, 1, 0))
    np.testing.assert_allclose(shifted, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(kind.numpy(out).transpose(2, 1, 0), plain)


# ---------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("name", "shape", "element", "kernel", "constants"),
    [
        ("prod", (45463, 700, 2), "bf16", "fold_staged_rows", {"inner": 2, "lanes": 16, "height": 1, "vector": 8}),
        ("prod", (45463, 1014, 2), "bf16", "fold_lines", {"inner": 2, "lanes": 32, "vector": 8}),
        ("argmax", (10000, 4097, 4), "f16", "fold_lines", {"inner": 4, "lanes": 32}),
        ("argmax", (4000, 4097, 4), "f16", "fold_lines", {"inner": 4, "lanes": 256}),
        ("argmax", (10000, 9000, 4), "f16", "fold_lines", {"lanes": 32}),
        ("argmax", (10000, 9000, 2), "f16", "fold_lines", {"lanes": 32}),
        ("argmax", (10000, 17000, 2), "f16", "fold_lines", {"lanes": 256}),
        ("argmax", (1, 20793600, 2), "f32", "fold_lines", {"inner": 2, "lanes": 256, "vector": 4}),
        ("sum", (1 << 15, 900, 8), "bf16", "fold_columns", {}),  # whole vectors
        ("var", (1 << 19, 179, 2), "f32", "fold_staged_rows", {"inner": 2, "lanes": 8, "height": 1, "vector": 4}),
        ("argmax", (1 << 17, 40, 7), "f32", "fold_staged_rows", {"inner": 7, "lanes": 1, "height": 1}),
        ("sum", (1 << 17, 40, 43), "bf16", "fold_staged_rows", {"inner": 43, "lanes": 1, "height": 1}),
        ("sum", (1 << 17, 3, 127), "u8", "fold_staged_rows", {"inner": 127, "lanes": 1}),
        ("sum", (1 << 15, 2500, 3), "bf16", "fold_staged_rows", {"inner": 3, "lanes": 32}),
        ("sum", (1 << 15, 7000, 3), "bf16", "fold_columns", {}),  # too long
        ("sum", (1 << 17, 179, 4), "f32", "fold_columns", {}),  # whole vectors
        ("var", (1 << 17, 179, 4), "f32", "fold_staged_rows", {"inner": 4}),
        ("var", (1 << 17, 179, 12), "f32", "fold_columns", {}),
        ("sum", (1 << 14, 179, 33), "f32", "fold_columns", {}),  # wide
        ("sum", (1 << 10, 179, 2), "f32", "fold_columns", {}),  # few
        ("sum", (1 << 23, 5, 2), "f32", "fold_held_columns", {}),
    ],
)
def test_which_columns_are_staged(name: str, shape: tuple[int, ...], element: str, kernel: str, constants: dict[str, int]) -> None:
    spec = launches(name, shape, 1, element)[0].spec
    assert spec.kernel == kernel and constants.items() <= dict(spec.constants).items()


def test_columns_with_gaps_are_not_staged() -> None:
    shape = (1 << 19, 179, 2)
    gaps = Layout(shape, (180 * 2, 2, 1))
    assert launches("sum", shape, 1, x=gaps)[0].spec.kernel == "fold_columns"
