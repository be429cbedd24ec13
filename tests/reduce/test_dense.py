"""Gradients of dense operands in the order of memory: lines that vectors cross, heads and tails, and which problems go so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import reduce_cases
from kinds import Kind
from reduce_cases import BACKWARD, check, launches_of
from samples import name_of

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Layout, Op, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import BroadcastDense, FoldAndBroadcastColumns, FoldAndBroadcastRows, FoldRows, Passes

#: lines that are kept and reduced, longer than a vector and shorter, along one axis to five; several vectors a thread; a tail
SHAPES = [
    ((40, 37), 1), ((37, 40), 0), ((400, 3), 1), ((3, 400, 3), 1), ((5, 3, 41), (0, 2)), ((7, 3, 2, 5), (1, 3)), ((4, 3, 5, 2, 9), (0, 2, 4)),
    ((2500,), 0), ((3, 5000), 0), ((1, 301, 1), 1), ((9, 37, 2), 1), ((5, 3, 41, 4), (0, 2)), ((7, 90, 5, 2), (0, 2)), ((1200, 2), 0),
    ((300, 1, 2), 1), ((300, 3, 2), 1),
]  # fmt: skip
FREE = [op for op in BACKWARD if op.name not in ("reduce_prod_backward",)]


@contextlib.contextmanager
def dense() -> Iterator[None]:
    """Small problems go as large ones do; folds of a gradient have a launch of their own."""
    with (
        using(BroadcastDense, min_bytes=1, min_item_bytes=1, items_per_thread=2, min_near_vectors=4), using(FoldAndBroadcastRows, min_bytes=1),
        using(Passes, min_bytes=1),
    ):  # fmt: skip
        yield


def launches(name: str, shape: tuple[int, ...], axis: Any, element: str = "f32", address: int = 0) -> list[Launch]:
    """What serves contiguous operands on a GPU, of which dx and x begin at ``address``."""
    op = nb.OPS[name]
    full = {each.name: Layout(shape, contiguous(shape).strides, address) for each in op.operands if each.name in ("x", "dx")}
    return launches_of(op, nb.ReduceBackwardDescriptor(op.kind, shape, axis, element), **full)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("op", FREE, ids=name_of)
def test_shapes(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any) -> None:
    with dense():
        check(kind, op, shape, axis)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("op", FREE, ids=name_of)
def test_elements(kind: Kind, op: Op, element: str) -> None:
    for shape, axis in (((67, 3, 5), (0, 2)), ((41, 3, 5), 1), ((11, 33, 2), 1), ((5, 33, 4), 1)):
        with dense():
            check(kind, op, shape, axis, element)


@pytest.mark.parametrize(("shape", "late"), [((13, 7, 23), 1), ((13, 7, 23), 3), ((13, 71, 2), 1), ((13, 71, 2), 2)])
@pytest.mark.parametrize("op", [op for op in FREE if op.name in ("reduce_sum_backward", "reduce_max_backward")], ids=name_of)
def test_operands_that_begin_inside_a_vector(kind: Kind, op: Op, shape: tuple[int, ...], late: int) -> None:
    """Only elements before the first aligned vector of x and dx, which lie alike, and behind the last are stored one by one."""
    axes, room = (1,), int(np.prod(shape))
    given = reduce_cases.operands(op, shape, axes, "f32")
    arrays = {name: kind.array(each) for name, each in given.items()}

    def shifted(values: Any) -> Any:
        flat = np.full(room + 8, np.nan, np.float32)
        flat[late : late + room] = values.reshape(-1)
        return kind.array(flat)

    wide = shifted(np.zeros(shape, np.float32))
    out = wide[late : late + room].reshape(shape)
    if "x" in arrays:
        arrays["x"] = shifted(given["x"])[late : late + room].reshape(shape)
    with dense():
        got = kind.numpy(reduce_cases.run(op, arrays, shape, axes, out=out))
    more = {"ties": "all"} if "ties" in op.traits["keywords"] else {}
    reduce_cases.assert_close(got, reduce_cases.truth(op, given, shape, axes, **more), "f32", op.name)
    around = np.delete(kind.numpy(wide), np.arange(late, late + room))
    assert np.isnan(around).all()


@pytest.mark.parametrize("op", [op for op in FREE if op.name in ("reduce_max_backward", "reduce_var_backward")], ids=name_of)
def test_the_same_bits_under_any_schedule(emulator: Kind, op: Op) -> None:
    shape, results = (30, 3, 7), []
    given = reduce_cases.operands(op, shape, (0, 2), "f32")
    for seed in (None, 1, 2):
        with emulator.schedule(seed), dense():
            results.append(emulator.numpy(reduce_cases.run(op, {name: emulator.array(each) for name, each in given.items()}, shape, (0, 2))))
    assert all(np.array_equal(results[0], other) for other in results)


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    ("kind", "shape", "axis", "element", "kernel"),
    [
        ("sum", (15673, 2, 289, 5), 2, "bf16", "broadcast_dense"),
        ("sum", (10880514, 10), 0, "f32", "broadcast_dense"),
        ("logsumexp", (469348, 321), 1, "bf16", "broadcast_dense"),
        ("min", (138295, 428), 1, "f32", "broadcast_dense"),
        ("var", (216, 455, 2, 1259), (0, 2, 3), "f32", "broadcast_dense"),
        ("max", (9992625, 4, 2), (0, 1), "bf16", "broadcast_dense"),
        ("sum", (100, 100), 1, "f32", "broadcast_rows"),  # little
        ("std", (94, 140, 3908), 0, "f32", "fold_and_broadcast_columns"),  # caches hold the columns of all blocks
        ("norm2", (294, 2, 94760), (0, 1), "bf16", "broadcast_columns"),
        ("var", (36, 21040, 13, 4), (0, 3), "bf16", "broadcast_columns"),
        ("sum", (1 << 14, 1 << 13), 0, "bf16", "broadcast_columns"),  # many instructions for each vector
        ("logsumexp", (1 << 14, 1 << 13), 1, "bf16", "broadcast_rows"),
        ("min", (3, 19, 2, 2206926), 1, "f32", "broadcast_columns"),  # more terms than caches hold
        ("max", (1 << 16, 1 << 16), 0, "f32", "broadcast_columns"),  # more elements than 31 bits count
    ],
)
def test_kernel_of_a_gradient(kind: str, shape: tuple[int, ...], axis: Any, element: str, kernel: str) -> None:
    assert launches(f"reduce_{kind}_backward", shape, axis, element)[-1].spec.kernel == kernel


def test_vectors_of_operands_that_lie_alike() -> None:
    for address, head in ((0, 0), (4, 3), (8, 2), (12, 1)):
        (launch,) = launches("reduce_max_backward", (138295, 428), 1, "f32", address)
        assert dict(launch.spec.constants)["vector"] == 4 and launch.arguments["head"] == head


def test_lanes_of_rows_that_are_folded_and_stored() -> None:
    for shape, lanes in (((200000, 256), 8), ((300001, 100), 4), ((3000000, 28), 2), ((15000000, 8), 2), ((1000, 256), 32)):
        (launch,) = launches("reduce_var_backward", shape, 1)
        assert launch.spec.kernel == "fold_and_broadcast_rows" and dict(launch.spec.constants)["lanes"] == lanes
        with using(FoldAndBroadcastRows, max_read_bytes=100):
            (launch,) = launches("reduce_var_backward", shape, 1)
        assert launch.spec.kernel == f"fold_and_broadcast_{'held_' * (shape[1] > 25)}rows" and dict(launch.spec.constants)["lanes"] == lanes
    with using(FoldRows, max_warp_vectors=1, warp_rows_per_multiprocessor=10**6):
        (launch,) = launches("reduce_var_backward", (200000, 1024), 1)
        assert dict(launch.spec.constants)["lanes"] == 256


def test_lanes_of_rows_that_are_divided() -> None:
    """They have few vectors that are none of the row's."""
    for extent, lanes, steps in ((72, 4, 3), (64, 8, 1), (40, 2, 3), (24, 4, 1), (136, 8, 3), (512, 32, 2), (1 << 12, 32, 4)):
        (launch,) = launches("reduce_prod_backward", (1 << 20, extent), 1, "bf16")
        constants = {"gradient": "rounded_prod", "lanes": lanes, "steps": steps}
        assert launch.spec.kernel == "fold_and_broadcast_rows" and constants.items() <= dict(launch.spec.constants).items()


