"""``correction``: any real number of 0 or more, which kernels are given as a number, so that none is built for one of its values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda import OPS, SegmentDescriptor
from numba_baracuda.core.op import Launch, Op, Target, contiguous
from numba_baracuda.reduce.descriptor import ReduceBackwardDescriptor, ReduceDescriptor

EVERY = pytest.mark.parametrize("op", [op for op in OPS.values() if "correction" in op.traits.get("keywords", ())], ids=lambda op: op.name)


def described(op: Op, **options: Any) -> list[Any]:
    """Problems that meet every kernel: for segments few and many of them, narrow and wide rows; reductions along, across, long and short."""
    if op.family == "segment":
        sizes = (1 << 20, 16, 1 << 14), (1 << 20, 1, 1 << 10), (1 << 20, 64, 1 << 14), (1 << 20, 16, 8), (1 << 23, 4, 1 << 16)
        return [SegmentDescriptor(op.name, *each, **options) for each in sizes]
    made = ReduceBackwardDescriptor if op.traits["backward"] else ReduceDescriptor
    shapes = ((1 << 14, 1 << 14), 1), ((1 << 14, 1 << 14), 0), ((4, 1 << 24), 1), ((1 << 20, 16), 1), ((1 << 20, 37), 1)
    return [made(op.kind, shape, axis, **options) for shape, axis in shapes]


def launches(op: Op, correction: float) -> list[Launch]:
    found = []
    for descriptor in described(op, correction=correction):
        shapes = {operand.name: tuple(getattr(descriptor, axis) for axis in operand.axes) for operand in op.operands}
        layouts = {name: contiguous(shape[0] if isinstance(shape[0], tuple) else shape) for name, shape in shapes.items()}
        for variant in op.variants:
            if variant.refuses(op, descriptor) is None:
                found += [step for step in variant.recipe(op, descriptor, layouts, Target((9, 0), 132)).steps if isinstance(step, Launch)]
    return found


@EVERY
def test_one_kernel_serves_all_corrections(op: Op) -> None:
    first, *others = [launches(op, correction) for correction in (1, 0, 0.5, 2.25, 1e300)]
    for other in others:
        assert [(step.spec, step.config) for step in other] == [(step.spec, step.config) for step in first]
        assert [step.arguments for step in other] != [step.arguments for step in first]


@EVERY
def test_whatever_number_it_is(kind: Kind, op: Op) -> None:
    """1, 1.0, a NumPy number and a fraction are one; where nothing is left, results and gradients are 0, also for numbers beyond float32."""
    rng = np.random.default_rng(0)
    x, ids = rng.standard_normal((7, 3)).astype(np.float32), np.array([0, 0, 1, 1, 1, 2, 2], np.int32)

    def run(correction: Any) -> Any:
        if op.family == "segment":
            known = {"d_output": np.ones((3, 3), np.float32), "input": x, "output": np.ones((3, 3), np.float32), "segment_ids": ids}
            given = [kind.array(known[operand.name]) for operand in op.operands[:-1]]
            return kind.numpy(getattr(nb, op.name)(*given, *([] if op.traits["backward"] else [3]), correction=correction))
        known = {"dy": np.ones((7, 1), np.float32), "x": x, "y": np.ones((7, 1), np.float32)}
        given = {operand.name: kind.array(known[operand.name]) for operand in op.operands[:-1]}
        return kind.numpy(getattr(nb, op.name)(**given, axis=1, correction=correction))

    half = run(0.5)
    assert np.abs(half).min() > 0
    np.testing.assert_array_equal(run(Fraction(1, 2)), half)
    np.testing.assert_array_equal(run(np.float32(0.5)), half)
    np.testing.assert_array_equal(run(np.int64(1)), run(1.0))
    power = -0.5 if "std" in op.name and not op.traits["backward"] else -1
    first = slice(0, 2) if op.family == "segment" and op.traits["backward"] else slice(0, 1) if op.family == "segment" else slice(None)
    count = 2 if op.family == "segment" else 3  # of whose count the correction is taken
    np.testing.assert_allclose(half[first] / run(0)[first], ((count - 0.5) / count) ** power, rtol=1e-5)
    for most in (3, 3.5, 1 << 70, 1e300):
        assert (run(most) == 0).all()


@EVERY
@pytest.mark.parametrize("wrong", [-0.5, -1, math.nan, math.inf, True, "1", None, 1j], ids=str)
def test_what_is_no_correction(op: Op, wrong: Any) -> None:
    with pytest.raises(nb.InvalidProblem, match=rf"^{op.name}: correction is .*, wants a finite number, 0 or more"):
        described(op, correction=wrong)
