"""Deterministic variants give the same bits in every run, and a segment's bits depend on its own rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import references
import samples
from kinds import KINDS, Kind
from references import BY_ROW, stem
from samples import FORWARD, OPS, Sample, name_of, represents, variants_of
from tolerance import assert_close

from numba_baracuda.core.op import Op, Variant

DETERMINISTIC = pytest.mark.parametrize(("op", "variant"), variants_of(list(OPS.values()), deterministic=True), ids=name_of)
ANY = pytest.mark.parametrize(("op", "variant"), [(op, v) for op, v in variants_of(list(OPS.values())) if not v.deterministic], ids=name_of)

#: values of all magnitudes, so that every order of additions rounds otherwise; with runs that cross blocks
SAMPLE = Sample("orders", 700, (3,), 12, samples.skewed)
#: the same, smaller, for ops whose algorithm another op shows
SHORT = Sample("orders, short", 200, (3,), 12, samples.skewed)


def suited(op: Op, variant: Variant) -> Sample:
    return SAMPLE if represents(op, variant) else SHORT


def rough(op: Op, sample: Sample) -> dict[str, np.ndarray]:
    given = samples.operands(op, sample)
    rng = np.random.default_rng(7)
    for name, array in given.items():
        if name in ("input", "d_output") and stem(op.name) != "prod":
            array *= np.exp2(rng.integers(-12, 12, array.shape)).astype(array.dtype)
    if {"input", "output"} <= set(given):
        given["output"] = samples.saved(op, given["input"], given["segment_ids"], sample)
    return given


def bits(array: np.ndarray) -> bytes:
    return array.tobytes()


@DETERMINISTIC
def test_every_run_and_every_schedule_gives_the_same_bits(kind: Kind, op: Op, variant: Variant) -> None:
    """In the emulator under several schedules, with as many blocks as the rows give."""
    sample = suited(op, variant)
    given = rough(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample), 1000 if kind.emulated else 0)
    first = samples.run(kind, made, given, None)
    assert_close(first, references.truth(op.name, given, sample.segments), sample.element, op.name)
    for seed in range(5 if sample is SAMPLE else 2):
        assert bits(samples.run(kind, made, given, seed)) == bits(first)


@ANY
def test_other_variants_stay_in_tolerance_under_every_schedule(kind: Kind, op: Op, variant: Variant) -> None:
    sample = suited(op, variant)
    given = rough(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    truth = references.truth(op.name, given, sample.segments)
    seen = set()
    for seed in range(5):
        got = samples.run(kind, made, given, seed)
        assert_close(got, truth, sample.element, op.name)
        seen.add(bits(got))
    if kind.emulated and stem(op.name) == "sum":
        assert len(seen) > 1, "the schedules do not differ, so they prove nothing of the deterministic variants"


@pytest.mark.parametrize(("op", "variant"), variants_of(FORWARD, deterministic=True), ids=name_of)
def test_a_segment_depends_on_its_own_rows_alone(kind: Kind, op: Op, variant: Variant) -> None:
    sample = suited(op, variant)
    given = rough(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    alone = samples.run(kind, made, given)
    for segment in (0, 1, 5) if sample is SAMPLE else (1,):
        others = given["segment_ids"] != segment
        mine = ~others if stem(op.name) in BY_ROW else segment
        given["input"][others] = np.nan
        np.testing.assert_array_equal(samples.run(kind, made, given)[mine], alone[mine])
        given["input"][others] = 1e30
        np.testing.assert_array_equal(samples.run(kind, made, given)[mine], alone[mine])
        given = rough(op, sample)


@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(list(OPS.values()), deterministic=True) if represents(*pair)], ids=name_of)
def test_plans_made_anew_give_the_same_bits(kind: Kind, op: Op, variant: Variant) -> None:
    given, described = rough(op, SAMPLE), samples.descriptor(op, SAMPLE)
    one, two = (samples.run(kind, samples.plan_of(op, variant, described), given) for _ in range(2))
    assert bits(one) == bits(two)


@pytest.mark.gpu
@DETERMINISTIC
def test_real_sizes_give_the_same_bits(op: Op, variant: Variant) -> None:
    pytest.importorskip("cupy")
    sample = Sample("large", 1_000_000, (16,), 30_000, samples.skewed)
    given = rough(op, sample)
    made = samples.plan_of(op, variant, samples.descriptor(op, sample))
    first = samples.run(KINDS["cupy"], made, given)
    for _ in range(3):
        assert bits(samples.run(KINDS["cupy"], made, given)) == bits(first)
