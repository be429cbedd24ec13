"""How reductions are dealt to blocks and lanes, which kernel a layout gets, and the fold of several rows over lanes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from collectives import AFFINE
from numba import cuda
from numba.cuda import types

from numba_baracuda import OPS, ReduceBackwardDescriptor, ReduceDescriptor, ReduceKind
from numba_baracuda.core.axes import ceil_div
from numba_baracuda.core.op import Launch, Layout, Target, contiguous
from numba_baracuda.device.warp import states_of
from numba_baracuda.emulator import emulator
from numba_baracuda.kernels.batch import state_accessors
from numba_baracuda.kernels.transpose import first_state_index, transposed_choice, transposed_fold
from numba_baracuda.reduce import tiling
from numba_baracuda.reduce.policy import Block, FoldAndBroadcastRows, FoldColumns, FoldRows, FoldStagedRows

CARD = Target((9, 0), 132)


def launches(shape: tuple[int, ...], axis: Any, kind: str = "sum", element: str = "f32", address: int = 0, pad: int = 0) -> list[Launch]:
    """What reduces an array whose last axis has ``pad`` elements behind it."""
    descriptor = ReduceDescriptor(ReduceKind.parse(kind), shape, axis, element)
    strides = contiguous((*shape[:-1], shape[-1] + pad)).strides
    op = OPS[descriptor.op_name]
    recipe = op.variants[0].recipe(op, descriptor, {"x": Layout(shape, strides, address), "y": contiguous(descriptor.output_shape)}, CARD)
    return [step for step in recipe.steps if isinstance(step, Launch)]


@pytest.mark.parametrize(
    ("shape", "axis", "options", "kernel", "constants"),
    [
        ((1 << 17, 16), 1, {}, "fold_short_rows", {"lanes": 4, "steps": 1, "height": 4, "full": True}),
        ((1 << 20, 4), 1, {"element": "bf16"}, "fold_short_rows", {"lanes": 1, "vector": 4, "height": 8}),
        ((1 << 20, 24), 1, {}, "fold_short_rows", {"lanes": 8, "full": False}),
        ((1 << 20, 37), 1, {}, "fold_staged_rows", {"lanes": 1, "height": 1, "vector": 4}),
        ((1 << 19, 5), 1, {}, "fold_staged_rows", {"lanes": 1, "height": 4, "vector": 4}),
        ((1 << 20, 37), 1, {"address": 4}, "fold_staged_rows", {"vector": 1}),
        ((1 << 20, 37), 1, {"pad": 1}, "fold_short_rows", {"vector": 1, "lanes": 32}),
        ((1 << 20, 601), 1, {}, "fold_staged_rows", {"lanes": 16}),
        ((1 << 14, 701), 1, {}, "fold_rows", {"peeled": True, "lanes": 32}),
        ((1 << 20, 256), 1, {}, "fold_short_rows", {"lanes": 32, "steps": 2, "height": 2}),
        ((128, 1024), 1, {}, "fold_rows", {"lanes": 256}),
        ((1 << 16, 1024), 1, {}, "fold_rows", {"lanes": 32}),
        ((1 << 14, 1 << 14), 1, {}, "fold_rows", {"lanes": 256, "vector": 4, "peeled": False}),
        ((1 << 14, 1 << 14), 1, {"address": 4}, "fold_rows", {"vector": 4, "peeled": True}),
        ((1024,), None, {}, "fold_short_rows", {"vector": 4, "lanes": 32, "steps": 8, "height": 1, "full": True}),
        ((1000,), None, {}, "fold_short_rows", {"steps": 8, "full": False}),
        ((4, 1024), 1, {"element": "f64"}, "fold_rows", {"lanes": 256}),
        ((4, 512), 1, {"element": "f64"}, "fold_short_rows", {"steps": 8, "height": 1}),
        ((5, 1024), 1, {}, "fold_rows", {"lanes": 256}),
        ((1028,), None, {}, "fold_rows", {"vector": 4, "peeled": False}),
        ((1 << 14, 1 << 14), 0, {}, "fold_columns", {"lanes": 32, "vector": 4}),
        ((1 << 14, 1 << 14), 0, {"address": 4}, "fold_columns", {"lanes": 32, "vector": 4, "peeled": True}),
        ((1 << 14, (1 << 14) - 1), 0, {"pad": 1}, "fold_columns", {"lanes": 32, "vector": 4, "peeled": True}),
        ((15, 20, 100_001), 1, {}, "fold_columns", {"lanes": 256, "vector": 1, "steps": 10}),
        ((685, 69, 84, 24), 2, {"kind": "max"}, "fold_columns", {"lanes": 64, "vector": 4, "steps": 4}),
        ((30_000, 120, 24), 1, {"kind": "var"}, "fold_columns", {"lanes": 128, "vector": 2, "steps": 8}),
        ((1000, 120, 24), 1, {"kind": "var"}, "fold_columns", {"lanes": 32}),
        ((20_000, 3000, 24), 1, {"kind": "var"}, "fold_columns", {"lanes": 16}),
        ((3, 1 << 20), 0, {}, "fold_columns", {"lanes": 256, "vector": 4, "steps": 3}),
        ((3, 24, 1 << 20), 1, {}, "fold_columns", {"lanes": 256, "vector": 4, "steps": 4}),
        ((17, (1 << 20) + 1), 0, {}, "fold_columns", {"lanes": 256, "vector": 1, "steps": 9}),
        ((2, 1 << 20), 0, {}, "fold_columns", {"vector": 4, "steps": 2}),
        ((5000, 777), 0, {}, "fold_columns", {"lanes": 64, "vector": 1, "steps": 16}),
        ((1 << 12, (1 << 11) - 1), 0, {}, "fold_columns", {"lanes": 128, "vector": 1, "peeled": False}),
        ((1 << 14, (1 << 14) - 1), 0, {}, "fold_columns", {"lanes": 32, "vector": 4, "peeled": False}),
        ((1 << 14, 64), 0, {"address": 4}, "fold_columns", {"lanes": 64, "vector": 1, "peeled": False}),
        ((1 << 14, 1 << 14), 0, {"address": 8, "kind": "var"}, "fold_columns", {"lanes": 64, "vector": 2, "peeled": False}),
        ((1 << 14, 1 << 14), 0, {"kind": "var"}, "fold_columns", {"lanes": 64, "vector": 2}),
        ((1 << 14, 1 << 14), 0, {"kind": "var", "element": "bf16"}, "fold_columns", {"lanes": 128, "vector": 2}),
    ],
)  # fmt: skip
def test_kernel_of_a_layout(shape: tuple[int, ...], axis: Any, options: dict[str, Any], kernel: str, constants: dict[str, Any]) -> None:
    spec = launches(shape, axis, **options)[0].spec
    assert spec.factory.endswith(f":{kernel}")
    assert dict(spec.constants) | constants == dict(spec.constants)


@pytest.mark.parametrize(
    ("shape", "element", "kernel", "constants"),
    [
        ((1 << 20, 5), "f32", "broadcast_staged_rows", {"lanes": 1, "height": 4, "vector": 4}),
        ((1 << 20, 22), "f32", "broadcast_staged_rows", {"lanes": 1, "vector": 4}),
        ((1 << 20, 49), "bf16", "broadcast_staged_rows", {"lanes": 1, "vector": 8}),
        ((1 << 20, 276), "bf16", "broadcast_staged_rows", {"lanes": 4, "vector": 8}),
        ((1 << 20, 601), "f32", "broadcast_staged_rows", {"lanes": 16}),
        ((1 << 20, 701), "f32", "fold_and_broadcast_rows", {"vector": 4, "peeled": True}),
        ((1 << 20, 704), "f32", "fold_and_broadcast_rows", {"vector": 4, "peeled": False}),
        ((1 << 20, 24), "f32", "fold_and_broadcast_rows", {"vector": 4}),
        ((1 << 20, 256), "f32", "fold_and_broadcast_rows", {"vector": 4}),
    ],
)  # fmt: skip
def test_kernel_of_a_gradient(shape: tuple[int, ...], element: str, kernel: str, constants: dict[str, Any]) -> None:
    for kind in ("var", "prod"):
        descriptor = ReduceBackwardDescriptor(ReduceKind.parse(kind), shape, 1, element)
        op = OPS[descriptor.op_name]
        full, kept = contiguous(shape), contiguous((shape[0], 1))
        layouts = {operand.name: kept if operand.name in ("y", "dy") else full for operand in op.operands}
        (launch,) = op.variants[0].recipe(op, descriptor, layouts, CARD).steps
        held = kind == "var" and kernel == "fold_and_broadcast_rows" and 4 * shape[1] > FoldAndBroadcastRows.max_read_bytes
        wanted = "fold_and_broadcast_held_rows" if held else kernel
        assert launch.spec.factory.endswith(f":{wanted}")
        assert dict(launch.spec.constants) | constants == dict(launch.spec.constants)


def test_rows_of_a_gradient_are_peeled_where_x_and_dx_lie_alike() -> None:
    shape = (1 << 10, 1 << 12)
    descriptor = ReduceBackwardDescriptor(ReduceKind.parse("logsumexp"), shape, 1, "f32")
    op, kept = OPS[descriptor.op_name], contiguous((shape[0], 1))
    for x, dx, peeled, vector in ((4, 4, True, 4), (8, 8, True, 4), (0, 0, False, 4), (4, 8, False, 1), (0, 8, False, 2)):
        layouts = {"x": Layout(shape, contiguous(shape).strides, x), "dx": Layout(shape, contiguous(shape).strides, dx), "y": kept, "dy": kept}
        (launch,) = op.variants[0].recipe(op, descriptor, layouts, CARD).steps
        assert {"peeled": peeled, "vector": vector}.items() <= dict(launch.spec.constants).items()


def test_halves_have_monoids_of_their_own() -> None:
    for kind, monoids in (
        ("norm2", ("hypot", "norm2", "unit_pivot_hypot")),
        ("log_sum_exp", ("logsumexp", "rounded_logsumexp", "rounded_logsumexp")),
    ):
        specs = [launches((1 << 14, 1 << 14), 1, kind, element)[0].spec for element in ("f32", "f16", "bf16")]
        assert tuple(dict(spec.constants)["monoid"] for spec in specs) == monoids


def test_partials_of_long_rows_are_combined_in_a_second_launch_and_small_problems_need_one() -> None:
    assert [step.spec.factory.rpartition(":")[2] for step in launches((4, 1 << 26), 1)] == ["fold_rows", "combine_partials"]
    assert all(len(launches(shape, axis)) == 1 for shape, axis in (((1024,), 0), ((128, 1024), 1), ((1 << 20, 256), 1)))


def test_rows_are_covered_once() -> None:
    for extent in (1, 2, 1000, 4096, 100_000, 1 << 26, (1 << 31) + 5):
        for blocks in (1, 7, 500):
            splits, chunk = tiling.splits_for(FoldRows(), blocks, extent, 4096, 132)
            assert (splits - 1) * chunk < extent <= splits * chunk and (splits == 1 or chunk % 4096 == 0)


def test_columns_are_split_for_even_blocks_as_far_as_states_are_few_bytes() -> None:
    policy = FoldColumns()
    for state_elements in (1, 2, 6):
        for extent in (1000, 100_000, 10_000_000):
            splits, chunk = tiling.even_splits(10, extent, 32, 132, state_elements)
            assert splits <= -(-policy.even_blocks_per_multiprocessor * 132 // 10) and (
                splits == 1 or chunk >= policy.min_state_share * state_elements
            )
    few, many = launches((200_000, 777), 0, "mean", "f32")[0], launches((200_000, 777), 0, "var", "f32")[0]
    blocks = [launch.config[0] / 132 for launch in (few, many)]
    assert policy.even_blocks_per_multiprocessor >= blocks[0] > blocks[1] >= policy.grid_blocks_per_multiprocessor


def test_lanes_of_short_rows_hold_them() -> None:
    for accesses in range(1, 600):
        lanes = tiling.row_lanes(accesses, 4, 1 << 20, 132)
        assert lanes & (lanes - 1) == 0 and lanes <= 32
        steps, height = tiling.short_row(accesses, lanes, 4)
        assert (steps == 0) == (accesses > 4 * lanes) and height & (height - 1) == 0
        assert steps == 0 or ((steps - 1) * lanes < accesses <= steps * lanes and steps * height <= 4 < 2 * steps * height)
    assert tiling.short_row(0, 1, 4) == (0, 0)


def test_few_short_rows_are_a_block_s_accesses() -> None:
    found = [(rows, accesses, tiling.few_rows(accesses, rows, 4)) for rows in range(1, 20) for accesses in range(600)]
    assert all((steps > 0) == (128 < accesses <= 256 and rows * accesses <= 1024) for rows, accesses, steps in found)
    assert all((steps - 1) * 32 < accesses <= steps * 32 for _, accesses, steps in found if steps)
    assert {tiling.few_rows(accesses, 1, Block.max_items_per_thread) for accesses in range(2000)} == {0}


def test_blocks_of_a_second_wave_are_halved() -> None:
    for blocks, splits in ((528, 2), (597, 2), (792, 2), (793, 1), (1056, 1), (2000, 1)):
        assert tiling.splits_for(FoldColumns(), blocks, 306, 32, 132, at_most=True)[0] == splits


def test_staged_rows_fit() -> None:
    for row_bytes in range(2, 4000, 2):
        lanes = tiling.staged_lanes(row_bytes)
        assert lanes == 0 or tiling.THREADS // lanes * row_bytes <= FoldStagedRows.shared_bytes_per_block
        assert (lanes == 0) == (16 * row_bytes > FoldStagedRows.shared_bytes_per_block)


@pytest.mark.parametrize("lanes", [1, 2, 8, 32])
@pytest.mark.parametrize("height", [1, 2, 4, 16])
def test_transposed_fold(lanes: int, height: int) -> None:
    """Lanes hold the folds of the places they are said to, in the order of the lanes."""
    states = states_of(AFFINE, (types.int64, types.int64))
    fold, choose, first_index, left = (
        transposed_fold(states, lanes, height),
        transposed_choice(lanes, height),
        first_state_index(lanes, height),
        max(1, height // lanes),
    )
    (get, put), scalars = state_accessors(2), 2 * height

    def kernel(x: Any, y: Any, chosen: Any) -> None:
        kept = cuda.local.array(scalars, types.int64)
        numbers = cuda.local.array(height, types.int64)
        thread = types.int32(cuda.threadIdx.x)
        for h in range(height):
            put(kept, 2 * h, 1, get(x, 2 * (thread * height + h), 1))
            numbers[h] = h
        lane = types.int32(thread % lanes)
        fold(kept, lane)
        choose(numbers, lane)
        for h in range(left):
            put(y, 2 * (thread * height + first_index(lane) + h), 1, get(kept, 2 * h, 1))
            chosen[thread * height + first_index(lane) + h] = numbers[h]

    rng = np.random.default_rng(height)
    x = rng.integers(-3, 4, (32, height, 2))
    y, chosen = np.full((32, height, 2), -99), np.full((32, height), -1)
    emulator.run(kernel, (types.int64[::1],) * 3, 1, 32, [x.reshape(-1), y.reshape(-1), chosen.reshape(-1)])
    combine = AFFINE.combine
    assert callable(combine)
    held = 0
    for lane in range(32):
        group = lane // lanes * lanes
        for h in range(height):
            if chosen[lane, h] >= 0:
                held += 1
                assert chosen[lane, h] == h
                assert tuple(y[lane, h]) == functools.reduce(combine, [tuple(x[group + k, h]) for k in range(lanes)])
    assert held == 32 * left
    seen = {h for lane in range(lanes) for h in range(height) if chosen[lane, h] >= 0}
    assert seen == set(range(height)) and ceil_div(height, lanes) == left


@pytest.mark.parametrize(
    ("shape", "element", "vector"),
    [((210, 506_497), "f32", 1), ((168, 278_868), "bf16", 4), ((513, 506_497), "f32", 4), ((210, 126_465), "bf16", 8), ((9000, 2047), "f32", 4)],
)
def test_few_long_lines_are_folded_as_they_are(shape: tuple[int, ...], element: str, vector: int) -> None:
    """Where loads are of 4 bytes or more; many lines, short ones and narrower loads go by whole vectors, in two passes."""
    assert dict(launches(shape, 0, "sum", element)[0].spec.constants)["vector"] == vector


def test_one_row_has_few_splits() -> None:
    one, several = (launches(shape, 1)[0].config[0] for shape in ((1, 1 << 24), (2, 1 << 24)))
    assert one <= 4 * 132 < several
