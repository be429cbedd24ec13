"""How scans are dealt to blocks and lanes, which kernel a layout gets, and rows that blocks share out, in any order of blocks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from test_scan import EVERY, check, gradient, truth, values

import numba_baracuda as nb
from numba_baracuda import OPS, ScanBackwardDescriptor, ScanDescriptor, arrays
from numba_baracuda.op import Clear, Launch, Layout, Target, contiguous
from numba_baracuda.scan.problem import Problem
from numba_baracuda.scan.tiling import FEW_THREADS, GROUP, WEIGHTS, pieces_of, steps_of, words_of

CARD = Target((9, 0), 132)
FEW = FEW_THREADS * steps_of(WEIGHTS["single"].long_bytes, 4, 4) * 4  #: elements of a tile of a long row in the emulator


def recipe(shape: tuple[int, ...], axis: int, name: str = "cumsum", address: int = 0, pad: int = 0, early: bool = False, **options: Any) -> Any:
    """What scans arrays whose last axis has ``pad`` elements behind it."""
    op = OPS[name]
    made = ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor
    descriptor = made(op.kind, shape, axis, **options)
    strides = contiguous((*shape[:-1], shape[-1] + pad)).strides
    layouts = {operand.name: Layout(shape, strides, address) for operand in descriptor.specialise(op).operands}
    return op.variants[0 if early else 1].recipe(descriptor.specialise(op), descriptor, layouts, CARD)


@pytest.mark.parametrize(
    ("shape", "axis", "options", "kernel", "constants"),
    [
        ((1 << 14, 1 << 14), 1, {}, "scan_rows", {"lanes": 256, "vector": 4, "steps": 8, "peeled": False, "reverse": False}),
        ((1 << 14, 1 << 14), 1, {"name": "cumsum_backward"}, "scan_rows", {"reverse": True}),
        ((1 << 14, 1 << 14), 1, {"name": "cumprod_backward", "reverse": True}, "scan_rows", {"reverse": False, "lanes": 128, "steps": 4}),
        ((1 << 14, 1 << 14), 1, {"name": "cummax_backward", "reverse": True}, "scan_rows", {"reverse": True, "lanes": 128}),
        ((1 << 14, 1 << 14), 1, {"address": 4}, "scan_rows", {"vector": 4, "peeled": True}),
        ((1 << 14, 4099), 1, {}, "scan_rows", {"vector": 4, "peeled": True}),
        ((1 << 14, 4099), 1, {"name": "cummax", "index": "i64"}, "scan_rows", {"vector": 1, "peeled": False, "result": "i64"}),
        ((1 << 20, 37), 1, {}, "scan_rows", {"vector": 1, "peeled": False, "lanes": 8, "steps": 8}),
        ((1 << 20, 256), 1, {}, "scan_rows", {"lanes": 8, "steps": 8, "threads": 256}),
        ((1 << 22, 16), 1, {}, "scan_rows", {"lanes": 4, "steps": 1}),
        ((1 << 20, 1), 1, {}, "scan_columns", {}),
        ((1 << 14, 1 << 14), 0, {}, "scan_columns", {"lanes": 16, "vector": 4, "steps": 8}),
        ((1 << 14, 1 << 14), 0, {"element": "bf16"}, "scan_columns", {"lanes": 16, "vector": 4, "steps": 16}),
        ((1 << 14, 1 << 14), 0, {"name": "logcumsumexp"}, "scan_columns", {"lanes": 8, "vector": 4, "steps": 4}),
        ((1 << 14, 1 << 14), 0, {"address": 4}, "scan_columns", {"vector": 1}),
        ((1, 1 << 28), 1, {}, "scan_long_rows", {"group": GROUP, "threads": 256, "peeled": False}),
        ((1, 1 << 28), 1, {"early": True}, "scan_long_rows", {"group": 0}),
        ((7, (1 << 25) + 3), 1, {}, "scan_long_rows", {"peeled": True, "vector": 4, "place": "i32"}),
        ((1, 1 << 31), 1, {"name": "cummax_backward"}, "scan_long_rows", {"place": "i64"}),
    ],
)  # fmt: skip
def test_kernel_of_a_layout(shape: tuple[int, ...], axis: int, options: dict[str, Any], kernel: str, constants: dict[str, Any]) -> None:
    launch = recipe(shape, axis, **options).steps[-1]
    assert isinstance(launch, Launch)
    assert launch.spec.factory.endswith(f":{kernel}")
    assert dict(launch.spec.constants).items() >= constants.items()


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.family == "scan"])
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_the_workspace_is_small(name: str, element: str) -> None:
    """Zeros at first, and at most a hundredth of what is read, for rows that are shared out; none for others."""
    made = recipe((1, 1 << 28), 1, name, element=element)
    clear, launch = made.steps
    assert isinstance(clear, Clear) and clear.byte == 0 and clear.slot in launch.pointers
    reads = len(OPS[name].operands) - 1
    size = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}[element]
    assert 0 < made.workspace <= 0.01 * reads * size * (1 << 28)
    for shape, axis in (((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0)):
        assert recipe(shape, axis, name, element=element).workspace == 0


@pytest.mark.parametrize(
    ("bits", "pieces"),
    [([32], [(0, 0)]), ([64], [(0, 0)]), ([32, 32], [(0, 0), (0, 32)]), ([64, 32], [(0, 0), (1, 0)]), ([32] * 4, [(0, 0), (0, 32), (1, 0), (1, 32)]),
     ([64, 32, 64, 64], [(0, 0), (1, 0), (2, 0), (3, 0)]), ([32, 64, 32, 32], [(0, 0), (1, 0), (2, 0), (2, 32)])],
)  # fmt: skip
def test_pieces_of_a_state(bits: list[int], pieces: list[tuple[int, int]]) -> None:
    assert pieces_of(bits) == pieces
    assert words_of(bits, 3, 65, 32) == 2 + 2 * 3 * (65 + 3) * (pieces[-1][0] + 1)
    assert words_of(bits, 3, 65, 0) == 2 + 2 * 3 * 65 * (pieces[-1][0] + 1)


def test_rows_that_lie_differently_are_not_peeled() -> None:
    shape, even, odd = (40, 1001), contiguous((40, 1001)).strides, contiguous((40, 1002)).strides
    alike = Problem.of(1, [Layout(shape, even), Layout(shape, even)], ["f32", "f32"], 16)
    assert (alike.peeled, alike.vector, alike.longest) == (True, 4, 1004)
    for other in (Layout(shape, even, 4), Layout(shape, odd)):
        apart = Problem.of(1, [Layout(shape, even), other], ["f32", "f32"], 16)
        assert (apart.peeled, apart.vector) == (False, 1)


LONG = [(1, 3 * FEW + 5), (2, 4 * FEW)]


@EVERY
def test_long_rows(kind: Kind, name: str) -> None:
    for deterministic, reverse in itertools.product((True, False), (True, False)):
        check(kind, name, values(name, LONG[0]), 1, reverse=reverse, deterministic=deterministic)
    check(kind, name, values(name, LONG[1]), 1, exclusive=True, initial=0.5)


@pytest.mark.parametrize("dtype", ["f64", "bf16"])
@EVERY
def test_long_rows_of_other_elements(kind: Kind, name: str, dtype: str) -> None:
    check(kind, name, values(name, (1, 6 * FEW), dtype), 1)


@EVERY
@pytest.mark.parametrize("deterministic", [True, False])
def test_gradients_of_long_rows(kind: Kind, name: str, deterministic: bool) -> None:
    rng = np.random.default_rng(6)
    for shape in ((1, 2 * FEW + 8), (2, 2 * FEW + 3)):
        x = (rng.choice([-1, 1], shape) * np.exp(rng.uniform(-0.02, 0.02, shape)) if name == "cumprod" else rng.standard_normal(shape)).astype(
            np.float32
        )
        given = {"dy": rng.standard_normal(shape).astype(np.float32), "x": x, "y": truth(name, x, 1).astype(np.float32)}
        wanted, scale = gradient(name, given, 1)
        operands = [kind.array(given[operand.name]) for operand in OPS[f"{name}_backward"].operands[:-1]]
        got = kind.numpy(getattr(nb, f"{name}_backward")(*operands, 1, deterministic=deterministic))
        assert (abs(got - wanted) <= 4e-7 * shape[1] ** 0.5 * (4 if name == "logcumsumexp" else 1) * (scale + 1e-30)).all()


def test_several_groups_of_tiles(kind: Kind) -> None:
    """More tiles than are joined at once, of single elements, so that there are many."""
    x = values("cumsum", (1, 2 * 70 * FEW // 4))[:, ::2]
    check(kind, "cumsum", np.ascontiguousarray(x), 1, given=kind.array(np.repeat(x, 2, 1))[:, ::2])
    winners = np.sort(x, 1)
    y, places = nb.cummax(kind.array(winners), 1, return_indices=True)
    np.testing.assert_array_equal(kind.numpy(y), winners)
    assert (np.diff(kind.numpy(places)) >= 0).all()


@pytest.mark.skipif(not arrays.emulating(), reason="schedules are the emulator's")
@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cummax_backward"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_any_order_of_blocks_and_lanes(kind: Kind, name: str, deterministic: bool) -> None:
    """With every check on, lanes preempted everywhere, and blocks in random order: no race, no hang, and in fixed order the same bits."""
    x = kind.array(values("cumsum", (1, 2 * FEW + 37)))
    found = []
    for seed in (1, 2):
        with kind.schedule(seed):
            given = (x, x) if name.endswith("backward") else (x,)
            found.append(kind.numpy(getattr(nb, name)(*given, 1, deterministic=deterministic)))
    if deterministic or name.startswith("cummax"):
        np.testing.assert_array_equal(found[0].view(np.int32), found[1].view(np.int32))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)
