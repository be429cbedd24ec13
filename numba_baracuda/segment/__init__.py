"""Segment ops: rows that share an id are folded into one, and gradients go the way back."""

from .family import SegmentDescriptor
from .ops import (
    segment_mean,
    segment_mean_backward,
    segment_sum,
    segment_sum_backward,
    unsorted_segment_mean,
    unsorted_segment_mean_backward,
    unsorted_segment_sum,
    unsorted_segment_sum_backward,
)

__all__ = [
    "SegmentDescriptor",
    "segment_mean",
    "segment_mean_backward",
    "segment_sum",
    "segment_sum_backward",
    "unsorted_segment_mean",
    "unsorted_segment_mean_backward",
    "unsorted_segment_sum",
    "unsorted_segment_sum_backward",
]
