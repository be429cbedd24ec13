"""Losses of a linear layer whose outputs are never held all at once."""

from .calls import FusedLinearCrossEntropyResult, fused_linear_cross_entropy, fused_linear_cross_entropy_backward
from .chunking import pick_chunk_size
from .descriptor import FLCE_DEFAULT_IGNORE_INDEX, FusedLinearCrossEntropyBackwardDescriptor, FusedLinearCrossEntropyDescriptor

__all__ = [
    "FLCE_DEFAULT_IGNORE_INDEX",
    "FusedLinearCrossEntropyBackwardDescriptor",
    "FusedLinearCrossEntropyDescriptor",
    "FusedLinearCrossEntropyResult",
    "fused_linear_cross_entropy",
    "fused_linear_cross_entropy_backward",
    "pick_chunk_size",
]
