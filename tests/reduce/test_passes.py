"""Reductions whose reduced axes lie apart, or whose lines are no multiple of a vector: two passes of a fold, and gradients of whole vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import BACKWARD, EVERY, FORWARD, OTHER, check, check_places, function, launches_of, operands, run, truth, values
from samples import name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Op
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import BroadcastDense, CombinePartials, FoldColumns, FoldHeld, FoldLines, FoldStagedRows, Passes

#: lines apart, columns of more than one line, and columns of which some have one element more; a walk along rows; a kept axis before; walks that
#: begin inside a vector, and one in splits
APART = [
    ((37, 3, 5), (0, 2)), ((38, 7), 0), ((5, 3, 41), (0, 2)), ((3, 40, 3), 1), ((2, 36, 3, 5), (1, 3)), ((9, 4, 2, 3, 7), (0, 1, 3)),
    ((5, 41, 3), 1), ((3, 43, 2, 5), (1, 3)), ((512, 3, 16), (0, 2)),
]  # fmt: skip
WALKED = {"min_bytes": 1, "min_positions": 2, "many_positions": 4, "min_share": 1, "vectors_across": 16, "gradient_vectors_across": 16}


@contextlib.contextmanager
def in_passes() -> Iterator[None]:
    """Small problems are walked as large ones are, columns in several splits."""
    with using(Passes, **WALKED), using(FoldColumns, min_split_batches=1):
        yield


def launches(op: Op, shape: tuple[int, ...], axis: Any, element: str = "f32") -> list[Launch]:
    """What serves contiguous operands on a GPU."""
    kind = nb.ReduceDescriptor if op.backward or not op.traits["backward"] else nb.ReduceBackwardDescriptor
    return launches_of(op, kind(op.kind, shape, axis, element))


# ---------------------------------------------------------------- values


@EVERY
@pytest.mark.parametrize(("shape", "axis"), APART)
def test_passes(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    with in_passes():
        check(kind, op, shape, axis)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@EVERY
def test_elements(kind: Kind, op: Op, element: str) -> None:
    with in_passes():
        check(kind, op, (67, 3, 5), (0, 2), element)


@pytest.mark.parametrize(("shape", "axis"), [*APART, ((2, 4063, 3), 1)])
@pytest.mark.parametrize("op", OTHER, ids=name_of)
def test_places_and_truth(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    """Of ties in several states the first wins, and NaN wherever it lies."""
    with in_passes():
        check_places(kind, op, shape, axis)


#: lines of few neighbouring columns along the innermost of the reduced axes
FEW_COLUMNS = [((3, 5, 70, 2), (0, 2)), ((2, 3, 171, 3), (0, 2)), ((4, 3, 40, 7), (0, 2)), ((5, 2, 9, 3, 2), (0, 2, 3))]


@contextlib.contextmanager
def few_columns_in_passes() -> Iterator[None]:
    """Few columns are staged or folded in lines as many are, and not walked across."""
    with (
        in_passes(), using(Passes, min_positions=99, min_share=1), using(FoldHeld, max_extent=1), using(FoldStagedRows, min_column_bytes=1),
        using(FoldLines, min_line_bytes=400, min_bytes=1),
    ):  # fmt: skip
        yield


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("op", FORWARD, ids=name_of)
@pytest.mark.parametrize(("shape", "axis"), FEW_COLUMNS)
def test_few_columns(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any, element: str) -> None:
    with few_columns_in_passes():
        check(kind, op, shape, axis, element)


@pytest.mark.parametrize("op", OTHER, ids=name_of)
@pytest.mark.parametrize(("shape", "axis"), FEW_COLUMNS)
def test_places_in_few_columns(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    with few_columns_in_passes():
        check_places(kind, op, shape, axis)
        kernels = [launch.spec.kernel for launch in launches(op, shape, axis)]
    assert kernels == ["fold_lines" if shape[-1] == 2 and shape[2] > 50 else "fold_staged_rows", "combine_partials"]


@pytest.mark.parametrize("parts", [2, 3, 64])
@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var")], ids=name_of)
def test_many_partials_of_few_rows_are_combined_in_parts(kind: Kind, op: Op, parts: int) -> None:
    with in_passes(), using(CombinePartials, max_row_partials=4, parts=parts, blocks_per_multiprocessor=99):
        check(kind, op, (37, 3, 5), (0, 2))
        combined = [launch.spec.kernel for launch in launches(op, (37, 3, 5), (0, 2))]
    assert combined == ["fold_columns", "combine_partials"]


@pytest.mark.parametrize("name", ["reduce_std_backward", "reduce_prod_backward"])
def test_folds_of_gradients_are_combined_in_parts(kind: Kind, name: str) -> None:
    op, shape, axes = nb.OPS[name], (512, 3, 16), (0, 2)
    given = operands(op, shape, axes)
    if "prod" in name:  # of a result that is 0, the guarded fold is needed
        given["x"][3, 1, 2] = 0
        given["y"][:, 1] = 0
    with in_passes(), using(CombinePartials, max_row_partials=4, parts=3, blocks_per_multiprocessor=99):
        got = kind.numpy(run(op, {key: kind.array(each) for key, each in given.items()}, shape, axes))
        assert any(dict(launch.spec.constants).get("in_parts") for launch in launches(op, shape, axes))
    assert_close(got, truth(op, given, shape, axes), "f32", name)


def test_places_of_parts(kind: Kind) -> None:
    x = np.random.default_rng(0).integers(0, 3, (37, 3, 5)).astype(np.float32)
    with in_passes(), using(CombinePartials, max_row_partials=4, parts=3, blocks_per_multiprocessor=99):
        got = kind.numpy(nb.reduce_argmax(kind.array(x), axis=(0, 2), keepdims=False))
    np.testing.assert_array_equal(got, x.transpose(1, 0, 2).reshape(3, -1).argmax(1))


@pytest.mark.parametrize("name", ["var", "std", "std_backward", "var_backward"])
def test_far_from_zero(kind: Kind, name: str) -> None:
    """All states of a row are less one origin."""
    op = nb.OPS[f"reduce_{name}"]
    shape, axes = (37, 3, 5), (0, 2)
    x = (1e6 + np.random.default_rng(0).integers(-8, 9, shape)).astype(np.float32)
    wide = x.astype(np.float64)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, ddof=1, keepdims=True)
    given: tuple[Any, ...] = (x,)
    if op in BACKWARD:
        dy = np.ones((1, 3, 1), np.float32)
        given = (dy, x, var.astype(np.float32)) if len(op.operands) > 3 and name.startswith("var") else (dy, x)
        given = (dy, x, np.sqrt(var).astype(np.float32)) if name.startswith("std") else given
    with in_passes():
        got = kind.numpy(function(op)(*[kind.array(each) for each in given], axis=axes))
    wanted = {
        "var": var, "std": np.sqrt(var),
        "var_backward": 2 * (wide - mean) / (37 * 5 - 1), "std_backward": (wide - mean) / np.sqrt(var) / (37 * 5 - 1),
    }[name]  # fmt: skip
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var")], ids=name_of)
def test_transposed_and_misaligned(kind: Kind, op: Op) -> None:
    x = values(op, (38, 3, 5), "f32")
    flat = np.zeros(x.size + 1, np.float32)
    flat[1:] = x.reshape(-1)
    with in_passes():
        plain = kind.numpy(function(op)(kind.array(x), (0, 2)))
        shifted = kind.numpy(function(op)(kind.array(flat)[1:].reshape(38, 3, 5), (0, 2)))
        turned = kind.numpy(function(op)(kind.array(np.ascontiguousarray(x.transpose(1, 2, 0))).transpose(2, 0, 1), (0, 2)))
    np.testing.assert_allclose(shifted, plain, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(turned, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var")], ids=name_of)
def test_the_same_bits_under_any_schedule(emulator: Kind, op: Op) -> None:
    x, results = {"x": values(op, (70, 3, 5), "f32")}, []
    for seed in (None, 1, 2):
        with emulator.schedule(seed), in_passes():
            results.append(run(op, x, (70, 3, 5), (0, 2)))
    assert all(np.array_equal(results[0], other) for other in results)


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    ("shape", "axis", "element", "wanted"),
    [
        ((12345, 48, 257), (0, 2), "f32", {"vector": 4, "ragged": False}),
        ((848219, 31, 2), (0, 2), "bf16", {"vector": 8, "ragged": True}),
        ((172001, 777), 0, "bf16", {"vector": 8, "ragged": True}),
        ((172000, 777), 0, "f32", {"vector": 4, "ragged": False}),
        ((3, 4178, 16, 202), (0, 1, 2), "f32", {"vector": 4, "ragged": False}),
    ],
)
def test_columns_are_whole_vectors(shape: tuple[int, ...], axis: Any, element: str, wanted: dict[str, Any]) -> None:
    for name in ("reduce_sum", "reduce_mean_backward", "reduce_logsumexp_backward"):
        with using(BroadcastDense, min_bytes=1 << 62), using(Passes, gradient_vectors_across=128):
            launch = launches(nb.OPS[name], shape, axis, element)[0]
        assert launch.spec.kernel == ("broadcast_columns" if name.endswith("backward") else "fold_columns")
        assert dict(launch.spec.constants) | wanted == dict(launch.spec.constants)


@pytest.mark.parametrize(
    ("shape", "axis", "element", "vectors"),
    [((18, 31490, 214), 1, "bf16", (2, 4)), ((5, 3968259, 3), 1, "f32", (2, 4)), ((4, 70001, 3, 25), (1, 3), "f16", (2, 4))],
)
def test_walks_begin_inside_a_vector(shape: tuple[int, ...], axis: Any, element: str, vectors: tuple[int, int]) -> None:
    """Those of sums about a pivot, and of gradients with many terms, have fewer columns a thread."""
    *folds, spread = launches(nb.OPS["reduce_std_backward"], shape, axis, element)
    for launch, vector in ((folds[0], vectors[0]), (spread, vectors[1])):
        constants = dict(launch.spec.constants)
        assert constants["vector"] == vector and (launch is not spread or (constants["ragged"] and constants["outer"] == 1))
    for name in ("reduce_sum", "reduce_argmax") if len(shape) == 3 else ("reduce_sum",):
        (fold, *_) = launches(nb.OPS[name], shape, axis, element)
        assert {"ragged": True, "outer": 1, "vector": 16 // (4 if element == "f32" else 2)}.items() <= dict(fold.spec.constants).items()


def test_partials_of_all_parts_are_combined_at_once() -> None:
    for name, shape, axes, states in (
        ("var", (231768, 26, 6), (0, 2), 6), ("argmax", (131768, 29, 6), (0, 2), 24), ("any", (4, 96, 3, 75892), (0, 1, 2), 2),
        ("any", (429, 317, 106, 5), (0, 1, 3), 20),
    ):  # fmt: skip
        fold, combine = launches(nb.OPS[f"reduce_{name}"], shape, axes, "bf16")
        assert [fold.spec.kernel, combine.spec.kernel] == ["fold_columns", "combine_partials"]
        own = fold.arguments["splits"]
        assert (combine.arguments["splits"], combine.arguments["each"], combine.arguments["parts"]) == (states * own, own, 1) and own > 1


def test_many_partials_of_few_rows_have_many_blocks() -> None:
    fold, combine = launches(nb.OPS["reduce_count_nonzero"], (12415, 6, 4, 185), (0, 1, 3))
    assert combine.arguments["splits"] == 185 * fold.arguments["splits"] and combine.config[0] == 4 * combine.arguments["parts"] == 132
    with using(CombinePartials, max_row_partials=64):  # of many rows, the partials of each part come first
        assert len(launches(nb.OPS["reduce_count_nonzero"], (12415, 6, 400, 185), (0, 1, 3))) == 3


@pytest.mark.parametrize(
    ("name", "shape", "axis", "element", "vectors"),
    [
        ("min", (208, 37054, 29), (0, 2), "bf16", [8]),  # more states than the L2 cache holds, for loads of 2 bytes
        ("min", (64, 37054, 29), (0, 2), "bf16", [8]),
        ("argmin", (155, 82065, 9), (0, 2), "f32", [4]),  # of 4 bytes
        ("argmin", (40, 82065, 9), (0, 2), "f32", [1]),  # states would be too many for these
        ("sum", (269, 575519), 0, "bf16", [8]),
        ("sum", (300, 575517), 0, "f32", [1]),  # columns that warps load whole lines of memory of
        ("std", (55, 4574187), 0, "bf16", [1]),  # states of sums about a pivot
    ],
)
def test_states_are_weighed_against_narrow_loads(name: str, shape: tuple[int, ...], axis: Any, element: str, vectors: list[int]) -> None:
    found = [dict(step.spec.constants)["vector"] for step in launches(nb.OPS[f"reduce_{name}"], shape, axis, element)[:1]]
    assert found == vectors


def test_short_rows_of_a_first_pass_are_staged() -> None:
    fold, combine = launches(nb.OPS["reduce_min"], (29, 23905, 78), (0, 2), "bf16")
    assert [fold.spec.kernel, combine.spec.kernel] == ["fold_staged_rows", "combine_partials"] and dict(fold.spec.constants)["kept"] == 2


def test_lines_of_few_bytes_go_by_columns_where_these_have_vectors() -> None:
    for name, kernel in (("sum", "broadcast_columns"), ("max", "broadcast_dense")):
        assert launches(nb.OPS[f"reduce_{name}_backward"], (150, 7526, 45, 2), (0, 2))[-1].spec.kernel == kernel


def test_few_columns_are_folded_along_the_innermost_axes() -> None:
    for name, shape, kernels in (
        ("count_nonzero", (3, 1877, 8354, 2), ["fold_lines", "combine_partials"]),
        ("norm2", (9, 19718, 106, 7), ["fold_staged_rows", "combine_partials"]),
        ("sum", (3, 1877, 106, 80), ["fold_columns"]), ("std", (3, 1877, 8354, 2), ["fold_columns"]),
    ):  # fmt: skip
        assert [launch.spec.kernel for launch in launches(nb.OPS[f"reduce_{name}"], shape, (0, 2), "bf16")] == kernels


def test_rows_are_walked_where_they_have_more_positions() -> None:
    """Unless states are less an origin, which rows do not have."""
    for name, kernel in (("reduce_sum", "fold_rows"), ("reduce_var", "fold_columns")):
        assert launches(nb.OPS[name], (64, 5, 30_001), (0, 2))[0].spec.kernel == kernel


def test_problems_that_vectors_fit_go_in_one_pass() -> None:
    for shape, axis in (((1 << 14, 1 << 12), 0), ((64, 32, 1 << 15), (0, 2)), ((1 << 26,), 0), ((1 << 20, 37), 1), ((5000, 777), 0)):
        folds = [launch for launch in launches(nb.OPS["reduce_sum"], shape, axis) if launch.spec.kernel != "combine_partials"]
        assert len(folds) == 1 and ("monoid", "sum") in folds[0].spec.constants
