"""Gradients: table × samples × truth, and the truth itself against finite differences of the forward reference."""

from __future__ import annotations

import numpy as np
import pytest
import references
import samples
from kinds import Kind, lay
from samples import BACKWARD, Sample, check, name_of, variants_of
from tolerance import assert_close

from numba_baracuda import InvalidProblem
from numba_baracuda.op import Op, Variant

EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(BACKWARD), ids=name_of)
EVERY_OP = pytest.mark.parametrize("op", BACKWARD, ids=name_of)


@pytest.mark.parametrize("name", [name for name in references.REFERENCES if not name.endswith("_backward")])
@pytest.mark.parametrize("trailing", [(), (3,)], ids=str)
def test_references_against_finite_differences(name: str, trailing: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(name))
    ids, segments, step = np.sort(rng.integers(-1, 6, 14)), 5, 1e-6
    x = rng.uniform(0.5, 1.5, (14, *trailing)) * rng.choice([-1, 1], (14, *trailing))
    weights = rng.standard_normal((segments, *trailing))

    def loss(x: np.ndarray) -> float:
        return float((references.truth(name, {"input": x, "segment_ids": ids}, segments, empty=0).value * weights).sum())

    slopes = np.empty_like(x)
    for place in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[place] = step
        slopes[place] = (loss(x + nudge) - loss(x - nudge)) / (2 * step)
    kind = name.rpartition("_")[2]
    output = references.truth(name, {"input": x, "segment_ids": ids}, segments).value
    known = {"d_output": weights, "input": x, "output": output, "segment_ids": ids}
    given = {operand: known[operand] for operand in references.GRADIENT_INPUTS[kind]}
    np.testing.assert_allclose(references.truth(f"{name}_backward", given, segments).value, slopes, rtol=1e-6, atol=1e-7)


def test_reference_of_a_product_at_zeros() -> None:
    x, ids = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 5.0, 7.0]), np.array([0, 0, 0, 1, 1, 1, 2])
    given = {"d_output": np.ones(3), "input": x, "output": np.array([0.0, 0.0, 7.0]), "segment_ids": ids}
    np.testing.assert_array_equal(references.truth("segment_prod_backward", given, 3).value, [6, 0, 0, 0, 0, 0, 1])


def test_reference_of_a_maximum_at_ties_and_nan() -> None:
    x, ids = np.array([1.0, 4.0, 4.0, np.nan, 2.0, np.nan, -np.inf, -np.inf]), np.array([0, 0, 0, 1, 1, 1, 2, 2])
    given = {"d_output": np.array([10.0, 20.0, 30.0]), "input": x, "segment_ids": ids}
    np.testing.assert_array_equal(references.truth("segment_max_backward", given, 3).value, [0, 10, 0, 20, 0, 0, 30, 0])


@EVERY
def test_sorted_gradients_of_unsorted_ids_that_need_no_order(kind: Kind, op: Op, variant: Variant) -> None:
    """Sums, means and products are the same in any order of rows; the others must only stay inside, which the emulator watches."""
    sample = Sample("shuffled", 90, (4,), 20)
    given = samples.operands(op, sample)
    given["segment_ids"][...] = np.random.default_rng(1).permutation(given["segment_ids"])
    if "max" in op.name or "min" in op.name:
        samples.run(kind, samples.plan_of(op, variant, samples.descriptor(op, sample)), given)
    else:
        if "output" in given:
            forward = references.truth(op.name.removesuffix("_backward"), {k: given[k] for k in ("input", "segment_ids")}, sample.segments)
            given["output"] = forward.value.astype(np.float32)
        check(kind, op, variant, sample, given)


@EVERY
def test_special_values_reach_only_their_segment(kind: Kind, op: Op, variant: Variant) -> None:
    """NaN, infinities and the sign of zero of d_output come through."""
    sample = Sample("special", 120, (4,), 12, whole=True)
    given = samples.operands(op, sample)
    given["d_output"][[3, 4, 5], [0, 1, 2]] = np.nan, np.inf, -np.inf
    given["d_output"][6] = -0.0
    got = check(kind, op, variant, sample, given)
    calm = np.ones(got.shape, bool)
    for segment, column in ((3, 0), (4, 1), (5, 2)):
        calm[given["segment_ids"] == segment, column] = False
    assert np.isfinite(got[calm]).all()
    if "sum" in op.name or "mean" in op.name:
        assert np.signbit(got[given["segment_ids"] == 6]).all()


@EVERY_OP
def test_the_function(any_kind: Kind, op: Op) -> None:
    sample = Sample("function", 90, (3, 4), 20, whole=True)
    given = samples.operands(op, sample)
    on_device = [lay(any_kind, "contiguous", array) for array in given.values()]
    made = samples.call(op, on_device, sample.segments)
    assert any_kind.owns(made)
    out = lay(any_kind, "contiguous", np.full((sample.rows, 3, 4), 99, np.float32))
    assert samples.call(op, on_device, sample.segments, out=out) is out
    assert_close(any_kind.numpy(made), references.truth(op.name, given, sample.segments), sample.element, op.name)
    np.testing.assert_array_equal(any_kind.numpy(out), any_kind.numpy(made))


@EVERY_OP
def test_check_ids(kind: Kind, op: Op) -> None:
    sample = Sample("checked", 6, (2,), 5, whole=True)
    given = samples.operands(op, sample)

    def refusal(ids: list[int]) -> str:
        given["segment_ids"][...] = ids
        try:
            samples.call(op, [kind.array(array) for array in given.values()], 5, check_ids=True)
        except InvalidProblem as problem:
            return str(problem)
        return ""

    assert refusal([0, 1, 1, 2, 4, 4]) == ""
    assert "segment_ids[4] is outside [0, 5)" in refusal([0, 1, 1, 2, 5, 6])
    assert ("segment_ids[2] is less than segment_ids[1]" in refusal([0, 1, 0, 2, 3, 1])) == op.traits["ordered"]
