"""Segment ops: rows that share an id are folded into one, and gradients go the way back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .descriptor import SegmentDescriptor
from .index import SegmentIndex
from .monoids import SegmentReduceDescriptor, segment_reduce
from .ops import FUNCTIONS, KINDS

if TYPE_CHECKING:  # the functions are made from the table, which type checkers do not run
    from ..core.vocabulary import Named

    class SegmentKind(Named):
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
        SEGMENT_ARGMAX = 44
        UNSORTED_SEGMENT_ARGMAX = 45
        SEGMENT_ARGMIN = 46
        UNSORTED_SEGMENT_ARGMIN = 47

    segment_argmax: Callable[..., Any]
    segment_argmin: Callable[..., Any]
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
    unsorted_segment_argmax: Callable[..., Any]
    unsorted_segment_argmin: Callable[..., Any]
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

__all__ = ["SegmentDescriptor", "SegmentIndex", "SegmentKind", "SegmentReduceDescriptor", "segment_reduce", *FUNCTIONS]
globals().update(FUNCTIONS, SegmentKind=KINDS)
