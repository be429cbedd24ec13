"""Small folds by one launch: the last block of each row, or of some columns, combines the partials and leaves its counter at 0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import FORWARD, OTHER, check, function, kind_of, run, values
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.arrays import arrays, stream_scratch
from numba_baracuda.core.op import Clear, Launch, Op, Recipe, Target, contiguous
from numba_baracuda.plans import frames
from numba_baracuda.plans.plan import target_of
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import FoldColumns, FoldRows, SinglePass

CARD = Target((9, 0), 132)
#: rows and columns in splits of which the last is short; rows that begin inside a vector; columns of several blocks, and idle lanes
SPLIT = [((2, 9001), 1), ((11_000,), 0), ((3, 3, 4104), (1, 2)), ((300, 10), 0), ((9000, 3), 0), ((37, 301), 0), ((70, 300), 0)]


@contextlib.contextmanager
def in_splits(single_pass: bool = True) -> Iterator[None]:
    """Small problems have several splits, which the last block combines, or a second launch."""
    policy = {"grid_blocks_per_multiprocessor": 7} if single_pass else {"max_bytes": 1}
    with using(FoldRows, min_split_batches=1), using(FoldColumns, min_split_batches=1), using(SinglePass, **policy):
        yield


def recipe_of(op: Op, shape: tuple[int, ...], axis: Any, element: str = "f32", target: Target = CARD, **options: Any) -> Recipe:
    descriptor = nb.ReduceDescriptor(op.kind, shape, axis, element, **options)
    return op.variants[0].recipe(op, descriptor, {"x": contiguous(shape), "y": contiguous(descriptor.output_shape)}, target)


def kernels(recipe: Recipe) -> list[str]:
    return [step.spec.kernel for step in recipe.steps if isinstance(step, Launch)]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("single_pass", [True, False], ids=["one launch", "two"])
@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var", "reduce_logsumexp", "reduce_norm2")], ids=name_of)
def test_splits_are_combined(kind: Kind, op: Op, single_pass: bool) -> None:
    for shape, axis in SPLIT:
        with in_splits(single_pass):
            check(kind, op, shape, axis)


@pytest.mark.parametrize("op", FORWARD, ids=name_of)
@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
def test_elements(kind: Kind, op: Op, element: str) -> None:
    with in_splits():
        for shape, axis in (((1, 9001), 1), ((600, 12), 0)):
            check(kind, op, shape, axis, element)


@pytest.mark.parametrize("op", OTHER, ids=name_of)
def test_places_and_truth(kind: Kind, op: Op) -> None:
    """Ties in several splits, of which the first wins, and NaN in the last one, which wins over numbers."""
    x = np.random.default_rng(0).integers(0, 3, (2, 9001)).astype(np.float32)
    for array, axis in ((x, 1), (x.T[:3000].copy(), 0), (np.where(np.arange(9001) == 8999, np.nan, x).astype(np.float32), 1)):
        with in_splits():
            got = kind.numpy(function(op)(kind.array(array), axis, False))
        np.testing.assert_array_equal(got, getattr(np, kind_of(op))(array, axis=axis))


@pytest.mark.parametrize("name", ["sum", "var", "argmax"])
def test_columns_that_begin_anywhere(kind: Kind, name: str) -> None:
    """Only the columns that exist have results; NaN lies on both sides of them."""
    op = nb.OPS[f"reduce_{name}"]
    wide = np.full((70, 1040), np.nan, np.float32)
    x = wide[:, 3:1035] = values(op, (70, 1032), "f32")
    with in_splits():
        got = kind.numpy(function(op)(kind.array(wide)[:, 3:1035], 0, False))
    wanted = {"sum": x.astype(np.float64).sum(0), "var": x.astype(np.float64).var(0, ddof=1), "argmax": x.argmax(0)}[name]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", [op for op in FORWARD if op.name in ("reduce_sum", "reduce_var")], ids=name_of)
def test_the_same_bits_whichever_block_is_last(emulator: Kind, op: Op) -> None:
    for shape, axis in (((2, 8300), 1), ((600, 5), 0)):
        x, results = {"x": values(op, shape, "f32")}, []
        for seed in (None, 1, 2, 3):
            with emulator.schedule(seed), in_splits():
                results.append(run(op, x, shape, axis))
        assert all(np.array_equal(results[0], other) for other in results)


@pytest.mark.parametrize(("shape", "axis"), [((2, 9001), 1), ((5000, 3), 0), ((70, 300), 0)])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_counters_are_zero_after_every_launch(emulator: Kind, shape: tuple[int, ...], axis: int, seed: int | None) -> None:
    """So the next launch needs no clear, whatever the partials are."""
    op = nb.OPS["reduce_sum"]
    x = values(op, shape, "f32")
    out = np.empty(nb.ReduceDescriptor("sum", shape, axis).output_shape, np.float32)
    with in_splits():
        recipe = recipe_of(op, shape, axis, target=target_of(-1))
    views = [arrays.read(array, (op.name, name, "")) for name, array in (("x", x), ("y", out))]
    emulated = frames.bind(op, recipe, views, target_of(-1), -1).emulated()
    clear, launch = emulated.recipe.steps
    assert isinstance(clear, Clear) and clear.restored and isinstance(launch, Launch) and launch.config[0] > 2
    workspace = arrays.read(np.full(recipe.workspace + 16, 0xA5, np.uint8), (op.name, "workspace", ""))
    memories = emulated.memories([x, out], workspace)
    emulated.step(clear, memories)
    for _ in range(3):
        out[...] = np.nan
        with emulator.schedule(seed):
            emulated.step(launch, memories)
        np.testing.assert_allclose(out, x.sum(axis, keepdims=True, dtype=np.float64), rtol=1e-4, atol=1e-3)
        assert not memories["arrivals"][0].owner.any()


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    ("shape", "axis", "kernel"),
    [((100_000, 64), 0, "fold_columns"), ((20_000, 64), 0, "fold_columns"), ((1 << 20,), 0, "fold_rows"), ((8, 1 << 20), 1, "fold_rows")],
)
def test_small_folds_are_one_launch(shape: tuple[int, ...], axis: int, kernel: str) -> None:
    recipe = recipe_of(nb.OPS["reduce_sum"], shape, axis)
    assert kernels(recipe) == [kernel] and recipe.steps[0] == Clear("arrivals", restored=True)
    assert recipe.slots[0].name == "arrivals" and recipe.slots[0].nbytes <= stream_scratch.ZEROED_BYTES
    assert stream_scratch.ZEROED_BYTES + recipe.workspace <= stream_scratch.NBYTES


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300_000, 64), 0), ((2, 1 << 24), 1), ((50_000, 128), 0)],
    ids=["many bytes", "many bytes of a row", "many states"],
)
def test_large_folds_are_two(shape: tuple[int, ...], axis: int) -> None:
    recipe = recipe_of(nb.OPS["reduce_sum"], shape, axis)
    assert len(kernels(recipe)) == 2 and not any(isinstance(step, Clear) for step in recipe.steps)


def test_a_block_combines_no_more_than_the_policy_says() -> None:
    """And a grid has as many blocks as with a second launch, or two for each multiprocessor."""
    rng, single_pass = np.random.default_rng(0), 0
    for op in FORWARD + OTHER:
        for _ in range(200):
            rows, columns = (int(10 ** rng.uniform(0, top)) for top in (6, 3))
            found = recipe_of(op, (rows, columns), 0)
            if kernels(found) == ["fold_columns"] and len(found.slots) == 2:
                single_pass += 1
                with using(SinglePass, max_bytes=1):
                    blocks = recipe_of(op, (rows, columns), 0).steps[0].config[0]
                arrivals, partials = found.slots
                assert partials.count <= arrivals.count * SinglePass.max_scalars
                assert found.steps[1].config[0] >= min(blocks, 1.5 * CARD.multiprocessors)
                assert 4 * rows * columns <= SinglePass.max_bytes or op.elements[0] != "f32"
    assert single_pass > 100


def test_gradients_and_monoids_that_do_not_commute_keep_two_launches() -> None:
    descriptor = nb.ReduceBackwardDescriptor("var", (20_000, 64), 0)
    op = nb.OPS["reduce_var_backward"]
    layouts = {operand.name: contiguous(getattr(descriptor, operand.axes[0])) for operand in op.operands}
    assert "combine_partials" in kernels(op.variants[0].recipe(op, descriptor, layouts, CARD))
