"""The heart of the suite: every op and variant on problems, against the truth."""

from __future__ import annotations

import pytest
import samples
from kinds import KINDS, Kind
from references import stem
from samples import BIG, BIG_CORE, OPS, Sample, cases, check, name_of, sampled, variants_of

from numba_baracuda.core.op import Op, Variant

ALL = list(OPS.values())


@pytest.mark.parametrize(("op", "variant", "sample"), sampled(ALL), ids=name_of)
def test_samples(kind: Kind, op: Op, variant: Variant, sample: Sample) -> None:
    check(kind, op, variant, sample, samples.operands(op, sample))


@pytest.mark.parametrize(("op", "variant"), variants_of(ALL), ids=name_of)
def test_samples_leave_no_variant_out(op: Op, variant: Variant) -> None:
    """What a variant refuses is skipped elsewhere, so something must be left."""
    met = [sample for each, chosen, sample in sampled(ALL) if each is op and chosen is variant]
    assert sum(not variant.refuses(op, samples.descriptor(op, sample)) for sample in met) > 1


@pytest.mark.parametrize("op", ALL, ids=name_of)
def test_samples_leave_no_element_out(op: Op) -> None:
    """Of what an op computes in one of its two orders, or the op that it differs from by a sign or a root."""
    alike = {stem(op.name), {"min": "max", "std": "var"}.get(stem(op.name))}
    met = {sample.element for each, _, sample in sampled(ALL) if stem(each.name) in alike and (each.backward is None) == (op.backward is None)}
    assert met == set(op.elements)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "variant", "sample"), [each for each in cases(ALL, BIG, BIG_CORE) if each[2].element in each[0].elements], ids=name_of
)
def test_real_sizes(op: Op, variant: Variant, sample: Sample) -> None:
    pytest.importorskip("cupy")
    check(KINDS["cupy"], op, variant, sample, samples.operands(op, sample))
