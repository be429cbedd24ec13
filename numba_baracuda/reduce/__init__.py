"""Reductions along axes: elements are folded into one, and gradients go the way back."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .descriptor import ReduceBackwardDescriptor, ReduceDescriptor
from .monoids import ReduceAxisDescriptor, reduce_axis
from .ops import FUNCTIONS

if TYPE_CHECKING:  # the functions are made from the table, which type checkers do not run
    reduce_all: Callable[..., Any]
    reduce_any: Callable[..., Any]
    reduce_argmax: Callable[..., Any]
    reduce_argmin: Callable[..., Any]
    reduce_count_nonzero: Callable[..., Any]
    reduce_logsumexp: Callable[..., Any]
    reduce_logsumexp_backward: Callable[..., Any]
    reduce_max: Callable[..., Any]
    reduce_max_backward: Callable[..., Any]
    reduce_mean: Callable[..., Any]
    reduce_mean_backward: Callable[..., Any]
    reduce_min: Callable[..., Any]
    reduce_min_backward: Callable[..., Any]
    reduce_norm2: Callable[..., Any]
    reduce_norm2_backward: Callable[..., Any]
    reduce_prod: Callable[..., Any]
    reduce_prod_backward: Callable[..., Any]
    reduce_std: Callable[..., Any]
    reduce_std_backward: Callable[..., Any]
    reduce_sum: Callable[..., Any]
    reduce_sum_backward: Callable[..., Any]
    reduce_var: Callable[..., Any]
    reduce_var_backward: Callable[..., Any]

__all__ = ["ReduceAxisDescriptor", "ReduceBackwardDescriptor", "ReduceDescriptor", "reduce_axis", *FUNCTIONS]
globals().update(FUNCTIONS)
