"""The heart of the suite: every op and variant on every problem, against the truth."""

from __future__ import annotations

import pytest
import samples
from kinds import KINDS, Kind
from samples import BIG, SAMPLES, Sample, check, name_of, variants_of

from numba_baracuda import OPS
from numba_baracuda.op import Op, Variant

EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(list(OPS.values())), ids=name_of)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
@EVERY
def test_samples(kind: Kind, op: Op, variant: Variant, sample: Sample) -> None:
    check(kind, op, variant, sample, samples.operands(op, sample))


@pytest.mark.gpu
@pytest.mark.parametrize("sample", BIG, ids=name_of)
@EVERY
def test_real_sizes(op: Op, variant: Variant, sample: Sample) -> None:
    pytest.importorskip("cupy")
    check(KINDS["cupy"], op, variant, sample, samples.operands(op, sample))
