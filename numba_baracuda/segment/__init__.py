"""Segment ops: rows that share an id are folded into one, and gradients go the way back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .descriptor import SegmentDescriptor
from .index import SegmentIndex
from .monoids import SegmentReduceDescriptor, segment_reduce
from .ops import FUNCTIONS

if TYPE_CHECKING:  # the functions are made from the table, which type checkers do not run
    segment_log_softmax: Callable[..., Any]
    segment_log_softmax_backward: Callable[..., Any]
    segment_logsumexp: Callable[..., Any]
    segment_logsumexp_backward: Callable[..., Any]
    segment_max: Callable[..., Any]
    segment_max_backward: Callable[..., Any]
    segment_mean: Callable[..., Any]
    segment_mean_backward: Callable[..., Any]
    segment_min: Callable[..., Any]
    segment_min_backward: Callable[..., Any]
    segment_norm2: Callable[..., Any]
    segment_norm2_backward: Callable[..., Any]
    segment_prod: Callable[..., Any]
    segment_prod_backward: Callable[..., Any]
    segment_softmax: Callable[..., Any]
    segment_softmax_backward: Callable[..., Any]
    segment_std: Callable[..., Any]
    segment_std_backward: Callable[..., Any]
    segment_sum: Callable[..., Any]
    segment_sum_backward: Callable[..., Any]
    segment_var: Callable[..., Any]
    segment_var_backward: Callable[..., Any]
    unsorted_segment_log_softmax: Callable[..., Any]
    unsorted_segment_log_softmax_backward: Callable[..., Any]
    unsorted_segment_logsumexp: Callable[..., Any]
    unsorted_segment_logsumexp_backward: Callable[..., Any]
    unsorted_segment_max: Callable[..., Any]
    unsorted_segment_max_backward: Callable[..., Any]
    unsorted_segment_mean: Callable[..., Any]
    unsorted_segment_mean_backward: Callable[..., Any]
    unsorted_segment_min: Callable[..., Any]
    unsorted_segment_min_backward: Callable[..., Any]
    unsorted_segment_norm2: Callable[..., Any]
    unsorted_segment_norm2_backward: Callable[..., Any]
    unsorted_segment_prod: Callable[..., Any]
    unsorted_segment_prod_backward: Callable[..., Any]
    unsorted_segment_softmax: Callable[..., Any]
    unsorted_segment_softmax_backward: Callable[..., Any]
    unsorted_segment_std: Callable[..., Any]
    unsorted_segment_std_backward: Callable[..., Any]
    unsorted_segment_sum: Callable[..., Any]
    unsorted_segment_sum_backward: Callable[..., Any]
    unsorted_segment_var: Callable[..., Any]
    unsorted_segment_var_backward: Callable[..., Any]

__all__ = ["SegmentDescriptor", "SegmentIndex", "SegmentReduceDescriptor", "segment_reduce", *FUNCTIONS]
globals().update(FUNCTIONS)
