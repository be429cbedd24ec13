"""Names with fixed numbers."""

from __future__ import annotations

import pytest
from samples import OPS

import numba_baracuda as nb
from numba_baracuda.core.vocabulary import Named

SEGMENT = (
    "SegmentSum SegmentSumBackward SegmentMean SegmentMeanBackward SegmentMax SegmentMin SegmentProd UnsortedSegmentSum UnsortedSegmentSumBackward"
    " UnsortedSegmentMean UnsortedSegmentMeanBackward UnsortedSegmentMax UnsortedSegmentMin SegmentMaxBackward SegmentMinBackward SegmentProdBackward"
    " UnsortedSegmentMaxBackward UnsortedSegmentMinBackward UnsortedSegmentProd UnsortedSegmentProdBackward"
    " SegmentLogsumexp SegmentLogsumexpBackward SegmentNorm2 SegmentNorm2Backward SegmentVar SegmentVarBackward SegmentStd SegmentStdBackward"
    " SegmentSoftmax SegmentSoftmaxBackward UnsortedSegmentLogsumexp UnsortedSegmentLogsumexpBackward UnsortedSegmentNorm2"
    " UnsortedSegmentNorm2Backward UnsortedSegmentVar UnsortedSegmentVarBackward UnsortedSegmentStd UnsortedSegmentStdBackward"
    " UnsortedSegmentSoftmax UnsortedSegmentSoftmaxBackward SegmentLogSoftmax SegmentLogSoftmaxBackward UnsortedSegmentLogSoftmax"
    " UnsortedSegmentLogSoftmaxBackward"
)
#: in the order of their numbers, from 0
ORDERS = {
    nb.SegmentKind: SEGMENT,
    nb.ElementKind: "F16 Bf16 F32 F32Strict F64 S8 U8 I32 I64 Bool Fp8E4M3 Fp8E5M2 S4 U4 Bin Complex32 Complex64",
    nb.ReduceKind: "Sum Mean Max Min Prod Var Std Norm2 Argmax Argmin Any All LogSumExp Trace CountNonzero",
    nb.ScanKind: "Cumsum Cumprod Cummax Cummin LogCumsumExp",
    nb.LossKind: "Mse Nll CrossEntropy Bce KlDiv L1 SmoothL1 HingeEmbedding MarginRanking TripletMargin Ctc PoissonNll Huber BceWithLogits"
    " GaussianNll CosineEmbedding MultiMargin MultilabelMargin MultilabelSoftMargin FusedLinearCrossEntropy",
    nb.LossReduction: "None Mean Sum",
    nb.MathPrecision: "F16 Bf16 Tf32 F32 F64 Int8 Fp8E4M3 Fp8E5M2 Int4 Binary",
    nb.OpCategory: "Gemm UnaryElementwise BinaryElementwise TernaryElementwise GatedActivation Reduction Scan Normalization Softmax Convolution"
    " Pooling Attention Indexing Embedding ShapeLayout Sorting Quantization Random Loss SegmentOps Image Fft Linalg Moe",
    nb.BackendKind: "Bespoke Cutlass Cublas Cudnn Cufft Cusparse Cusolver Curand Cutensor Npp Cvcuda FlashAttentionV2 FlashInfer Ozaki",
}


@pytest.mark.parametrize("kind", ORDERS, ids=lambda kind: kind.__name__)
def test_numbers_and_spellings(kind: type[Named]) -> None:
    names = ORDERS[kind].split()
    assert [int(member) for member in kind] == list(range(len(names)))
    for number, name in enumerate(names):
        member = kind(number)
        for spelling in (name, name.upper(), name.lower(), member.name, member.name.lower().replace("_", "-"), member):
            assert kind(spelling) is member


@pytest.mark.parametrize("kind", [*ORDERS, nb.ArchSku], ids=lambda kind: kind.__name__)
def test_members_are_spelled_alike_and_unknown_ones_refused(kind: type[Named]) -> None:
    assert all(name == name.upper() for name in kind.__members__)
    for unknown in ("nobody", 999, -1, None, 1.5):
        with pytest.raises(nb.InvalidProblem, match=f"{kind.__name__}: got .*, wants one of {next(iter(kind)).name}"):
            kind(unknown)
    with pytest.raises(ValueError):
        kind("nobody")


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((8, 0), "SM80"), ((8, 6), "SM80"), ((8, 7), "SM80"), ((8, 9), "SM89"), ((9, 0), "SM90"), ((10, 0), "SM100"), ((10, 3), "SM100"),
        ((11, 0), "SM100"), ((12, 0), "SM120"), ((12, 1), "SM120"),
    ],
)  # fmt: skip
def test_architectures_of_capabilities(capability: tuple[int, int], name: str) -> None:
    assert nb.ArchSku.of(capability) is nb.ArchSku[name]


def test_ops_are_named_as_their_kinds() -> None:
    for name, op in OPS.items():
        assert op.kind.name == name.upper()
        assert nb.SegmentKind(name) is op.kind