@pytest.mark.parametrize(
    ("shape", "constants"),
    [
        ((2, 1 << 20), {"held": True, "lanes": 256, "steps": 2, "vector": 2}),
        ((2, (1 << 20) + 1), {"held": True, "lanes": 256, "steps": 2, "vector": 1}),
        ((5, 600_000), {"held": True, "lanes": 256, "steps": 5, "vector": 2}),
        ((17, 1 << 20), {"held": True, "lanes": 256, "steps": 17, "vector": 2}),
        ((48, 1 << 20), {"held": True, "lanes": 128, "steps": 24}),
        ((53, 3 << 16), {"held": True, "lanes": 64, "steps": 14}),
        ((200, 1 << 20), {"held": True, "lanes": 16, "steps": 14}),
        ((400, 1 << 20), {"held": False, "lanes": 32}),
    ],
)
def test_columns_that_lanes_hold(shape: tuple[int, ...], constants: dict[str, Any]) -> None:
    (launch,) = launches("reduce_var_backward", shape, 0)
    assert launch.spec.kernel == "fold_and_broadcast_columns" and constants.items() <= dict(launch.spec.constants).items()


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize(("name", "options"), [("var", {}), ("std", {}), ("max", {"ties": "even"}), ("min", {"ties": "all"})])
@pytest.mark.parametrize(("shape", "axis"), [((70, 300), 0), ((3, 41, 150), 1), ((5, 9, 3, 41), (0, 1)), ((40, 1030), 0), ((3, 70, 9, 41), (0, 2))])
def test_columns_that_several_lanes_hold(kind: Kind, name: str, options: dict[str, str], shape: tuple[int, ...], axis: Any, element: str) -> None:
    with using(FoldAndBroadcastColumns, grid_blocks_per_multiprocessor=1, min_held_bytes=128):
        check(kind, nb.OPS[f"reduce_{name}_backward"], shape, axis, element, **options)


