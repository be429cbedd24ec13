"""Losses of a linear layer whose outputs are never held all at once."""

from ..plans.plan import Plan
from .calls import FusedLinearCrossEntropyResult, fused_linear_cross_entropy, fused_linear_cross_entropy_backward
from .chunking import pick_chunk_size
from .descriptor import FLCE_DEFAULT_IGNORE_INDEX, FusedLinearCrossEntropyBackwardDescriptor, FusedLinearCrossEntropyDescriptor

#: one class serves every op
FusedLinearCrossEntropyPlan = FusedLinearCrossEntropyBackwardPlan = Plan

__all__ = [
    "FLCE_DEFAULT_IGNORE_INDEX",
    "FusedLinearCrossEntropyBackwardDescriptor",
    "FusedLinearCrossEntropyBackwardPlan",
    "FusedLinearCrossEntropyDescriptor",
    "FusedLinearCrossEntropyPlan",
    "FusedLinearCrossEntropyResult",
    "fused_linear_cross_entropy",
    "fused_linear_cross_entropy_backward",
    "pick_chunk_size",
]
