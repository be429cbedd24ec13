"""Names with fixed numbers: the enums that descriptors, SKUs and guarantees are written in.

A member can be looked up by its number, by its name in any spelling (``"SegmentSum"``, ``"segment_sum"``, ``"SEGMENT_SUM"``) or by itself.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from .errors import InvalidProblem

if TYPE_CHECKING:
    from typing_extensions import Self


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


class Named(enum.IntEnum):
    """An ``IntEnum`` that also accepts its members' names as strings."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """``cls(value)`` for a member, its name or its number; 1.0 and True, which equal a number, are none."""
        return cls._missing_(value) if isinstance(value, bool | float) else cls(value)

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if isinstance(value, str):
            wanted = _fold(value)
            for member in cls:
                if _fold(member.name) == wanted:
                    return member
        names = ", ".join(member.name for member in cls)
        raise InvalidProblem(f"{cls.__name__}: got {value!r}, wants one of {names}")


class MathPrecision(Named):
    """Precision of the multiply-add instruction a kernel uses."""

    F16, BF16, TF32, F32, F64, INT8, FP8_E4M3, FP8_E5M2, INT4, BINARY = range(10)


class OpCategory(Named):
    """Family of an op."""

    (
        GEMM, UNARY_ELEMENTWISE, BINARY_ELEMENTWISE, TERNARY_ELEMENTWISE, GATED_ACTIVATION, REDUCTION, SCAN, NORMALIZATION, SOFTMAX, CONVOLUTION,
        POOLING, ATTENTION, INDEXING, EMBEDDING, SHAPE_LAYOUT, SORTING, QUANTIZATION, RANDOM, LOSS, SEGMENT_OPS, IMAGE, FFT, LINALG, MOE,
    ) = range(24)  # fmt: skip


class SegmentKind(Named):
    """Segment ops; the numbers go into ``KernelSku.op``."""

    SEGMENT_SUM = 0
    SEGMENT_SUM_BACKWARD = 1
    SEGMENT_MEAN = 2
    SEGMENT_MEAN_BACKWARD = 3
    SEGMENT_MAX = 4
    SEGMENT_MIN = 5
    SEGMENT_PROD = 6
    UNSORTED_SEGMENT_SUM = 7
    UNSORTED_SEGMENT_SUM_BACKWARD = 8
    UNSORTED_SEGMENT_MEAN = 9
    UNSORTED_SEGMENT_MEAN_BACKWARD = 10
    UNSORTED_SEGMENT_MAX = 11
    UNSORTED_SEGMENT_MIN = 12
    SEGMENT_MAX_BACKWARD = 13
    SEGMENT_MIN_BACKWARD = 14
    SEGMENT_PROD_BACKWARD = 15
    UNSORTED_SEGMENT_MAX_BACKWARD = 16
    UNSORTED_SEGMENT_MIN_BACKWARD = 17
    UNSORTED_SEGMENT_PROD = 18
    UNSORTED_SEGMENT_PROD_BACKWARD = 19
    SEGMENT_LOGSUMEXP = 20
    SEGMENT_LOGSUMEXP_BACKWARD = 21
    SEGMENT_NORM2 = 22
    SEGMENT_NORM2_BACKWARD = 23
    SEGMENT_VAR = 24
    SEGMENT_VAR_BACKWARD = 25
    SEGMENT_STD = 26
    SEGMENT_STD_BACKWARD = 27
    SEGMENT_SOFTMAX = 28
    SEGMENT_SOFTMAX_BACKWARD = 29
    UNSORTED_SEGMENT_LOGSUMEXP = 30
    UNSORTED_SEGMENT_LOGSUMEXP_BACKWARD = 31
    UNSORTED_SEGMENT_NORM2 = 32
    UNSORTED_SEGMENT_NORM2_BACKWARD = 33
    UNSORTED_SEGMENT_VAR = 34
    UNSORTED_SEGMENT_VAR_BACKWARD = 35
    UNSORTED_SEGMENT_STD = 36
    UNSORTED_SEGMENT_STD_BACKWARD = 37
    UNSORTED_SEGMENT_SOFTMAX = 38
    UNSORTED_SEGMENT_SOFTMAX_BACKWARD = 39
    SEGMENT_LOG_SOFTMAX = 40
    SEGMENT_LOG_SOFTMAX_BACKWARD = 41
    UNSORTED_SEGMENT_LOG_SOFTMAX = 42
    UNSORTED_SEGMENT_LOG_SOFTMAX_BACKWARD = 43


class ReduceKind(Named):
    """Axis reductions."""

    SUM, MEAN, MAX, MIN, PROD, VAR, STD, NORM2, ARGMAX, ARGMIN, ANY, ALL, LOG_SUM_EXP, TRACE, COUNT_NONZERO = range(15)


class ScanKind(Named):
    """Prefix scans."""

    CUMSUM, CUMPROD, CUMMAX, CUMMIN, LOG_CUMSUM_EXP = range(5)


class MonoidKind(Named):
    """Functions of a monoid that the caller brings; no other kind has these numbers."""

    SEGMENT_REDUCE, REDUCE_AXIS, SCAN_AXIS = range(1000, 1003)


class LossKind(Named):
    """Losses; this package implements the last."""

    (
        MSE, NLL, CROSS_ENTROPY, BCE, KL_DIV, L1, SMOOTH_L1, HINGE_EMBEDDING, MARGIN_RANKING, TRIPLET_MARGIN, CTC, POISSON_NLL, HUBER,
        BCE_WITH_LOGITS, GAUSSIAN_NLL, COSINE_EMBEDDING, MULTI_MARGIN, MULTILABEL_MARGIN, MULTILABEL_SOFT_MARGIN, FUSED_LINEAR_CROSS_ENTROPY,
    ) = range(20)  # fmt: skip


class LossReduction(Named):
    """What a loss returns: one value a row, their mean, or their sum."""

    NONE, MEAN, SUM = range(3)


class ArchSku(Named):
    """Architecture a kernel was built for; ``EMULATOR`` is the CPU emulator."""

    SM80, SM89, SM90A, SM90, SM100, SM120, EMULATOR = range(7)

    @classmethod
    def of(cls, capability: tuple[int, int]) -> ArchSku:
        """The family of a compute capability, (8, 0) or above."""
        if capability >= (12, 0):
            return cls.SM120
        if capability >= (10, 0):
            return cls.SM100
        if capability >= (9, 0):
            return cls.SM90
        return cls.SM89 if capability >= (8, 9) else cls.SM80


class BackendKind(Named):
    """Who wrote the kernel; this package's own are ``BESPOKE``, its GEMMs ``CUBLAS``."""

    (
        BESPOKE, CUTLASS, CUBLAS, CUDNN, CUFFT, CUSPARSE, CUSOLVER, CURAND, CUTENSOR, NPP, CVCUDA, FLASH_ATTENTION_V2, FLASH_INFER, OZAKI,
    ) = range(14)  # fmt: skip
