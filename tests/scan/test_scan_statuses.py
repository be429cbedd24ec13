"""The statuses of scans whose blocks look back: each call leaves zeros for the next."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import KINDS
from samples import name_of
from scan_cases import operands_of, truth
from scan_reference import rounded_last
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op
from numba_baracuda.plans.launches import KernelLaunch
from numba_baracuda.scan.descriptor import ScanBackwardDescriptor, ScanDescriptor

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

#: one row, rows, and columns, each of several tiles; a device has them 50 times as long
SHAPES = {"row": ((1, 20_000), 1), "rows": ((3, 9001), 1), "columns": ((8000, 24), 0), "slabs": ((6000, 5), 0)}


@pytest.mark.parametrize("op", [nb.OPS[name] for name in ("cumsum", "cummax", "cummax_backward", "cumprod_backward")], ids=name_of)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_a_scan_sets_the_statuses_of_another_call_to_zeros(op: Op, shape: str, kind: str) -> None:
    """All of them, whatever they were, and reads none of them."""
    (extents, axis), made_of = SHAPES[shape], KINDS[kind]
    if not made_of.emulated:
        extents = tuple(extent * (50 if k == axis else 1) for k, extent in enumerate(extents))
    operands = operands_of(op, extents, axis)
    given = {name: made_of.array(array) for name, array in operands.items()}
    made = {each.name: made_of.poisoned(extents, np.float32) for each in op.operands if each.output and each.name != "indices"}
    descriptor = (ScanBackwardDescriptor if op.traits["backward"] else ScanDescriptor)(op.kind, extents, axis)
    steps = nb.select(descriptor).launches(**given, **made)
    assert not isinstance(steps[0], KernelLaunch) and len(steps) == 2
    launch = steps[1]
    assert isinstance(launch, KernelLaunch)
    statuses, stale = (launch.arguments[[each.name for each in launch.kernel.parameters].index(name)] for name in ("tile_status", "stale_status"))
    assert len(statuses) == len(stale) > 0
    stale[:] = -1
    for step in steps:
        step()
    assert not made_of.numpy(stale).any()
    assert_close(made_of.numpy(next(iter(made.values()))), rounded_last(truth(op, operands, axis)), "f32", op.name)


@pytest.mark.gpu
def test_calls_of_all_sizes_take_turns_in_the_memory_of_their_stream() -> None:
    """Each prefix is right to the bit, so each call found zeros: ones are counted, in one order of sizes on each of two streams."""
    random, streams = np.random.default_rng(11), [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(300):
        dtype, extent = random.choice(["int32", "float64", "float32"]), int(2 ** random.uniform(14, 23.9))
        shape, axis = [((1, extent), 1), ((extent // 5, 5), 0), ((extent // 24, 24), 0), ((3, extent // 3), 1)][random.integers(4)]
        with streams[random.integers(2)] as stream:
            counted = nb.cumsum(cupy.ones(shape, dtype), axis)
            wanted = cupy.broadcast_to(cupy.arange(1, shape[axis] + 1).reshape((-1, 1) if axis == 0 else (1, -1)), shape)
            assert bool((counted == wanted).all()), (dtype, shape, axis, stream)
