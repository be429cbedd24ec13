"""What a gradient makes of an element, given the elements of its row and its segment."""

from __future__ import annotations

import functools
from typing import Any

from ...algebra.gradients import GRADIENTS
from ...kernels.elements import accumulator_type, conversions_of, inverse_of, is_normal_of, of_type, position_code_of
from ...runtime import jit


@functools.cache
def element_vjp_of(gradient: str, value: str, normal: bool = False) -> Any:
    """``element_vjp(x, w, g, y, at, batch_folded, folded, folded_index, row)``: an element of the output.

    The vjp gets ``x[at]``, ``w[at]``, ``g[at]``, ``y[at]``, which are of the element type, the row's position, and p and q. These are contiguous:
    from ``batch_folded[at · results]`` on, or, for a guarded gradient, from ``folded[folded_index]`` on and only where y is not a normal number; a
    ``normal`` function takes every y for one.
    """
    grad, wide = GRADIENTS[gradient], accumulator_type(value)
    widen, narrow = conversions_of(value)
    position_code, is_normal, scaled_inverse, inverts = position_code_of(value), is_normal_of(value), inverse_of(value), grad.inverts
    vjp, prepare = jit.device(of_type(grad.vjp, wide)), jit.device(grad.prepare)
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    uses_positions, guarded, results = grad.uses_positions, grad.guarded, grad.results

    @jit.device
    def element_vjp(x: Any, w: Any, g: Any, y: Any, at: Any, batch_folded: Any, folded: Any, folded_index: Any, row: Any) -> Any:
        zero = wide(0)
        one_x, one_w, one_g, one_y, p, q = zero, zero, zero, zero, zero, zero
        if has_x:
            one_x = widen(x[at])
        if has_w:
            one_w = widen(w[at])
        if uses_positions:
            one_w = position_code(row)
        if has_g:
            one_g = widen(g[at])
        if has_y:
            one_y = widen(y[at])
        if guarded:
            q = wide(-1)
            if not normal and not is_normal(one_y):
                p, q = folded[folded_index], folded[folded_index + 1]
        elif results > 0:
            p = batch_folded[at * results]
            if results > 1:
                q = batch_folded[at * results + 1]
        scale, inverse = zero, zero
        if inverts:
            scale, inverse = scaled_inverse(one_y)
        one_g, one_y, p, q = prepare(one_g, one_y, p, q, scale, inverse)
        return narrow(vjp(one_x, one_w, one_g, one_y, p, q, zero))

    return element_vjp


@functools.cache
def special_of(value: str, count: int) -> Any:
    """``special(batch, at)``: whether one of ``count`` elements from ``at`` on is a zero, a subnormal, an infinity or NaN."""
    is_normal, (widen, _) = is_normal_of(value), conversions_of(value)

    @jit.device
    def special(batch: Any, at: Any) -> Any:
        any_special = False
        for k in range(count):
            any_special |= not is_normal(widen(batch[at + k]))
        return any_special

    return special