def test_columns_that_caches_hold() -> None:
    assert [launch.spec.kernel for launch in launches("reduce_var_backward", (4000, 1 << 16), 0)] == [
        "fold_columns", "combine_partials", "broadcast_columns",
    ]  # fmt: skip
    for shape, axis, element, held in (
        ((32, 1 << 20), 0, "bf16", True), ((84, 3141, 569), 0, "f32", True),
        ((17489, 199, 47), 1, "f32", False), ((318, 376398), 0, "f32", False),  # lanes below each other would have 128 bytes of a row
        ((335983, 29, 9), 1, "f32", False), ((3, 84130, 17, 16), (0, 2), "f32", True),  # slices of narrow lines, across one axis and two
    ):  # fmt: skip
        (launch,) = launches("reduce_var_backward", shape, axis, element)
        assert dict(launch.spec.constants)["held"] is held
    (launch,) = launches("reduce_prod_backward", (32, 1 << 20), 0)  # whose fold few need
    assert dict(launch.spec.constants)["held"] is False
    assert launches("reduce_prod_backward", (48, 1 << 20), 0)[-1].spec.kernel == "broadcast_columns"
    assert launches("reduce_var_backward", (300, 1 << 10), 0)[-1].spec.kernel == "broadcast_columns"  # few columns


def test_special_results_of_long_rows_are_found_by_those_who_fold_them() -> None:
    fold, combine, spread = launches("reduce_prod_backward", (4, 1 << 26), 1)
    for launch in (fold, combine):
        assert dict(launch.spec.constants)["special"] and launch.arguments["guard"] == "y"
    assert [spread.spec.kernel, fold.spec.kernel] == ["broadcast_rows", "fold_rows"]
    op = nb.OPS["reduce_prod_backward"]
    descriptor = nb.ReduceBackwardDescriptor(op.kind, (2, 2, 1 << 26), 2)
    steps = launches_of(op, descriptor, y=Layout((2, 2, 1), (1, 2, 1)))
    assert steps[0].spec.kernel == "find_special_results"  # y does not lie as the folded results do


def test_vectors_of_short_lines() -> None:
    """Few columns take turns in whole vectors, if they divide them."""
    for shape, element, constants in (
        ((1 << 20, 32, 4), "bf16", {"vector": 8, "columns": 4, "axes": 2, "whole": True}), ((1 << 20, 33, 2), "bf16", {"columns": 2, "whole": False}),
        ((1 << 20, 32, 2), "f32", {"vector": 4, "columns": 2, "axes": 2, "whole": True}), ((1 << 20, 33, 2), "f32", {"columns": 2, "whole": False}),
        ((1 << 20, 15, 4), "f32", {"columns": 4, "whole": True}), ((1 << 20, 32, 3), "f32", {"columns": 1, "kept_line": True, "short": True}),
        ((1 << 10, 32, 1 << 12), "f32", {"columns": 1, "kept_line": True, "near": False}), ((1 << 14, 32, 300), "bf16", {"vector": 8, "near": True}),
    ):  # fmt: skip
        (launch,) = launches("reduce_max_backward", shape, 1, element)
        assert launch.spec.kernel == "broadcast_dense" and constants.items() <= dict(launch.spec.constants).items()
    for address, columns in ((8, 2), (4, 1)):
        (launch,) = launches("reduce_max_backward", (1 << 20, 32, 2), 1, "f32", address)
        assert dict(launch.spec.constants)["columns"] == columns


def test_results_of_few_columns_that_lie_otherwise(kind: Kind) -> None:
    x = np.random.default_rng(0).random((9, 37, 2), np.float32)
    y, dy = x.max(1, keepdims=True), np.random.default_rng(1).random((9, 1, 2), np.float32)
    otherwise = [kind.transpose(kind.array(np.ascontiguousarray(each.transpose(2, 1, 0))), (2, 1, 0)) for each in (dy, y)]
    with dense():
        got = kind.numpy(nb.reduce_max_backward(otherwise[0], kind.array(x), otherwise[1], axis=1))
    np.testing.assert_array_equal(got, np.where(x == y, dy, 0))
