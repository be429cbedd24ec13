"""Kernels in programs of users: the steps of plans, and kernels by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda import device
from numba_baracuda.plans.launches import KernelLaunch, LibraryStep
from numba_baracuda.segment.kernels import gather_elements

RNG = np.random.default_rng(0)
ROWS = RNG.random((1000, 8), np.float32)
IDS = RNG.integers(-1, 21, 1000)
LOGITS = RNG.random((33, 20), np.float32)

#: descriptor, operands in NumPy, and the output's name
PLANS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "sorted sum": (
        nb.SegmentDescriptor("segment_sum", 1000, 8, 20, index="i64"), {"input": ROWS, "segment_ids": np.sort(IDS)},
        {"output": np.empty((20, 8), np.float32)},
    ),
    "unsorted mean": (
        nb.SegmentDescriptor("unsorted_segment_mean", 1000, 8, 20, index="i64"), {"input": ROWS, "segment_ids": IDS},
        {"output": np.empty((20, 8), np.float32)},
    ),
    "sum sorted by the plan": (
        nb.SegmentDescriptor("unsorted_segment_sum", 1000, 8, 700, index="i64"), {"input": ROWS, "segment_ids": IDS},
        {"output": np.empty((700, 8), np.float32)},
    ),
    "gradient of max": (
        nb.SegmentDescriptor("segment_max_backward", 1000, 8, 20, index="i64"),
        {"d_output": ROWS[:20], "input": ROWS, "segment_ids": np.sort(IDS)}, {"d_input": np.empty_like(ROWS)},
    ),
    "variance": (nb.ReduceDescriptor("var", (1000, 8), 0), {"x": ROWS}, {"y": np.empty((1, 8), np.float32)}),
    "halves": (nb.ReduceDescriptor("logsumexp", (1000, 8), 1, element="f16"), {"x": ROWS.astype(np.float16)}, {"y": np.empty((1000, 1), np.float16)}),
    "places": (nb.ReduceDescriptor("argmax", (1000, 8), 0), {"x": ROWS}, {"y": np.empty((1, 8), np.int64)}),
    "truth": (nb.ReduceDescriptor("any", (1000, 8), 0, element="bool"), {"x": ROWS > 0.9}, {"y": np.empty((1, 8), np.bool_)}),
    "scan": (nb.ScanDescriptor("cumsum", (1000, 8), 0, reverse=True), {"x": ROWS}, {"y": np.empty_like(ROWS)}),
    "long scan": (nb.ScanDescriptor("cumprod", (1, 8000), 1), {"x": ROWS.reshape(1, -1)}, {"y": np.empty((1, 8000), np.float32)}),
    "loss": (
        nb.FusedLinearCrossEntropyDescriptor(8, 20, 33), {"input": LOGITS[:8], "weight": LOGITS, "target": np.arange(8)},
        {"out": np.empty(1, np.float32), "grad_input": np.empty((8, 20), np.float32), "grad_weight": np.empty((33, 20), np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_the_steps_of_a_plan_are_its_run(name: str, any_kind: Kind) -> None:
    """Twice, to the bit: with the arguments that each step has, and by calling the steps."""
    descriptor, inputs, outputs = PLANS[name]
    given = {key: any_kind.array(value) for key, value in inputs.items()}
    made, wanted = ({key: any_kind.poisoned(value.shape, value.dtype) for key, value in outputs.items()} for _ in range(2))
    plan = nb.select(descriptor)
    plan.run(**given, **wanted)
    steps = plan.launches(**given, **made)
    assert any(isinstance(step, KernelLaunch) for step in steps)
    for _ in range(2):
        for step in steps:
            if any_kind.emulated and isinstance(step, KernelLaunch):
                device.emulate(step.kernel)[step.grid, step.block, 0, step.shared](*step.arguments)
            else:
                step()
        for key in outputs:
            np.testing.assert_array_equal(any_kind.numpy(made[key]), any_kind.numpy(wanted[key]))
        made[next(iter(outputs))][...] = 0
        for step in steps:
            step()
        for key in outputs:
            np.testing.assert_array_equal(any_kind.numpy(made[key]), any_kind.numpy(wanted[key]))


def test_library_steps_say_what_they_do(kind: Kind) -> None:
    descriptor, inputs, outputs = PLANS["sum sorted by the plan"]
    steps = nb.select(descriptor).launches(**{key: kind.array(value) for key, value in (inputs | outputs).items()})
    assert "LibraryStep(sort keys)" in map(repr, steps)
    assert {type(step) for step in steps} == {KernelLaunch, LibraryStep}
    launch = next(step for step in steps if isinstance(step, KernelLaunch))
    assert repr(launch) == f"KernelLaunch({launch.kernel.__name__}[{launch.grid}, {launch.block}, 0, {launch.shared}])"
    assert len(launch.arguments) == len(launch.kernel.parameters)


def test_strided_operands_are_given_from_their_first_element(kind: Kind) -> None:
    plan = nb.select(nb.ReduceDescriptor("sum", (100, 4), 1))
    base, sums = kind.array(ROWS[:200, :]), kind.array(np.zeros((100, 1), np.float32))
    for step in plan.launches(x=base[::2, 1:5], y=sums):
        step()
    np.testing.assert_array_equal(kind.numpy(sums), kind.numpy(nb.reduce_sum(base[::2, 1:5], axis=1)))
    with pytest.raises(nb.Unsupported, match=r"launches: x has strides \[-8, 1\], wants none below 0"):
        plan.launches(x=base[99::-1, 1:5], y=sums)
    with pytest.raises(nb.InvalidProblem, match=r"reduce_sum: x has shape \[200, 8\]"):
        plan.launches(x=base, y=sums)
    with pytest.raises(nb.InvalidProblem, match="operand 'y' is missing"):
        plan.launches(x=base[::2, 1:5])


def test_nothing_to_do_is_no_launch() -> None:
    plan = nb.select(nb.ScanDescriptor("cumsum", (0, 4), 1), device=-1)
    assert plan.launches(x=np.empty((0, 4), np.float32), y=np.empty((0, 4), np.float32)) == []


def test_arguments_by_name() -> None:
    kernel = gather_elements(value="f32", index="i32", count="")
    named = {"source": 1, "ids": 2, "counts": 3, "output": 4, "rows": 5, "segments": 6, "source_row": 7}
    assert kernel.ordered(**dict(reversed(named.items()))) == (1, 2, 3, 4, 5, 6, 7)
    with pytest.raises(nb.InvalidProblem, match=r"gather_elements: got no source_row; unknown row, wants source: \*f32, ids: \*i32"):
        kernel.ordered(**{name: 0 for name in named if name != "source_row"}, row=1)
